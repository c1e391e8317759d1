//! The resource version up to which a queue has been processed, in each mode.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{DeltaFifo, Deltas, ProcessError, Queue, RealFifo, WaitError, Watermark};
use k8s_informer::store::{Indexers, ReflectorStore, Transform};
use k8s_informer::{Deleted, Indexer, Stop, Stopper};

use super::things::with_timeout;

/// A key and a resource version.
pub(crate) type Versioned = (&'static str, String);

pub(crate) fn versioned(key: &'static str, version: impl ToString) -> Arc<Versioned> {
    Arc::new((key, version.to_string()))
}

pub(crate) fn accessor() -> Accessor<Versioned> {
    let accessor = Accessor::new(|versioned: &Versioned| match versioned.0 {
        "" => Err(KeyError::new("no key")),
        key => Ok(key.into()),
    });
    accessor.with_resource_version(|versioned| Some(&versioned.1))
}

/// A queue of any type.
pub(crate) enum Kind {
    Delta(Box<DeltaFifo<Versioned>>),
    Real(Box<RealFifo<Versioned>>),
}

impl Kind {
    pub(crate) fn queue(&self) -> &dyn Queue<Versioned> {
        match self {
            Self::Delta(queue) => &**queue,
            Self::Real(queue) => &**queue,
        }
    }
}

pub(crate) fn each_kind() -> [(Kind, Arc<Indexer<Versioned>>); 2] {
    let store = || Arc::new(Indexer::new(accessor(), Indexers::new()));
    let [for_delta, for_real] = [store(), store()];
    let delta = DeltaFifo::builder(accessor())
        .known_objects(Arc::clone(&for_delta) as _)
        .build();
    let real = RealFifo::builder(accessor())
        .known_objects(Arc::clone(&for_real) as _)
        .build();
    [
        (Kind::Delta(Box::new(delta)), for_delta),
        (Kind::Real(Box::new(real)), for_real),
    ]
}

fn for_each_queue(test: impl Fn(&dyn Queue<Versioned>, &Watermark)) {
    for (kind, _) in each_kind() {
        test(kind.queue(), &kind.queue().processed().unwrap());
    }
}

fn succeed(_: &Deltas<Versioned>, _: bool) -> Result<(), ProcessError> {
    Ok(())
}

fn pop(queue: &dyn Queue<Versioned>) {
    queue.pop(&mut succeed).unwrap();
}

/// Pops everything. The end is marked by an object, because not all queues keep bookmarks.
fn pop_all(queue: &dyn Queue<Versioned>) {
    let (mut last, end) = (false, versioned("end", ""));
    queue.update(Arc::clone(&end)).unwrap();
    while !last {
        let popped = queue.pop(&mut succeed).unwrap();
        last = popped.iter().any(|delta| {
            delta
                .object()
                .is_some_and(|object| Arc::ptr_eq(object, &end))
        });
    }
}

#[test]
fn version_is_reached_when_process_callback_returns() {
    for_each_queue(|queue, processed| {
        assert_eq!(processed.current(), "");
        queue.update(versioned("a", 5)).unwrap();
        assert_eq!(processed.current(), "");
        queue
            .pop(&mut |_, _| {
                assert_eq!(
                    processed.current(),
                    "",
                    "the object is still being processed"
                );
                Ok(())
            })
            .unwrap();
        assert_eq!(
            (
                processed.current().as_str(),
                queue.processed().unwrap().current().as_str()
            ),
            ("5", "5")
        );
        queue.delete(Deleted::Final(versioned("a", 6))).unwrap();
        queue.add(versioned("a", 7)).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "7");
    });
}

#[test]
fn w10_older_version_does_not_take_the_watermark_back() {
    for_each_queue(|queue, processed| {
        queue.replace(Vec::new(), "10").unwrap();
        queue.update(versioned("b", 20)).unwrap();
        queue.update(versioned("a", 12)).unwrap();
        queue.delete(Deleted::Final(versioned("a", 5))).unwrap();
        queue.bookmark("19").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "20");
        processed
            .wait("15", Duration::ZERO, &Stop::never())
            .unwrap();
        queue.replace(Vec::new(), "7").unwrap();
        queue.bookmark("8").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "8", "a list may go back");
    });
}

#[test]
fn failed_item_counts_as_processed() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 5)).unwrap();
        queue.pop(&mut |_, _| Err("not today".into())).unwrap_err();
        assert_eq!(processed.current(), "5");
    });
}

#[test]
fn version_of_merged_change_counts_after_earlier_changes() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 1)).unwrap();
        queue.update(versioned("b", 2)).unwrap();
        queue.update(versioned("a", 3)).unwrap();
        // For a `DeltaFifo`, this pops both changes of `a`.
        pop(queue);
        assert_eq!(processed.current(), "1");
        pop_all(queue);
        assert_eq!(processed.current(), "3");
    });
}

#[test]
fn list_version_counts_when_all_objects_are_processed() {
    for_each_queue(|queue, processed| {
        queue
            .replace(vec![versioned("a", 9), versioned("b", 3)], "10")
            .unwrap();
        queue
            .pop(&mut |_, _| {
                assert_eq!(processed.current(), "");
                Ok(())
            })
            .unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
        queue.replace(Vec::new(), "11").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "11");
    });
}

#[test]
fn version_of_an_empty_list_counts() {
    for_each_queue(|queue, processed| {
        queue.replace(Vec::new(), "10").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
    });
}

#[test]
fn older_list_moves_the_version_back() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 50)).unwrap();
        queue.replace(vec![versioned("a", 20)], "30").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "30");
        queue.replace(vec![versioned("a", 20)], "").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "", "the list has no version");
    });
}

#[test]
fn bookmark_counts_when_earlier_items_are_processed() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 5)).unwrap();
        queue.bookmark("8").unwrap();
        assert_eq!(processed.current(), "");
        pop_all(queue);
        assert_eq!(processed.current(), "8");
        queue.bookmark("9").unwrap();
        queue.bookmark("").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "9");
    });
}

#[test]
fn unqueued_bookmark_counts_at_once_if_nothing_is_ahead() {
    let queue = DeltaFifo::new(accessor());
    queue.bookmark("9").unwrap();
    assert_eq!(queue.processed().unwrap().current(), "9");
}

#[test]
fn d3_version_of_unknown_delete_counts_if_nothing_is_ahead() {
    let queue = DeltaFifo::new(accessor());
    let processed = queue.processed().unwrap();
    let (queue, gone) = (&queue as &dyn Queue<Versioned>, |version| {
        Deleted::Final(versioned("b", version))
    });
    queue.delete(gone(4)).unwrap();
    assert_eq!(processed.current(), "4");
    queue.update(versioned("a", 5)).unwrap();
    queue.delete(gone(6)).unwrap();
    assert_eq!(processed.current(), "4");
    queue
        .pop(&mut |_, _| {
            queue.delete(gone(7)).unwrap();
            assert_eq!(processed.current(), "4");
            Ok(())
        })
        .unwrap();
    assert_eq!(processed.current(), "7");
}

/// The queue holds the second deletion back until the deletion in flight has ended. The first
/// deletion fails, so the second one is queued, and the processed version stays below it until it
/// is popped.
#[test]
fn d4_version_of_delete_during_failing_delete_is_held_back() {
    let [(kind, store), ..] = each_kind();
    let (queue, processed) = (kind.queue(), kind.queue().processed().unwrap());
    store.add(versioned("a", 1)).unwrap();
    queue.delete(Deleted::Final(versioned("a", 4))).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(Deleted::Final(versioned("a", 6))).unwrap();
            queue.update(versioned("b", 7)).unwrap();
            Err("not today".into())
        })
        .unwrap_err();
    assert_eq!(processed.current(), "4");
    let popped = queue.pop(&mut succeed).unwrap();
    assert_eq!(
        (&**popped.key().unwrap(), processed.current().as_str()),
        ("b", "4")
    );
    pop(queue);
    assert_eq!(processed.current(), "7");
}

#[test]
fn versions_of_tombstones_and_resyncs_do_not_count() {
    for (kind, store) in each_kind() {
        let (queue, processed) = (kind.queue(), kind.queue().processed().unwrap());
        store.add(versioned("a", 3)).unwrap();
        queue.replace(vec![versioned("a", 3)], "10").unwrap();
        pop_all(queue);
        queue.resync().unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
        let gone = Deleted::FinalStateUnknown {
            key: "a".into(),
            last_known: Some(versioned("a", 3)),
        };
        queue.delete(gone).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
    }
}

#[test]
fn added_versions_after_list_at_0_count_only_after_an_update() {
    for_each_queue(|queue, processed| {
        for start in ["", "0"] {
            queue.replace(Vec::new(), start).unwrap();
            queue.add(versioned("a", 9)).unwrap();
            queue.add(versioned("b", 4)).unwrap();
            pop_all(queue);
            assert_eq!(processed.current(), start);
            queue.update(versioned("a", 10)).unwrap();
            queue.add(versioned("c", 11)).unwrap();
            pop_all(queue);
            assert_eq!(processed.current(), "11");
        }
    });
}

#[test]
fn unversioned_or_refused_object_keeps_last_version() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 5)).unwrap();
        queue.update(versioned("a", "")).unwrap();
        queue.update(versioned("", 6)).unwrap_err();
        pop_all(queue);
        assert_eq!(processed.current(), "5");
    });
}

#[test]
fn version_removed_by_a_transform_counts() {
    let strip =
        || Transform::new(|object: Arc<Versioned>| Ok::<_, String>(versioned(object.0, "")));
    let delta = DeltaFifo::builder(accessor()).transform(strip()).build();
    let real = RealFifo::builder(accessor()).transform(strip()).build();
    for queue in [&delta as &dyn Queue<Versioned>, &real] {
        queue.update(versioned("a", 5)).unwrap();
        pop(queue);
        assert_eq!(queue.processed().unwrap().current(), "5");
    }
}

#[test]
fn processed_version_advances_once_for_a_whole_batch() {
    let queue = RealFifo::new(accessor());
    let processed = queue.processed().unwrap();
    let write: &dyn Queue<Versioned> = &queue;
    for (at, key) in ["a", "b", "c"].into_iter().enumerate() {
        write.update(versioned(key, at + 5)).unwrap();
    }
    let during = &mut |_: &[Deltas<Versioned>], _| {
        assert_eq!(processed.current(), "");
        Ok(())
    };
    queue.pop_batch(during, &mut succeed).unwrap();
    assert_eq!(processed.current(), "7");
}

#[test]
fn wait_ends_at_the_version_or_a_later_one() {
    with_timeout(|| {
        for_each_queue(|queue, processed| {
            let (started, starts) = mpsc::channel();
            thread::scope(|scope| {
                let waits = ["7", "8", "9"].map(|version| {
                    let started = started.clone();
                    scope.spawn(move || {
                        started.send(()).unwrap();
                        processed.wait(version, Duration::MAX, &Stop::never())
                    })
                });
                (0..3).for_each(|_| starts.recv().unwrap());
                queue.update(versioned("a", 7)).unwrap();
                queue.update(versioned("b", 10)).unwrap();
                pop_all(queue);
                waits
                    .into_iter()
                    .for_each(|wait| wait.join().unwrap().unwrap());
            });
            processed
                .wait("10", Duration::ZERO, &Stop::never())
                .unwrap();
        });
    });
}

#[test]
fn wait_ends_at_its_timeout_and_on_stop() {
    with_timeout(|| {
        let queue = DeltaFifo::new(accessor());
        let (watermark, stop) = (queue.processed().unwrap(), Stopper::new());
        let late = watermark.wait("5", Duration::from_millis(1), &stop);
        assert_eq!(
            late,
            Err(WaitError::Timeout {
                reached: String::new()
            })
        );
        queue.bookmark("4").unwrap();
        let waiter = thread::spawn({
            let (watermark, stop) = (watermark.clone(), stop.clone());
            move || watermark.wait("5", Duration::MAX, &stop)
        });
        stop.stop();
        assert_eq!(
            waiter.join().unwrap(),
            Err(WaitError::Stopped {
                reached: "4".to_owned()
            })
        );
        watermark.wait("4", Duration::ZERO, &stop).unwrap();
    });
}

#[test]
fn incomparable_versions_end_a_wait_immediately() {
    with_timeout(|| {
        let queue = DeltaFifo::new(accessor());
        let (watermark, stop) = (queue.processed().unwrap(), Stopper::new());
        let not_comparable = |version: &str| {
            Err(WaitError::NotComparable {
                version: version.to_owned(),
            })
        };
        for version in ["", "0", "007", "+7", "-7", "7a", "abc"] {
            assert_eq!(
                watermark.wait(version, Duration::MAX, &stop),
                not_comparable(version)
            );
        }
        let waiter = thread::spawn({
            let (watermark, stop) = (watermark.clone(), stop.clone());
            move || watermark.wait("5", Duration::MAX, &stop)
        });
        queue.bookmark("v1-7").unwrap();
        assert_eq!(waiter.join().unwrap(), not_comparable("v1-7"));
        let long = "1".repeat(50);
        queue.bookmark(&long).unwrap();
        watermark
            .wait(&format!("1{}", "0".repeat(49)), Duration::ZERO, &stop)
            .unwrap();
        assert_eq!(watermark.current(), long);
    });
}

#[test]
fn wait_errors_include_the_version() {
    let reached = || "4".to_owned();
    let messages = [
        WaitError::NotComparable {
            version: "abc".to_owned(),
        },
        WaitError::Timeout { reached: reached() },
        WaitError::Stopped { reached: reached() },
    ]
    .map(|error| error.to_string());
    assert_eq!(
        messages,
        [
            "the resourceVersion \"abc\" can't be compared; expected a decimal number without leading zeros",
            "timed out at the resourceVersion \"4\"",
            "stopped at the resourceVersion \"4\"",
        ]
    );
}

//! The resource version up to which a queue has been processed, in each mode.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::error::{WaitCause, WaitError};
use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{
    DeltaFifo, DeltaFifoOptions, Deltas, Origin, ProcessError, Queue, RealFifo, RealFifoOptions,
    Watermark,
};
use k8s_informer::store::{Indexers, ReflectorStore, Transform};
use k8s_informer::{Deleted, Indexer, Stop, Stopper};

use super::things::{version, with_timeout};

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
    let delta = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new().known_objects(Arc::clone(&for_delta) as _),
    );
    let real = RealFifo::with_options(
        accessor(),
        RealFifoOptions::new().known_objects(Arc::clone(&for_real) as _),
    );
    [
        (Kind::Delta(Box::new(delta)), for_delta),
        (Kind::Real(Box::new(real)), for_real),
    ]
}

fn for_each_queue(test: impl Fn(&dyn Queue<Versioned>, &Watermark)) {
    for (kind, _) in each_kind() {
        test(kind.queue(), &kind.queue().processed());
    }
}

fn succeed(_: &Deltas<Versioned>, _: Origin) -> Result<(), ProcessError> {
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
        assert_eq!(processed.current(), None);
        queue.update(versioned("a", 5)).unwrap();
        assert_eq!(processed.current(), None);
        queue
            .pop(&mut |_, _| {
                assert_eq!(
                    processed.current(),
                    None,
                    "the object is still being processed"
                );
                Ok(())
            })
            .unwrap();
        assert_eq!(processed.current(), Some(version("5")));
        assert_eq!(queue.processed().current(), Some(version("5")));
        queue.delete(Deleted::Final(versioned("a", 6))).unwrap();
        queue.add(versioned("a", 7)).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("7")));
    });
}

#[test]
fn w10_older_version_does_not_take_the_watermark_back() {
    for_each_queue(|queue, processed| {
        queue.replace(Vec::new(), Some(version("10"))).unwrap();
        queue.update(versioned("b", 20)).unwrap();
        queue.update(versioned("a", 12)).unwrap();
        queue.delete(Deleted::Final(versioned("a", 5))).unwrap();
        queue.bookmark(Some(version("19"))).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("20")));
        processed
            .wait(&version("15"), Duration::ZERO, &Stop::never())
            .unwrap();
        queue.replace(Vec::new(), Some(version("7"))).unwrap();
        queue.bookmark(Some(version("8"))).unwrap();
        pop_all(queue);
        assert_eq!(
            processed.current(),
            Some(version("8")),
            "a list may go back"
        );
    });
}

#[test]
fn failed_item_counts_as_processed() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 5)).unwrap();
        queue.pop(&mut |_, _| Err("not today".into())).unwrap_err();
        assert_eq!(processed.current(), Some(version("5")));
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
        assert_eq!(processed.current(), Some(version("1")));
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("3")));
    });
}

#[test]
fn list_version_counts_when_all_objects_are_processed() {
    for_each_queue(|queue, processed| {
        queue
            .replace(
                vec![versioned("a", 9), versioned("b", 3)],
                Some(version("10")),
            )
            .unwrap();
        queue
            .pop(&mut |_, _| {
                assert_eq!(processed.current(), None);
                Ok(())
            })
            .unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("10")));
        queue.replace(Vec::new(), Some(version("11"))).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("11")));
    });
}

#[test]
fn version_of_an_empty_list_counts() {
    for_each_queue(|queue, processed| {
        queue.replace(Vec::new(), Some(version("10"))).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("10")));
    });
}

#[test]
fn older_list_moves_the_version_back() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 50)).unwrap();
        queue
            .replace(vec![versioned("a", 20)], Some(version("30")))
            .unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("30")));
        queue.replace(vec![versioned("a", 20)], None).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), None, "the list has no version");
    });
}

#[test]
fn bookmark_counts_when_earlier_items_are_processed() {
    for_each_queue(|queue, processed| {
        queue.update(versioned("a", 5)).unwrap();
        queue.bookmark(Some(version("8"))).unwrap();
        assert_eq!(processed.current(), None);
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("8")));
        queue.bookmark(Some(version("9"))).unwrap();
        queue.bookmark(None).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("9")));
    });
}

#[test]
fn unqueued_bookmark_counts_at_once_if_nothing_is_ahead() {
    let queue = DeltaFifo::new(accessor());
    queue.bookmark(Some(version("9"))).unwrap();
    assert_eq!(queue.processed().current(), Some(version("9")));
}

#[test]
fn d3_version_of_unknown_delete_counts_if_nothing_is_ahead() {
    let queue = DeltaFifo::new(accessor());
    let processed = queue.processed();
    let (queue, gone) = (&queue as &dyn Queue<Versioned>, |version| {
        Deleted::Final(versioned("b", version))
    });
    queue.delete(gone(4)).unwrap();
    assert_eq!(processed.current(), Some(version("4")));
    queue.update(versioned("a", 5)).unwrap();
    queue.delete(gone(6)).unwrap();
    assert_eq!(processed.current(), Some(version("4")));
    queue
        .pop(&mut |_, _| {
            queue.delete(gone(7)).unwrap();
            assert_eq!(processed.current(), Some(version("4")));
            Ok(())
        })
        .unwrap();
    assert_eq!(processed.current(), Some(version("7")));
}

/// The queue holds the second deletion back until the deletion in flight has ended. The first
/// deletion fails, so the second one is queued, and the processed version stays below it until it
/// is popped.
#[test]
fn d4_version_of_delete_during_failing_delete_is_held_back() {
    let [(kind, store), ..] = each_kind();
    let (queue, processed) = (kind.queue(), kind.queue().processed());
    store.add(versioned("a", 1)).unwrap();
    queue.delete(Deleted::Final(versioned("a", 4))).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(Deleted::Final(versioned("a", 6))).unwrap();
            queue.update(versioned("b", 7)).unwrap();
            Err("not today".into())
        })
        .unwrap_err();
    assert_eq!(processed.current(), Some(version("4")));
    let popped = queue.pop(&mut succeed).unwrap();
    assert_eq!(&**popped.key().unwrap(), "b");
    assert_eq!(processed.current(), Some(version("4")));
    pop(queue);
    assert_eq!(processed.current(), Some(version("7")));
}

#[test]
fn versions_of_tombstones_and_resyncs_do_not_count() {
    for (kind, store) in each_kind() {
        let (queue, processed) = (kind.queue(), kind.queue().processed());
        store.add(versioned("a", 3)).unwrap();
        queue
            .replace(vec![versioned("a", 3)], Some(version("10")))
            .unwrap();
        pop_all(queue);
        queue.resync().unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("10")));
        let gone = Deleted::FinalStateUnknown {
            key: "a".into(),
            last_known: Some(versioned("a", 3)),
        };
        queue.delete(gone).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), Some(version("10")));
    }
}

#[test]
fn added_versions_after_list_at_0_count_only_after_an_update() {
    for_each_queue(|queue, processed| {
        for start in [None, Some(version("0"))] {
            queue.replace(Vec::new(), start.clone()).unwrap();
            queue.add(versioned("a", 9)).unwrap();
            queue.add(versioned("b", 4)).unwrap();
            pop_all(queue);
            assert_eq!(processed.current(), start);
            queue.update(versioned("a", 10)).unwrap();
            queue.add(versioned("c", 11)).unwrap();
            pop_all(queue);
            assert_eq!(processed.current(), Some(version("11")));
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
        assert_eq!(processed.current(), Some(version("5")));
    });
}

#[test]
fn version_removed_by_a_transform_counts() {
    let strip =
        || Transform::new(|object: Arc<Versioned>| Ok::<_, String>(versioned(object.0, "")));
    let delta = DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().transform(strip()));
    let real = RealFifo::with_options(accessor(), RealFifoOptions::new().transform(strip()));
    for queue in [&delta as &dyn Queue<Versioned>, &real] {
        queue.update(versioned("a", 5)).unwrap();
        pop(queue);
        assert_eq!(queue.processed().current(), Some(version("5")));
    }
}

#[test]
fn processed_version_advances_once_for_a_whole_batch() {
    let queue = RealFifo::new(accessor());
    let processed = queue.processed();
    let write: &dyn Queue<Versioned> = &queue;
    for (at, key) in ["a", "b", "c"].into_iter().enumerate() {
        write.update(versioned(key, at + 5)).unwrap();
    }
    let during = &mut |_: &[Deltas<Versioned>], _| {
        assert_eq!(processed.current(), None);
        Ok(())
    };
    queue.pop_batch(during, &mut succeed).unwrap();
    assert_eq!(processed.current(), Some(version("7")));
}

#[test]
fn wait_ends_at_the_version_or_a_later_one() {
    with_timeout(|| {
        for_each_queue(|queue, processed| {
            let (started, starts) = mpsc::channel();
            thread::scope(|scope| {
                let waits = ["7", "8", "9"].map(|text| {
                    let started = started.clone();
                    scope.spawn(move || {
                        started.send(()).unwrap();
                        processed.wait(&version(text), None, &Stop::never())
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
                .wait(&version("10"), Duration::ZERO, &Stop::never())
                .unwrap();
        });
    });
}

#[test]
fn wait_ends_at_its_timeout_and_on_stop() {
    with_timeout(|| {
        let queue = DeltaFifo::new(accessor());
        let (watermark, stop) = (queue.processed(), Stopper::new());
        let moment = Duration::from_millis(1);
        let late = watermark.wait(&version("5"), moment, &stop).unwrap_err();
        assert_eq!(late.cause(), &WaitCause::TimedOut(moment));
        assert_eq!(late.last_seen(), None);
        queue.bookmark(Some(version("4"))).unwrap();
        let waiter = thread::spawn({
            let (watermark, stop) = (watermark.clone(), stop.clone());
            move || watermark.wait(&version("5"), None, &stop)
        });
        stop.stop();
        let stopped = waiter.join().unwrap().unwrap_err();
        assert_eq!(stopped.cause(), &WaitCause::Stopped);
        assert_eq!(stopped.last_seen(), Some("4"));
        watermark
            .wait(&version("4"), Duration::ZERO, &stop)
            .unwrap();
    });
}

#[test]
fn incomparable_versions_end_a_wait_immediately() {
    with_timeout(|| {
        let queue = DeltaFifo::new(accessor());
        let (watermark, stop) = (queue.processed(), Stopper::new());
        let assert_not_comparable = |waited: Result<(), WaitError>, text| {
            let cause = WaitCause::NotComparable(Some(version(text)));
            assert_eq!(waited.unwrap_err().cause(), &cause);
        };
        for text in ["0", "007", "+7", "-7", "7a", "abc"] {
            assert_not_comparable(watermark.wait(&version(text), None, &stop), text);
        }
        let waiter = thread::spawn({
            let (watermark, stop) = (watermark.clone(), stop.clone());
            move || watermark.wait(&version("5"), None, &stop)
        });
        queue.bookmark(Some(version("v1-7"))).unwrap();
        assert_not_comparable(waiter.join().unwrap(), "v1-7");
        let long = version(&"1".repeat(50));
        queue.bookmark(Some(long.clone())).unwrap();
        let lower = version(&format!("1{}", "0".repeat(49)));
        watermark.wait(&lower, Duration::ZERO, &stop).unwrap();
        assert_eq!(watermark.current(), Some(long));
    });
}

#[test]
fn wait_errors_include_the_version() {
    let queue = DeltaFifo::new(accessor());
    let (watermark, stop) = (queue.processed(), Stopper::new());
    queue.bookmark(Some(version("4"))).unwrap();
    let message = |text, timeout| {
        let error = watermark.wait(&version(text), timeout, &stop).unwrap_err();
        error.to_string()
    };
    assert_eq!(
        message("abc", None),
        "failed waiting for the resourceVersion \"abc\": the resourceVersion \"abc\" can't be compared; expected a decimal number without leading zeros"
    );
    assert_eq!(
        message("5", Some(Duration::ZERO)),
        "timed out after 0ns waiting for the resourceVersion \"5\"; last seen: 4"
    );
    stop.stop();
    assert_eq!(
        message("5", None),
        "stopped waiting for the resourceVersion \"5\"; last seen: 4"
    );
}

//! The resource version up to which a queue has been processed, in each mode.

use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::object::{Accessor, KeyError};
use k8s_informer::queue::{
    DeltaFifo, Deltas, ProcessError, Queue, RealFifo, RealFifoMode, Requeue, WaitError, Watermark,
};
use k8s_informer::store::{Indexers, ReflectorStore, Transform};
use k8s_informer::{Deleted, Indexer, Stop};

use super::things::in_time;

/// A key and a resource version.
pub(crate) type Fact = (&'static str, String);

pub(crate) fn fact(key: &'static str, version: impl ToString) -> Arc<Fact> {
    Arc::new((key, version.to_string()))
}

pub(crate) fn accessor() -> Accessor<Fact> {
    let accessor = Accessor::new(|fact: &Fact| match fact.0 {
        "" => Err(KeyError::new("no key")),
        key => Ok(key.into()),
    });
    accessor.with_resource_version(|fact| Some(&fact.1))
}

/// A queue of any type.
pub(crate) enum Kind {
    Delta(Box<DeltaFifo<Fact>>),
    Real(Box<RealFifo<Fact>>),
}

impl Kind {
    pub(crate) fn queue(&self) -> &dyn Queue<Fact> {
        match self {
            Self::Delta(queue) => &**queue,
            Self::Real(queue) => &**queue,
        }
    }
}

pub(crate) fn each_kind() -> [(Kind, Arc<Indexer<Fact>>); 4] {
    let store = || Arc::new(Indexer::new(accessor(), Indexers::new()));
    let [for_delta, for_order] = [store(), store()];
    let delta = DeltaFifo::builder(accessor())
        .known_objects(Arc::clone(&for_delta) as _)
        .build();
    let atomic = |unlock_while_processing, bookmarks| {
        let mode = RealFifoMode::Atomic {
            unlock_while_processing,
            bookmarks,
        };
        (
            Kind::Real(Box::new(RealFifo::builder(accessor(), mode).build())),
            store(),
        )
    };
    let in_order = RealFifo::builder(
        accessor(),
        RealFifoMode::InOrder(Arc::clone(&for_order) as _),
    )
    .build();
    [
        (Kind::Delta(Box::new(delta)), for_delta),
        atomic(true, true),
        atomic(false, false),
        (Kind::Real(Box::new(in_order)), for_order),
    ]
}

fn on_each(test: impl Fn(&dyn Queue<Fact>, &Watermark)) {
    for (kind, _) in each_kind() {
        test(kind.queue(), &kind.queue().processed().unwrap());
    }
}

fn well(_: &Deltas<Fact>, _: bool) -> Result<(), ProcessError> {
    Ok(())
}

fn pop(queue: &dyn Queue<Fact>) {
    queue.pop(&mut well).unwrap();
}

/// Pops everything. The end is marked by an object, because not all queues keep bookmarks.
fn pop_all(queue: &dyn Queue<Fact>) {
    let (mut last, end) = (false, fact("end", ""));
    queue.update(Arc::clone(&end)).unwrap();
    while !last {
        let popped = queue.pop(&mut well).unwrap();
        last = popped.iter().any(|delta| {
            delta
                .object()
                .is_some_and(|object| Arc::ptr_eq(object, &end))
        });
    }
}

#[test]
fn a_version_is_reached_when_its_callback_has_returned() {
    on_each(|queue, processed| {
        assert_eq!(processed.current(), "");
        queue.update(fact("a", 5)).unwrap();
        assert_eq!(processed.current(), "");
        queue
            .pop(&mut |_, _| {
                assert_eq!(processed.current(), "", "it is still being processed");
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
        queue.delete(Deleted::Final(fact("a", 6))).unwrap();
        queue.add(fact("a", 7)).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "7");
    });
}

#[test]
fn failed_item_counts_as_processed_requeued_does_not() {
    on_each(|queue, processed| {
        queue.update(fact("a", 5)).unwrap();
        queue.pop(&mut |_, _| Err("not today".into())).unwrap_err();
        assert_eq!(processed.current(), "5");
        queue.update(fact("a", 6)).unwrap();
        queue.pop(&mut |_, _| Err(Requeue::new().into())).unwrap();
        queue
            .pop(&mut |_, _| Err(Requeue::because("not today").into()))
            .unwrap_err();
        assert_eq!(processed.current(), "5");
        pop(queue);
        assert_eq!(processed.current(), "6");
    });
}

#[test]
fn newer_change_taken_early_does_not_count_before_others() {
    on_each(|queue, processed| {
        queue.update(fact("a", 1)).unwrap();
        queue.update(fact("b", 2)).unwrap();
        queue.update(fact("a", 3)).unwrap();
        // For a `DeltaFifo`, this pops both changes of `a`.
        pop(queue);
        assert_eq!(processed.current(), "1");
        pop_all(queue);
        assert_eq!(processed.current(), "3");
    });
}

#[test]
fn list_version_counts_when_all_objects_are_processed() {
    on_each(|queue, processed| {
        queue
            .replace(vec![fact("a", 9), fact("b", 3)], "10")
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
fn an_empty_list_counts_too() {
    on_each(|queue, processed| {
        queue.replace(Vec::new(), "10").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
    });
}

#[test]
fn after_a_list_that_is_older_the_version_is_older() {
    on_each(|queue, processed| {
        queue.update(fact("a", 50)).unwrap();
        queue.replace(vec![fact("a", 20)], "30").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "30");
        queue.replace(vec![fact("a", 20)], "").unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "", "nobody knows how old that list is");
    });
}

#[test]
fn a_bookmark_counts_when_what_came_before_it_is_processed() {
    on_each(|queue, processed| {
        queue.update(fact("a", 5)).unwrap();
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
fn a_bookmark_that_queues_nothing_counts_at_once() {
    let [(delta, _), _, (atomic, _), (in_order, _)] = each_kind();
    for queue in [delta.queue(), atomic.queue(), in_order.queue()] {
        queue.bookmark("9").unwrap();
        assert_eq!(queue.processed().unwrap().current(), "9");
    }
}

#[test]
fn d3_unknown_delete_counts_once_nothing_is_ahead() {
    let queue = DeltaFifo::new(accessor());
    let processed = queue.processed().unwrap();
    let (queue, gone) = (&queue as &dyn Queue<Fact>, |version| {
        Deleted::Final(fact("b", version))
    });
    queue.delete(gone(4)).unwrap();
    assert_eq!(processed.current(), "4");
    queue.update(fact("a", 5)).unwrap();
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

/// The queue holds the second deletion back until the deletion in flight has ended.
#[test]
fn d4_delete_repeated_after_failure_is_awaited() {
    let [(kind, store), ..] = each_kind();
    let (queue, processed) = (kind.queue(), kind.queue().processed().unwrap());
    store.add(fact("a", 1)).unwrap();
    queue.delete(Deleted::Final(fact("a", 4))).unwrap();
    queue
        .pop(&mut |_, _| {
            queue.delete(Deleted::Final(fact("a", 6))).unwrap();
            queue.update(fact("b", 7)).unwrap();
            Err("not today".into())
        })
        .unwrap_err();
    assert_eq!(processed.current(), "4");
    let popped = queue.pop(&mut well).unwrap();
    assert_eq!(
        (&**popped.key().unwrap(), processed.current().as_str()),
        ("b", "4")
    );
    pop(queue);
    assert_eq!(processed.current(), "7");
}

#[test]
fn what_a_tombstone_or_a_resync_holds_is_too_old_to_count() {
    for (kind, store) in each_kind() {
        let (queue, processed) = (kind.queue(), kind.queue().processed().unwrap());
        store.add(fact("a", 3)).unwrap();
        queue.replace(vec![fact("a", 3)], "10").unwrap();
        pop_all(queue);
        queue.resync().unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
        let gone = Deleted::FinalStateUnknown {
            key: "a".into(),
            last_known: Some(fact("a", 3)),
        };
        queue.delete(gone).unwrap();
        pop_all(queue);
        assert_eq!(processed.current(), "10");
    }
}

#[test]
fn what_is_put_back_holds_the_version_up_while_others_go_by() {
    let queue = DeltaFifo::new(accessor());
    let processed = queue.processed().unwrap();
    queue.replace(vec![fact("stuck", 1)], "2").unwrap();
    pop(&queue);
    queue.update(fact("stuck", 3)).unwrap();
    for version in 4..100 {
        let again = queue.pop(&mut |deltas, _| {
            assert_eq!(deltas.key().map(|key| &**key), Some("stuck"));
            Err(Requeue::new().into())
        });
        again.unwrap();
        queue.update(fact("other", version)).unwrap();
        // The requeued item is first.
        queue.pop(&mut |_, _| Err(Requeue::new().into())).unwrap();
        let other = queue.pop(&mut well).unwrap();
        assert_eq!(
            (&**other.key().unwrap(), processed.current().as_str()),
            ("other", "2")
        );
    }
    pop(&queue);
    assert_eq!(processed.current(), "99");
}

#[test]
fn adds_do_not_count_while_there_is_no_version() {
    on_each(|queue, processed| {
        for start in ["", "0"] {
            queue.replace(Vec::new(), start).unwrap();
            queue.add(fact("a", 9)).unwrap();
            queue.add(fact("b", 4)).unwrap();
            pop_all(queue);
            assert_eq!(processed.current(), start);
            queue.update(fact("a", 10)).unwrap();
            queue.add(fact("c", 11)).unwrap();
            pop_all(queue);
            assert_eq!(processed.current(), "11");
        }
    });
}

#[test]
fn unversioned_or_refused_object_keeps_last_version() {
    on_each(|queue, processed| {
        queue.update(fact("a", 5)).unwrap();
        queue.update(fact("a", "")).unwrap();
        queue.update(fact("", 6)).unwrap_err();
        pop_all(queue);
        assert_eq!(processed.current(), "5");
    });
}

#[test]
fn a_version_that_a_transform_takes_out_counts() {
    let strip = || Transform::new(|object: Arc<Fact>| Ok::<_, String>(fact(object.0, "")));
    let delta = DeltaFifo::builder(accessor()).transform(strip()).build();
    let mode = RealFifoMode::Atomic {
        unlock_while_processing: true,
        bookmarks: true,
    };
    let real = RealFifo::builder(accessor(), mode)
        .transform(strip())
        .build();
    for queue in [&delta as &dyn Queue<Fact>, &real] {
        queue.update(fact("a", 5)).unwrap();
        pop(queue);
        assert_eq!(queue.processed().unwrap().current(), "5");
    }
}

#[test]
fn a_batch_counts_as_a_whole() {
    let queue = RealFifo::new(accessor());
    let processed = queue.processed().unwrap();
    let write: &dyn Queue<Fact> = &queue;
    for (at, key) in ["a", "b", "c"].into_iter().enumerate() {
        write.update(fact(key, at + 5)).unwrap();
    }
    let again = queue.pop_batch(&mut |_, _| Err(Requeue::new().into()), &mut well);
    assert_eq!(again.unwrap().len(), 3);
    assert_eq!(processed.current(), "");
    queue.pop_batch(&mut |_, _| Ok(()), &mut well).unwrap();
    assert_eq!(processed.current(), "7");
}

#[test]
fn a_wait_ends_when_the_version_or_a_later_one_is_reached() {
    in_time(|| {
        on_each(|queue, processed| {
            let (started, starts) = mpsc::channel();
            thread::scope(|scope| {
                let waits = ["7", "8", "9"].map(|version| {
                    let started = started.clone();
                    scope.spawn(move || {
                        started.send(()).unwrap();
                        processed.wait(version, Duration::MAX, &Stop::new())
                    })
                });
                (0..3).for_each(|_| starts.recv().unwrap());
                queue.update(fact("a", 7)).unwrap();
                queue.update(fact("b", 10)).unwrap();
                pop_all(queue);
                waits
                    .into_iter()
                    .for_each(|wait| wait.join().unwrap().unwrap());
            });
            processed.wait("10", Duration::ZERO, &Stop::new()).unwrap();
        });
    });
}

#[test]
fn a_wait_ends_with_its_time_and_with_its_stop() {
    in_time(|| {
        let (watermark, stop) = (Watermark::new(), Stop::new());
        let late = watermark.wait("5", Duration::from_millis(1), &stop);
        assert_eq!(
            late,
            Err(WaitError::Timeout {
                reached: String::new()
            })
        );
        watermark.set("4");
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
fn versions_that_can_not_be_compared_end_a_wait_at_once() {
    in_time(|| {
        let (watermark, stop) = (Watermark::new(), Stop::new());
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
        watermark.set("v1-7");
        assert_eq!(waiter.join().unwrap(), not_comparable("v1-7"));
        let long = "1".repeat(50);
        watermark.set(&long);
        watermark
            .wait(&format!("1{}", "0".repeat(49)), Duration::ZERO, &stop)
            .unwrap();
        assert_eq!(watermark.current(), long);
    });
}

#[test]
fn wait_errors_say_what_happened() {
    let reached = || "4".to_owned();
    let said = [
        WaitError::NotComparable {
            version: "abc".to_owned(),
        },
        WaitError::Timeout { reached: reached() },
        WaitError::Stopped { reached: reached() },
    ]
    .map(|error| error.to_string());
    assert_eq!(
        said,
        [
            "the resourceVersion \"abc\" can't be compared",
            "in time only the resourceVersion \"4\" was reached",
            "stopped at the resourceVersion \"4\"",
        ]
    );
}

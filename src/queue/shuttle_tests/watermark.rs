//! Tests of [`Watermark`]: waiters are woken, and only after all earlier changes have been
//! processed.

use std::sync::Arc;
use std::time::Duration;

use super::Item;
use crate::base::sync::{Mutex, any, check, join_all, thread};
use crate::error::WaitCause;
use crate::object::{Accessor, KeyError};
use crate::queue::{DeltaFifo, PopError, Queue, RealFifo, Requeue, Watermark};
use crate::resource_version::ResourceVersion;
use crate::stop::{Stop, Stopper};

/// No timeout, so a missed wakeup blocks forever.
const FOREVER: Duration = Duration::MAX;
const VERSIONS: [&str; 5] = ["", "1", "2", "3", "4"];
const ITEMS: [Item; 4] = [("a", 1), ("b", 2), ("a", 3), ("c", 4)];

fn accessor() -> Accessor<Item> {
    let accessor = Accessor::new(|item: &Item| Ok::<_, KeyError>(item.0.into()));
    accessor.with_resource_version(|item| Some(VERSIONS[item.1]))
}

/// Consumers request some changes again. They count as processed when they have been processed, or a
/// newer state of the object. With `reserves`, the writer pops some of the changes itself.
fn assert_wait_returns_after_earlier_changes(queue: Arc<dyn Queue<Item>>, reserves: bool) {
    let processed = Arc::new(Mutex::new(Vec::<Item>::new()));
    let watermark = queue.processed();
    let waits = [(); 2].map(|()| {
        let (watermark, processed) = (watermark.clone(), Arc::clone(&processed));
        let wanted = 1 + any(ITEMS.len());
        thread::spawn(move || {
            watermark
                .wait(
                    &ResourceVersion::new(VERSIONS[wanted]).unwrap(),
                    FOREVER,
                    &Stop::never(),
                )
                .unwrap();
            let before = watermark.current();
            let processed = processed.lock().clone();
            let is_processed = |item: &Item| {
                let mut newest = processed.iter().filter(|processed| processed.0 == item.0);
                newest.any(|processed| processed.1 >= item.1)
            };
            assert!(
                ITEMS
                    .iter()
                    .all(|item| item.1 > wanted || is_processed(item)),
                "{processed:?}"
            );
            assert!(watermark.current() >= before);
        })
    });
    let consumers = [(); 2].map(|()| {
        let (queue, processed) = (Arc::clone(&queue), Arc::clone(&processed));
        thread::spawn(move || {
            let ended = loop {
                let popped = queue.pop(&mut |deltas, _| {
                    if any(3) == 0 {
                        return Err(Requeue::new().into());
                    }
                    processed.lock().extend(super::items_of(deltas));
                    Ok(())
                });
                if let Err(ended) = popped {
                    break ended;
                }
            };
            assert!(matches!(ended, PopError::Closed));
        })
    });
    for item in ITEMS {
        let reserved = reserves && any(2) == 0 && queue.reserve_if_empty();
        queue.update(Arc::new(item)).unwrap();
        if reserved {
            let popped = queue.pop(&mut |deltas, _| {
                processed.lock().extend(super::items_of(deltas));
                Ok(())
            });
            assert!(popped.is_ok());
        }
    }
    // The waits must end here: no later event wakes the waiters.
    join_all(waits);
    queue.close();
    join_all(consumers);
    assert_eq!(watermark.current(), ResourceVersion::new("4"));
}

#[test]
fn delta_fifo_wait_returns_after_earlier_changes() {
    check(|| {
        assert_wait_returns_after_earlier_changes(Arc::new(DeltaFifo::new(accessor())), false)
    });
}

#[test]
fn real_fifo_wait_returns_after_earlier_changes() {
    check(|| assert_wait_returns_after_earlier_changes(Arc::new(RealFifo::new(accessor())), false));
}

#[test]
fn wait_returns_after_reserved_pops_of_earlier_changes() {
    check(|| {
        let queue: Arc<dyn Queue<Item>> = match any(2) {
            0 => Arc::new(DeltaFifo::new(accessor())),
            _ => Arc::new(RealFifo::new(accessor())),
        };
        assert_wait_returns_after_earlier_changes(queue, true);
    });
}

/// The version of a bookmark is reached both with an empty queue and during processing.
#[test]
fn bookmark_version_wakes_waiting_thread() {
    check(|| {
        let queue: Arc<dyn Queue<Item>> = Arc::new(DeltaFifo::new(accessor()));
        let watermark = queue.processed();
        let waiter = thread::spawn(move || {
            watermark.wait(&ResourceVersion::new("3").unwrap(), FOREVER, &Stop::never())
        });
        let consumer = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.pop(&mut |_, _| Ok(())).map(drop).unwrap()
        });
        queue.update(Arc::new(("a", 2))).unwrap();
        queue.bookmark(ResourceVersion::new("3")).unwrap();
        waiter.join().unwrap().unwrap();
        consumer.join().unwrap();
    });
}

/// Each wait has another version. The version goes back with a list.
#[test]
fn each_wait_ends_at_its_own_version() {
    check(|| {
        let watermark = Watermark::new();
        let (stop, never) = (Stopper::new(), Stop::never());
        let wait = |version: &'static str, stop: &Stop| {
            let (watermark, stop) = (watermark.clone(), stop.clone());
            thread::spawn(move || {
                watermark.wait(&ResourceVersion::new(version).unwrap(), FOREVER, &stop)
            })
        };
        let waits = [wait("2", &never), wait("3", &never), wait("3", &never)];
        let stopped = wait("4", &stop);
        for version in ["2", "1", "3"] {
            watermark.set(version);
        }
        stop.stop();
        assert!(stopped.join().unwrap().unwrap_err().is_stopped());
        for result in join_all(waits) {
            result.unwrap();
        }
        // A version that cannot be compared ends every wait.
        let last = wait("5", &never);
        watermark.set("x");
        let error = last.join().unwrap().unwrap_err();
        assert_eq!(
            *error.cause(),
            WaitCause::NotComparable(ResourceVersion::new("x"))
        );
    });
}

#[test]
fn stop_at_any_point_ends_watermark_waits() {
    check(|| {
        let (watermark, stop) = (Watermark::new(), Stopper::new());
        let waits = [(); 2].map(|()| {
            let (watermark, stop) = (watermark.clone(), stop.clone());
            thread::spawn(move || {
                watermark.wait(&ResourceVersion::new("2").unwrap(), FOREVER, &stop)
            })
        });
        watermark.set("1");
        stop.stop();
        for result in join_all(waits) {
            assert!(result.unwrap_err().is_stopped());
        }
    });
}

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use k8s_informer::Stopper;
use k8s_informer::workqueue::{AnyWorkQueue, DelayingQueue, WorkQueue};

use super::support::*;

const ITEMS: usize = 20;

/// Panics if two workers process an item at the same time.
#[derive(Default)]
struct Processed {
    running: Vec<AtomicBool>,
    /// The newest version of each item when it was last processed.
    seen: Vec<AtomicUsize>,
    newest: Vec<AtomicUsize>,
}

impl Processed {
    fn new() -> Self {
        let numbers = || (0..ITEMS).map(|_| AtomicUsize::new(0)).collect();
        let running = (0..ITEMS).map(|_| AtomicBool::new(false)).collect();
        Self {
            running,
            seen: numbers(),
            newest: numbers(),
        }
    }

    fn process(&self, item: usize) {
        assert!(
            !self.running[item].swap(true, Ordering::SeqCst),
            "item {item} is processed twice at once"
        );
        let newest = self.newest[item].load(Ordering::SeqCst);
        self.seen[item].fetch_max(newest, Ordering::SeqCst);
        thread::yield_now();
        self.running[item].store(false, Ordering::SeqCst);
    }

    fn all_seen(&self) -> bool {
        let numbers = |numbers: &[AtomicUsize]| -> Vec<usize> {
            numbers
                .iter()
                .map(|number| number.load(Ordering::SeqCst))
                .collect()
        };
        numbers(&self.newest) == numbers(&self.seen)
    }
}

/// Asserts that two workers never process the same item at the same time, as in client-go's
/// `TestBasic`, and that a processing starts after each change.
#[test]
fn q5_no_concurrent_processing_and_no_missed_change() {
    with_timeout(|| {
        let (queue, processed) = (
            Arc::new(DelayingQueue::new().unwrap()),
            Arc::new(Processed::new()),
        );
        let workers: Vec<_> = (0..5)
            .map(|worker| {
                let (queue, processed) = (Arc::clone(&queue), Arc::clone(&processed));
                thread::spawn(move || {
                    if worker % 2 == 0 {
                        while let Some(item) = queue.take() {
                            processed.process(*item);
                        }
                    } else {
                        while let Some(item) = queue.get() {
                            processed.process(item);
                            queue.done(&item);
                        }
                    }
                })
            })
            .collect();
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let (queue, processed) = (Arc::clone(&queue), Arc::clone(&processed));
                thread::spawn(move || {
                    for number in 0..2000 {
                        let item = (number * 7 + producer) % ITEMS;
                        processed.newest[item].fetch_add(1, Ordering::SeqCst);
                        queue.add(item);
                        if number % 50 == 0 {
                            queue.add_after(item, millis(1));
                        }
                    }
                })
            })
            .collect();
        producers
            .into_iter()
            .for_each(|producer| producer.join().unwrap());
        queue.shut_down(None).unwrap();
        assert!(
            processed.all_seen(),
            "the drain ended before every change was processed"
        );
        workers
            .into_iter()
            .for_each(|worker| worker.join().unwrap());
    });
}

/// A worker may be stopped at the moment when a new item wakes it. Another worker then gets this
/// item.
#[test]
fn stopped_worker_leaves_no_item_behind() {
    with_timeout(|| {
        for _ in 0..300 {
            let (queue, stop) = (Arc::new(WorkQueue::new()), Stopper::new());
            let got = Arc::new(AtomicUsize::new(0));
            let stopped = thread::spawn({
                let (queue, stop, got) = (Arc::clone(&queue), stop.clone(), Arc::clone(&got));
                move || {
                    got.fetch_add(
                        usize::from(queue.take_or_stop(&stop).is_some()),
                        Ordering::SeqCst,
                    )
                }
            });
            let other = thread::spawn({
                let (queue, got) = (Arc::clone(&queue), Arc::clone(&got));
                move || {
                    while queue.take().is_some() {
                        got.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
            let stopper = thread::spawn(move || stop.stop());
            queue.add("a");
            queue.shut_down(None).unwrap();
            stopper.join().unwrap();
            stopped.join().unwrap();
            other.join().unwrap();
            assert_eq!(got.load(Ordering::SeqCst), 1);
        }
    });
}

#[test]
fn panicking_worker_loses_no_item() {
    with_timeout(|| {
        let queue = Arc::new(WorkQueue::new());
        let tries = Arc::new(Mutex::new(HashMap::new()));
        (0..10).for_each(|item| queue.add(item));
        let work = || {
            let (queue, tries) = (Arc::clone(&queue), Arc::clone(&tries));
            thread::spawn(move || {
                while let Some(item) = queue.take() {
                    let first = tries.lock().unwrap().insert(*item, ()).is_none();
                    if first && *item % 3 == 0 {
                        queue.add(*item);
                        std::panic::resume_unwind(Box::new("boom"));
                    }
                }
            })
        };
        // The items 0, 3, 6 and 9 each end a worker.
        let ended = (0..4).filter(|_| {
            let worker = work();
            worker.join().is_err()
        });
        assert_eq!(ended.count(), 4);
        let last = work();
        queue.shut_down(None).unwrap();
        last.join().unwrap();
        assert_eq!(tries.lock().unwrap().len(), 10);
    });
}

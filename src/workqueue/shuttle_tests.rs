//! Interleaving tests of work queues: waiting for items, for a drain and for the clock.
//!
//! The schedule decides how time passes; see `RandomClock`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    AddOptions, AnyWorkQueue, DelayingQueue, RateLimiter, RateLimitingQueue, WorkItem, WorkQueue,
    default_controller_rate_limiter,
};
use crate::base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::base::sync::{any, check, check_times, join_all, thread};
use crate::error::ShutdownError;
use crate::stop::{Stop, Stopper};
use crate::time::Clock;

const SECOND: Duration = Duration::from_secs(1);

type Queue = Arc<WorkQueue<&'static str>>;

fn queue() -> Queue {
    Arc::new(WorkQueue::new())
}

/// Takes items until the queue ends, and returns their number.
fn worker(queue: &Queue) -> thread::JoinHandle<usize> {
    let queue = Arc::clone(queue);
    thread::spawn(move || std::iter::from_fn(|| queue.take().map(WorkItem::done)).count())
}

#[test]
fn concurrently_added_items_are_all_taken() {
    check(|| {
        let queue = queue();
        let workers = [worker(&queue), worker(&queue)];
        let producers = ["a", "b"].map(|item| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.add(item))
        });
        join_all(producers);
        queue.stop();
        assert_eq!(join_all(workers).iter().sum::<usize>(), 2);
        assert!(queue.is_empty());
    });
}

/// A change is always seen by a processing that starts after it, and processings never overlap
/// (Q5).
#[test]
fn q5_processing_is_exclusive_and_misses_no_change() {
    check(|| {
        let queue = queue();
        let (newest, seen, running) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let workers = [(); 2].map(|()| {
            let (queue, newest) = (Arc::clone(&queue), Arc::clone(&newest));
            let (seen, running) = (Arc::clone(&seen), Arc::clone(&running));
            thread::spawn(move || {
                while let Some(_item) = queue.take() {
                    assert!(!running.swap(true, Ordering::SeqCst));
                    seen.store(newest.load(Ordering::SeqCst), Ordering::SeqCst);
                    running.store(false, Ordering::SeqCst);
                }
            })
        });
        for number in 1..=3 {
            newest.store(number, Ordering::SeqCst);
            queue.add("a");
        }
        queue.shut_down(None).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 3);
        join_all(workers);
    });
}

/// A stopped worker that was woken for an item wakes the next worker.
#[test]
fn stopped_worker_wakes_the_next_worker() {
    check(|| {
        let (queue, stop) = (queue(), Stopper::new());
        let stopped = thread::spawn({
            let (queue, stop) = (Arc::clone(&queue), stop.clone());
            move || usize::from(queue.take_or_stop(&stop).is_some())
        });
        // This worker ends only when it gets an item.
        let other = thread::spawn({
            let queue = Arc::clone(&queue);
            move || usize::from(queue.take().is_some())
        });
        let adds = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.add("a")
        });
        stop.stop();
        if stopped.join().unwrap() == 1 {
            queue.add("b");
        }
        assert_eq!(other.join().unwrap(), 1);
        adds.join().unwrap();
    });
}

/// Two drains wait while one item is processed twice. Both succeed.
#[test]
fn q7_drains_return_when_readded_items_are_done() {
    check(|| {
        let queue = queue();
        queue.add("a");
        let item = queue.get().unwrap();
        queue.add("a");
        queue.add("b");
        let drains = [(); 2].map(|()| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.shut_down(None))
        });
        let worker = worker(&queue);
        queue.done(&item);
        // Take the remaining items here as well, because the other worker may have ended before "a"
        // was queued again.
        while queue.take().is_some() {}
        assert_eq!(join_all(drains), [Ok(()), Ok(())]);
        worker.join().unwrap();
        assert!(queue.is_empty());
    });
}

/// The drain waits for an item that no worker processes, until `stop` releases the drain.
#[test]
fn q7_stop_at_any_point_ends_drain() {
    check(|| {
        let queue = queue();
        queue.add("a");
        let drain = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.shut_down(None)
        });
        while !queue.is_stopped() {
            thread::yield_now();
        }
        queue.stop();
        let stuck = vec!["workqueue: 0 items in process, 1 waiting".to_owned()];
        assert_eq!(
            drain.join().unwrap(),
            Err(ShutdownError::Interrupted { stuck })
        );
    });
}

/// A clock whose waits end at any moment. After a wait, its whole duration has passed.
struct RandomClock {
    start: Instant,
    seconds: AtomicUsize,
}

impl RandomClock {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            start: Instant::now(),
            seconds: AtomicUsize::new(0),
        })
    }
}

impl Clock for RandomClock {
    fn now(&self) -> Instant {
        self.start + SECOND * self.seconds.load(Ordering::SeqCst) as u32
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        let until = self.seconds.load(Ordering::SeqCst) + duration.as_secs() as usize;
        for _ in 0..any(3) {
            thread::yield_now();
        }
        if stop.is_stopped() {
            return false;
        }
        self.seconds.fetch_max(until, Ordering::SeqCst);
        true
    }
}

fn delaying() -> Arc<DelayingQueue<&'static str>> {
    Arc::new(
        WorkQueue::builder()
            .clock(RandomClock::new())
            .build_delaying()
            .unwrap(),
    )
}

/// The timer thread wakes a waiter even if an item is delayed while the timer goes to sleep.
#[test]
fn q11_delayed_items_are_delivered() {
    check(|| {
        let queue = delaying();
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || [queue.get(), queue.get()].map(Option::unwrap)
        });
        queue.add_after("b", SECOND * 5);
        queue.add_after("a", SECOND * 2);
        let mut got = worker.join().unwrap();
        got.sort_unstable();
        assert_eq!(got, ["a", "b"]);
    });
}

/// `shut_down` and drop join the timer thread, whatever it does at that moment. `stop` ends it.
#[test]
fn q14_timer_thread_ends_with_the_queue() {
    check(|| {
        let queue = delaying();
        let adds = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.add_after("a", SECOND)
        });
        match any(4) {
            0 => queue.stop(),
            2 => drop(queue.shut_down(Duration::ZERO)),
            1 => queue.add_after("b", SECOND * 2),
            _ => {}
        }
        drop(queue);
        adds.join().unwrap();
    });
}

/// An item that is delayed, raised or processed when it is added is processed after the add, and
/// processings never overlap.
#[test]
fn pq4_adds_of_a_delayed_item_miss_no_change() {
    check(|| {
        let queue = WorkQueue::builder().clock(RandomClock::new());
        let queue = queue.build_priority(default_controller_rate_limiter());
        let queue = Arc::new(queue.unwrap());
        let (newest, seen, running) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let workers = [(); 2].map(|()| {
            let (queue, newest) = (Arc::clone(&queue), Arc::clone(&newest));
            let (seen, running) = (Arc::clone(&seen), Arc::clone(&running));
            thread::spawn(move || {
                while let Some(_item) = queue.take() {
                    assert!(!running.swap(true, Ordering::SeqCst));
                    seen.store(newest.load(Ordering::SeqCst), Ordering::SeqCst);
                    running.store(false, Ordering::SeqCst);
                }
            })
        });
        let low = AddOptions::new().priority(-100);
        let delayed = AddOptions::new().after(SECOND);
        for (number, options) in [low, delayed, delayed, low].into_iter().enumerate() {
            newest.store(number, Ordering::SeqCst);
            queue.add_with("a", options);
        }
        queue.shut_down(None).unwrap();
        assert_eq!(seen.load(Ordering::SeqCst), 3);
        join_all(workers);
    });
}

#[test]
fn q15_rate_limited_item_is_retried() {
    struct ConstantDelay;
    impl RateLimiter<&'static str> for ConstantDelay {
        fn when(&self, _: &&'static str) -> Duration {
            SECOND
        }
        fn forget(&self, _: &&'static str) {}
        fn requeues(&self, _: &&'static str) -> usize {
            0
        }
    }
    check_times(0.5, || {
        let builder = WorkQueue::builder().clock(RandomClock::new());
        let queue: Arc<RateLimitingQueue<_>> =
            Arc::new(builder.build_rate_limiting(ConstantDelay).unwrap());
        queue.add("a");
        let tries = Arc::new(AtomicUsize::new(0));
        let workers = [(); 2].map(|()| {
            let (queue, tries) = (Arc::clone(&queue), Arc::clone(&tries));
            thread::spawn(move || {
                while let Some(item) = queue.take() {
                    match tries.fetch_add(1, Ordering::SeqCst) {
                        2 => queue.stop(),
                        _ => queue.add_rate_limited(*item),
                    }
                }
            })
        });
        join_all(workers);
        assert_eq!(tries.load(Ordering::SeqCst), 3);
    });
}

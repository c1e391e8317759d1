//! User code that panics or calls the queue: items, `Order`s, rate limiters and clocks.

use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::time::Clock;
use k8s_informer::workqueue::{
    AnyWorkQueue, DelayingQueue, Order, RateLimiter, RateLimitingQueue, WorkQueue,
};
use k8s_informer_testing::FakeClock;

use super::support::*;

/// Panics without the panic hook, which keeps the test output readable.
fn boom() -> ! {
    resume_unwind(Box::new("boom"))
}

fn panics<R>(call: impl FnOnce() -> R) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_err()
}

#[derive(Debug, PartialEq, Eq)]
struct Bad(&'static str);

impl Hash for Bad {
    fn hash<H: Hasher>(&self, state: &mut H) {
        if self.0 == "hash" {
            boom();
        }
        self.0.len().hash(state);
    }
}

impl Clone for Bad {
    fn clone(&self) -> Self {
        if self.0 == "clone" {
            boom();
        }
        Self(self.0)
    }
}

#[test]
fn panicking_item_fails_only_its_own_call() {
    with_timeout(|| {
        let (queue, clock) = delaying();
        assert!(
            panics(|| queue.add(Bad("hash"))),
            "an add must hash the item, even if the map is empty"
        );
        queue.add(Bad("a"));
        for bad in ["hash", "clone"] {
            assert!(panics(|| queue.add(Bad(bad))), "{bad}");
            assert!(panics(|| queue.add_after(Bad(bad), millis(1))), "{bad}");
        }
        assert!(panics(|| queue.done(&Bad("hash"))));
        queue.add_after(Bad("b"), millis(1));
        clock.advance(millis(1));
        assert_eq!(queue.len(), 2);
        assert_eq!((queue.get(), queue.get()), (Some(Bad("a")), Some(Bad("b"))));
        assert!(panics(|| queue.done(&Bad("hash"))));
        queue.done(&Bad("a"));
        queue.done(&Bad("b"));
        queue.shut_down(None).unwrap();
    });
}

/// An `Order` whose `touch` always panics. `push` and `pop` panic while the flag is set.
struct BadOrder(VecDeque<&'static str>, Arc<AtomicBool>);

impl Order<&'static str> for BadOrder {
    fn touch(&mut self, _: &&'static str) {
        boom();
    }

    fn push(&mut self, item: &'static str) {
        if self.1.load(Ordering::SeqCst) {
            boom();
        }
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<&'static str> {
        if self.1.load(Ordering::SeqCst) {
            boom();
        }
        self.0.pop_front()
    }
}

#[test]
fn panicking_order_fails_only_the_current_call() {
    with_timeout(|| {
        let (bad, clock) = (Arc::new(AtomicBool::new(false)), FakeClock::new());
        let set = |to| bad.store(to, Ordering::SeqCst);
        let order = BadOrder(VecDeque::new(), Arc::clone(&bad));
        let builder = WorkQueue::builder()
            .order(order)
            .clock(Arc::new(clock.clone()));
        let queue = builder.build_delaying().unwrap();
        queue.add("a");
        assert!(panics(|| queue.add("a")), "touch");
        set(true);
        assert!(panics(|| queue.add("b")), "push");
        assert!(panics(|| queue.get()), "pop");
        set(false);
        assert_eq!((queue.len(), queue.get()), (1, Some("a")));

        // An item that was added while it was processed is queued again when it is done. If the
        // `Order` panics then, the item is lost until it is added again.
        queue.add("a");
        set(true);
        assert!(panics(|| queue.done(&"a")));
        set(false);
        assert_eq!(queue.len(), 0);
        queue.add("a");
        let item = queue.take().unwrap();
        queue.add("a");
        set(true);
        drop(item);
        set(false);
        assert_eq!(queue.len(), 0);

        // If the `Order` panics when a delayed item becomes due, the call that adds this item does
        // not panic.
        queue.add_after("c", millis(1));
        set(true);
        clock.advance(millis(1));
        assert_eq!(queue.len(), 0);
        set(false);
        queue.add("d");
        assert_eq!(queue.get(), Some("d"));
        queue.done(&"d");
        queue.shut_down(None).unwrap();
    });
}

/// If the `Order` panics while a worker takes an item, another worker gets the item.
#[test]
fn item_goes_to_another_worker_if_the_order_panics() {
    struct Once(VecDeque<u32>, bool);
    impl Order<u32> for Once {
        fn push(&mut self, item: u32) {
            self.0.push_back(item);
        }
        fn pop(&mut self) -> Option<u32> {
            if std::mem::take(&mut self.1) {
                boom();
            }
            self.0.pop_front()
        }
    }
    with_timeout(|| {
        for _ in 0..100 {
            let queue = WorkQueue::builder()
                .order(Once(VecDeque::new(), true))
                .build()
                .unwrap();
            let queue = Arc::new(queue);
            let workers = [(); 2].map(|()| {
                let queue = Arc::clone(&queue);
                thread::spawn(move || queue.get())
            });
            queue.add(1);
            let ended = workers.map(|worker| {
                // One worker panics, and the other must still return.
                worker.join().ok()
            });
            assert!(
                ended.contains(&Some(Some(1))) && ended.contains(&None),
                "{ended:?}"
            );
        }
    });
}

#[test]
fn q5_order_that_duplicates_items_returns_no_item_twice() {
    struct WrongOrder(VecDeque<u32>);
    impl Order<u32> for WrongOrder {
        fn push(&mut self, item: u32) {
            self.0.extend([item, item + 100, item]);
        }
        fn pop(&mut self) -> Option<u32> {
            self.0.pop_front()
        }
    }
    let queue = WorkQueue::builder()
        .order(WrongOrder(VecDeque::new()))
        .build()
        .unwrap();
    queue.add(1);
    queue.add(2);
    assert_eq!(
        (queue.get(), queue.get(), queue.len()),
        (Some(1), Some(2), 0)
    );
    queue.stop();
    assert_eq!(queue.get(), None);
}

#[test]
fn panicking_limiter_fails_only_the_current_call() {
    struct BadLimiter;
    impl RateLimiter<&'static str> for BadLimiter {
        fn when(&self, item: &&'static str) -> Duration {
            if *item == "bad" {
                boom()
            } else {
                Duration::ZERO
            }
        }
        fn forget(&self, _: &&'static str) {
            boom()
        }
        fn requeues(&self, _: &&'static str) -> usize {
            boom()
        }
    }
    let queue = RateLimitingQueue::new(BadLimiter).unwrap();
    assert!(panics(|| queue.add_rate_limited("bad")));
    assert!(panics(|| queue.forget(&"a")) && panics(|| queue.requeues(&"a")));
    queue.add_rate_limited("a");
    assert_eq!((queue.len(), queue.get()), (1, Some("a")));
}

#[test]
fn panicking_clock_leaves_no_thread_and_no_lock() {
    struct BadClock(FakeClock, Arc<AtomicBool>);
    impl Clock for BadClock {
        fn now(&self) -> Instant {
            if self.1.load(Ordering::SeqCst) {
                boom();
            }
            self.0.now()
        }
        fn wait(&self, duration: Duration, stop: &Stop) -> bool {
            self.0.wait(duration, stop)
        }
    }
    with_timeout(|| {
        let (bad, clock) = (Arc::new(AtomicBool::new(false)), FakeClock::new());
        let bad_clock = Arc::new(BadClock(clock.clone(), Arc::clone(&bad)));
        let queue = WorkQueue::builder()
            .clock(bad_clock)
            .build_delaying()
            .unwrap();
        queue.add_after("a", millis(10));
        queue.add("b");
        let item = queue.take().unwrap();
        clock.wait_for_waits(1, TIMEOUT).unwrap();
        bad.store(true, Ordering::SeqCst);
        assert!(panics(|| queue.add("c")) && panics(|| queue.len()));
        drop(item);
        // The panic ends the queue's thread, but the due item is still delivered.
        clock.advance(millis(10));
        bad.store(false, Ordering::SeqCst);
        assert_eq!(queue.get(), Some("a"));
        bad.store(true, Ordering::SeqCst);
        drop(queue);
    });
}

/// Calls the queue when dropped.
#[derive(Clone)]
struct Noisy(u32, Weak<DelayingQueue<Self>>);

impl PartialEq for Noisy {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Noisy {}

impl Hash for Noisy {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Noisy {
    fn drop(&mut self) {
        if let Some(queue) = self.1.upgrade() {
            let _ = queue.len();
        }
    }
}

#[test]
fn items_are_dropped_without_the_lock() {
    with_timeout(|| {
        let (queue, clock) = delaying();
        let queue = Arc::new(queue);
        let noisy = |number| Noisy(number, Arc::downgrade(&queue));
        queue.add(noisy(1));
        queue.add(noisy(1));
        let item = queue.take().unwrap();
        queue.add(noisy(1));
        queue.add(noisy(1));
        drop(item);
        drop(queue.take());
        queue.done(&noisy(2));
        for delay in [3, 2, 4] {
            queue.add_after(noisy(2), millis(delay));
        }
        queue.add(noisy(2));
        clock.advance(millis(2));
        assert_eq!(queue.len(), 1);
        queue.add_after(noisy(3), millis(1));
        queue.stop();
        queue.add(noisy(3));
        queue.add_after(noisy(3), millis(1));
    });
}

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::Stop;
use k8s_informer::error::ShutdownError;
use k8s_informer::time::Clock;
use k8s_informer::workqueue::{AnyWorkQueue, DelayingQueue, WorkQueue, WorkQueueMetrics};
use k8s_informer_testing::FakeClock;

use super::support::*;

#[test]
fn q10_zero_delay_adds_immediately_unless_shut_down() {
    let (queue, clock) = delaying();
    queue.add_after("a", Duration::ZERO);
    assert_eq!(queue.len(), 1);
    queue.stop();
    queue.add_after("b", Duration::ZERO);
    queue.add_after("c", millis(1));
    clock.advance(millis(1));
    assert_eq!((queue.get(), queue.get()), (Some("a"), None));
}

#[test]
fn q10_ten_thousand_delayed_adds_return_without_blocking() {
    let (queue, clock) = delaying();
    (0..10_000).for_each(|item| queue.add_after(item, millis(1 + item)));
    clock.advance(millis(5000));
    assert_eq!(queue.len(), 5000);
}

#[test]
fn q11_item_is_added_when_its_delay_ends() {
    let (queue, clock) = delaying();
    queue.add_after("a", millis(50));
    clock.advance(millis(50) - Duration::from_nanos(1));
    assert_eq!(queue.len(), 0);
    clock.advance(Duration::from_nanos(1));
    assert_eq!(queue.take().as_deref(), Some(&"a"));
    queue.add_after("a", millis(50));
    clock.advance(millis(50));
    assert_eq!(queue.len(), 1, "the item can be delayed again");
}

#[test]
fn q11_earliest_of_several_delays_counts() {
    let (queue, clock) = delaying();
    queue.add_after("a", millis(50));
    queue.add_after("a", millis(30));
    queue.add_after("a", millis(70));
    clock.advance(millis(30));
    assert_eq!(queue.take().as_deref(), Some(&"a"));
    clock.advance(millis(100));
    assert_eq!(queue.len(), 0);
}

#[test]
fn q11_items_are_added_in_the_order_of_their_due_times() {
    let (queue, clock) = delaying();
    let items = [("c", 3), ("a", 1), ("d", 4), ("b", 2)];
    items
        .into_iter()
        .for_each(|(item, at)| queue.add_after(item, millis(at)));
    clock.advance(millis(10));
    queue.add("e");
    let order: Vec<_> = (0..5).map(|_| queue.get().unwrap()).collect();
    assert_eq!(order, ["a", "b", "c", "d", "e"]);
}

/// Items become due while the only worker waits in `get`, so the queue's own thread must deliver
/// them.
#[test]
fn q11_timer_thread_wakes_a_waiting_worker() {
    with_timeout(|| {
        let (queue, clock) = delaying();
        let queue = Arc::new(queue);
        let worker = thread::spawn({
            let queue = Arc::clone(&queue);
            move || [queue.get(), queue.get(), queue.get()]
        });
        queue.add_after("b", millis(20));
        clock.wait_for_waits(1, TIMEOUT).unwrap();
        // An item that is due earlier ends the thread's wait for `b`.
        queue.add_after("a", millis(10));
        clock.wait_for_waits(2, TIMEOUT).unwrap();
        // An item that is due later does not end the wait.
        queue.add_after("c", millis(30));
        for waits in [3, 4] {
            clock.advance(millis(10));
            clock.wait_for_waits(waits, TIMEOUT).unwrap();
        }
        clock.advance(millis(10));
        assert_eq!(worker.join().unwrap(), [Some("a"), Some("b"), Some("c")]);
        assert_eq!(clock.waits(), [20, 10, 10, 10].map(millis));
    });
}

/// The thread does not wake up before an item is due. In client-go, a heartbeat wakes it every ten
/// seconds.
#[test]
fn q11_timer_thread_sleeps_until_an_item_is_due() {
    let (queue, clock) = delaying();
    clock.advance(Duration::from_secs(100));
    queue.add_after("a", Duration::from_secs(3600));
    clock.wait_for_waits(1, TIMEOUT).unwrap();
    clock.advance(Duration::from_secs(3599));
    assert_eq!((queue.len(), clock.waits().len()), (0, 1));
}

#[test]
fn q12_item_may_be_both_queued_and_delayed() {
    let (queue, clock) = delaying();
    queue.add_after("a", millis(10));
    queue.add("a");
    drop(queue.take().unwrap());
    assert_eq!(queue.len(), 0);
    clock.advance(millis(10));
    assert_eq!(queue.len(), 1);
}

#[test]
fn q13_stop_drops_delayed_items() {
    let (queue, clock) = delaying();
    let item = Arc::new(1);
    queue.add_after(Arc::clone(&item), millis(10));
    queue.stop();
    assert_eq!(Arc::strong_count(&item), 1);
    clock.advance(millis(10));
    assert_eq!(queue.get(), None);
}

#[test]
fn q13_items_due_before_shutdown_are_returned() {
    let (queue, clock) = delaying();
    queue.add_after("a", millis(10));
    clock.advance(millis(10));
    queue.stop();
    assert_eq!((queue.get(), queue.get()), (Some("a"), None));
}

#[test]
fn q14_stop_aborts_a_drain() {
    with_timeout(|| {
        let (queue, _clock) = delaying();
        let queue = Arc::new(queue);
        queue.add("a");
        let item = queue.take().unwrap();
        let drain = thread::spawn({
            let queue = Arc::clone(&queue);
            move || queue.shut_down(None)
        });
        while !drain.is_finished() {
            if queue.is_stopped() {
                queue.stop();
            }
            thread::yield_now();
        }
        let stuck = vec!["workqueue: 1 item in process, 0 waiting".to_owned()];
        let interrupted = ShutdownError::Interrupted { stuck };
        assert_eq!(drain.join().unwrap(), Err(interrupted));
        drop(item);
    });
}

/// A clock that shares a reference count, which shows when all clones are gone.
struct CountedClock(
    FakeClock,
    #[allow(dead_code, reason = "only its reference count matters")] Arc<()>,
);

impl Clock for CountedClock {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        self.0.wait(duration, stop)
    }
}

#[test]
fn q14_timer_thread_ends_on_stop_shutdown_and_drop() {
    with_timeout(|| {
        type End = fn(&DelayingQueue<&'static str>);
        let ends: [End; 3] = [
            |queue| queue.stop(),
            |queue| queue.shut_down(None).unwrap(),
            |_| {},
        ];
        for (end, idle) in ends.into_iter().flat_map(|end| [(end, true), (end, false)]) {
            let (clock, count) = (FakeClock::new(), Arc::new(()));
            let counted_clock = Arc::new(CountedClock(clock.clone(), Arc::clone(&count)));
            let queue = WorkQueue::builder()
                .clock(counted_clock)
                .build_delaying()
                .unwrap();
            if !idle {
                queue.add_after("a", Duration::from_secs(3600));
                clock.wait_for_waits(1, TIMEOUT).unwrap();
            }
            end(&queue);
            drop(queue);
            // The queue's thread has also dropped its clone of the clock.
            assert_eq!(Arc::strong_count(&count), 1);
        }
    });
}

#[test]
fn maximum_delay_is_not_an_error() {
    let (queue, clock) = delaying();
    queue.add_after("a", Duration::MAX);
    clock.wait_for_waits(1, TIMEOUT).unwrap();
    queue.add_after("a", millis(1));
    clock.advance(millis(1));
    assert_eq!(queue.len(), 1);
}

#[test]
fn default_clock_is_the_system_clock() {
    with_timeout(|| {
        let queue = DelayingQueue::new().unwrap();
        queue.add_after("b", millis(3_600_000));
        queue.add_after("a", millis(1));
        assert_eq!(queue.get(), Some("a"));
    });
}

/// A clock at the last representable time.
struct LastInstant(Instant);

impl LastInstant {
    fn new() -> Self {
        let (mut end, mut step) = (Instant::now(), Duration::MAX);
        while !step.is_zero() {
            end = end.checked_add(step).unwrap_or(end);
            step /= 2;
        }
        Self(end)
    }
}

impl Clock for LastInstant {
    fn now(&self) -> Instant {
        self.0
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        if !duration.is_zero() {
            stop.wait();
        }
        !stop.is_stopped()
    }
}

struct NoopMetrics;

impl WorkQueueMetrics for NoopMetrics {}

#[test]
fn delay_past_the_last_instant_adds_immediately() {
    with_timeout(|| {
        for measured in [false, true] {
            let queue = WorkQueue::builder().clock(Arc::new(LastInstant::new()));
            let queue = if measured {
                queue.metrics(Arc::new(NoopMetrics))
            } else {
                queue
            };
            let queue = queue.build_delaying().unwrap();
            thread::scope(|scope| {
                // The worker usually waits before the item is added, so that the queue's thread
                // must deliver it.
                let taken = scope.spawn(|| queue.get());
                queue.add_after("a", Duration::MAX);
                assert_eq!(taken.join().unwrap(), Some("a"));
            });
        }
    });
}

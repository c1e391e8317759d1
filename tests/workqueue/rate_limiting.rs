use std::sync::Arc;
use std::time::Duration;

use k8s_informer::testing::FakeClock;
use k8s_informer::workqueue::{ItemExponentialFailureRateLimiter, RateLimitingQueue, WorkQueue};

use super::support::*;

fn queue() -> (RateLimitingQueue<&'static str>, FakeClock) {
    let clock = FakeClock::new();
    let limiter = ItemExponentialFailureRateLimiter::new(millis(1), Duration::from_secs(1));
    let builder = WorkQueue::builder().clock(Arc::new(clock.clone()));
    (builder.build_rate_limiting(limiter).unwrap(), clock)
}

#[test]
fn q15_each_failure_delays_longer_until_forgotten() {
    let (queue, clock) = queue();
    for wait in [1, 2, 4] {
        queue.add_rate_limited("a");
        clock.advance(millis(wait) - Duration::from_nanos(1));
        assert_eq!(queue.len(), 0);
        clock.advance(Duration::from_nanos(1));
        drop(queue.take().unwrap());
    }
    assert_eq!((queue.num_requeues(&"a"), queue.num_requeues(&"b")), (3, 0));
    queue.forget(&"a");
    assert_eq!(queue.num_requeues(&"a"), 0);
    queue.add_rate_limited("a");
    clock.advance(millis(1));
    assert_eq!(queue.len(), 1);
}

#[test]
fn q15_forgotten_items_stay_queued() {
    let (queue, clock) = queue();
    queue.add_rate_limited("a");
    queue.forget(&"a");
    clock.advance(millis(1));
    assert_eq!(queue.len(), 1);
    queue.forget(&"a");
    assert_eq!(queue.len(), 1);
}

#[test]
fn q15_limiter_also_counts_after_shutdown() {
    let (queue, _) = queue();
    queue.shut_down();
    queue.add_rate_limited("a");
    assert_eq!((queue.num_requeues(&"a"), queue.get()), (1, None));
}

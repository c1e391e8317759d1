use std::sync::Arc;
use std::time::Duration;

use k8s_informer::time::RateLimit;
use k8s_informer::workqueue::{
    AnyWorkQueue, BucketRateLimiter, ItemExponentialFailureRateLimiter, RateLimiter,
    RateLimitingQueue, WithMaxWaitRateLimiter, WorkQueue,
};
use k8s_informer_testing::FakeClock;

use super::support::*;

fn queue() -> (RateLimitingQueue<&'static str>, FakeClock) {
    let clock = FakeClock::new();
    let limiter = ItemExponentialFailureRateLimiter::new(millis(1)..=Duration::from_secs(1));
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
    assert_eq!((queue.requeues(&"a"), queue.requeues(&"b")), (3, 0));
    queue.forget(&"a");
    assert_eq!(queue.requeues(&"a"), 0);
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
fn q15_each_add_of_a_waiting_item_takes_a_token() {
    let clock = FakeClock::new();
    let bucket = || {
        BucketRateLimiter::new(RateLimit::per_second(5.0).burst(1))
            .with_clock(Arc::new(clock.clone()))
    };
    let add_ten = |limiter: Box<dyn RateLimiter<&'static str>>| {
        let builder = WorkQueue::builder().clock(Arc::new(clock.clone()));
        let queue = builder.build_rate_limiting(limiter).unwrap();
        (0..10).for_each(|_| queue.add_rate_limited("a"));
        // It runs at once and, because the second add delays it as well, after 0.2 s.
        drop(queue.take().unwrap());
        clock.advance(millis(200));
        drop(queue.take().unwrap());
        queue.add_rate_limited("a");
        queue
    };
    // The other tokens are taken as well.
    let queue = add_ten(Box::new(bucket()));
    clock.advance(millis(1799));
    assert_eq!(queue.len(), 0);
    clock.advance(millis(1));
    assert_eq!(queue.len(), 1);
    let limited = WithMaxWaitRateLimiter::new(bucket(), millis(300));
    let queue = add_ten(Box::new(limited));
    clock.advance(millis(300));
    assert_eq!(queue.len(), 1);
}

#[test]
fn q15_limiter_also_counts_after_shutdown() {
    let (queue, _) = queue();
    queue.stop();
    queue.add_rate_limited("a");
    assert_eq!((queue.requeues(&"a"), queue.get()), (1, None));
}

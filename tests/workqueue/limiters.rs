//! Rate limiters. `tests/client_go_traces` compares them with client-go to the nanosecond.

use std::sync::Arc;
use std::time::Duration;

use k8s_informer::time::RateLimit;
use k8s_informer::workqueue::{
    BucketRateLimiter, ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter,
    MaxOfRateLimiter, RateLimiter, WithMaxWaitRateLimiter,
    default_controller_rate_limiter_with_clock,
};
use k8s_informer_testing::FakeClock;

use super::support::*;

const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

fn waits(
    limiter: &impl RateLimiter<&'static str>,
    item: &'static str,
    times: usize,
) -> Vec<Duration> {
    (0..times).map(|_| limiter.when(&item)).collect()
}

#[test]
fn q16_each_failure_doubles_the_delay_up_to_the_maximum() {
    let limiter = ItemExponentialFailureRateLimiter::new(millis(1)..=millis(10));
    assert_eq!(waits(&limiter, "a", 6), [1, 2, 4, 8, 10, 10].map(millis));
    assert_eq!(waits(&limiter, "b", 2), [1, 2].map(millis));
    assert_eq!(limiter.requeues(&"a"), 6);
    limiter.forget(&"a");
    assert_eq!((limiter.requeues(&"a"), limiter.when(&"a")), (0, millis(1)));
}

#[test]
fn q16_many_failures_do_not_exceed_the_maximum() {
    let max_delay = Duration::from_secs(1000);
    for base in [Duration::from_nanos(1), millis(1), max_delay, Duration::MAX] {
        let limiter = ItemExponentialFailureRateLimiter::new(base..=max_delay);
        assert_eq!(waits(&limiter, "a", 2000).last(), Some(&max_delay));
    }
    let limiter = ItemExponentialFailureRateLimiter::new(Duration::ZERO..=max_delay);
    assert!(
        waits(&limiter, "a", 2000).iter().all(Duration::is_zero),
        "zero doubled is zero"
    );
}

#[test]
fn q16_overflowing_delay_becomes_the_maximum() {
    // The second wait would be 2^63 ns, which overflows Go's `Duration`.
    let limiter = ItemExponentialFailureRateLimiter::new(Duration::from_nanos(1 << 62)..=NEVER);
    assert_eq!(
        waits(&limiter, "a", 2),
        [Duration::from_nanos(1 << 62), NEVER]
    );
}

#[test]
fn q16_default_limiter_doubles_the_delay_up_to_1000_s() {
    let limiter = default_controller_rate_limiter_with_clock(Arc::new(FakeClock::new()));
    assert_eq!(waits(&limiter, "a", 3), [5, 10, 20].map(millis));
    assert_eq!(
        waits(&limiter, "a", 60).last(),
        Some(&Duration::from_secs(1000))
    );
    // The bucket has used 63 of its 100 tokens.
    let all: Vec<_> = (0..39)
        .map(|item: usize| limiter.when(&["b", "c"][item % 2]))
        .collect();
    assert_eq!(
        (limiter.when(&"d"), limiter.when(&"e")),
        (millis(300), millis(400))
    );
    assert_eq!(all[0], millis(5));
}

#[test]
fn q17_fast_slow_limiter_is_fast_for_first_failures_only() {
    let limiter = ItemFastSlowRateLimiter::new(millis(100)).fast(millis(5), 3);
    assert_eq!(waits(&limiter, "a", 5), [5, 5, 5, 100, 100].map(millis));
    assert_eq!(waits(&limiter, "b", 1), [millis(5)]);
    assert_eq!(limiter.requeues(&"a"), 5);
    limiter.forget(&"a");
    assert_eq!(waits(&limiter, "a", 1), [millis(5)]);
    let never_fast = ItemFastSlowRateLimiter::new(millis(100)).fast(millis(5), 0);
    assert_eq!(waits(&never_fast, "a", 1), [millis(100)]);
}

#[test]
fn q17_bucket_delays_after_its_burst_and_refills_over_time() {
    let clock = FakeClock::new();
    let bucket = BucketRateLimiter::new(RateLimit::per_second(2.0).burst(2))
        .with_clock(Arc::new(clock.clone()));
    assert_eq!(waits(&bucket, "a", 4), [0, 0, 500, 1000].map(millis));
    clock.advance(millis(750));
    assert_eq!(
        waits(&bucket, "b", 1),
        [millis(750)],
        "borrowed tokens are still owed"
    );
    clock.advance(Duration::from_secs(3600));
    assert_eq!(
        waits(&bucket, "a", 3),
        [0, 0, 500].map(millis),
        "the bucket refills to its burst at most"
    );
    bucket.forget(&"a");
    assert_eq!(
        (RateLimiter::requeues(&bucket, &"a"), waits(&bucket, "a", 1)),
        (0, vec![millis(1000)])
    );
}

#[test]
fn q17_bucket_accepts_zero_nan_and_infinite_rates() {
    let bucket = |rate, burst| {
        waits(
            &BucketRateLimiter::new(RateLimit::per_second(rate).burst(burst)),
            "a",
            3,
        )
    };
    assert_eq!(bucket(0.0, 1), [Duration::ZERO, NEVER, NEVER]);
    assert_eq!(bucket(-1.0, 1), [Duration::ZERO, NEVER, NEVER]);
    assert_eq!(bucket(f64::NAN, 1), [Duration::ZERO, NEVER, NEVER]);
    assert_eq!(bucket(5.0, 0), [NEVER; 3]);
    assert_eq!(bucket(f64::INFINITY, 0), [Duration::ZERO; 3]);
    assert_eq!(bucket(1e-300, 1), [Duration::ZERO, NEVER, NEVER]);
}

#[test]
fn q17_max_of_limiter_uses_the_longest_delay() {
    let exponential = |base, most| {
        Box::new(ItemExponentialFailureRateLimiter::new(
            millis(base)..=millis(most),
        ))
    };
    let both = MaxOfRateLimiter::new(vec![exponential(3, 5), exponential(1, 1000)]);
    assert_eq!(waits(&both, "a", 5), [3, 5, 5, 8, 16].map(millis));
    assert_eq!(both.requeues(&"a"), 5);
    both.forget(&"a");
    assert_eq!(both.requeues(&"a"), 0);
    let none = MaxOfRateLimiter::<&str>::new(Vec::new());
    assert_eq!(
        (waits(&none, "a", 1), none.requeues(&"a")),
        (vec![Duration::ZERO], 0)
    );
}

#[test]
fn q17_max_of_limiter_shares_a_limiter_with_others() {
    let fast_slow = Arc::new(ItemFastSlowRateLimiter::new(millis(5)).fast(millis(3), 2));
    let exponential = ItemExponentialFailureRateLimiter::new(millis(1)..=millis(1000));
    let both = MaxOfRateLimiter::new(vec![
        Box::new(Arc::clone(&fast_slow)),
        Box::new(exponential),
    ]);
    assert_eq!(waits(&both, "a", 5), [3, 3, 5, 8, 16].map(millis));
    fast_slow.forget(&"a");
    assert_eq!(both.requeues(&"a"), 5, "the other one still counts");
}

#[test]
fn q17_max_wait_limiter_caps_the_delay() {
    let exponential = ItemExponentialFailureRateLimiter::new(millis(1)..=millis(1000));
    let limiter = WithMaxWaitRateLimiter::new(exponential, millis(3));
    assert_eq!(waits(&limiter, "a", 4), [1, 2, 3, 3].map(millis));
    assert_eq!(limiter.requeues(&"a"), 4);
    limiter.forget(&"a");
    assert_eq!(waits(&limiter, "a", 1), [millis(1)]);
}

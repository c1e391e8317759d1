use std::sync::Arc;
use std::time::Duration;

use super::RateLimiter;
use crate::base::derive::debug_fields;
use crate::time::{Clock, RateLimit, RealClock, TokenBucket};

/// A rate limit for all items together, with a burst. client-go's `TypedBucketRateLimiter`.
///
/// Each item takes one token from a bucket that refills at a constant rate. If the bucket is empty,
/// the item reserves the next free token and waits for it. A reservation is never cancelled, not
/// even that of an item which already waits in the queue. If items are added faster than the bucket
/// refills, the delays grow without bound; limit them with a
/// [`WithMaxWaitRateLimiter`](crate::workqueue::WithMaxWaitRateLimiter). Items are not counted, so
/// `forget` has no effect.
///
/// ```
/// use k8s_informer::time::RateLimit;
/// use k8s_informer::workqueue::{BucketRateLimiter, RateLimiter};
/// use k8s_informer_testing::FakeClock;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the system clock by default
/// let limiter = BucketRateLimiter::new(RateLimit::per_second(10.0).burst(2));
/// let limiter = limiter.with_clock(Arc::new(clock.clone()));
/// let waits: Vec<u128> = (0..4).map(|_| limiter.when(&"a").as_millis()).collect();
/// assert_eq!(waits, [0, 0, 100, 200]);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(limiter.when(&"a"), Duration::ZERO);
/// ```
pub struct BucketRateLimiter {
    bucket: TokenBucket,
    clock: Arc<dyn Clock>,
}

impl BucketRateLimiter {
    /// Creates a full bucket.
    pub fn new(limit: RateLimit) -> Self {
        Self {
            bucket: TokenBucket::new(limit),
            clock: Arc::new(RealClock),
        }
    }

    /// Sets the clock. The default is the system clock.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }
}

impl<T> RateLimiter<T> for BucketRateLimiter {
    fn when(&self, _: &T) -> Duration {
        self.bucket.reserve(&*self.clock)
    }

    fn forget(&self, _: &T) {}

    fn requeues(&self, _: &T) -> usize {
        0
    }
}

debug_fields!(BucketRateLimiter: bucket);

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::RateLimiter;
use crate::time::{Clock, RealClock, TokenBucket};

/// A limit for all items together: so many items each second, and a burst. client-go's `TypedBucketRateLimiter`.
///
/// Each item takes a token from a bucket that fills steadily. If the bucket is empty, the item owes its token and waits
/// until it is there; it never returns it (Q17). Items are not counted, so `forget` has no effect.
///
/// ```
/// use k8s_informer::testing::FakeClock;
/// use k8s_informer::workqueue::{BucketRateLimiter, RateLimiter};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the real one by default
/// let limiter = BucketRateLimiter::new(10.0, 2).with_clock(Arc::new(clock.clone()));
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
    /// From the number of tokens each second, and the number that the bucket holds. It is full at first.
    ///
    /// Without new tokens each second, the first ones are all there are. Without a burst no token ever comes, unless
    /// infinitely many come each second: then nothing waits.
    pub fn new(per_second: f64, burst: usize) -> Self {
        Self {
            bucket: TokenBucket::new(per_second, burst),
            clock: Arc::new(RealClock),
        }
    }

    /// By this clock; the machine's by default.
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

    /// Does nothing.
    fn forget(&self, _: &T) {}

    /// 0.
    fn num_requeues(&self, _: &T) -> usize {
        0
    }
}

impl fmt::Debug for BucketRateLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketRateLimiter")
            .field("bucket", &self.bucket)
            .finish_non_exhaustive()
    }
}

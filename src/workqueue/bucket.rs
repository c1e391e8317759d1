use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::RateLimiter;
use super::limiter::nanoseconds;
use crate::sync::Mutex;
use crate::time::{Clock, RealClock};

/// The longest wait there is in Go: for what never comes.
const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// So many items a second, whichever they are, and some more at once: a bucket of tokens, from which each
/// item takes one and which fills steadily. client-go's `TypedBucketRateLimiter`, with Go's `x/time/rate`.
///
/// An item that finds the bucket empty owes its token and waits until it is there; it never gives it back
/// (Q17). Nothing is counted by item, so nothing can be forgotten.
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
    per_second: f64,
    burst: usize,
    clock: Arc<dyn Clock>,
    /// Guards the bucket. Innermost.
    bucket: Mutex<Bucket>,
}

struct Bucket {
    /// Less than none if some are owed.
    tokens: f64,
    /// When that was so; `None` at first.
    at: Option<Instant>,
}

impl BucketRateLimiter {
    /// From how many tokens there are a second, and how many the bucket holds: it is full at first.
    ///
    /// Without any a second, what is in the bucket is all there ever is; without any in the bucket nothing
    /// comes, unless infinitely many do a second: then nothing waits.
    pub fn new(per_second: f64, burst: usize) -> Self {
        let bucket = Mutex::new(Bucket {
            tokens: burst as f64,
            at: None,
        });
        Self {
            per_second,
            burst,
            clock: Arc::new(RealClock),
            bucket,
        }
    }

    /// By this clock; the machine's by default.
    #[must_use]
    pub fn with_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Takes a token; how long it takes until it is there.
    fn reserve(&self) -> Duration {
        if self.per_second == f64::INFINITY {
            return Duration::ZERO;
        }
        if self.burst == 0 {
            return NEVER;
        }
        let now = self.clock.now();
        let mut bucket = self.bucket.lock();
        // Who has read the clock earlier may come later.
        let at = bucket.at.map_or(now, |at| at.max(now));
        let passed = bucket.at.map_or(Duration::ZERO, |before| at - before);
        let tokens = (bucket.tokens + self.tokens_in(passed)).min(self.burst as f64) - 1.0;
        *bucket = Bucket {
            tokens,
            at: Some(at),
        };
        drop(bucket);
        if tokens < 0.0 {
            self.time_of(-tokens)
        } else {
            Duration::ZERO
        }
    }

    fn tokens_in(&self, time: Duration) -> f64 {
        if self.per_second > 0.0 {
            // Go's Duration.Seconds, to the last bit.
            (time.as_secs() as f64 + f64::from(time.subsec_nanos()) / 1e9) * self.per_second
        } else {
            0.0
        }
    }

    fn time_of(&self, tokens: f64) -> Duration {
        if self.per_second > 0.0 {
            nanoseconds(tokens / self.per_second * 1e9).unwrap_or(NEVER)
        } else {
            NEVER
        }
    }
}

impl<T> RateLimiter<T> for BucketRateLimiter {
    fn when(&self, _: &T) -> Duration {
        self.reserve()
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
            .field("per_second", &self.per_second)
            .field("burst", &self.burst)
            .field("tokens", &self.bucket.lock().tokens)
            .finish_non_exhaustive()
    }
}

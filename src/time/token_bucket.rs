use std::time::{Duration, Instant};

use super::{Clock, RateLimit};
use crate::base::sync::Mutex;

/// The longest duration in Go, for a token that never becomes available.
const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// A token bucket that refills at a constant rate. Go's `x/time/rate`.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    limit: RateLimit,
    /// An innermost lock.
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    /// The number of tokens at time `at`. Negative if tokens are reserved in advance.
    tokens: f64,
    /// The time of the last reservation, `None` before the first.
    at: Option<Instant>,
}

impl TokenBucket {
    /// Returns a full bucket.
    pub(crate) fn new(limit: RateLimit) -> Self {
        let level = Mutex::new(Level {
            tokens: limit.burst as f64,
            at: None,
        });
        Self { limit, level }
    }

    /// Reserves a token, and returns the time until it is available.
    pub(crate) fn reserve(&self, clock: &dyn Clock) -> Duration {
        if self.limit.per_second == f64::INFINITY {
            return Duration::ZERO;
        }
        if self.limit.burst == 0 {
            return NEVER;
        }
        let now = clock.now();
        let mut level = self.level.lock();
        // The time must not go back: another thread may have read a later time and locked first.
        let at = level.at.map_or(now, |at| at.max(now));
        let passed = level.at.map_or(Duration::ZERO, |before| at - before);
        let tokens = (level.tokens + self.tokens_in(passed)).min(self.limit.burst as f64) - 1.0;
        *level = Level {
            tokens,
            at: Some(at),
        };
        drop(level);
        if tokens < 0.0 {
            self.time_of(-tokens)
        } else {
            Duration::ZERO
        }
    }

    fn tokens_in(&self, time: Duration) -> f64 {
        if self.limit.per_second > 0.0 {
            // The same formula as Go's `Duration.Seconds`, for identical rounding.
            (time.as_secs() as f64 + f64::from(time.subsec_nanos()) / 1e9) * self.limit.per_second
        } else {
            0.0
        }
    }

    fn time_of(&self, tokens: f64) -> Duration {
        if self.limit.per_second > 0.0 {
            nanoseconds(tokens / self.limit.per_second * 1e9).unwrap_or(NEVER)
        } else {
            NEVER
        }
    }
}

/// Converts nanoseconds, or returns `None` for more than Go's `Duration` can hold.
pub(crate) fn nanoseconds(number: f64) -> Option<Duration> {
    (number < i64::MAX as f64).then(|| Duration::from_nanos(number as u64))
}

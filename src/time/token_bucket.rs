use std::time::{Duration, Instant};

use super::Clock;
use crate::base::sync::Mutex;

/// The longest duration in Go, for a token that never becomes available.
const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// A token bucket that refills at a constant rate. Go's `x/time/rate`.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_second: f64,
    burst: usize,
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
    /// Returns a full bucket of `burst` tokens.
    ///
    /// With a rate of zero, the initial tokens are the only ones. With a burst of zero, no token
    /// ever becomes available, unless the rate is infinite.
    pub(crate) fn new(per_second: f64, burst: usize) -> Self {
        let level = Mutex::new(Level {
            tokens: burst as f64,
            at: None,
        });
        Self {
            per_second,
            burst,
            level,
        }
    }

    /// Reserves a token, and returns the time until it is available.
    pub(crate) fn reserve(&self, clock: &dyn Clock) -> Duration {
        if self.per_second == f64::INFINITY {
            return Duration::ZERO;
        }
        if self.burst == 0 {
            return NEVER;
        }
        let now = clock.now();
        let mut level = self.level.lock();
        // The time must not go back: another thread may have read a later time and locked first.
        let at = level.at.map_or(now, |at| at.max(now));
        let passed = level.at.map_or(Duration::ZERO, |before| at - before);
        let tokens = (level.tokens + self.tokens_in(passed)).min(self.burst as f64) - 1.0;
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
        if self.per_second > 0.0 {
            // The same formula as Go's `Duration.Seconds`, for identical rounding.
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

/// Converts nanoseconds, or returns `None` for more than Go's `Duration` can hold.
pub(crate) fn nanoseconds(number: f64) -> Option<Duration> {
    (number < i64::MAX as f64).then(|| Duration::from_nanos(number as u64))
}

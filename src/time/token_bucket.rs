use std::time::{Duration, Instant};

use super::Clock;
use crate::sync::Mutex;

/// The longest wait in Go, for a token that never comes.
const NEVER: Duration = Duration::from_nanos(i64::MAX as u64);

/// A bucket that fills steadily and from which each event takes a token. Go's `x/time/rate`.
#[derive(Debug)]
pub(crate) struct TokenBucket {
    per_second: f64,
    burst: usize,
    /// Innermost.
    level: Mutex<Level>,
}

#[derive(Debug)]
struct Level {
    /// Negative if tokens are owed.
    tokens: f64,
    /// When that was so. `None` at first.
    at: Option<Instant>,
}

impl TokenBucket {
    /// Returns a full bucket of `burst` tokens.
    ///
    /// Without new tokens each second, the first ones are all there are. Without a burst no token ever comes, unless
    /// infinitely many come each second.
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

    /// Takes a token, and returns how long it takes until it is there.
    pub(crate) fn reserve(&self, clock: &dyn Clock) -> Duration {
        if self.per_second == f64::INFINITY {
            return Duration::ZERO;
        }
        if self.burst == 0 {
            return NEVER;
        }
        let now = clock.now();
        let mut level = self.level.lock();
        // A thread that has read the clock earlier may lock later.
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

/// As many as Go's `Duration` holds; `None` for more.
pub(crate) fn nanoseconds(number: f64) -> Option<Duration> {
    (number < i64::MAX as f64).then(|| Duration::from_nanos(number as u64))
}

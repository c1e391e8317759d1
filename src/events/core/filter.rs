use std::time::Duration;

use super::event::Key;
use super::lru::Lru;

/// Limits the events about one object with token buckets (EC4).
#[derive(Debug)]
pub(crate) struct SpamFilter {
    per_second: f64,
    burst: u32,
    buckets: Lru<Key, Bucket>,
}

#[derive(Clone, Copy, Debug)]
struct Bucket {
    tokens: f64,
    at: Duration,
}

impl SpamFilter {
    pub(crate) fn new(limit: usize, per_second: f64, burst: u32) -> Self {
        Self {
            per_second,
            burst,
            buckets: Lru::new(limit),
        }
    }

    /// Takes a token, if there is one. `AllowN` of Go's `x/time/rate` with the same rounding.
    ///
    /// The token bucket of `time` reserves future tokens, which this filter must not do.
    pub(crate) fn accepts(&mut self, key: Key, now: Duration) -> bool {
        let full = Bucket {
            tokens: f64::from(self.burst),
            at: now,
        };
        let bucket = self.buckets.get(&key).copied().unwrap_or(full);
        let passed = now.saturating_sub(bucket.at);
        let seconds = passed.as_secs() as f64 + f64::from(passed.subsec_nanos()) / 1e9;
        let tokens = (bucket.tokens + seconds * self.per_second).min(f64::from(self.burst)) - 1.0;
        // Go rounds the wait for the missing part of a token down to nanoseconds.
        let accepts = self.burst > 0 && (tokens >= 0.0 || -tokens / self.per_second * 1e9 < 1.0);
        let bucket = match accepts {
            true => Bucket {
                tokens,
                at: bucket.at.max(now),
            },
            false => bucket,
        };
        self.buckets.put(key, bucket);
        accepts
    }
}

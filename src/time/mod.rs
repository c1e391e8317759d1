//! A clock that tests can advance, and the back-off between attempts.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`Clock`], [`RealClock`] | the time, and waits that a [`Stop`] ends | `clock.Clock` |
//! | [`Backoff`] | growing waits with jitter | `wait.Backoff` |
//!
//! ```
//! use k8s_informer::time::Backoff;
//! use std::time::Duration;
//!
//! let second = Duration::from_secs(1);
//! let mut backoff = Backoff::new(second, 2.0, 30 * second, 0.0);
//! let waits: Vec<u64> = (0..6).map(|_| backoff.step().as_secs()).collect();
//! assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
//! ```

mod token_bucket;

use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

pub(crate) use self::token_bucket::{TokenBucket, nanoseconds};
use crate::stop::Stop;

/// Tells the time and waits. [`RealClock`] outside of tests.
pub trait Clock: Send + Sync + 'static {
    /// Now, on a clock that never goes back.
    fn now(&self) -> Instant;

    /// Blocks for this long, or until `stop` is given; says whether the time has passed.
    fn wait(&self, duration: Duration, stop: &Stop) -> bool;
}

/// The machine's monotonic clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct RealClock;

impl Clock for RealClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        !stop.wait_timeout(duration)
    }
}

/// How long to wait between tries: grows with each one, up to a cap, and is spread by chance so that a
/// thousand clients of one server do not come back together.
///
/// The default is the reflector's of client-go (L2): 0.8 s, doubled up to 30 s, and each wait a random one
/// between that and twice that.
#[derive(Clone, Debug)]
pub struct Backoff {
    base: Duration,
    factor: f64,
    cap: Duration,
    jitter: f64,
    next: Duration,
    random: Random,
}

impl Backoff {
    /// From the first wait, the factor from one to the next, and the cap; each wait `d` becomes one between
    /// `d` and `d × (1 + jitter)`.
    pub fn new(base: Duration, factor: f64, cap: Duration, jitter: f64) -> Self {
        Self {
            base,
            factor: factor.max(1.0),
            cap,
            jitter: jitter.max(0.0),
            next: base,
            random: Random::new(),
        }
    }

    /// How long to wait this time.
    ///
    /// ```
    /// use k8s_informer::time::Backoff;
    /// use std::time::Duration;
    ///
    /// let mut backoff = Backoff::new(Duration::from_secs(1), 2.0, Duration::from_secs(3), 0.0);
    /// let waits: Vec<u64> = (0..4).map(|_| backoff.step().as_secs()).collect();
    /// assert_eq!(waits, [1, 2, 3, 3]);
    /// backoff.reset();
    /// assert_eq!(backoff.step().as_secs(), 1);
    /// ```
    pub fn step(&mut self) -> Duration {
        let wait = self.next.min(self.cap);
        self.next = times(wait, self.factor).min(self.cap);
        times(wait, 1.0 + self.jitter * self.random.unit())
    }

    /// Starts again with the first wait: what was tried works.
    pub fn reset(&mut self) {
        self.next = self.base;
    }
}

/// The longest wait there is, where `mul_f64` would panic.
fn times(wait: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(
            Duration::from_millis(800),
            2.0,
            Duration::from_secs(30),
            1.0,
        )
    }
}

/// Chance enough to spread waits: SplitMix64, seeded by the standard library's own source of randomness. A
/// clone goes its own way.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Clone for Random {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl Random {
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    /// The same numbers each time.
    #[cfg(test)]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    #[cfg(test)]
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// How long the processing of some items takes if it is slow: so long for each of them, but never more than
/// `most`.
pub(crate) fn slow(items: usize, each: Duration, most: Duration) -> Duration {
    each.saturating_mul(u32::try_from(items).unwrap_or(u32::MAX))
        .min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_without_a_limit_do_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1), f64::INFINITY, Duration::MAX, 1.0);
        for _ in 0..3 {
            backoff.step();
        }
        assert_eq!(backoff.step(), Duration::MAX);
    }

    #[test]
    fn clones_do_not_wait_together() {
        let backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.clone().step()).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }

    #[test]
    fn d14_r23_x14_what_is_slow() {
        let millis = |items, each, most| {
            slow(
                items,
                Duration::from_millis(each),
                Duration::from_millis(most),
            )
            .as_millis()
        };
        assert_eq!(
            [1, 2, 10, 11].map(|items| millis(items, 100, 1000)),
            [100, 200, 1000, 1000]
        );
        assert_eq!(
            [0, 1, usize::MAX].map(|items| millis(items, 500, 5000)),
            [0, 500, 5000]
        );
    }
}

//! A clock that tests can advance, the back-off between attempts, and rates.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`Clock`], [`RealClock`] | the time, and waits that a [`Stop`] ends | `clock.Clock` |
//! | [`Backoff`] | growing delays with jitter | `wait.Backoff` |
//! | [`RateLimit`] | a number per second, and the size of bursts | `rate.NewLimiter(r, b)` |
//!
//! ```
//! use k8s_informer::time::Backoff;
//! use std::time::Duration;
//!
//! let second = Duration::from_secs(1);
//! let mut backoff = Backoff::new(second).factor(2.0).cap(30 * second);
//! let waits: Vec<u64> = (0..6).map(|_| backoff.step().as_secs()).collect();
//! assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
//! ```

mod token_bucket;
#[cfg(feature = "client")]
pub(crate) mod unix_time;

use std::hash::BuildHasher;
use std::io;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

pub(crate) use self::token_bucket::{TokenBucket, nanoseconds};
#[cfg(feature = "client")]
pub(crate) use self::unix_time::UnixTime;
use crate::base::hash::RandomState;
use crate::stop::guard::StopOnDrop;
use crate::stop::{Stop, Stopper};

/// A source of time that can also wait. Outside of tests, use [`RealClock`].
pub trait Clock: Send + Sync + 'static {
    /// Returns the current time. The clock is monotonic.
    fn now(&self) -> Instant;

    /// Blocks for `duration`, or until `stop` is set. Returns whether the full duration has passed.
    fn wait(&self, duration: Duration, stop: &Stop) -> bool;

    /// Returns the wall-clock time, which can be set at any time. The default is that of the
    /// operating system.
    fn wall_clock(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The monotonic clock of the operating system.
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

/// Delays between attempts, which grow up to a cap. Jitter spreads them, so that a thousand clients
/// of one server do not retry at the same time.
///
/// The default is that of client-go's reflector: the delay starts at 0.8 s and doubles up to 30 s.
/// Jitter then multiplies each delay by a random factor between 1 and 2.
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
    /// Creates a back-off whose delays are all `base`, until you set a [`factor`](Self::factor) or
    /// [`jitter`](Self::jitter).
    pub fn new(base: Duration) -> Self {
        Self {
            base,
            factor: 1.0,
            cap: Duration::MAX,
            jitter: 0.0,
            next: base,
            random: Random::new(),
        }
    }

    /// Multiplies the delay by `factor` with each attempt. A factor below 1 counts as 1, which is
    /// the default.
    #[must_use]
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor.max(1.0);
        self
    }

    /// Limits the delay before jitter to `cap`. By default, it grows without a limit.
    #[must_use]
    pub fn cap(mut self, cap: Duration) -> Self {
        self.cap = cap;
        self
    }

    /// Makes a delay `d` a random one between `d` and `d × (1 + jitter)`. A negative value counts as
    /// 0, which is the default.
    #[must_use]
    pub fn jitter(mut self, jitter: f64) -> Self {
        self.jitter = jitter.max(0.0);
        self
    }

    /// Returns the delay before the next attempt.
    ///
    /// ```
    /// use k8s_informer::time::Backoff;
    /// use std::time::Duration;
    ///
    /// let second = Duration::from_secs(1);
    /// let mut backoff = Backoff::new(second).factor(2.0).cap(3 * second);
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

    /// Restarts with the first delay. Call this after a success.
    pub fn reset(&mut self) {
        self.next = self.base;
    }
}

/// Multiplies a duration. Returns the maximum duration in cases where `mul_f64` would panic.
fn times(wait: Duration, factor: f64) -> Duration {
    Duration::try_from_secs_f64(wait.as_secs_f64() * factor).unwrap_or(Duration::MAX)
}

impl Default for Backoff {
    fn default() -> Self {
        Self::new(Duration::from_millis(800))
            .factor(2.0)
            .cap(Duration::from_secs(30))
            .jitter(1.0)
    }
}

/// A number of events per second, and how many of them may happen at once. The arguments of Go's
/// `rate.NewLimiter`.
///
/// A full bucket holds `burst` tokens, and each event takes one. The bucket refills at the rate.
///
/// ```
/// use k8s_informer::time::RateLimit;
/// use k8s_informer::workqueue::{BucketRateLimiter, RateLimiter};
///
/// let limiter = BucketRateLimiter::new(RateLimit::per_second(10.0).burst(2));
/// let waits: Vec<bool> = (0..3).map(|_| limiter.when(&"a").is_zero()).collect();
/// assert_eq!(waits, [true, true, false]);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[must_use]
pub struct RateLimit {
    pub(crate) per_second: f64,
    pub(crate) burst: usize,
}

impl RateLimit {
    /// Creates a limit of this number per second, without bursts: two events never happen at once.
    ///
    /// If the number is 0, negative or NaN, only the first burst happens. If it is infinite, nothing
    /// waits.
    pub fn per_second(number: f64) -> Self {
        Self {
            per_second: number,
            burst: 1,
        }
    }

    /// Sets how many events may happen at once. If it is 0, no event happens, unless the rate is
    /// infinite.
    pub fn burst(mut self, events: usize) -> Self {
        self.burst = events;
        self
    }
}

/// Runs `work`, and sets `stop` when `timeout` has elapsed. A thread waits for the deadline, because
/// `work` can block in requests, in reads and in back-offs. Fails if that thread cannot be started.
pub(crate) fn with_deadline<R>(
    clock: &dyn Clock,
    timeout: Option<Duration>,
    stop: &Stopper,
    work: impl FnOnce() -> R,
) -> io::Result<R> {
    let Some(timeout) = timeout else {
        return Ok(work());
    };
    // Ends the thread, also after a panic of `work`.
    let done = StopOnDrop(stop.child());
    let ended = done.0.clone();
    thread::scope(|scope| {
        let timer = thread::Builder::new().name("wait-deadline".to_owned());
        let timer = timer.spawn_scoped(scope, move || {
            if clock.wait(timeout, &ended) {
                stop.stop();
            }
        });
        timer.map_err(|error| {
            let text = format!("the thread for the timeout could not be started: {error}");
            io::Error::new(error.kind(), text)
        })?;
        let result = work();
        drop(done);
        Ok(result)
    })
}

/// A random generator that is good enough for jitter: SplitMix64, seeded by the standard library's
/// `RandomState`. A clone gets its own seed.
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Clone for Random {
    fn clone(&self) -> Self {
        Self::new()
    }
}

impl Random {
    pub(crate) fn new() -> Self {
        Self(RandomState::default().hash_one(0))
    }

    /// Creates a generator that always returns the same sequence.
    #[cfg(test)]
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number from the uniform distribution over [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    #[cfg(test)]
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }
}

/// Returns the duration from which the processing of `items` items counts as slow: `each` per item,
/// at most `most`.
pub(crate) fn slow_threshold(items: usize, each: Duration, most: Duration) -> Duration {
    each.saturating_mul(u32::try_from(items).unwrap_or(u32::MAX))
        .min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_without_limit_does_not_overflow() {
        let mut backoff = Backoff::new(Duration::from_secs(1))
            .factor(f64::INFINITY)
            .jitter(1.0);
        for _ in 0..3 {
            backoff.step();
        }
        assert_eq!(backoff.step(), Duration::MAX);
    }

    #[test]
    fn backoff_clones_have_independent_jitter() {
        let backoff = Backoff::default();
        let waits: Vec<_> = (0..8).map(|_| backoff.clone().step()).collect();
        assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
    }

    #[test]
    fn d14_r23_x14_slow_threshold_is_capped() {
        let millis = |items, each, most| {
            slow_threshold(
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

pub(super) mod bucket;

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use self::bucket::BucketRateLimiter;
use super::item::Item;
use crate::base::derive::debug_fields;
use crate::base::shrink::Shrink;
use crate::base::sync::Mutex;
use crate::time::{Clock, RateLimit, RealClock, nanoseconds};

/// Decides how long an item waits before it is retried. client-go's `TypedRateLimiter`.
///
/// Each call of [`when`](Self::when) counts as one more failure. A
/// [`RateLimitingQueue`](super::RateLimitingQueue) calls the limiter on the calling thread and
/// without holding its lock; a panic propagates to the caller.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, RateLimiter, RateLimitingQueue};
/// use std::time::Duration;
///
/// /// The same delay for every item.
/// struct Constant(Duration);
///
/// impl<T> RateLimiter<T> for Constant {
///     fn when(&self, _: &T) -> Duration {
///         self.0
///     }
///     fn forget(&self, _: &T) {}
///     fn requeues(&self, _: &T) -> usize {
///         0
///     }
/// }
///
/// let queue = RateLimitingQueue::new(Constant(Duration::ZERO))?;
/// queue.add_rate_limited("a");
/// assert_eq!(queue.len(), 1);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait RateLimiter<T>: Send + Sync + 'static {
    /// Counts one failure of `item` and returns how long it must wait.
    fn when(&self, item: &T) -> Duration;

    /// Resets the failures of `item`, because it succeeded or is not retried anymore.
    fn forget(&self, item: &T);

    /// Returns the number of failures of `item` since it was last forgotten, or 0 if the limiter
    /// does not count.
    #[doc(alias = "NumRequeues")]
    fn requeues(&self, item: &T) -> usize;
}

macro_rules! forward_to_content {
    ($($pointer:ident)*) => {$(
        impl<T, L: RateLimiter<T> + ?Sized> RateLimiter<T> for $pointer<L> {
            fn when(&self, item: &T) -> Duration {
                (**self).when(item)
            }

            fn forget(&self, item: &T) {
                (**self).forget(item);
            }

            fn requeues(&self, item: &T) -> usize {
                (**self).requeues(item)
            }
        }
    )*};
}

forward_to_content!(Box Arc);

#[derive(Debug)]
struct Failures<T>(Mutex<HashMap<T, usize>>);

impl<T: Clone + Eq + Hash> Failures<T> {
    fn new() -> Self {
        Self(Mutex::new(HashMap::new()))
    }

    /// Adds one failure and returns the previous number.
    fn count(&self, item: &T) -> usize {
        let mut failures = self.0.lock();
        match failures.get_mut(item) {
            Some(failures) => {
                let before = *failures;
                *failures = before.saturating_add(1);
                before
            }
            None => {
                failures.insert(item.clone(), 1);
                0
            }
        }
    }

    fn of(&self, item: &T) -> usize {
        self.0.lock().get(item).copied().unwrap_or(0)
    }

    fn forget(&self, item: &T) {
        let mut failures = self.0.lock();
        let forgotten = failures.remove_entry(item);
        failures.shrink_after_peak();
        drop(failures);
        drop(forgotten);
    }
}

/// Doubles the delay with each failure of an item, up to a maximum. client-go's
/// `TypedItemExponentialFailureRateLimiter`.
///
/// ```
/// use k8s_informer::workqueue::{ItemExponentialFailureRateLimiter, RateLimiter};
/// use std::time::Duration;
///
/// let delays = Duration::from_millis(1)..=Duration::from_millis(5);
/// let limiter = ItemExponentialFailureRateLimiter::new(delays);
/// let waits: Vec<u128> = (0..4).map(|_| limiter.when(&"a").as_millis()).collect();
/// assert_eq!(waits, [1, 2, 4, 5]);
/// assert_eq!(limiter.when(&"b").as_millis(), 1);
/// limiter.forget(&"a");
/// assert_eq!(limiter.when(&"a").as_millis(), 1);
/// ```
#[derive(Debug)]
pub struct ItemExponentialFailureRateLimiter<T> {
    failures: Failures<T>,
    base: Duration,
    most: Duration,
}

impl<T: Clone + Eq + Hash> ItemExponentialFailureRateLimiter<T> {
    /// Creates a limiter with delays from the first one to the maximum. If the first one exceeds the
    /// maximum, every delay is the maximum.
    pub fn new(delays: RangeInclusive<Duration>) -> Self {
        let (base, most) = delays.into_inner();
        Self {
            failures: Failures::new(),
            base,
            most,
        }
    }
}

impl<T: Item> RateLimiter<T> for ItemExponentialFailureRateLimiter<T> {
    /// Returns the delay. Computes it in floating point like client-go, so that both return the
    /// same number of nanoseconds. A delay that overflows Go's `Duration` becomes the maximum
    /// (Q16).
    fn when(&self, item: &T) -> Duration {
        let failures = self.failures.count(item);
        if self.base.is_zero() {
            return Duration::ZERO;
        }
        // 2^1024 exceeds the range of `f64`, so larger exponents make no difference.
        let factor = f64::powi(2.0, i32::try_from(failures).unwrap_or(i32::MAX).min(1024));
        match nanoseconds(self.base.as_nanos() as f64 * factor) {
            Some(wait) => wait.min(self.most),
            None => self.most,
        }
    }

    fn forget(&self, item: &T) {
        self.failures.forget(item);
    }

    fn requeues(&self, item: &T) -> usize {
        self.failures.of(item)
    }
}

/// Delays the first failures of an item briefly and later ones longer. client-go's
/// `TypedItemFastSlowRateLimiter`.
///
/// Use it if most failures are over soon, and the others only after a long time.
///
/// ```
/// use k8s_informer::workqueue::{ItemFastSlowRateLimiter, RateLimiter};
/// use std::time::Duration;
///
/// let limiter = ItemFastSlowRateLimiter::new(Duration::from_secs(10))
///     .fast(Duration::from_millis(5), 2);
/// let waits: Vec<u128> = (0..3).map(|_| limiter.when(&"a").as_millis()).collect();
/// assert_eq!(waits, [5, 5, 10_000]);
/// limiter.forget(&"a");
/// assert_eq!(limiter.when(&"a").as_millis(), 5);
/// ```
#[derive(Debug)]
pub struct ItemFastSlowRateLimiter<T> {
    failures: Failures<T>,
    fast: Duration,
    slow: Duration,
    max_fast: usize,
}

impl<T: Clone + Eq + Hash> ItemFastSlowRateLimiter<T> {
    /// Creates a limiter that delays every failure by `slow`, until you set how it delays the first
    /// ones.
    pub fn new(slow: Duration) -> Self {
        Self {
            failures: Failures::new(),
            fast: slow,
            slow,
            max_fast: 0,
        }
    }

    /// Delays the first `failures` of each item by `delay`.
    #[must_use]
    pub fn fast(mut self, delay: Duration, failures: usize) -> Self {
        self.fast = delay;
        self.max_fast = failures;
        self
    }
}

impl<T: Item> RateLimiter<T> for ItemFastSlowRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        if self.failures.count(item) < self.max_fast {
            self.fast
        } else {
            self.slow
        }
    }

    fn forget(&self, item: &T) {
        self.failures.forget(item);
    }

    fn requeues(&self, item: &T) -> usize {
        self.failures.of(item)
    }
}

/// Returns the longest delay of several limiters. client-go's `TypedMaxOfRateLimiter`.
///
/// Every limiter counts every failure. If one of them is a bucket, more items than its burst can
/// therefore become due at once: the bucket refills while other limiters delay items.
///
/// ```
/// use k8s_informer::workqueue::{ItemExponentialFailureRateLimiter, MaxOfRateLimiter, RateLimiter};
/// use std::time::Duration;
///
/// let second = Duration::from_secs(1);
/// let limiter = MaxOfRateLimiter::new(vec![
///     Box::new(ItemExponentialFailureRateLimiter::new(second..=9 * second)),
///     Box::new(ItemExponentialFailureRateLimiter::new(3 * second..=3 * second)),
/// ]);
/// let waits: Vec<u64> = (0..3).map(|_| limiter.when(&"a").as_secs()).collect();
/// assert_eq!((waits, limiter.requeues(&"a")), (vec![3, 3, 4], 3));
/// ```
pub struct MaxOfRateLimiter<T> {
    limiters: Vec<Box<dyn RateLimiter<T>>>,
}

impl<T> MaxOfRateLimiter<T> {
    /// Combines `limiters`. If there are none, no item is delayed.
    pub fn new(limiters: Vec<Box<dyn RateLimiter<T>>>) -> Self {
        Self { limiters }
    }
}

impl<T: 'static> RateLimiter<T> for MaxOfRateLimiter<T> {
    fn when(&self, item: &T) -> Duration {
        self.limiters
            .iter()
            .map(|limiter| limiter.when(item))
            .max()
            .unwrap_or_default()
    }

    fn forget(&self, item: &T) {
        self.limiters
            .iter()
            .for_each(|limiter| limiter.forget(item));
    }

    fn requeues(&self, item: &T) -> usize {
        self.limiters
            .iter()
            .map(|limiter| limiter.requeues(item))
            .max()
            .unwrap_or_default()
    }
}

debug_fields!(MaxOfRateLimiter<T>, this, limiters: this.limiters.len());

/// Limits the delay of another limiter to a maximum. client-go's `TypedWithMaxWaitRateLimiter`.
///
/// The other limiter counts each failure as usual. Use it around a
/// [`BucketRateLimiter`](super::BucketRateLimiter), whose delays grow without bound if items are
/// added faster than it refills. The items then exceed the rate of the bucket.
///
/// ```
/// use k8s_informer::workqueue::{ItemExponentialFailureRateLimiter, RateLimiter, WithMaxWaitRateLimiter};
/// use std::time::Duration;
///
/// let limiter = ItemExponentialFailureRateLimiter::new(Duration::from_secs(1)..=Duration::from_secs(1000));
/// let limiter = WithMaxWaitRateLimiter::new(limiter, Duration::from_secs(3));
/// let waits: Vec<u64> = (0..3).map(|_| limiter.when(&"a").as_secs()).collect();
/// assert_eq!((waits, limiter.requeues(&"a")), (vec![1, 2, 3], 3));
/// ```
#[derive(Clone, Debug)]
pub struct WithMaxWaitRateLimiter<L> {
    limiter: L,
    most: Duration,
}

impl<L> WithMaxWaitRateLimiter<L> {
    /// Wraps `limiter` so that no delay exceeds `most`.
    pub fn new(limiter: L, most: Duration) -> Self {
        Self { limiter, most }
    }
}

impl<T, L: RateLimiter<T>> RateLimiter<T> for WithMaxWaitRateLimiter<L> {
    fn when(&self, item: &T) -> Duration {
        self.limiter.when(item).min(self.most)
    }

    fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    fn requeues(&self, item: &T) -> usize {
        self.limiter.requeues(item)
    }
}

/// Returns the usual limiter for a controller. client-go's `DefaultTypedControllerRateLimiter`.
///
/// An item waits 5 ms after its first failure and twice as long after each further one, up to 1000
/// seconds. All items together are limited to 10 per second with a burst of 100.
///
/// ```
/// use k8s_informer::workqueue::{RateLimiter, default_controller_rate_limiter};
/// use std::time::Duration;
///
/// let limiter = default_controller_rate_limiter();
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(5));
/// assert_eq!(limiter.when(&"a"), Duration::from_millis(10));
/// assert_eq!(limiter.when(&"b"), Duration::from_millis(5));
/// ```
pub fn default_controller_rate_limiter<T: Item>() -> MaxOfRateLimiter<T> {
    default_controller_rate_limiter_with_clock(Arc::new(RealClock))
}

/// Like [`default_controller_rate_limiter`], but with the given clock.
pub fn default_controller_rate_limiter_with_clock<T: Item>(
    clock: Arc<dyn Clock>,
) -> MaxOfRateLimiter<T> {
    let delays = Duration::from_millis(5)..=Duration::from_secs(1000);
    MaxOfRateLimiter::new(vec![
        Box::new(ItemExponentialFailureRateLimiter::new(delays)),
        Box::new(BucketRateLimiter::new(RateLimit::per_second(10.0).burst(100)).with_clock(clock)),
    ])
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn limiter_frees_the_memory_of_forgotten_items() {
        let failures = Failures::new();
        (0..100_000).for_each(|item| assert_eq!(failures.count(&item), 0));
        (10..100_000).for_each(|item| failures.forget(&item));
        assert!(failures.0.lock().capacity() < 10_000);
        assert_eq!((failures.of(&9), failures.of(&10)), (1, 0));
        (0..10).for_each(|item| failures.forget(&item));
        assert_eq!(failures.0.lock().capacity(), 0);
    }
}

use std::fmt;
use std::io;
use std::time::Duration;

use super::any_work_queue::AnyWorkQueue;
use super::any_work_queue::sealed::Sealed;
use super::core::Core;
use super::{DelayingQueue, Item, RateLimiter, WorkQueue};
use crate::base::derive::unwind_safe;

/// A [`DelayingQueue`] that retries failed items with the delays of a [`RateLimiter`]. client-go's
/// `TypedRateLimitingInterface`.
///
/// Call [`forget`](Self::forget) when an item succeeds or is not retried anymore. Otherwise the
/// limiter remembers the item forever.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, RateLimitingQueue, default_controller_rate_limiter};
///
/// let queue = RateLimitingQueue::new(default_controller_rate_limiter())?;
/// queue.add("a");
/// for attempt in 0.. {
///     let item = queue.take().unwrap();
///     if attempt < 2 {
///         queue.add_rate_limited(*item); // the item failed
///         assert_eq!(queue.requeues(&item), attempt + 1);
///     } else {
///         queue.forget(&item);
///         break;
///     }
/// }
/// assert_eq!(queue.requeues(&"a"), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TypedRateLimitingInterface")]
pub struct RateLimitingQueue<T: Item> {
    pub(super) queue: DelayingQueue<T>,
    /// Called without any lock.
    pub(super) limiter: Box<dyn RateLimiter<T>>,
}

impl<T: Item> RateLimitingQueue<T> {
    /// Creates a queue with default options. For a name, metrics or a clock, use
    /// [`WorkQueueBuilder::build_rate_limiting`](super::WorkQueueBuilder::build_rate_limiting).
    /// client-go's `NewTypedRateLimitingQueue`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn new(limiter: impl RateLimiter<T>) -> io::Result<Self> {
        WorkQueue::builder().build_rate_limiting(limiter)
    }

    /// Adds the item after the delay that the limiter returns for it. Does nothing once the queue has
    /// stopped.
    ///
    /// As in client-go, the limiter counts each call, also for an item that already waits. With a
    /// [`BucketRateLimiter`](super::BucketRateLimiter), each call takes a token. An item that is
    /// added faster than the bucket refills therefore waits longer and longer. To bound the wait,
    /// wrap the limiter in a [`WithMaxWaitRateLimiter`](super::WithMaxWaitRateLimiter).
    pub fn add_rate_limited(&self, item: T) {
        let delay = self.limiter.when(&item);
        self.queue.add_after(item, delay);
    }

    /// Resets the limiter for an item that succeeded or is not retried anymore. The item stays in
    /// the queue.
    pub fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    /// Returns the number of failures of the item since it was last forgotten, as counted by the
    /// limiter.
    #[doc(alias = "NumRequeues")]
    pub fn requeues(&self, item: &T) -> usize {
        self.limiter.requeues(item)
    }

    /// Adds the item after `delay`, as [`DelayingQueue::add_after`] does. The limiter does not count
    /// it.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.queue.add_after(item, delay);
    }
}

impl<T: Item> Sealed<T> for RateLimitingQueue<T> {
    fn core(&self) -> &Core<T> {
        self.queue.core()
    }
}

impl<T: Item> AnyWorkQueue<T> for RateLimitingQueue<T> {}

unwind_safe!(RateLimitingQueue<T: Item>);

impl<T: Item> fmt::Debug for RateLimitingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core().debug("RateLimitingQueue", f)
    }
}

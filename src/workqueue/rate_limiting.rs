use std::fmt;
use std::hash::Hash;
use std::io;
use std::ops::Deref;

use super::{DelayingQueue, RateLimiter, WorkQueue};

/// A [`DelayingQueue`] with a [`RateLimiter`] that says how long an item has to wait: what has failed comes
/// again, later and later. client-go's `TypedRateLimitingInterface`.
///
/// A worker that has succeeded, or gives up, [forgets](Self::forget) the item: else the limiter remembers it
/// for ever.
///
/// ```
/// use k8s_informer::workqueue::{RateLimitingQueue, default_controller_rate_limiter};
///
/// let queue = RateLimitingQueue::new(default_controller_rate_limiter())?;
/// queue.add("a");
/// for attempt in 0.. {
///     let item = queue.take().unwrap();
///     if attempt < 2 {
///         queue.add_rate_limited(*item); // it failed
///         assert_eq!(queue.num_requeues(&item), attempt + 1);
///     } else {
///         queue.forget(&item);
///         break;
///     }
/// }
/// assert_eq!(queue.num_requeues(&"a"), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TypedRateLimitingInterface")]
pub struct RateLimitingQueue<T: Clone + Eq + Hash + Send + 'static> {
    pub(super) queue: DelayingQueue<T>,
    /// Called without any lock.
    pub(super) limiter: Box<dyn RateLimiter<T>>,
}

impl<T: Clone + Eq + Hash + Send + 'static> RateLimitingQueue<T> {
    /// A queue without options. client-go's `NewTypedRateLimitingQueue`.
    ///
    /// # Errors
    ///
    /// If the system has no thread.
    pub fn new(limiter: impl RateLimiter<T>) -> io::Result<Self> {
        WorkQueue::builder().build_rate_limiting(limiter)
    }

    /// Adds the item when the limiter says that it may come (Q15).
    pub fn add_rate_limited(&self, item: T) {
        let delay = self.limiter.when(&item);
        self.queue.add_after(item, delay);
    }

    /// Lets the limiter forget the item: it has succeeded, or is given up. It does not leave the queue (Q15).
    pub fn forget(&self, item: &T) {
        self.limiter.forget(item);
    }

    /// How often the item has been limited since it was forgotten, as far as the limiter counts.
    pub fn num_requeues(&self, item: &T) -> usize {
        self.limiter.num_requeues(item)
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> Deref for RateLimitingQueue<T> {
    type Target = DelayingQueue<T>;

    fn deref(&self) -> &DelayingQueue<T> {
        &self.queue
    }
}

impl<T: Clone + Eq + Hash + Send + 'static> fmt::Debug for RateLimitingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitingQueue")
            .field(&*self.queue)
            .finish()
    }
}

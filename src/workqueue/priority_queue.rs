use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use super::any_work_queue::AnyWorkQueue;
use super::any_work_queue::sealed::Sealed;
use super::core::Core;
use super::{Item, RateLimiter, RateLimitingQueue, WorkQueue};
use crate::base::derive::unwind_safe;

/// A [`WorkQueue`] with priorities, delays and rate limits. It corresponds to the `PriorityQueue`
/// of controller-runtime.
///
/// - Items with a higher priority leave the queue first. Items with the same priority leave it in
///   the order in which they took their places, usually when they became ready.
/// - An item is in the queue once, also if it is delayed. Of several adds, the highest priority and
///   the earliest time count. An item that is ready stays ready. A delayed item that is added without
///   a delay becomes ready, at the place of its first add. In a
///   [`DelayingQueue`](super::DelayingQueue), an item can be both delayed and ready.
/// - An item added while it is being processed is processed once more afterwards, with the priority
///   of these adds.
/// - [`len`](AnyWorkQueue::len) also counts the items that were added again while being processed.
/// - [`add`](AnyWorkQueue::add) adds an item with the priority 0.
/// - By default, an item waits as long as items with a higher priority arrive. To prevent this, set
///   a [limit](super::WorkQueueBuilder::starvation_limit).
///
/// Once stopped, the queue still returns the ready items, as a `WorkQueue` does. That of
/// controller-runtime drops them.
///
/// Each ready or delayed item takes the memory of two copies. The queue starts one thread, as a
/// [`DelayingQueue`](super::DelayingQueue) does.
///
/// ```
/// use k8s_informer::workqueue::{AddOptions, AnyWorkQueue, WorkQueue, default_controller_rate_limiter};
/// use k8s_informer_testing::FakeClock;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the system clock by default
/// let queue = WorkQueue::builder()
///     .clock(Arc::new(clock.clone()))
///     .build_priority(default_controller_rate_limiter())?;
/// let low = AddOptions::new().priority(-100);
/// queue.add_with("old", low);
/// queue.add_with("later", low.after(Duration::from_secs(5)));
/// queue.add("new");
/// assert_eq!((queue.get(), queue.get()), (Some("new"), Some("old")));
///
/// queue.add("later"); // It is neither delayed nor low any more.
/// assert_eq!(queue.get_with_priority(), Some(("later", 0)));
/// clock.advance(Duration::from_secs(5));
/// assert!(queue.is_empty());
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PriorityQueue<T: Item> {
    pub(super) queue: RateLimitingQueue<T>,
}

/// How [`PriorityQueue::add_with`] adds an item. controller-runtime's `AddOpts`.
///
/// ```
/// use k8s_informer::workqueue::{AddOptions, PriorityQueue, default_controller_rate_limiter};
///
/// let queue = PriorityQueue::new(default_controller_rate_limiter())?;
/// queue.add_with("a", AddOptions::new().priority(-100).rate_limited(true));
/// assert_eq!(queue.requeues(&"a"), 1);
/// assert_eq!(queue.get_with_priority(), Some(("a", -100))); // Blocks for the delay of 5 ms.
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct AddOptions {
    priority: i32,
    after: Duration,
    is_rate_limited: bool,
}

impl AddOptions {
    /// Returns options with the priority 0 and without a delay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority. Higher ones come first.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Adds the item after this delay.
    pub fn after(mut self, delay: Duration) -> Self {
        self.after = delay;
        self
    }

    /// Counts a failure of the item, and adds it after the delay that the limiter returns. If
    /// [`after`](Self::after) is set as well, the shorter delay counts.
    pub fn rate_limited(mut self, rate_limited: bool) -> Self {
        self.is_rate_limited = rate_limited;
        self
    }
}

impl<T: Item> PriorityQueue<T> {
    /// Creates a queue with default options. controller-runtime's `New`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn new(limiter: impl RateLimiter<T>) -> io::Result<Self> {
        WorkQueue::builder().build_priority(limiter)
    }

    /// Adds an item with options. controller-runtime's `AddWithOpts`.
    ///
    /// If the queue is stopped, it adds nothing; with
    /// [`rate_limited`](AddOptions::rate_limited), the failure still counts. As in
    /// controller-runtime, it also counts if the item already waits; see
    /// [`add_rate_limited`](super::RateLimitingQueue::add_rate_limited) for the effect on a bucket.
    pub fn add_with(&self, item: T, options: AddOptions) {
        let mut delay = options.after;
        if options.is_rate_limited {
            let limit = self.queue.limiter.when(&item);
            if delay.is_zero() || limit < delay {
                delay = limit;
            }
        }
        if delay.is_zero() {
            self.core().shared.add(item, options.priority);
        } else {
            self.core().shared.add_after(item, options.priority, delay);
        }
    }

    /// Like [`get`](AnyWorkQueue::get), but also returns the priority of the item.
    /// [`WorkItem::priority`](super::WorkItem::priority) is the counterpart for
    /// [`take`](AnyWorkQueue::take).
    pub fn get_with_priority(&self) -> Option<(T, i32)> {
        let taken = self.core().shared.get(|| false)?;
        Some((taken.item, taken.priority))
    }

    /// Adds the item with the priority 0 after `delay`.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.queue.add_after(item, delay);
    }

    /// Adds the item with the priority 0 after the delay that the limiter returns for it, as
    /// [`RateLimitingQueue::add_rate_limited`] does.
    pub fn add_rate_limited(&self, item: T) {
        self.queue.add_rate_limited(item);
    }

    /// Resets the limiter for an item, as [`RateLimitingQueue::forget`] does.
    pub fn forget(&self, item: &T) {
        self.queue.forget(item);
    }

    /// Returns the number of failures of the item since it was last forgotten, as counted by the
    /// limiter.
    #[doc(alias = "NumRequeues")]
    pub fn requeues(&self, item: &T) -> usize {
        self.queue.requeues(item)
    }

    /// Returns when the first of the delayed items that match is due. The closure runs under the
    /// lock.
    #[doc(hidden)]
    pub fn next_due(&self, matches: impl Fn(&T) -> bool) -> Option<Instant> {
        self.core()
            .shared
            .change(|state, _, _| state.delayed.next_due_of(matches))
    }
}

impl<T: Item> Sealed<T> for PriorityQueue<T> {
    fn core(&self) -> &Core<T> {
        self.queue.core()
    }
}

impl<T: Item> AnyWorkQueue<T> for PriorityQueue<T> {}

unwind_safe!(PriorityQueue<T: Item>);

impl<T: Item> fmt::Debug for PriorityQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core().debug("PriorityQueue", f)
    }
}

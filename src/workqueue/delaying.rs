use std::fmt;
use std::io;
use std::time::Duration;

use super::any_work_queue::AnyWorkQueue;
use super::any_work_queue::sealed::Sealed;
use super::core::Core;
use super::{Item, WorkQueue};
use crate::base::derive::unwind_safe;

/// A [`WorkQueue`] that can also add items after a delay. client-go's `TypedDelayingInterface`.
///
/// - An item that is delayed twice is added once, at the earlier time.
/// - Delays are independent of [`add`](AnyWorkQueue::add): if you add a delayed item, it is processed
///   now and again after its delay.
/// - Delaying never blocks. The number of delayed items is not limited. Each one takes the memory
///   of two copies.
/// - A stopped queue drops all delayed items.
///
/// **Threads.** The queue starts one thread. It sleeps until the next item is due, or until an item
/// is delayed. The thread ends when the queue is stopped or dropped.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};
/// use k8s_informer_testing::FakeClock;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the system clock by default
/// let queue = WorkQueue::builder().clock(Arc::new(clock.clone())).build_delaying()?;
/// queue.add_after("a", Duration::from_secs(5));
/// assert_eq!(queue.len(), 0);
/// clock.advance(Duration::from_secs(5));
/// assert_eq!(queue.take().as_deref(), Some(&"a"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TypedDelayingInterface")]
pub struct DelayingQueue<T: Item> {
    pub(super) queue: WorkQueue<T>,
}

impl<T: Item> DelayingQueue<T> {
    /// Creates a queue with default options. client-go's `NewTypedDelayingQueue`.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn new() -> io::Result<Self> {
        WorkQueue::builder().build_delaying()
    }

    /// Adds the item after `delay`, or immediately if `delay` is zero. Does nothing if the queue is
    /// stopped.
    ///
    /// As in client-go, an item that is delayed and also added without a delay is processed twice:
    /// now and after its delay. In a [`PriorityQueue`](super::PriorityQueue), it is processed once.
    pub fn add_after(&self, item: T, delay: Duration) {
        self.queue.core.shared.add_after(item, 0, delay);
    }
}

impl<T: Item> Sealed<T> for DelayingQueue<T> {
    fn core(&self) -> &Core<T> {
        &self.queue.core
    }
}

impl<T: Item> AnyWorkQueue<T> for DelayingQueue<T> {}

unwind_safe!(DelayingQueue<T: Item>);

impl<T: Item> fmt::Debug for DelayingQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core().debug("DelayingQueue", f)
    }
}

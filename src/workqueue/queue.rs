use std::fmt;

use super::any_work_queue::AnyWorkQueue;
use super::any_work_queue::sealed::Sealed;
use super::core::Core;
use super::item::Item;
use crate::base::derive::unwind_safe;

/// A queue of items to process. It corresponds to client-go's `Typed`; the methods that it shares with the
/// other queues are those of [`AnyWorkQueue`].
///
/// - The queue holds an item at most once, however often you add it. It never gives an item to two
///   workers at a time. An item added while it is being processed is processed once more
///   afterwards.
/// - Items leave the queue in order of arrival, or in a custom [`Order`](super::Order).
/// - A worker that [takes](AnyWorkQueue::take) or [gets](AnyWorkQueue::get) an item must report when it has
///   finished. A [`WorkItem`](super::WorkItem) reports this when it is dropped, also during a panic.
/// - After [`stop`](AnyWorkQueue::stop), the queue accepts no more items, but still returns the
///   waiting ones.
///
/// **Threads.** Any number of threads may add and take items. Share the queue by reference or in an
/// `Arc`. One lock guards it. The `Hash`, `Eq` and `Clone` implementations of items and the
/// [`Order`](super::Order) run under this lock, so they must not use the queue. Items are dropped
/// without the lock. A queue starts a thread if it has [metrics](super::WorkQueueMetrics) or
/// supports [delays](super::DelayingQueue). Dropping the queue stops it and joins this thread.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};
///
/// let queue = WorkQueue::new();
/// for item in ["a", "b", "a"] {
///     queue.add(item);
/// }
/// assert_eq!(queue.len(), 2);
/// queue.stop();
/// let mut seen = Vec::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| {
///         while let Some(item) = queue.take() {
///             seen.push(*item);
///         }
///     });
/// });
/// assert_eq!(seen, ["a", "b"]);
/// ```
// The builder creates all queues, so the constructors are in `builder.rs`.
#[doc(alias = "Typed")]
pub struct WorkQueue<T: Item> {
    pub(super) core: Core<T>,
}

impl<T: Item> Sealed<T> for WorkQueue<T> {
    fn core(&self) -> &Core<T> {
        &self.core
    }
}

impl<T: Item> AnyWorkQueue<T> for WorkQueue<T> {}

impl<T: Item> Default for WorkQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

unwind_safe!(WorkQueue<T: Item>);

impl<T: Item> fmt::Debug for WorkQueue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.debug("WorkQueue", f)
    }
}

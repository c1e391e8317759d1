use std::collections::VecDeque;

use crate::base::shrink::Shrink;

/// The order in which a [`WorkQueue`](super::WorkQueue) returns its waiting items. It corresponds
/// to client-go's `Queue`, without `Len`: the work queue counts its items.
///
/// An order holds each waiting item once. Its methods run under the lock of the work queue, on any
/// thread that uses the queue. They must be fast and must not use the queue. A panic propagates to
/// the call on the queue that caused it; if [`push`](Self::push) panics, its item is lost.
///
/// ```
/// use k8s_informer::workqueue::{AnyWorkQueue, Order, WorkQueue};
/// use std::collections::BTreeSet;
///
/// /// Returns the smallest item first.
/// #[derive(Default)]
/// struct BySize(BTreeSet<u32>);
///
/// impl Order<u32> for BySize {
///     fn push(&mut self, item: u32) {
///         self.0.insert(item);
///     }
///     fn pop(&mut self) -> Option<u32> {
///         self.0.pop_first()
///     }
/// }
///
/// let queue = WorkQueue::builder().order(BySize::default()).build()?;
/// for item in [3, 1, 2] {
///     queue.add(item);
/// }
/// assert_eq!([queue.get(), queue.get(), queue.get()], [Some(1), Some(2), Some(3)]);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Order<T>: Send + 'static {
    /// Called when a waiting item is added again, which may make it more urgent. Does nothing by
    /// default.
    fn touch(&mut self, item: &T) {
        let _ = item;
    }

    /// Adds an item.
    fn push(&mut self, item: T);

    /// Removes and returns the next item, or `None` if the order is empty. The queue skips an item
    /// that was not pushed or was already returned.
    fn pop(&mut self) -> Option<T>;
}

/// First in, first out. This is the default order, and corresponds to client-go's `DefaultQueue`.
///
/// An item that is added again while it waits keeps its position.
#[derive(Clone, Debug)]
pub(super) struct ArrivalOrder<T>(VecDeque<T>);

impl<T> ArrivalOrder<T> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }
}

impl<T: Send + 'static> Order<T> for ArrivalOrder<T> {
    fn push(&mut self, item: T) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        let item = self.0.pop_front();
        self.0.shrink_after_peak();
        item
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_with_few_items_left_frees_its_memory() {
        let mut order = ArrivalOrder::new();
        (0..100_000).for_each(|item| order.push(item));
        assert!((0..99_990).all(|item| order.pop() == Some(item)));
        assert!(order.0.capacity() < 10_000, "{}", order.0.capacity());
    }
}

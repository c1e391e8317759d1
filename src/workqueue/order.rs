use std::collections::VecDeque;

use crate::shrink::Shrink;

/// In which order a [`WorkQueue`](super::WorkQueue) hands out what waits in it. client-go's `Queue`, whose
/// `Len` is not needed: the work queue counts for itself.
///
/// Each item that waits is in it once. It is called under the lock of the work queue, by whatever thread uses
/// that: it must be quick, and must not use that queue. A panic is that of the call that led to it; one in
/// [`push`](Self::push) costs the item.
///
/// ```
/// use k8s_informer::workqueue::{Order, WorkQueue};
/// use std::collections::BTreeSet;
///
/// /// The smallest first.
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
    /// An item that waits has been added again: it may be more urgent now (Q9). Does nothing by default.
    fn touch(&mut self, item: &T) {
        let _ = item;
    }

    /// Takes an item in.
    fn push(&mut self, item: T);

    /// Gives the next one out; `None` only if there is none. One that was not pushed, or that has been given
    /// out already, is passed over.
    fn pop(&mut self) -> Option<T>;
}

/// First come, first served: the default. client-go's `DefaultQueue`.
///
/// An item that is added again while it waits keeps its place.
#[derive(Clone, Debug)]
pub struct ArrivalOrder<T>(VecDeque<T>);

impl<T> ArrivalOrder<T> {
    /// Without any item.
    pub fn new() -> Self {
        Self(VecDeque::new())
    }
}

impl<T> Default for ArrivalOrder<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Send + 'static> Order<T> for ArrivalOrder<T> {
    fn push(&mut self, item: T) {
        self.0.push_back(item);
    }

    fn pop(&mut self) -> Option<T> {
        let item = self.0.pop_front();
        self.0.shrink_when_empty();
        item
    }
}

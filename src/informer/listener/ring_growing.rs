use std::collections::VecDeque;

use crate::base::shrink::Shrink;

/// A growing ring buffer for the notifications of a slow handler. client-go's `buffer.RingGrowing`.
///
/// The capacity starts at an initial size and doubles when the ring is full. Unlike client-go's,
/// the ring also shrinks: the capacity halves, down to the initial size, when at most a quarter of
/// it is in use.
///
/// ```
/// use k8s_informer::__private::RingGrowing;
///
/// let mut ring = RingGrowing::new(2);
/// for n in 0..5 {
///     ring.write(n);
/// }
/// assert_eq!((ring.read(), ring.len(), ring.capacity()), (Some(0), 4, 8));
/// while ring.read().is_some() {}
/// assert_eq!(ring.capacity(), 2);
/// ```
#[derive(Debug)]
pub struct RingGrowing<T> {
    items: VecDeque<T>,
    initial: usize,
}

impl<T> RingGrowing<T> {
    /// Creates a ring with this initial capacity, at least 1.
    pub fn new(initial: usize) -> Self {
        let initial = initial.max(1);
        Self {
            items: VecDeque::with_capacity(initial),
            initial,
        }
    }

    /// Appends an item. Grows the ring if it is full.
    pub fn write(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact(self.items.capacity());
        }
        self.items.push_back(item);
    }

    /// Removes and returns the oldest item.
    pub fn read(&mut self) -> Option<T> {
        let item = self.items.pop_front();
        self.items.shrink_when_sparse(self.initial);
        item
    }

    /// Returns the number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether the ring is empty.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Returns the current capacity.
    pub fn capacity(&self) -> usize {
        self.items.capacity()
    }
}

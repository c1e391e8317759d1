use std::collections::VecDeque;

use crate::shrink::Shrink;

/// A ring buffer that grows when it is full: what waits for a slow handler. client-go's `buffer.RingGrowing`.
///
/// It doubles from its initial size on, and unlike client-go's gives the memory back: it halves, down to its
/// initial size, when no more than a quarter of it is full (SP7).
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
    /// With room for this many; at least for one.
    pub fn new(initial: usize) -> Self {
        let initial = initial.max(1);
        Self {
            items: VecDeque::with_capacity(initial),
            initial,
        }
    }

    /// Puts one in at the end, growing if there is no room.
    pub fn write(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact(self.items.capacity());
        }
        self.items.push_back(item);
    }

    /// Takes out the one that has waited longest.
    pub fn read(&mut self) -> Option<T> {
        let item = self.items.pop_front();
        self.items.shrink_when_sparse(self.initial);
        item
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// For how many there is room.
    pub fn capacity(&self) -> usize {
        self.items.capacity()
    }
}

//! Frees the memory of collections that have become empty or sparse.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

/// The capacity, in items, up to which a collection keeps its memory.
pub(crate) const KEEP: usize = 1024;

/// A collection that can shrink after a peak.
pub(crate) trait Shrink: Default {
    /// Returns the number of items and the capacity.
    fn len_and_capacity(&self) -> (usize, usize);

    /// Shrinks the capacity, but not below `min_capacity`.
    fn shrink_capacity(&mut self, min_capacity: usize);

    /// Frees an empty collection whose capacity is above [`KEEP`]. A collection that still has
    /// items is not reallocated.
    fn shrink_when_empty(&mut self) {
        if matches!(self.len_and_capacity(), (0, capacity) if capacity > KEEP) {
            *self = Self::default();
        }
    }

    /// Halves the capacity if at most a quarter of it is in use. The threshold is not one half,
    /// because the next item could then make the collection grow again.
    fn shrink_when_sparse(&mut self, min_capacity: usize) {
        let (len, capacity) = self.len_and_capacity();
        if capacity > min_capacity && len <= capacity / 4 {
            self.shrink_capacity((capacity / 2).max(min_capacity));
        }
    }
}

impl<T> Shrink for Vec<T> {
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink_capacity(&mut self, min_capacity: usize) {
        self.shrink_to(min_capacity);
    }
}

impl<T> Shrink for VecDeque<T> {
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink_capacity(&mut self, min_capacity: usize) {
        self.shrink_to(min_capacity);
    }
}

impl<K: Eq + Hash, V, S: BuildHasher + Default> Shrink for HashMap<K, V, S> {
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink_capacity(&mut self, min_capacity: usize) {
        self.shrink_to(min_capacity);
    }
}

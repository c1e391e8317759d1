//! Gives the memory of emptied collections back.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, Hash};

/// The capacity, in items, that a collection keeps.
pub(crate) const KEEP: usize = 1024;

/// A collection that was large once and does not stay large.
pub(crate) trait Shrink: Default {
    /// The number of items, and the number that fits.
    fn len_and_capacity(&self) -> (usize, usize);

    /// Shrinks to a capacity that is at least this large.
    fn shrink_capacity(&mut self, least: usize);

    /// Frees an empty collection that was larger than [`KEEP`]. Costs nothing while it drains.
    fn shrink_when_empty(&mut self) {
        if matches!(self.len_and_capacity(), (0, capacity) if capacity > KEEP) {
            *self = Self::default();
        }
    }

    /// Halves a collection of which at most a quarter is full. At a half it would grow again with the next item.
    fn shrink_when_sparse(&mut self, least: usize) {
        let (len, capacity) = self.len_and_capacity();
        if capacity > least && len <= capacity / 4 {
            self.shrink_capacity((capacity / 2).max(least));
        }
    }
}

impl<T> Shrink for Vec<T> {
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink_capacity(&mut self, least: usize) {
        self.shrink_to(least);
    }
}

impl<T> Shrink for VecDeque<T> {
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink_capacity(&mut self, least: usize) {
        self.shrink_to(least);
    }
}

impl<K: Eq + Hash, V, S: BuildHasher + Default> Shrink for HashMap<K, V, S> {
    fn len_and_capacity(&self) -> (usize, usize) {
        (self.len(), self.capacity())
    }

    fn shrink_capacity(&mut self, least: usize) {
        self.shrink_to(least);
    }
}

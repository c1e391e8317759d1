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

    /// Frees an empty collection, and halves a sparse one. Call it after removals: like growing, it
    /// costs less than they do.
    fn shrink_after_peak(&mut self) {
        self.shrink_when_empty();
        // A capacity above `KEEP` remains, so that the memory is freed once the collection is empty.
        self.shrink_when_sparse(2 * KEEP);
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Fills a collection and empties it one by one. Checks that the capacity follows.
    fn check<C: Shrink>(mut push: impl FnMut(&mut C, usize), mut pop: impl FnMut(&mut C) -> bool) {
        let mut collection = C::default();
        (0..100_000).for_each(|number| push(&mut collection, number));
        let mut changes = 0;
        for left in (0..100_000).rev() {
            assert!(pop(&mut collection));
            let (len, before) = collection.len_and_capacity();
            collection.shrink_after_peak();
            let (_, capacity) = collection.len_and_capacity();
            changes += usize::from(capacity != before);
            assert_eq!(len, left);
            assert!(
                capacity <= (8 * left).max(8 * KEEP),
                "{capacity} for {left}"
            );
        }
        assert_eq!(collection.len_and_capacity().1, 0);
        assert!(changes < 10, "{changes} reallocations");
    }

    #[test]
    fn capacity_follows_the_number_of_items() {
        check::<Vec<usize>>(Vec::push, |vec| vec.pop().is_some());
        check::<VecDeque<usize>>(VecDeque::push_back, |queue| queue.pop_front().is_some());
        let mut next = 0;
        check::<HashMap<usize, usize>>(
            |map, number| assert!(map.insert(number, number).is_none()),
            |map| {
                next += 1;
                map.remove(&(next - 1)).is_some()
            },
        );
    }
}

use std::collections::VecDeque;

use crate::base::shrink::Shrink;

/// A growing ring buffer for the notifications of a slow handler. client-go's `buffer.RingGrowing`.
///
/// The capacity starts at an initial size and doubles when the ring is full. Unlike client-go's,
/// the ring also shrinks: the capacity halves, down to the initial size, when at most a quarter of
/// it is in use.
#[derive(Debug)]
pub(super) struct RingGrowing<T> {
    items: VecDeque<T>,
    initial: usize,
}

impl<T> RingGrowing<T> {
    /// Creates a ring with this initial capacity, at least 1.
    pub(super) fn new(initial: usize) -> Self {
        let initial = initial.max(1);
        Self {
            items: VecDeque::with_capacity(initial),
            initial,
        }
    }

    /// Appends an item. Grows the ring if it is full.
    pub(super) fn write(&mut self, item: T) {
        if self.items.len() == self.items.capacity() {
            self.items.reserve_exact(self.items.capacity());
        }
        self.items.push_back(item);
    }

    /// Removes and returns the oldest item.
    pub(super) fn read(&mut self) -> Option<T> {
        let item = self.items.pop_front();
        self.items.shrink_when_sparse(self.initial);
        item
    }

    /// Returns the number of items.
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn sp7_ring_doubles_when_full_and_halves_at_a_quarter() {
        let mut ring = RingGrowing::new(4);
        for round in 0..3 {
            for n in 0..100 {
                ring.write(n);
            }
            assert_eq!(
                (ring.len(), ring.items.capacity(), round),
                (100, 128, round)
            );
            for n in 0..100 {
                assert_eq!(ring.read(), Some(n));
                let capacity = ring.items.capacity();
                assert!(
                    capacity == 4 || ring.len() > capacity / 4,
                    "{} of {capacity}",
                    ring.len()
                );
            }
            assert_eq!(
                (ring.read(), ring.items.capacity(), ring.items.is_empty()),
                (None, 4, true)
            );
        }
        // When each write is followed by a read, the capacity stays constant.
        for n in 0..17 {
            ring.write(n);
        }
        let capacities: Vec<_> = (0..100)
            .map(|n| {
                ring.write(n);
                ring.read();
                ring.items.capacity()
            })
            .collect();
        assert_eq!(capacities, [32; 100]);
    }

    #[test]
    fn sp7_burst_memory_is_freed_while_events_still_wait() {
        let mut ring = RingGrowing::new(1024);
        for n in 0..1_000_000 {
            ring.write(n);
        }
        while ring.len() > 10 {
            ring.read();
        }
        assert_eq!((ring.items.capacity(), ring.read()), (1024, Some(999_990)));
    }
}

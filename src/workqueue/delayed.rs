use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Instant;

use crate::shrink::Shrink;

/// The due time of an item, and a sequence number for items that are due at the same time.
type Due = (Instant, u64);

/// Delayed items, each at most once.
#[derive(Debug)]
pub(super) struct Delayed<T> {
    by_time: BTreeMap<Due, T>,
    by_item: HashMap<T, Due>,
    next: u64,
}

impl<T: Clone + Eq + Hash> Delayed<T> {
    pub(super) fn new() -> Self {
        Self {
            by_time: BTreeMap::new(),
            by_item: HashMap::new(),
            next: 0,
        }
    }

    /// Inserts an item. If it is already delayed, the earlier due time counts (Q11), and the item
    /// is returned, so that the caller drops it without the lock.
    #[must_use]
    pub(super) fn insert(&mut self, item: T, at: Instant) -> Option<T> {
        let due = (at, self.next);
        match self.by_item.get_mut(&item) {
            Some(known) => {
                if at < known.0 {
                    if let Some(waiting) = self.by_time.remove(known) {
                        self.by_time.insert(due, waiting);
                    }
                    *known = due;
                }
                self.next += 1;
                Some(item)
            }
            None => {
                let copy = item.clone();
                self.by_item.insert(item, due);
                self.by_time.insert(due, copy);
                self.next += 1;
                None
            }
        }
    }

    /// Removes the next item that is due, and returns both of its copies.
    pub(super) fn pop(&mut self, now: Instant) -> Option<(T, Option<T>)> {
        let first = self
            .by_time
            .first_entry()
            .filter(|first| first.key().0 <= now)?;
        let item = first.remove();
        let copy = self.by_item.remove_entry(&item).map(|(copy, _)| copy);
        self.by_item.shrink_when_empty();
        Some((item, copy))
    }

    /// Returns the earliest due time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|(due, _)| due.0)
    }

    /// Returns the earliest due time of the items that match.
    #[cfg(all(feature = "client", feature = "testing"))]
    pub(super) fn next_due_of(&self, matches: impl Fn(&T) -> bool) -> Option<Instant> {
        let mut all = self.by_time.iter();
        all.find(|(_, item)| matches(item)).map(|(due, _)| due.0)
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }
}

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;
use std::time::Instant;

use super::priority::Rank;
use crate::base::shrink::Shrink;

/// The due time of an item, and its rank among the items that are due at the same time.
pub(super) type Due = (Instant, Rank);

/// Delayed items, each at most once.
#[derive(Debug)]
pub(super) struct Delayed<T> {
    by_time: BTreeMap<Due, T>,
    by_item: HashMap<T, Due>,
}

/// An item that is not delayed any more, and its other copy.
pub(super) struct Removed<T> {
    pub(super) rank: Rank,
    pub(super) item: T,
    pub(super) copy: Option<T>,
}

impl<T: Clone + Eq + Hash> Delayed<T> {
    pub(super) fn new() -> Self {
        Self {
            by_time: BTreeMap::new(),
            by_item: HashMap::new(),
        }
    }

    /// Inserts an item, or changes it if it is already delayed. `due` receives the present due
    /// time. Returns the item if it is not needed, so that the caller drops it without the lock.
    #[must_use]
    pub(super) fn insert(&mut self, item: T, due: impl FnOnce(Option<Due>) -> Due) -> Option<T> {
        match self.by_item.get_mut(&item) {
            Some(known) => {
                let due = due(Some(*known));
                if let Some(waiting) = self.by_time.remove(known) {
                    self.by_time.insert(due, waiting);
                }
                *known = due;
                Some(item)
            }
            None => {
                let (copy, due) = (item.clone(), due(None));
                self.by_item.insert(item, due);
                self.by_time.insert(due, copy);
                None
            }
        }
    }

    /// Removes an item.
    pub(super) fn remove(&mut self, item: &T) -> Option<Removed<T>> {
        let (item, due) = self.by_item.remove_entry(item)?;
        self.by_item.shrink_after_peak();
        Some(Removed {
            rank: due.1,
            item,
            copy: self.by_time.remove(&due),
        })
    }

    /// Removes the next item that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Removed<T>> {
        let first = self
            .by_time
            .first_entry()
            .filter(|first| first.key().0 <= now)?;
        let (due, item) = first.remove_entry();
        let copy = self.by_item.remove_entry(&item).map(|(copy, _)| copy);
        self.by_item.shrink_after_peak();
        Some(Removed {
            rank: due.1,
            item,
            copy,
        })
    }

    /// Returns the earliest due time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.by_time.first_key_value().map(|(due, _)| due.0)
    }

    /// Returns the earliest due time of the items that match.
    pub(super) fn next_due_of(&self, matches: impl Fn(&T) -> bool) -> Option<Instant> {
        let mut all = self.by_time.iter();
        all.find(|(_, item)| matches(item)).map(|(due, _)| due.0)
    }

    pub(super) fn len(&self) -> usize {
        self.by_time.len()
    }

    #[cfg(all(test, not(shuttle)))]
    pub(super) fn capacity(&self) -> usize {
        self.by_item.capacity()
    }
}

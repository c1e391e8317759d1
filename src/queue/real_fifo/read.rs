//! Read access to the queue, for diagnosis.

use std::collections::HashSet;
use std::sync::Arc;

use super::RealFifo;
use crate::object::Key;
use crate::queue::Deltas;

impl<T> RealFifo<T> {
    /// Returns the number of waiting changes, without those that are being processed.
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether no change is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting changes in order, one for each entry.
    pub fn list(&self) -> Vec<Deltas<T>> {
        self.state.lock().items.iter().cloned().collect()
    }

    /// Returns the keys of all waiting changes, each once, in the order of their first change.
    pub fn list_keys(&self) -> Vec<Key> {
        let state = self.state.lock();
        let mut seen = HashSet::new();
        let keys = state.items.iter().filter_map(Deltas::key);
        keys.filter(|key| seen.insert(*key))
            .map(Arc::clone)
            .collect()
    }
}

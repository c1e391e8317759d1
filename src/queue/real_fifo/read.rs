//! Read access to the queue, for diagnosis.

use std::collections::HashSet;
use std::sync::Arc;

use super::RealFifo;
use crate::object::{Key, KeyError};
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

    /// Returns the changes that are waiting for the key of `object`. It searches the whole queue, as
    /// [`get_by_key`](Self::get_by_key) does.
    ///
    /// # Errors
    ///
    /// Returns the error of the key function.
    pub fn get(&self, object: &T) -> Result<Option<Deltas<T>>, KeyError> {
        self.accessor.key(object).map(|key| self.get_by_key(&key))
    }

    /// Returns the changes that are waiting for this key, oldest first. It searches the whole
    /// queue, but not the objects inside a [`ReplacedAll`](crate::queue::Delta::ReplacedAll).
    pub fn get_by_key(&self, key: &str) -> Option<Deltas<T>> {
        let state = self.state.lock();
        let mut waiting = state
            .items
            .iter()
            .filter(|deltas| deltas.key().is_some_and(|k| &**k == key));
        let mut found = waiting.next()?.clone();
        for deltas in waiting {
            deltas.iter().for_each(|delta| found.push(delta.clone()));
        }
        Some(found)
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

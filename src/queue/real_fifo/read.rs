//! Looking into the queue, for diagnosis: it is one long list.

use std::collections::HashSet;
use std::sync::Arc;

use super::RealFifo;
use crate::object::{Key, KeyError};
use crate::queue::Deltas;

impl<T> RealFifo<T> {
    /// How many changes wait. Those being processed aren't among them.
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What waits for the key of this object.
    ///
    /// # Errors
    ///
    /// What the key function answers.
    pub fn get(&self, object: &T) -> Result<Option<Deltas<T>>, KeyError> {
        self.accessor.key(object).map(|key| self.get_by_key(&key))
    }

    /// What waits for this key, oldest first. It takes looking at everything that waits; and what a
    /// [`ReplacedAll`](crate::queue::Delta::ReplacedAll) has for the key is not seen.
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

    /// All that waits, in order, each with one change.
    pub fn list(&self) -> Vec<Deltas<T>> {
        self.state.lock().items.iter().cloned().collect()
    }

    /// The keys of all that waits, each once, in the order of their first change.
    pub fn list_keys(&self) -> Vec<Key> {
        let state = self.state.lock();
        let mut seen = HashSet::new();
        let keys = state.items.iter().filter_map(Deltas::key);
        keys.filter(|key| seen.insert(*key))
            .map(Arc::clone)
            .collect()
    }
}

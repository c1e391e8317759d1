//! Looking into the queue. client-go's `DeltaFIFO` could be read until 1.32.

use super::DeltaFifo;
use crate::object::{Key, KeyError};
use crate::queue::{Delta, Deltas};

impl<T> DeltaFifo<T> {
    /// How many keys wait. The one being processed isn't among them.
    pub fn len(&self) -> usize {
        self.state.lock().len()
    }

    /// Whether no key waits.
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

    /// What waits for this key.
    ///
    /// ```
    /// use k8s_informer::{Accessor, DeltaFifo, KeyError, ReflectorStore};
    /// use std::sync::Arc;
    ///
    /// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into())));
    /// queue.add(Arc::new("a".to_owned()))?;
    /// assert_eq!(queue.get_by_key("a").map(|deltas| deltas.len()), Some(1));
    /// assert!(queue.get(&"b".to_owned())?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_by_key(&self, key: &str) -> Option<Deltas<T>> {
        self.filed().items.get(key).cloned()
    }

    /// All that waits, in the order in which it will be popped.
    pub fn list(&self) -> Vec<Deltas<T>> {
        self.filed()
            .waiting()
            .map(|(_, deltas)| deltas.clone())
            .collect()
    }

    /// All keys that wait, in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.filed()
            .waiting()
            .map(|(key, _)| Key::clone(key))
            .collect()
    }

    /// The key of what has been popped: the queue's own, or that of its newest object or tombstone; `None` if
    /// there are no deltas (D12).
    ///
    /// # Errors
    ///
    /// What the key function answers.
    pub fn key_of(&self, deltas: &Deltas<T>) -> Result<Option<Key>, KeyError> {
        match (deltas.newest(), deltas.key()) {
            (None, _) => Ok(None),
            (Some(_), Some(key)) => Ok(Some(Key::clone(key))),
            (Some(Delta::Deleted(deleted)), None) => {
                self.accessor.key_of_deleted(deleted).map(Some)
            }
            (Some(delta), None) => delta
                .object()
                .map(|object| self.accessor.key(object))
                .transpose(),
        }
    }
}

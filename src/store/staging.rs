use std::collections::HashSet;

pub use super::entry::{Door, Entry, EntryChange};

use super::StoreError;
use crate::object::Key;
pub use crate::resource_version::ResourceVersion;

/// The part of a queue or store that takes entries from a reflector, instead of objects.
///
/// With it, no list is held in memory twice, unchanged objects are not decoded again, and the cached
/// copy of an unreadable object stays when a list replaces the others. The reflector calls these methods
/// from its thread, without a lock.
pub trait Staging<T>: Send + Sync {
    /// Returns the door through which objects become entries.
    fn door(&self) -> &Door<T>;

    /// Returns the newest known state of the object with this key, or an older one. The caller
    /// compares its digest.
    fn known(&self, key: &str) -> Option<Entry<T>>;

    /// Whether there is an object with this key, or may be one.
    fn has(&self, key: &str) -> bool {
        self.known(key).is_some()
    }

    /// Whether the last list and everything before it have been processed, even if some failed.
    fn is_settled(&self) -> bool {
        true
    }

    /// Applies changes in order and removes them from `changes`. Returns the errors of those that
    /// were rejected.
    fn apply_entries(&self, changes: &mut Vec<EntryChange<T>>) -> Vec<StoreError>;

    /// Records the version of a change that was not applied because it cannot be read or stored.
    fn skipped(&self, _: &str) {}

    /// Replaces the whole content, like
    /// [`ReflectorStore::replace`](super::ReflectorStore::replace). Stored objects that are in the
    /// gaps stay as they are.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector lists again.
    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError>;
}

/// The objects of a list that could not be read. They exist on the server, so their cached copies
/// must stay.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    keys: HashSet<Key>,
    any: bool,
}

impl Gaps {
    /// Adds an object by its key. `None` means that even the key could not be read: the gaps then
    /// cover every key.
    pub fn add(&mut self, key: Option<Key>) {
        match key {
            Some(key) => {
                self.keys.insert(key);
            }
            None => self.any = true,
        }
    }

    /// Removes the key of an object that could be read after all.
    pub(crate) fn close(&mut self, key: &str) {
        // Avoids hashing the key: mostly there are no gaps.
        if !self.keys.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Whether the object with this key may be one of the unreadable objects.
    pub fn cover(&self, key: &str) -> bool {
        self.any || self.keys.contains(key)
    }

    /// Whether the key of an object could not be read.
    pub(crate) fn has_nameless(&self) -> bool {
        self.any
    }

    /// Whether all objects could be read.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any && self.keys.is_empty()
    }
}

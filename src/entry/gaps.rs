use std::collections::HashSet;

use crate::object::Key;

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

    /// Whether this key was added.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.keys.contains(key)
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

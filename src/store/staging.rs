use std::collections::HashSet;
use std::sync::Arc;

use super::StoreError;
use crate::object::Key;

/// The part of a store that lets a reflector pass lists object by object.
///
/// With it, no list is held in memory twice, unchanged objects are not decoded again, and an
/// unreadable object does not make the rest of the list fail. The reflector calls these methods
/// from its thread while the list arrives, without a lock.
///
/// Only [`Indexer`](super::Indexer) and the queues of informers implement it.
pub trait Staging<T>: Send + Sync {
    /// Returns the key of the object with this namespace and name, or `None` if the key can only be
    /// computed from the object.
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key>;

    /// Computes the key of an object and transforms the object. The result is the form that
    /// [`replace_staged`](Self::replace_staged) takes.
    ///
    /// # Errors
    ///
    /// The object has no key, or the transform fails.
    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError>;

    /// Returns a stored state of the object with this key, which may not be the newest one. The
    /// caller compares its resource version.
    fn cached(&self, key: &str) -> Option<Arc<T>>;

    /// Whether the last list and everything before it have been processed without an error. If so,
    /// [`cached`](Self::cached) returns no state from before that list.
    ///
    /// A reflector does not decode an object again if the cached one has the same UID and resource
    /// version. After a restore of etcd, the same version may stand for a different state, so a
    /// cached object from before the last list must not be used. The reflector therefore uses
    /// cached objects only if this returns `true`. A store that applies writes at
    /// once returns `true`. A queue returns `true` when its consumer has processed the list. The
    /// default is `false`, which is always correct: every object is decoded.
    fn is_settled(&self) -> bool {
        false
    }

    /// Replaces the whole content, like
    /// [`ReflectorStore::replace`](super::ReflectorStore::replace). Each object comes from
    /// [`prepare`](Self::prepare) or [`cached`](Self::cached). Stored objects that are in the gaps
    /// stay as they are.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector lists again.
    fn replace_staged(
        &self,
        objects: Vec<(Key, Arc<T>)>,
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

    /// Whether the store is known to have none of the unreadable objects.
    pub(crate) fn are_empty_in<T>(&self, staging: &dyn Staging<T>) -> bool {
        !self.any && self.keys.iter().all(|key| staging.cached(key).is_none())
    }

    /// Whether all objects could be read.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any && self.keys.is_empty()
    }
}

use std::collections::HashSet;
use std::sync::Arc;

use super::StoreError;
use crate::object::Key;

/// The part of a store that lets a reflector pass lists object by object.
///
/// With it, no list is held in memory twice, unchanged objects are not decoded again, and an
/// unreadable object does not make the rest of the list fail.
///
/// A custom queue that wraps a queue of this crate returns the staging of the wrapped queue from
/// [`ReflectorStore::staging`](super::ReflectorStore::staging). The reflector calls these methods
/// from its thread while the list arrives, without a lock.
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer};
/// use k8s_informer::store::{Gaps, ReflectorStore, StagedList};
/// use std::sync::Arc;
///
/// let named = |name: &str| -> Arc<DynamicObject> {
///     Arc::new(serde_json::from_value(serde_json::json!({"metadata": {"name": name}})).unwrap())
/// };
/// let store = Indexer::for_objects();
/// store.replace(vec![named("a"), named("b"), named("c")], "7")?;
///
/// // A list of "a" and "b", in which "b" cannot be decoded.
/// let staging = store.staging().unwrap();
/// let mut list = StagedList { resource_version: "8".into(), ..StagedList::default() };
/// list.objects.push(staging.prepare(named("a"))?);
/// list.gaps.add(staging.key_of_name("", "b"));
/// staging.replace_staged(list)?;
/// let mut keys = store.list_keys();
/// keys.sort();
/// assert_eq!(keys, ["a".into(), "b".into()]);
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
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
    /// [`ReflectorStore::replace`](super::ReflectorStore::replace). Each object of the list comes
    /// from [`prepare`](Self::prepare) or [`cached`](Self::cached). Stored objects that are in the
    /// gaps of the list stay as they are.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector lists again.
    fn replace_staged(&self, list: StagedList<T>) -> Result<(), StoreError>;
}

/// A list that a reflector has read object by object.
#[derive(Debug)]
pub struct StagedList<T> {
    /// The readable objects with their keys, in the order of the list.
    pub objects: Vec<(Key, Arc<T>)>,
    /// The resource version of the list.
    pub resource_version: String,
    /// The objects that could not be read.
    pub gaps: Gaps,
}

impl<T> Default for StagedList<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            resource_version: String::new(),
            gaps: Gaps::default(),
        }
    }
}

/// The objects of a list that could not be read. They exist on the server, so their cached copies
/// must stay.
///
/// ```
/// use k8s_informer::store::Gaps;
///
/// let mut gaps = Gaps::default();
/// assert!(!gaps.cover("default/web-1"));
/// gaps.add(Some("default/web-0".into()));
/// assert!(gaps.cover("default/web-0") && !gaps.cover("default/web-1"));
/// gaps.add(None); // the key is unknown: it may be any object
/// assert!(gaps.cover("default/web-1"));
/// ```
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

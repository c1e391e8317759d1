use std::collections::HashSet;
use std::sync::Arc;

use super::StoreError;
use crate::object::Key;

/// What a store offers to a reflector that reads lists object by object: so that no list is held twice, what
/// has not changed is not decoded again, and one object that can't be read does not cost the others.
///
/// A queue of your own that wraps one of the crate's hands out that one's
/// ([`ReflectorStore::staging`](super::ReflectorStore::staging)). It is asked from the reflector's thread,
/// while the list arrives; no lock is held.
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
/// // A list of "a" and of "b", which can't be decoded.
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
    /// The key of the object that has this namespace and name, `None` if only the object can tell.
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key>;

    /// The object as it will be kept, and its key: what [`replace_staged`](Self::replace_staged) takes.
    ///
    /// # Errors
    ///
    /// It has no key, or the transform fails.
    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError>;

    /// Some state of this object that is kept, not necessarily the newest. The caller tells by its
    /// resourceVersion whether it is the one in question.
    fn cached(&self, key: &str) -> Option<Arc<T>>;

    /// Whether everything up to the last list has been processed, and nothing of it has failed: then
    /// [`cached`](Self::cached) returns no state from before that list.
    ///
    /// A restored etcd gives a resourceVersion a second time, to another state. The reflector therefore keeps
    /// cached objects only if this is `true`. A store that keeps what it is given at once returns `true`. A
    /// queue returns `true` once the consumer has processed the list. The default, `false`, is always
    /// correct: every object is decoded.
    fn is_settled(&self) -> bool {
        false
    }

    /// As [`ReflectorStore::replace`](super::ReflectorStore::replace), of objects that were prepared, or are
    /// kept already; and what stands in the gaps stays as it is.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector lists again.
    fn replace_staged(&self, list: StagedList<T>) -> Result<(), StoreError>;
}

/// A list as it was read.
#[derive(Debug)]
pub struct StagedList<T> {
    /// What could be read, in the order of the list.
    pub objects: Vec<(Key, Arc<T>)>,
    /// Of the list.
    pub resource_version: String,
    /// What could not be read.
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

/// The objects of a list that could not be read. They are there, so their cached copies have to stay.
///
/// ```
/// use k8s_informer::store::Gaps;
///
/// let mut gaps = Gaps::default();
/// assert!(!gaps.cover("default/web-1"));
/// gaps.add(Some("default/web-0".into()));
/// assert!(gaps.cover("default/web-0") && !gaps.cover("default/web-1"));
/// gaps.add(None); // Not even its key could be read: it may be any.
/// assert!(gaps.cover("default/web-1"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    keys: HashSet<Key>,
    any: bool,
}

impl Gaps {
    /// One more: by its key, `None` if not even that could be read.
    pub fn add(&mut self, key: Option<Key>) {
        match key {
            Some(key) => {
                self.keys.insert(key);
            }
            None => self.any = true,
        }
    }

    /// The object of this key could be read after all.
    pub(crate) fn close(&mut self, key: &str) {
        // There mostly are none, and then nothing need be hashed.
        if !self.keys.is_empty() {
            self.keys.remove(key);
        }
    }

    /// Whether the object of this key may be one of them.
    pub fn cover(&self, key: &str) -> bool {
        self.any || self.keys.contains(key)
    }

    /// Whether the store has none of them.
    pub(crate) fn are_empty_in<T>(&self, staging: &dyn Staging<T>) -> bool {
        !self.any && self.keys.iter().all(|key| staging.cached(key).is_none())
    }

    /// Whether everything could be read.
    pub(crate) fn is_empty(&self) -> bool {
        !self.any && self.keys.is_empty()
    }
}

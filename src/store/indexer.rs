use std::collections::HashSet;
use std::sync::Arc;

use super::{
    Action, AddIndexersError, Change, IndexError, Indexers, KnownObjects, NewVersion,
    ReflectorStore, Store, StoreError, ThreadSafeStore, TransactionError, Transform, Write,
};
use crate::base::derive::{debug_fields, unwind_safe};
use crate::entry::{Applied, Delta, Door, Entry, Gaps, Staging};
use crate::metrics::InformerMetrics;
use crate::object::{Accessor, Deleted, Key, Object};
use crate::resource_version::ResourceVersion;

/// A thread-safe, indexed cache that derives keys from its objects. client-go's `Indexer`.
///
/// An informer creates its own. Create one yourself as the store of a
/// [`Reflector`](crate::reflector::Reflector) or [`Controller`](crate::informer::Controller), or as
/// a cache of any values that have keys.
///
/// Objects are shared: the indexer stores and returns `Arc`s, through which no caller can change an
/// object. It is a [`ThreadSafeStore`] with a key function and an optional transform. That type
/// documents what a write and a list guarantee, which calls block, and how indexes work.
///
/// Key functions, index functions and transforms run without a lock and may call the indexer. If
/// one of them panics in a call of yours, the call returns an error and changes nothing. If an index
/// function fails while an informer or a reflector fills the indexer, the object is stored without
/// values in that index: see [`IndexFunc`](super::IndexFunc).
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer};
/// use k8s_informer::object::{Accessor, ResourceVersion};
/// use k8s_informer::store::Indexers;
/// use std::sync::Arc;
///
/// let pods = Indexer::new(Accessor::object(), Indexers::new().with_namespace());
/// let pod: DynamicObject =
///     serde_json::from_str(r#"{"metadata": {"namespace": "default", "name": "web", "resourceVersion": "7"}}"#)?;
/// pods.add(Arc::new(pod))?;
/// assert!(pods.get_by_key("default/web").is_some());
/// assert_eq!(pods.by_index("namespace", "default")?.len(), 1);
/// assert_eq!(pods.resource_version(), ResourceVersion::new("7"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Indexer<T> {
    door: Door<T>,
    store: ThreadSafeStore<T>,
}

impl<T: 'static> Indexer<T> {
    /// Creates an empty indexer with these indexes.
    pub fn new(accessor: Accessor<T>, indexers: Indexers<T>) -> Self {
        Self {
            door: Door::new(accessor, None),
            store: ThreadSafeStore::new(indexers),
        }
    }
}

impl<T: Object> Indexer<T> {
    /// Creates an empty indexer of Kubernetes objects, with an index by namespace.
    pub fn for_objects() -> Self {
        Self::new(Accessor::object(), Indexers::new().with_namespace())
    }
}

impl<T> Indexer<T> {
    /// Sets a transform that changes every object before it is stored. Use it for an indexer
    /// without an informer: the queue of an informer already transforms its objects.
    #[must_use]
    pub fn with_transform(mut self, transform: Transform<T>) -> Self {
        self.door.set_transform(transform);
        self
    }

    /// Reports the resource version to `metrics` after every write.
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn InformerMetrics>) -> Self {
        Self {
            store: self.store.with_metrics(metrics),
            ..self
        }
    }

    /// Stores an object. It replaces the object with the same key.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the object has no key, or if the transform or an index function fails.
    /// Then nothing has changed.
    pub fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        let write = self.enter(Change::Update(object))?;
        self.store.apply(write).map(drop)
    }

    /// Stores an object, like [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Removes an object and sets the resource version to that of the deletion. A tombstone leaves
    /// the resource version unchanged. If the object is not stored, only the resource version
    /// changes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    pub fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let write = self.enter(Change::Delete(gone))?;
        self.store.apply(write).map(drop)
    }

    /// Replaces all objects and sets the resource version. If several objects have the same key,
    /// the last one is stored. Readers see either the old or the new content, never a mix.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if one of the objects has no key, or if the transform or an index function
    /// fails for it. Then nothing has changed.
    pub fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let entries = objects.into_iter();
        let entries = entries.map(|object| self.door.unversioned_entry(object));
        let entries = entries.collect::<Result<_, _>>()?;
        self.store.replace_entries(entries, resource_version)
    }

    /// Applies several changes in order, as one atomic step. A read sees all of them or none.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] lists the changes that failed, because the object has no key, or
    /// because the transform or an index function failed for it. The others have been applied.
    pub fn transaction(&self, changes: Vec<Change<T>>) -> Result<(), TransactionError> {
        let changes = changes.into_iter();
        self.store
            .transact_all(changes.map(|change| self.enter(change)))
    }

    /// Returns the object stored under the key of `object`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if `object` has no key.
    pub fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.store.get(&self.door.accessor().key(object)?))
    }

    /// Returns the object stored under `key`.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.store.get(key)
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether the indexer has no objects.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// Returns all objects in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.store.list()
    }

    /// Returns all keys in no particular order.
    pub fn list_keys(&self) -> Vec<Key> {
        self.store.list_keys()
    }

    /// Returns the objects that share an index value with `object`, each once, in no particular
    /// order.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if there is no index `name`, or if its function fails for `object`.
    pub fn index(&self, name: &str, object: &T) -> Result<Vec<Arc<T>>, IndexError> {
        self.store.index(name, object)
    }

    /// Returns the objects with this index value, in no particular order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.store.by_index(name, value)
    }

    /// Returns the objects with this index value, like [`by_index`](Self::by_index), but only if no
    /// object is unindexed: an error instead of a result that may lack an object.
    ///
    /// ```
    /// use k8s_informer::Indexer;
    /// use k8s_informer::object::Accessor;
    /// use k8s_informer::store::{IndexFunc, Indexers};
    /// use std::sync::Arc;
    ///
    /// let letter = IndexFunc::new(|word: &String| vec![word[..1].to_owned()]);
    /// let words = Indexer::new(Accessor::new(|word: &String| Ok(word.as_str().into())), Indexers::new().with("letter", letter));
    /// words.add(Arc::new("pod".to_owned()))?;
    /// assert_eq!(words.by_complete_index("letter", "p")?.len(), 1);
    /// assert!(words.unindexed("letter")?.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`. [`IndexError::Unindexed`] if its function
    /// failed for a stored object, which might belong to the result.
    pub fn by_complete_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.store.by_complete_index(name, value)
    }

    /// Returns the sorted keys of the objects for which the function of this index failed. They can
    /// only be in an indexer that an informer or a reflector fills. See
    /// [`IndexFunc`](super::IndexFunc).
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn unindexed(&self, name: &str) -> Result<Vec<Key>, IndexError> {
        self.store.unindexed(name)
    }

    /// Returns the sorted keys of the objects with this index value.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
        self.store.index_keys(name, value)
    }

    /// Returns all current values of an index in no particular order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    #[doc(alias = "ListIndexFuncValues")]
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError> {
        self.store.index_values(name)
    }

    /// Adds indexes and fills them from the objects that are already stored; see
    /// [`ThreadSafeStore::add_indexers`].
    ///
    /// # Errors
    ///
    /// [`AddIndexersError`] if the indexes cannot be added. Then none of them has been added.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), AddIndexersError> {
        self.store.add_indexers(indexers)
    }

    /// Returns the sorted names of the indexes.
    #[doc(alias = "GetIndexers")]
    pub fn index_names(&self) -> Vec<Arc<str>> {
        self.store.index_names()
    }

    /// Returns the resource version of the last write. It may be older than the version of an
    /// earlier write. `None` before the first write.
    #[doc(alias = "LastStoreSyncResourceVersion")]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.store.resource_version()
    }

    /// Returns the store, to write objects whose keys are known.
    pub(crate) fn keyed(&self) -> &ThreadSafeStore<T> {
        &self.store
    }

    /// Adds stored entries to a list, so that a replace keeps them: those that may be missing from
    /// the list because of its gaps.
    pub(crate) fn keep_in_gaps(&self, entries: &mut Vec<Entry<T>>, gaps: &Gaps) {
        if gaps.is_empty() {
            return;
        }
        let listed: HashSet<Key> = entries.iter().map(|entry| Key::clone(&entry.key)).collect();
        let stored = self.store.entries().into_iter();
        entries.extend(stored.filter(|it| gaps.cover(&it.key) && !listed.contains(&it.key)));
    }

    /// Turns a change into a write. The version is that after the transform (S1). A deleted object is
    /// not stored, so it is not transformed.
    fn enter(&self, change: Change<T>) -> Result<Write<T>, StoreError> {
        let version_of = |object| NewVersion::of(self.door.accessor().resource_version(object));
        Ok(match change {
            Change::Add(object) | Change::Update(object) => {
                let entry = self.door.unversioned_entry(object)?;
                Write {
                    version: version_of(&entry.object),
                    action: Action::Put(entry),
                }
            }
            Change::Delete(gone) => Write {
                version: match &gone {
                    Deleted::Final(object) => version_of(object),
                    Deleted::FinalStateUnknown { .. } => NewVersion::Unchanged,
                },
                action: Action::Remove(self.door.accessor().key_of_deleted(&gone)?),
            },
            Change::Bookmark(version) => Write::bookmark(version),
        })
    }
}

impl<T: Send + Sync> ReflectorStore<T> for Indexer<T> {
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.update(object)
    }

    fn delete(&self, object: Deleted<T>) -> Result<(), StoreError> {
        self.delete(object)
    }

    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        self.replace(objects, resource_version)
    }

    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.store.bookmark(resource_version);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T: Send + Sync> Staging<T> for Indexer<T> {
    fn door(&self) -> &Door<T> {
        &self.door
    }

    fn known(&self, key: &str) -> Option<Entry<T>> {
        self.store.entry(key)
    }

    fn apply_entries(&self, changes: &mut Vec<Delta<T>>) -> Applied {
        let (written, slow) = self.store.write_prepared(
            |functions| {
                let entries = changes.iter().map(Delta::entry);
                let computed = entries.map(|new| new.map(|new| functions.compute(&new.object)));
                computed.collect::<Vec<_>>()
            },
            |store, computed| store.transact(changes.iter().zip(computed.drain(..))),
        );
        changes.clear();
        if let Some(slow) = slow {
            slow.log();
        }
        let unindexed = written.into_iter().flat_map(|written| written.unindexed);
        Applied {
            rejected: Vec::new(),
            unindexed: unindexed.collect(),
        }
    }

    fn unindexed(&self) -> usize {
        self.store.count_unindexed(|_| true)
    }

    fn replace_entries(
        &self,
        mut entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<Applied, StoreError> {
        self.keep_in_gaps(&mut entries, &gaps);
        let unindexed = self.store.write_prepared(
            |functions| functions.build(&entries),
            |store, slots| store.replace(slots, resource_version),
        );
        Ok(Applied {
            rejected: Vec::new(),
            unindexed,
        })
    }
}

impl<T: Send + Sync> KnownObjects<T> for Indexer<T> {
    fn list_keys(&self) -> Vec<Key> {
        self.list_keys()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.get_by_key(key))
    }

    fn entry(&self, key: &str) -> Option<Entry<T>> {
        self.store.entry(key)
    }
}

impl<T: Send + Sync> Store<T> for Indexer<T> {
    fn list(&self) -> Vec<Arc<T>> {
        self.list()
    }

    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        self.get(object)
    }

    fn resource_version(&self) -> Option<ResourceVersion> {
        self.resource_version()
    }

    fn transaction(&self, changes: Vec<Change<T>>) -> Result<(), TransactionError> {
        self.transaction(changes)
    }
}

unwind_safe!(Indexer<T>);

debug_fields!(Indexer<T>: store);

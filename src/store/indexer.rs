use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use super::{
    AddIndexersError, Change, Gaps, IndexError, IndexFunc, Indexers, KnownObjects, ReflectorStore,
    StagedList, Staging, Store, StoreError, ThreadSafeStore, TransactionError, Transform,
};
use crate::metrics::InformerMetrics;
use crate::object::{Accessor, Deleted, Key, Object};

/// Objects by the key that is made of them, with indices: the local copy that an informer keeps. client-go's
/// `Indexer`.
///
/// An informer makes its own; make one yourself to put under a [`Reflector`](crate::reflector::Reflector) or a
/// [`Controller`](crate::informer::Controller), or as a cache of anything that has keys.
///
/// It shares what it stores: `Arc`s go in and out, and nobody can change an object through it (S11). It is a
/// [`ThreadSafeStore`] with keys, and an optional transform; that type says what a write guarantees, what
/// blocks, what a list is, and how indices behave. Key functions, index functions and transforms run under no
/// lock and may call the store themselves; a panic in one is an error of that one call, which has then
/// changed nothing.
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer};
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::{Indexers, NAMESPACE_INDEX};
/// use std::sync::Arc;
///
/// let pods = Indexer::new(Accessor::object(), Indexers::new().with_namespace());
/// let pod: DynamicObject =
///     serde_json::from_str(r#"{"metadata": {"namespace": "default", "name": "web", "resourceVersion": "7"}}"#)?;
/// pods.add(Arc::new(pod))?;
/// assert!(pods.get_by_key("default/web").is_some());
/// assert_eq!(pods.by_index(NAMESPACE_INDEX, "default")?.len(), 1);
/// assert_eq!(pods.last_store_sync_resource_version(), "7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Indexer<T> {
    accessor: Accessor<T>,
    transform: Option<Transform<T>>,
    store: ThreadSafeStore<T>,
}

impl<T: 'static> Indexer<T> {
    /// An empty one, with these indices.
    pub fn new(accessor: Accessor<T>, indexers: Indexers<T>) -> Self {
        let reader = accessor.clone();
        let store = ThreadSafeStore::new(indexers)
            .with_resource_version(move |object| reader.resource_version(object));
        Self {
            accessor,
            transform: None,
            store,
        }
    }
}

impl<T: Object> Indexer<T> {
    /// An empty one for Kubernetes objects, with the index by namespace.
    pub fn for_objects() -> Self {
        Self::new(Accessor::object(), Indexers::new().with_namespace())
    }
}

impl<T> Indexer<T> {
    /// Changes every object before it is stored. An informer's queue does that already: this is for an
    /// indexer that is used alone.
    #[must_use]
    pub fn with_transform(mut self, transform: Transform<T>) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Tells the resourceVersion to these metrics whenever it is written (X13).
    #[must_use]
    pub fn with_metrics(self, metrics: Arc<dyn InformerMetrics>) -> Self {
        Self {
            store: self.store.with_metrics(metrics),
            ..self
        }
    }

    /// How the indexer reads keys and resourceVersions.
    pub(crate) fn accessor(&self) -> &Accessor<T> {
        &self.accessor
    }

    /// Stores an object. It replaces the object with the same key, if there is one.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if it has no key, or the transform or an index function fails: nothing has changed then
    /// (S1, X6).
    pub fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        let (key, object) = self.prepare(object)?;
        self.store.add(key, object).map(drop)
    }

    /// The same as [`add`](Self::add) (S2).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Takes an object out; if it is not there, only the resourceVersion changes (S2, X9).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    pub fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        self.store.delete_with_object(&key, &gone)
    }

    /// These are all the objects, as of this resourceVersion; of several with one key the last counts.
    /// Readers see the old content or the new, nothing between.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if one of them has no key, or the transform or an index function fails on it: nothing
    /// has changed then (S4, X6).
    pub fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        let keyed = objects
            .into_iter()
            .map(|object| self.prepare(object))
            .collect::<Result<_, _>>()?;
        self.store.replace(keyed, resource_version)
    }

    /// Makes several changes at once, in their order: reads of one point in time, as nearly all are (see
    /// [`ThreadSafeStore`]), see all of them or none.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] tells the changes that were not made, because they have no key, or the transform
    /// or an index function fails on them; the others have been made (S6).
    pub fn transaction(&self, changes: Vec<Change<T>>) -> Result<(), TransactionError> {
        let total = changes.len();
        let mut keyed = Vec::with_capacity(total);
        let mut errors = Vec::new();
        for (position, change) in changes.into_iter().enumerate() {
            let prepared = match change {
                Change::Add(object) => self
                    .prepare(object)
                    .map(|(key, object)| (key, Change::Add(object))),
                Change::Update(object) => self
                    .prepare(object)
                    .map(|(key, object)| (key, Change::Update(object))),
                Change::Delete(gone) => self
                    .accessor
                    .key_of_deleted(&gone)
                    .map(|key| (key, Change::Delete(gone)))
                    .map_err(Into::into),
                Change::Bookmark(_) => Ok((Key::from(""), change)),
            };
            match prepared {
                Ok(change) => keyed.push((position, change)),
                Err(error) => errors.push((position, error)),
            }
        }
        let (successful, failed) = self.store.transact(keyed);
        errors.extend(failed);
        if errors.is_empty() {
            return Ok(());
        }
        errors.sort_by_key(|(position, _)| *position);
        Err(TransactionError {
            successful,
            total,
            errors: errors.into_iter().map(|(_, error)| error).collect(),
        })
    }

    /// What is stored under the key of this object.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    pub fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.store.get(&self.accessor.key(object)?))
    }

    /// The object with this key.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.store.get(key)
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// All objects, in no order; of many, not at one point in time: see [`ThreadSafeStore`].
    pub fn list(&self) -> Vec<Arc<T>> {
        self.store.list()
    }

    /// All keys, in no order.
    pub fn list_keys(&self) -> Vec<Key> {
        self.store.list_keys()
    }

    /// All objects at one point in time, and the resourceVersion of that moment; writers wait meanwhile.
    pub fn snapshot(&self) -> (Vec<Arc<T>>, String) {
        self.store.snapshot()
    }

    /// The objects that share a value of an index with this one, each once, in no order.
    ///
    /// # Errors
    ///
    /// [`IndexError`] if there is no such index, or its function fails on the object.
    pub fn index(&self, name: &str, object: &T) -> Result<Vec<Arc<T>>, IndexError> {
        self.store.index(name, object)
    }

    /// The objects that an index has under a value, in no order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`].
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.store.by_index(name, value)
    }

    /// The keys that an index has under a value, sorted.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`].
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
        self.store.index_keys(name, value)
    }

    pub(super) fn index_entries(
        &self,
        name: &str,
        value: &str,
    ) -> Result<Vec<(Key, Arc<T>)>, IndexError> {
        self.store.index_entries(name, value)
    }

    pub(super) fn index_func(&self, name: &str) -> Result<IndexFunc<T>, IndexError> {
        self.store.index_func(name)
    }

    /// All values that an index has at the moment, in no order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] (X11).
    pub fn list_index_func_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError> {
        self.store.list_index_func_values(name)
    }

    /// Adds indices, and files in them what is there; see [`ThreadSafeStore::add_indexers`].
    ///
    /// # Errors
    ///
    /// [`AddIndexersError`]; none has been added then.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), AddIndexersError> {
        self.store.add_indexers(indexers)
    }

    /// The names of the indices, sorted.
    pub fn get_indexers(&self) -> Vec<Arc<str>> {
        self.store.get_indexers()
    }

    /// The resourceVersion of the last thing that was written; it may go back (X9). Empty at first.
    pub fn last_store_sync_resource_version(&self) -> String {
        self.store.last_store_sync_resource_version()
    }

    pub(crate) fn set_resource_version(&self, resource_version: &str) {
        self.store.bookmark(resource_version);
    }

    /// For who has the key already: it is neither made again nor is there a transform.
    pub(crate) fn add_keyed(&self, key: Key, object: Arc<T>) -> Result<Option<Arc<T>>, StoreError> {
        self.store.add(key, object)
    }

    /// As [`add_keyed`](Self::add_keyed).
    pub(crate) fn delete_keyed(&self, key: &Key, gone: &Deleted<T>) -> Result<(), StoreError> {
        self.store.delete_with_object(key, gone)
    }

    /// As [`add_keyed`](Self::add_keyed).
    pub(crate) fn replace_keyed(
        &self,
        objects: Vec<(Key, Arc<T>)>,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        self.store.replace(objects, resource_version)
    }

    /// As [`transaction`](Self::transaction), but answers which changes were made, and the errors of the
    /// others, by their positions.
    pub(crate) fn transact_keyed(
        &self,
        changes: Vec<(Key, Change<T>)>,
    ) -> (Vec<usize>, Vec<(usize, StoreError)>) {
        self.store
            .transact(changes.into_iter().enumerate().collect())
    }

    /// All objects with their keys, as [`list`](Self::list) gives them.
    pub(crate) fn entries(&self) -> Vec<(Key, Arc<T>)> {
        self.store.entries()
    }

    /// Adds to a list what is stored and may be in one of its gaps: it stays.
    pub(crate) fn keep_in_gaps(&self, objects: &mut Vec<(Key, Arc<T>)>, gaps: &Gaps) {
        if gaps.is_empty() {
            return;
        }
        let listed: HashSet<Key> = objects.iter().map(|(key, _)| Arc::clone(key)).collect();
        let stored = self.entries().into_iter();
        objects.extend(stored.filter(|(key, _)| gaps.cover(key) && !listed.contains(key)));
    }

    /// Key first, then the transform (S1).
    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((key, object))
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

    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        self.replace(objects, resource_version)
    }

    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.store.bookmark(resource_version);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T: Send + Sync> Staging<T> for Indexer<T> {
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key> {
        self.accessor.key_of_name(namespace, name)
    }

    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        self.prepare(object)
    }

    fn cached(&self, key: &str) -> Option<Arc<T>> {
        self.get_by_key(key)
    }

    fn is_settled(&self) -> bool {
        true
    }

    fn replace_staged(&self, list: StagedList<T>) -> Result<(), StoreError> {
        let StagedList {
            mut objects,
            resource_version,
            gaps,
        } = list;
        self.keep_in_gaps(&mut objects, &gaps);
        self.replace_keyed(objects, &resource_version)
    }
}

impl<T: Send + Sync> KnownObjects<T> for Indexer<T> {
    fn list_keys(&self) -> Vec<Key> {
        self.list_keys()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.get_by_key(key))
    }
}

impl<T: Send + Sync> Store<T> for Indexer<T> {
    fn list(&self) -> Vec<Arc<T>> {
        self.list()
    }

    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        self.get(object)
    }

    fn last_store_sync_resource_version(&self) -> String {
        self.last_store_sync_resource_version()
    }

    fn transaction(&self, changes: Vec<Change<T>>) -> Result<(), TransactionError> {
        self.transaction(changes)
    }
}

impl<T> fmt::Debug for Indexer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Indexer").field(&self.store).finish()
    }
}

mod builder;
mod lru;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

pub use builder::MutationCacheBuilder;

use self::lru::Lru;
use super::{IndexError, IndexFunc, Indexer, Store, StoreError};
use crate::log;
use crate::object::{Accessor, Deleted, Key, Object};
use crate::panic::catch;
use crate::sync::Mutex;
use crate::time::Clock;

/// A view of a store that includes your own writes before the watch delivers them. client-go's
/// `MutationCache`.
///
/// The cache of an informer lags behind the server. If you update an object and read it from the
/// cache again, you may get the old state and do the same work twice. To avoid this, pass each
/// object that the server returned for a write to [`mutation`](Self::mutation), and read from this
/// cache instead of the store. It returns the stored object or the mutation, whichever has the
/// higher resource version.
///
/// Also call [`on_add_or_update`](Self::on_add_or_update) and [`on_delete`](Self::on_delete) from a
/// handler of the informer. Otherwise a cache with
/// [`include_adds`](MutationCacheBuilder::include_adds) returns the mutation of a deleted object
/// until the mutation expires. If an object was created and deleted too quickly for the watch, no
/// handler is called, and the mutation also stays until it expires.
///
/// **Guarantees.** The cache never returns an object with a lower resource version than the stored
/// object. It does not guarantee that you read your own writes: the
/// [number](MutationCacheBuilder::max_size) and [age](MutationCacheBuilder::ttl) of mutations are
/// limited. Without [`include_adds`](MutationCacheBuilder::include_adds), it does not return
/// objects that are missing from the store, because they may not have arrived yet or may already be
/// deleted.
///
/// **Resource versions** must be integers of up to 64 bits, like those of Kubernetes. An empty one
/// counts as 0. A mutation with any other resource version is rejected; client-go panics when it
/// compares such a version. A stored object with any other resource version counts as newer than
/// every mutation.
///
/// **Blocking.** One lock guards the mutations. No user code runs and nothing is dropped while it
/// is held, and the store is read without it. No call blocks for long or waits until the content
/// changes. A read takes one more lookup than a read of the store. A read by index also copies the
/// list of mutations.
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer};
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::MutationCache;
/// use std::sync::Arc;
///
/// let pod = |version: u32| -> Arc<DynamicObject> {
///     let json = format!(r#"{{"metadata": {{"name": "web", "resourceVersion": "{version}"}}}}"#);
///     Arc::new(serde_json::from_str(&json).unwrap())
/// };
/// let indexer = Arc::new(Indexer::for_objects()); // with an informer: informer.indexer()
/// let pods = MutationCache::builder(Accessor::object(), indexer.clone()).indexer(indexer.clone()).build();
/// indexer.add(pod(7))?;
///
/// pods.mutation(pod(9))?; // the response of the server to an update
/// assert_eq!(pods.get_by_key("web")?, Some(pod(9)));
/// assert_eq!(pods.by_index("namespace", "")?, [pod(9)]);
///
/// indexer.update(pod(10))?; // the watch delivers a newer state
/// assert_eq!(pods.get_by_key("web")?, Some(pod(10)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MutationCache<T> {
    accessor: Accessor<T>,
    store: Arc<dyn Store<T>>,
    indexer: Option<Arc<Indexer<T>>>,
    include_adds: bool,
    clock: Arc<dyn Clock>,
    /// Guards the mutations. Innermost lock: no other lock is taken under it, and only `locked`
    /// takes it. No thread waits until the mutations change.
    ///
    /// A reader looks up the mutation first and the stored object second. If the mutation has been
    /// removed because the store has caught up, the reader therefore finds the newer object in the
    /// store.
    overlay: Mutex<Lru<Mutation<T>>>,
}

/// An entry of the overlay.
struct Mutation<T> {
    version: u64,
    uid: Box<str>,
    /// The written object. `None` records that the object with this UID was deleted at this version
    /// (M4).
    object: Option<Arc<T>>,
}

impl<T> MutationCache<T> {
    /// Returns a builder for a cache over `store`. `accessor` must compute the same keys as the
    /// store.
    pub fn builder(accessor: Accessor<T>, store: Arc<dyn Store<T>>) -> MutationCacheBuilder<T> {
        MutationCacheBuilder::new(accessor, store)
    }
}

impl<T: Object> MutationCache<T> {
    /// Records an object that the server returned for a write.
    ///
    /// The call is ignored if the cache has a newer entry for the key. It is also ignored if the
    /// cache has recorded that an object with this UID or this resource version was deleted.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key, or [`StoreError::ResourceVersion`] if its
    /// resource version cannot be compared. Then the object is not recorded and earlier mutations
    /// stay. Reads return an older state until the watch delivers the object.
    pub fn mutation(&self, object: Arc<T>) -> Result<(), StoreError> {
        let key = self.accessor.key(&object)?;
        let mutation = self.read(&key, &object, Some(Arc::clone(&object)))?;
        let now = self.clock.now();
        self.locked(|overlay| {
            if let Some(known) = overlay.get(&key, now).cloned() {
                let gone = known.object.is_none();
                let known_gone =
                    gone && (mutation.version == known.version || mutation.uid == known.uid);
                if mutation.version < known.version || known_gone {
                    overlay.touch(&key, &known);
                    return;
                }
            }
            overlay.put(&key, Arc::clone(&mutation), now);
        });
        Ok(())
    }

    /// Returns the stored object or the mutation for this key, whichever is newer.
    ///
    /// It removes a mutation that is not newer than the stored object.
    ///
    /// # Errors
    ///
    /// Returns an error if the store fails or panics. An [`Indexer`] does neither.
    pub fn get_by_key(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        let now = self.clock.now();
        let mutation = self.locked(|overlay| overlay.get(key, now).cloned());
        let stored = catch(|| self.store.lookup(key))
            .unwrap_or_else(|message| Err(StoreError::other(format!("the store {message}"))))?;
        let Some(mutation) = mutation else {
            return Ok(stored);
        };
        match stored {
            Some(stored) if self.supersedes(key, &stored, &mutation) => {
                self.locked(|overlay| overlay.remove_same(key, &mutation));
                Ok(Some(stored))
            }
            None if !self.include_adds => Ok(None),
            _ => {
                self.locked(|overlay| overlay.touch(key, &mutation));
                Ok(mutation.object.clone())
            }
        }
    }

    /// Returns the objects with this index value, in no particular order. Each is in the state that
    /// [`get_by_key`](Self::get_by_key) would return.
    ///
    /// The search covers the objects that the store has under this value. With
    /// [`include_adds`](MutationCacheBuilder::include_adds), it also covers the mutations. Without
    /// it, an object that gets the value by a mutation is only found once the store has that state.
    ///
    /// If the index function fails for a mutation, the mutation is left out. If the store has the
    /// object under this value, the stored object is returned instead.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndexer`] if the cache was built without an indexer. [`IndexError::NoIndex`]
    /// if there is no index `name`.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        let indexer = self.indexer.as_ref().ok_or(IndexError::NoIndexer)?;
        let function = indexer.index_func(name)?;
        let now = self.clock.now();
        let overlay = self.locked(|overlay| overlay.unexpired(now));
        let mut stored = indexer.index_entries(name, value)?;
        if overlay.is_empty() {
            return Ok(stored.into_iter().map(|(_, object)| object).collect());
        }
        // Mutations are touched in the order of their keys, as in client-go.
        stored.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let has = |key: &Key, object: &T| has_value(&function, name, value, key, object);
        let mutations: HashMap<&Key, &Arc<Mutation<T>>> = overlay
            .iter()
            .map(|(key, mutation)| (key, mutation))
            .collect();
        let mut objects = Vec::with_capacity(stored.len());
        let mut superseded = Vec::new();
        let mut touched = Vec::new();
        for (key, stored) in &stored {
            match mutations.get(key).copied() {
                None => objects.push(Arc::clone(stored)),
                Some(mutation) if self.supersedes(key, stored, mutation) => {
                    superseded.push((key, mutation));
                    objects.push(Arc::clone(stored));
                }
                Some(mutation) => {
                    touched.push((key, mutation));
                    if let Some(object) = &mutation.object {
                        match has(key, object) {
                            Some(true) => objects.push(Arc::clone(object)),
                            Some(false) => {}
                            None => objects.push(Arc::clone(stored)),
                        }
                    }
                }
            }
        }
        if self.include_adds {
            let known: HashSet<&Key> = stored.iter().map(|(key, _)| key).collect();
            for (key, mutation) in overlay.iter().filter(|(key, _)| !known.contains(key)) {
                let Some(object) = &mutation.object else {
                    continue;
                };
                if has(key, object) != Some(true) {
                    continue;
                }
                // The store may have a newer state of the object: one without this value, or one
                // with this value that arrived after the lookup above. The mutation stays in the
                // overlay: unlike `get_by_key`, this read does not remove it.
                match indexer.get_by_key(key) {
                    Some(stored) if self.supersedes(key, &stored, mutation) => {
                        objects.extend((has(key, &stored) == Some(true)).then_some(stored));
                    }
                    _ => objects.push(Arc::clone(object)),
                }
            }
        }
        self.locked(|overlay| {
            superseded
                .iter()
                .for_each(|(key, mutation)| overlay.remove_same(key, mutation));
            touched
                .iter()
                .for_each(|(key, mutation)| overlay.touch(key, mutation));
        });
        Ok(objects)
    }

    /// Removes the mutation of an object if the store now has the same or a newer state. Call it
    /// from a handler of the informer that fills the store.
    ///
    /// # Errors
    ///
    /// As for [`mutation`](Self::mutation). Then no mutation has been removed.
    pub fn on_add_or_update(&self, object: &T) -> Result<(), StoreError> {
        let key = self.accessor.key(object)?;
        let version = self.version(&key, object)?;
        let now = self.clock.now();
        self.locked(|overlay| {
            if let Some(known) = overlay.get(&key, now).cloned() {
                match version >= known.version {
                    true => overlay.remove_same(&key, &known),
                    false => overlay.touch(&key, &known),
                }
            }
        });
        Ok(())
    }

    /// Records that an object was deleted from the store. Call it from a handler of the informer
    /// that fills the store.
    ///
    /// It removes a mutation with the same UID, or one that is not newer than the deletion. The
    /// deletion is recorded, so that a late call of [`mutation`](Self::mutation) does not restore
    /// the object. Any other mutation stays, because it may belong to an object that was created
    /// later under the same name. A tombstone without an object changes nothing.
    ///
    /// # Errors
    ///
    /// As for [`mutation`](Self::mutation). Then nothing has changed.
    pub fn on_delete(&self, gone: &Deleted<T>) -> Result<(), StoreError> {
        let Some(object) = gone.object() else {
            return Ok(());
        };
        let key = self.accessor.key_of_deleted(gone)?;
        let mutation = self.read(&key, object, None)?;
        let now = self.clock.now();
        self.locked(|overlay| {
            if let Some(known) = overlay.get(&key, now).cloned()
                && mutation.version < known.version
                && mutation.uid != known.uid
            {
                overlay.touch(&key, &known);
                return;
            }
            overlay.put(&key, Arc::clone(&mutation), now);
        });
        Ok(())
    }

    /// Reads the version and UID of an object. Runs without the lock.
    fn read(
        &self,
        key: &Key,
        object: &Arc<T>,
        kept: Option<Arc<T>>,
    ) -> Result<Arc<Mutation<T>>, StoreError> {
        let version = self.version(key, object)?;
        let uid = catch(|| object.uid().into())
            .map_err(|message| StoreError::other(format!("reading the UID of {key} {message}")))?;
        Ok(Arc::new(Mutation {
            version,
            uid,
            object: kept,
        }))
    }

    /// Returns the resource version as an integer. An empty one is 0 (M1).
    fn version(&self, key: &str, object: &T) -> Result<u64, StoreError> {
        let version = self.accessor.resource_version(object);
        let number = match version {
            None => None,
            Some("") => Some(0),
            // `parse` would accept a plus sign.
            Some(version) if version.starts_with('+') => None,
            Some(version) => version.parse().ok(),
        };
        number.ok_or_else(|| StoreError::ResourceVersion {
            key: key.into(),
            resource_version: version.map(Into::into),
        })
    }

    /// Whether the stored object is at least as new as the mutation. A stored object that cannot be
    /// compared counts as newer.
    fn supersedes(&self, key: &str, stored: &T, mutation: &Mutation<T>) -> bool {
        match self.version(key, stored) {
            Ok(version) => version >= mutation.version,
            Err(error) => {
                log::warn!("mutation cache: {error}; the stored object counts as newer");
                true
            }
        }
    }

    /// Runs `change` under the lock and drops the removed values after it.
    fn locked<R>(&self, change: impl FnOnce(&mut Lru<Mutation<T>>) -> R) -> R {
        let (result, gone) = {
            let mut overlay = self.overlay.lock();
            (change(&mut overlay), std::mem::take(&mut overlay.gone))
        };
        drop(gone);
        result
    }
}

/// Whether an object has this index value. `None` if the index function fails.
fn has_value<T>(
    function: &IndexFunc<T>,
    name: &str,
    value: &str,
    key: &Key,
    object: &T,
) -> Option<bool> {
    match function.values(object) {
        Ok(values) => Some(values.iter().any(|one| one == value)),
        Err(message) => {
            log::debug!("mutation cache: index function {name:?} on {key}: {message}");
            None
        }
    }
}

impl<T> fmt::Debug for MutationCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutationCache")
            .field("mutations", &self.overlay.lock().len())
            .field("include_adds", &self.include_adds)
            .finish_non_exhaustive()
    }
}

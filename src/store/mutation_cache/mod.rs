mod builder;
mod lru;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::sync::Arc;

pub use builder::MutationCacheBuilder;

use self::lru::Lru;
use super::{IndexError, IndexFunc, Indexer, Store, StoreError};
use crate::object::{Accessor, Deleted, Key, Object};
use crate::panic::catch;
use crate::sync::Mutex;
use crate::time::Clock;

/// A store as it will be once the watch has brought what you have written yourself. client-go's
/// `MutationCache`.
///
/// An informer's cache lags behind: who updates an object and reads it again from the cache at once sees the
/// old one, and may do the work twice. Hand each object that the server answered to a write of yours to
/// [`mutation`](Self::mutation), and read here instead of in the cache. Of what the cache has and what you
/// have handed in, the one with the higher resourceVersion is answered.
///
/// Tell it what the informer brings, too, by [`on_add_or_update`](Self::on_add_or_update) and
/// [`on_delete`](Self::on_delete) in a handler: else a mutation of an object that is gone, or that came and
/// went too fast for the watch, is answered until it is too old.
///
/// **What it guarantees.** It never answers an object with a lower resourceVersion than the store has. It
/// does not guarantee that you read what you wrote: mutations are bounded in
/// [number](MutationCacheBuilder::max_size) and [age](MutationCacheBuilder::ttl), and without
/// [`include_adds`](MutationCacheBuilder::include_adds) a key that the store hasn't got is not there, because
/// nobody can tell whether it is not there yet or not any more.
///
/// **resourceVersions** have to be whole numbers of up to 64 bits, as those of Kubernetes are; none at all
/// counts as 0. A mutation with another one is refused, where client-go panics when it comes to a comparison
/// (M1). An object of the store with another one counts as newer than any mutation.
///
/// **Blocking.** One lock guards the mutations. No user code runs under it, nothing is dropped under it, and
/// the store is read without it: nothing here waits for long, and nobody is woken. Reads cost one more lookup
/// than those of the store; those by index copy the list of mutations.
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
/// let indexer = Arc::new(Indexer::for_objects()); // of an informer: informer.indexer()
/// let pods = MutationCache::builder(Accessor::object(), indexer.clone()).indexer(indexer.clone()).build();
/// indexer.add(pod(7))?;
///
/// pods.mutation(pod(9))?; // what the server answered to an update
/// assert_eq!(pods.get_by_key("web")?, Some(pod(9)));
/// assert_eq!(pods.by_index("namespace", "")?, [pod(9)]);
///
/// indexer.update(pod(10))?; // the watch has caught up
/// assert_eq!(pods.get_by_key("web")?, Some(pod(10)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MutationCache<T> {
    accessor: Accessor<T>,
    store: Arc<dyn Store<T>>,
    indexer: Option<Arc<Indexer<T>>>,
    include_adds: bool,
    clock: Arc<dyn Clock>,
    /// Guards the mutations. Innermost: no other lock is taken under it, and only `locked` takes it. Nobody
    /// waits for a condition on it.
    ///
    /// Readers look here first and in the store second: a mutation that is not here any more because the
    /// store has caught up is then found there.
    overlay: Mutex<Lru<Mutation<T>>>,
}

/// One thing that the overlay knows.
struct Mutation<T> {
    version: u64,
    uid: Box<str>,
    /// `None`: what is known is that the object of this UID is gone, as of this version (M4).
    object: Option<Arc<T>>,
}

impl<T> MutationCache<T> {
    /// Over this store, whose keys the accessor makes too.
    pub fn builder(accessor: Accessor<T>, store: Arc<dyn Store<T>>) -> MutationCacheBuilder<T> {
        MutationCacheBuilder::new(accessor, store)
    }
}

impl<T: Object> MutationCache<T> {
    /// Remembers an object as the server answered it to a write (M1). Nothing happens if something newer of
    /// its key is remembered already, or that this object, by its UID, is gone.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if it has no key, [`StoreError::ResourceVersion`] if it can't be compared: it is
    /// not remembered, and what is remembered stays. Nothing is lost but the freshness: the watch will bring
    /// it.
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

    /// The newer of what the store has under this key and what was handed in for it (M2).
    ///
    /// A mutation that the store has caught up with is forgotten.
    ///
    /// # Errors
    ///
    /// What the store fails with, or that it panicked; an [`Indexer`] never does.
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

    /// The objects that have this value in an index, each as [`get_by_key`](Self::get_by_key) would answer
    /// it, in no order (M3).
    ///
    /// Of what the store has under this value; with [`include_adds`](MutationCacheBuilder::include_adds) also
    /// of what was handed in. So without it, an object that gets the value by a mutation is found once the
    /// store has it.
    ///
    /// An index function that fails on a mutation leaves it out, and if the store has the object under this
    /// value, that one is answered.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndexer`] if none was given; [`IndexError::NoIndex`].
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        let indexer = self.indexer.as_ref().ok_or(IndexError::NoIndexer)?;
        let function = indexer.index_func(name)?;
        let now = self.clock.now();
        let overlay = self.locked(|overlay| overlay.alive(now));
        let mut stored = indexer.index_entries(name, value)?;
        if overlay.is_empty() {
            return Ok(stored.into_iter().map(|(_, object)| object).collect());
        }
        // The order in which mutations are touched, as in client-go.
        stored.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
        let has = |key: &Key, object: &T| has_value(&function, name, value, key, object);
        let mutations: HashMap<&Key, &Arc<Mutation<T>>> = overlay
            .iter()
            .map(|(key, mutation)| (key, mutation))
            .collect();
        let mut objects = Vec::with_capacity(stored.len());
        let mut superseded = Vec::new();
        let mut met = Vec::new();
        for (key, stored) in &stored {
            match mutations.get(key).copied() {
                None => objects.push(Arc::clone(stored)),
                Some(mutation) if self.supersedes(key, stored, mutation) => {
                    superseded.push((key, mutation));
                    objects.push(Arc::clone(stored));
                }
                Some(mutation) => {
                    met.push((key, mutation));
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
                // The store may have it newer: without this value, or with it since a moment. It is not
                // forgotten for that: only reads by key are as thorough.
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
            met.iter()
                .for_each(|(key, mutation)| overlay.touch(key, mutation));
        });
        Ok(objects)
    }

    /// The store has this object now: a mutation that is not newer is forgotten (M4). For a handler of the
    /// informer that fills the store.
    ///
    /// # Errors
    ///
    /// As [`mutation`](Self::mutation): nothing is forgotten then.
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

    /// This object is gone from the store (M4). For a handler of the informer that fills the store.
    ///
    /// A mutation of it, by its UID, is forgotten, as is one that is not newer; then it is remembered that
    /// the object is gone, so that a mutation that is handed in late does not bring it back. Any other
    /// mutation stays: it may be of an object that was created anew. A tombstone without an object changes
    /// nothing.
    ///
    /// # Errors
    ///
    /// As [`mutation`](Self::mutation): nothing has changed then.
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

    /// What there is to know of an object, read under no lock.
    fn read(
        &self,
        key: &Key,
        object: &Arc<T>,
        kept: Option<Arc<T>>,
    ) -> Result<Arc<Mutation<T>>, StoreError> {
        let version = self.version(key, object)?;
        let uid = catch(|| object.uid().into())
            .map_err(|message| StoreError::other(format!("the UID of {key}: {message}")))?;
        Ok(Arc::new(Mutation {
            version,
            uid,
            object: kept,
        }))
    }

    /// The resourceVersion as a number; an empty one is 0 (M1).
    fn version(&self, key: &str, object: &T) -> Result<u64, StoreError> {
        let version = self.accessor.resource_version(object);
        let number = match version {
            None => None,
            Some("") => Some(0),
            // `parse` also takes a plus sign.
            Some(version) if version.starts_with('+') => None,
            Some(version) => version.parse().ok(),
        };
        number.ok_or_else(|| StoreError::ResourceVersion {
            key: key.into(),
            resource_version: version.map(Into::into),
        })
    }

    /// Whether the store has caught up. With an object that can't be compared it has.
    fn supersedes(&self, key: &str, stored: &T, mutation: &Mutation<T>) -> bool {
        match self.version(key, stored) {
            Ok(version) => version >= mutation.version,
            Err(error) => {
                log::warn!("mutation cache: {error}");
                true
            }
        }
    }

    /// Does something under the lock; what goes by it is dropped after it.
    fn locked<R>(&self, change: impl FnOnce(&mut Lru<Mutation<T>>) -> R) -> R {
        let (result, gone) = {
            let mut overlay = self.overlay.lock();
            (change(&mut overlay), std::mem::take(&mut overlay.gone))
        };
        drop(gone);
        result
    }
}

/// Whether a mutation has this value in an index; `None` if its index function fails.
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

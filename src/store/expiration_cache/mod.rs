mod options;
mod policy;

use std::sync::Arc;

pub use options::ExpirationCacheOptions;
pub use policy::TimestampedEntry;

use self::policy::Policy;
use super::{
    Indexers, KnownObjects, NewVersion, ReflectorStore, Store, StoreError, ThreadSafeStore,
};
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::log;
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::time::Clock;

/// A cache whose objects expire, usually some time after their last write. client-go's
/// `ExpirationCache`, with its `NewTTLStore` and `NewExpirationStore`.
///
/// Use it for values that must be fetched again after some time: responses of a cloud API, tokens,
/// negative results. Do not use it as the cache of an informer, whose objects must stay until the
/// server deletes them. Nor is it suited as the [known objects](KnownObjects) of a queue: lookups call
/// the policy and drop expired objects under the lock of the queue.
///
/// - Each write sets the timestamp of its object. An update therefore restarts the age, and a
///   replace gives all objects the same age.
/// - [`get`](Self::get), [`get_by_key`](Self::get_by_key) and [`list`](Self::list) never return an
///   expired object. They remove it. [`list_keys`](Self::list_keys) does not check for expiry.
/// - There is no background thread. An expired object occupies memory until it is read, or until
///   you call [`purge`](Self::purge). Call `purge` from time to time if you write many new keys and
///   read few of them.
/// - If an object is written while an older object with its key expires, the new object stays.
///
/// **Blocking.** The cache has one readers-writer lock, that of the [`ThreadSafeStore`] inside it,
/// which is held only for a lookup or one change. Key functions, policies and the destructors of
/// objects run without the lock. No call waits until the content changes.
///
/// ```
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::{ExpirationCache, ExpirationCacheOptions, ReflectorStore};
/// use k8s_informer_testing::FakeClock;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the default is the real clock
/// let options = ExpirationCacheOptions::new()
///     .ttl(Duration::from_secs(60))
///     .clock(Arc::new(clock.clone()));
/// let accessor = Accessor::new(|zone: &(&str, &str)| Ok(zone.0.into()));
/// let zones = ExpirationCache::with_options(accessor, options);
/// zones.add(Arc::new(("worker-1", "zone-a")))?;
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(zones.get_by_key("worker-1")?.unwrap().1, "zone-a");
/// clock.advance(Duration::from_nanos(1));
/// assert!(zones.get_by_key("worker-1")?.is_none());
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
pub struct ExpirationCache<T> {
    accessor: Accessor<T>,
    policy: Box<Policy<T>>,
    clock: Arc<dyn Clock>,
    /// The entries. This store has no resource version function, so adds and updates do not change
    /// the resource version (E5).
    storage: ThreadSafeStore<TimestampedEntry<T>>,
}

impl<T> ExpirationCache<T> {
    /// Creates an empty cache whose objects never expire.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::with_options(accessor, ExpirationCacheOptions::new())
    }

    /// Creates an empty cache.
    #[doc(alias = "NewTTLStore")]
    #[doc(alias = "NewExpirationStore")]
    pub fn with_options(accessor: Accessor<T>, options: ExpirationCacheOptions<T>) -> Self {
        let (policy, clock) = options.into_parts();
        Self {
            accessor,
            policy,
            clock,
            storage: ThreadSafeStore::new(Indexers::new()),
        }
    }

    /// Returns the object stored under `key`. An expired object is removed, and `None` is returned.
    ///
    /// # Errors
    ///
    /// Returns an error if the policy panics. The object then stays in the cache.
    pub fn get_by_key(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        match self.storage.get(key) {
            Some(entry) => self.unexpired(entry),
            None => Ok(None),
        }
    }

    /// Removes all expired objects. In client-go, listing does this.
    pub fn purge(&self) {
        drop(self.unexpired_objects());
    }

    fn unexpired_objects(&self) -> Vec<Arc<T>> {
        let entries = self.storage.list();
        let mut objects = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.unexpired(entry) {
                Ok(object) => objects.extend(object),
                Err(error) => log::error!("expiration cache: {error}; the object is not listed"),
            }
        }
        objects
    }

    /// Returns the object of an entry, or removes the entry if it has expired. If the key was
    /// written again meanwhile, the new entry is checked instead.
    fn unexpired(&self, mut entry: Arc<TimestampedEntry<T>>) -> Result<Option<Arc<T>>, StoreError> {
        loop {
            // The policy is user code and runs without the lock, so the entry may be written meanwhile.
            let expired = catch(|| (self.policy)(&entry)).map_err(|panicked| {
                let policy = format!("{}: the expiration policy", entry.key);
                StoreError::panicked(policy, panicked)
            })?;
            if !expired {
                return Ok(Some(Arc::clone(&entry.object)));
            }
            // Remove only what has been checked: a newer entry has another age.
            if self.storage.delete_same(&entry.key, &entry) {
                return Ok(None);
            }
            match self.storage.get(&entry.key) {
                Some(newer) => entry = newer,
                None => return Ok(None),
            }
        }
    }
}

impl<T: Send + Sync> ReflectorStore<T> for ExpirationCache<T> {
    /// Stores an object with the current time. It replaces the object with the same key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key. Then nothing has changed.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        let key = self.accessor.key(&object)?;
        let entry = TimestampedEntry {
            key: Key::clone(&key),
            object,
            timestamp: self.clock.now(),
        };
        self.storage.add(key, Arc::new(entry)).map(drop)
    }

    /// Stores an object, like [`add`](Self::add). This restarts its age.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Removes an object. The resource version becomes that of `gone`, even if the object is not
    /// stored. A tombstone leaves the resource version unchanged.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let version = match &gone {
            Deleted::Final(object) => NewVersion::of(self.accessor.resource_version(object)),
            Deleted::FinalStateUnknown { .. } => NewVersion::Unchanged,
        };
        self.storage.delete_versioned(&key, version);
        Ok(())
    }

    /// Replaces all objects and gives them the same timestamp. If several objects have the same
    /// key, the last one is stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if one of the objects has no key. Then nothing has changed.
    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let timestamp = self.clock.now();
        let stamped = |object: Arc<T>| {
            let key = self.accessor.key(&object)?;
            Ok((
                Key::clone(&key),
                Arc::new(TimestampedEntry {
                    key,
                    object,
                    timestamp,
                }),
            ))
        };
        let entries = objects
            .into_iter()
            .map(stamped)
            .collect::<Result<_, StoreError>>()?;
        self.storage.replace(entries, resource_version)
    }

    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.storage.bookmark(resource_version);
        Ok(())
    }
}

impl<T: Send + Sync> KnownObjects<T> for ExpirationCache<T> {
    /// Returns all keys in no particular order, including those of expired objects that have not
    /// been read since.
    fn list_keys(&self) -> Vec<Key> {
        self.storage.list_keys()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        self.get_by_key(key)
    }
}

impl<T: Send + Sync> Store<T> for ExpirationCache<T> {
    /// Returns all objects that have not expired, in no particular order, and removes the expired
    /// ones. If the policy panics for an object, the object is left out and stays in the cache, and
    /// an error is logged.
    fn list(&self) -> Vec<Arc<T>> {
        self.unexpired_objects()
    }

    /// Returns the object stored under the key of `object`, unless it has expired.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if `object` has no key. Otherwise as for
    /// [`get_by_key`](Self::get_by_key).
    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        self.get_by_key(&self.accessor.key(object)?)
    }

    /// Returns the resource version of the last replace, bookmark or deletion. Adds and updates do
    /// not change it. `None` at first.
    fn resource_version(&self) -> Option<ResourceVersion> {
        self.storage.resource_version()
    }
}

debug_fields!(ExpirationCache<T>: storage);

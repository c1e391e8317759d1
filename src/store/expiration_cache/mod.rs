mod builder;
mod policy;

use std::fmt;
use std::sync::Arc;

pub use builder::ExpirationCacheBuilder;
pub use policy::{ExpirationPolicy, TimestampedEntry, TtlPolicy};

use super::{KnownObjects, ReflectorStore, Store, StoreError, ThreadSafeStore};
use crate::object::{Accessor, Deleted, Key};
use crate::panic::catch;
use crate::time::Clock;

/// Objects that are forgotten when they have not been written for a while. client-go's `ExpirationCache`, its
/// `NewTTLStore` and `NewExpirationStore`.
///
/// Use it for what you look up and want to look up again after some time: the answers of a cloud's API,
/// tokens, negative results. Not for the cache of an informer, whose objects stay until the server says that
/// they are gone.
///
/// - Each write stamps its object with the time: an update makes it young again, a replace gives all its
///   objects one age (E1).
/// - [`get`](Self::get), [`get_by_key`](Self::get_by_key) and [`list`](Self::list) never answer an object
///   that has expired, and take it out. [`list_keys`](Self::list_keys) does not look (E3).
/// - Nothing runs in the background: an object that has expired takes its memory until it is read, or until
///   [`purge`](Self::purge) (E4). Who writes ever new keys and reads few of them calls that from time to
///   time.
/// - An object that is written while an older one of its key expires is not lost with it.
///
/// **Blocking.** One readers-writer lock, that of the [`ThreadSafeStore`] it is built on: nothing waits but
/// for a lookup or one change. Key functions, policies and the drop of objects run under no lock. Nobody
/// waits for anything to happen, so nobody is woken.
///
/// ```
/// use k8s_informer::testing::FakeClock;
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::{ExpirationCache, ReflectorStore};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let clock = FakeClock::new(); // the real one by default
/// let zones = ExpirationCache::builder(Accessor::new(|zone: &(&str, &str)| Ok(zone.0.into())))
///     .ttl(Duration::from_secs(60))
///     .clock(Arc::new(clock.clone()))
///     .build();
/// zones.add(Arc::new(("worker-1", "zone-a")))?;
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(zones.get_by_key("worker-1")?.unwrap().1, "zone-a");
/// clock.advance(Duration::from_nanos(1));
/// assert!(zones.get_by_key("worker-1")?.is_none());
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
pub struct ExpirationCache<T> {
    accessor: Accessor<T>,
    policy: Box<dyn ExpirationPolicy<T>>,
    clock: Arc<dyn Clock>,
    /// It is not told how to read a resourceVersion: what is written does not move it (E5).
    storage: ThreadSafeStore<TimestampedEntry<T>>,
}

impl<T> ExpirationCache<T> {
    /// Begins with the key function. Without more, nothing expires.
    pub fn builder(accessor: Accessor<T>) -> ExpirationCacheBuilder<T> {
        ExpirationCacheBuilder::new(accessor)
    }

    /// The object with this key, unless it has expired; then it is taken out (E3).
    ///
    /// # Errors
    ///
    /// If the policy panics: the object stays.
    pub fn get_by_key(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        match self.storage.get(key) {
            Some(entry) => self.unexpired(entry),
            None => Ok(None),
        }
    }

    /// Takes out whatever has expired: what client-go does by listing.
    pub fn purge(&self) {
        drop(self.unexpired_objects());
    }

    fn unexpired_objects(&self) -> Vec<Arc<T>> {
        let entries = self.storage.list();
        let mut objects = Vec::with_capacity(entries.len());
        for entry in entries {
            match self.unexpired(entry) {
                Ok(object) => objects.extend(object),
                Err(error) => log::error!("expiration cache: {error}"),
            }
        }
        objects
    }

    /// The object of an entry that has not expired. One that has is taken out, unless it was written again
    /// meanwhile: then it is about the new one.
    fn unexpired(&self, mut entry: Arc<TimestampedEntry<T>>) -> Result<Option<Arc<T>>, StoreError> {
        loop {
            let expired = catch(|| self.policy.is_expired(&entry)).map_err(|message| {
                StoreError::other(format!("the expiration policy on {}: {message}", entry.key))
            })?;
            if !expired {
                return Ok(Some(Arc::clone(&entry.object)));
            }
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
    /// Stores an object and stamps it, in place of the one with its key if there is one (E1).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if it has no key: nothing has changed then.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        let key = self.accessor.key(&object)?;
        let entry = TimestampedEntry {
            key: Arc::clone(&key),
            object,
            timestamp: self.clock.now(),
        };
        self.storage.add(key, Arc::new(entry)).map(drop)
    }

    /// The same as [`add`](Self::add): it is young again (E1).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Takes an object out. The resourceVersion becomes that of the object given, whether it was there or not
    /// (E5); a tombstone leaves it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let resource_version = match &gone {
            Deleted::Final(object) => self.accessor.resource_version(object),
            Deleted::FinalStateUnknown { .. } => None,
        };
        self.storage.delete_at(&key, resource_version);
        Ok(())
    }

    /// These are all the objects, all of one age (E1); of several with one key the last counts.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if one of them has no key: nothing has changed then.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        let timestamp = self.clock.now();
        let stamped = |object: Arc<T>| {
            let key = self.accessor.key(&object)?;
            Ok((
                Arc::clone(&key),
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

    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.storage.bookmark(resource_version);
        Ok(())
    }
}

impl<T: Send + Sync> KnownObjects<T> for ExpirationCache<T> {
    /// All keys, in no order, also of objects that have expired and were not read since (E3).
    fn list_keys(&self) -> Vec<Key> {
        self.storage.list_keys()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        self.get_by_key(key)
    }
}

impl<T: Send + Sync> Store<T> for ExpirationCache<T> {
    /// All objects that have not expired, in no order; those that have are taken out (E3). One on which the
    /// policy panics is left out, logged as an error, and stays.
    fn list(&self) -> Vec<Arc<T>> {
        self.unexpired_objects()
    }

    /// What is stored under the key of this object, unless it has expired (E3).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key; else as [`get_by_key`](Self::get_by_key).
    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        self.get_by_key(&self.accessor.key(object)?)
    }

    /// The resourceVersion of the last replace, bookmark or deletion; adds and updates don't move it (E5).
    /// Empty at first.
    fn last_store_sync_resource_version(&self) -> String {
        self.storage.last_store_sync_resource_version()
    }
}

impl<T> fmt::Debug for ExpirationCache<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ExpirationCache")
            .field(&self.storage)
            .finish()
    }
}

//! Caches that store objects by key, some of them with indexes.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`Indexer`] | stores objects by key, with indexes; the cache of an informer | `Indexer`, `cache` |
//! | [`Lister`], [`NamespaceLister`] | read an indexer | generated listers |
//! | [`ThreadSafeStore`] | an indexer without a key function | `ThreadSafeStore` |
//! | [`ExpirationCache`] | stores objects that expire some time after their last write | `ExpirationCache`, `NewTTLStore` |
//! | [`Store`] | the operations that an [`Indexer`] and an [`ExpirationCache`] have in common | `Store` |
//! | [`ReflectorStore`] | the operations that a reflector needs: stores and queues implement it | `ReflectorStore` |
//! | [`KnownObjects`] | the operations that a queue needs of the store of its consumer | `KeyListerGetter` |
//!
//! ```
//! use k8s_informer::Indexer;
//! use k8s_informer::object::Accessor;
//! use k8s_informer::store::{IndexFunc, Indexers};
//! use std::sync::Arc;
//!
//! let letter = IndexFunc::new(|word: &String| vec![word[..1].to_owned()]);
//! let accessor = Accessor::new(|word: &String| Ok(word.as_str().into()));
//! let words = Indexer::new(accessor, Indexers::new().with("letter", letter));
//! for word in ["pod", "node", "podcast"] {
//!     words.add(Arc::new(word.to_owned()))?;
//! }
//! assert_eq!(words.index_keys("letter", "p")?.len(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod expiration_cache;
mod index;
mod indexer;
mod lister;
mod pages;
mod parts;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod slots;
mod thread_safe_store;
mod transform;

use std::sync::Arc;

pub use crate::entry::Change;
use crate::entry::{Entry, Staging};
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;

pub use error::{AddIndexersError, FunctionError, IndexError, StoreError, TransactionError};
pub use expiration_cache::{ExpirationCache, ExpirationCacheOptions, TimestampedEntry};
use index::NAMESPACE_INDEX;
pub(crate) use index::{Computed, FailedIndex};
pub use index::{IndexFunc, Indexers};
pub use indexer::Indexer;
pub use lister::{Lister, NamespaceLister};
pub(crate) use slots::Slots;
pub use thread_safe_store::ThreadSafeStore;
use thread_safe_store::{Action, NewVersion, Write};
pub(crate) use thread_safe_store::{Frozen, IndexFunctions, SlowTransaction, Written};
pub use transform::Transform;

/// The destination of a reflector: a queue or a store. client-go's `ReflectorStore`.
///
/// The reflector reports changes in the order in which the server sent them. The methods must not
/// block for long, because the watch waits for them.
///
/// A custom store, like a [`Fifo`](crate::queue::Fifo), differs from an [`Indexer`] and the other
/// queues of this crate:
///
/// - The reflector takes `namespace/name` for the key of an object. It remembers the keys that it has
///   written, but no objects.
/// - The reflector collects a whole list before it calls [`replace`](Self::replace).
/// - Each list decodes all objects again, also the unchanged ones.
/// - If a list has objects that cannot be read, the copies of a custom store are kept by
///   [`replace_partly`](Self::replace_partly). Before the first list of a reflector, a custom store
///   counts as empty.
/// - Tombstones have no last known state.
///
/// ```
/// use k8s_informer::object::ResourceVersion;
/// use k8s_informer::reflector::{Reflector, ReflectorOptions};
/// use k8s_informer::store::{ReflectorStore, StoreError};
/// use k8s_informer::{Deleted, DynamicObject, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::time::Duration;
///
/// /// A store that only counts its objects.
/// #[derive(Default)]
/// struct Count(AtomicUsize);
///
/// impl ReflectorStore<DynamicObject> for Count {
///     fn add(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         Ok(())
///     }
///     fn update(&self, _: Arc<DynamicObject>) -> Result<(), StoreError> {
///         Ok(())
///     }
///     fn delete(&self, _: Deleted<DynamicObject>) -> Result<(), StoreError> {
///         self.0.fetch_sub(1, Ordering::Relaxed);
///         Ok(())
///     }
///     fn replace(
///         &self,
///         objects: Vec<Arc<DynamicObject>>,
///         _: Option<ResourceVersion>,
///     ) -> Result<(), StoreError> {
///         self.0.store(objects.len(), Ordering::Relaxed);
///         Ok(())
///     }
/// }
///
/// let script = ScriptedListerWatcher::new([
///     Answer::body(r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#),
///     Answer::open(r#"{"type": "ADDED", "object": {"metadata": {"name": "b", "resourceVersion": "8"}}}"#),
/// ]);
/// let count = Arc::new(Count::default());
/// let reflector = Reflector::new(Arc::new(script.clone()), count.clone(), ReflectorOptions::default());
/// let stop = Stopper::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| reflector.run(&stop));
///     script.wait_for_bodies(2, Duration::from_secs(10)).unwrap();
///     stop.stop();
/// });
/// assert_eq!(count.0.load(Ordering::Relaxed), 2);
/// ```
pub trait ReflectorStore<T>: Send + Sync {
    /// Stores or queues an object that was added.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector reports the error and continues.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError>;

    /// Stores or queues an object that was modified.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError>;

    /// Removes an object that was deleted, or queues its deletion.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn delete(&self, object: Deleted<T>) -> Result<(), StoreError>;

    /// Replaces the whole content with `objects`, the complete list at `resource_version`. If the
    /// list has objects that cannot be read, and the store has none of them, they are missing in
    /// `objects`.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector lists again.
    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError>;

    /// Replaces the content except for objects that the list has but that cannot be read. They still
    /// exist, so the store keeps its copies.
    ///
    /// `changes` lead from what the store has to the list: [`Change::Add`] for a new object,
    /// [`Change::Update`] for one that the store has, changed or not, and [`Change::Delete`] for one
    /// that no longer exists. The objects to keep are in none of them. If not even the key of an
    /// unreadable object is known, nothing is deleted. The last change is a [`Change::Bookmark`] with
    /// the version of the list.
    ///
    /// The default applies the changes one by one. Override it to apply them in one step. An
    /// [`Indexer`], a [`DeltaFifo`](crate::queue::DeltaFifo) and a
    /// [`RealFifo`](crate::queue::RealFifo) do not use this method.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector lists again. The default returns
    /// the first error of a change, and leaves out the later changes.
    fn replace_partly(&self, changes: Vec<Change<T>>) -> Result<(), StoreError> {
        changes.into_iter().try_for_each(|change| match change {
            Change::Add(object) => self.add(object),
            Change::Update(object) => self.update(object),
            Change::Delete(gone) => self.delete(gone),
            Change::Bookmark(version) => self.bookmark(version),
        })
    }

    /// Delivers all objects to the consumer again. The default does nothing, because a store has no
    /// consumer.
    ///
    /// # Errors
    ///
    /// The implementation defines when this fails. The reflector ends its watch and lists again.
    fn resync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Records that all changes up to `resource_version` have been delivered. The default does
    /// nothing.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        let _ = resource_version;
        Ok(())
    }

    /// Returns the interface through which a reflector passes lists to the stores of this crate,
    /// object by object.
    #[doc(hidden)]
    fn staging(&self) -> Option<&dyn Staging<T>> {
        None
    }
}

/// Read access of a queue to the store that its consumer fills. client-go's `KeyListerGetter`.
///
/// An [`Indexer`] is the usual one. Implement it if the consumer keeps its objects
/// elsewhere. The queue uses it to find objects that are missing from a list, and to deliver all
/// objects again at a resync.
///
/// A queue calls it on the thread that deletes, replaces, resyncs or pops, while no other thread
/// can write or pop. [`DeltaFifo`](crate::queue::DeltaFifo) calls it under its lock.
/// The lookups of a reflector are an exception: they run on its thread, while other threads may
/// write and pop. The methods must return at once and must not call the queue. The
/// queue catches a panic in them. A write or a resync returns the panic as an error.
///
/// ```
/// use k8s_informer::object::{Accessor, Key, ResourceVersion};
/// use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Queue};
/// use k8s_informer::store::{KnownObjects, ReflectorStore, StoreError};
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// /// A map that the consumer keeps.
/// struct Words(Mutex<HashMap<Key, Arc<String>>>);
///
/// impl KnownObjects<String> for Words {
///     fn list_keys(&self) -> Vec<Key> {
///         self.0.lock().unwrap().keys().cloned().collect()
///     }
///     fn lookup(&self, key: &str) -> Result<Option<Arc<String>>, StoreError> {
///         Ok(self.0.lock().unwrap().get(key).cloned())
///     }
/// }
///
/// let known = Words(Mutex::new(HashMap::from([("pod".into(), Arc::new("pod".to_owned()))])));
/// let accessor = Accessor::new(|word: &String| Ok(word.as_str().into()));
/// let options = DeltaFifoOptions::new().known_objects(Arc::new(known));
/// let queue = DeltaFifo::with_options(accessor, options);
/// queue.replace(Vec::new(), ResourceVersion::new("7"))?; // the server has no objects left
/// let deltas = queue.pop(&mut |_, _| Ok(()))?;
/// assert!(matches!(deltas.newest(), Some(Delta::Deleted { gone, .. }) if gone.is_final_state_unknown()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "KeyListerGetter")]
pub trait KnownObjects<T>: Send + Sync {
    /// Returns the keys of all objects.
    fn list_keys(&self) -> Vec<Key>;

    /// Returns the object stored under `key`, or `None`. client-go's `GetByKey`.
    ///
    /// # Errors
    ///
    /// Returns an error if the lookup fails. Among the stores of this crate, only an
    /// [`ExpirationCache`] can fail: when its policy panics.
    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError>;

    /// Returns the entry of the object stored under `key`.
    #[doc(hidden)]
    fn entry(&self, key: &str) -> Option<Entry<T>> {
        let object = self.lookup(key).ok()??;
        Some(Entry::new(key.into(), object))
    }
}

/// A store that a reflector or controller writes to and any thread reads. client-go's `Store`.
///
/// Use an `Arc<dyn Store<T>>` where the kind of store does not matter: an [`Indexer`], an
/// [`ExpirationCache`] or a custom one. Its methods are those of [`ReflectorStore`], which write,
/// those of [`KnownObjects`], which read keys, and the ones below. A custom store of a
/// [`Reflector`](crate::reflector::Reflector) need not be readable; it implements only
/// [`ReflectorStore`].
///
/// The stores of this crate have these properties:
///
/// - Add and update do the same.
/// - Deleting an object that is not stored is not an error.
/// - A replace that fails changes nothing.
/// - A resync does nothing.
/// - Objects are shared, not copied. Lists have no particular order.
/// - No user code runs under their locks, so locks are held only briefly. No call waits until the
///   content changes.
///
/// ```
/// use k8s_informer::{Deleted, Indexer};
/// use k8s_informer::object::{Accessor, ResourceVersion};
/// use k8s_informer::store::{Change, Indexers, Store};
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|word: &String| Ok(word.as_str().into()));
/// let store: Arc<dyn Store<String>> = Arc::new(Indexer::new(accessor, Indexers::new()));
/// let (pod, node) = (Arc::new("pod".to_owned()), Arc::new("node".to_owned()));
/// store.add(Arc::clone(&pod))?;
/// store.transaction(vec![Change::Add(Arc::clone(&node)), Change::Delete(Deleted::Final(pod))])?;
/// assert_eq!(store.list(), [Arc::clone(&node)]);
/// assert_eq!(store.list_keys(), ["node"]);
/// assert_eq!(store.get_by_key("node")?, store.get(&node)?);
/// store.bookmark(ResourceVersion::new("7"))?;
/// assert_eq!(store.resource_version(), ResourceVersion::new("7"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store<T>: ReflectorStore<T> + KnownObjects<T> {
    /// Returns all objects in no particular order.
    fn list(&self) -> Vec<Arc<T>>;

    /// Returns the object stored under the key of `object`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if `object` has no key. Otherwise as for
    /// [`get_by_key`](Self::get_by_key).
    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError>;

    /// Returns the object stored under `key`. The same as [`lookup`](KnownObjects::lookup), under the
    /// name that stores have.
    ///
    /// # Errors
    ///
    /// As for [`lookup`](KnownObjects::lookup).
    fn get_by_key(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        self.lookup(key)
    }

    /// Returns the resource version of the newest write that has one. The store defines which writes
    /// have one. `None` before the first such write. The default always returns `None`, for a store
    /// that does not track versions.
    #[doc(alias = "LastStoreSyncResourceVersion")]
    fn resource_version(&self) -> Option<ResourceVersion> {
        None
    }

    /// Applies several changes in order, as one atomic step. A read sees all of them or none.
    /// client-go's `TransactionStore`.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] lists the changes that failed. The others have been applied. The
    /// default implementation, for stores without transactions, applies none.
    fn transaction(&self, changes: Vec<Change<T>>) -> Result<(), TransactionError> {
        Err(TransactionError {
            successful: Vec::new(),
            total: changes.len(),
            errors: vec![StoreError::other("transaction not supported")],
        })
    }
}

//! Caches: objects by key, and indices over them.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`Indexer`] | objects by key with indices; the cache of an informer | `Indexer`, `cache` |
//! | [`Lister`], [`NamespaceLister`] | read an indexer | generated listers |
//! | [`Store`] | what every cache offers | `Store` |
//! | [`ReflectorStore`] | the least that a reflector can write to: caches and queues | `ReflectorStore` |
//! | [`ThreadSafeStore`] | an indexer without a key function | `ThreadSafeStore` |
//! | [`ExpirationCache`] | drops entries after a time | `ExpirationCache` |
//! | [`MutationCache`] | shows your own writes before the watch delivers them | `MutationCache` |
//! | [`UndeltaStore`] | calls a closure with the whole content after every change | `UndeltaStore` |
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
mod mutation_cache;
mod parts;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod slots;
mod staging;
mod thread_safe_store;
mod transform;
mod undelta_store;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::object::{Deleted, Key};

pub use error::{AddIndexersError, IndexError, Rejected, StoreError, TransactionError};
pub use expiration_cache::{
    ExpirationCache, ExpirationCacheBuilder, ExpirationPolicy, TimestampedEntry, TtlPolicy,
};
pub use index::{IndexFunc, Indexers, NAMESPACE_INDEX, meta_namespace_index};
pub use indexer::Indexer;
pub use lister::{Lister, NamespaceLister};
pub use mutation_cache::{MutationCache, MutationCacheBuilder};
pub use staging::{Gaps, StagedList, Staging};
pub use thread_safe_store::ThreadSafeStore;
pub use transform::Transform;
pub use undelta_store::UndeltaStore;

/// What a reflector writes to: the least that a queue or a store has to be. client-go's `ReflectorStore`.
///
/// Each call is one fact from the server, in the order in which the server told them. None of them may wait
/// for long: the watch waits with it.
///
/// ```
/// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
/// use k8s_informer::{Deleted, DynamicObject, Stop};
/// use k8s_informer::reflector::{Reflector, ReflectorOptions};
/// use k8s_informer::store::{ReflectorStore, StoreError};
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// /// Keeps nothing but how many objects there are.
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
///     fn replace(&self, objects: Vec<Arc<DynamicObject>>, _: &str) -> Result<(), StoreError> {
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
/// let stop = Stop::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| reflector.run(&stop));
///     assert!(script.until_read(2, Duration::from_secs(10)));
///     stop.stop();
/// });
/// assert_eq!(count.0.load(Ordering::Relaxed), 2);
/// ```
pub trait ReflectorStore<T>: Send + Sync {
    /// An object appeared.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector logs it and goes on.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError>;

    /// An object changed.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError>;

    /// An object is gone.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn delete(&self, object: Deleted<T>) -> Result<(), StoreError>;

    /// These are all the objects there are, as of this resourceVersion.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector lists again.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError>;

    /// Tell the consumer about everything once more. A store has nobody to tell.
    ///
    /// # Errors
    ///
    /// As the implementation says; the reflector ends its watch and lists again.
    fn resync(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Everything up to this resourceVersion has been told.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        let _ = resource_version;
        Ok(())
    }

    /// Applies changes in their order, and removes each from `changes`. A reflector calls it with everything that
    /// it got from one read.
    ///
    /// The default calls the methods above one by one. A queue can take all changes under one lock, and wake its
    /// consumer once.
    ///
    /// ```
    /// use k8s_informer::object::{Accessor, KeyError};
    /// use k8s_informer::queue::DeltaFifo;
    /// use k8s_informer::store::{Change, ReflectorStore};
    /// use std::collections::VecDeque;
    /// use std::sync::Arc;
    ///
    /// let queue = DeltaFifo::new(Accessor::new(|word: &String| match word.as_str() {
    ///     "" => Err(KeyError::new("an empty word")),
    ///     word => Ok(word.into()),
    /// }));
    /// let words = ["a", "", "b"].map(|word| Change::Add(Arc::new(word.to_owned())));
    /// let mut changes = VecDeque::from(words);
    /// let mut rejected = Vec::new();
    /// while let Err(error) = queue.apply(&mut changes) {
    ///     rejected.push(error);
    /// }
    /// assert_eq!((queue.list_keys().len(), rejected.len()), (2, 1));
    /// assert!(matches!(&rejected[0].change, Some(Change::Add(word)) if word.is_empty()));
    /// ```
    ///
    /// # Errors
    ///
    /// [`Rejected`] is about the first change that failed. It has been removed, the ones before it have been applied,
    /// and the ones behind it are still in `changes`: call again to go on.
    fn apply(&self, changes: &mut VecDeque<Change<T>>) -> Result<(), Rejected<T>> {
        while let Some(change) = changes.pop_front() {
            let result = match change.clone() {
                Change::Add(object) => self.add(object),
                Change::Update(object) => self.update(object),
                Change::Delete(gone) => self.delete(gone),
                Change::Bookmark(version) => self.bookmark(&version),
            };
            result.map_err(|error| Rejected::new(change, error))?;
        }
        Ok(())
    }

    /// How lists are read into it object by object. Without that, which is the default, a list is held whole
    /// before it gets here, and fails as a whole if one of its objects can't be read.
    ///
    /// Among others it is what client-go's `TransformingStore` is for: objects are transformed as they come.
    fn staging(&self) -> Option<&dyn Staging<T>> {
        None
    }
}

/// What a queue asks of the store that its consumer fills: client-go's `KeyListerGetter`.
///
/// Every store of this crate is one. Implement it if the consumer keeps its objects elsewhere: from it a
/// queue learns what a list leaves out, and what to tell again at a resync.
///
/// A queue calls it while no other thread can write or pop ([`DeltaFifo`](crate::queue::DeltaFifo) under its lock), on the
/// thread that deletes, replaces, resyncs or pops. It must return at once and must not call the queue. A panic becomes an
/// error of the queue.
///
/// ```
/// use k8s_informer::object::{Accessor, Key};
/// use k8s_informer::queue::{Delta, DeltaFifo, Queue};
/// use k8s_informer::store::{KnownObjects, ReflectorStore, StoreError};
/// use std::collections::HashMap;
/// use std::sync::{Arc, Mutex};
///
/// /// The consumer's own map.
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
/// let queue = DeltaFifo::builder(accessor).known_objects(Arc::new(known)).build();
/// queue.replace(Vec::new(), "7")?; // the server has nothing any more
/// let deltas = queue.pop(&mut |_, _| Ok(()))?;
/// assert!(matches!(deltas.newest(), Some(Delta::Deleted(gone)) if gone.is_final_state_unknown()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "KeyListerGetter")]
pub trait KnownObjects<T>: Send + Sync {
    /// The keys of all objects.
    fn list_keys(&self) -> Vec<Key>;

    /// Returns the object stored under `key`, or `None`. client-go's `GetByKey`.
    ///
    /// # Errors
    ///
    /// Returns an error if the lookup fails. In the stores of this crate only a policy of an [`ExpirationCache`] can
    /// fail.
    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError>;
}

/// A whole store: written by a reflector or a controller, read by anyone. client-go's `Store`.
///
/// Ask for an `Arc<dyn Store<T>>` where it is all the same which one it is: [`Indexer`], [`ExpirationCache`],
/// [`UndeltaStore`] or one of yours. Their implementations document what else these operations do.
///
/// What holds for those of this crate: an add and an update are the same, a deletion of what is not there is
/// no error (S2), a replace that fails has replaced nothing (S4), and objects are shared, not copied, in an
/// order that means nothing (S11). No user code runs while they are locked, so no call waits for long; and
/// nobody waits for something to happen in a store, so no call wakes anybody.
///
/// ```
/// use k8s_informer::{Deleted, Indexer};
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::{Change, Indexers, Store};
/// use std::sync::Arc;
///
/// let accessor = Accessor::new(|word: &String| Ok(word.as_str().into()));
/// let store: Arc<dyn Store<String>> = Arc::new(Indexer::new(accessor, Indexers::new()));
/// let (pod, node) = (Arc::new("pod".to_owned()), Arc::new("node".to_owned()));
/// store.add(Arc::clone(&pod))?;
/// store.transaction(vec![Change::Add(Arc::clone(&node)), Change::Delete(Deleted::Final(pod))])?;
/// assert_eq!(store.list(), [Arc::clone(&node)]);
/// store.bookmark("7")?;
/// assert_eq!(store.last_store_sync_resource_version(), "7");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Store<T>: ReflectorStore<T> + KnownObjects<T> {
    /// All objects, in no order.
    fn list(&self) -> Vec<Arc<T>>;

    /// What is stored under the key of this object.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError>;

    /// The resourceVersion of the last thing that was written, empty at first.
    fn last_store_sync_resource_version(&self) -> String;

    /// Makes several changes at once, in their order: reads of one point in time see all of them or none. A
    /// [`ThreadSafeStore`] says which reads of an [`Indexer`] are that.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] tells the changes that were not made; the others have been. A store without
    /// transactions makes none (S7).
    fn transaction(&self, changes: Vec<Change<T>>) -> Result<(), TransactionError> {
        Err(TransactionError {
            successful: Vec::new(),
            total: changes.len(),
            errors: vec![StoreError::other("this store has no transactions")],
        })
    }
}

/// One change of a store: see [`ReflectorStore::apply`] and [`Store::transaction`]. client-go's `Transaction`.
#[derive(Debug)]
pub enum Change<T> {
    /// An object appeared.
    Add(Arc<T>),
    /// An object changed.
    Update(Arc<T>),
    /// An object is gone.
    Delete(Deleted<T>),
    /// All changes up to this resourceVersion have been sent.
    Bookmark(String),
}

impl<T> Change<T> {
    /// Whether it brings an object.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Update(_))
    }
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Add(object) => Self::Add(Arc::clone(object)),
            Self::Update(object) => Self::Update(Arc::clone(object)),
            Self::Delete(gone) => Self::Delete(gone.clone()),
            Self::Bookmark(version) => Self::Bookmark(version.clone()),
        }
    }
}

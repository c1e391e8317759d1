use std::fmt;
use std::sync::Arc;

use super::{Indexer, Indexers, KnownObjects, ReflectorStore, Store, StoreError};
use crate::log;
use crate::object::{Accessor, Deleted, Key};
use crate::panic::catch;
use crate::sync::Mutex;

type PushFn<T> = dyn Fn(Vec<Arc<T>>) + Send + Sync;

/// A store that passes its whole content to a push function after every change. client-go's
/// `UndeltaStore`.
///
/// Use it with a [`Reflector`](crate::reflector::Reflector) if you only need the complete set of
/// objects, for example to write a configuration file from all Services. It does not suit many
/// objects that change often, because every change lists all objects.
///
/// - Every successful [`add`](Self::add), [`update`](Self::update), [`delete`](Self::delete) and
///   [`replace`](Self::replace) is followed by a push that includes it, even if it changed nothing.
///   Bookmarks and resyncs do not push.
/// - Pushes run one at a time. Each list is the content at one point in time, and the last pushed
///   list equals the content of the store.
/// - A write normally pushes before it returns. If another thread is pushing, or if the push
///   function itself makes the write, the running push is followed by another one. That push may
///   cover several writes.
/// - A panic of the push function is logged as an error. The write still succeeds, because it
///   cannot be undone and listing again would not help. The next change pushes the whole content
///   again.
///
/// **Blocking.** A write blocks while it runs the push function. No lock is held meanwhile, so
/// reads and the writes of other threads continue. Besides the lock of the store, a second lock
/// guards the state of the push. No thread waits for that state to change.
///
/// ```
/// use k8s_informer::Deleted;
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::{ReflectorStore, UndeltaStore};
/// use std::sync::{Arc, mpsc};
///
/// let (sender, pushed) = mpsc::channel();
/// let accessor = Accessor::new(|word: &String| Ok(word.as_str().into()));
/// let store = UndeltaStore::new(accessor, move |words| drop(sender.send(words)));
/// let word = Arc::new("pod".to_owned());
/// store.add(Arc::clone(&word))?;
/// assert_eq!(pushed.try_recv()?, [Arc::clone(&word)]);
/// store.delete(Deleted::Final(word))?;
/// assert!(pushed.try_recv()?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct UndeltaStore<T> {
    store: Indexer<T>,
    push: Box<PushFn<T>>,
    /// Guards which thread pushes. Innermost lock: it is held only to read and change the state,
    /// never during a push. No thread waits until the state changes: a thread that finds a push
    /// running sets `PushingAgain` and returns.
    push_state: Mutex<PushState>,
}

#[derive(Clone, Copy, PartialEq)]
enum PushState {
    Idle,
    /// A thread lists and pushes.
    Pushing,
    /// A write happened during the push, so the pushing thread must push again.
    PushingAgain,
}

impl<T: 'static> UndeltaStore<T> {
    /// Creates an empty store. It calls `push` with all objects after every change, in no
    /// particular order.
    pub fn new(accessor: Accessor<T>, push: impl Fn(Vec<Arc<T>>) + Send + Sync + 'static) -> Self {
        Self {
            store: Indexer::new(accessor, Indexers::new()),
            push: Box::new(push),
            push_state: Mutex::new(PushState::Idle),
        }
    }
}

impl<T> UndeltaStore<T> {
    /// Returns the object stored under `key`.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.store.get_by_key(key)
    }

    /// Makes sure that the last write is pushed, on this thread or on the thread that is pushing.
    fn pushed(&self) {
        {
            let mut push_state = self.push_state.lock();
            if *push_state != PushState::Idle {
                *push_state = PushState::PushingAgain;
                return;
            }
            *push_state = PushState::Pushing;
        }
        loop {
            let objects = self.store.snapshot().0;
            if let Err(message) = catch(|| (self.push)(objects)) {
                // The logger may panic as well. There is nothing left to do then.
                drop(catch(|| {
                    log::error!("the push function of an UndeltaStore {message}");
                }));
            }
            let mut push_state = self.push_state.lock();
            if *push_state == PushState::Pushing {
                *push_state = PushState::Idle;
                return;
            }
            *push_state = PushState::Pushing;
        }
    }
}

impl<T: Send + Sync> ReflectorStore<T> for UndeltaStore<T> {
    /// Stores an object and pushes. It replaces the object with the same key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key. Then nothing has changed, and nothing is
    /// pushed.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.store.add(object)?;
        self.pushed();
        Ok(())
    }

    /// Stores an object and pushes, like [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Removes an object and pushes, even if the object is not stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key. Then nothing has changed, and nothing is
    /// pushed.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.store.delete(gone)?;
        self.pushed();
        Ok(())
    }

    /// Replaces all objects and pushes once. If several objects have the same key, the last one is
    /// stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if one of the objects has no key. Then nothing has changed, and nothing
    /// is pushed.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        self.store.replace(objects, resource_version)?;
        self.pushed();
        Ok(())
    }

    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.store.bookmark(resource_version)
    }
}

impl<T: Send + Sync> KnownObjects<T> for UndeltaStore<T> {
    /// Returns all keys in no particular order.
    fn list_keys(&self) -> Vec<Key> {
        self.store.list_keys()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.get_by_key(key))
    }
}

impl<T: Send + Sync> Store<T> for UndeltaStore<T> {
    /// Returns all objects in no particular order.
    fn list(&self) -> Vec<Arc<T>> {
        self.store.list()
    }

    /// Returns the object stored under the key of `object`.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if `object` has no key.
    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        self.store.get(object)
    }

    /// Returns the resource version of the last write. It may be older than the version of an
    /// earlier write. It is empty before the first write.
    fn last_store_sync_resource_version(&self) -> String {
        self.store.last_store_sync_resource_version()
    }
}

impl<T> fmt::Debug for UndeltaStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UndeltaStore").field(&self.store).finish()
    }
}

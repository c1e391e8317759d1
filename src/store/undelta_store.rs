use std::fmt;
use std::sync::Arc;

use super::{Indexer, Indexers, KnownObjects, ReflectorStore, Store, StoreError};
use crate::object::{Accessor, Deleted, Key};
use crate::panic::catch;
use crate::sync::Mutex;

type PushFn<T> = dyn Fn(Vec<Arc<T>>) + Send + Sync;

/// Tells one function everything there is, after each change. client-go's `UndeltaStore`.
///
/// Use it under a [`Reflector`](crate::reflector::Reflector) when you only ever want the whole: to write a
/// configuration file from all Services, say. For many objects that change often it is the wrong thing: each
/// change costs a list of all.
///
/// - Each [`add`](Self::add), [`update`](Self::update), [`delete`](Self::delete) and
///   [`replace`](Self::replace) that did not fail is followed by a push that holds it, also if it changed
///   nothing (S10). Bookmarks and resyncs push nothing.
/// - Pushes come one at a time, and each list is one point in time: the last one pushed is what the store
///   has. The write pushes before it returns, unless a push is under way on another thread, or this write is
///   made by the push function itself: then the push is left to who is pushing, and one may stand for several
///   writes.
/// - A panic of the push function is logged as an error. The write stands and succeeds: there is nothing to
///   undo, and whoever mirrors a server would list again in vain. The next change pushes everything anyway.
///
/// **Blocking.** A write takes as long as the push function does. No lock is held while that runs: reads go
/// on, and so do writes of other threads. Beside the store's lock there is one for whose turn it is to push;
/// nobody waits on it.
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
    /// Whose turn it is to push. Innermost: held for a look and a change of it, never while something is
    /// pushed. Nobody waits for it to change: who finds a push under way leaves word and goes.
    push_state: Mutex<PushState>,
}

#[derive(Clone, Copy, PartialEq)]
enum PushState {
    Idle,
    /// Some thread lists and pushes.
    Pushing,
    /// And it has to do so again: something was written meanwhile.
    PushingAgain,
}

impl<T: 'static> UndeltaStore<T> {
    /// An empty one; `push` is given the whole content after each change, in no order.
    pub fn new(accessor: Accessor<T>, push: impl Fn(Vec<Arc<T>>) + Send + Sync + 'static) -> Self {
        Self {
            store: Indexer::new(accessor, Indexers::new()),
            push: Box::new(push),
            push_state: Mutex::new(PushState::Idle),
        }
    }
}

impl<T> UndeltaStore<T> {
    /// The object with this key.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.store.get_by_key(key)
    }

    /// Sees to it that what has just been written is pushed.
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
            let everything = self.store.snapshot().0;
            if let Err(message) = catch(|| (self.push)(everything)) {
                // If the logger panics too, nobody is left to tell.
                drop(catch(|| {
                    log::error!("the push function of an UndeltaStore: {message}");
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
    /// Stores an object, in place of the one with its key if there is one, and pushes.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if it has no key: nothing has changed then, and nothing is pushed.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.store.add(object)?;
        self.pushed();
        Ok(())
    }

    /// The same as [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Takes an object out, and pushes, also if it was not there.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if it has no key: nothing has changed then, and nothing is pushed.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.store.delete(gone)?;
        self.pushed();
        Ok(())
    }

    /// These are all the objects, of several with one key the last; pushes once.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if one of them has no key: nothing has changed then, and nothing is pushed.
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
    /// All keys, in no order.
    fn list_keys(&self) -> Vec<Key> {
        self.store.list_keys()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.get_by_key(key))
    }
}

impl<T: Send + Sync> Store<T> for UndeltaStore<T> {
    /// All objects, in no order.
    fn list(&self) -> Vec<Arc<T>> {
        self.store.list()
    }

    /// What is stored under the key of this object.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key.
    fn get(&self, object: &T) -> Result<Option<Arc<T>>, StoreError> {
        self.store.get(object)
    }

    /// The resourceVersion of the last thing that was written; it may go back (X9). Empty at first.
    fn last_store_sync_resource_version(&self) -> String {
        self.store.last_store_sync_resource_version()
    }
}

impl<T> fmt::Debug for UndeltaStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("UndeltaStore").field(&self.store).finish()
    }
}

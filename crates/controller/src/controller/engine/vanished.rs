//! The objects that a server has removed although the finalizer of the controller held them.
//!
//! A DELETE that has read an object before a finalizer was added can remove it all the same
//! (kubernetes/kubernetes#77988). Its cleanup would never run. Such an object has *vanished*: the last
//! state that the server stored has the finalizer and no `deletionTimestamp`. In each other deletion of
//! an object with the finalizer, the last state has one.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::controller::call::core::Core;
use crate::log;
use crate::metrics::LastState;
use k8s_informer::object::{Key, Object, ResourceVersion, meta_namespace_key};
use k8s_informer::workqueue::{AnyWorkQueue, PriorityQueue};

/// Whether the finalizer of the controller holds an object that is not being deleted.
pub(crate) type IsHeld<T> = Arc<dyn Fn(&T) -> bool + Send + Sync>;

/// The vanished objects of a term, until their cleanups have ended.
///
/// Nothing is known about the time before the term: another leader may have cleaned up.
///
/// For each primary object of a controller with a finalizer, it takes the memory of a key and of an
/// entry in a tree.
pub(crate) struct VanishedObjects {
    core: Arc<Core>,
    queue: Arc<PriorityQueue<Key>>,
    /// The version of the cache when the barrier had proven it current. Later states were cached in
    /// this term. Empty before.
    proven: OnceLock<ResourceVersion>,
    /// Keyed at random, so that no object can be made to have the hash of another one.
    hasher: RandomState,
    /// An innermost lock: no user code runs and nothing of the user is dropped while it is held.
    state: Mutex<State>,
}

/// Its collections are trees, which give memory back after a peak.
#[derive(Default)]
struct State {
    /// By key. An object can be created again and vanish again before its first cleanup.
    vanished: BTreeMap<Key, VecDeque<Vanished>>,
    /// What the handler has got last. The cache is ahead of it.
    delivered: BTreeMap<Key, Delivered>,
    /// The responses to patches that have added the finalizer, while the handler lacks them.
    added: BTreeMap<Key, Erased>,
    /// The hashes of the UIDs of missed objects that had no finalizer. The response to a patch that has
    /// added it may be on its way.
    missed: BTreeMap<Key, u64>,
    /// Whether the term has ended.
    is_over: bool,
}

/// An object that the handler has got.
struct Delivered {
    /// The hash of its UID.
    uid: u64,
    /// Whether a call has read it. The barrier has proven by then that the state is one of this term.
    was_read: bool,
}

/// An object without its type.
#[derive(Clone)]
pub(crate) struct Erased {
    pub(crate) uid: String,
    version: Option<ResourceVersion>,
    pub(crate) object: Arc<dyn Any + Send + Sync>,
}

/// An object whose cleanup has not ended.
#[derive(Clone)]
pub(crate) struct Vanished {
    pub(crate) object: Erased,
    last_state: LastState,
    /// Whether a read has found that the object is gone.
    pub(crate) is_confirmed: bool,
}

/// What the handler knows of a key, compared with the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HandlerView {
    Current,
    /// A notification follows, and queues the key again. Before, a call would be about the next object
    /// of the name, or about none, although the last one may have vanished.
    Behind,
}

impl Erased {
    fn new<T: Object>(object: &Arc<T>) -> Self {
        Self {
            uid: object.uid().to_owned(),
            version: ResourceVersion::new(object.resource_version()),
            object: Arc::clone(object) as _,
        }
    }

    /// Whether this state is newer than another one of the same object.
    fn is_newer_than(&self, other: &Self) -> bool {
        self.uid == other.uid && self.version > other.version
    }
}

impl VanishedObjects {
    pub(crate) fn new(core: &Arc<Core>, queue: &Arc<PriorityQueue<Key>>) -> Self {
        Self {
            core: Arc::clone(core),
            queue: Arc::clone(queue),
            proven: OnceLock::new(),
            hasher: RandomState::new(),
            state: Mutex::default(),
        }
    }

    /// The barrier has proven that the cache is current, up to this version. Calls can begin.
    pub(crate) fn begin(&self, version: Option<ResourceVersion>) {
        if let Some(version) = version {
            let _ = self.proven.set(version);
        }
    }

    /// Compares what a call has read from the cache with what the handler has got.
    pub(crate) fn read<T: Object>(&self, key: &Key, cached: Option<&Arc<T>>) -> HandlerView {
        let cached = cached.map(|object| self.hasher.hash_one(object.uid()));
        let delivered = &mut self.state.lock().delivered;
        match (delivered.get_mut(key), cached) {
            (Some(delivered), Some(uid)) if delivered.uid == uid => {
                delivered.was_read = true;
                HandlerView::Current
            }
            (None, None) => HandlerView::Current,
            (Some(_) | None, _) => HandlerView::Behind,
        }
    }

    /// Records the response to a patch that has added the finalizer. The object can be removed before
    /// the watch delivers this state.
    pub(crate) fn added<T: Object>(&self, object: &Arc<T>) {
        let (key, added) = (meta_namespace_key(&**object), Erased::new(object));
        let uid = self.hasher.hash_one(object.uid());
        let is_missed = {
            let state = &mut *self.state.lock();
            let is_missed = state.missed.get(&key) == Some(&uid);
            let delivered = state.delivered.get(&key);
            // Otherwise a deletion event has decided already. An entry that the handler has by now is
            // removed by its next state, or with the object.
            if delivered.is_some_and(|delivered| delivered.uid == uid) {
                state.added.insert(Key::clone(&key), added.clone());
            }
            is_missed
        };
        if is_missed {
            self.record(Key::clone(&key), added, LastState::Tombstone);
            self.queue_again(&key);
        }
    }

    /// The handler gets a new state of an object, which the cache has.
    pub(crate) fn arrived<T: Object>(&self, object: &Arc<T>) {
        let (key, arrived) = (meta_namespace_key(&**object), Erased::new(object));
        let uid = self.hasher.hash_one(object.uid());
        let removed = {
            let state = &mut *self.state.lock();
            state.missed.remove(&key);
            match state.delivered.get_mut(&key) {
                // A newer state was cached in this term.
                Some(delivered) if delivered.uid == uid => {}
                _ => {
                    let was_read = false;
                    let delivered = Delivered { uid, was_read };
                    state.delivered.insert(Key::clone(&key), delivered);
                }
            }
            let is_known = |added: &Erased| !added.is_newer_than(&arrived);
            match state.added.get(&key).is_some_and(is_known) {
                true => state.added.remove(&key),
                false => None,
            }
        };
        drop(removed);
    }

    /// The watch has delivered the deletion of an object, with its last state.
    pub(crate) fn deleted<T: Object>(&self, object: &Arc<T>, is_held: impl Fn(&T) -> bool) {
        let key = meta_namespace_key(&**object);
        drop(self.forget(&key));
        if is_held(object) {
            self.record(key, Erased::new(object), LastState::Final);
        }
    }

    /// An object is gone, and its last state is unknown.
    ///
    /// The newest state that is known decides, if this term has led since it was cached. Somebody may
    /// have cleaned up otherwise. An older state with a `deletionTimestamp` means that the cleanup is a
    /// matter of the usual deletion.
    pub(crate) fn missed<T: Object>(
        &self,
        key: &Key,
        last_known: Option<&Arc<T>>,
        is_held: impl Fn(&T) -> bool,
    ) {
        let (delivered, added) = self.forget(key);
        let last_known = last_known.map(Erased::new);
        let was_read = delivered.is_some_and(|delivered| delivered.was_read);
        let is_of_term = |state: &Erased| was_read || state.version.as_ref() > self.proven.get();
        let state = match (added, last_known) {
            // The response belongs to this term.
            (Some(added), None) => added,
            (Some(added), Some(last)) if added.is_newer_than(&last) => added,
            // Nothing is proven before the first calls.
            (_, Some(last)) if self.proven.get().is_some() && is_of_term(&last) => last,
            (_, _) => return,
        };
        let object = Arc::clone(&state.object).downcast::<T>();
        match object.is_ok_and(|object| is_held(&object)) {
            true => self.record(Key::clone(key), state, LastState::Tombstone),
            false => {
                let uid = self.hasher.hash_one(&*state.uid);
                self.state.lock().missed.insert(Key::clone(key), uid);
            }
        }
    }

    /// Removes what is known of an object that is gone.
    fn forget(&self, key: &Key) -> (Option<Delivered>, Option<Erased>) {
        let state = &mut *self.state.lock();
        (state.delivered.remove(key), state.added.remove(key))
    }

    fn record(&self, key: Key, object: Erased, last_state: LastState) {
        let uid = object.uid.clone();
        let vanished = Vanished {
            object,
            last_state,
            is_confirmed: false,
        };
        let is_over = {
            let state = &mut *self.state.lock();
            if !state.is_over {
                let records = state.vanished.entry(Key::clone(&key)).or_default();
                records.push_back(vanished);
            }
            state.is_over
        };
        if is_over {
            self.log_unfinished(&key, &uid);
        }
    }

    /// Returns the first vanished object of a key.
    pub(crate) fn first(&self, key: &Key) -> Option<Vanished> {
        self.state.lock().vanished.get(key)?.front().cloned()
    }

    /// A read has found that the first object of a key is gone: its cleanup begins.
    pub(crate) fn confirm(&self, key: &Key) {
        let first = {
            let state = &mut self.state.lock().vanished;
            let first = state.get_mut(key).and_then(VecDeque::front_mut);
            first.map(|first| {
                first.is_confirmed = true;
                (first.object.uid.clone(), first.last_state)
            })
        };
        let Some((uid, last_state)) = first else {
            return;
        };
        log::warn!(
            "controller {:?}: the server has removed {key:?} with the UID {uid:?} although the finalizer was on it; \
             its cleanup runs now",
            self.core.name
        );
        let meter = &self.core.meter;
        meter.event(|metrics| metrics.vanished(last_state));
    }

    /// Removes the first object of a key: its cleanup has ended, or it has not vanished.
    pub(crate) fn end(&self, key: &Key) {
        let ended = {
            let state = &mut self.state.lock().vanished;
            let ended = state.get_mut(key).and_then(VecDeque::pop_front);
            if state.get(key).is_some_and(VecDeque::is_empty) {
                state.remove(key);
            }
            ended
        };
        drop(ended);
    }

    /// Queues the key of a call that goes on with the next object of this name, or with none.
    pub(crate) fn queue_again(&self, key: &Key) {
        self.queue.add(Key::clone(key));
    }

    /// Drops what the term leaves, and names it in the log. Nothing else would ever clean up.
    pub(crate) fn end_term(&self) {
        let over = State {
            is_over: true,
            ..State::default()
        };
        let left = std::mem::replace(&mut *self.state.lock(), over);
        for (key, vanished) in &left.vanished {
            for Vanished { object, .. } in vanished {
                self.log_unfinished(key, &object.uid);
            }
        }
    }

    fn log_unfinished(&self, key: &Key, uid: &str) {
        log::warn!(
            "controller {:?}: the term ends before the cleanup of {key:?} with the UID {uid:?}, which is gone although the \
             finalizer was on it: clean up what belongs to it",
            self.core.name
        );
    }
}

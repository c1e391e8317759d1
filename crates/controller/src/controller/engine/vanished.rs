//! The objects that a server has removed although the finalizer of the controller held them.
//!
//! A DELETE that has read an object before a finalizer was added can remove it all the same
//! (kubernetes/kubernetes#77988). Its cleanup would never run. Such an object has *vanished*: the last
//! state that the server stored has the finalizer and no `deletionTimestamp`. In each other deletion,
//! the last state has one.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::controller::call::core::Core;
use crate::controller::sources::source::PRIMARY;
use crate::log;
use crate::metrics::LastState;
use k8s_informer::object::{Key, Object, ResourceVersion, meta_namespace_key};
use k8s_informer::workqueue::{AnyWorkQueue, PriorityQueue};

/// Whether the finalizer of the controller holds an object that is not being deleted.
pub(crate) type IsHeld<T> = Arc<dyn Fn(&T) -> bool + Send + Sync>;

/// The vanished objects of a term, until their cleanups have ended.
///
/// Nothing is known about the time before the term: another leader may have cleaned up.
pub(crate) struct VanishedObjects {
    core: Arc<Core>,
    queue: Arc<PriorityQueue<Key>>,
    /// Set when the handler is added. The states that the cache had before prove nothing.
    cached_before: OnceLock<CachedBefore>,
    /// Keyed at random, so that no object can be made to have the hash of another one.
    hasher: RandomState,
    /// An innermost lock: no user code runs and no cache is read while it is held.
    state: Mutex<State>,
}

/// What the cache had before the term.
#[derive(Debug)]
pub(crate) enum CachedBefore {
    Nothing,
    /// All changes up to this version.
    UpTo(ResourceVersion),
    /// It can't be told, because some part of the cache has no version.
    Unknown,
}

/// Its collections are trees, which give memory back after a peak.
#[derive(Default)]
struct State {
    /// By key. An object can be created again and vanish again before its first cleanup.
    vanished: BTreeMap<Key, VecDeque<Vanished>>,
    /// The hashes of the UIDs of the objects that the handler has got. The cache is ahead of it.
    delivered: BTreeMap<Key, u64>,
    /// The responses to patches that have added the finalizer, while the cache may lack them.
    added: BTreeMap<Key, Erased>,
}

/// An object without its type.
#[derive(Clone)]
pub(crate) struct Erased {
    pub(crate) uid: String,
    version: String,
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

impl Erased {
    pub(crate) fn new<T: Object>(object: &Arc<T>) -> Self {
        Self {
            uid: object.uid().to_owned(),
            version: object.resource_version().to_owned(),
            object: Arc::clone(object) as _,
        }
    }

    /// Whether this state is newer than another one of the same object.
    fn is_newer_than(&self, other: &Self) -> bool {
        let [own, other_version] = [self, other].map(|of| ResourceVersion::new(&of.version));
        self.uid == other.uid && own > other_version
    }
}

impl VanishedObjects {
    pub(crate) fn new(core: &Arc<Core>, queue: &Arc<PriorityQueue<Key>>) -> Self {
        Self {
            core: Arc::clone(core),
            queue: Arc::clone(queue),
            cached_before: OnceLock::new(),
            hasher: RandomState::new(),
            state: Mutex::default(),
        }
    }

    /// Sets what the cache had before the handler of the term was added.
    pub(crate) fn begin(&self, cached_before: CachedBefore) {
        let _ = self.cached_before.set(cached_before);
    }

    /// Records the response to a patch that has added the finalizer. The object can be removed before
    /// the watch delivers this state.
    pub(crate) fn added<T: Object>(&self, object: &Arc<T>) {
        let (key, added) = (meta_namespace_key(&**object), Erased::new(object));
        let version = ResourceVersion::new(&added.version);
        self.state.lock().added.insert(Key::clone(&key), added);
        // The event may have come before the response. Then no other one removes the record.
        let cached = self.core.sources[PRIMARY].cached(&key);
        let has_arrived = cached.is_some_and(|(uid, cached)| {
            uid != object.uid() || ResourceVersion::new(&cached) >= version
        });
        if has_arrived {
            self.state.lock().added.remove(&key);
        }
    }

    /// The handler gets a new state of an object, which the cache has.
    pub(crate) fn arrived<T: Object>(&self, object: &Arc<T>) {
        let key = meta_namespace_key(&**object);
        let uid = self.hasher.hash_one(object.uid());
        let state = &mut *self.state.lock();
        if let Some(added) = state.added.get(&key)
            && !added.is_newer_than(&Erased::new(object))
        {
            state.added.remove(&key);
        }
        state.delivered.insert(key, uid);
    }

    /// Whether the handler knows that the last object of a key is gone, if it is.
    ///
    /// Otherwise the cache is ahead of the handler: the deletion follows, and queues the key again. A
    /// call would be about the next object of the name, or about none, before the cleanup of this one.
    pub(crate) fn has_caught_up(&self, key: &Key) -> bool {
        let Some(delivered) = self.state.lock().delivered.get(key).copied() else {
            return true;
        };
        let cached = self.core.sources[PRIMARY].cached(key);
        cached.is_some_and(|(uid, _)| self.hasher.hash_one(&*uid) == delivered)
    }

    /// The watch has delivered the deletion of an object, with its last state.
    pub(crate) fn deleted<T: Object>(&self, object: &Arc<T>, is_held: impl Fn(&T) -> bool) {
        let key = meta_namespace_key(&**object);
        {
            let state = &mut *self.state.lock();
            state.added.remove(&key);
            state.delivered.remove(&key);
        }
        if is_held(object) {
            self.record(key, Erased::new(object), LastState::Final);
        }
    }

    /// An object is gone, and its last state is unknown.
    ///
    /// The newest state that is known decides, if this term has led since it was cached. Somebody may
    /// have cleaned up otherwise. An older state with a `deletionTimestamp` proves that the cleanup is
    /// a matter of the usual deletion.
    pub(crate) fn missed<T: Object>(
        &self,
        key: &Key,
        last_known: Option<&Arc<T>>,
        is_held: impl Fn(&T) -> bool,
    ) {
        let added = {
            let state = &mut *self.state.lock();
            state.delivered.remove(key);
            state.added.remove(key)
        };
        let last_known = last_known.map(Erased::new);
        let state = match (added, last_known) {
            // The response belongs to this term.
            (Some(added), None) => added,
            (Some(added), Some(last)) if added.is_newer_than(&last) => added,
            (_, Some(last)) if self.is_of_term(&last) => last,
            (_, _) => return,
        };
        let object = Arc::clone(&state.object).downcast::<T>();
        if object.is_ok_and(|object| is_held(&object)) {
            self.record(Key::clone(key), state, LastState::Tombstone);
        }
    }

    /// Whether the cache got this state in this term.
    fn is_of_term(&self, state: &Erased) -> bool {
        match self.cached_before.get() {
            Some(CachedBefore::Nothing) => true,
            Some(CachedBefore::UpTo(version)) => {
                ResourceVersion::new(&state.version).as_ref() > Some(version)
            }
            Some(CachedBefore::Unknown) | None => false,
        }
    }

    fn record(&self, key: Key, object: Erased, last_state: LastState) {
        let vanished = Vanished {
            object,
            last_state,
            is_confirmed: false,
        };
        let state = &mut self.state.lock().vanished;
        state.entry(key).or_default().push_back(vanished);
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
        // After the unlock: the object has a destructor of the user.
        drop(ended);
    }

    /// Queues the key of a call that goes on with the next object of this name, or with none.
    pub(crate) fn queue_again(&self, key: &Key) {
        self.queue.add(Key::clone(key));
    }

    /// Drops what the term leaves, and names it in the log. Nothing else would ever clean up.
    pub(crate) fn end_term(&self) {
        let left = std::mem::take(&mut *self.state.lock());
        for (key, vanished) in &left.vanished {
            for Vanished { object, .. } in vanished {
                log::warn!(
                    "controller {:?}: the term ends before the cleanup of {key:?} with the UID {:?}, which the server has \
                     removed although the finalizer was on it: clean up what belongs to it",
                    self.core.name,
                    object.uid
                );
            }
        }
    }
}

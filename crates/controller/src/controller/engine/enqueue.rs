//! The handlers that put keys into the queue.

use std::collections::HashSet;
use std::sync::{Arc, Weak};

use super::reconcile_loop::{LOW_PRIORITY, ReconcileLoop};
use super::vanished::IsHeld;
use crate::controller::sources::source::PRIMARY;
use crate::controller::writes::record::CacheChange;
use crate::log;
use k8s_informer::__private::catch;
use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::object::{Deleted, Key, Object, meta_namespace_key};

/// Returns the keys that an object concerns.
pub(crate) type KeysOf<C> = Arc<dyn Fn(&C) -> Vec<Key> + Send + Sync>;

/// Whether an update, given as the old and the new object, concerns any key.
pub(crate) type UpdateFilter<C> = Arc<dyn Fn(&C, &C) -> bool + Send + Sync>;

/// A handler of one source, for one term: records the arrival of own writes, and queues the keys that a change
/// concerns.
pub(crate) struct Enqueue<C> {
    /// Weak, because the loop owns the informers, and they own their handlers.
    pub(crate) reconcile_loop: Weak<ReconcileLoop>,
    /// Its position in [`Sources`](crate::controller::sources::source::Sources).
    pub(crate) source: usize,
    pub(crate) keys: KeysOf<C>,
    /// `None` for all updates.
    pub(crate) filter: Option<UpdateFilter<C>>,
    /// `None` for a controller without a finalizer, and for other sources than that of the primary
    /// objects.
    pub(crate) is_held: Option<IsHeld<C>>,
}

impl<C: Object> Enqueue<C> {
    /// Returns whether an update concerns no key. Resyncs and recreations are never filtered. If
    /// the filter panics, the update is not filtered: a lost update would stay lost.
    fn is_filtered(&self, old: &C, new: &C) -> bool {
        let is_recreation = old.uid() != new.uid();
        let filter = self.filter.as_ref();
        filter.is_some_and(|filter| {
            !is_resync(old, new) && !is_recreation && !catch(|| filter(old, new)).unwrap_or(true)
        })
    }

    /// Returns the keys that a state of an object concerns. If the function of the user panics, the
    /// keys of other states are not lost.
    fn keys_of(&self, of: &ReconcileLoop, object: &C) -> Vec<Key> {
        let mut keys = catch(|| (self.keys)(object)).unwrap_or_else(|panic| {
            let (controller, source) = (&of.core.name, of.core.sources[self.source].name());
            let key = meta_namespace_key(object);
            log::error!("controller {controller:?}: the function that returns the keys for {key:?} of {source} {panic}; this state of it causes no call");
            Vec::new()
        });
        // The other shards belong to other replicas.
        if self.source != PRIMARY {
            keys.retain(|key| of.core.sources[PRIMARY].may_have(key));
        }
        keys
    }

    fn observe(&self, of: &ReconcileLoop, object: &C, change: CacheChange<'_>) {
        if matches!(change, CacheChange::Gone { .. }) || of.own_writes.awaits_writes() {
            let key = meta_namespace_key(object);
            of.own_writes.observed(self.source, &key, change);
        }
    }
}

fn is_resync(old: &impl Object, new: &impl Object) -> bool {
    old.resource_version() == new.resource_version()
}

fn priority(is_low: bool) -> i32 {
    if is_low { LOW_PRIORITY } else { 0 }
}

impl<C: Object> ResourceEventHandler<C> for Enqueue<C> {
    fn on_add(&mut self, object: &Arc<C>, is_in_initial_list: bool) {
        let Some(of) = self.reconcile_loop.upgrade() else {
            return;
        };
        self.observe(&of, object, CacheChange::Version(object.resource_version()));
        if self.is_held.is_some() {
            of.vanished.arrived(object);
        }
        of.enqueue(self.keys_of(&of, object), priority(is_in_initial_list));
    }

    fn on_update(&mut self, old: &Arc<C>, new: &Arc<C>) {
        let Some(of) = self.reconcile_loop.upgrade() else {
            return;
        };
        if old.uid() != new.uid() {
            let (uid, version) = (old.uid(), old.resource_version());
            self.observe(&of, old, CacheChange::Gone { uid, version });
            if let Some(is_held) = &self.is_held {
                let key = meta_namespace_key(&**old);
                of.vanished
                    .missed(&key, Some(old), |object| is_held(object));
            }
        }
        if self.is_held.is_some() {
            of.vanished.arrived(new);
        }
        self.observe(&of, new, CacheChange::Version(new.resource_version()));
        if self.is_filtered(old, new) {
            return;
        }
        let priority = priority(is_resync(&**old, &**new));
        // The old object can concern other keys than the new one, for example after a change of
        // its owner (CR4, WR11).
        let mut keys = self.keys_of(&of, new);
        if self.source != PRIMARY {
            let is_known: HashSet<_> = keys.iter().cloned().collect();
            let of_old = self.keys_of(&of, old).into_iter();
            keys.extend(of_old.filter(|key| !is_known.contains(key)));
        }
        of.enqueue(keys, priority);
    }

    fn on_delete(&mut self, deleted: &Deleted<C>) {
        let Some(of) = self.reconcile_loop.upgrade() else {
            return;
        };
        // Before the key is queued, so that its call finds it.
        if let Some(is_held) = &self.is_held {
            let is_held = |object: &C| is_held(object);
            match deleted {
                Deleted::Final(object) => of.vanished.deleted(object, is_held),
                Deleted::FinalStateUnknown { key, last_known } => {
                    of.vanished.missed(key, last_known.as_ref(), is_held);
                }
            }
        }
        match deleted.object() {
            Some(object) => {
                let (uid, version) = (object.uid(), object.resource_version());
                self.observe(&of, object, CacheChange::Gone { uid, version });
                of.enqueue(self.keys_of(&of, object), 0);
            }
            // A tombstone without an object. The key of a primary object is known nevertheless.
            None if self.source == PRIMARY => of.enqueue([deleted.key()], 0),
            None => {}
        }
    }
}

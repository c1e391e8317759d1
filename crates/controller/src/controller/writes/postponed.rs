//! The keys that wait for own writes.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::timers::TimerId;
use k8s_informer::object::Key;

/// The keys that were put aside until the caches have their own writes.
///
/// This is plain data for use under a lock: no method blocks or calls user code. Its collections are
/// trees, which give memory back after a peak.
#[derive(Default)]
pub(super) struct PostponedKeys {
    keys: BTreeMap<Key, Postponed>,
    /// When keys that are queued for another check began to wait.
    rechecked: BTreeMap<Key, Instant>,
    /// How often all keys were resumed at once.
    resumptions: u64,
}

/// A key that was put aside.
pub(super) struct Postponed {
    /// The priority with which the key continues.
    pub(super) priority: i32,
    /// The timer of the next check.
    pub(super) timer: Option<TimerId>,
    /// When the key began to wait.
    pub(super) since: Instant,
}

impl PostponedKeys {
    /// Puts a key aside. It keeps the higher priority and the longer wait of an earlier time.
    pub(super) fn put_aside(
        &mut self,
        key: &Key,
        priority: i32,
        since: Instant,
        earlier: Option<&Postponed>,
    ) {
        let waiting = Postponed {
            priority: earlier.map_or(priority, |earlier| earlier.priority.max(priority)),
            timer: None,
            since: earlier.map_or(since, |earlier| earlier.since),
        };
        self.keys.insert(Key::clone(key), waiting);
    }

    /// Sets the timer of a key that waits. Returns the timer to cancel: the one before, or the new
    /// one if the last write of the key has arrived in the meantime.
    pub(super) fn set_timer(&mut self, key: &Key, timer: Option<TimerId>) -> Option<TimerId> {
        match self.keys.get_mut(key) {
            Some(postponed) => std::mem::replace(&mut postponed.timer, timer),
            None => timer,
        }
    }

    /// Removes a key that need not wait any longer.
    pub(super) fn remove(&mut self, key: &Key) -> Option<Postponed> {
        self.keys.remove(key)
    }

    /// Removes a key that is queued for another check.
    pub(super) fn remove_for_check(&mut self, key: &Key) -> Option<Postponed> {
        let postponed = self.keys.remove(key)?;
        self.rechecked.insert(Key::clone(key), postponed.since);
        Some(postponed)
    }

    /// Removes all keys, because they are queued for another check.
    pub(super) fn remove_all_for_check(&mut self) -> BTreeMap<Key, Postponed> {
        self.resumptions += 1;
        let keys = std::mem::take(&mut self.keys);
        let began = keys.iter().map(|(key, of)| (Key::clone(key), of.since));
        self.rechecked.extend(began);
        keys
    }

    /// Returns when a key that was queued for another check began to wait, once.
    pub(super) fn take_rechecked(&mut self, key: &Key) -> Option<Instant> {
        self.rechecked.remove(key)
    }

    pub(super) fn resumptions(&self) -> u64 {
        self.resumptions
    }

    pub(super) fn contains(&self, key: &Key) -> bool {
        self.keys.contains_key(key)
    }

    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> {
        self.keys.keys()
    }

    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }
}

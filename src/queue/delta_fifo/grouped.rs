//! The waiting deltas, and their changes under the lock.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::Locked;
use crate::base::shrink::Shrink;
use crate::object::Key;
use crate::queue::front::Accumulator;
use crate::queue::{Delta, Deltas};

/// The waiting deltas of each key, and the keys in flight.
///
/// While the lock is free, `order` contains each key of `items` once, and no deltas are empty. New
/// changes of a key in flight are in `items`.
pub(in crate::queue) struct Grouped<T> {
    /// Whether the objects of a list are queued as [`Delta::Replaced`].
    pub(super) emit_replaced: bool,
    pub(super) items: HashMap<Key, Deltas<T>>,
    pub(super) order: VecDeque<Key>,
    /// The keys of the pop that is in flight.
    pub(super) in_flight: Vec<InFlightKey<T>>,
    /// The number of resyncs that are reading the known objects. `popped` contains the keys popped
    /// since the first of these resyncs started; what the resyncs have read for them is outdated.
    pub(super) resyncs: usize,
    pub(super) popped: HashSet<Key>,
}

impl<T> Accumulator for Grouped<T> {
    fn len(&self) -> usize {
        self.order.len()
    }
}

impl<T> Grouped<T> {
    pub(super) fn new(emit_replaced: bool) -> Self {
        Self {
            emit_replaced,
            items: HashMap::new(),
            order: VecDeque::new(),
            in_flight: Vec::new(),
            resyncs: 0,
            popped: HashSet::new(),
        }
    }

    pub(super) fn next(&mut self) -> Option<Deltas<T>> {
        self.items.remove(&self.order.pop_front()?)
    }

    pub(super) fn begin_flight(&mut self, deltas: &[Deltas<T>]) {
        if self.resyncs > 0 {
            self.popped
                .extend(deltas.iter().filter_map(Deltas::key).cloned());
        }
        let in_flight = |deltas: &Deltas<T>| {
            let newest = deltas.newest()?;
            Some(InFlightKey {
                key: Key::clone(newest.key()?),
                newest: newest.entry().map(|entry| Arc::clone(&entry.object)),
                deferred_deletion: None,
            })
        };
        self.in_flight = deltas.iter().filter_map(in_flight).collect();
        self.order.shrink_after_peak();
        self.items.shrink_after_peak();
    }
}

pub(super) struct InFlightKey<T> {
    pub(super) key: Key,
    /// The object that the known objects will contain after processing, or `None` after a deletion.
    pub(super) newest: Option<Arc<T>>,
    /// A deletion that arrived while the deletion of the object was in flight. It is delivered only
    /// if the first deletion fails.
    pub(super) deferred_deletion: Option<Deltas<T>>,
}

impl<T> Locked<'_, T> {
    /// Appends a delta to the deltas of its key.
    pub(super) fn push(&mut self, delta: Delta<T>) {
        let Some(key) = delta.key() else {
            unreachable!("a DeltaFifo queues only deltas of single objects");
        };
        if let Some(deltas) = self.waiting.items.get_mut(key) {
            let unused = deltas.push_and_merge(delta);
            self.dropped.extend(unused);
            return;
        }
        let key = Key::clone(key);
        let deltas = Deltas::one(self.versions.begin(), delta);
        self.waiting.order.push_back(Key::clone(&key));
        self.waiting.items.insert(key, deltas);
    }

    /// Appends tombstones to the deltas of all queued keys that are gone.
    pub(super) fn add_tombstones(&mut self, is_gone: impl Fn(&Key) -> bool) {
        let mut unused = Vec::new();
        let items = self.waiting.items.iter_mut();
        for (key, deltas) in items.filter(|(key, _)| is_gone(key)) {
            let last_known = deltas.newest().and_then(Delta::object).cloned();
            let gone = Delta::tombstone(Key::clone(key), last_known);
            unused.extend(deltas.push_and_merge(gone));
        }
        self.dropped.append(&mut unused);
    }

    /// Stores the deletion of a key whose deletion is in flight, until the deletion in flight
    /// succeeds or fails.
    pub(super) fn defer_deletion(&mut self, deletion: Delta<T>) {
        let state = &mut **self;
        let mut in_flight = state.waiting.in_flight.iter_mut();
        let taken = in_flight.find(|taken| deletion.key() == Some(&taken.key));
        let Some(taken) = taken else {
            unreachable!("the deletion of the key is in flight");
        };
        let unused = match &mut taken.deferred_deletion {
            Some(deferred) => deferred.push_and_merge(deletion),
            none => {
                *none = Some(Deltas::one(state.versions.begin(), deletion));
                None
            }
        };
        self.dropped.extend(unused);
    }

    /// Queues deltas again whose callback requests them. Returns false if newer ones wait instead.
    pub(super) fn requeue(&mut self, popped: Deltas<T>) -> bool {
        // A resync during the callback has queued the state that the callback did not process. That
        // is nothing newer, so the popped deltas take its place.
        let state = &mut **self;
        let waiting = popped
            .key()
            .and_then(|key| state.waiting.items.get_mut(key));
        if let Some(waiting) = waiting.filter(|waiting| is_resync_of(waiting, &popped)) {
            let since = waiting.since.min(popped.since);
            state.versions.end(waiting.since.max(popped.since));
            // The object of the resync is also in `popped`, so no destructor runs here.
            *waiting = popped;
            waiting.since = since;
            return true;
        }
        self.put_back(popped).is_none()
    }

    /// Queues popped deltas at the end. If others of their key wait, returns the popped ones instead.
    /// The waiting ones then count for the versions of both: the consumer has not processed the
    /// popped ones.
    pub(super) fn put_back(&mut self, popped: Deltas<T>) -> Option<Deltas<T>> {
        let state = &mut **self;
        let Some(key) = popped.key() else {
            unreachable!("deltas have a key once they are queued");
        };
        if let Some(waiting) = state.waiting.items.get_mut(key) {
            state.versions.end(popped.since.max(waiting.since));
            waiting.since = popped.since.min(waiting.since);
            return Some(popped);
        }
        state.waiting.order.push_back(Key::clone(key));
        state.waiting.items.insert(Key::clone(key), popped)
    }

    /// Queues a deferred deletion, before newer deltas of its key.
    pub(super) fn push_deferred(&mut self, key: &Key, mut deferred: Deltas<T>) {
        match self.waiting.items.remove(key) {
            None => self.waiting.order.push_back(Key::clone(key)),
            Some(newer) => {
                // The merged deltas are tracked under the older sequence number.
                self.versions.end(deferred.since.max(newer.since));
                deferred.since = deferred.since.min(newer.since);
                for delta in newer.into_changes() {
                    let unused = deferred.push_and_merge(delta);
                    self.dropped.extend(unused);
                }
            }
        }
        self.waiting.items.insert(Key::clone(key), deferred);
    }
}

/// Whether `waiting` is a resync of the newest object in `popped`.
fn is_resync_of<T>(waiting: &Deltas<T>, popped: &Deltas<T>) -> bool {
    let newest = popped.newest().and_then(Delta::entry);
    match (&waiting[..], newest) {
        ([Delta::Sync(resynced)], Some(newest)) => Arc::ptr_eq(&resynced.object, &newest.object),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::DeltaFifo;
    use crate::object::{Accessor, KeyError};
    use crate::queue::Queue;
    use crate::store::ReflectorStore;
    use std::sync::Arc;

    type Fact = (&'static str, String);

    fn accessor() -> Accessor<Fact> {
        let accessor = Accessor::new(|fact: &Fact| Ok::<_, KeyError>(fact.0.into()));
        accessor.with_resource_version(|fact| Some(&fact.1))
    }

    fn write(queue: &DeltaFifo<Fact>, key: &'static str, version: usize) {
        queue.update(Arc::new((key, version.to_string()))).unwrap();
    }

    #[test]
    fn queue_with_few_keys_left_frees_its_memory() {
        let accessor = Accessor::new(|number: &u32| Ok::<_, KeyError>(number.to_string().into()));
        let queue = DeltaFifo::new(accessor);
        for number in 0..100_000 {
            queue.update(Arc::new(number)).unwrap();
        }
        for _ in 10..100_000 {
            queue.pop(&mut |_, _| Ok(())).unwrap();
        }
        let waiting = &queue.front.lock().waiting;
        let capacities = [waiting.items.capacity(), waiting.order.capacity()];
        assert!(capacities.iter().all(|it| *it < 10_000), "{capacities:?}");
    }

    #[test]
    fn tracked_versions_stay_bounded_while_queued_keys_change() {
        let queue = DeltaFifo::new(accessor());
        for version in 1..10_000 {
            write(&queue, ["a", "b", "c"][version % 3], version);
        }
        assert!(queue.front.lock().versions.len() <= 3);
    }
}

//! Changes of the state under the lock.

use std::sync::Arc;

use super::State;
use crate::base::digest::Digest;
use crate::base::shrink::Shrink;
use crate::base::sync::thread::ThreadId;
use crate::object::{Deleted, Key};
use crate::queue::delta::merge_deletions;
use crate::queue::{Delta, Deltas};

/// The keys of one pop, until they have been processed.
pub(super) struct InFlight<T> {
    pub(super) thread: ThreadId,
    pub(super) keys: Vec<InFlightKey<T>>,
}

pub(super) struct InFlightKey<T> {
    pub(super) key: Key,
    /// The object that the known objects will contain after processing, or `None` after a deletion.
    pub(super) newest: Option<Arc<T>>,
    /// A deletion that arrived while the deletion of the object was in flight, and its sequence
    /// number. It is delivered only if the first deletion fails.
    pub(super) deferred_deletion: Option<(Deleted<T>, u64)>,
}

/// The items of one pop, as passed to its callback.
pub(super) struct Batch<T> {
    pub(super) deltas: Vec<Deltas<T>>,
    pub(super) is_in_initial_list: bool,
    /// Whether `initial_population` counts the keys. The value is set when the keys are taken,
    /// because a first list that arrives after the pop does not count them.
    pub(super) is_initial: bool,
    /// The number of keys that remain in the queue.
    pub(super) depth: usize,
}

impl<T> State<T> {
    pub(super) fn synced(&self) -> bool {
        self.populated && self.initial_population == 0
    }

    pub(super) fn in_flight_key(&self, key: &str) -> Option<&InFlightKey<T>> {
        let keys = self.in_flight.as_ref().map(|in_flight| &in_flight.keys);
        keys?.iter().find(|taken| &*taken.key == key)
    }

    /// Appends a delta to the deltas of its key.
    pub(super) fn push(
        &mut self,
        key: &Key,
        delta: Delta<T>,
        digest: Digest,
        dropped: &mut Vec<Arc<T>>,
    ) {
        if let Some(deltas) = self.items.get_mut(key) {
            return deltas.push_and_merge(delta, digest, dropped);
        }
        let deltas = Deltas::one(self.versions.begin(), Some(Key::clone(key)), delta, digest);
        self.order.push_back(Key::clone(key));
        self.items.insert(Key::clone(key), deltas);
    }

    /// Appends tombstones to the deltas of all queued keys that are gone.
    pub(super) fn add_tombstones(
        &mut self,
        is_gone: impl Fn(&Key) -> bool,
        dropped: &mut Vec<Arc<T>>,
    ) {
        for (key, deltas) in self.items.iter_mut().filter(|(key, _)| is_gone(key)) {
            let last_known = deltas.newest().and_then(Delta::object).cloned();
            let gone = tombstone(key, last_known);
            deltas.push_and_merge(Delta::Deleted(gone), Digest::NONE, dropped);
        }
    }

    /// Stores a deletion of a key whose deletion is in flight, until the deletion in flight
    /// succeeds or fails. Two deferred deletions are [merged](merge_deletions).
    pub(super) fn defer_deletion(
        &mut self,
        key: &Key,
        gone: Deleted<T>,
        dropped: &mut Vec<Arc<T>>,
    ) {
        let keys = self
            .in_flight
            .iter_mut()
            .flat_map(|in_flight| &mut in_flight.keys);
        let Some(taken) = keys.into_iter().find(|taken| taken.key == *key) else {
            return;
        };
        let unused = match &mut taken.deferred_deletion {
            Some((older, _)) => merge_deletions(older, gone),
            none => {
                *none = Some((gone, self.versions.begin()));
                return;
            }
        };
        dropped.extend(unused.object().cloned());
    }

    /// Removes up to `most` keys. Either all of them belong to the initial list or none.
    pub(super) fn take(&mut self, most: usize, thread: ThreadId) -> Batch<T> {
        let is_initial = self.initial_population > 0;
        let most = if is_initial {
            most.min(self.initial_population)
        } else {
            most
        };
        let keys = self.order.drain(..most.min(self.order.len()));
        let items = &mut self.items;
        let deltas: Vec<Deltas<T>> = keys.filter_map(|key| items.remove(&key)).collect();
        if self.resyncs > 0 {
            self.popped
                .extend(deltas.iter().filter_map(Deltas::key).cloned());
        }
        let taken = |deltas: &Deltas<T>| {
            let newest = match deltas.newest() {
                Some(Delta::Deleted(_)) | None => None,
                Some(delta) => delta.object().cloned(),
            };
            let key = Key::clone(deltas.key()?);
            Some(InFlightKey {
                key,
                newest,
                deferred_deletion: None,
            })
        };
        let keys = deltas.iter().filter_map(taken).collect();
        self.in_flight = Some(InFlight { thread, keys });
        self.order.shrink_after_peak();
        self.items.shrink_after_peak();
        Batch {
            deltas,
            is_in_initial_list: !self.synced(),
            is_initial,
            depth: self.order.len(),
        }
    }

    /// Queues a deferred deletion, before newer deltas of its key.
    pub(super) fn push_deferred(
        &mut self,
        key: &Key,
        gone: Deleted<T>,
        since: u64,
        dropped: &mut Vec<Arc<T>>,
    ) {
        let gone = Delta::Deleted(gone);
        let mut all = Deltas::one(since, Some(Key::clone(key)), gone, Digest::NONE);
        match self.items.remove(key) {
            None => self.order.push_back(Key::clone(key)),
            Some(newer) => {
                // The merged deltas are tracked under the older sequence number.
                self.versions.end(since.max(newer.since));
                all.since = since.min(newer.since);
                let digest = newer.digest;
                for delta in newer.into_vec() {
                    all.push_and_merge(delta, digest, dropped);
                }
            }
        }
        self.items.insert(Key::clone(key), all);
    }
}

pub(super) fn tombstone<T>(key: &Key, last_known: Option<Arc<T>>) -> Deleted<T> {
    Deleted::FinalStateUnknown {
        key: Key::clone(key),
        last_known,
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
        let state = queue.state.lock();
        let capacities = [state.items.capacity(), state.order.capacity()];
        assert!(capacities.iter().all(|it| *it < 10_000), "{capacities:?}");
    }

    #[test]
    fn tracked_versions_stay_bounded_while_queued_keys_change() {
        let queue = DeltaFifo::new(accessor());
        for version in 1..10_000 {
            write(&queue, ["a", "b", "c"][version % 3], version);
        }
        assert!(queue.state.lock().versions.len() <= 3);
    }
}

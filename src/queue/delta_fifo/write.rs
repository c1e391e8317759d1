//! Writes, pops and their ends: what the front of a `DeltaFifo` requests from the waiting deltas.

use std::collections::HashSet;
use std::{iter, slice};

use super::grouped::Grouped;
use super::known::{Known, KnownSnapshot};
use super::{Front, Locked};
use crate::entry::{Entry, Gaps};
use crate::object::{Deleted, Key};
use crate::queue::front::{DeltaAccumulator, Popped};
use crate::queue::{Delta, Deltas};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, StoreError};

impl<T> DeltaAccumulator<T> for Grouped<T> {
    type Entered = Delta<T>;

    /// Under shuttle, whose queues are short, a batch has two keys.
    const BATCH: usize = if cfg!(shuttle) { 2 } else { 64 };

    fn take_one(&mut self) -> Option<Deltas<T>> {
        let deltas = self.next()?;
        self.begin_flight(slice::from_ref(&deltas));
        Some(deltas)
    }

    fn take(&mut self, most: usize) -> Vec<Deltas<T>> {
        let mut deltas = Vec::with_capacity(most.min(self.order.len()));
        deltas.extend(iter::from_fn(|| self.next()).take(most));
        self.begin_flight(&deltas);
        deltas
    }

    fn newest(&self, key: &str) -> Option<Entry<T>> {
        self.items.get(key).and_then(Deltas::entry)
    }

    /// A deletion without a key does not count, but an addition or update does (D2).
    fn is_populated_without_key(change: &Change<T>) -> bool {
        change.is_write()
    }

    /// The object of a deletion is transformed only if the deletion will be queued (D3).
    fn enter(front: &Front<T>, change: Change<T>) -> Result<Delta<T>, StoreError> {
        if let Change::Delete(gone @ Deleted::Final(object)) = &change
            && front.door.transform().is_some()
        {
            let key = front.door.accessor().key(object)?;
            let known = front.lock().is_known(&key)?;
            if matches!(known, Known::No) {
                return front.door.untransformed_deletion(gone.clone());
            }
        }
        front.door.delta(change)
    }

    fn put(queue: &mut Locked<'_, T>, delta: Delta<T>) -> Result<(), StoreError> {
        if let Delta::Bookmark(version) = delta {
            queue.versions.record_event(version);
            return Ok(());
        }
        queue.populated = true;
        let version = delta.version().cloned();
        let is_added = matches!(delta, Delta::Added(_));
        // Only a deletion depends on what the consumer has (D3).
        let known = match &delta {
            Delta::Deleted { key, .. } => queue.is_known(key),
            _ => Ok(Known::Yes),
        };
        match known {
            Ok(Known::Yes) => queue.push(delta),
            Ok(Known::BeingDeleted) => queue.defer_deletion(delta),
            Ok(Known::No) => queue.dropped.extend(delta.into_object()),
            Err(error) => {
                queue.dropped.extend(delta.into_object());
                return Err(error);
            }
        }
        queue.versions.record_object(version, is_added);
        Ok(())
    }

    fn replace(
        front: &Front<T>,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        // Declared before the lock, so that they are dropped after it is released.
        let mut known = KnownSnapshot::default();
        let mut listed = None;
        // On a relist, the set of keys is built before the lock is taken: it takes a while.
        if front.lock().populated {
            listed = Some(keys(&entries));
        }
        let mut queue = front.lock_for_write();
        if listed.is_none() && queue.has_objects()? {
            listed = Some(keys(&entries));
        }
        match &listed {
            // Nothing can be missing from the first list of an empty queue.
            None => queue.push_list(entries),
            Some(listed) => {
                let may_exist = |key: &Key| listed.contains(key) || gaps.cover(key);
                // Read the known objects before anything changes: `KnownObjects` is user code and
                // may fail or panic.
                let skip = |key: &Key| may_exist(key) || queue.waiting.items.contains_key(key);
                queue.known(skip, &mut known)?;
                queue.push_list(entries);
                // Then come the deletions: first of queued objects, then of those that the consumer
                // has or is about to have.
                if queue.waiting.items.len() > listed.len() {
                    queue.add_tombstones(|key| !may_exist(key));
                }
                for (key, last_known) in known.objects.drain(..) {
                    queue.push(Delta::tombstone(key, last_known));
                }
                for (key, last_known) in known.being_deleted.drain(..) {
                    queue.defer_deletion(Delta::tombstone(key, Some(last_known)));
                }
            }
        }
        queue.versions.record_list(resource_version);
        queue.replaced();
        queue.unlock();
        Ok(())
    }

    /// Queues requested deltas again, and settles the deferred deletions of the pop.
    fn settle(queue: &mut Locked<'_, T>, popped: &Popped<'_, T>) {
        let in_flight = std::mem::take(&mut queue.waiting.in_flight);
        // Each of the popped deltas has a key, so the two lists have the same positions.
        for (at, taken) in in_flight.into_iter().enumerate() {
            queue.dropped.extend(taken.newest);
            let is_back =
                popped.processed.is_requeued() && queue.requeue(popped.deltas[at].clone());
            let Some(deferred) = taken.deferred_deletion else {
                continue;
            };
            // The deletion in flight waits again, so the deferred one merges with it.
            if is_back {
                queue.versions.end(deferred.since);
                for deletion in deferred.into_changes() {
                    queue.push(deletion);
                }
                continue;
            }
            // Deliver the deferred deletion only if the deletion in flight was not processed and the
            // consumer may still have the object.
            if !popped.processed.is_done(at) && queue.may_have(&taken.key) {
                queue.push_deferred(&taken.key, deferred);
            } else {
                queue.versions.end(deferred.since);
                let unused = deferred.into_changes().into_iter();
                queue.dropped.extend(unused.filter_map(Delta::into_object));
            }
        }
    }
}

fn keys<T>(entries: &[Entry<T>]) -> HashSet<Key> {
    let keys = entries.iter().map(|entry| Key::clone(&entry.key));
    keys.collect()
}

impl<T> Locked<'_, T> {
    /// Queues the objects of a list.
    pub(super) fn push_list(&mut self, entries: Vec<Entry<T>>) {
        self.waiting.items.reserve(entries.len());
        self.waiting.order.reserve(entries.len());
        for entry in entries {
            let delta = match self.waiting.emit_replaced {
                true => Delta::Replaced(entry),
                false => Delta::Sync(entry),
            };
            self.push(delta);
        }
    }
}

//! Writes, pops and their ends: what the front of a `DeltaFifo` requests from the waiting deltas.

use std::collections::HashSet;
use std::{iter, slice};

use super::grouped::{Grouped, tombstone};
use super::known::{Known, KnownSnapshot};
use super::{Front, Locked};
use crate::object::{Deleted, Key};
use crate::queue::delta::{self, Origin};
use crate::queue::front::{DeltaAccumulator, Popped};
use crate::queue::{Delta, Deltas};
use crate::store::{Change, Entry, EntryChange, Gaps, StoreError};

impl<T> DeltaAccumulator<T> for Grouped<T> {
    type Entered = EntryChange<T>;

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
    fn enter(front: &Front<T>, change: Change<T>) -> Result<EntryChange<T>, StoreError> {
        if let Change::Delete(gone @ Deleted::Final(object)) = &change
            && front.door.transform().is_some()
        {
            let key = front.door.accessor().key(object)?;
            let known = front.lock().is_known(&key)?;
            if matches!(known, Known::No) {
                let version = front.door.version(object);
                return Ok(EntryChange::Delete(key, gone.clone(), version));
            }
        }
        front.door.change(change)
    }

    fn put(queue: &mut Locked<'_, T>, change: EntryChange<T>) -> Result<(), StoreError> {
        let (key, delta, origin) = delta::of_change(change);
        let (version, is_added) = (origin.version.clone(), matches!(delta, Delta::Added(_)));
        let Some(key) = key else {
            queue.versions.record_event(version);
            return Ok(());
        };
        queue.populated = true;
        match delta {
            Delta::Deleted(gone) => match queue.is_known(&key)? {
                Known::Yes => queue.push(&key, Delta::Deleted(gone), origin),
                Known::BeingDeleted => queue.defer_deletion(&key, gone),
                // Unknown (D3).
                Known::No => queue.dropped.extend(gone.into_object()),
            },
            delta => queue.push(&key, delta, origin),
        }
        queue.versions.record_object(version, is_added);
        Ok(())
    }

    fn replace(
        front: &Front<T>,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: &str,
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
                    let gone = Delta::Deleted(tombstone(&key, last_known));
                    queue.push(&key, gone, Origin::default());
                }
                for (key, last_known) in known.being_deleted.drain(..) {
                    queue.defer_deletion(&key, tombstone(&key, Some(last_known)));
                }
            }
        }
        queue.versions.record_list(resource_version.into());
        queue.replaced();
        queue.unlock();
        Ok(())
    }

    /// Queues requested deltas again, and settles the deferred deletions of the pop.
    fn settle(queue: &mut Locked<'_, T>, popped: &Popped<'_, T>) {
        let in_flight = std::mem::take(&mut queue.waiting.in_flight);
        for (at, taken) in in_flight.into_iter().enumerate() {
            queue.dropped.extend(taken.newest);
            let is_back =
                popped.processed.is_requeued() && queue.requeue(popped.deltas[at].clone());
            let Some((gone, since)) = taken.deferred_deletion else {
                continue;
            };
            // The deletion in flight waits again, so the deferred one merges with it.
            if is_back {
                queue.push(&taken.key, Delta::Deleted(gone), Origin::default());
                queue.versions.end(since);
                continue;
            }
            // Deliver the deferred deletion only if the deletion in flight was not processed and the
            // consumer may still have the object.
            if !popped.processed.is_done(at) && queue.may_have(&taken.key) {
                queue.push_deferred(&taken.key, gone, since);
            } else {
                queue.versions.end(since);
                queue.dropped.extend(gone.into_object());
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
                true => Delta::Replaced(entry.object),
                false => Delta::Sync(entry.object),
            };
            let origin = Origin {
                version: None,
                digest: entry.digest,
            };
            self.push(&entry.key, delta, origin);
        }
    }
}

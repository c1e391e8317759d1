//! Writes: entries are queued under the lock. User code runs before, at the door.

use std::collections::HashSet;
use std::sync::Arc;

use super::known::{Known, KnownSnapshot};
use super::state::tombstone;
use super::{DeltaFifo, State};
use crate::object::{Deleted, Key};
use crate::queue::Delta;
use crate::queue::delta::{self, Origin};
use crate::store::{Change, Entry, EntryChange, Gaps, StoreError};

impl<T> DeltaFifo<T> {
    pub(super) fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        // A failed add or update also counts as a write (D2). A deletion without a key does not.
        let populates = change.is_write();
        let entered = self.enter(change);
        let mut dropped = Vec::new();
        let mut state = self.body.lock();
        let result = entered.and_then(|change| self.put(&mut state, change, &mut dropped));
        state.populated |= populates || !matches!(result, Err(StoreError::Key(_)));
        self.body.unlock(state);
        result
    }

    /// Turns a change into one with an entry. The object of a deletion is transformed only if the
    /// deletion will be queued (D3).
    fn enter(&self, change: Change<T>) -> Result<EntryChange<T>, StoreError> {
        if let Change::Delete(gone @ Deleted::Final(object)) = &change
            && self.body.door.transform().is_some()
        {
            let key = self.body.door.accessor().key(object)?;
            let mut dropped = Vec::new();
            let state = self.body.lock();
            let known = self.is_known(&state, &key, &mut dropped);
            drop(state);
            if matches!(known?, Known::No) {
                let version = self.body.door.version(object);
                return Ok(EntryChange::Delete(key, gone.clone(), version));
            }
        }
        self.body.door.change(change)
    }

    /// Queues a change. `dropped` collects objects that must be dropped without the lock.
    /// client-go's `queueActionInternalLocked`.
    pub(super) fn put(
        &self,
        state: &mut State<T>,
        change: EntryChange<T>,
        dropped: &mut Vec<Arc<T>>,
    ) -> Result<(), StoreError> {
        let (key, delta, origin) = delta::of_change(change);
        let (version, is_added) = (origin.version.clone(), matches!(delta, Delta::Added(_)));
        let Some(key) = key else {
            state.versions.record_event(version);
            return Ok(());
        };
        state.populated = true;
        match delta {
            Delta::Deleted(gone) => match self.is_known(state, &key, dropped)? {
                Known::Yes => state.push(&key, Delta::Deleted(gone), origin, dropped),
                Known::BeingDeleted => state.defer_deletion(&key, gone, dropped),
                // Unknown (D3).
                Known::No => dropped.extend(gone.object().cloned()),
            },
            delta => state.push(&key, delta, origin, dropped),
        }
        state.versions.record_object(version, is_added);
        Ok(())
    }

    /// Queues the objects of a list.
    pub(super) fn push_list(
        &self,
        state: &mut State<T>,
        entries: Vec<Entry<T>>,
        dropped: &mut Vec<Arc<T>>,
    ) {
        state.waiting.items.reserve(entries.len());
        state.waiting.order.reserve(entries.len());
        for entry in entries {
            let delta = match self.emit_replaced {
                true => Delta::Replaced(entry.object),
                false => Delta::Sync(entry.object),
            };
            let origin = Origin {
                version: None,
                digest: entry.digest,
            };
            state.push(&entry.key, delta, origin, dropped);
        }
    }

    pub(super) fn replace_list(
        &self,
        entries: Vec<Entry<T>>,
        gaps: &Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let keys = || -> HashSet<Key> {
            let keys = entries.iter().map(|entry| Key::clone(&entry.key));
            keys.collect()
        };
        // On a relist, the set of keys is built before the lock is taken. In any case, it is
        // dropped after the lock is released.
        let is_relist = self.body.lock().populated;
        let mut listed = is_relist.then(keys);
        let (mut known, mut dropped) = (KnownSnapshot::default(), Vec::new());
        let mut state = self.body.lock();
        if listed.is_none() && self.has_objects(&state)? {
            listed = Some(keys());
        }
        match &listed {
            None => self.push_list(&mut state, entries, &mut dropped),
            Some(listed) => {
                let may_exist = |key: &Key| listed.contains(key) || gaps.cover(key);
                // Read the known objects before anything changes: `KnownObjects` is user code and
                // may fail or panic.
                let skip = |key: &Key| may_exist(key) || state.waiting.items.contains_key(key);
                self.known(&state, skip, &mut known)?;
                self.push_list(&mut state, entries, &mut dropped);
                if state.waiting.items.len() > listed.len() {
                    state.add_tombstones(|key| !may_exist(key), &mut dropped);
                }
                for (key, last_known) in known.objects.drain(..) {
                    let gone = Delta::Deleted(tombstone(&key, last_known));
                    state.push(&key, gone, Origin::default(), &mut dropped);
                }
                for (key, last_known) in known.being_deleted.drain(..) {
                    let gone = tombstone(&key, Some(last_known));
                    state.defer_deletion(&key, gone, &mut dropped);
                }
            }
        }
        state.versions.record_list(resource_version.into());
        state.replaced();
        self.body.unlock(state);
        Ok(())
    }
}

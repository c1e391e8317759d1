//! Writes: entries are queued under the lock. User code runs before, at the door.

use std::collections::HashSet;
use std::sync::Arc;

use super::known::{Known, KnownSnapshot};
use super::state::tombstone;
use super::{DeltaFifo, State};
use crate::base::digest::Digest;
use crate::object::{Deleted, Key};
use crate::queue::Delta;
use crate::queue::version_tracker;
use crate::store::{Change, Entry, EntryChange, Gaps, StoreError};

impl<T> DeltaFifo<T> {
    pub(super) fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        // A failed add or update also counts as a write (D2). A deletion without a key does not.
        let populates = change.is_write();
        let entered = self.enter(change);
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        let result = match entered {
            Ok(change) => self.put(&mut state, change, &mut dropped),
            Err(error) => {
                state.populated |= populates;
                Err(error)
            }
        };
        self.unlock(state);
        result
    }

    /// Turns a change into one with an entry. The object of a deletion is transformed only if the
    /// deletion will be queued (D3).
    fn enter(&self, change: Change<T>) -> Result<EntryChange<T>, StoreError> {
        if let Change::Delete(gone @ Deleted::Final(object)) = &change
            && self.door.transform().is_some()
        {
            let key = self.door.accessor().key(object)?;
            let mut dropped = Vec::new();
            let state = self.state.lock();
            let known = self.is_known(&state, &key, &mut dropped);
            drop(state);
            if matches!(known?, Known::No) {
                let version = self.door.version(object);
                return Ok(EntryChange::Delete(key, gone.clone(), version));
            }
        }
        self.door.change(change)
    }

    /// Queues a change. `dropped` collects objects that must be dropped without the lock.
    /// client-go's `queueActionInternalLocked`.
    pub(super) fn put(
        &self,
        state: &mut State<T>,
        change: EntryChange<T>,
        dropped: &mut Vec<Arc<T>>,
    ) -> Result<(), StoreError> {
        let (Entry { key, digest, .. }, version, delta) = match change {
            EntryChange::Add(entry, version) => {
                let delta = Delta::Added(Arc::clone(&entry.object));
                (entry, version, delta)
            }
            EntryChange::Update(entry, version) => {
                let delta = Delta::Updated(Arc::clone(&entry.object));
                (entry, version, delta)
            }
            EntryChange::Delete(key, gone, version) => {
                state.populated = true;
                match self.is_known(state, &key, dropped)? {
                    Known::Yes => state.push(&key, Delta::Deleted(gone), Digest::NONE, dropped),
                    Known::BeingDeleted => state.defer_deletion(&key, gone, dropped),
                    // Unknown (D3).
                    Known::No => dropped.extend(gone.object().cloned()),
                }
                state.versions.record_event(version);
                return Ok(());
            }
            EntryChange::Bookmark(version) => {
                let version = version_tracker::version(&version);
                state.versions.record_event(version);
                return Ok(());
            }
        };
        let is_added = matches!(delta, Delta::Added(_));
        state.populated = true;
        state.push(&key, delta, digest, dropped);
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
        state.items.reserve(entries.len());
        state.order.reserve(entries.len());
        for entry in entries {
            let delta = match self.emit_replaced {
                true => Delta::Replaced(entry.object),
                false => Delta::Sync(entry.object),
            };
            state.push(&entry.key, delta, entry.digest, dropped);
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
        let is_relist = self.state.lock().populated;
        let mut listed = is_relist.then(keys);
        let (mut known, mut dropped) = (KnownSnapshot::default(), Vec::new());
        let mut state = self.state.lock();
        if listed.is_none() && self.has_objects(&state)? {
            listed = Some(keys());
        }
        match &listed {
            None => self.push_list(&mut state, entries, &mut dropped),
            Some(listed) => {
                let may_exist = |key: &Key| listed.contains(key) || gaps.cover(key);
                // Read the known objects before anything changes: `KnownObjects` is user code and
                // may fail or panic.
                let skip = |key: &Key| may_exist(key) || state.items.contains_key(key);
                self.known(&state, skip, &mut known)?;
                self.push_list(&mut state, entries, &mut dropped);
                if state.items.len() > listed.len() {
                    state.add_tombstones(|key| !may_exist(key), &mut dropped);
                }
                for (key, last_known) in known.objects.drain(..) {
                    let gone = Delta::Deleted(tombstone(&key, last_known));
                    state.push(&key, gone, Digest::NONE, &mut dropped);
                }
                for (key, last_known) in known.being_deleted.drain(..) {
                    let gone = tombstone(&key, Some(last_known));
                    state.defer_deletion(&key, gone, &mut dropped);
                }
            }
        }
        state.versions.record_list(resource_version.into());
        if !state.populated {
            state.populated = true;
            state.initial_population = state.order.len();
        }
        self.unlock(state);
        Ok(())
    }
}

//! Writes whose index values are computed before the caller takes its locks.

use std::sync::Arc;
use std::time::Instant;

use super::super::index::{Computed, Registered, compute};
use super::super::slots::Slots;
use super::{SlowTransaction, State, ThreadSafeStore, Written};
use crate::base::sync::RwLockWriteGuard;
use crate::entry::{Delta, Entry};
use crate::resource_version::ResourceVersion;
use crate::store::StoreError;

/// The index functions of a store at one moment.
pub(crate) struct IndexFunctions<T>(Arc<[Registered<T>]>);

impl<T> IndexFunctions<T> {
    /// Runs the functions on an object.
    pub(crate) fn compute(&self, object: &T) -> Computed {
        compute(&self.0, object)
    }

    /// Builds the content of a replace, with all indexes.
    pub(crate) fn build(&self, entries: &[Entry<T>]) -> Slots<T> {
        let ids = self.0.iter().map(|registered| registered.id);
        let mut slots = Slots::with_capacity(entries.len(), ids);
        // If several objects have the same key, index functions run only on the last one.
        for entry in entries {
            slots.put(entry.clone(), Computed::default());
        }
        slots.index_all(|_, object| self.compute(object));
        slots
    }
}

impl<T> State<T> {
    /// Records the version of a change. One without a version leaves it as it is (W10).
    fn record_version(&mut self, delta: &Delta<T>) {
        if let Some(version) = delta.version() {
            self.resource_version = Some(version.clone());
        }
    }
}

/// A store whose list of index functions does not change until this is dropped, so that computed
/// values stay valid. It runs no user code. What it returns must be dropped later, without a lock. An
/// object for which an index function has failed is stored without values in that index.
pub(crate) struct Frozen<'s, T> {
    store: &'s ThreadSafeStore<T>,
}

impl<T> Frozen<'_, T> {
    fn lock(&self) -> RwLockWriteGuard<'_, State<T>> {
        self.store.state.write()
    }

    /// Applies the change of one object, or a bookmark.
    pub(crate) fn apply(&self, delta: &Delta<T>, computed: Option<Computed>) -> Written<T> {
        let mut state = self.lock();
        let written = state.apply(delta, computed);
        state.record_version(delta);
        written
    }

    /// Applies changes of single objects and bookmarks in one step. The caller logs a slow
    /// transaction.
    pub(crate) fn transact<'d>(
        &self,
        changes: impl ExactSizeIterator<Item = (&'d Delta<T>, Option<Computed>)>,
    ) -> (Vec<Written<T>>, Option<SlowTransaction>)
    where
        T: 'd,
    {
        let (mut written, mut last) = (Vec::with_capacity(changes.len()), None);
        let mut state = self.lock();
        let began = Instant::now();
        for (delta, computed) in changes {
            written.push(state.apply(delta, computed));
            last = delta.version().is_some().then_some(delta).or(last);
        }
        // As if the changes were applied one by one: the last one that has a version counts (X9). How
        // many changes are in a batch depends on when their bytes have arrived.
        if let Some(last) = last {
            state.record_version(last);
        }
        drop(state);
        let slow = SlowTransaction::of(written.len(), began.elapsed());
        (written, slow)
    }

    /// Replaces all objects. Afterwards, `slots` has the old ones. Returns the errors of index
    /// functions that failed for a state of an object for the first time.
    pub(crate) fn replace(
        &self,
        slots: &mut Slots<T>,
        resource_version: Option<ResourceVersion>,
    ) -> Vec<StoreError> {
        let mut state = self.lock();
        std::mem::swap(&mut state.slots, slots);
        state.resource_version = resource_version;
        // Mostly there are none, so the lock is not held for long.
        state.slots.new_failures(slots)
    }

    /// Sets the resource version.
    pub(crate) fn bookmark(&self, resource_version: Option<ResourceVersion>) {
        self.lock().resource_version = resource_version;
    }
}

impl<T> ThreadSafeStore<T> {
    /// Runs `prepare` without a lock, then `commit` while the list of index functions can't change.
    /// If it has changed in between, prepares again. What `prepare` returns is dropped without a lock.
    pub(crate) fn write_prepared<P, R>(
        &self,
        prepare: impl Fn(&IndexFunctions<T>) -> P,
        commit: impl FnOnce(&Frozen<'_, T>, &mut P) -> R,
    ) -> R {
        loop {
            let functions = IndexFunctions(Arc::clone(&self.state.read().functions));
            let mut prepared = prepare(&functions);
            // Declared after `prepared`, so that it is released first, also after a panic.
            let index_changes = self.index_changes.lock();
            if Arc::ptr_eq(&self.state.read().functions, &functions.0) {
                let written = commit(&Frozen { store: self }, &mut prepared);
                drop(index_changes);
                drop((prepared, functions));
                self.report_version();
                return written;
            }
        }
    }
}

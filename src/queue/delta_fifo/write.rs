//! Writes. The user code of a change runs first, then the change is applied under the lock.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::known::{Known, KnownSnapshot};
use super::state::tombstone;
use super::{DeltaFifo, State};
use crate::base::sync::MutexGuard;
use crate::object::{Deleted, Key};
use crate::queue::Delta;
use crate::queue::version_tracker;
use crate::resource_version::ResourceVersion;
use crate::store::{Change, Gaps, Rejected, StoreError, Transform};

/// A change whose key function and transform have run. Only the transform of a deletion runs later,
/// when it is clear that the deletion is queued (D3).
struct Prepared<T> {
    /// `None` for a bookmark.
    key: Option<Key>,
    change: Change<T>,
    /// The version of the object before the transform.
    version: Option<ResourceVersion>,
}

impl<T> DeltaFifo<T> {
    /// Computes the key, then runs the transform (K4).
    pub(super) fn prepare_object(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((key, object))
    }

    /// Prepares a change before the lock is taken: runs the key function, reads the resource
    /// version and transforms an added or updated object.
    fn prepare_change(&self, change: Change<T>) -> Result<Prepared<T>, Rejected<T>> {
        let (key, version) = match &change {
            Change::Add(object) | Change::Update(object) => (
                self.accessor.key(object),
                version_tracker::version_of(&self.accessor, object),
            ),
            Change::Delete(gone) => (
                self.accessor.key_of_deleted(gone),
                version_tracker::version_of_deleted(&self.accessor, gone),
            ),
            Change::Bookmark(version) => {
                return Ok(Prepared {
                    key: None,
                    version: version_tracker::version(version),
                    change,
                });
            }
        };
        let key = match key {
            Ok(key) => key,
            Err(error) => return Err(Rejected::new(change, error)),
        };
        // If the transform fails, the rejection does not contain the object. To return the object,
        // the queue would have to keep a second reference. This reference would force a transform
        // that changes the object in place to clone it.
        let transform = |object| Transform::run(self.transform.as_ref(), &key, object);
        let change = match change {
            Change::Add(object) => transform(object).map(Change::Add),
            Change::Update(object) => transform(object).map(Change::Update),
            other => Ok(other),
        };
        match change {
            Ok(change) => Ok(Prepared {
                key: Some(key),
                change,
                version,
            }),
            Err(error) => Err(Rejected {
                change: None,
                error,
            }),
        }
    }

    /// Applies as many changes as possible under one lock. With a transform, these are the changes
    /// up to and including the first deletion; without one, all changes.
    pub(super) fn apply_some(&self, changes: &mut VecDeque<Change<T>>) -> Result<(), Rejected<T>> {
        let mut prepared = VecDeque::with_capacity(changes.len());
        let (mut populates, mut result) = (false, Ok(()));
        while let Some(change) = changes.pop_front() {
            let is_write = change.is_write();
            let is_last = self.transform.is_some() && matches!(change, Change::Delete(_));
            match self.prepare_change(change) {
                Ok(change) => prepared.push_back(change),
                Err(rejected) => (populates, result) = (is_write, Err(rejected)),
            }
            if is_last || result.is_err() {
                break;
            }
        }
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        while let Some(change) = prepared.pop_front() {
            let put;
            (state, put) = self.put(state, change, &mut dropped);
            if put.is_err() {
                // The rejected change is a deletion. With a transform, a deletion is always the
                // last change of `prepared`. Without a transform, the later changes are still
                // unmodified and go back into `changes`.
                let later = std::mem::replace(&mut result, put).err();
                let later = later.and_then(|rejected| rejected.change);
                let unused = prepared.drain(..).map(|prepared| prepared.change);
                let unused: Vec<_> = unused.chain(later).collect();
                unused
                    .into_iter()
                    .rev()
                    .for_each(|change| changes.push_front(change));
                populates = false;
            }
        }
        state.populated |= populates;
        self.unlock(state);
        result
    }

    pub(super) fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        let populates = change.is_write();
        let prepared = self.prepare_change(change);
        let mut dropped = Vec::new();
        let mut state = self.state.lock();
        let result = match prepared {
            Ok(prepared) => {
                let result;
                (state, result) = self.put(state, prepared, &mut dropped);
                result
            }
            Err(rejected) => {
                // A failed add or update also counts as a write (D2). A deletion without a key does
                // not.
                state.populated |= populates;
                Err(rejected)
            }
        };
        self.unlock(state);
        result.map_err(|rejected| rejected.error)
    }

    /// Queues a change. Releases the lock while the transform of a deletion runs. `dropped`
    /// collects objects that must be dropped without the lock. client-go's
    /// `queueActionInternalLocked`.
    fn put<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        prepared: Prepared<T>,
        dropped: &mut Vec<Arc<T>>,
    ) -> (MutexGuard<'a, State<T>>, Result<(), Rejected<T>>) {
        let Prepared {
            key,
            change,
            version,
        } = prepared;
        let (key, is_added, delta) = match (change, key) {
            (Change::Bookmark(_), _) | (_, None) => {
                state.versions.record_event(version);
                return (state, Ok(()));
            }
            (Change::Delete(gone), Some(key)) => {
                return self.put_deletion(state, &key, gone, version, dropped);
            }
            (Change::Add(object), Some(key)) => (key, true, Delta::Added(object)),
            (Change::Update(object), Some(key)) => (key, false, Delta::Updated(object)),
        };
        state.populated = true;
        state.push(&key, delta, dropped);
        state.versions.record_object(version, is_added);
        (state, Ok(()))
    }

    /// Queues a deletion unless its key is unknown (D3).
    fn put_deletion<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<T>>,
        key: &Key,
        mut gone: Deleted<T>,
        version: Option<ResourceVersion>,
        dropped: &mut Vec<Arc<T>>,
    ) -> (MutexGuard<'a, State<T>>, Result<(), Rejected<T>>) {
        state.populated = true;
        let mut known = self.is_known(&state, key, dropped);
        if let Deleted::Final(object) = &gone
            && self.transform.is_some()
            && !matches!(known, Ok(Known::No))
        {
            self.unlock(state);
            let transformed = Transform::run(self.transform.as_ref(), key, Arc::clone(object));
            state = self.state.lock();
            known = match transformed {
                Ok(object) => {
                    let original = std::mem::replace(&mut gone, Deleted::Final(object));
                    dropped.extend(original.object().cloned());
                    self.is_known(&state, key, dropped)
                }
                Err(error) => Err(error),
            };
        }
        match known {
            Ok(Known::Yes) => state.push(key, Delta::Deleted(gone), dropped),
            Ok(Known::BeingDeleted) => state.defer_deletion(key, gone, dropped),
            Ok(Known::No) => dropped.extend(gone.object().cloned()),
            Err(error) => return (state, Err(Rejected::new(Change::Delete(gone), error))),
        }
        state.versions.record_event(version);
        (state, Ok(()))
    }

    /// Queues the objects of a list.
    pub(super) fn push_list(
        &self,
        state: &mut State<T>,
        objects: Vec<(Key, Arc<T>)>,
        dropped: &mut Vec<Arc<T>>,
    ) {
        state.items.reserve(objects.len());
        state.order.reserve(objects.len());
        for (key, object) in objects {
            let delta = match self.emit_replaced {
                true => Delta::Replaced(object),
                false => Delta::Sync(object),
            };
            state.push(&key, delta, dropped);
        }
    }

    pub(super) fn replace_prepared(
        &self,
        objects: Vec<(Key, Arc<T>)>,
        gaps: &Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let keys = || -> HashSet<Key> { objects.iter().map(|(key, _)| Key::clone(key)).collect() };
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
            None => self.push_list(&mut state, objects, &mut dropped),
            Some(listed) => {
                let may_exist = |key: &Key| listed.contains(key) || gaps.cover(key);
                // Read the known objects before anything changes: `KnownObjects` is user code and
                // may fail or panic.
                let skip = |key: &Key| may_exist(key) || state.items.contains_key(key);
                self.known(&state, skip, &mut known)?;
                self.push_list(&mut state, objects, &mut dropped);
                if state.items.len() > listed.len() {
                    state.add_tombstones(|key| !may_exist(key), &mut dropped);
                }
                for (key, last_known) in known.objects.drain(..) {
                    let gone = tombstone(&key, last_known);
                    state.push(&key, Delta::Deleted(gone), &mut dropped);
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

//! Processes deltas: updates the cache and creates the notifications. client-go's `processDeltas`
//! and `processDeltasInBatch`.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

use super::handler::Notification;
use crate::base::digest::Digest;
use crate::base::panic;
use crate::base::shrink::Shrink;
use crate::base::sync::Mutex;
use crate::object::{Accessor, Deleted, Key, KeyError, Object};
use crate::queue::{BatchError, Delta, Deltas, ProcessError, ReplacedAll};
use crate::store::{Entry, EntryChange, Gaps, Indexer, KnownObjects, StoreError};

const NO_KEY: &str = "the change is not one of an object with a key";

/// The maximum number of changes that are written to the cache in one step. Lookups wait for a
/// step, but not for the whole list.
const STEP: usize = 1000;

/// A callback for each notification. The second argument is client-go's `isSync`: the old and the
/// new object have the same resource version, so only handlers that are resyncing get the
/// notification (I16). Returns whether to continue. After a stop, the remaining notifications are
/// dropped (C3).
pub(super) type Notify<'a, T> = dyn FnMut(Key, Notification<T>, bool) -> bool + 'a;

/// The part of an informer's cache that one reflector fills: the whole cache, or one namespace.
pub(super) struct IndexerPart<T> {
    cache: Arc<Indexer<T>>,
    /// `None` for the whole cache.
    namespace: Option<NamespacePart>,
    /// Whether a new UID under the same key is delivered as a deletion and an add.
    recreation_as_delete_and_add: bool,
}

/// The part of a cache that has the objects of one namespace.
struct NamespacePart {
    /// The prefix of all keys of this part: the namespace and a slash.
    prefix: String,
    /// The keys of the cached objects, so that a list or a resync does not visit the objects of the
    /// other namespaces. A map without values, because it can [`Shrink`]. An innermost lock.
    keys: Mutex<HashMap<Key, ()>>,
}

impl<T: Object> IndexerPart<T> {
    pub(super) fn new(
        cache: Arc<Indexer<T>>,
        namespace: Option<&str>,
        recreation_as_delete_and_add: bool,
    ) -> Self {
        let namespace = namespace.map(|namespace| {
            let prefix = format!("{namespace}/");
            let mut keys = cache.list_keys();
            keys.retain(|key| key.starts_with(&prefix));
            let keys = Mutex::new(keys.into_iter().map(|key| (key, ())).collect());
            NamespacePart { prefix, keys }
        });
        Self {
            cache,
            namespace,
            recreation_as_delete_and_add,
        }
    }

    /// Applies the changes of one object to the cache, oldest first, and notifies about each one.
    /// Also applies a list, a full resync or a bookmark. The content of the cache decides whether
    /// an object was added or updated, not the type of the delta (P2).
    pub(super) fn process(
        &self,
        deltas: &Deltas<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        let mut keep_notifying = true;
        // All popped deltas reach the cache, even after a stop: the queue counts them as processed.
        let notify = &mut |key, event, is_sync| {
            keep_notifying = keep_notifying && notify(key, event, is_sync);
            keep_notifying
        };
        // Continue after an error: a rejected delta must not affect the deltas after it.
        let mut result = Ok(());
        for delta in deltas.iter() {
            let processed = self.process_one(deltas, delta, is_in_initial_list, notify);
            result = match (result, processed) {
                (Err(before), Ok(())) => Err(Superseded::by_newer(before)),
                (_, processed) => processed,
            };
        }
        result
    }

    fn process_one(
        &self,
        deltas: &Deltas<T>,
        delta: &Delta<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        match delta {
            Delta::Deleted(gone) => {
                let key = key(deltas)?;
                let old = self.cache.get_by_key(key);
                self.cache.keyed().delete_with_object(key, gone)?;
                self.record_keys([(key, false)]);
                notify(
                    Key::clone(key),
                    Notification::deleted(gone.clone(), old),
                    false,
                );
            }
            Delta::Added(object)
            | Delta::Updated(object)
            | Delta::Replaced(object)
            | Delta::Sync(object) => {
                let key = key(deltas)?;
                let added = self.cache.keyed().put(entry(key, object, deltas));
                let old = added.map_err(|error| {
                    let cached = self.cache.get_by_key(key);
                    rejection(error, cached.as_ref(), object)
                })?;
                self.record_keys([(key, true)]);
                self.notify_object(
                    Key::clone(key),
                    old,
                    Arc::clone(object),
                    is_in_initial_list,
                    notify,
                );
            }
            Delta::ReplacedAll(list) => self.replace_all(list, is_in_initial_list, notify)?,
            Delta::SyncAll => {
                self.known().into_iter().all(|entry| {
                    let event = Notification::Modified {
                        old: Arc::clone(&entry.object),
                        new: entry.object,
                    };
                    notify(entry.key, event, true)
                });
            }
            Delta::Bookmark(resource_version) => self.cache.keyed().bookmark(resource_version),
        }
        Ok(())
    }

    /// Calls [`process`](Self::process) for each item of a batch. A failed item does not affect the
    /// others.
    pub(super) fn process_each(
        &self,
        batch: &[Deltas<T>],
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        let mut errors = BatchError::default();
        for (position, deltas) in batch.iter().enumerate() {
            match panic::catch(|| self.process(deltas, is_in_initial_list, notify)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) => errors.add(position, error),
                Err(panic) => errors.add(position, panic),
            }
        }
        errors.into_result()
    }

    /// Applies the changes of many objects, one object per item. All changes are in the cache
    /// before the first notification (P10, P11).
    pub(super) fn process_batch(
        &self,
        batch: &[Deltas<T>],
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        let mut failed = BatchError::default();
        let mut changes = Vec::with_capacity(batch.len());
        // The cached object before each change, and the position of the change in the batch.
        let mut before = Vec::with_capacity(batch.len());
        for (item, deltas) in batch.iter().enumerate() {
            for delta in deltas.iter() {
                let change = key(deltas).and_then(|key| match delta {
                    Delta::Deleted(gone) => {
                        Ok(EntryChange::Delete(Key::clone(key), gone.clone(), None))
                    }
                    Delta::Added(object)
                    | Delta::Updated(object)
                    | Delta::Replaced(object)
                    | Delta::Sync(object) => {
                        Ok(EntryChange::Update(entry(key, object, deltas), None))
                    }
                    Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_) => {
                        Err(StoreError::other(NO_KEY))
                    }
                });
                match change {
                    Ok(change) => {
                        let cached = change.key().and_then(|key| self.cache.get_by_key(key));
                        before.push((cached, item));
                        changes.push(change);
                    }
                    Err(error) => failed.add(item, error),
                }
            }
        }
        let (applied, errors) = self.write(changes.clone());
        for (at, error) in errors {
            let (cached, item) = &before[at];
            match &changes[at] {
                EntryChange::Update(new, _) => {
                    failed.add(*item, rejection(error, cached.as_ref(), &new.object));
                }
                _ => failed.add(*item, error),
            }
        }
        let (mut changes, mut at) = (changes.into_iter().zip(before), 0);
        for position in applied {
            let Some((change, (old, _))) = changes.nth(position - at) else {
                break;
            };
            at = position + 1;
            let keep_notifying = match change {
                EntryChange::Delete(key, gone, _) => {
                    notify(key, Notification::deleted(gone, old), false)
                }
                EntryChange::Add(new, _) | EntryChange::Update(new, _) => {
                    self.notify_object(new.key, old, new.object, is_in_initial_list, notify)
                }
                EntryChange::Bookmark(_) => true,
            };
            if !keep_notifying {
                break;
            }
        }
        failed.into_result()
    }

    /// Applies a list. The cache contains the whole list before the first notification, and
    /// deletions are delivered first. An object that has no key, or that an index function rejects,
    /// does not affect the others.
    fn replace_all(
        &self,
        list: &ReplacedAll<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        // The list is one item of the queue, so all errors have the position 0.
        let mut failed = BatchError::default();
        let mut gaps = list.gaps.clone();
        let mut listed: HashMap<Key, usize> = HashMap::with_capacity(list.objects.len());
        let mut entries = Vec::with_capacity(list.objects.len());
        for (object, (key, digest)) in list.objects.iter().zip(&list.marks) {
            let Some(key) = key else {
                gaps.add(None);
                failed.add(0, StoreError::other(NO_KEY));
                continue;
            };
            let entry = Entry {
                key: Key::clone(key),
                object: Arc::clone(object),
                digest: *digest,
            };
            // If several objects have the same key, the last one counts, as in the store.
            match listed.get(key) {
                Some(at) => entries[*at] = entry,
                None => {
                    listed.insert(Key::clone(key), entries.len());
                    entries.push(entry);
                }
            }
        }
        let old = self.known().into_iter().map(|it| (it.key, it.object));
        let old: HashMap<Key, Arc<T>> = old.collect();
        let gone: Vec<(&Key, &Arc<T>)> = old
            .iter()
            .filter(|(key, _)| !listed.contains_key(*key) && !gaps.cover(key))
            .collect();
        let rejected = self.write_list(&entries, &gone, &gaps, &list.resource_version);
        let rejected_at: HashSet<usize> = rejected.iter().map(|(at, _)| *at).collect();
        for (at, error) in rejected {
            let new = &entries[at];
            failed.add(0, rejection(error, old.get(&new.key), &new.object));
        }
        for (key, object) in gone {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(key),
                last_known: Some(Arc::clone(object)),
            };
            if !notify(Key::clone(key), Notification::deleted(gone, None), false) {
                return failed.into_result();
            }
        }
        for (at, new) in entries.into_iter().enumerate() {
            if rejected_at.contains(&at) {
                continue;
            }
            let before = old.get(&new.key).cloned();
            if !self.notify_object(new.key, before, new.object, is_in_initial_list, notify) {
                break;
            }
        }
        failed.into_result()
    }

    /// Writes a list to the cache. Returns the rejected objects by their index in `entries`.
    fn write_list(
        &self,
        entries: &[Entry<T>],
        gone: &[(&Key, &Arc<T>)],
        gaps: &Gaps,
        resource_version: &str,
    ) -> Vec<(usize, StoreError)> {
        if self.namespace.is_none() {
            let mut kept = entries.to_vec();
            self.cache.keep_in_gaps(&mut kept, gaps);
            // This rejects the whole list for a single bad object. If it does, the code below
            // writes the objects individually.
            let replaced = self.cache.keyed().replace_entries(kept, resource_version);
            if replaced.is_ok() {
                return Vec::new();
            }
        }
        let updates = entries.iter().cloned();
        let updates = updates.map(|entry| EntryChange::Update(entry, None));
        let deletions = gone.iter().map(|(key, object)| {
            let gone = Deleted::Final(Arc::clone(object));
            EntryChange::Delete(Key::clone(key), gone, None)
        });
        let (mut changes, mut rejected) = (updates.chain(deletions), Vec::new());
        for step in 0.. {
            let changes: Vec<_> = changes.by_ref().take(STEP).collect();
            if changes.is_empty() {
                break;
            }
            let (_, errors) = self.write(changes);
            rejected.extend(
                errors
                    .into_iter()
                    .map(|(at, error)| (step * STEP + at, error)),
            );
        }
        self.cache.keyed().bookmark(resource_version);
        rejected
    }

    /// Applies changes to the cache in one step. Returns the positions of the applied changes, and
    /// the errors of the others with their positions.
    fn write(&self, changes: Vec<EntryChange<T>>) -> (Vec<usize>, Vec<(usize, StoreError)>) {
        let keys = changes.iter().filter_map(|change| {
            let is_stored = !matches!(change, EntryChange::Delete(..));
            Some((Key::clone(change.key()?), is_stored))
        });
        let keys: Vec<_> = self.namespace.iter().flat_map(|_| keys.clone()).collect();
        let (applied, errors) = self
            .cache
            .keyed()
            .transact(changes.into_iter().enumerate().collect());
        let applied_keys = applied.iter().filter_map(|at| keys.get(*at));
        self.record_keys(applied_keys.map(|(key, is_stored)| (key, *is_stored)));
        (applied, errors)
    }

    /// Records which keys are now stored or deleted.
    fn record_keys<'k>(&self, changes: impl IntoIterator<Item = (&'k Key, bool)>) {
        let Some(namespace) = &self.namespace else {
            return;
        };
        let mut keys = namespace.keys.lock();
        for (key, is_stored) in changes {
            if is_stored {
                keys.insert(Key::clone(key), ());
            } else {
                keys.remove(key);
                keys.shrink_after_peak();
            }
        }
    }

    /// Notifies about an object that is now in the cache and replaced `old`.
    fn notify_object(
        &self,
        key: Key,
        old: Option<Arc<T>>,
        new: Arc<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> bool {
        let added = |object| Notification::Added {
            object,
            is_in_initial_list,
        };
        let Some(old) = old else {
            return notify(key, added(new), false);
        };
        if self.recreation_as_delete_and_add && is_recreated(&*old, &*new) {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(&key),
                last_known: Some(old),
            };
            return notify(Key::clone(&key), Notification::deleted(gone, None), false)
                && notify(key, added(new), false);
        }
        let is_sync = old.resource_version() == new.resource_version();
        notify(key, Notification::Modified { old, new }, is_sync)
    }

    /// Returns the accessor for the queue of this part. The accessor rejects the keys of other
    /// namespaces, so objects of other namespaces are reported as unreadable and left out.
    pub(super) fn accessor(self: &Arc<Self>) -> Accessor<T> {
        let accessor = Accessor::object();
        if self.namespace.is_none() {
            return accessor;
        }
        let part = Arc::clone(self);
        accessor.with_check(move |key| {
            if part.has(key) {
                Ok(())
            } else {
                Err(part.other_namespace_error(key))
            }
        })
    }

    fn other_namespace_error(&self, key: &str) -> KeyError {
        let prefix = self.namespace.as_ref().map(|namespace| &*namespace.prefix);
        let namespace = prefix.unwrap_or_default().trim_end_matches('/');
        KeyError::new(format!("{key:?} is not in the namespace {namespace}"))
    }

    /// Returns the cached objects of this part.
    pub(super) fn known(&self) -> Vec<Entry<T>> {
        if self.namespace.is_none() {
            return self.cache.keyed().entries();
        }
        let keys = self.list_keys().into_iter();
        keys.filter_map(|key| self.cache.keyed().entry(&key))
            .collect()
    }

    fn has(&self, key: &str) -> bool {
        self.namespace
            .as_ref()
            .is_none_or(|namespace| key.starts_with(&namespace.prefix))
    }
}

/// Returns the key under which a change was queued.
fn key<T>(deltas: &Deltas<T>) -> Result<&Key, StoreError> {
    deltas.key().ok_or_else(|| StoreError::other(NO_KEY))
}

/// Returns the entry of an object in `deltas`. Only the newest one needs the digest.
fn entry<T>(key: &Key, object: &Arc<T>, deltas: &Deltas<T>) -> Entry<T> {
    let newest = deltas.newest().and_then(Delta::object);
    Entry {
        key: Key::clone(key),
        object: Arc::clone(object),
        digest: match newest.is_some_and(|newest| Arc::ptr_eq(newest, object)) {
            true => deltas.digest,
            false => Digest::NONE,
        },
    }
}

/// The error of a rejected state, although the cache has a newer state of the object, or has this
/// one already.
#[derive(Debug)]
pub(super) struct Superseded(ProcessError);

impl Superseded {
    fn by_newer(rejected: ProcessError) -> ProcessError {
        match rejected.is::<Self>() {
            true => rejected,
            false => Box::new(Self(rejected)),
        }
    }
}

impl fmt::Display for Superseded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Superseded {}

/// Returns the error of an object that the cache rejected while it had `cached`.
fn rejection<T>(error: StoreError, cached: Option<&Arc<T>>, new: &Arc<T>) -> ProcessError {
    // A resync or a list delivers the cached object again.
    match cached.is_some_and(|cached| Arc::ptr_eq(cached, new)) {
        true => Superseded::by_newer(error.into()),
        false => error.into(),
    }
}

/// Whether the object was deleted and created again under the same key.
fn is_recreated<T: Object>(old: &T, new: &T) -> bool {
    !old.uid().is_empty() && !new.uid().is_empty() && old.uid() != new.uid()
}

impl<T: Object> KnownObjects<T> for IndexerPart<T> {
    fn list_keys(&self) -> Vec<Key> {
        match &self.namespace {
            None => self.cache.list_keys(),
            Some(namespace) => namespace.keys.lock().keys().cloned().collect(),
        }
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<T>>, StoreError> {
        Ok(self.has(key).then(|| self.cache.get_by_key(key)).flatten())
    }

    fn entry(&self, key: &str) -> Option<Entry<T>> {
        self.has(key).then(|| self.cache.keyed().entry(key))?
    }
}

#[cfg(test)]
mod tests;

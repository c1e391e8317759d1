//! Processes deltas: updates the cache and creates the notifications. client-go's `processDeltas`
//! and `processDeltasInBatch`.

use std::collections::HashMap;
use std::sync::Arc;

use super::handler::Notification;
use crate::base::hash::RandomState;
use crate::base::panic;
use crate::base::shrink::Shrink;
use crate::base::sync::Mutex;
use crate::entry::{Delta, Entry, Gaps, ReplacedAll};
use crate::object::{Accessor, Deleted, Key, KeyError, Object};
use crate::queue::{BatchError, Deltas, ProcessError};
use crate::store::{Indexer, KnownObjects, SlowTransaction, StoreError, StoreUnindexed, Written};

const NO_KEY: &str = "an object of the list has no key";
const NOT_IN_A_BATCH: &str = "the change is not one of a single object, but in a batch";

/// The maximum number of changes that are written to the cache in one step. Lookups wait for a
/// step, but not for the whole list.
const STEP: usize = 1000;

/// A callback for each notification. The second argument is client-go's `isSync`: the old and the
/// new object are the same state, so only handlers that are resyncing get the notification (I16).
///
/// An object that the cache has no longer is in a notification, and nowhere else in this module. So
/// the callback decides when its destructor runs, which is user code.
pub(super) type Notify<'a, T> = dyn FnMut(Key, Notification<T>, bool) + 'a;

/// The part of an informer's cache that one reflector fills: the whole cache, or one namespace.
pub(super) struct IndexerPart<T> {
    cache: Arc<Indexer<T>>,
    /// `None` for the whole cache.
    namespace: Option<NamespacePart>,
    /// Whether a new UID under the same key is delivered as a deletion and an add.
    recreation_as_delete_and_add: bool,
    /// What the processing leaves for the log and the error handlers, which are user code: they run
    /// when no lock is held and no pop is under way.
    reports: Arc<Reports>,
}

/// What the writes of a cache leave to report. The locks are innermost ones.
#[derive(Default)]
pub(super) struct Reports {
    /// The last slow transaction.
    slow: Mutex<Option<SlowTransaction>>,
    /// The errors of index functions that failed for a new state of an object.
    unindexed: Mutex<Vec<StoreError>>,
}

impl Reports {
    /// Takes the slow transaction.
    pub(super) fn take_slow(&self) -> Option<SlowTransaction> {
        self.slow.lock().take()
    }

    /// Takes the errors of index functions.
    pub(super) fn take_unindexed(&self) -> Vec<StoreError> {
        std::mem::take(&mut self.unindexed.lock())
    }

    fn add_unindexed(&self, errors: Vec<StoreError>) {
        if !errors.is_empty() {
            self.unindexed.lock().extend(errors);
        }
    }
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
            reports: Arc::default(),
        }
    }

    /// Returns what this part leaves to report.
    pub(super) fn reports(&self) -> &Arc<Reports> {
        &self.reports
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
        deltas
            .iter()
            .try_for_each(|delta| self.process_one(delta, is_in_initial_list, notify))
    }

    /// Like [`process`](Self::process), but for one change.
    pub(super) fn process_one(
        &self,
        delta: &Delta<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        match delta {
            Delta::ReplacedAll(list) => return self.replace_all(list, is_in_initial_list, notify),
            Delta::SyncAll => {
                for entry in self.known() {
                    let event = Notification::Modified {
                        old: Arc::clone(&entry.object),
                        new: entry.object,
                    };
                    notify(entry.key, event, true);
                }
                return Ok(());
            }
            _ => {}
        }
        let Ok(written) = self.cache.keyed().apply(delta, StoreUnindexed);
        self.record([delta]);
        self.reports.add_unindexed(written.unindexed);
        self.notify_delta(delta, written.before, is_in_initial_list, notify);
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
        let mut failed = BatchError::default();
        for (position, deltas) in batch.iter().enumerate() {
            let processed = self.process(deltas, is_in_initial_list, notify);
            let error = processed.err().and_then(ProcessError::into_error);
            if let Some(error) = error {
                failed.add(position, error);
            }
        }
        failed.into_result()
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
        let deltas = batch.iter().enumerate();
        let deltas =
            deltas.flat_map(|(item, deltas)| deltas.iter().map(move |delta| (item, delta)));
        let (of_objects, others): (Vec<_>, Vec<_>) =
            deltas.partition(|(_, delta)| delta.is_of_object());
        let written = self.write(of_objects.iter().map(|(_, delta)| *delta));
        for ((_, delta), written) in of_objects.into_iter().zip(written) {
            self.notify_delta(delta, written.before, is_in_initial_list, notify);
        }
        // A queue delivers them alone (P12, R15).
        for (item, _) in others {
            failed.add(item, StoreError::other(NOT_IN_A_BATCH));
        }
        failed.into_result()
    }

    /// Applies a list. The cache contains the whole list before the first notification, and
    /// deletions are delivered first. An object that has no key does not affect the others.
    fn replace_all(
        &self,
        list: &ReplacedAll<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) -> Result<(), ProcessError> {
        // The list is one item of the queue, so all errors have the position 0.
        let mut failed = BatchError::default();
        let mut gaps = list.gaps.clone();
        // An object without a key may be any of the cached ones.
        for _ in &list.without_key {
            gaps.add(None);
            failed.add(0, StoreError::other(NO_KEY));
        }
        let mut listed: HashMap<Key, usize> = HashMap::with_capacity(list.entries.len());
        let mut entries: Vec<Entry<T>> = Vec::with_capacity(list.entries.len());
        for entry in &list.entries {
            // If several objects have the same key, the last one counts, as in the store.
            match listed.get(&entry.key) {
                Some(at) => entries[*at] = entry.clone(),
                None => {
                    listed.insert(Key::clone(&entry.key), entries.len());
                    entries.push(entry.clone());
                }
            }
        }
        let old = self.known().into_iter();
        let old = old.map(|entry| (Key::clone(&entry.key), entry));
        let mut old: HashMap<Key, Entry<T>, RandomState> = old.collect();
        let gone: Vec<(Key, Arc<T>)> = old
            .extract_if(|key, _| !listed.contains_key(key) && !gaps.cover(key))
            .map(|(key, entry)| (key, entry.object))
            .collect();
        self.write_list(&entries, &gone, &gaps, &list.resource_version.to_string());
        for (key, object) in gone {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(&key),
                last_known: Some(object),
            };
            notify(key, Notification::deleted(gone, None), false);
        }
        for new in entries {
            // What stays in `old` is still in the cache.
            let before = old.remove(&new.key);
            self.notify_object(before, new, is_in_initial_list, notify);
        }
        failed.into_result()
    }

    /// Writes a list to the cache: as a whole, or in steps if other parts of the cache stay.
    fn write_list(
        &self,
        entries: &[Entry<T>],
        gone: &[(Key, Arc<T>)],
        gaps: &Gaps,
        resource_version: &str,
    ) {
        if self.namespace.is_none() {
            let mut kept = entries.to_vec();
            self.cache.keep_in_gaps(&mut kept, gaps);
            let cache = self.cache.keyed();
            let Ok(unindexed) = cache.replace_entries(kept, resource_version, StoreUnindexed);
            self.reports.add_unindexed(unindexed);
            return;
        }
        // The objects of a list do not advance the version of the cache one by one.
        let updates = entries.iter().map(|entry| {
            Delta::Updated(Entry {
                version: None,
                ..entry.clone()
            })
        });
        let deletions = gone
            .iter()
            .map(|(key, object)| Delta::tombstone(Key::clone(key), Some(Arc::clone(object))));
        let mut changes = updates.chain(deletions);
        loop {
            let step: Vec<_> = changes.by_ref().take(STEP).collect();
            if step.is_empty() {
                break;
            }
            self.write(step.iter());
        }
        self.cache.keyed().bookmark(resource_version);
    }

    /// Applies changes to the cache in one step.
    fn write<'d>(&self, deltas: impl Iterator<Item = &'d Delta<T>> + Clone) -> Vec<Written<T>>
    where
        T: 'd,
    {
        let cache = self.cache.keyed();
        let (outcomes, slow) = cache.transact(deltas.clone(), StoreUnindexed);
        if slow.is_some() {
            *self.reports.slow.lock() = slow;
        }
        self.record(deltas);
        let mut written = Vec::with_capacity(outcomes.len());
        for outcome in outcomes {
            let Ok(mut outcome) = outcome;
            let unindexed = std::mem::take(&mut outcome.unindexed);
            self.reports.add_unindexed(unindexed);
            written.push(outcome);
        }
        written
    }

    /// Records which keys are now stored or deleted.
    fn record<'d>(&self, deltas: impl IntoIterator<Item = &'d Delta<T>>)
    where
        T: 'd,
    {
        let Some(namespace) = &self.namespace else {
            return;
        };
        let mut keys = namespace.keys.lock();
        for delta in deltas {
            if let Delta::Deleted { key, .. } = delta {
                keys.remove(key);
                keys.shrink_after_peak();
            } else if let Some(entry) = delta.entry() {
                keys.insert(Key::clone(&entry.key), ());
            }
        }
    }

    /// Notifies about a change of the cache, which had `old` before.
    fn notify_delta(
        &self,
        delta: &Delta<T>,
        old: Option<Entry<T>>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) {
        if let Delta::Deleted { key, gone, .. } = delta {
            let old = old.map(|old| old.object);
            notify(
                Key::clone(key),
                Notification::deleted(gone.clone(), old),
                false,
            );
        } else if let Some(new) = delta.entry() {
            self.notify_object(old, new.clone(), is_in_initial_list, notify);
        }
    }

    /// Notifies about an object that is now in the cache and replaced `old`.
    fn notify_object(
        &self,
        old: Option<Entry<T>>,
        new: Entry<T>,
        is_in_initial_list: bool,
        notify: &mut Notify<'_, T>,
    ) {
        let added = |object| Notification::Added {
            object,
            is_in_initial_list,
        };
        let Entry {
            key,
            object: new,
            digest,
            ..
        } = new;
        let Some(old) = old else {
            return notify(key, added(new), false);
        };
        // The digests tell a real change within one version, for example after a restore of etcd
        // (I17). One of them is unknown if the object did not come from a reflector.
        let is_other_content = old.digest.differs(digest);
        let old = old.object;
        // A transform may have changed an object so that its accessors panic. The update then goes
        // to every handler: the cache has it already.
        let read = panic::catch(|| {
            let is_recreated = self.recreation_as_delete_and_add && is_recreated(&*old, &*new);
            (
                is_recreated,
                old.resource_version() == new.resource_version(),
            )
        });
        let (is_recreated, is_same_version) = read.unwrap_or_default();
        if is_recreated {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(&key),
                last_known: Some(old),
            };
            notify(Key::clone(&key), Notification::deleted(gone, None), false);
            return notify(key, added(new), false);
        }
        let is_sync = is_same_version && !is_other_content;
        notify(key, Notification::Modified { old, new }, is_sync);
    }

    /// Returns the accessor for the queue of this part. The accessor rejects the keys of other
    /// namespaces, so objects of other namespaces are reported as unreadable and left out.
    pub(super) fn accessor(self: &Arc<Self>) -> Accessor<T> {
        let accessor = Accessor::object();
        if self.namespace.is_none() {
            return accessor;
        }
        let part = Arc::clone(self);
        accessor.with_check(move |key| match &part.namespace {
            Some(NamespacePart { prefix, .. }) if !key.starts_with(prefix) => {
                let namespace = prefix.trim_end_matches('/');
                let problem = format!("{key:?} is not in the namespace {namespace}");
                Err(KeyError::new(problem))
            }
            _ => Ok(()),
        })
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

    fn unindexed(&self) -> usize {
        self.cache.keyed().count_unindexed(|key| self.has(key))
    }

    fn entry(&self, key: &str) -> Option<Entry<T>> {
        self.has(key).then(|| self.cache.keyed().entry(key))?
    }
}

#[cfg(test)]
mod tests;

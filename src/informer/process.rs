//! Processes deltas: updates the cache and creates the notifications. client-go's `processDeltas`
//! and `processDeltasInBatch`.

use std::collections::HashMap;
use std::sync::Arc;

use super::handler::Notification;
use crate::base::hash::RandomState;
use crate::base::panic;
use crate::base::shrink::Shrink;
use crate::base::sync::Mutex;
use crate::entry::{Delta, Entry, ReplacedAll};
use crate::object::{Accessor, Deleted, Key, KeyError, Object};
use crate::queue::{BatchError, Deltas, Origin, ProcessError};
use crate::resource_version::ResourceVersion;
use crate::store::{
    Computed, FailedIndex, Frozen, IndexFunctions, Indexer, KnownObjects, Slots, SlowTransaction,
    StoreError, Written,
};

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
pub(super) struct CachePart<T> {
    cache: Arc<Indexer<T>>,
    /// `None` for the whole cache.
    namespace: Option<NamespaceKeys>,
    /// Whether a new UID under the same key is delivered as a deletion and an add.
    recreation_as_delete_and_add: bool,
}

/// What the writes of a pop leave to report after it: loggers and error handlers are user code.
#[derive(Default)]
pub(super) struct Reports {
    /// The last slow transaction.
    pub(super) slow: Option<SlowTransaction>,
    /// The errors of index functions that failed for a new state of an object.
    pub(super) unindexed: Vec<StoreError>,
}

/// Which objects of the cache belong to one namespace.
struct NamespaceKeys {
    /// The prefix of all keys of this part: the namespace and a slash.
    prefix: String,
    /// The keys of the cached objects, so that a list or a resync does not visit the objects of the
    /// other namespaces. A map without values, because it can [`Shrink`]. An innermost lock.
    keys: Mutex<HashMap<Key, (), RandomState>>,
}

impl<T: Object> CachePart<T> {
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
            NamespaceKeys { prefix, keys }
        });
        Self {
            cache,
            namespace,
            recreation_as_delete_and_add,
        }
    }

    /// Returns the number of objects in this part for which an index function failed.
    pub(super) fn count_unindexed(&self) -> usize {
        self.cache.keyed().count_unindexed(|key| self.has(key))
    }

    /// Applies a batch to the cache and notifies about each change. The content of the cache decides
    /// whether an object was added or updated, not the type of the delta (P2).
    ///
    /// All user code runs first, without a lock: index functions, and the accessors that compare an
    /// object with its state before. `blocked` is locked while the cache is written and the handlers
    /// are notified.
    pub(super) fn process<'d>(
        &self,
        batch: impl Fn() -> Batch<'d, T>,
        order: Order,
        origin: Origin,
        blocked: Option<&Mutex<()>>,
        notify: &mut Notify<'_, T>,
        reports: &mut Reports,
    ) -> Result<(), ProcessError>
    where
        T: 'd,
    {
        self.cache.keyed().write_prepared(
            |functions| self.prepare(functions, batch()),
            |cache, steps| {
                let _blocked = blocked.map(Mutex::lock);
                let mut commit = Commit {
                    part: self,
                    cache,
                    origin,
                    notify,
                    reports,
                    failed: BatchError::default(),
                };
                match order {
                    Order::OneByOne => commit.one_by_one(steps),
                    Order::Together => commit.together(steps),
                }
                commit.failed.into_result()
            },
        )
    }

    /// Runs the user code of a batch.
    fn prepare<'d>(
        &self,
        functions: &IndexFunctions<T>,
        batch: Batch<'d, T>,
    ) -> Vec<(usize, Step<'d, T>)> {
        let mut steps: Vec<(usize, Step<'d, T>)> = Vec::with_capacity(batch.size_hint().0);
        for (item, delta) in batch {
            let step = match delta {
                Delta::ReplacedAll(list) => {
                    Step::List(Box::new(self.prepare_list(functions, list)))
                }
                Delta::SyncAll => Step::SyncAll(self.known()),
                // The state before is that of the change before it in the same item, or the cached one.
                // Only the last change of a batch may repeat a key, if its transformed object has none
                // (R16). `Comparison::with` then finds another object.
                _ => match steps.last() {
                    Some((same, Step::Change(before))) if *same == item => {
                        let before = before
                            .delta
                            .entry()
                            .map(|before| Arc::clone(&before.object));
                        Step::Change(self.prepare_change(functions, delta, before))
                    }
                    _ => {
                        let cached = delta.key().and_then(|key| self.cache.get_by_key(key));
                        Step::Change(self.prepare_change(functions, delta, cached))
                    }
                },
            };
            steps.push((item, step));
        }
        steps
    }

    fn prepare_change<'d>(
        &self,
        functions: &IndexFunctions<T>,
        delta: &'d Delta<T>,
        before: Option<Arc<T>>,
    ) -> Change<'d, T> {
        let Some(new) = delta.entry() else {
            return Change {
                delta,
                computed: None,
                comparison: Comparison::none(),
                outdated: Vec::new(),
            };
        };
        // A resync delivers the cached object again, so its index values stay.
        let is_cached = before
            .as_ref()
            .is_some_and(|it| Arc::ptr_eq(it, &new.object));
        let is_resync = matches!(delta, Delta::Sync(_)) && is_cached;
        Change {
            delta,
            computed: (!is_resync).then(|| functions.compute(&new.object)),
            comparison: self.compare(before, &new.object),
            outdated: Vec::new(),
        }
    }

    /// Compares an object with its state before. A transform may have changed an object so that its
    /// accessors panic. The update then goes to every handler, because the cache gets it anyway.
    fn compare(&self, before: Option<Arc<T>>, new: &Arc<T>) -> Comparison<T> {
        let Some(old) = &before else {
            return Comparison::none();
        };
        let read = panic::catch(|| {
            if self.recreation_as_delete_and_add && is_recreated(&**old, &**new) {
                Difference::Recreated
            } else if old.resource_version() == new.resource_version() {
                Difference::SameVersion
            } else {
                Difference::OtherVersion
            }
        });
        Comparison {
            before,
            difference: read.unwrap_or(Difference::OtherVersion),
        }
    }

    /// Prepares a list: what it adds, changes and deletes, and the index values.
    fn prepare_list(
        &self,
        functions: &IndexFunctions<T>,
        list: &ReplacedAll<T>,
    ) -> PreparedList<T> {
        let mut gaps = list.gaps.clone();
        // An object without a key may be any of the cached ones.
        if !list.without_key.is_empty() {
            gaps.add(None);
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
        let gone: Vec<Delta<T>> = old
            .extract_if(|key, _| !listed.contains_key(key) && !gaps.cover(key))
            .map(|(key, entry)| Delta::tombstone(key, Some(entry.object)))
            .collect();
        let write = match &self.namespace {
            None => {
                let mut kept = entries.clone();
                self.cache.keep_in_gaps(&mut kept, &gaps);
                ListWrite::Whole(functions.build(&kept))
            }
            Some(_) => {
                let computed = entries.iter().map(|new| functions.compute(&new.object));
                ListWrite::InSteps(computed.map(Some).collect())
            }
        };
        let updates = entries.into_iter().map(|new| {
            let before = old.remove(&new.key);
            let object = before.as_ref().map(|before| Arc::clone(&before.object));
            Update {
                comparison: self.compare(object, &new.object),
                new,
                before,
            }
        });
        PreparedList {
            version: list.resource_version.clone(),
            without_key: list.without_key.len(),
            updates: updates.collect(),
            gone,
            write,
            outdated: Vec::new(),
        }
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

    /// Returns the accessor for the queue of this part. The accessor rejects the keys of other
    /// namespaces, so objects of other namespaces are reported as unreadable and left out.
    pub(super) fn accessor(self: &Arc<Self>) -> Accessor<T> {
        let accessor = Accessor::object();
        if self.namespace.is_none() {
            return accessor;
        }
        let part = Arc::clone(self);
        accessor.with_check(move |key| match &part.namespace {
            Some(NamespaceKeys { prefix, .. }) if !key.starts_with(prefix) => {
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

/// The changes of a batch, with the positions of their items.
pub(super) type Batch<'d, T> = Box<dyn Iterator<Item = (usize, &'d Delta<T>)> + 'd>;

/// Returns the changes of several items.
pub(super) fn batch_of<T>(items: &[Deltas<T>]) -> Batch<'_, T> {
    let items = items.iter().enumerate();
    Box::new(items.flat_map(|(item, deltas)| deltas.iter().map(move |delta| (item, delta))))
}

/// When the changes of a batch reach the cache.
#[derive(Clone, Copy)]
pub(super) enum Order {
    /// Each change is in the cache and with the handlers before the next one, as with a `DeltaFIFO`.
    OneByOne,
    /// All changes are in the cache before the first notification (P10, P11).
    Together,
}

/// A part of a batch whose user code has run.
enum Step<'d, T> {
    /// The change of one object, or a bookmark.
    Change(Change<'d, T>),
    List(Box<PreparedList<T>>),
    /// All cached objects are delivered again.
    SyncAll(Vec<Entry<T>>),
}

struct Change<'d, T> {
    delta: &'d Delta<T>,
    /// The index values. `None` if they stay, or if there are none.
    computed: Option<Computed>,
    comparison: Comparison<T>,
    /// The failures of the state before. They are errors of users, so they are dropped with this
    /// change, without a lock.
    outdated: Vec<FailedIndex>,
}

struct PreparedList<T> {
    version: Option<ResourceVersion>,
    /// The number of objects without a key.
    without_key: usize,
    /// The listed objects.
    updates: Vec<Update<T>>,
    /// Tombstones of the objects that are not in the list.
    gone: Vec<Delta<T>>,
    write: ListWrite<T>,
    /// The failures of the states before, as in [`Change`].
    outdated: Vec<FailedIndex>,
}

/// A listed object.
struct Update<T> {
    new: Entry<T>,
    /// What the cache had before.
    before: Option<Entry<T>>,
    comparison: Comparison<T>,
}

/// How a list is written to the cache.
enum ListWrite<T> {
    /// It replaces the whole content. Afterwards, this is the old one.
    Whole(Slots<T>),
    /// Other parts of the cache stay. These are the index values of the objects.
    InSteps(Vec<Option<Computed>>),
}

/// The difference between an object and its state before, with that state.
struct Comparison<T> {
    /// The state before. The difference is valid only if the cache replaces this object.
    before: Option<Arc<T>>,
    difference: Difference,
}

/// The difference between an object and the one that it replaces.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Difference {
    /// It was deleted and created again under the same key, and this is delivered as two changes.
    Recreated,
    SameVersion,
    /// Also if there was no state before, if it has changed meanwhile, or if an accessor panicked.
    OtherVersion,
}

impl<T> Comparison<T> {
    fn none() -> Self {
        Self {
            before: None,
            difference: Difference::OtherVersion,
        }
    }

    /// Returns the difference from the object that the cache had. The copy of that object is
    /// released here, because the receiver of the notification decides when the object is freed.
    fn with(&mut self, before: &Arc<T>) -> Difference {
        match self.before.take_if(|it| Arc::ptr_eq(it, before)) {
            Some(_) => self.difference,
            // Another writer has changed the cache meanwhile.
            None => Difference::OtherVersion,
        }
    }
}

/// Writes a prepared batch to the cache and notifies. It runs no user code.
struct Commit<'c, 'n, T> {
    part: &'c CachePart<T>,
    cache: &'c Frozen<'c, T>,
    origin: Origin,
    notify: &'c mut Notify<'n, T>,
    reports: &'c mut Reports,
    failed: BatchError,
}

impl<T: Object> Commit<'_, '_, T> {
    fn one_by_one(&mut self, steps: &mut [(usize, Step<'_, T>)]) {
        for (item, step) in steps {
            match step {
                Step::Change(change) => {
                    let written = self.cache.apply(change.delta, change.computed.take());
                    self.part.record([change.delta]);
                    self.reports.unindexed.extend(written.unindexed);
                    change.outdated = written.outdated;
                    self.notify_change(change, written.before);
                }
                Step::List(list) => self.list(*item, list),
                Step::SyncAll(entries) => self.sync_all(std::mem::take(entries)),
            }
        }
    }

    fn together(&mut self, steps: &mut [(usize, Step<'_, T>)]) {
        let mut changes = Vec::with_capacity(steps.len());
        for (item, step) in steps {
            match step {
                Step::Change(change) if change.delta.is_of_object() => changes.push(change),
                // A queue delivers the others alone (P12, R15).
                Step::Change(_) | Step::List(_) | Step::SyncAll(_) => {
                    self.failed.add(*item, StoreError::other(NOT_IN_A_BATCH));
                }
            }
        }
        let writes = changes.iter_mut();
        let writes = writes.map(|change| (change.delta, change.computed.take()));
        let written = self.write(writes);
        self.part.record(changes.iter().map(|change| change.delta));
        for (change, written) in changes.into_iter().zip(written) {
            change.outdated = written.outdated;
            self.notify_change(change, written.before);
        }
    }

    /// Writes changes in one step.
    fn write<'d>(
        &mut self,
        changes: impl ExactSizeIterator<Item = (&'d Delta<T>, Option<Computed>)>,
    ) -> Vec<Written<T>>
    where
        T: 'd,
    {
        let (mut written, slow) = self.cache.transact(changes);
        self.reports.slow = slow.or(self.reports.slow.take());
        for written in &mut written {
            let unindexed = std::mem::take(&mut written.unindexed);
            self.reports.unindexed.extend(unindexed);
        }
        written
    }

    /// Applies a list. The cache contains the whole list before the first notification, and
    /// deletions are delivered first. An object that has no key does not affect the others.
    fn list(&mut self, item: usize, list: &mut PreparedList<T>) {
        for _ in 0..list.without_key {
            self.failed.add(item, StoreError::other(NO_KEY));
        }
        match &mut list.write {
            ListWrite::Whole(slots) => {
                let unindexed = self.cache.replace(slots, list.version.clone());
                self.reports.unindexed.extend(unindexed);
            }
            ListWrite::InSteps(computed) => {
                let computed = std::mem::take(computed);
                self.write_in_steps(list, computed);
                self.cache.bookmark(list.version.clone());
            }
        }
        for gone in list.gone.drain(..) {
            if let Delta::Deleted { key, gone, .. } = gone {
                (self.notify)(key, Notification::deleted(gone, None), false);
            }
        }
        for mut update in list.updates.drain(..) {
            self.notify_object(update.before, update.new, &mut update.comparison);
        }
    }

    /// Writes a list beside the other parts of the cache.
    fn write_in_steps(&mut self, list: &mut PreparedList<T>, mut computed: Vec<Option<Computed>>) {
        // The objects of a list do not advance the version of the cache one by one.
        let updates = list.updates.iter().map(|update| {
            Delta::Updated(Entry {
                version: None,
                ..update.new.clone()
            })
        });
        let deltas: Vec<Delta<T>> = updates.chain(list.gone.iter().cloned()).collect();
        computed.resize_with(deltas.len(), || None);
        let mut computed = computed.into_iter();
        for step in deltas.chunks(STEP) {
            let values: Vec<_> = computed.by_ref().take(step.len()).collect();
            let written = self.write(step.iter().zip(values)).into_iter();
            list.outdated
                .extend(written.flat_map(|written| written.outdated));
            self.part.record(step);
        }
    }

    fn sync_all(&mut self, entries: Vec<Entry<T>>) {
        for entry in entries {
            let event = Notification::Modified {
                old: Arc::clone(&entry.object),
                new: entry.object,
            };
            (self.notify)(entry.key, event, true);
        }
    }

    /// Notifies about a change of the cache, which had `old` before.
    fn notify_change(&mut self, change: &mut Change<'_, T>, old: Option<Entry<T>>) {
        if let Delta::Deleted { key, gone, .. } = change.delta {
            let event = Notification::deleted(gone.clone(), old.map(|old| old.object));
            (self.notify)(Key::clone(key), event, false);
        } else if let Some(new) = change.delta.entry() {
            self.notify_object(old, new.clone(), &mut change.comparison);
        }
    }

    /// Notifies about an object that is now in the cache and replaced `old`.
    fn notify_object(
        &mut self,
        old: Option<Entry<T>>,
        new: Entry<T>,
        comparison: &mut Comparison<T>,
    ) {
        let is_in_initial_list = self.origin == Origin::InitialList;
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
            return (self.notify)(key, added(new), false);
        };
        // The digests tell a real change within one version, for example after a restore of etcd
        // (I17). One of them is unknown if the object did not come from a reflector.
        let is_other_content = old.digest.differs(digest);
        let old = old.object;
        let difference = comparison.with(&old);
        if difference == Difference::Recreated {
            let gone = Deleted::FinalStateUnknown {
                key: Key::clone(&key),
                last_known: Some(old),
            };
            (self.notify)(Key::clone(&key), Notification::deleted(gone, None), false);
            return (self.notify)(key, added(new), false);
        }
        let is_sync = difference == Difference::SameVersion && !is_other_content;
        (self.notify)(key, Notification::Modified { old, new }, is_sync);
    }
}

/// Whether the object was deleted and created again under the same key.
fn is_recreated<T: Object>(old: &T, new: &T) -> bool {
    !old.uid().is_empty() && !new.uid().is_empty() && old.uid() != new.uid()
}

impl<T: Object> KnownObjects<T> for CachePart<T> {
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

mod indexers;
mod read;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::index::{Computed, OnIndexFailure, Registered, RejectObject, compute};
use super::slots::{Put, Slots};
use super::{Change, IndexError, Indexers, StoreError, TransactionError};
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::base::sync::{RwLock, RwLockWriteGuard};
use crate::entry::{Delta, Entry};
use crate::log;
use crate::metrics::{InformerMetrics, Meter, resource_version_metric};
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::time::slow_threshold;

/// The caller of an `apply` decides what a list or a full resync means for each object.
const NOT_OF_ONE_OBJECT: &str = "a store applies only deltas of single objects";

type ResourceVersionFn<T> = dyn for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync;

/// A thread-safe, indexed cache in which the caller supplies the keys. client-go's
/// `ThreadSafeStore`.
///
/// An informer fills an [`Indexer`](super::Indexer), which computes the keys itself. Use this type
/// if the keys cannot be computed from the objects.
///
/// **Writes.** A write is visible to every read that begins after the write has returned. A write
/// is atomic: if one of your functions fails or panics, the write fails, and neither objects,
/// indexes nor resource version have changed. An object is indexed under the values that it had
/// when it was written, each once. An index value without objects is removed.
///
/// **Lists.** [`list`](Self::list), [`list_keys`](Self::list_keys) and the index lookups return the
/// content at one point in time. They see all of a replace or [`transaction`](Self::transaction), or
/// nothing.
///
/// **Blocking.** One readers-writer lock guards the whole content. No user code runs and nothing is
/// dropped while it is held. It is held only briefly: for a lookup, one change, or the swap of a
/// replace. A list of more than 4096 objects shares the content with the store and copies it without
/// the lock; meanwhile, a write copies the 256 objects around the one that it changes. Only a
/// transaction and an index lookup hold the lock for a time proportional to their size; a lookup
/// takes about 20 milliseconds per million objects. No call waits until the content changes.
///
/// ```
/// use k8s_informer::store::{IndexFunc, Indexers, ThreadSafeStore};
/// use std::sync::Arc;
///
/// let first = IndexFunc::new(|word: &String| word.chars().take(1).map(String::from).collect());
/// let store = ThreadSafeStore::new(Indexers::new().with("first", first));
/// store.add("1".into(), Arc::new("pod".to_owned()))?;
/// store.add("2".into(), Arc::new("pear".to_owned()))?;
/// assert_eq!(store.index_keys("first", "p")?, ["1".into(), "2".into()]);
/// store.delete("1");
/// assert_eq!(store.by_index("first", "p")?, [Arc::new("pear".to_owned())]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct ThreadSafeStore<T> {
    resource_version: Option<Box<ResourceVersionFn<T>>>,
    meter: Meter<dyn InformerMetrics>,
    /// Guards the content, the index functions and the resource version. Innermost lock: no other
    /// lock is taken and no user code runs under it. No thread waits until this state changes.
    state: RwLock<State<T>>,
}

struct State<T> {
    slots: Slots<T>,
    /// Always replaced as a whole. A writer that has computed index values compares the pointer to
    /// check that they are still valid.
    functions: Arc<[Registered<T>]>,
    next_index: u32,
    resource_version: ResourceVersion,
}

impl<T> State<T> {
    fn set_resource_version(&mut self, resource_version: Option<ResourceVersion>) {
        if let Some(resource_version) = resource_version {
            self.resource_version = resource_version;
        }
    }

    fn is_ready(&self, id: u32) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|registered| registered.ready && registered.id == id)
    }

    fn ready(&self, name: &str) -> Result<u32, IndexError> {
        match self
            .functions
            .iter()
            .find(|registered| registered.ready && &*registered.name == name)
        {
            Some(registered) => Ok(registered.id),
            None => Err(IndexError::NoIndex { name: name.into() }),
        }
    }
}

impl<T> ThreadSafeStore<T> {
    /// Creates an empty store with these indexes. It takes resource versions from replace and
    /// bookmark only.
    pub fn new(indexers: Indexers<T>) -> Self {
        let functions: Arc<[Registered<T>]> = (0..)
            .zip(indexers.into_functions())
            .map(|(id, (name, function))| Registered {
                id,
                name,
                function,
                ready: true,
            })
            .collect();
        Self {
            resource_version: None,
            meter: Meter::new(None),
            state: RwLock::new(State {
                slots: Slots::with_capacity(0, functions.iter().map(|registered| registered.id)),
                next_index: functions.len() as u32,
                functions,
                resource_version: ResourceVersion::default(),
            }),
        }
    }

    /// Sets a function that reads the resource version of an object. The store then also takes the
    /// resource version from added, updated and deleted objects. If the function returns `None`,
    /// the resource version of the store does not change.
    #[must_use]
    pub fn with_resource_version(
        mut self,
        resource_version: impl for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        self.resource_version = Some(Box::new(resource_version));
        self
    }

    /// Reports the resource version to `metrics` after every write that may change it.
    #[must_use]
    pub(crate) fn with_metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.meter = Meter::new(Some(metrics));
        self
    }

    /// Stores an object and returns the object that it replaced under the same key.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`] if an index function fails or panics, or another [`StoreError`] if the
    /// resource version function panics. Then nothing has changed.
    pub fn add(&self, key: Key, object: Arc<T>) -> Result<Option<Arc<T>>, StoreError> {
        let written = self.put(self.entry_of(key, object)?, RejectObject)?;
        Ok(written.before.map(|replaced| replaced.object))
    }

    /// Returns an object as an entry.
    fn entry_of(&self, key: Key, object: Arc<T>) -> Result<Entry<T>, StoreError> {
        Ok(Entry {
            version: self.version_of(&object)?,
            ..Entry::new(key, object)
        })
    }

    /// Stores an entry.
    pub(super) fn put<F: OnIndexFailure>(
        &self,
        entry: Entry<T>,
        on_failure: F,
    ) -> Result<Written<T>, F::Error> {
        let key = Key::clone(&entry.key);
        let (mut state, computed) =
            self.write(|functions| on_failure.accept(&key, compute(functions, &*entry.object)))?;
        state.set_resource_version(entry.version.clone());
        let put = state.slots.put(entry, computed);
        drop(state);
        self.report_version();
        Ok(Written::of(&key, put))
    }

    /// Stores an object, like [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
    pub fn update(&self, key: Key, object: Arc<T>) -> Result<Option<Arc<T>>, StoreError> {
        self.add(key, object)
    }

    /// Removes the object stored under `key`, if any. It runs no index function and cannot fail.
    /// The resource version does not change.
    pub fn delete(&self, key: &str) {
        let removed = self.state.write().slots.remove(key);
        drop(removed);
    }

    /// Removes the object stored under `key`, if any, and takes the resource version from the
    /// deleted object. A tombstone has none and leaves the resource version unchanged.
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the resource version function panics. Then nothing has changed.
    pub fn delete_with_object(&self, key: &str, gone: &Deleted<T>) -> Result<(), StoreError> {
        drop(self.delete_at(key, self.version_of_deleted(gone)?));
        Ok(())
    }

    /// Removes and returns an entry, and records the resource version of its deletion.
    pub(super) fn delete_at(
        &self,
        key: &str,
        resource_version: Option<ResourceVersion>,
    ) -> Option<Entry<T>> {
        let removed = {
            let mut state = self.state.write();
            state.set_resource_version(resource_version);
            state.slots.remove(key)
        };
        self.report_version();
        removed.map(|slot| slot.entry())
    }

    /// Applies the change of one object, or a bookmark.
    pub(crate) fn apply<F: OnIndexFailure>(
        &self,
        delta: &Delta<T>,
        on_failure: F,
    ) -> Result<Written<T>, F::Error> {
        match delta {
            Delta::Sync(same) if let Some(stored) = self.resync(same) => {
                Ok(Written::replaced(Some(stored)))
            }
            Delta::Added(new) | Delta::Updated(new) | Delta::Replaced(new) | Delta::Sync(new) => {
                self.put(new.clone(), on_failure)
            }
            Delta::Deleted { key, version, .. } => {
                Ok(Written::replaced(self.delete_at(key, version.clone())))
            }
            Delta::Bookmark(version) => {
                self.set_version(version.clone());
                Ok(Written::replaced(None))
            }
            Delta::ReplacedAll(_) | Delta::SyncAll => unreachable!("{NOT_OF_ONE_OBJECT}"),
        }
    }

    /// Records the version of an object that a resync delivers again. Its index functions do not run
    /// again. Returns `None` if another object is stored under its key.
    fn resync(&self, entry: &Entry<T>) -> Option<Entry<T>> {
        let mut state = self.state.write();
        let stored = state.slots.get(&entry.key)?;
        let stored = Arc::ptr_eq(&stored.object, &entry.object).then(|| stored.entry())?;
        state.set_resource_version(entry.version.clone());
        drop(state);
        self.report_version();
        Some(stored)
    }

    /// Removes `object` only if it is still the stored one. Returns whether it was removed.
    pub(super) fn delete_same(&self, key: &str, object: &Arc<T>) -> bool {
        let removed = {
            let mut state = self.state.write();
            let same = state
                .slots
                .get(key)
                .is_some_and(|slot| Arc::ptr_eq(&slot.object, object));
            same.then(|| state.slots.remove(key))
        };
        removed.is_some()
    }

    /// Replaces all objects and sets the resource version. If several objects have the same key,
    /// only the last one is stored and indexed. Readers see either the old or the new content. They
    /// do not wait while the new content is indexed or the old content is dropped.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`] if an index function fails or panics for one of the objects. Then
    /// nothing has changed.
    pub fn replace(
        &self,
        objects: Vec<(Key, Arc<T>)>,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let entries = objects.into_iter();
        let entries = entries.map(|(key, object)| Entry::new(key, object));
        let replaced = self.replace_entries(entries.collect(), resource_version, RejectObject);
        replaced.map(drop)
    }

    /// Replaces all objects, like [`replace`](Self::replace). Returns the errors of index functions
    /// that failed for a state of an object for the first time.
    pub(crate) fn replace_entries<F: OnIndexFailure>(
        &self,
        entries: Vec<Entry<T>>,
        resource_version: &str,
        on_failure: F,
    ) -> Result<Vec<StoreError>, F::Error> {
        let build = |functions: &[Registered<T>]| build(functions, &entries, on_failure);
        let (mut state, mut slots) = self.write(build)?;
        std::mem::swap(&mut state.slots, &mut slots);
        // Rare, so the lock is held a little longer for it.
        let unindexed = state.slots.new_failures(&slots);
        state.set_resource_version(Some(resource_version.into()));
        drop(state);
        drop((slots, entries));
        self.report_version();
        Ok(unindexed)
    }

    /// Applies several changes in order under one lock. A read sees either all of them or none.
    ///
    /// The resource version becomes that of the last applied change. If that change has none, the
    /// resource version does not change. The key of a bookmark is ignored. A transaction that holds
    /// the lock for more than half a second per change, or for more than five seconds in total, is
    /// logged.
    ///
    /// # Errors
    ///
    /// [`TransactionError`] lists the changes that failed because an index function or the resource
    /// version function failed or panicked. The others have been applied.
    pub fn transaction(&self, changes: Vec<(Key, Change<T>)>) -> Result<(), TransactionError> {
        let deltas = changes.into_iter().map(|(key, change)| match change {
            Change::Add(object) | Change::Update(object) => {
                self.entry_of(key, object).map(Delta::Updated)
            }
            Change::Delete(gone) => {
                let version = self.version_of_deleted(&gone)?;
                Ok(Delta::Deleted { key, version, gone })
            }
            Change::Bookmark(version) => Ok(Delta::Bookmark(version.as_str().into())),
        });
        self.transact_all(deltas)
    }

    /// Like [`transact`](Self::transact), with one error for all changes that fail: those that could
    /// not become deltas, and those that could not be applied.
    pub(super) fn transact_all(
        &self,
        changes: impl Iterator<Item = Result<Delta<T>, StoreError>>,
    ) -> Result<(), TransactionError> {
        let (mut deltas, mut positions, mut failed, mut total) = (vec![], vec![], vec![], 0);
        for (position, change) in changes.enumerate() {
            total += 1;
            match change {
                Ok(delta) => {
                    deltas.push(delta);
                    positions.push(position);
                }
                Err(error) => failed.push((position, error)),
            }
        }
        let (outcomes, slow) = self.transact(deltas.iter(), RejectObject);
        if let Some(slow) = slow {
            slow.log();
        }
        let mut successful = Vec::new();
        for (position, outcome) in positions.into_iter().zip(outcomes) {
            match outcome {
                Ok(_) => successful.push(position),
                Err(error) => failed.push((position, error)),
            }
        }
        if failed.is_empty() {
            return Ok(());
        }
        // In the order of the changes.
        failed.sort_by_key(|(position, _)| *position);
        Err(TransactionError {
            successful,
            total,
            errors: failed.into_iter().map(|(_, error)| error).collect(),
        })
    }

    /// Applies changes of single objects and bookmarks in one step. Returns the outcome of each. The
    /// caller logs a slow transaction.
    pub(crate) fn transact<'d, F: OnIndexFailure>(
        &self,
        deltas: impl Iterator<Item = &'d Delta<T>> + Clone,
        on_failure: F,
    ) -> (Vec<Result<Written<T>, F::Error>>, Option<SlowTransaction>)
    where
        T: 'd,
    {
        // Index functions are user code, so they run before the lock is taken.
        let Ok((mut state, computed)) = self.write(|functions| {
            let computed = deltas.clone().map(|delta| match delta.entry() {
                Some(new) => on_failure.accept(&new.key, compute(functions, &*new.object)),
                None => Ok(Computed::default()),
            });
            Ok::<_, Infallible>(computed.collect::<Vec<_>>())
        });
        let began = Instant::now();
        let (mut outcomes, mut last) = (Vec::with_capacity(computed.len()), None);
        for (delta, computed) in deltas.zip(computed) {
            let outcome = computed.map(|computed| match delta {
                Delta::Added(new)
                | Delta::Updated(new)
                | Delta::Replaced(new)
                | Delta::Sync(new) => Written::of(&new.key, state.slots.put(new.clone(), computed)),
                // The outcome keeps the object, so it is dropped after the lock is released.
                Delta::Deleted { key, .. } => {
                    let slot = state.slots.remove(key);
                    Written::replaced(slot.map(|slot| slot.entry()))
                }
                Delta::Bookmark(_) => Written::replaced(None),
                Delta::ReplacedAll(_) | Delta::SyncAll => unreachable!("{NOT_OF_ONE_OBJECT}"),
            });
            if outcome.is_ok() {
                last = delta.version().cloned();
            }
            outcomes.push(outcome);
        }
        state.set_resource_version(last);
        drop(state);
        let took = began.elapsed();
        let applied = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        self.report_version();
        (outcomes, SlowTransaction::of(applied, took))
    }

    /// Sets the resource version: all changes up to it have been delivered.
    pub fn bookmark(&self, resource_version: &str) {
        self.set_version(resource_version.into());
    }

    fn set_version(&self, resource_version: ResourceVersion) {
        let mut state = self.state.write();
        state.set_resource_version(Some(resource_version));
        drop(state);
        self.report_version();
    }

    /// Returns the resource version of the last write. It may be older than the version of an
    /// earlier write. It is empty before the first write.
    pub fn last_store_sync_resource_version(&self) -> String {
        self.state.read().resource_version.to_string()
    }

    /// Reports the current resource version to the metrics.
    fn report_version(&self) {
        let version = || resource_version_metric(&self.last_store_sync_resource_version());
        self.meter.level(version, |metrics, version| {
            if let Some(version) = version {
                metrics.store_resource_version(version);
            }
        });
    }

    /// Runs `compute` without the lock, then takes the write lock. It starts again if the index
    /// functions have changed meanwhile.
    fn write<R, E>(
        &self,
        mut compute: impl FnMut(&[Registered<T>]) -> Result<R, E>,
    ) -> Result<(RwLockWriteGuard<'_, State<T>>, R), E> {
        let mut functions = Arc::clone(&self.state.read().functions);
        loop {
            let computed = compute(&functions)?;
            let state = self.state.write();
            if Arc::ptr_eq(&state.functions, &functions) {
                return Ok((state, computed));
            }
            let outdated = std::mem::replace(&mut functions, Arc::clone(&state.functions));
            drop(state);
            // Drop the outdated values without the lock, because their destructors may be user
            // code.
            drop((computed, outdated));
        }
    }

    fn version_of(&self, object: &T) -> Result<Option<ResourceVersion>, StoreError> {
        match &self.resource_version {
            None => Ok(None),
            Some(read) => catch(|| read(object).map(Into::into)).map_err(|message| {
                StoreError::other(format!("reading the resourceVersion {message}"))
            }),
        }
    }

    fn version_of_deleted(&self, gone: &Deleted<T>) -> Result<Option<ResourceVersion>, StoreError> {
        match gone {
            Deleted::Final(object) => self.version_of(object),
            Deleted::FinalStateUnknown { .. } => Ok(None),
        }
    }
}

/// A change that has been applied.
pub(crate) struct Written<T> {
    /// The entry that was stored before the change.
    pub(crate) before: Option<Entry<T>>,
    /// The errors of the index functions that failed for this state of the object for the first time.
    pub(crate) unindexed: Vec<StoreError>,
}

impl<T> Written<T> {
    fn replaced(before: Option<Entry<T>>) -> Self {
        let unindexed = Vec::new();
        Self { before, unindexed }
    }

    fn of(key: &Key, put: Put<T>) -> Self {
        Self {
            before: put.before,
            unindexed: put.failed.iter().map(|failed| failed.error(key)).collect(),
        }
    }
}

/// A transaction that held the lock for a long time (X14).
pub(crate) struct SlowTransaction {
    changes: usize,
    took: Duration,
}

impl SlowTransaction {
    fn of(changes: usize, took: Duration) -> Option<Self> {
        let (each, most) = (Duration::from_millis(500), Duration::from_secs(5));
        let is_slow = took > slow_threshold(changes.max(1), each, most);
        is_slow.then_some(Self { changes, took })
    }

    /// Logs the transaction. A logger is user code, so call this without a lock.
    pub(crate) fn log(&self) {
        let Self { changes, took } = self;
        log::info!("a transaction of {changes} changes took {took:?}; use smaller transactions");
    }
}

/// Builds the content of a replace, with all indexes.
fn build<T, F: OnIndexFailure>(
    functions: &[Registered<T>],
    entries: &[Entry<T>],
    on_failure: F,
) -> Result<Slots<T>, F::Error> {
    let mut slots = Slots::with_capacity(
        entries.len(),
        functions.iter().map(|registered| registered.id),
    );
    // If several objects have the same key, index functions run only on the last one.
    for entry in entries {
        slots.put(entry.clone(), Computed::default());
    }
    slots.index_all(|key, object| on_failure.accept(key, compute(functions, object)))?;
    Ok(slots)
}

debug_fields!(ThreadSafeStore<T>, this,
    len: this.len(),
    resource_version: this.last_store_sync_resource_version()
);

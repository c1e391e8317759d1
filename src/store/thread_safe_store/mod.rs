mod frozen;
mod indexers;
mod read;
mod write;

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use self::frozen::{Frozen, IndexFunctions};
pub(super) use self::write::{Action, NewVersion, Write};
use super::index::{Computed, FailedIndex, Registered, accept, compute};
use super::slots::{Put, Slot, Slots};
use super::{Change, IndexError, Indexers, StoreError, TransactionError};
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::base::sync::{Mutex, RwLock, RwLockWriteGuard};
use crate::entry::{Delta, Entry};
use crate::log;
use crate::metrics::{InformerMetrics, Meter, resource_version_metric};
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::time::slow_threshold;

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
/// assert_eq!(store.index_keys("first", "p")?, ["1", "2"]);
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
    /// Held while the list of index functions changes, and by a writer that has computed index values
    /// before (see [`write_prepared`](Self::write_prepared)). Comes before `state`. No user code runs
    /// under it.
    index_changes: Mutex<()>,
}

struct State<T> {
    slots: Slots<T>,
    /// Always replaced as a whole. A writer that has computed index values compares the pointer to
    /// check that they are still valid.
    functions: Arc<[Registered<T>]>,
    next_index: u32,
    resource_version: Option<ResourceVersion>,
}

impl<T> State<T> {
    fn set_version(&mut self, version: NewVersion) {
        if let NewVersion::Set(version) = version {
            self.resource_version = version;
        }
    }

    /// Applies the change of one object, or a bookmark, without its version. `computed` has the index
    /// values of a stored object. It is `None` if a resync delivers the same object again, for a
    /// deletion and for a bookmark. The outcome must be dropped without the lock.
    fn apply(&mut self, delta: &Delta<T>, computed: Option<Computed>) -> Written<T> {
        match (delta, computed) {
            (Delta::Deleted { key, .. }, _) => self.remove(key),
            (Delta::Bookmark(_), _) => Written::replaced(None),
            // Nothing is written: the stored object keeps its digest and index values. If another
            // writer has changed or deleted it meanwhile, the later state stays.
            (Delta::Sync(same), None) => {
                let stored = self.slots.get(&same.key);
                Written::replaced(stored.map(Slot::entry))
            }
            (delta, computed) => match delta.entry() {
                Some(new) => self.put(new.clone(), computed.unwrap_or_default()),
                None => unreachable!("the caller decides what a list means for each object"),
            },
        }
    }

    /// Carries out a write. The outcome must be dropped without the lock.
    fn perform(&mut self, action: Action<T>, computed: Computed) -> Written<T> {
        match action {
            Action::Put(new) => self.put(new, computed),
            Action::Remove(key) => self.remove(&key),
            Action::Bookmark => Written::replaced(None),
        }
    }

    fn put(&mut self, new: Entry<T>, computed: Computed) -> Written<T> {
        // The usual case: no index function has failed, now or before.
        if computed.failed.is_empty() && self.slots.has_no_failures() {
            return Written::replaced(self.slots.put_values(new, computed.values));
        }
        let key = Key::clone(&new.key);
        Written::of(&key, self.slots.put(new, computed))
    }

    fn remove(&mut self, key: &str) -> Written<T> {
        let (slot, outdated) = self.slots.remove(key).unzip();
        Written {
            before: slot.map(Slot::into_entry),
            unindexed: Vec::new(),
            outdated: outdated.unwrap_or_default(),
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
                resource_version: None,
            }),
            index_changes: Mutex::new(()),
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
        let written = self.apply(self.put(key, object)?)?;
        Ok(written.before.map(|replaced| replaced.object))
    }

    /// Returns the write that stores an object.
    fn put(&self, key: Key, object: Arc<T>) -> Result<Write<T>, StoreError> {
        Ok(Write {
            version: self.version_of(&object)?,
            action: Action::Put(Entry::new(key, object)),
        })
    }

    /// Applies a write.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`] if an index function fails or panics. Then nothing has changed.
    pub(super) fn apply(&self, write: Write<T>) -> Result<Written<T>, StoreError> {
        let (mut state, computed) = self.write(|functions| write.action.compute(functions))?;
        let written = state.perform(write.action, computed);
        state.set_version(write.version);
        drop(state);
        self.report_version();
        Ok(written)
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
        self.delete_versioned(key, self.version_of_deleted(gone)?);
        Ok(())
    }

    /// Removes an object. The version is that of its deletion.
    pub(super) fn delete_versioned(&self, key: &str, version: NewVersion) {
        let mut state = self.state.write();
        state.set_version(version);
        let removed = state.slots.remove(key);
        drop(state);
        drop(removed);
        self.report_version();
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
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let entries = objects.into_iter();
        let entries = entries.map(|(key, object)| Entry::new(key, object));
        self.replace_entries(entries.collect(), resource_version)
    }

    /// Replaces all objects, like [`replace`](Self::replace).
    pub(super) fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let (mut state, mut slots) = self.write(|functions| build(functions, &entries))?;
        std::mem::swap(&mut state.slots, &mut slots);
        state.resource_version = resource_version;
        drop(state);
        drop((slots, entries));
        self.report_version();
        Ok(())
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
        let writes = changes.into_iter().map(|(key, change)| match change {
            Change::Add(object) | Change::Update(object) => self.put(key, object),
            Change::Delete(gone) => Ok(Write {
                version: self.version_of_deleted(&gone)?,
                action: Action::Remove(key),
            }),
            Change::Bookmark(version) => Ok(Write::bookmark(version)),
        });
        self.transact_all(writes)
    }

    /// Like [`transact`](Self::transact), with one error for all changes that fail: those that could
    /// not become writes, and those that could not be applied.
    pub(super) fn transact_all(
        &self,
        changes: impl Iterator<Item = Result<Write<T>, StoreError>>,
    ) -> Result<(), TransactionError> {
        let (mut writes, mut positions, mut failed, mut total) = (vec![], vec![], vec![], 0);
        for (position, change) in changes.enumerate() {
            total += 1;
            match change {
                Ok(write) => {
                    writes.push(write);
                    positions.push(position);
                }
                Err(error) => failed.push((position, error)),
            }
        }
        let (outcomes, slow) = self.transact(writes);
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

    /// Applies the changes for which no index function fails, in one step. Returns the outcome of each.
    fn transact(
        &self,
        writes: Vec<Write<T>>,
    ) -> (Vec<Result<Written<T>, StoreError>>, Option<SlowTransaction>) {
        // Index functions are user code, so they run before the lock is taken.
        let Ok((mut state, computed)) = self.write(|functions| {
            let computed = writes.iter().map(|write| write.action.compute(functions));
            Ok::<_, Infallible>(computed.collect::<Vec<_>>())
        });
        let began = Instant::now();
        let mut outcomes = Vec::with_capacity(writes.len());
        let (mut refused, mut last) = (Vec::new(), NewVersion::Unchanged);
        for (Write { action, version }, computed) in writes.into_iter().zip(computed) {
            outcomes.push(match computed {
                Ok(computed) => {
                    // Only the version of the last change that was applied counts (X9).
                    last = version;
                    Ok(state.perform(action, computed))
                }
                Err(error) => {
                    refused.push(action);
                    Err(error)
                }
            });
        }
        state.set_version(last);
        drop(state);
        let took = began.elapsed();
        // The destructors of their objects are user code.
        drop(refused);
        let applied = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        self.report_version();
        (outcomes, SlowTransaction::of(applied, took))
    }

    /// Sets the resource version: all changes up to it have been delivered.
    pub fn bookmark(&self, resource_version: Option<ResourceVersion>) {
        let mut state = self.state.write();
        state.resource_version = resource_version;
        drop(state);
        self.report_version();
    }

    /// Returns the resource version of the last write. It may be older than the version of an
    /// earlier write. `None` before the first write.
    #[doc(alias = "LastStoreSyncResourceVersion")]
    pub fn resource_version(&self) -> Option<ResourceVersion> {
        self.state.read().resource_version.clone()
    }

    /// Reports the current resource version to the metrics.
    fn report_version(&self) {
        let version = || resource_version_metric(self.state.read().resource_version.as_ref());
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

    fn version_of(&self, object: &T) -> Result<NewVersion, StoreError> {
        match &self.resource_version {
            None => Ok(NewVersion::Unchanged),
            Some(read) => catch(|| NewVersion::of(read(object)))
                .map_err(|panicked| StoreError::panicked("reading the resourceVersion", panicked)),
        }
    }

    fn version_of_deleted(&self, gone: &Deleted<T>) -> Result<NewVersion, StoreError> {
        match gone {
            Deleted::Final(object) => self.version_of(object),
            Deleted::FinalStateUnknown { .. } => Ok(NewVersion::Unchanged),
        }
    }
}

/// A change that has been applied.
pub(crate) struct Written<T> {
    /// The entry that was stored before the change.
    pub(crate) before: Option<Entry<T>>,
    /// The errors of the index functions that failed for this state of the object for the first time.
    pub(crate) unindexed: Vec<StoreError>,
    /// The failures of the state before. They are here so that they are dropped without the lock.
    pub(crate) outdated: Vec<FailedIndex>,
}

impl<T> Written<T> {
    fn replaced(before: Option<Entry<T>>) -> Self {
        Self {
            before,
            unindexed: Vec::new(),
            outdated: Vec::new(),
        }
    }

    fn of(key: &Key, put: Put<T>) -> Self {
        Self {
            before: put.before,
            unindexed: put.failed.iter().map(|failed| failed.error(key)).collect(),
            outdated: put.outdated,
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
fn build<T>(functions: &[Registered<T>], entries: &[Entry<T>]) -> Result<Slots<T>, StoreError> {
    let ids = functions.iter().map(|registered| registered.id);
    let mut slots = Slots::with_capacity(entries.len(), ids);
    // If several objects have the same key, index functions run only on the last one.
    for entry in entries {
        slots.put(entry.clone(), Computed::default());
    }
    let mut first_error = None;
    slots.index_all(
        |key, object| match accept(key, compute(functions, object)) {
            Ok(computed) => computed,
            Err(error) => {
                first_error.get_or_insert(error);
                Computed::default()
            }
        },
    );
    match first_error {
        Some(error) => Err(error),
        None => Ok(slots),
    }
}

debug_fields!(ThreadSafeStore<T>, this,
    len: this.len(),
    resource_version: this.resource_version()
);

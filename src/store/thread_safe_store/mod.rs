mod indexers;
mod read;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::index::{Computed, Registered, compute};
use super::slots::Slots;
use super::{Change, IndexError, Indexers, StoreError, TransactionError};
use crate::metrics::{InformerMetrics, Meter, resource_version_metric};
use crate::object::{Deleted, Key};
use crate::panic::catch;
use crate::sync::{RwLock, RwLockWriteGuard};
use crate::time::slow;

/// How many slots are visited per hold of the lock: some tens of microseconds. In models, where stores are
/// small, two.
const CHUNK: usize = if cfg!(all(test, shuttle)) { 2 } else { 4096 };

type ResourceVersionFn<T> = dyn for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync;

/// Objects by key, with indices; the caller brings the keys. client-go's `ThreadSafeStore`.
///
/// An [`Indexer`](super::Indexer) makes the keys itself and is what an informer fills; use this one where
/// keys are not made of the objects.
///
/// **Writing.** A write is seen by every read that begins after it has returned. It is whole or it is not: a
/// function of yours that fails or panics fails the write, and neither objects, indices nor resourceVersion
/// have changed (X6). An object is filed under the index values that it had when it was written, each once;
/// a value without objects is gone (X5).
///
/// **Blocking.** One readers-writer lock guards everything. No user code runs under it, nothing is dropped
/// under it, and each hold of it is short: a lookup, one change, at most 4096 objects of a list, the swap of
/// a replace. Only a [`transaction`](Self::transaction) and a [`snapshot`](Self::snapshot) hold it for as
/// long as they are big. Nobody waits for anything but the lock, so nobody is woken.
///
/// **What a list is.** [`list`](Self::list), [`list_keys`](Self::list_keys) and the index lookups copy 4096
/// slots at a time; an object that goes leaves its slot empty until another comes. So they are one point in
/// time if there have never been more than 4096 objects at once since the last replace. Else they are not,
/// but: an object that is there during the whole call is in the result exactly once, in one of the states
/// that it had meanwhile; no key is there twice; and a replace is never half seen, though a transaction may
/// be. Where that is too little, [`snapshot`](Self::snapshot) is always one point in time, and writers wait
/// for it.
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
    /// Guards the content, the index functions and the resourceVersion. Innermost: no other lock is taken
    /// and no user code runs under it. Nobody waits for a condition on it.
    state: RwLock<State<T>>,
}

struct State<T> {
    slots: Slots<T>,
    /// Replaced whole when it changes: a writer that has computed index values sees by its address whether
    /// they still count.
    functions: Arc<[Registered<T>]>,
    next_index: u32,
    /// Counts the replaces: the slots of another generation are other slots.
    generation: u64,
    resource_version: String,
}

impl<T> State<T> {
    fn set_resource_version(&mut self, resource_version: Option<&str>) {
        if let Some(resource_version) = resource_version {
            self.resource_version.clear();
            self.resource_version.push_str(resource_version);
        }
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
    /// An empty store with these indices, that only knows the resourceVersions it is told by replace and
    /// bookmark.
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
                slots: Slots::new(functions.iter().map(|registered| registered.id)),
                next_index: functions.len() as u32,
                functions,
                generation: 0,
                resource_version: String::new(),
            }),
        }
    }

    /// Also takes the resourceVersion from what is added, updated and deleted (X9): `None` leaves it as it
    /// is.
    #[must_use]
    pub fn with_resource_version(
        mut self,
        resource_version: impl for<'a> Fn(&'a T) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        self.resource_version = Some(Box::new(resource_version));
        self
    }

    /// Tells the resourceVersion to these metrics whenever it is written (X13).
    #[must_use]
    pub(crate) fn with_metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.meter = Meter::new(Some(metrics));
        self
    }

    /// Stores an object, in place of the one with this key if there is one, which is given back.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`] if an index function fails or panics on it: nothing has changed then (X6).
    pub fn add(&self, key: Key, object: Arc<T>) -> Result<Option<Arc<T>>, StoreError> {
        let held = Arc::clone(&object);
        let resource_version = self.version_of(&held)?;
        let (mut state, computed) = self.write(|functions| compute(functions, &key, &*held))?;
        state.set_resource_version(resource_version);
        let replaced = state.slots.put(key, object, computed);
        drop(state);
        self.report_version();
        Ok(replaced)
    }

    /// The same as [`add`](Self::add) (S2).
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub fn update(&self, key: Key, object: Arc<T>) -> Result<Option<Arc<T>>, StoreError> {
        self.add(key, object)
    }

    /// Takes an object out; nothing if it is not there. The resourceVersion stays (X9). It runs no index
    /// function and can't fail.
    pub fn delete(&self, key: &str) {
        let removed = self.state.write().slots.remove(key);
        drop(removed);
    }

    /// Takes an object out, and its resourceVersion from the object that the deletion came with; a tombstone
    /// has none (X9).
    ///
    /// # Errors
    ///
    /// If the function that reads the resourceVersion panics: nothing has changed then.
    pub fn delete_with_object(&self, key: &str, gone: &Deleted<T>) -> Result<(), StoreError> {
        self.delete_at(key, self.version_of_deleted(gone)?);
        Ok(())
    }

    /// Takes an object out, and notes the resourceVersion of its deletion.
    pub(super) fn delete_at(&self, key: &str, resource_version: Option<&str>) {
        let removed = {
            let mut state = self.state.write();
            state.set_resource_version(resource_version);
            state.slots.remove(key)
        };
        drop(removed);
        self.report_version();
    }

    /// Takes an object out, but only this very one; says whether it was there.
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

    /// These are all the objects; of several with one key the last counts,
    /// and index functions run only on that one. Readers see the old content or the
    /// new, and wait for neither the indexing of the new nor the end of the old.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`] if an index function fails or panics on one of them: nothing has changed then
    /// (X6).
    pub fn replace(
        &self,
        objects: Vec<(Key, Arc<T>)>,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let old = {
            let (mut state, mut slots) = self.write(|functions| build(functions, &objects))?;
            std::mem::swap(&mut state.slots, &mut slots);
            state.generation += 1;
            state.set_resource_version(Some(resource_version));
            slots
        };
        drop((old, objects));
        self.report_version();
        Ok(())
    }

    /// Makes several changes at once, in their order, under one hold of the lock: a lookup by key, a
    /// [`snapshot`](Self::snapshot) and a list that is one point in time see all of them or none. The
    /// resourceVersion becomes that of the last one (X9). The key of a bookmark does not matter. One that holds the lock for more than half a second
    /// for each change, or five, is logged (X14).
    ///
    /// # Errors
    ///
    /// [`TransactionError`] tells the changes that were not made, because an index function failed or
    /// panicked on them; the others have been made.
    pub fn transaction(&self, changes: Vec<(Key, Change<T>)>) -> Result<(), TransactionError> {
        let total = changes.len();
        let (made, errors) = self.transact(changes.into_iter().enumerate().collect());
        if errors.is_empty() {
            return Ok(());
        }
        Err(TransactionError {
            successful: made,
            total,
            errors: errors.into_iter().map(|(_, error)| error).collect(),
        })
    }

    /// The transaction, with each change's position; answers the positions of those that were made, and the
    /// errors of the others.
    pub(super) fn transact(
        &self,
        mut changes: Vec<(usize, (Key, Change<T>))>,
    ) -> (Vec<usize>, Vec<(usize, StoreError)>) {
        let mut errors = Vec::new();
        let held: Vec<Change<T>> = changes
            .iter()
            .map(|(_, (_, change))| change.clone())
            .collect();
        let mut versions = Vec::with_capacity(held.len());
        let mut held = held.iter();
        changes.retain(|(position, _)| {
            let version = match held.next() {
                Some(Change::Add(object) | Change::Update(object)) => self.version_of(object),
                Some(Change::Delete(gone)) => self.version_of_deleted(gone),
                Some(Change::Bookmark(version)) => Ok(Some(&**version)),
                None => Ok(None),
            };
            version
                .map(|version| versions.push(version))
                .map_err(|error| errors.push((*position, error)))
                .is_ok()
        });
        let written = self.write(|functions| {
            let computed = changes.iter().map(|(_, (key, change))| match change {
                Change::Add(object) | Change::Update(object) => compute(functions, key, &**object),
                Change::Delete(_) | Change::Bookmark(_) => Ok(Computed::new()),
            });
            Ok(computed.collect::<Vec<_>>())
        });
        let mut made = Vec::with_capacity(changes.len());
        // Dropped after the lock, which is why it is declared before it is taken.
        let mut replaced = Vec::with_capacity(changes.len());
        let mut removed = Vec::new();
        let began = Instant::now();
        if let Ok((mut state, computed)) = written {
            let mut last = None;
            for (((position, (key, change)), version), computed) in
                changes.into_iter().zip(versions).zip(computed)
            {
                let computed = match computed {
                    Ok(computed) => computed,
                    Err(error) => {
                        errors.push((position, error));
                        continue;
                    }
                };
                made.push(position);
                last = version;
                match change {
                    Change::Add(object) | Change::Update(object) => {
                        replaced.push(state.slots.put(key, object, computed));
                    }
                    Change::Delete(gone) => removed.push((state.slots.remove(&key), gone)),
                    Change::Bookmark(_) => {}
                }
            }
            state.set_resource_version(last);
        }
        let took = began.elapsed();
        if took
            > slow(
                made.len().max(1),
                Duration::from_millis(500),
                Duration::from_secs(5),
            )
        {
            log::info!(
                "a transaction of {} changes took {took:?}: too many at once",
                made.len()
            );
        }
        self.report_version();
        errors.sort_by_key(|(position, _)| *position);
        (made, errors)
    }

    /// Everything up to this resourceVersion has been seen.
    pub fn bookmark(&self, resource_version: &str) {
        self.state
            .write()
            .set_resource_version(Some(resource_version));
        self.report_version();
    }

    /// The resourceVersion of the last thing that was written; it may go back (X9). Empty at first.
    pub fn last_store_sync_resource_version(&self) -> String {
        self.state.read().resource_version.clone()
    }

    /// Tells the metrics, if there are any, which resourceVersion it is now.
    fn report_version(&self) {
        let version = || resource_version_metric(&self.state.read().resource_version);
        self.meter.level(version, |metrics, version| {
            if let Some(version) = version {
                metrics.store_resource_version(version);
            }
        });
    }

    /// Computes something that depends on the index functions, under no lock, and takes the lock for writing:
    /// again, if functions were added meanwhile.
    fn write<R>(
        &self,
        mut compute: impl FnMut(&[Registered<T>]) -> Result<R, StoreError>,
    ) -> Result<(RwLockWriteGuard<'_, State<T>>, R), StoreError> {
        let mut functions = Arc::clone(&self.state.read().functions);
        loop {
            let computed = compute(&functions)?;
            let state = self.state.write();
            if Arc::ptr_eq(&state.functions, &functions) {
                return Ok((state, computed));
            }
            let outdated = std::mem::replace(&mut functions, Arc::clone(&state.functions));
            drop(state);
            // These may own user code.
            drop((computed, outdated));
        }
    }

    fn version_of<'a>(&self, object: &'a T) -> Result<Option<&'a str>, StoreError> {
        match &self.resource_version {
            None => Ok(None),
            Some(read) => catch(|| read(object))
                .map_err(|message| StoreError::other(format!("resourceVersion: {message}"))),
        }
    }

    fn version_of_deleted<'a>(&self, gone: &'a Deleted<T>) -> Result<Option<&'a str>, StoreError> {
        match gone {
            Deleted::Final(object) => self.version_of(object),
            Deleted::FinalStateUnknown { .. } => Ok(None),
        }
    }
}

/// A generation of a store, with everything indexed.
fn build<T>(
    functions: &[Registered<T>],
    objects: &[(Key, Arc<T>)],
) -> Result<Slots<T>, StoreError> {
    let mut slots = Slots::with_capacity(
        objects.len(),
        functions.iter().map(|registered| registered.id),
    );
    // Index functions run only on the object that stays of several with one key.
    for (key, object) in objects {
        slots.put(Arc::clone(key), Arc::clone(object), Computed::new());
    }
    slots.file_all(|key, object| compute(functions, key, object))?;
    Ok(slots)
}

impl<T> fmt::Debug for ThreadSafeStore<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.read();
        f.debug_struct("ThreadSafeStore")
            .field("len", &state.slots.len())
            .field("resource_version", &state.resource_version)
            .finish_non_exhaustive()
    }
}

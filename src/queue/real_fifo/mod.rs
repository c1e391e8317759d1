mod builder;
mod in_order;
mod pop;
mod read;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

pub use builder::{RealFifoBuilder, RealFifoMode};

use super::timing::Timing;
use super::version_tracker::{self, VersionTracker};
use super::{Delta, Deltas, ReplacedAll};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::panic::catch;
use crate::resource_version::ResourceVersion;
use crate::stop::Done;
use crate::store::{
    Change, Gaps, KnownObjects, ReflectorStore, Rejected, StagedList, Staging, StoreError,
    Transform,
};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How many changes are handed out together at most (R14). In models, where queues are short, two.
const BATCH: usize = if cfg!(all(test, shuttle)) { 2 } else { 1000 };

/// All changes of all objects in the order in which they came: nothing is merged, nothing left out.
/// client-go's `RealFIFO`, the queue of its informers since 1.33.
///
/// Use it where the order across objects matters, or where a whole list has to reach the store at once. A
/// [`DeltaFifo`](super::DeltaFifo) hands out the changes of one object together instead, and holds at most
/// one entry for each; here a burst of changes is as long as it is.
///
/// **Modes** ([`RealFifoMode`]). *Atomic*, as today's client-go: a list is one [`Delta::ReplacedAll`], a
/// resync one [`Delta::SyncAll`]; what that means for each object, the consumer finds out from his store. *In
/// order*: a list is a tombstone for each object that is queued or known and not in it, then a
/// [`Delta::Replaced`] for each that is.
///
/// **Threads.** Any number of them may write; any number may pop, one after the other: a
/// [`pop`](super::Queue::pop) waits until the processing of the one before is over. A write wakes one pop,
/// [`close`](super::Queue::close) all of them. No lock is held during processing, but writers are kept
/// waiting as if it were (R19): always in order, so that no change falls between the queue and the known
/// objects; in atomic mode unless it is unlocked, and even then while 2000 changes or more are left: the only
/// back-pressure there is. The callback itself may always write.
///
/// **User code.** Key functions and transforms run under no lock; a panic in them is an error. While the
/// known objects are asked, other threads can neither write nor pop.
///
/// **Again.** A callback that fails with [`Requeue`](super::Requeue) gets the same next: it goes back to the
/// head, since order is what this queue promises.
///
/// ```
/// use k8s_informer::Deleted;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Delta, Queue, RealFifo};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = RealFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// queue.replace(vec![Arc::new("a1".to_owned()), Arc::new("b1".to_owned())], "7")?;
/// queue.delete(Deleted::Final(Arc::new("a1".to_owned())))?;
/// let popped = queue.pop(&mut |deltas, in_initial_list| {
///     assert!(deltas.len() == 1 && in_initial_list);
///     Ok(())
/// })?;
/// let Some(Delta::ReplacedAll(list)) = popped.newest() else { panic!() };
/// assert_eq!((list.objects.len(), list.resource_version.as_str()), (2, "7"));
/// assert!(queue.has_synced());
/// assert_eq!(queue.list_keys(), ["a".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "RealFIFO")]
pub struct RealFifo<T> {
    accessor: Accessor<T>,
    mode: RealFifoMode<T>,
    transform: Option<Transform<T>>,
    cache: Option<Arc<dyn KnownObjects<T>>>,
    synced: Done,
    timing: Timing,
    /// Guards everything that changes. Innermost: no user code runs, and `synced` is not set, under it.
    state: Mutex<State<T>>,
    /// Pops wait here until there is an item and nothing is in flight. [`unlock`](RealFifo::unlock) wakes one
    /// when both hold, and all once the queue is closed; so does `close`.
    changed: Condvar,
    /// Writers wait here for the end of an exclusive flight, which wakes all of them.
    landed: Condvar,
}

struct State<T> {
    /// Each with one delta; the key is that of its object as it is queued, and missing where there is none.
    items: VecDeque<Deltas<T>>,
    in_flight: Option<InFlight>,
    /// Whether the first write, or the first replace that succeeded, has come.
    populated: bool,
    /// How many items at the head of the queue, those in flight included, came with the first replace (R8).
    initial_population: usize,
    /// Once it has, it has.
    synced: bool,
    closed: bool,
    /// Tracks each of `items`, and each change in flight.
    versions: VersionTracker,
}

/// Makes the delta of an object, or its change again.
type Wrap<T> = (fn(Arc<T>) -> Delta<T>, fn(Arc<T>) -> Change<T>);

/// A change whose key function and transform have run.
struct Prepared<T> {
    key: Option<Key>,
    /// `None` of a bookmark that is not queued.
    delta: Option<Delta<T>>,
    /// The version of the object before the transform.
    version: Option<ResourceVersion>,
}

/// A pop processes, or the known objects are being read.
struct InFlight {
    thread: ThreadId,
    /// Whether other threads have to wait before they write.
    exclusive: bool,
}

impl<T> RealFifo<T> {
    /// A queue in atomic mode, unlocked and with bookmarks: as client-go's informers have it.
    pub fn new(accessor: Accessor<T>) -> Self {
        let mode = RealFifoMode::Atomic {
            unlock_while_processing: true,
            bookmarks: true,
        };
        Self::builder(accessor, mode).build()
    }

    /// What is done to every object before it is queued (R24). client-go's `Transformer`.
    pub fn transformer(&self) -> Option<&Transform<T>> {
        self.transform.as_ref()
    }

    /// The lock, for writing: once nobody else is exclusive.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        let this = thread::current().id();
        let mut state = self.state.lock();
        while state
            .in_flight
            .as_ref()
            .is_some_and(|in_flight| in_flight.exclusive && in_flight.thread != this)
        {
            self.landed.wait(&mut state);
        }
        state
    }

    /// Publishes what the lock has guarded, and reports the depth.
    fn unlock(&self, state: MutexGuard<'_, State<T>>) {
        self.publish(state);
        self.timing.depth(|| self.len());
    }

    /// Publishes what the lock has guarded: the watermark, an item for a waiting pop, `synced`.
    fn publish(&self, mut state: MutexGuard<'_, State<T>>) {
        state.versions.publish();
        state.synced |= state.populated && state.initial_population == 0;
        let synced = state.synced;
        if state.in_flight.is_none() {
            if state.closed {
                self.changed.notify_all();
            } else if !state.items.is_empty() {
                self.changed.notify_one();
            }
        }
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
    }

    /// The key has to exist before the transform. It counts as it is after it (R3, K4).
    fn prepare(&self, object: Arc<T>) -> Result<(Option<Key>, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        self.transformed(key, object)
    }

    fn transformed(&self, key: Key, object: Arc<T>) -> Result<(Option<Key>, Arc<T>), StoreError> {
        if self.transform.is_none() {
            return Ok((Some(key), object));
        }
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((self.accessor.key(&object).ok(), object))
    }

    /// Runs the user code that a change needs.
    fn prepare_change(&self, change: Change<T>) -> Result<Prepared<T>, Rejected<T>> {
        let is_deletion = matches!(change, Change::Delete(_));
        let (object, (delta, change)): (_, Wrap<T>) = match change {
            Change::Add(object) => (object, (Delta::Added, Change::Add)),
            Change::Update(object) => (object, (Delta::Updated, Change::Update)),
            Change::Delete(Deleted::Final(object)) => (
                object,
                (
                    |object| Delta::Deleted(Deleted::Final(object)),
                    |object| Change::Delete(Deleted::Final(object)),
                ),
            ),
            Change::Delete(Deleted::FinalStateUnknown { key, last_known }) => {
                return Ok(Prepared {
                    key: Some(Key::clone(&key)),
                    delta: Some(Delta::Deleted(Deleted::FinalStateUnknown {
                        key,
                        last_known,
                    })),
                    version: None,
                });
            }
            Change::Bookmark(version) => {
                let is_queued = self.queues_bookmarks();
                return Ok(Prepared {
                    key: None,
                    version: version_tracker::version(&version),
                    delta: is_queued.then(|| Delta::Bookmark(version.into())),
                });
            }
        };
        let key = match self.accessor.key(&object) {
            Ok(key) => key,
            Err(error) => return Err(Rejected::new(change(object), error)),
        };
        let version = version_tracker::version_of(&self.accessor, &object);
        // Only a rejected deletion keeps its object: a transform that changes it in place has to clone it then.
        let kept = (is_deletion && self.transform.is_some()).then(|| Arc::clone(&object));
        match self.transformed(key, object) {
            Ok((key, object)) => Ok(Prepared {
                key,
                delta: Some(delta(object)),
                version,
            }),
            Err(error) => Err(Rejected {
                change: kept.map(change),
                error,
            }),
        }
    }

    fn queues_bookmarks(&self) -> bool {
        matches!(
            self.mode,
            RealFifoMode::Atomic {
                bookmarks: true,
                ..
            }
        )
    }

    fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        let prepared = self.prepare_change(change);
        let mut state = self.lock();
        // A write that fails populates, too (R2, R3).
        state.populated = true;
        let result = prepared.map(|prepared| state.put(prepared));
        self.unlock(state);
        result.map_err(|rejected| rejected.error)
    }

    /// A list as one change (R7).
    fn replace_all(
        &self,
        mut objects: Vec<Arc<T>>,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        if let Some(transform) = &self.transform {
            for object in &mut objects {
                let transformed = transform.apply(Arc::clone(object));
                *object = transformed.map_err(|message| StoreError::Transform {
                    key: self.accessor.key(object).ok(),
                    message: message.into(),
                })?;
            }
        }
        let gaps = Gaps::default();
        self.push_list(ReplacedAll {
            resource_version: resource_version.to_owned(),
            objects,
            gaps,
        });
        Ok(())
    }

    fn push_list(&self, list: ReplacedAll<T>) {
        let version = ResourceVersion::from(&*list.resource_version);
        let mut state = self.lock();
        state.push(None, Delta::ReplacedAll(Arc::new(list)));
        state.versions.list(version);
        state.replaced();
        self.unlock(state);
    }
}

impl<T> State<T> {
    fn put(&mut self, prepared: Prepared<T>) {
        let Prepared {
            key,
            delta,
            version,
        } = prepared;
        let is_added = matches!(delta, Some(Delta::Added(_)));
        self.populated |= !matches!(delta, None | Some(Delta::Bookmark(_)));
        if let Some(delta) = delta {
            self.push(key, delta);
        }
        self.versions.object(version, is_added);
    }

    fn push(&mut self, key: Option<Key>, delta: Delta<T>) {
        let since = self.versions.begin();
        self.items.push_back(Deltas::one(since, key, delta));
    }

    /// The first list that comes before anything else is the initial one, with all that waits then (R8).
    fn replaced(&mut self) {
        if !self.populated {
            self.populated = true;
            self.initial_population = self.items.len();
        }
    }
}

impl<T: Send + Sync> ReflectorStore<T> for RealFifo<T> {
    /// Queues [`Delta::Added`].
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the object has no key or the transform fails. The queue counts as populated all the
    /// same (R3).
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.write(Change::Add(object))
    }

    /// Queues [`Delta::Updated`].
    ///
    /// # Errors
    ///
    /// As for `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.write(Change::Update(object))
    }

    /// Queues [`Delta::Deleted`], whether anybody knows of the object or not (R1).
    ///
    /// # Errors
    ///
    /// As for `add`. The transform is not asked about tombstones.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.write(Change::Delete(gone))
    }

    /// Queues [`Delta::ReplacedAll`]; in order, what it comes to: see [`RealFifo`] (R5, R7).
    ///
    /// # Errors
    ///
    /// [`StoreError::Transform`] if the transform fails on an object: nothing is queued then; in order,
    /// the tombstones and what came before it in the list are. [`StoreError::Key`], in order only, if an
    /// object has no key, or something that is queued has lost its own in the transform: nothing is queued.
    /// [`StoreError::Other`], in order only, if the known objects panic: nothing is queued.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        match &self.mode {
            RealFifoMode::Atomic { .. } => self.replace_all(objects, resource_version),
            RealFifoMode::InOrder(known) => self.replace_each(&**known, objects, resource_version),
        }
    }

    /// Queues [`Delta::SyncAll`]; in order, [`Delta::Sync`] for each known object that has nothing queued
    /// (R9).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`], in order only, if a known object has no key: those before it have been queued; or
    /// if something that is queued has lost its own in the transform. [`StoreError::Other`], in order only,
    /// if the known objects panic: what came before has been queued.
    fn resync(&self) -> Result<(), StoreError> {
        match &self.mode {
            RealFifoMode::Atomic { .. } => {
                let mut state = self.lock();
                state.push(None, Delta::SyncAll);
                self.unlock(state);
                Ok(())
            }
            RealFifoMode::InOrder(known) => self.resync_each(&**known),
        }
    }

    /// Queues [`Delta::Bookmark`], in atomic mode if it was asked for (R11). In any case it
    /// [counts](super::Queue::processed) once what came before it has been processed.
    ///
    /// # Errors
    ///
    /// None.
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        let version = version_tracker::version(resource_version);
        let is_queued = self.queues_bookmarks();
        // Nobody waits to write what is not queued.
        let mut state = if is_queued {
            self.lock()
        } else {
            self.state.lock()
        };
        if is_queued {
            state.push(None, Delta::Bookmark(resource_version.into()));
        }
        state.versions.event(version);
        // A bookmark is no item: the depth is not reported (R22).
        self.publish(state);
        Ok(())
    }

    /// Queues all changes under one lock, and wakes one pop.
    ///
    /// # Errors
    ///
    /// As for `add`, `update` and `delete`.
    fn apply(&self, changes: &mut VecDeque<Change<T>>) -> Result<(), Rejected<T>> {
        let mut prepared = Vec::with_capacity(changes.len());
        let mut result = Ok(());
        while let Some(change) = changes.pop_front() {
            match self.prepare_change(change) {
                Ok(change) => prepared.push(change),
                Err(rejected) => {
                    result = Err(rejected);
                    break;
                }
            }
        }
        let mut state = self.lock();
        // A write that fails populates, too (R2, R3).
        state.populated |= result.is_err();
        let mut has_items = false;
        for change in prepared {
            has_items |= !matches!(change.delta, None | Some(Delta::Bookmark(_)));
            state.put(change);
        }
        if has_items {
            self.unlock(state);
        } else {
            self.publish(state);
        }
        result
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T: Send + Sync> Staging<T> for RealFifo<T> {
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key> {
        self.accessor.key_of_name(namespace, name)
    }

    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        match self.prepare(object)? {
            (Some(key), object) => Ok((key, object)),
            (None, _) => Err(KeyError::new("the object has lost its key in the transform").into()),
        }
    }

    /// What the known objects have; in atomic mode what the [cache](RealFifoBuilder::cache) has.
    fn cached(&self, key: &str) -> Option<Arc<T>> {
        let cache = match &self.mode {
            RealFifoMode::InOrder(known) => Some(known),
            RealFifoMode::Atomic { .. } => self.cache.as_ref(),
        };
        catch(|| cache?.lookup(key).ok()?).ok()?
    }

    fn is_settled(&self) -> bool {
        self.state.lock().versions.is_settled()
    }

    fn replace_staged(&self, list: StagedList<T>) -> Result<(), StoreError> {
        let StagedList {
            objects,
            resource_version,
            gaps,
        } = list;
        match &self.mode {
            RealFifoMode::Atomic { .. } => {
                let objects = objects.into_iter().map(|(_, object)| object).collect();
                self.push_list(ReplacedAll {
                    resource_version,
                    objects,
                    gaps,
                });
                Ok(())
            }
            RealFifoMode::InOrder(known) => {
                let listed = objects.iter().map(|(key, _)| Arc::clone(key)).collect();
                let objects = objects
                    .into_iter()
                    .map(|(key, object)| (Some(key), object))
                    .collect();
                self.replace_prepared(&**known, &listed, objects, &gaps, Ok(&resource_version))
            }
        }
    }
}

impl<T> fmt::Debug for RealFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("RealFifo")
            .field("mode", &self.mode)
            .field("len", &state.items.len())
            .field("synced", &state.synced)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

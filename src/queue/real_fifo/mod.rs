mod builder;
mod in_order;
mod pop;
mod read;

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

pub use builder::{RealFifoBuilder, RealFifoMode};

use super::{Delta, Deltas, ReplacedAll};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::panic::catch;
use crate::queue::timing::Timing;
use crate::queue::told::Told;
use crate::resource_version::ResourceVersion;
use crate::stop::Done;
use crate::store::{
    Gaps, KnownObjects, ReflectorStore, StagedList, Staging, StoreError, Transform,
};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// How many changes are handed out together at most (R14). In models, where queues are short, two.
const BATCH: usize = if cfg!(all(test, shuttle)) { 2 } else { 1000 };

/// Room for this many changes is kept when the queue has run empty; more is given back.
const KEEP: usize = 1024;

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
/// use k8s_informer::{Accessor, Deleted, Delta, KeyError, Queue, RealFifo, ReflectorStore};
/// use std::sync::Arc;
///
/// let queue = RealFifo::atomic(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
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
pub struct RealFifo<T> {
    accessor: Accessor<T>,
    mode: RealFifoMode<T>,
    transform: Option<Transform<T>>,
    cache: Option<Arc<dyn KnownObjects<T>>>,
    synced: Done,
    timing: Timing,
    /// Guards everything that changes. Innermost: no user code runs, and `synced` is not set, under it.
    state: Mutex<State<T>>,
    /// Pops wait here for an item, and for the end of what is in flight. One is woken by each write, of
    /// several together at their end, and by
    /// the end of a processing; all by `close`, and by the end of a processing after it.
    changed: Condvar,
    /// Writers wait here for the end of an exclusive flight, which wakes all of them.
    landed: Condvar,
}

struct State<T> {
    /// Each with one delta; the key is that of its object as it is queued, and missing where there is none.
    items: VecDeque<Deltas<T>>,
    in_flight: Option<Flight>,
    /// Whether the first write, or the first replace that succeeded, has come.
    populated: bool,
    /// How many items at the head of the queue, those in flight included, came with the first replace (R8).
    initial: usize,
    /// Once it has, it has.
    synced: bool,
    closed: bool,
    /// How many writers are [writing several changes](ReflectorStore::write_together), after which they wake
    /// a pop.
    writing: usize,
    told: Told,
    /// How many items have been processed for good, which is the number of the first one's place.
    done: u64,
}

/// Somebody processes, or asks the known objects.
struct Flight {
    thread: ThreadId,
    /// Whether other threads have to wait before they write.
    exclusive: bool,
}

impl<T> RealFifo<T> {
    /// In atomic mode as client-go's informers have it: unlocked, with bookmarks.
    pub fn atomic(accessor: Accessor<T>) -> Self {
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
            .is_some_and(|flight| flight.exclusive && flight.thread != this)
        {
            self.landed.wait(&mut state);
        }
        state
    }

    /// Gives the lock back, says that the queue has synced if so it is, and how much waits.
    fn unlock(&self, mut state: MutexGuard<'_, State<T>>) {
        state.synced |= state.populated && state.initial == 0;
        let synced = state.synced;
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
        self.timing.depth(|| self.len());
    }

    fn push(&self, state: &mut State<T>, key: Option<Key>, delta: Delta<T>) {
        state.items.push_back(Deltas::one(key, delta));
        state.told.place();
        if state.writing == 0 {
            self.changed.notify_one();
        }
    }

    /// The key has to be there before the transform, and counts after it (R3, K4).
    fn prepare(&self, object: Arc<T>) -> Result<(Option<Key>, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        if self.transform.is_none() {
            return Ok((Some(key), object));
        }
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((self.accessor.key(&object).ok(), object))
    }

    fn upsert(&self, object: Arc<T>, delta: fn(Arc<T>) -> Delta<T>) -> Result<(), StoreError> {
        let version = Told::version_of(&self.accessor, &object);
        self.write(
            self.prepare(object)
                .map(|(key, object)| (key, delta(object))),
            version,
        )
    }

    fn write(
        &self,
        prepared: Result<(Option<Key>, Delta<T>), StoreError>,
        version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let mut state = self.lock();
        // A write that fails populates too (R2, R3).
        state.populated = true;
        let result = prepared.map(|(key, delta)| {
            let is_added = matches!(delta, Delta::Added(_));
            self.push(&mut state, key, delta);
            state.told.object(version, is_added);
        });
        self.unlock(state);
        result
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
        self.push(&mut state, None, Delta::ReplacedAll(Arc::new(list)));
        state.told.list(version);
        state.replaced();
        self.unlock(state);
    }
}

impl<T> State<T> {
    /// The first list that comes before anything else is the initial one, with all that waits then (R8).
    fn replaced(&mut self) {
        if !self.populated {
            self.populated = true;
            self.initial = self.items.len();
        }
    }

    /// To be called when there are fewer items, or more versions without one.
    fn publish(&mut self) {
        if self.told.pass(Some(self.done)) {
            self.told.publish(None);
        }
    }
}

/// The end of [`write_together`](ReflectorStore::write_together), also after a panic.
struct Wakes<'a, T>(&'a RealFifo<T>);

impl<T> Drop for Wakes<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writing -= 1;
        // Who is woken wakes the next one, if there is more.
        if !state.items.is_empty() {
            self.0.changed.notify_one();
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
        self.upsert(object, Delta::Added)
    }

    /// Queues [`Delta::Updated`].
    ///
    /// # Errors
    ///
    /// As for `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.upsert(object, Delta::Updated)
    }

    /// Queues [`Delta::Deleted`], whether anybody knows of the object or not (R1).
    ///
    /// # Errors
    ///
    /// As for `add`. The transform is not asked about tombstones.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        match gone {
            Deleted::Final(object) => {
                self.upsert(object, |object| Delta::Deleted(Deleted::Final(object)))
            }
            // What it knows of the object is older than the deletion.
            Deleted::FinalStateUnknown { ref key, .. } => {
                self.write(Ok((Some(Arc::clone(key)), Delta::Deleted(gone))), None)
            }
        }
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
                self.push(&mut state, None, Delta::SyncAll);
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
        let mut state = if let RealFifoMode::Atomic {
            bookmarks: true, ..
        } = self.mode
        {
            let mut state = self.lock();
            self.push(&mut state, None, Delta::Bookmark(resource_version.into()));
            state
        } else {
            self.state.lock()
        };
        state.told.event(Told::version(resource_version));
        state.publish();
        Ok(())
    }

    /// A pop that waits is woken when it is over.
    fn write_together(&self, write: &mut dyn FnMut()) {
        self.state.lock().writing += 1;
        let _wakes = Wakes(self);
        write();
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
        catch(|| cache?.get_by_key(key).ok()?).ok()?
    }

    fn is_settled(&self) -> bool {
        let state = self.state.lock();
        state.told.is_settled(Some(state.done))
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

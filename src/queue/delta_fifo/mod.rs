mod builder;
mod known;
mod state;
mod write;

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

pub use builder::DeltaFifoBuilder;

use self::known::{KnownSnapshot, call_known};
use self::state::{Batch, InFlight};
use super::error::Processed;
use super::timing::Timing;
use super::version_tracker::{self, VersionTracker};
use super::{
    Delta, Deltas, PopError, Process, ProcessBatch, Queue, Sealed, Turn, Watermark, wait_for_turn,
};
use crate::base::derive::debug_fields;
use crate::base::digest::Digest;
use crate::base::panic::catch;
use crate::base::sync::{Condvar, Mutex, MutexGuard, thread};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::stop::Done;
use crate::store::{
    Change, Door, Entry, EntryChange, Gaps, KnownObjects, ReflectorStore, Staging, StoreError,
    Transform,
};

/// The maximum number of keys in a batch. Under shuttle, whose queues are short, it is two.
const BATCH: usize = if cfg!(shuttle) { 2 } else { 64 };

/// A queue of all changes of each object since it was last popped. Objects are in the order of
/// their first change. client-go's `DeltaFIFO`.
///
/// Use it to process every change of an object exactly once and in order, and to detect deletions
/// on a relist. With [`known_objects`](DeltaFifoBuilder::known_objects), a
/// [`replace`](ReflectorStore::replace) queues tombstones for objects that are known or queued but
/// not in the list. The changes of one object wait together and count as one item. A later change
/// of one object can therefore be delivered before an earlier change of another. A
/// [`RealFifo`](super::RealFifo) keeps the order across objects. A [`Fifo`](super::Fifo) keeps only
/// the newest state of each object.
///
/// **Threads.** Any number of threads may write. Any number of threads may pop, but one at a time:
/// a [`pop`](super::Queue::pop) waits until the previous pop has finished processing. Writers never
/// wait for processing. A write of a new key wakes one pop; [`close`](super::Queue::close) wakes
/// all of them.
///
/// **A popped key is never unknown.** client-go processes under the lock of the queue. Here the
/// callback runs without the lock and may write to the queue. Until the callback has returned, its
/// key counts as known with its newest state, whatever the known objects contain at that moment. So
/// no deletion gets lost between queue and store, and none is delivered twice.
/// [`synced`](super::Queue::synced) is set after the last item of the initial list has been
/// *processed*.
///
/// **User code.** Key functions and transforms run without any lock. [`KnownObjects`] is called
/// under the lock of the queue, so an implementation must not call the queue. A panic in any of
/// this code becomes an error.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Delta, DeltaFifo, Queue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// queue.add(Arc::new("a1".to_owned()))?;
/// queue.add(Arc::new("b1".to_owned()))?;
/// queue.update(Arc::new("a2".to_owned()))?;
/// let popped = queue.pop(&mut |deltas, in_initial_list| {
///     assert!(deltas.len() == 2 && !in_initial_list);
///     Ok(())
/// })?;
/// assert_eq!(popped.newest(), Some(&Delta::Updated(Arc::new("a2".to_owned()))));
/// assert_eq!(queue.list_keys(), ["b".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "DeltaFIFO")]
pub struct DeltaFifo<T> {
    door: Door<T>,
    known_objects: Option<Arc<dyn KnownObjects<T>>>,
    emit_replaced: bool,
    synced: Done,
    timing: Timing,
    /// Guards all mutable state. `KnownObjects` is called under this lock, so the locks of its
    /// implementation come after it. While this lock is held, no other user code runs, no object is
    /// dropped, and `synced` is not set.
    state: Mutex<State<T>>,
    /// Pops wait here until there is an item and nothing is in flight.
    /// [`unlock`](DeltaFifo::unlock) wakes one of them when both hold, and all of them once the
    /// queue is closed. `close` also wakes all of them.
    changed: Condvar,
}

/// The waiting deltas and the keys in flight.
///
/// While the lock is free:
///
/// 1. `order` contains each key of `items` once. No deltas are empty.
/// 2. At most one pop is in flight. Its keys are in `in_flight`; new changes of these keys are in
///    `items`.
/// 3. `versions` tracks one change for each entry of `items`, for each key in flight, and for each
///    [deferred deletion](InFlightKey::deferred_deletion). Its sequence number is that of the
///    oldest unprocessed change.
/// 4. Until the first list has been processed, `initial_population` counts its unprocessed keys.
///    These are the keys in flight, if they [belong to it](Batch::is_initial), and the first keys
///    of `order`.
struct State<T> {
    items: HashMap<Key, Deltas<T>>,
    order: VecDeque<Key>,
    in_flight: Option<InFlight<T>>,
    /// Whether there has been a write or a successful replace (D2, D8).
    populated: bool,
    initial_population: usize,
    closed: bool,
    /// The number of resyncs that are reading the known objects. `popped` contains the keys popped
    /// since the first of these resyncs started; what the resyncs have read for them is outdated.
    resyncs: usize,
    popped: HashSet<Key>,
    versions: VersionTracker,
}

impl<T> DeltaFifo<T> {
    /// Creates a queue without known objects.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::builder(accessor).build()
    }

    /// Returns the key of popped deltas: the key under which they were queued, or else the key of
    /// the newest object or tombstone. Returns `None` if there are no deltas.
    ///
    /// # Errors
    ///
    /// Returns the error of the key function.
    pub fn key_of(&self, deltas: &Deltas<T>) -> Result<Option<Key>, KeyError> {
        match (deltas.newest(), deltas.key()) {
            (None, _) => Ok(None),
            (Some(_), Some(key)) => Ok(Some(Key::clone(key))),
            (Some(Delta::Deleted(deleted)), None) => {
                self.door.accessor().key_of_deleted(deleted).map(Some)
            }
            (Some(delta), None) => delta
                .object()
                .map(|object| self.door.accessor().key(object))
                .transpose(),
        }
    }

    /// Returns the transform, if there is one. client-go's `Transformer`.
    pub fn transformer(&self) -> Option<&Transform<T>> {
        self.door.transform()
    }

    /// Returns the number of waiting keys, without those that are being processed.
    pub fn len(&self) -> usize {
        self.state.lock().order.len()
    }

    /// Whether no key is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting deltas in the order in which they will be popped.
    pub fn list(&self) -> Vec<Deltas<T>> {
        let state = self.state.lock();
        let items = state.order.iter().filter_map(|key| state.items.get(key));
        items.cloned().collect()
    }

    /// Returns all waiting keys in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.state.lock().order.iter().map(Key::clone).collect()
    }
}

impl<T: Send + Sync> ReflectorStore<T> for DeltaFifo<T> {
    /// Queues [`Delta::Added`].
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if the object has no key or the transform fails. The queue counts as
    /// populated even then.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.write(Change::Add(object))
    }

    /// Queues [`Delta::Updated`].
    ///
    /// # Errors
    ///
    /// The same as `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.write(Change::Update(object))
    }

    /// Queues [`Delta::Deleted`], unless the key is neither queued, in flight nor known.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if the object has no key. The queue then does not count as
    /// populated. Returns [`StoreError::Transform`] if the transform fails; it does not run on
    /// tombstones. Returns [`StoreError::Other`] if `KnownObjects` panics.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.write(Change::Delete(gone))
    }

    /// Queues a delta for each object, in the order of the list: [`Delta::Sync`], or
    /// [`Delta::Replaced`] if [`DeltaFifoBuilder::emit_replaced`] is set. After the objects, it
    /// queues tombstones for the keys that are queued, in flight or known, but not in the list.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if an object has no key or its transform fails. The objects before it
    /// in the list are queued, the others are not, and no tombstones are queued. Returns
    /// [`StoreError::Other`] if `KnownObjects` panics; then nothing has changed.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        let mut entries = Vec::with_capacity(objects.len());
        for object in objects {
            match self.door.entry(object, Digest::NONE) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    let mut dropped = Vec::new();
                    let mut state = self.state.lock();
                    self.push_list(&mut state, entries, &mut dropped);
                    self.unlock(state);
                    return Err(error);
                }
            }
        }
        self.replace_list(entries, &Gaps::default(), resource_version)
    }

    /// Queues [`Delta::Sync`] for each known object that has nothing queued. Does nothing without
    /// known objects.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if a known object has no key; the objects before it are queued.
    /// Returns [`StoreError::Other`] if `KnownObjects` panics.
    fn resync(&self) -> Result<(), StoreError> {
        if self.known_objects.is_none() {
            return Ok(());
        }
        let mut known = KnownSnapshot::default();
        {
            let mut state = self.state.lock();
            self.known(&state, |_| false, &mut known)?;
            state.resyncs += 1;
        }
        // The key function runs without the lock.
        let mut keyed = Vec::with_capacity(known.objects.len());
        let mut result = Ok(());
        for object in known
            .objects
            .iter()
            .filter_map(|(_, object)| object.as_ref())
        {
            match self.door.accessor().key(object) {
                Ok(key) => keyed.push((key, object)),
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            }
        }
        let mut state = self.state.lock();
        for (key, object) in keyed {
            if !state.items.contains_key(&key) && !state.popped.contains(&key) {
                let delta = Delta::Sync(Arc::clone(object));
                state.push(&key, delta, Digest::NONE, &mut Vec::new());
            }
        }
        state.resyncs -= 1;
        if state.resyncs == 0 {
            state.popped = HashSet::new();
        }
        self.unlock(state);
        result
    }

    /// Queues nothing. The version is [reached](super::Queue::processed) when all earlier changes
    /// have been processed.
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        let version = version_tracker::version(resource_version);
        let mut state = self.state.lock();
        state.versions.record_event(version);
        self.unlock(state);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T> Sealed for DeltaFifo<T> {}

impl<T: Send + Sync> Queue<T> for DeltaFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        let mut batch = self.take(1).ok_or(PopError::Closed)?;
        let processed = self.process(&batch, |deltas, is_in_initial_list| match deltas {
            [deltas] => process(deltas, is_in_initial_list),
            _ => Ok(()),
        });
        self.finish_pop(&batch, &processed);
        match batch.deltas.pop() {
            Some(deltas) => processed.into_result(deltas),
            None => Err(PopError::Closed),
        }
    }

    /// Removes up to 64 keys. Either all of them belong to the initial list or none.
    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let batch = self.take(BATCH).ok_or(PopError::Closed)?;
        let processed = self.process(&batch, |deltas, is_in_initial_list| match deltas {
            [deltas] => process(deltas, is_in_initial_list),
            batch => process_batch(batch, is_in_initial_list),
        });
        self.finish_pop(&batch, &processed);
        processed.into_result(batch.deltas)
    }

    fn synced(&self) -> Done {
        self.synced.clone()
    }

    fn processed(&self) -> Option<Watermark> {
        Some(self.state.lock().versions.watermark())
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl<T: Send + Sync> Staging<T> for DeltaFifo<T> {
    fn door(&self) -> &Door<T> {
        &self.door
    }

    /// Returns the newest queued state of the object. If nothing is queued for the key, returns the
    /// state in the known objects.
    fn known(&self, key: &str) -> Option<Entry<T>> {
        let queued = {
            let state = self.state.lock();
            let deltas = state.items.get(key);
            deltas.and_then(Deltas::entry)
        };
        queued.or_else(|| call_known(|| self.known_objects.as_ref()?.entry(key)).ok()?)
    }

    fn is_settled(&self) -> bool {
        self.state.lock().versions.is_settled()
    }

    /// Queues the changes under one lock and wakes one pop.
    fn apply_entries(&self, changes: &mut Vec<EntryChange<T>>) -> Vec<StoreError> {
        let (mut dropped, mut errors) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        for change in changes.drain(..) {
            errors.extend(self.put(&mut state, change, &mut dropped).err());
        }
        self.unlock(state);
        errors
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        self.replace_list(entries, &gaps, resource_version)
    }
}

impl<T> DeltaFifo<T> {
    /// Updates the watermark, wakes pops and unlocks. Then sets `synced` if due, and reports the
    /// depth.
    fn unlock(&self, mut state: MutexGuard<'_, State<T>>) {
        state.versions.publish();
        let synced = state.synced();
        if state.in_flight.is_none() {
            if !state.order.is_empty() {
                self.changed.notify_one();
            } else if state.closed {
                self.changed.notify_all();
            }
        }
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
        self.timing.depth(|| self.len());
    }

    /// Waits until nothing is in flight and a key is waiting, then removes up to `most` keys.
    /// Returns `None` once the queue is closed and empty.
    fn take(&self, most: usize) -> Option<Batch<T>> {
        let mut state = wait_for_turn(self.state.lock(), &self.changed, |state| Turn {
            in_flight: state.in_flight.as_ref().map(|it| it.thread),
            is_empty: state.order.is_empty(),
            closed: state.closed,
        })?;
        let batch = state.take(most, thread::current().id());
        self.unlock(state);
        Some(batch)
    }

    /// Runs the callback without the lock.
    fn process(
        &self,
        batch: &Batch<T>,
        callback: impl FnOnce(&[Deltas<T>], bool) -> Result<(), super::ProcessError>,
    ) -> Processed {
        let Batch { deltas, depth, .. } = batch;
        let key = deltas.first().and_then(Deltas::key);
        let run = || catch(|| callback(deltas, batch.is_in_initial_list));
        Processed::from(self.timing.run(deltas.len(), key, *depth, run))
    }

    /// Ends the flight of a batch and settles deferred deletions.
    fn finish_pop(&self, batch: &Batch<T>, processed: &Processed) {
        let (mut dropped, mut known_objects) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let Some(in_flight) = state.in_flight.take() else {
            return;
        };
        for (at, (deltas, taken)) in batch.deltas.iter().zip(&in_flight.keys).enumerate() {
            let key = &taken.key;
            let failed = processed.failed(at);
            state.initial_population -= usize::from(batch.is_initial);
            if failed {
                state.versions.record_failure(deltas.since);
            }
            state.versions.end(deltas.since);
            let Some((gone, since)) = &taken.deferred_deletion else {
                continue;
            };
            // Deliver the deferred deletion only if the deletion in flight failed and the consumer
            // may still have the object.
            let known = self.known_objects.as_ref().filter(|_| failed);
            let known = known.map(|known| call_known(|| known.lookup(key)));
            if matches!(known, None | Some(Ok(Ok(None)))) {
                state.versions.end(*since);
            } else {
                state.push_deferred(key, gone.clone(), *since, &mut dropped);
            }
            known_objects.push(known);
        }
        self.unlock(state);
        drop((in_flight, known_objects));
    }
}

debug_fields!(DeltaFifo<T>, this,
    len: this.len(),
    synced: this.synced.is_done(),
    closed: this.state.lock().closed
);

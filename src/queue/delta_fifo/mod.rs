mod builder;
mod known;
mod state;
mod write;

use std::collections::HashSet;
use std::sync::Arc;

pub use builder::DeltaFifoBuilder;

use self::known::{KnownSnapshot, call_known};
use self::state::Grouped;
use super::body::{self, Body, Popped};
use super::delta::Origin;
use super::{Delta, Deltas, PopError, Process, ProcessBatch, Queue, Sealed, Watermark};
use crate::base::derive::debug_fields;
use crate::base::digest::Digest;
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::stop::Done;
use crate::store::{
    Change, Door, Entry, EntryChange, Gaps, ReflectorStore, Staging, StoreError, Transform,
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
/// *processed*, or requested again.
///
/// **Requeue.** A callback that returns a [`Requeue`](super::Requeue) receives its deltas again, unless
/// newer changes of the object wait. Then it receives only these: an older state, or a deletion before
/// a new addition, can be missing.
///
/// **User code.** Key functions and transforms run without any lock.
/// [`KnownObjects`](crate::store::KnownObjects) is called under the lock of the queue, so an
/// implementation must not call the queue. A panic in any of this code becomes an error.
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
    body: Body<T, Grouped<T>>,
    emit_replaced: bool,
}

type State<T> = body::State<Grouped<T>>;

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
        let accessor = self.body.door.accessor();
        match (deltas.newest(), deltas.key()) {
            (None, _) => Ok(None),
            (Some(_), Some(key)) => Ok(Some(Key::clone(key))),
            (Some(Delta::Deleted(gone)), None) => accessor.key_of_deleted(gone).map(Some),
            (Some(delta), None) => {
                let object = delta.object();
                object.map(|object| accessor.key(object)).transpose()
            }
        }
    }

    /// Returns the transform, if there is one. client-go's `Transformer`.
    pub fn transformer(&self) -> Option<&Transform<T>> {
        self.body.door.transform()
    }

    /// Queues popped deltas again, at the end of the queue, unless other deltas of their key wait.
    /// Returns whether they are queued. client-go's `AddIfNotPresent`, which existed until 1.32.
    ///
    /// Use it if the thread that pops is also the only one that writes. Otherwise newer deltas may
    /// have been popped in the meantime, and the consumer receives an older state after a newer one.
    /// A callback that returns a [`Requeue`](super::Requeue) has no such gap.
    ///
    /// The deltas are not transformed again. The call counts as a write: an unpopulated queue is
    /// synced afterwards. It never blocks for long, and it wakes one pop.
    ///
    /// ```
    /// use k8s_informer::object::{Accessor, KeyError};
    /// use k8s_informer::queue::{DeltaFifo, Queue};
    /// use k8s_informer::store::ReflectorStore;
    /// use std::sync::Arc;
    ///
    /// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
    /// queue.add(Arc::new("a1".to_owned()))?;
    /// let popped = queue.pop(&mut |_, _| Ok(()))?;
    /// assert!(queue.add_if_not_present(popped.clone())?);
    /// assert!(!queue.add_if_not_present(popped)?, "they wait already");
    /// assert_eq!(queue.list_keys(), ["a".into()]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if there are no deltas, if they have no key, or if one of them is
    /// about no single object. Then nothing has changed.
    #[doc(alias = "AddIfNotPresent")]
    pub fn add_if_not_present(&self, deltas: Deltas<T>) -> Result<bool, StoreError> {
        // Only a `RealFifo` has deltas that are about no single object.
        let is_of_object =
            |delta: &Delta<T>| matches!(delta, Delta::Deleted(_)) || delta.object().is_some();
        let key = match self.key_of(&deltas)? {
            Some(key) if deltas.iter().all(is_of_object) => key,
            _ => return Err(KeyError::new("deltas of one object are needed").into()),
        };
        // A later version is not reached before these deltas have been processed again.
        let mut state = self.body.lock();
        state.populated = true;
        let since = state.versions.begin();
        let unused = state.put_back(deltas.queued_as(key, since));
        self.body.unlock(state);
        Ok(unused.is_none())
    }

    /// Returns the number of waiting keys, without those that are being processed.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether no key is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting deltas in the order in which they will be popped.
    pub fn list(&self) -> Vec<Deltas<T>> {
        let Grouped { order, items, .. } = &self.body.lock().waiting;
        let waiting = order.iter().filter_map(|key| items.get(key));
        waiting.cloned().collect()
    }

    /// Returns all waiting keys in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.body.lock().waiting.order.iter().cloned().collect()
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
            match self.body.door.entry(object, Digest::NONE) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    let mut dropped = Vec::new();
                    let mut state = self.body.lock();
                    self.push_list(&mut state, entries, &mut dropped);
                    self.body.unlock(state);
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
        if self.body.known_objects.is_none() {
            return Ok(());
        }
        let mut known = KnownSnapshot::default();
        {
            let mut state = self.body.lock();
            self.known(&state, |_| false, &mut known)?;
            state.waiting.resyncs += 1;
        }
        // The key function runs without the lock.
        let (mut keyed, mut result) = (Vec::with_capacity(known.objects.len()), Ok(()));
        for object in known
            .objects
            .iter()
            .filter_map(|(_, object)| object.as_ref())
        {
            match self.body.door.accessor().key(object) {
                Ok(key) => keyed.push((key, object)),
                Err(error) => {
                    result = Err(error.into());
                    break;
                }
            }
        }
        let mut state = self.body.lock();
        for (key, object) in keyed {
            if !state.waiting.items.contains_key(&key) && !state.waiting.popped.contains(&key) {
                let delta = Delta::Sync(Arc::clone(object));
                state.push(&key, delta, Origin::default(), &mut Vec::new());
            }
        }
        state.waiting.resyncs -= 1;
        if state.waiting.resyncs == 0 {
            state.waiting.popped = HashSet::new();
        }
        self.body.unlock(state);
        result
    }

    /// Queues nothing. The version is [reached](super::Queue::processed) when all earlier changes
    /// have been processed.
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.body.skipped(resource_version);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T> Sealed for DeltaFifo<T> {
    fn reserve(&self, empty: bool) -> bool {
        self.body.reserve(empty)
    }
}

impl<T: Send + Sync> Queue<T> for DeltaFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        self.body
            .pop(process, |state, popped| self.settle(state, &popped))
    }

    /// Removes up to 64 keys. Either all of them belong to the initial list or none.
    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        self.body
            .pop_batch(BATCH, process_batch, process, |state, popped| {
                self.settle(state, &popped)
            })
    }

    fn synced(&self) -> Done {
        self.body.synced()
    }

    fn processed(&self) -> Option<Watermark> {
        Some(self.body.lock().versions.watermark())
    }

    fn close(&self) {
        self.body.close();
    }

    fn is_closed(&self) -> bool {
        self.body.is_closed()
    }
}

impl<T: Send + Sync> Staging<T> for DeltaFifo<T> {
    fn door(&self) -> &Door<T> {
        &self.body.door
    }

    /// Returns the newest queued state of the object. If nothing is queued for the key, returns the
    /// state in the known objects.
    fn known(&self, key: &str) -> Option<Entry<T>> {
        let queued = {
            let state = self.body.lock();
            let deltas = state.waiting.items.get(key);
            deltas.and_then(Deltas::entry)
        };
        queued.or_else(|| call_known(|| self.body.known_objects.as_ref()?.entry(key)).ok()?)
    }

    fn is_settled(&self) -> bool {
        self.body.lock().versions.is_settled()
    }

    fn skipped(&self, version: &str) {
        self.body.skipped(version);
    }

    /// Queues the changes under one lock and wakes one pop.
    fn apply_entries(&self, changes: &mut Vec<EntryChange<T>>) -> Vec<StoreError> {
        let (mut dropped, mut errors) = (Vec::new(), Vec::new());
        let mut state = self.body.lock();
        for change in changes.drain(..) {
            errors.extend(self.put(&mut state, change, &mut dropped).err());
        }
        self.body.unlock(state);
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
    /// Queues requested deltas again, and settles the deferred deletions of a pop whose callback has
    /// returned. The result must be dropped without the lock.
    fn settle(&self, state: &mut State<T>, popped: &Popped<'_, T>) -> impl Sized + use<T> {
        let in_flight = std::mem::take(&mut state.waiting.in_flight);
        let (mut dropped, mut found) = (Vec::new(), Vec::new());
        for (at, taken) in in_flight.iter().enumerate() {
            let is_back =
                popped.processed.is_requeued() && state.requeue(popped.deltas[at].clone());
            let Some((gone, since)) = &taken.deferred_deletion else {
                continue;
            };
            // The deletion in flight waits again, so the deferred one merges with it.
            if is_back {
                let gone = Delta::Deleted(gone.clone());
                state.push(&taken.key, gone, Origin::default(), &mut dropped);
                state.versions.end(*since);
                continue;
            }
            // Deliver the deferred deletion only if the deletion in flight was not processed and the
            // consumer may still have the object.
            let known = self.body.known_objects.as_ref();
            let known = known.filter(|_| !popped.processed.is_done(at));
            let known = known.map(|known| call_known(|| known.lookup(&taken.key)));
            if matches!(known, None | Some(Ok(Ok(None)))) {
                state.versions.end(*since);
            } else {
                state.push_deferred(&taken.key, gone.clone(), *since, &mut dropped);
            }
            found.push(known);
        }
        (in_flight, dropped, found)
    }
}

debug_fields!(DeltaFifo<T>, this,
    len: this.len(),
    synced: this.body.synced().is_done(),
    closed: this.body.is_closed()
);

mod builder;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::thread::{self, ThreadId};

pub use builder::DeltaFifoBuilder;

use super::{Delta, Deltas, PopError, Process, Queue};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::panic::catch;
use crate::stop::Done;
use crate::store::{KnownObjects, ReflectorStore, StoreError, Transform};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Room for this many keys is kept when the queue has run empty; more is given back.
const KEEP: usize = 1024;

/// All changes of each object since it was last popped, objects in the order of their first change.
/// client-go's `DeltaFIFO`.
///
/// Use it to act on every change of an object exactly once, in order, and to be told what a relist finds
/// missing: with [`known_objects`](DeltaFifoBuilder::known_objects), a [`replace`](ReflectorStore::replace)
/// queues tombstones for what is known, or queued, and not in the list. Changes of one object wait together
/// and count as one item; those of another don't wait for them (D1, D13).
///
/// **Threads.** Any number of them may write; any number may pop, one after the other: a [`pop`](Queue::pop)
/// waits until the processing of the one before is over. Writing never waits for processing.
///
/// **A popped key is never unknown.** client-go processes under the queue's lock; here the callback runs
/// without it, and may write to the queue itself. Until it is over, the key in flight counts as known with
/// its newest state, whatever the known objects say at that moment: so no deletion is lost, and none is told
/// twice, between queue and store. [`synced`](Queue::synced) happens after the last item of the initial list
/// has been *processed* (D10).
///
/// **User code.** Key functions and transforms run under no lock; a panic in them is an error. The known
/// objects are asked under the queue's lock: they must not call the queue.
///
/// ```
/// use k8s_informer::{Accessor, Delta, DeltaFifo, KeyError, Queue, ReflectorStore};
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
/// assert_eq!(queue.len(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeltaFifo<T> {
    accessor: Accessor<T>,
    known_objects: Option<Arc<dyn KnownObjects<T>>>,
    emit_replaced: bool,
    transform: Option<Transform<T>>,
    synced: Done,
    /// Guards everything that changes. Taken before the lock of the known objects, which are asked under it;
    /// no other user code runs, and `synced` is not set, under it.
    state: Mutex<State<T>>,
    /// Pops wait here for an item, and for the end of the one in flight. One is woken by each new item and
    /// by the end of a processing; all by `close`, and by the end of a processing after it. A pop that
    /// is woken by an item while another is in flight sleeps again: the end of that one wakes it.
    changed: Condvar,
}

struct State<T> {
    /// A key is in `order` exactly if it has deltas here, which are never empty (D1).
    items: HashMap<Key, Vec<Delta<T>>>,
    order: VecDeque<Key>,
    in_flight: Option<InFlight<T>>,
    /// Whether the first write, or the first replace that succeeded, has come (D2, D8).
    populated: bool,
    /// How many items of the first replace have not been processed yet.
    initial: usize,
    closed: bool,
    /// How many resyncs are looking at the known objects, and the keys that were popped since the first of
    /// them began.
    resyncs: usize,
    popped: HashSet<Key>,
}

struct InFlight<T> {
    key: Key,
    /// What the store will hold of it when the processing is over: nothing after a deletion.
    newest: Option<Arc<T>>,
    thread: ThreadId,
}

impl<T> DeltaFifo<T> {
    /// Without known objects: it knows only what is queued.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::builder(accessor).build()
    }

    /// With options.
    pub fn builder(accessor: Accessor<T>) -> DeltaFifoBuilder<T> {
        DeltaFifoBuilder { accessor, known_objects: None, emit_replaced: false, transform: None }
    }

    /// How many keys wait. The one being processed isn't among them.
    pub fn len(&self) -> usize {
        self.state.lock().order.len()
    }

    /// Whether no key waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key of what has been popped: its newest object's, or its tombstone's; `None` if there are no
    /// deltas (D12).
    ///
    /// # Errors
    ///
    /// What the key function answers.
    pub fn key_of(&self, deltas: &Deltas<T>) -> Result<Option<Key>, KeyError> {
        match deltas.newest() {
            None => Ok(None),
            Some(Delta::Deleted(deleted)) => self.accessor.key_of_deleted(deleted).map(Some),
            Some(
                Delta::Added(object) | Delta::Updated(object) | Delta::Replaced(object) | Delta::Sync(object),
            ) => self.accessor.key(object).map(Some),
        }
    }

    /// Key, then transform (S1, K4).
    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((key, object))
    }

    fn write(&self, object: Arc<T>, delta: fn(Arc<T>) -> Delta<T>) -> Result<(), StoreError> {
        let prepared = self.prepare(object);
        let mut state = self.state.lock();
        // A write that fails populates too (D2).
        state.populated = true;
        let result = prepared.map(|(key, object)| self.push(&mut state, key, delta(object)));
        self.unlock(state);
        result.map(drop)
    }

    /// Appends a delta and wakes a pop. What compression leaves out is to be dropped without the lock.
    #[must_use]
    fn push(&self, state: &mut State<T>, key: Key, delta: Delta<T>) -> Option<Delta<T>> {
        if let Some(deltas) = state.items.get_mut(&key) {
            deltas.push(delta);
            return compress(deltas);
        }
        state.order.push_back(Arc::clone(&key));
        state.items.insert(key, vec![delta]);
        self.changed.notify_one();
        None
    }

    /// Gives the lock back, and says that the queue has synced if so it is.
    fn unlock(&self, state: MutexGuard<'_, State<T>>) {
        let synced = state.synced();
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
    }

    /// Whether a deletion of this key has nobody to tell (D3). The key in flight is known by its newest
    /// state; if the known objects can't tell, the deletion is told.
    fn is_unknown(&self, state: &State<T>, key: &str) -> bool {
        if state.items.contains_key(key) {
            return false;
        }
        let Some(known) = &self.known_objects else { return true };
        match &state.in_flight {
            Some(in_flight) if &*in_flight.key == key => in_flight.newest.is_none(),
            _ => matches!(known.get_by_key(key), Ok(None)),
        }
    }

    /// The known objects, but for some, as the consumer will know them when it has processed what is in
    /// flight. Those that can't be had are `None`.
    fn known(&self, state: &State<T>, skip: impl Fn(&Key) -> bool) -> Vec<(Key, Option<Arc<T>>)> {
        let Some(known) = &self.known_objects else { return Vec::new() };
        let mut objects = Vec::new();
        let mut in_flight = state.in_flight.as_ref();
        for key in known.list_keys() {
            if let Some(flying) = in_flight.take_if(|in_flight| in_flight.key == key) {
                if let Some(newest) = flying.newest.as_ref().filter(|_| !skip(&key)) {
                    objects.push((key, Some(Arc::clone(newest))));
                }
                continue;
            }
            if skip(&key) {
                continue;
            }
            let object = known.get_by_key(&key).unwrap_or_else(|error| {
                log::error!("known object {key}: {error}");
                None
            });
            objects.push((key, object));
        }
        if let Some(InFlight { key, newest: Some(newest), .. }) =
            in_flight.filter(|flying| !skip(&flying.key))
        {
            objects.push((Arc::clone(key), Some(Arc::clone(newest))));
        }
        objects
    }

    /// Waits for an item and for nothing in flight, and takes the item out.
    fn take(&self) -> Result<Taken<T>, PopError<T>> {
        let this = thread::current().id();
        let mut state = self.state.lock();
        loop {
            match &state.in_flight {
                // It would wait for itself. The panic is the outer pop's error.
                Some(in_flight) if in_flight.thread == this => {
                    drop(state);
                    panic!("a process callback must not pop from its queue");
                }
                Some(_) => {}
                None => {
                    if let Some(key) = state.order.pop_front() {
                        let in_initial_list = !state.synced();
                        // Not decided at the end: a first replace that comes meanwhile does not count this
                        // item.
                        let counts = state.initial > 0;
                        let deltas = Deltas::from(state.items.remove(&key).unwrap_or_default());
                        let newest = match deltas.newest() {
                            Some(Delta::Deleted(_)) | None => None,
                            Some(delta) => delta.object().cloned(),
                        };
                        if state.resyncs > 0 {
                            state.popped.insert(Arc::clone(&key));
                        }
                        state.in_flight = Some(InFlight { key, newest, thread: this });
                        if state.order.is_empty() && state.order.capacity() > KEEP {
                            state.order = VecDeque::new();
                            state.items = HashMap::new();
                        }
                        return Ok(Taken { deltas, in_initial_list, counts });
                    }
                    if state.closed {
                        return Err(PopError::Closed);
                    }
                }
            }
            self.changed.wait(&mut state);
        }
    }

    /// The item in flight has been processed.
    fn landed(&self, counts: bool) {
        let mut state = self.state.lock();
        let landed = state.in_flight.take();
        if counts {
            state.initial = state.initial.saturating_sub(1);
        }
        if state.closed {
            self.changed.notify_all();
        } else if !state.order.is_empty() {
            self.changed.notify_one();
        }
        self.unlock(state);
        drop(landed);
    }
}

struct Taken<T> {
    deltas: Deltas<T>,
    in_initial_list: bool,
    counts: bool,
}

impl<T> State<T> {
    fn synced(&self) -> bool {
        self.populated && self.initial == 0
    }
}

/// Two deletions in a row are one: the one that knows more of the object, the older if both do (D4).
/// Answers the other.
fn compress<T>(deltas: &mut Vec<Delta<T>>) -> Option<Delta<T>> {
    let [.., Delta::Deleted(older), Delta::Deleted(_)] = deltas.as_slice() else { return None };
    let keep_newer = older.is_final_state_unknown();
    let newest = deltas.pop()?;
    if keep_newer { deltas.last_mut().map(|older| std::mem::replace(older, newest)) } else { Some(newest) }
}

impl<T: Send + Sync> ReflectorStore<T> for DeltaFifo<T> {
    /// Queues [`Delta::Added`].
    ///
    /// # Errors
    ///
    /// [`StoreError`] if the object has no key or the transform fails. The queue counts as populated all the
    /// same (D2).
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.write(object, Delta::Added)
    }

    /// Queues [`Delta::Updated`].
    ///
    /// # Errors
    ///
    /// As for `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.write(object, Delta::Updated)
    }

    /// Queues [`Delta::Deleted`], unless the key is neither queued nor in flight nor known (D3).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if the object has no key: then the queue does not count as populated.
    /// [`StoreError::Transform`] if the transform fails; it is not asked about tombstones (D5).
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let mut state = self.state.lock();
        state.populated = true;
        if self.is_unknown(&state, &key) {
            self.unlock(state);
            return Ok(());
        }
        let gone = match (gone, &self.transform) {
            (Deleted::Final(object), Some(_)) => {
                self.unlock(state);
                let object = Transform::run(self.transform.as_ref(), &key, object)?;
                state = self.state.lock();
                // Somebody else's deletion may have come first.
                if self.is_unknown(&state, &key) {
                    self.unlock(state);
                    return Ok(());
                }
                Deleted::Final(object)
            }
            (gone, _) => gone,
        };
        let left_out = self.push(&mut state, key, Delta::Deleted(gone));
        self.unlock(state);
        drop(left_out);
        Ok(())
    }

    /// Queues [`Delta::Replaced`] (or `Sync`, see [`DeltaFifoBuilder::emit_replaced`]) for each object in the
    /// order of the list, then tombstones for what is queued, in flight or known, and not in the list
    /// (D6, D7).
    ///
    /// # Errors
    ///
    /// [`StoreError`] if an object has no key or the transform fails on it: what came before it in the list
    /// has been queued, the rest has not, and nothing is taken for deleted.
    fn replace(&self, objects: Vec<Arc<T>>, _resource_version: &str) -> Result<(), StoreError> {
        let mut failed = None;
        let mut prepared = Vec::with_capacity(objects.len());
        for object in objects {
            match self.prepare(object) {
                Ok(pair) => prepared.push(pair),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let delta = if self.emit_replaced { Delta::Replaced } else { Delta::Sync };
        // Built and dropped outside the lock.
        let keys: HashSet<Key> = prepared.iter().map(|(key, _)| Arc::clone(key)).collect();
        let mut left_out = Vec::new();
        let mut state = self.state.lock();
        if let Some(error) = failed {
            for (key, object) in prepared {
                left_out.extend(self.push(&mut state, key, delta(object)));
            }
            self.unlock(state);
            return Err(error);
        }
        // Asked first: if the known objects panic, nothing has changed.
        let known = self.known(&state, |key| keys.contains(key) || state.items.contains_key(key));
        for (key, object) in prepared {
            left_out.extend(self.push(&mut state, key, delta(object)));
        }
        let mut deletions = known.len();
        for (key, deltas) in state.items.iter_mut().filter(|(key, _)| !keys.contains(*key)) {
            let last_known = deltas.last().and_then(Delta::object).cloned();
            deltas.push(Delta::Deleted(Deleted::FinalStateUnknown { key: Arc::clone(key), last_known }));
            left_out.extend(compress(deltas));
            deletions += 1;
        }
        for (key, last_known) in known {
            let tombstone = Deleted::FinalStateUnknown { key: Arc::clone(&key), last_known };
            left_out.extend(self.push(&mut state, key, Delta::Deleted(tombstone)));
        }
        if !state.populated {
            state.populated = true;
            state.initial = keys.len() + deletions;
        }
        self.unlock(state);
        Ok(())
    }

    /// Queues [`Delta::Sync`] for each known object that has nothing queued (D9). Nothing without known
    /// objects.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if a known object has no key: those before it have been queued.
    fn resync(&self) -> Result<(), StoreError> {
        if self.known_objects.is_none() {
            return Ok(());
        }
        let known = {
            let mut state = self.state.lock();
            let known = self.known(&state, |_| false);
            state.resyncs += 1;
            known
        };
        // The keys are made without the lock. What is popped meanwhile is remembered: its `Sync` would be out
        // of date.
        let mut failed = None;
        let mut keyed = Vec::with_capacity(known.len());
        for object in known.iter().filter_map(|(_, object)| object.as_ref()) {
            match self.accessor.key(object) {
                Ok(key) => keyed.push((key, object)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut state = self.state.lock();
        for (key, object) in keyed {
            if !state.items.contains_key(&key) && !state.popped.contains(&key) {
                // Nothing was queued for it, so there is nothing to leave out.
                let _ = self.push(&mut state, key, Delta::Sync(Arc::clone(object)));
            }
        }
        state.resyncs -= 1;
        if state.resyncs == 0 {
            state.popped = HashSet::new();
        }
        self.unlock(state);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }
}

impl<T: Send + Sync> Queue<T> for DeltaFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<T>> {
        let Taken { deltas, in_initial_list, counts } = self.take()?;
        let processed = catch(|| process(&deltas, in_initial_list));
        self.landed(counts);
        match processed {
            Ok(Ok(())) => Ok(deltas),
            Ok(Err(error)) => Err(PopError::Process { deltas, error }),
            Err(message) => Err(PopError::Process { deltas, error: message.into() }),
        }
    }

    fn synced(&self) -> Done {
        self.synced.clone()
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

impl<T> fmt::Debug for DeltaFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("DeltaFifo")
            .field("len", &state.order.len())
            .field("in_flight", &state.in_flight.as_ref().map(|in_flight| &in_flight.key))
            .field("synced", &state.synced())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

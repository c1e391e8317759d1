mod builder;
mod compressor;
mod known;
mod list;
mod place;
mod pop;
mod read;

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

pub use builder::DeltaFifoBuilder;

use self::compressor::Compressor;
use self::known::{Everything, Flight, Known, asking};
use self::list::List;
use self::place::{Late, Place, Since};
use super::timing::Timing;
use super::told::Told;
use super::{Delta, Deltas};
use crate::object::{Accessor, Deleted, Key};
use crate::stop::Done;
use crate::store::{
    Gaps, KnownObjects, ReflectorStore, StagedList, Staging, StoreError, Transform,
};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// Room for this many keys is kept when the queue has run empty; more is given back.
const KEEP: usize = 1024;

/// All changes of each object since it was last popped, objects in the order of their first change.
/// client-go's `DeltaFIFO`.
///
/// Use it to act on every change of an object exactly once, in order, and to be told what a relist finds
/// missing: with [`known_objects`](DeltaFifoBuilder::known_objects), a [`replace`](ReflectorStore::replace)
/// queues tombstones for what is known, or queued, and not in the list. Changes of one object wait together
/// and count as one item; those of another don't wait for them (D1, D13). A [`RealFifo`](super::RealFifo)
/// keeps the order across objects instead; a [`Fifo`](super::Fifo) only the newest state of each.
///
/// **Threads.** Any number of them may write; any number may pop, one after the other: a
/// [`pop`](super::Queue::pop) waits until the processing of the one before is over. Writing never waits for
/// processing. A write of a new key wakes one pop, [`close`](super::Queue::close) all of them.
///
/// **A popped key is never unknown.** client-go processes under the queue's lock; here the callback runs
/// without it, and may write to the queue itself. Until it is over, the key in flight counts as known with
/// its newest state, whatever the known objects say at that moment: so no deletion is lost, and none is told
/// twice, between queue and store. [`synced`](super::Queue::synced) happens after the last item of the
/// initial list has been *processed* (D10).
///
/// **Again.** A callback that fails with [`Requeue`](super::Requeue) gets the same deltas again: they go to
/// the end of the queue, or, while the initial list is not through, of that; what came for the same key
/// meanwhile follows them.
///
/// **User code.** Key functions, transforms and compressors run under no lock. The known objects are asked
/// under the queue's lock: they must not call the queue. A panic in any of them is an error.
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
/// assert_eq!(queue.list_keys(), ["b".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct DeltaFifo<T> {
    accessor: Accessor<T>,
    known_objects: Option<Arc<dyn KnownObjects<T>>>,
    emit_replaced: bool,
    transform: Option<Transform<T>>,
    compressor: Option<Compressor<T>>,
    synced: Done,
    timing: Timing,
    /// Guards everything that changes. Taken before the lock of the known objects, which are asked under it;
    /// no other user code runs, and `synced` is not set, under it.
    state: Mutex<State<T>>,
    /// Pops wait here for an item, and for the end of the one in flight. One is woken by each new item, of
    /// several that are written together at the end, and
    /// by the end of a processing; all by `close`, and by the end of a processing after it. A pop that
    /// is woken by an item while another is in flight sleeps again: the end of that one wakes it.
    changed: Condvar,
}

struct State<T> {
    /// What is left of the last list, if nothing has been looked up since. Whoever looks for a key has it
    /// [`filed`](DeltaFifo::filed) before.
    list: Option<List<T>>,
    /// What waits behind that; never empty deltas (D1).
    items: HashMap<Key, Deltas<T>>,
    /// Each key that has items; and, which a pop passes, keys that have none any more, and second mentions.
    order: VecDeque<Place>,
    in_flight: Option<Flight<T>>,
    /// Whether the first write, or the first replace that succeeded, has come (D2, D8).
    populated: bool,
    /// How many keys at the head of `list` and `order`, the one in flight included, belong to the first
    /// replace.
    initial: usize,
    closed: bool,
    /// How many writers are [writing several changes](ReflectorStore::write_together), after which they wake
    /// a pop.
    writing: usize,
    /// How many resyncs are looking at the known objects, and the keys that were popped since the first of
    /// them began.
    resyncs: usize,
    popped: HashSet<Key>,
    told: Told,
    late: Late,
}

impl<T> State<T> {
    fn synced(&self) -> bool {
        self.populated && self.initial == 0
    }

    /// Whether there is anything to pop, or to pass.
    fn has_places(&self) -> bool {
        self.list.is_some() || !self.order.is_empty()
    }

    /// How many keys wait.
    fn len(&self) -> usize {
        self.list.as_ref().map_or(0, List::len) + self.items.len()
    }

    /// What waits, in the order in which it will be popped.
    fn waiting(&self) -> impl Iterator<Item = (&Key, &Deltas<T>)> {
        let mut seen = HashSet::new();
        let first = move |key: &&Key| seen.insert(Arc::clone(key));
        let keys = self.order.iter().map(|place| &place.key);
        keys.filter(first)
            .filter_map(|key| self.items.get_key_value(key))
    }

    /// Takes out of `order` what a pop would pass, once it is most of it: not while the initial list is
    /// counted by it.
    fn tidy(&mut self) {
        if self.initial == 0 && self.order.len() > 2 * self.items.len() + KEEP {
            self.pass_over();
        }
    }
}

impl<T> DeltaFifo<T> {
    /// Without known objects: it knows only what is queued.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::builder(accessor).build()
    }

    /// What is done to every object before it is queued. client-go's `Transformer`.
    pub fn transformer(&self) -> Option<&Transform<T>> {
        self.transform.as_ref()
    }

    /// The state, with all that waits in `items` and `order`.
    fn filed(&self) -> MutexGuard<'_, State<T>> {
        let mut state = self.state.lock();
        state.file();
        state
    }

    /// Key, then transform (S1, K4).
    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((key, object))
    }

    fn write(&self, object: Arc<T>, delta: fn(Arc<T>) -> Delta<T>) -> Result<(), StoreError> {
        let version = Told::version_of(&self.accessor, &object);
        let prepared = self.prepare(object);
        let mut state = self.filed();
        // A write that fails populates too (D2).
        state.populated = true;
        let result = prepared.map(|(key, object)| {
            let delta = delta(object);
            let is_added = matches!(delta, Delta::Added(_));
            let left_out = self.push(&mut state, &key, delta);
            state.told.object(version, is_added);
            (key, left_out)
        });
        self.unlock(state);
        let (key, _left_out) = result?;
        self.compress(&[key]);
        Ok(())
    }

    /// Appends a delta and wakes a pop, unless more is written together. What compression leaves out is to be
    /// dropped without the lock.
    #[must_use]
    fn push(&self, state: &mut State<T>, key: &Key, delta: Delta<T>) -> Option<Delta<T>> {
        if let Some(deltas) = state.items.get_mut(key) {
            deltas.push(delta);
            return deltas.compress();
        }
        state.queue(key);
        state
            .items
            .insert(Arc::clone(key), Deltas::one(Some(Arc::clone(key)), delta));
        self.wake(state);
        None
    }

    /// Wakes a pop, unless more is written together.
    fn wake(&self, state: &State<T>) {
        if state.writing == 0 {
            self.changed.notify_one();
        }
    }

    /// What the objects of a list come as.
    fn listed(&self) -> fn(Arc<T>) -> Delta<T> {
        if self.emit_replaced {
            Delta::Replaced
        } else {
            Delta::Sync
        }
    }

    /// Queues the part of a list that came before what made it fail.
    fn push_listed(&self, prepared: Vec<(Key, Arc<T>)>) {
        let touched: Vec<Key> = prepared.iter().map(|(key, _)| Arc::clone(key)).collect();
        let mut left_out = Vec::new();
        let mut state = self.filed();
        for (key, object) in prepared {
            left_out.extend(self.push(&mut state, &key, self.listed()(object)));
        }
        self.unlock(state);
        self.compress(&touched);
    }

    /// The list, then tombstones for what is queued, in flight or known, and not in it and in none of its
    /// gaps.
    fn replace_prepared(
        &self,
        prepared: Vec<(Key, Arc<T>)>,
        gaps: &Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let all_keys = || {
            prepared
                .iter()
                .map(|(key, _)| Arc::clone(key))
                .collect::<HashSet<Key>>()
        };
        // Built and dropped outside the lock; a first list needs none if nothing else is there.
        let touches = self.compressor.is_some();
        let later = touches || self.state.lock().populated;
        let mut keys = later.then(all_keys);
        let mut left_out = Vec::new();
        let mut touched: Vec<Key> = match &keys {
            Some(keys) if touches => keys.iter().cloned().collect(),
            _ => Vec::new(),
        };
        let mut known = Everything::new();
        let mut state = self.filed();
        if keys.is_none() && self.has_anything(&state)? {
            keys = Some(all_keys());
        }
        // Asked first: if they panic, nothing has changed.
        if let Some(keys) = &keys {
            let stays =
                |key: &Key| keys.contains(key) || state.items.contains_key(key) || gaps.cover(key);
            self.known(&state, stays, &mut known)?;
        }
        // A compressor looks at each.
        let taken = if touches {
            Err(prepared)
        } else {
            state.take_list(prepared, self.listed())
        };
        match taken {
            Ok(()) => self.wake(&state),
            Err(prepared) => {
                let listed = keys.as_ref().map_or(prepared.len(), HashSet::len);
                state.items.reserve(listed);
                state.order.reserve(listed);
                for (key, object) in prepared {
                    left_out.extend(self.push(&mut state, &key, self.listed()(object)));
                }
            }
        }
        // Everything in the list is queued now: is there anything else?
        let keys = keys.as_ref().filter(|keys| state.len() > keys.len());
        let is_gone = |key: &Key| keys.is_some_and(|keys| !keys.contains(key)) && !gaps.cover(key);
        for (key, deltas) in state.items.iter_mut().filter(|(key, _)| is_gone(key)) {
            let last_known = deltas.newest().and_then(Delta::object).cloned();
            deltas.push(Delta::Deleted(Deleted::FinalStateUnknown {
                key: Arc::clone(key),
                last_known,
            }));
            left_out.extend(deltas.compress());
            if touches {
                touched.push(Arc::clone(key));
            }
        }
        for (key, last_known) in known.objects {
            let tombstone = Deleted::FinalStateUnknown {
                key: Arc::clone(&key),
                last_known,
            };
            left_out.extend(self.push(&mut state, &key, Delta::Deleted(tombstone)));
            touched.push(key);
        }
        if let Some(gone) = known.leaving {
            left_out.extend(state.miss(gone).map(Delta::Deleted));
        }
        state.told.list(resource_version.into());
        if !state.populated {
            state.populated = true;
            // All that waits now is of the list, or is not in it any more (D8). But a list that failed may
            // have left keys behind that a compressor has emptied.
            if state.order.len() > state.items.len() {
                state.pass_over();
            }
            state.initial = state.len();
        }
        state.publish();
        self.unlock(state);
        drop(left_out);
        self.compress(&touched);
        Ok(())
    }

    /// Gives the lock back, says that the queue has synced if so it is, and how much waits.
    fn unlock(&self, state: MutexGuard<'_, State<T>>) {
        let synced = state.synced();
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
        self.timing.depth(|| self.len());
    }
}

/// The end of [`write_together`](ReflectorStore::write_together), also after a panic.
struct Wakes<'a, T>(&'a DeltaFifo<T>);

impl<T> Drop for Wakes<'_, T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.writing -= 1;
        // Who is woken wakes the next one, if there is more.
        if state.has_places() {
            self.0.changed.notify_one();
        }
    }
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
    /// [`StoreError::Other`] if the known objects panic.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let version = match &gone {
            Deleted::Final(object) => Told::version_of(&self.accessor, object),
            // What it knows of the object is older than the deletion.
            Deleted::FinalStateUnknown { .. } => None,
        };
        let mut state = self.filed();
        state.populated = true;
        let known = self.is_known(&state, &key);
        let (gone, known) = match gone {
            // The transform is not asked about what nobody will be told (D3).
            Deleted::Final(object)
                if self.transform.is_some() && !matches!(known, Ok(Known::No)) =>
            {
                self.unlock(state);
                drop(known);
                let object = Transform::run(self.transform.as_ref(), &key, object)?;
                state = self.filed();
                (Deleted::Final(object), self.is_known(&state, &key))
            }
            gone => (gone, known),
        };
        let left_out = match &known {
            Ok(Known::Yes(_)) => self.push(&mut state, &key, Delta::Deleted(gone)),
            Ok(Known::Leaving) => state.miss(gone).map(Delta::Deleted),
            Ok(Known::No) | Err(_) => Some(Delta::Deleted(gone)),
        };
        if known.is_ok() {
            state.told.event(version);
            state.publish();
        }
        self.unlock(state);
        drop(left_out);
        self.compress(&[key]);
        known.map(drop)
    }

    /// Queues [`Delta::Replaced`] (or `Sync`, see [`DeltaFifoBuilder::emit_replaced`]) for each object in the
    /// order of the list, then tombstones for what is queued, in flight or known, and not in the list
    /// (D6, D7).
    ///
    /// # Errors
    ///
    /// [`StoreError`] if an object has no key or the transform fails on it: what came before it in the list
    /// has been queued, the rest has not, and nothing is taken for deleted. [`StoreError::Other`] if the
    /// known objects panic: nothing has changed then.
    fn replace(&self, objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
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
        match failed {
            None => self.replace_prepared(prepared, &Gaps::default(), resource_version),
            Some(error) => {
                self.push_listed(prepared);
                Err(error)
            }
        }
    }

    /// Queues [`Delta::Sync`] for each known object that has nothing queued (D9). Nothing without known
    /// objects.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if a known object has no key: those before it have been queued.
    /// [`StoreError::Other`] if the known objects panic.
    fn resync(&self) -> Result<(), StoreError> {
        if self.known_objects.is_none() {
            return Ok(());
        }
        let mut known = Everything::new();
        {
            let mut state = self.filed();
            self.known(&state, |_| false, &mut known)?;
            state.resyncs += 1;
        }
        // The keys are made without the lock. What is popped meanwhile is remembered: its `Sync` would be out
        // of date.
        let mut failed = None;
        let mut keyed = Vec::with_capacity(known.objects.len());
        for object in known
            .objects
            .iter()
            .filter_map(|(_, object)| object.as_ref())
        {
            match self.accessor.key(object) {
                Ok(key) => keyed.push((key, object)),
                Err(error) => {
                    failed = Some(error);
                    break;
                }
            }
        }
        let mut touched = Vec::new();
        let mut state = self.filed();
        for (key, object) in keyed {
            if !state.items.contains_key(&key) && !state.popped.contains(&key) {
                // Nothing was queued for it, so there is nothing to leave out.
                let _ = self.push(&mut state, &key, Delta::Sync(Arc::clone(object)));
                touched.push(key);
            }
        }
        state.resyncs -= 1;
        if state.resyncs == 0 {
            state.popped = HashSet::new();
        }
        self.unlock(state);
        self.compress(&touched);
        failed.map_or(Ok(()), |error| Err(error.into()))
    }

    /// Queues nothing: it [counts](super::Queue::processed) once what came before it has been processed.
    ///
    /// # Errors
    ///
    /// None.
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        let mut state = self.state.lock();
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

impl<T: Send + Sync> Staging<T> for DeltaFifo<T> {
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key> {
        self.accessor.key_of_name(namespace, name)
    }

    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        self.prepare(object)
    }

    /// What is queued, or else what the known objects have.
    fn cached(&self, key: &str) -> Option<Arc<T>> {
        let queued = {
            let state = self.filed();
            state
                .items
                .get(key)
                .and_then(|deltas| deltas.newest()?.object().cloned())
        };
        let known = || asking(|| self.known_objects.as_ref()?.get_by_key(key).ok()?).ok()?;
        queued.or_else(known)
    }

    fn is_settled(&self) -> bool {
        self.state.lock().is_settled()
    }

    fn replace_staged(&self, list: StagedList<T>) -> Result<(), StoreError> {
        self.replace_prepared(list.objects, &list.gaps, &list.resource_version)
    }
}

impl<T> fmt::Debug for DeltaFifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("DeltaFifo")
            .field("len", &state.len())
            .field(
                "in_flight",
                &state.in_flight.as_ref().map(|flight| &flight.key),
            )
            .field("synced", &state.synced())
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

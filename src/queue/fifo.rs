use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::error::Processed;
use super::{PopError, ProcessError, Refused};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::panic::catch;
use crate::shrink::Shrink;
use crate::stop::Done;
use crate::store::{ReflectorStore, StoreError};
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// The newest state of each object that has changed, in the order of the first change. client-go's `FIFO`.
///
/// Use it to process each object once for however many changes, in its newest state, where deletions are of
/// no interest: one that is deleted before it is popped is never popped. A [`DeltaFifo`](super::DeltaFifo)
/// tells every change, deletions too; a [`Heap`](super::Heap) puts the most urgent first.
///
/// **Order.** A key that waits keeps its place, whatever is written to it. So does one that is deleted: if it
/// comes again before a pop has passed that place, it is popped there (F2); until then each deletion and
/// return costs the room of one key.
///
/// **Threads.** Any number of them may write, and pop. A [`pop`](Self::pop) blocks until there is something,
/// and while another pop is processing. A write of a new key wakes one pop, [`close`](Self::close) all of
/// them. One lock guards the queue; key functions and the callback run without it, and objects are dropped
/// without it.
///
/// **Initial list.** It has [synced](Self::has_synced) when a pop has processed, or passed, every key of the
/// first [`replace`](ReflectorStore::replace); or at once if something else was written first (F5, F8).
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::Fifo;
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// for word in ["a1", "b1", "a2"] {
///     queue.add(Arc::new(word.to_owned()))?;
/// }
/// assert_eq!(*queue.pop(&mut |_, _| Ok(()))?, "a2");
/// assert_eq!(*queue.pop(&mut |_, _| Ok(()))?, "b1");
/// queue.close();
/// assert!(queue.pop(&mut |_, _| Ok(())).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "FIFO")]
pub struct Fifo<T> {
    accessor: Accessor<T>,
    synced: Done,
    /// Guards everything that changes. No user code runs, and `synced` is not set, under it.
    state: Mutex<State<T>>,
    /// Pops wait here for an item, and for the end of the processing of another. One is woken by each new
    /// key and by the end of a processing; all by `close`, and by the end of a processing after it.
    changed: Condvar,
}

type Process<'a, T> = dyn FnMut(&Arc<T>, bool) -> Result<(), ProcessError> + 'a;

struct State<T> {
    items: HashMap<Key, Arc<T>>,
    /// Every key of `items`; and keys that have been deleted, perhaps more than once, which a pop passes
    /// (F2).
    order: VecDeque<Key>,
    in_flight: Option<InFlight>,
    populated: bool,
    /// How many keys of the first replace have not been processed or passed; and how many of these a pop has
    /// taken out of `order` that is not over yet (F8).
    initial_population: usize,
    initial_in_flight: usize,
    /// Once it has, it has.
    synced: bool,
    closed: bool,
}

struct InFlight {
    key: Key,
    thread: ThreadId,
    /// Whether something newer has been said about the key.
    superseded: bool,
}

struct Popped<T> {
    key: Key,
    object: Arc<T>,
    in_initial_list: bool,
    /// Whether it is one of those that `initial_population` counts.
    counts: bool,
}

impl<T> Fifo<T> {
    /// Empty and open.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self {
            accessor,
            synced: Done::new("Fifo"),
            state: Mutex::new(State {
                items: HashMap::new(),
                order: VecDeque::new(),
                in_flight: None,
                populated: false,
                initial_population: 0,
                initial_in_flight: 0,
                synced: false,
                closed: false,
            }),
            changed: Condvar::new(),
        }
    }

    /// Blocks until there is an object, takes it out, and hands it to `process`, with whether it belongs to
    /// the initial list. No lock is held while `process` runs: it may write to the queue, but not pop.
    ///
    /// If it fails with [`Requeue`](super::Requeue) the object goes back, to the end of the queue or, while
    /// the initial list is not through, of that; unless its key has been written or deleted meanwhile.
    ///
    /// # Errors
    ///
    /// [`PopError::Closed`] once the queue is closed and empty; [`PopError::Process`] gives what `process`
    /// failed with, and the object.
    pub fn pop(&self, process: &mut Process<'_, T>) -> Result<Arc<T>, PopError<Arc<T>>> {
        let Some(popped) = self.take() else {
            return Err(PopError::Closed);
        };
        let processed = Processed::from(catch(|| process(&popped.object, popped.in_initial_list)));
        self.finish_pop(&popped, processed.again(0));
        processed.into_result(popped.object)
    }

    fn take(&self) -> Option<Popped<T>> {
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
                    if let Some(popped) = state.next() {
                        let key = Arc::clone(&popped.key);
                        state.in_flight = Some(InFlight {
                            key,
                            thread: this,
                            superseded: false,
                        });
                        return Some(popped);
                    }
                    if state.initial_in_flight > 0 {
                        // Nothing but deleted keys: they are done with.
                        state.settle();
                        self.unlock(state);
                        state = self.state.lock();
                        continue;
                    }
                    if state.closed {
                        return None;
                    }
                }
            }
            self.changed.wait(&mut state);
        }
    }

    fn finish_pop(&self, popped: &Popped<T>, again: bool) {
        let mut state = self.state.lock();
        let again = again
            && state
                .in_flight
                .take()
                .is_some_and(|in_flight| !in_flight.superseded);
        state.in_flight = None;
        if again && popped.counts {
            state.initial_in_flight -= 1;
        }
        state.settle();
        if again {
            let end = state.order.len();
            let at = if popped.counts {
                end.min(state.initial_population - 1)
            } else {
                end
            };
            state.order.insert(at, Arc::clone(&popped.key));
            state
                .items
                .insert(Arc::clone(&popped.key), Arc::clone(&popped.object));
        }
        if state.closed {
            self.changed.notify_all();
        } else if !state.order.is_empty() {
            // Be it a deleted key only: until a pop has passed it the queue may not have synced.
            self.changed.notify_one();
        }
        self.unlock(state);
    }

    /// Queues an object, unless one with its key waits: then it is given back. client-go's `AddIfNotPresent`,
    /// which it had until 1.32.
    ///
    /// # Errors
    ///
    /// The object, if it has no key.
    pub fn add_if_not_present(&self, object: Arc<T>) -> Result<Option<Arc<T>>, Refused<Arc<T>>> {
        let key = match self.accessor.key(&object) {
            Ok(key) => key,
            Err(error) => {
                return Err(Refused {
                    value: object,
                    reason: error.into(),
                });
            }
        };
        let mut state = self.state.lock();
        state.populated = true;
        let present = if state.items.contains_key(&key) {
            Some(object)
        } else {
            // Nothing waits there, so nothing comes back.
            let _ = self.put(&mut state, key, object);
            None
        };
        self.unlock(state);
        Ok(present)
    }

    /// Answers the object that waited there, to be dropped without the lock.
    #[must_use]
    fn put(&self, state: &mut State<T>, key: Key, object: Arc<T>) -> Option<Arc<T>> {
        state.supersede(&key);
        let older = state.items.insert(Arc::clone(&key), object);
        if older.is_none() {
            state.order.push_back(key);
            self.changed.notify_one();
        }
        older
    }

    /// Gives the lock back, and says that the queue has synced if so it is.
    fn unlock(&self, mut state: MutexGuard<'_, State<T>>) {
        state.synced |= state.populated && state.initial_population == 0;
        let synced = state.synced;
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
    }

    /// Whether everything of the first replace has been processed or passed, or something else came first.
    pub fn has_synced(&self) -> bool {
        self.synced.is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    pub fn synced(&self) -> Done {
        self.synced.clone()
    }

    /// Ends every [`pop`](Self::pop) that finds nothing any more. What is written later is still queued, and
    /// can be popped (F7).
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Whether the queue has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many objects wait. The one being processed isn't among them.
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What waits under the key of this object.
    ///
    /// # Errors
    ///
    /// What the key function answers.
    pub fn get(&self, object: &T) -> Result<Option<Arc<T>>, KeyError> {
        self.accessor.key(object).map(|key| self.get_by_key(&key))
    }

    /// What waits under this key.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        self.state.lock().items.get(key).cloned()
    }

    /// All that waits, in the order in which it will be popped.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.state
            .lock()
            .waiting()
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The keys of all that waits, in the order in which it will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.state
            .lock()
            .waiting()
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }
}

impl<T> State<T> {
    fn next(&mut self) -> Option<Popped<T>> {
        let next = self.pass();
        self.order.shrink_when_empty();
        self.items.shrink_when_empty();
        next
    }

    /// The next one that waits, past the keys that have been deleted.
    fn pass(&mut self) -> Option<Popped<T>> {
        let in_initial_list = !self.synced;
        while let Some(key) = self.order.pop_front() {
            let counts = self.initial_population > self.initial_in_flight;
            self.initial_in_flight += usize::from(counts);
            if let Some(object) = self.items.remove(&key) {
                return Some(Popped {
                    key,
                    object,
                    in_initial_list,
                    counts,
                });
            }
        }
        None
    }

    /// What a pop has taken is done with.
    fn settle(&mut self) {
        self.initial_population -= std::mem::take(&mut self.initial_in_flight);
    }

    fn supersede(&mut self, key: &str) {
        if let Some(in_flight) = &mut self.in_flight {
            in_flight.superseded |= &*in_flight.key == key;
        }
    }

    /// What waits, in the order in which it will be popped.
    fn waiting(&self) -> impl Iterator<Item = (&Key, &Arc<T>)> {
        let mut seen = HashSet::new();
        let first = move |key: &&Key| seen.insert(Arc::clone(key));
        self.order
            .iter()
            .filter(first)
            .filter_map(|key| self.items.get_key_value(key))
    }
}

impl<T: Send + Sync> ReflectorStore<T> for Fifo<T> {
    /// Queues the object, or puts it in the place of the one that waits under its key (F1).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`]; then the queue does not count as populated.
    fn add(&self, object: Arc<T>) -> Result<(), StoreError> {
        let key = self.accessor.key(&object)?;
        let mut state = self.state.lock();
        state.populated = true;
        let older = self.put(&mut state, key, object);
        self.unlock(state);
        drop(older);
        Ok(())
    }

    /// The same as `add`.
    ///
    /// # Errors
    ///
    /// As for `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Takes the object out, if it waits; its key keeps its place (F2).
    ///
    /// # Errors
    ///
    /// As for `add`.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let mut state = self.state.lock();
        state.populated = true;
        state.supersede(&key);
        let removed = state.items.remove(&key);
        self.unlock(state);
        drop(removed);
        Ok(())
    }

    /// These, in the order of the list, and nothing else, wait now; of several with one key the last (F3).
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if one of them has no key: nothing has changed then.
    fn replace(&self, objects: Vec<Arc<T>>, _resource_version: &str) -> Result<(), StoreError> {
        let mut items = HashMap::with_capacity(objects.len());
        let mut order = VecDeque::with_capacity(objects.len());
        for object in objects {
            let key = self.accessor.key(&object)?;
            if items.insert(Arc::clone(&key), object).is_none() {
                order.push_back(key);
            }
        }
        let mut state = self.state.lock();
        if !state.populated {
            state.populated = true;
            state.initial_population = items.len();
        }
        if let Some(in_flight) = &mut state.in_flight {
            in_flight.superseded = true;
        }
        if !items.is_empty() {
            self.changed.notify_one();
        }
        let old = (
            std::mem::replace(&mut state.items, items),
            std::mem::replace(&mut state.order, order),
        );
        self.unlock(state);
        drop(old);
        Ok(())
    }
}

impl<T> fmt::Debug for Fifo<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        f.debug_struct("Fifo")
            .field("len", &state.items.len())
            .field(
                "in_flight",
                &state.in_flight.as_ref().map(|in_flight| &in_flight.key),
            )
            .field("synced", &state.synced)
            .field("closed", &state.closed)
            .finish_non_exhaustive()
    }
}

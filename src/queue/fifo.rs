use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::error::Processed;
use super::{PopError, ProcessError};
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::base::shrink::Shrink;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::object::{Accessor, Deleted, Key};
use crate::stop::Done;
use crate::store::{ReflectorStore, StoreError};

/// A queue of the newest state of each changed object, in the order of the first change.
/// client-go's `FIFO`.
///
/// Use it to process each object once for any number of changes, if deletions do not matter: an
/// object that is deleted before it is popped is never popped. A [`DeltaFifo`](super::DeltaFifo)
/// delivers every change, including deletions.
///
/// **Order.** A waiting key keeps its position when its object is updated or deleted. If a deleted
/// key is added again before a pop has passed its position, it is popped there. Until then, each
/// deletion and addition of the key takes the memory of one key.
///
/// **Threads.** Any number of threads may write and pop. A [`pop`](Self::pop) blocks while the
/// queue is empty and while another pop is processing. A write of a new key wakes one pop;
/// [`close`](Self::close) wakes all of them. One lock guards the queue. Key functions and the
/// callback run without the lock, and objects are dropped without it.
///
/// **Initial list.** The queue [has synced](Self::has_synced) when pops have processed or skipped
/// every key of the first [`replace`](ReflectorStore::replace). If another write comes before the
/// first `replace`, the queue is synced at once.
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
    /// Guards all mutable state. While it is held, no user code runs and `synced` is not set.
    state: Mutex<State<T>>,
    /// Pops wait here for an item and for the end of another pop's processing. A new key or the end
    /// of processing wakes one of them. `close` wakes all of them, and so does each end of
    /// processing after `close`.
    changed: Condvar,
}

type Process<'a, T> = dyn FnMut(&Arc<T>, bool) -> Result<(), ProcessError> + 'a;

struct State<T> {
    items: HashMap<Key, Arc<T>>,
    /// The keys of `items`, and deleted keys that a pop skips. A key may occur more than once if it
    /// was deleted (F2).
    order: VecDeque<Key>,
    /// The thread of a pop that is processing.
    in_flight: Option<ThreadId>,
    populated: bool,
    /// The number of keys of the first replace that have not been processed or skipped.
    /// `initial_in_flight` of them have left `order` in a pop that is not finished (F8).
    initial_population: usize,
    initial_in_flight: usize,
    /// Whether the queue has synced. Never becomes false again.
    synced: bool,
    closed: bool,
}

impl<T> Fifo<T> {
    /// Creates an empty, open queue.
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

    /// Blocks until an object is available, removes it from the queue and passes it to `process`.
    /// The second argument of `process` is whether the object belongs to the initial list. No lock
    /// is held while `process` runs, so it may write to the queue. It must not pop.
    ///
    /// # Errors
    ///
    /// Returns [`PopError::Closed`] once the queue is closed and empty. Returns
    /// [`PopError::Process`] with the error and the object if `process` fails.
    pub fn pop(&self, process: &mut Process<'_, T>) -> Result<Arc<T>, PopError<Arc<T>>> {
        let Some((object, in_initial_list)) = self.take() else {
            return Err(PopError::Closed);
        };
        let processed = Processed::from(catch(|| process(&object, in_initial_list)));
        self.finish_pop();
        processed.into_result(object)
    }

    /// Returns the next object, and whether it belongs to the initial list.
    fn take(&self) -> Option<(Arc<T>, bool)> {
        let this = thread::current().id();
        let mut state = self.state.lock();
        loop {
            match state.in_flight {
                // A pop inside a callback would wait for itself. The panic becomes the error of the
                // outer pop.
                Some(thread) if thread == this => {
                    drop(state);
                    panic!("a process callback must not pop from its queue");
                }
                Some(_) => {}
                None => {
                    if let Some(popped) = state.next() {
                        state.in_flight = Some(this);
                        return Some(popped);
                    }
                    if state.initial_in_flight > 0 {
                        // `next` found only deleted keys. They count as processed now.
                        state.mark_initial_processed();
                        self.unlock(state);
                        state = self.state.lock();
                        continue;
                    }
                    if state.closed {
                        // The next pop ends as well.
                        self.changed.notify_one();
                        return None;
                    }
                }
            }
            self.changed.wait(&mut state);
        }
    }

    fn finish_pop(&self) {
        let mut state = self.state.lock();
        state.in_flight = None;
        state.mark_initial_processed();
        if state.closed || !state.order.is_empty() {
            // Also wake a pop if only deleted keys are left: until a pop has skipped them, the
            // queue may not have synced.
            self.changed.notify_one();
        }
        self.unlock(state);
    }

    /// Queues an object and returns the waiting object that it replaces. The caller must drop the
    /// returned object after it has released the lock.
    #[must_use]
    fn put(&self, state: &mut State<T>, key: Key, object: Arc<T>) -> Option<Arc<T>> {
        let older = state.items.insert(Arc::clone(&key), object);
        if older.is_none() {
            state.order.push_back(key);
            self.changed.notify_one();
        }
        older
    }

    /// Unlocks, then sets `synced` if due.
    fn unlock(&self, mut state: MutexGuard<'_, State<T>>) {
        state.synced |= state.populated && state.initial_population == 0;
        let synced = state.synced;
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
    }

    /// Whether all objects of the first replace have been processed or skipped. If another write
    /// came before the first replace, the queue is synced at once.
    pub fn has_synced(&self) -> bool {
        self.synced.is_done()
    }

    /// Returns a handle that is done when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> Done {
        self.synced.clone()
    }

    /// Closes the queue. From then on, [`pop`](Self::pop) returns an error instead of blocking if
    /// the queue is empty. Later writes are still queued and can be popped.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// Whether the queue has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Returns the number of waiting objects, without the one that is being processed.
    pub fn len(&self) -> usize {
        self.state.lock().items.len()
    }

    /// Whether no object is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting objects in the order in which they will be popped.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.state
            .lock()
            .waiting()
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Returns all waiting keys in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.state
            .lock()
            .waiting()
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }
}

impl<T> State<T> {
    fn next(&mut self) -> Option<(Arc<T>, bool)> {
        let next = self.pop_undeleted();
        self.order.shrink_after_peak();
        self.items.shrink_after_peak();
        next
    }

    /// Removes the next waiting object and skips the deleted keys before it.
    fn pop_undeleted(&mut self) -> Option<(Arc<T>, bool)> {
        let in_initial_list = !self.synced;
        while let Some(key) = self.order.pop_front() {
            let counts = self.initial_population > self.initial_in_flight;
            self.initial_in_flight += usize::from(counts);
            if let Some(object) = self.items.remove(&key) {
                return Some((object, in_initial_list));
            }
        }
        None
    }

    /// Marks the keys of the initial list that pops have removed from `order` as processed.
    fn mark_initial_processed(&mut self) {
        self.initial_population -= std::mem::take(&mut self.initial_in_flight);
    }

    /// Returns the waiting objects in the order in which they will be popped.
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
    /// Queues the object, or replaces the waiting object with the same key.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if the object has no key. The queue then does not count as
    /// populated.
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
    /// The same as `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.add(object)
    }

    /// Removes the object if it is waiting. Its key keeps its position.
    ///
    /// # Errors
    ///
    /// The same as `add`.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let mut state = self.state.lock();
        state.populated = true;
        let removed = state.items.remove(&key);
        self.unlock(state);
        drop(removed);
        Ok(())
    }

    /// Replaces the content of the queue with `objects`, in the order of the list. If several
    /// objects have the same key, the last one counts.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if an object has no key. Nothing has changed then.
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

debug_fields!(Fifo<T>, this,
    len: this.len(),
    in_flight: this.state.lock().in_flight.is_some(),
    synced: this.has_synced(),
    closed: this.is_closed()
);

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    #[test]
    fn queue_with_few_objects_left_frees_its_memory() {
        let accessor = Accessor::new(|number: &u32| Ok(number.to_string().into()));
        let queue = Fifo::new(accessor);
        for number in 0..100_000 {
            queue.add(Arc::new(number)).unwrap();
        }
        for _ in 10..100_000 {
            queue.pop(&mut |_, _| Ok(())).unwrap();
        }
        let state = queue.state.lock();
        let capacities = [state.items.capacity(), state.order.capacity()];
        assert!(capacities.iter().all(|it| *it < 10_000), "{capacities:?}");
    }
}

//! A priority queue in which only writers compare objects.

mod order;

use std::cmp::Ordering;
use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;

use self::order::Order;
use super::{PopError, Refused};
use crate::object::{Accessor, Key, KeyError};
use crate::panic::catch;
use crate::store::StoreError;
use crate::sync::thread::{self, ThreadId};
use crate::sync::{Condvar, Mutex, MutexGuard};

/// A queue of the newest state of each object, ordered by priority. client-go's `Heap`.
///
/// Use it if objects are processed in an order other than that of arrival: by deadline, priority or
/// age. A [`Fifo`](super::Fifo) keeps the order of arrival.
///
/// **Order.** The least object comes first, as with client-go's `LessFunc` and in a sorted list.
/// (The standard library's `BinaryHeap` returns the greatest first.) The comparison returns an
/// [`Ordering`], as for a sort. Among equal objects, the first one written comes first; client-go
/// leaves their order open. An object that is equal to the one it replaces keeps its position. Any
/// other object comes after the objects that are equal to it. If the comparison is inconsistent,
/// the order is unspecified, but everything else works.
///
/// **Threads.** Any number of threads may write, delete and pop. A [`pop`](Self::pop) blocks while
/// the heap is empty. An object with a new key wakes one pop. [`close`](Self::close) and several
/// new keys at once wake all of them.
///
/// **Locks.** One lock guards the heap. Key functions and comparisons run without it, and objects
/// are dropped without it. Only writes compare. While a write compares, other writes, deletions and
/// pops wait for it; reads and `close` do not. So a comparison may read its heap. It must not
/// write, delete or pop: that panics, and the write that compares is rejected. It must also not
/// wait for another thread that writes, deletes or pops. If a comparison panics, nothing has
/// changed: the write is rejected and returns its object.
///
/// ```
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::Heap;
/// use std::sync::Arc;
///
/// struct Job(&'static str, u32);
///
/// let by_name = Accessor::new(|job: &Job| Ok::<_, KeyError>(job.0.into()));
/// let jobs = Heap::new(by_name, |a, b| a.1.cmp(&b.1));
/// jobs.bulk_add(vec![Arc::new(Job("wash", 2)), Arc::new(Job("dry", 3)), Arc::new(Job("cook", 3))])?;
/// jobs.add(Arc::new(Job("cook", 1)))?;
/// jobs.close();
/// assert_eq!((jobs.pop()?.0, jobs.pop()?.0, jobs.pop()?.0), ("cook", "wash", "dry"));
/// assert!(jobs.pop().is_err() && jobs.add(Arc::new(Job("iron", 1))).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Heap<T> {
    accessor: Accessor<T>,
    compare: Box<Compare<T>>,
    /// Guards all mutable state. No user code runs while it is held.
    state: Mutex<State<T>>,
    /// Pops wait here for an object. A write that added one key wakes one of them, a write that
    /// added several wakes all. `close` wakes all.
    filled: Condvar,
    /// Writes, deletions and pops wait here while a write compares. The end of that write wakes one
    /// waiter. If the waiter is a write, it starts to compare; a deletion or a pop wakes the next
    /// waiter.
    settled: Condvar,
}

type Compare<T> = dyn Fn(&T, &T) -> Ordering + Send + Sync;

struct State<T> {
    order: Order<T>,
    /// The thread of the write that compares. Until that write ends, no other thread changes
    /// `order`.
    comparing: Option<ThreadId>,
    closed: bool,
}

impl<T> Heap<T> {
    /// Creates an empty, open heap. The object that is `Less` according to `compare` comes first.
    pub fn new(
        accessor: Accessor<T>,
        compare: impl Fn(&T, &T) -> Ordering + Send + Sync + 'static,
    ) -> Self {
        Self {
            accessor,
            compare: Box::new(compare),
            state: Mutex::new(State {
                order: Order::new(),
                comparing: None,
                closed: false,
            }),
            filled: Condvar::new(),
            settled: Condvar::new(),
        }
    }

    /// Inserts an object according to its priority, or replaces the waiting object with the same
    /// key.
    ///
    /// # Errors
    ///
    /// Returns the object and the reason. This is [`StoreError::Key`] if the object has no key,
    /// [`StoreError::Closed`] if the heap is closed, and [`StoreError::Compare`] if a comparison
    /// panicked. Nothing has changed then.
    pub fn add(&self, object: Arc<T>) -> Result<(), Refused<Arc<T>>> {
        let (key, object) = self.keyed(object)?;
        let mut comparing = self.begin_comparing();
        let replaced = comparing.put(key, object);
        drop(comparing);
        replaced.map(drop)
    }

    /// The same as [`add`](Self::add).
    ///
    /// # Errors
    ///
    /// The same as `add`.
    pub fn update(&self, object: Arc<T>) -> Result<(), Refused<Arc<T>>> {
        self.add(object)
    }

    /// Inserts an object. If an object with the same key is waiting, returns `object` instead.
    ///
    /// # Errors
    ///
    /// The same as [`add`](Self::add).
    pub fn add_if_not_present(&self, object: Arc<T>) -> Result<Option<Arc<T>>, Refused<Arc<T>>> {
        let (key, object) = self.keyed(object)?;
        let mut comparing = self.begin_comparing();
        let state = self.state.lock();
        let present = !state.closed && state.order.slot(&key).is_some();
        drop(state);
        if present {
            Ok(Some(object))
        } else {
            comparing.put(key, object).map(|_| None)
        }
    }

    /// [Adds](Self::add) several objects before any pop can receive one of them. If several objects
    /// have the same key, the last one counts. Reads may see a part of the objects.
    ///
    /// # Errors
    ///
    /// Returns the objects that were not added, and the reason. The reason applies to the first of
    /// them; the objects before it have been added. If the heap is closed, the reason is
    /// [`StoreError::Closed`], regardless of other errors.
    pub fn bulk_add(&self, objects: Vec<Arc<T>>) -> Result<(), Refused<Vec<Arc<T>>>> {
        if self.is_closed() {
            return Err(Refused {
                value: objects,
                reason: StoreError::Closed,
            });
        }
        let mut failed = None;
        let keys = objects
            .iter()
            .map_while(|object| match self.accessor.key(object) {
                Ok(key) => Some(key),
                Err(error) => {
                    failed = Some(error.into());
                    None
                }
            });
        let keys: Vec<Key> = keys.collect();
        let mut objects = objects.into_iter();
        let (mut replaced, mut refused) = (Vec::new(), Vec::new());
        let mut comparing = self.begin_comparing();
        for (key, object) in keys.into_iter().zip(objects.by_ref()) {
            match comparing.put(key, object) {
                Ok(older) => replaced.extend(older),
                Err(Refused { value, reason }) => {
                    refused.push(value);
                    failed = Some(reason);
                    break;
                }
            }
        }
        drop(comparing);
        refused.extend(objects);
        failed.map_or(Ok(()), |reason| {
            Err(Refused {
                value: refused,
                reason,
            })
        })
    }

    /// Removes the waiting object with the same key as `object`. This also works after
    /// [`close`](Self::close).
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if `object` has no key, and [`StoreError::NotFound`] if no
    /// object with the key is waiting.
    pub fn delete(&self, object: &T) -> Result<Arc<T>, StoreError> {
        let key = self.accessor.key(object)?;
        let mut state = self.settled(self.state.lock());
        match state.order.slot(&key) {
            Some(slot) => Ok(state.order.remove(slot)),
            None => Err(StoreError::NotFound { key }),
        }
    }

    /// Blocks until an object is available, then removes and returns the first one.
    ///
    /// # Errors
    ///
    /// Returns [`PopError::Closed`] once the heap is closed and empty. There is no other error: a
    /// popped object belongs to the caller.
    pub fn pop(&self) -> Result<Arc<T>, PopError<Infallible>> {
        let mut state = self.settled(self.state.lock());
        loop {
            if let Some(object) = state.order.pop() {
                return Ok(object);
            }
            if state.closed {
                return Err(PopError::Closed);
            }
            self.filled.wait(&mut state);
            state = self.settled(state);
        }
    }

    /// Closes the heap. From then on, nothing is added, not even by a write that has already
    /// started. Waiting objects can still be popped; when the heap is empty, [`pop`](Self::pop)
    /// returns an error instead of blocking.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }

    /// Whether the heap has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// Returns the number of waiting objects.
    pub fn len(&self) -> usize {
        self.state.lock().order.len()
    }

    /// Whether no object is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the waiting object with the same key as `object`.
    ///
    /// # Errors
    ///
    /// Returns the error of the key function.
    pub fn get(&self, object: &T) -> Result<Option<Arc<T>>, KeyError> {
        self.accessor.key(object).map(|key| self.get_by_key(&key))
    }

    /// Returns the waiting object with this key.
    pub fn get_by_key(&self, key: &str) -> Option<Arc<T>> {
        let state = self.state.lock();
        state
            .order
            .slot(key)
            .map(|slot| Arc::clone(state.order.object(slot)))
    }

    /// Returns all waiting objects in the order in which they will be popped.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.state
            .lock()
            .order
            .iter()
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// Returns all waiting keys in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.state
            .lock()
            .order
            .iter()
            .map(|(key, _)| Arc::clone(key))
            .collect()
    }

    fn keyed(&self, object: Arc<T>) -> Result<(Key, Arc<T>), Refused<Arc<T>>> {
        match self.accessor.key(&object) {
            Ok(key) => Ok((key, object)),
            Err(error) => Err(Refused {
                value: object,
                reason: error.into(),
            }),
        }
    }

    /// Waits until no other write compares, and then blocks other writes, deletions and pops.
    fn begin_comparing(&self) -> Comparing<'_, T> {
        let mut state = self.wait(self.state.lock());
        state.comparing = Some(thread::current().id());
        Comparing {
            heap: self,
            added: 0,
        }
    }

    /// Waits until no write compares.
    fn settled<'a>(&'a self, state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        let state = self.wait(state);
        // The end of the last write may have woken this thread, so pass the wakeup on.
        self.settled.notify_one();
        state
    }

    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        while let Some(thread) = state.comparing {
            if thread == thread::current().id() {
                // A comparison that writes or pops would wait for its own end. The panic becomes
                // the error of the write that compares.
                drop(state);
                panic!("a comparison must not write to its heap or pop from it");
            }
            self.settled.wait(&mut state);
        }
        state
    }
}

/// The exclusive right to compare and to change the order.
struct Comparing<'a, T> {
    heap: &'a Heap<T>,
    /// The number of new keys.
    added: usize,
}

impl<T> Comparing<'_, T> {
    /// Inserts an object, or replaces the object with the same key and returns the older one. The
    /// caller must drop the older object after `self`, because its destructor may use the heap.
    fn put(&mut self, key: Key, object: Arc<T>) -> Result<Option<Arc<T>>, Refused<Arc<T>>> {
        let refuse = |value, reason| Err(Refused { value, reason });
        let state = self.heap.state.lock();
        if state.closed {
            return refuse(object, StoreError::Closed);
        }
        let older = state
            .order
            .slot(&key)
            .map(|slot| (slot, Arc::clone(state.order.object(slot))));
        drop(state);
        let after = match catch(|| self.place(&object, older.as_ref())) {
            Ok(after) => after,
            Err(message) => {
                return refuse(
                    object,
                    StoreError::Compare {
                        key,
                        message: message.into(),
                    },
                );
            }
        };
        let mut state = self.heap.state.lock();
        if state.closed {
            return refuse(object, StoreError::Closed);
        }
        match older {
            Some((slot, _)) => Ok(Some(state.order.replace(slot, after, object))),
            None => {
                state.order.insert(after, key, object);
                self.added += 1;
                Ok(None)
            }
        }
    }

    /// Returns the slot after which the object belongs, or `None` if it comes first. An object that
    /// is being replaced is still in its slot.
    fn place(&self, object: &T, older: Option<&(usize, Arc<T>)>) -> Option<usize> {
        let Heap { compare, state, .. } = self.heap;
        if let Some((slot, older)) = older
            && compare(object, older).is_eq()
        {
            return Some(*slot);
        }
        let mut after = None;
        let mut next = state.lock().order.top();
        while let Some((slot, other)) = next {
            let before = compare(object, &other).is_lt();
            if !before {
                after = Some(slot);
            }
            next = state.lock().order.below(slot, before);
        }
        after
    }
}

impl<T> Drop for Comparing<'_, T> {
    fn drop(&mut self) {
        self.heap.state.lock().comparing = None;
        self.heap.settled.notify_one();
        match self.added {
            0 => {}
            1 => {
                self.heap.filled.notify_one();
            }
            _ => {
                self.heap.filled.notify_all();
            }
        }
    }
}

impl<T> fmt::Debug for Heap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heap")
            .field("len", &self.len())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

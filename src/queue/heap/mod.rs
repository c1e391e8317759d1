//! A priority queue that writers compare for, not readers.

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

/// The newest state of each object, the most urgent first. client-go's `Heap`.
///
/// Use it where the order of work is not that of arrival: by deadline, by priority, by age. A
/// [`Fifo`](super::Fifo) keeps the order of arrival.
///
/// **Order.** The least comes first, as with client-go's `LessFunc` and in a sorted list; the standard
/// library's `BinaryHeap` gives the greatest. The comparison is an [`Ordering`], as for a sort. Of equals,
/// which client-go gives in any order, the first that was written comes first; a write that is equal to what
/// it replaces keeps its place, any other comes after its equals. A comparison that contradicts itself costs
/// the order, nothing else.
///
/// **Threads.** Any number of them may write, delete and pop. A [`pop`](Self::pop) blocks until there is
/// something. An object of a new key wakes one pop, [`close`](Self::close) and several new keys at once all
/// of them.
///
/// **Locks.** One guards the heap; key functions and comparisons run without it, and objects are dropped
/// without it. Only writes compare: while one does, other writes, deletions and pops wait for it; reads and
/// `close` don't. So a comparison may read its heap. It must not write, delete or pop: that panics, and the
/// write that compares is refused. Nor must it wait for a thread that does. A comparison that panics has
/// changed nothing: the write is refused, and gives its object back.
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
    /// Guards everything that changes. No user code runs under it.
    state: Mutex<State<T>>,
    /// Pops wait here for an object. The end of a write wakes one if it has brought one new key, all if it
    /// has brought more; `close` wakes all.
    filled: Condvar,
    /// Writes, deletions and pops wait here while a write compares. Its end wakes one: a write goes on to
    /// compare, the others wake the next.
    settled: Condvar,
}

type Compare<T> = dyn Fn(&T, &T) -> Ordering + Send + Sync;

struct State<T> {
    order: Order<T>,
    /// The thread of a write that compares. Until it has done nobody else changes `order`.
    comparing: Option<ThreadId>,
    closed: bool,
}

impl<T> Heap<T> {
    /// Empty and open. What `compare` calls less comes first.
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

    /// Puts an object in its place; one that waits under the same key is replaced.
    ///
    /// # Errors
    ///
    /// The object, and why: [`StoreError::Key`] if it has no key, [`StoreError::Closed`], and
    /// [`StoreError::Compare`] if a comparison panicked. Nothing has changed then.
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
    /// As for `add`.
    pub fn update(&self, object: Arc<T>) -> Result<(), Refused<Arc<T>>> {
        self.add(object)
    }

    /// Puts an object in its place, unless one with its key waits: then it is given back.
    ///
    /// # Errors
    ///
    /// As for [`add`](Self::add).
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

    /// [`add`](Self::add)s them one after the other, before any pop gets one of them; of several with one key
    /// the last stays. Reads may see that it is half done.
    ///
    /// # Errors
    ///
    /// As for `add`. The first object that is given back is the one that the reason is about; those before it
    /// have been added. If the heap is closed that is the reason, whatever else is wrong.
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

    /// Takes out what waits under the key of this object, from a closed heap too.
    ///
    /// # Errors
    ///
    /// [`StoreError::Key`] if it has no key, [`StoreError::NotFound`] if nothing waits there.
    pub fn delete(&self, object: &T) -> Result<Arc<T>, StoreError> {
        let key = self.accessor.key(object)?;
        let mut state = self.settled(self.state.lock());
        match state.order.slot(&key) {
            Some(slot) => Ok(state.order.remove(slot)),
            None => Err(StoreError::NotFound { key }),
        }
    }

    /// Blocks until there is an object, and takes the first out.
    ///
    /// # Errors
    ///
    /// [`PopError::Closed`] once the heap is closed and empty. There is nothing else: what has been popped is
    /// the caller's.
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

    /// From now on nothing is added, not even by a write that has begun; what waits can still be popped. Ends
    /// every [`pop`](Self::pop) that finds nothing any more.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.filled.notify_all();
    }

    /// Whether the heap has been closed.
    pub fn is_closed(&self) -> bool {
        self.state.lock().closed
    }

    /// How many objects wait.
    pub fn len(&self) -> usize {
        self.state.lock().order.len()
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
        let state = self.state.lock();
        state
            .order
            .slot(key)
            .map(|slot| Arc::clone(state.order.object(slot)))
    }

    /// All that waits, in the order in which it will be popped.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.state
            .lock()
            .order
            .iter()
            .map(|(_, object)| Arc::clone(object))
            .collect()
    }

    /// The keys of all that waits, in the order in which it will be popped.
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

    /// Waits until no other write compares, and keeps others from it.
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
        // This thread may be the one that the last write woke.
        self.settled.notify_one();
        state
    }

    fn wait<'a>(&'a self, mut state: MutexGuard<'a, State<T>>) -> MutexGuard<'a, State<T>> {
        while let Some(thread) = state.comparing {
            if thread == thread::current().id() {
                // It would wait for itself. The panic is the write's error.
                drop(state);
                panic!("a comparison must not write to its heap, nor pop");
            }
            self.settled.wait(&mut state);
        }
        state
    }
}

/// The right to compare, which one thread has at a time.
struct Comparing<'a, T> {
    heap: &'a Heap<T>,
    /// How many new keys it has brought.
    added: usize,
}

impl<T> Comparing<'_, T> {
    /// Answers the object that has been replaced, to be dropped after the turn.
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

    /// After which slot the object belongs. What it replaces still has its own.
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

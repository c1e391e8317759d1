use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::error::Processed;
use super::front::{Accumulator, Front};
use super::options::FrontOptions;
use super::{Origin, PopError, ProcessError};
use crate::base::derive::{debug_fields, unwind_safe};
use crate::base::panic::catch;
use crate::base::shrink::Shrink;
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;
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
    front: Front<T, Newest<T>>,
}

struct Newest<T> {
    items: HashMap<Key, Arc<T>>,
    /// The keys of `items`, and deleted keys that a pop skips. A key may occur more than once if it
    /// was deleted (F2).
    order: VecDeque<Key>,
    /// The key of the pop that is in flight, until the key is written or deleted, or the content
    /// replaced. After that, the popped object is not the newest state, and does not go back.
    in_flight: Option<Key>,
}

impl<T> Accumulator for Newest<T> {
    /// Counts deleted keys as well: until a pop has skipped them, the queue may not have synced
    /// (F8).
    fn len(&self) -> usize {
        self.order.len()
    }
}

impl<T> Fifo<T> {
    /// Creates an empty, open queue.
    pub fn new(accessor: Accessor<T>) -> Self {
        let waiting = Newest {
            items: HashMap::new(),
            order: VecDeque::new(),
            in_flight: None,
        };
        Self {
            front: Front::new(accessor, FrontOptions::default(), "Fifo", waiting),
        }
    }

    /// Blocks until an object is available, removes it from the queue and passes it to `process`.
    /// No lock is held while `process` runs, so it may write to the queue. It must not pop. To
    /// receive the object again, it returns a [`Requeue`](super::Requeue). client-go's `Pop`.
    ///
    /// # Errors
    ///
    /// Returns [`PopError::Closed`] once the queue is closed and empty. Returns
    /// [`PopError::Process`] with the error and the object if `process` fails.
    #[expect(
        clippy::type_complexity,
        reason = "the documentation spells the callbacks out"
    )]
    pub fn pop(
        &self,
        process: &mut dyn FnMut(&Arc<T>, Origin) -> Result<(), ProcessError>,
    ) -> Result<Arc<T>, PopError<Arc<T>>> {
        let take = |waiting: &mut Newest<T>, _| waiting.take();
        let (object, flight) = self.front.take(1, take).ok_or(PopError::Closed)?;
        // No lock is held: other threads and the callback may write meanwhile.
        let processed = Processed::from(catch(|| process(&object, flight.origin)));
        self.front.finish(&flight, |queue| {
            // The key is still there if the object is the newest state.
            let key = queue.waiting.in_flight.take();
            if let Some(key) = key.filter(|_| processed.is_requeued()) {
                let older = queue.waiting.put(key, Arc::clone(&object));
                queue.dropped.extend(older);
            }
        });
        processed.into_result(object)
    }

    /// Queues an object at the end of the queue, unless an object with its key waits. Returns whether
    /// it is queued. client-go's `AddIfNotPresent`, which existed until 1.32.
    ///
    /// Use it to queue a popped object again, if the thread that pops is also the only one that
    /// writes. Otherwise a newer object may have been popped in the meantime. A callback that returns
    /// a [`Requeue`](super::Requeue) has no such gap.
    ///
    /// The call counts as a write: an unpopulated queue is synced afterwards. It never blocks for
    /// long, and it wakes one pop.
    ///
    /// ```
    /// use k8s_informer::object::{Accessor, KeyError};
    /// use k8s_informer::queue::Fifo;
    /// use k8s_informer::store::ReflectorStore;
    /// use std::sync::Arc;
    ///
    /// let queue = Fifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
    /// queue.add(Arc::new("a2".to_owned()))?;
    /// assert!(!queue.add_if_not_present(Arc::new("a1".to_owned()))?);
    /// assert_eq!(*queue.pop(&mut |_, _| Ok(()))?, "a2");
    /// assert!(queue.add_if_not_present(Arc::new("a2".to_owned()))?);
    /// assert_eq!(queue.len(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if the object has no key. Then nothing has changed.
    #[doc(alias = "AddIfNotPresent")]
    pub fn add_if_not_present(&self, object: Arc<T>) -> Result<bool, StoreError> {
        let key = self.front.door.accessor().key(&object)?;
        let mut queue = self.front.lock_for_write();
        queue.populated = true;
        let is_absent = !queue.waiting.items.contains_key(&key);
        if is_absent {
            let older = queue.waiting.put(key, object);
            queue.dropped.extend(older);
        }
        queue.unlock();
        Ok(is_absent)
    }

    /// Whether all objects of the first replace have been processed or skipped. If another write
    /// came before the first replace, the queue is synced at once.
    pub fn has_synced(&self) -> bool {
        self.front.synced().is_done()
    }

    /// Returns a handle that is done when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> Done {
        self.front.synced()
    }

    /// Closes the queue. From then on, [`pop`](Self::pop) returns an error instead of blocking if
    /// the queue is empty. Later writes are still queued and can be popped.
    pub fn close(&self) {
        self.front.close();
    }

    /// Whether the queue has been closed.
    pub fn is_closed(&self) -> bool {
        self.front.is_closed()
    }

    /// Returns the number of waiting objects, without the one that is being processed.
    pub fn len(&self) -> usize {
        self.front.lock().waiting.items.len()
    }

    /// Whether no object is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting objects in the order in which they will be popped.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.list_of(|_, object| Arc::clone(object))
    }

    /// Returns all waiting keys in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.list_of(|key, _| Key::clone(key))
    }

    fn list_of<R>(&self, of: impl Fn(&Key, &Arc<T>) -> R) -> Vec<R> {
        let Newest { items, order, .. } = &self.front.lock().waiting;
        let mut seen = HashSet::new();
        let keys = order.iter().filter(|key| seen.insert(*key));
        let waiting = keys.filter_map(|key| Some(of(key, items.get(key)?)));
        waiting.collect()
    }
}

impl<T> Newest<T> {
    /// Removes the next waiting object and the deleted keys before it.
    fn take(&mut self) -> Option<Arc<T>> {
        let next = loop {
            let Some(key) = self.order.pop_front() else {
                break None;
            };
            if let Some(object) = self.items.remove(&key) {
                self.in_flight = Some(key);
                break Some(object);
            }
        };
        self.order.shrink_after_peak();
        self.items.shrink_after_peak();
        next
    }

    /// Stores an object and returns the older one with its key. A waiting key keeps its position
    /// (F1).
    #[must_use]
    fn put(&mut self, key: Key, object: Arc<T>) -> Option<Arc<T>> {
        self.supersede(&key);
        let older = self.items.insert(Key::clone(&key), object);
        if older.is_none() {
            self.order.push_back(key);
        }
        older
    }

    /// Records that the object in flight is no longer the newest state of this key.
    fn supersede(&mut self, key: &Key) {
        if self.in_flight.as_ref() == Some(key) {
            self.in_flight = None;
        }
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
        let key = self.front.door.accessor().key(&object)?;
        let mut queue = self.front.lock_for_write();
        queue.populated = true;
        let older = queue.waiting.put(key, object);
        queue.dropped.extend(older);
        queue.unlock();
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
        let key = self.front.door.accessor().key_of_deleted(&gone)?;
        let mut queue = self.front.lock_for_write();
        queue.populated = true;
        queue.waiting.supersede(&key);
        let removed = queue.waiting.items.remove(&key);
        queue.dropped.extend(removed);
        queue.unlock();
        Ok(())
    }

    /// Replaces the content of the queue with `objects`, in the order of the list. If several
    /// objects have the same key, the last one counts.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if an object has no key. Nothing has changed then.
    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        _resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let mut new = Newest {
            items: HashMap::with_capacity(objects.len()),
            order: VecDeque::with_capacity(objects.len()),
            in_flight: None,
        };
        for object in objects {
            let key = self.front.door.accessor().key(&object)?;
            if new.items.insert(Key::clone(&key), object).is_none() {
                new.order.push_back(key);
            }
        }
        let mut queue = self.front.lock_for_write();
        let old = std::mem::replace(&mut queue.waiting, new);
        queue.replaced();
        // Unlocks before the old content is dropped.
        queue.unlock();
        drop(old);
        Ok(())
    }
}

unwind_safe!(Fifo<T>);

debug_fields!(Fifo<T>, this,
    len: this.len(),
    in_flight: !this.front.lock().is_idle(),
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
        let waiting = &queue.front.lock().waiting;
        let capacities = [waiting.items.capacity(), waiting.order.capacity()];
        assert!(capacities.iter().all(|it| *it < 10_000), "{capacities:?}");
    }
}

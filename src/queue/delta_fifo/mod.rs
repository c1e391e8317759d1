mod grouped;
mod known;
mod options;
mod write;

use std::collections::HashSet;
use std::sync::Arc;

pub use options::DeltaFifoOptions;

use self::grouped::Grouped;
use self::known::KnownSnapshot;
use super::forward::forward_queue;
use super::front::{self, DeltaAccumulator};
use super::{Delta, Deltas};
use crate::base::digest::Digest;
use crate::entry::{Gaps, Staging};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, ReflectorStore, StoreError};

/// A queue of all changes of each object since it was last popped. Objects are in the order of
/// their first change. client-go's `DeltaFIFO`.
///
/// Use it to process every change of an object exactly once and in order, and to detect deletions
/// on a relist. With [`known_objects`](DeltaFifoOptions::known_objects), a
/// [`replace`](ReflectorStore::replace) queues tombstones for objects that are known or queued but
/// not in the list. The changes of one object wait together and count as one item. A later change
/// of one object can therefore be delivered before an earlier change of another. A
/// [`RealFifo`](super::RealFifo) keeps the order across objects. A [`Fifo`](super::Fifo) keeps only
/// the newest state of each object.
///
/// **Threads.** Any number of threads may write. Any number of threads may pop, but one at a time:
/// a [`pop`](super::Queue::pop) waits until the previous pop has finished processing. Writers never
/// wait for processing. A write of a new key wakes one pop; [`close`](super::Queue::close) wakes
/// all of them. A batch has up to 64 keys: either all of them belong to the initial list or none.
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
/// use k8s_informer::queue::{Delta, DeltaFifo, Origin, Queue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = DeltaFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// queue.add(Arc::new("a1".to_owned()))?;
/// queue.add(Arc::new("b1".to_owned()))?;
/// queue.update(Arc::new("a2".to_owned()))?;
/// let popped = queue.pop(&mut |deltas, origin| {
///     assert_eq!((deltas.len(), origin), (2, Origin::Later));
///     Ok(())
/// })?;
/// let newest = popped.newest().and_then(Delta::object).map(|word| word.as_str());
/// assert_eq!(newest, Some("a2"));
/// assert_eq!(queue.list_keys(), ["b"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "DeltaFIFO")]
pub struct DeltaFifo<T> {
    front: Front<T>,
}

type Front<T> = front::Front<T, Grouped<T>>;
type Locked<'a, T> = front::Locked<'a, T, Grouped<T>>;

impl<T> DeltaFifo<T> {
    /// Creates an empty, open queue without known objects.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::with_options(accessor, DeltaFifoOptions::new())
    }

    /// Creates an empty, open queue.
    #[doc(alias = "NewDeltaFIFOWithOptions")]
    pub fn with_options(accessor: Accessor<T>, options: DeltaFifoOptions<T>) -> Self {
        let DeltaFifoOptions {
            front,
            emit_replaced,
        } = options;
        Self {
            front: Front::new(accessor, front, "DeltaFifo", Grouped::new(emit_replaced)),
        }
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
    /// assert_eq!(queue.list_keys(), ["a"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if there are no deltas, or if they are not all about the same object.
    /// Then nothing has changed.
    #[doc(alias = "AddIfNotPresent")]
    pub fn add_if_not_present(&self, mut deltas: Deltas<T>) -> Result<bool, StoreError> {
        // Only a `RealFifo` has deltas that are about no single object. Deltas of several objects could
        // only wait under one of their keys.
        let key = deltas.key();
        if key.is_none() || deltas.iter().any(|delta| delta.key() != key) {
            return Err(KeyError::new("deltas of one object are needed").into());
        }
        // A later version is not reached before these deltas have been processed again.
        let mut queue = self.front.lock_for_write();
        queue.populated = true;
        deltas.since = queue.versions.begin();
        let unused = queue.put_back(deltas);
        queue.unlock();
        Ok(unused.is_none())
    }

    /// Returns all waiting deltas in the order in which they will be popped.
    pub fn list(&self) -> Vec<Deltas<T>> {
        let Grouped { order, items, .. } = &self.front.lock().waiting;
        let waiting = order.iter().filter_map(|key| items.get(key));
        waiting.cloned().collect()
    }

    /// Returns all waiting keys in the order in which they will be popped.
    pub fn list_keys(&self) -> Vec<Key> {
        self.front.lock().waiting.order.iter().cloned().collect()
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
        self.front.write(Change::Add(object))
    }

    /// Queues [`Delta::Updated`].
    ///
    /// # Errors
    ///
    /// The same as `add`.
    fn update(&self, object: Arc<T>) -> Result<(), StoreError> {
        self.front.write(Change::Update(object))
    }

    /// Queues [`Delta::Deleted`], unless the key is neither queued, in flight nor known.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if the object has no key. The queue then does not count as
    /// populated. Returns [`StoreError::Transform`] if the transform fails; it does not run on
    /// tombstones. Returns [`StoreError::Other`] if `KnownObjects` panics.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.front.write(Change::Delete(gone))
    }

    /// Queues a delta for each object, in the order of the list: [`Delta::Sync`], or
    /// [`Delta::Replaced`] if [`DeltaFifoOptions::emit_replaced`] is set. After the objects, it
    /// queues tombstones for the keys that are queued, in flight or known, but not in the list.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] if an object has no key or its transform fails. The objects before it
    /// in the list are queued, the others are not, and no tombstones are queued. Returns
    /// [`StoreError::Other`] if `KnownObjects` panics; then nothing has changed.
    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let mut entries = Vec::with_capacity(objects.len());
        for object in objects {
            match self.front.door.entry(object, Digest::NONE) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    let mut queue = self.front.lock_for_write();
                    queue.push_list(entries);
                    queue.unlock();
                    return Err(error);
                }
            }
        }
        Grouped::replace(&self.front, entries, Gaps::default(), resource_version)
    }

    /// Queues [`Delta::Sync`] for each known object that has nothing queued. Does nothing without
    /// known objects.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Key`] if a known object has no key; the objects before it are queued.
    /// Returns [`StoreError::Other`] if `KnownObjects` panics.
    fn resync(&self) -> Result<(), StoreError> {
        if self.front.known_objects.is_none() {
            return Ok(());
        }
        let mut known = KnownSnapshot::default();
        {
            let mut queue = self.front.lock();
            queue.known(|_| false, &mut known)?;
            queue.waiting.resyncs += 1;
        }
        // The door runs key functions, so without the lock. Pops may take keys meanwhile, so they note
        // them.
        let (mut entries, mut result) = (Vec::with_capacity(known.objects.len()), Ok(()));
        for object in known
            .objects
            .iter()
            .filter_map(|(_, object)| object.as_ref())
        {
            match self.front.door.known_entry(object) {
                Ok(entry) => entries.push(entry),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        let mut queue = self.front.lock_for_write();
        for entry in entries {
            // What was queued or popped since then is newer than what was read. The object of an
            // unused entry is also in `known`, so no destructor runs here.
            let Grouped { items, popped, .. } = &queue.waiting;
            if !items.contains_key(&entry.key) && !popped.contains(&entry.key) {
                queue.push(Delta::Sync(entry));
            }
        }
        queue.waiting.resyncs -= 1;
        if queue.waiting.resyncs == 0 {
            queue.waiting.popped = HashSet::new();
        }
        queue.unlock();
        result
    }

    /// Queues nothing. The version is [reached](super::Queue::processed) when all earlier changes
    /// have been processed.
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.front.skipped(resource_version);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(&self.front)
    }
}

forward_queue!(DeltaFifo, "key", "keys");

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::entry::Entry;
    use crate::queue::Queue;
    use crate::store::{Indexer, Indexers};

    #[test]
    fn d6_replace_deletes_no_key_in_the_gaps() {
        let accessor = || Accessor::new(|word: &&str| Ok((*word).into()));
        let store = Arc::new(Indexer::new(accessor(), Indexers::new()));
        for word in ["unreadable", "gone"] {
            store.add(Arc::new(word)).unwrap();
        }
        let options = DeltaFifoOptions::new().known_objects(store);
        let queue = DeltaFifo::with_options(accessor(), options.emit_replaced(true));
        for word in ["queued and unreadable", "queued and gone"] {
            queue.add(Arc::new(word)).unwrap();
        }
        let mut gaps = Gaps::default();
        gaps.add(Some("unreadable".into()));
        gaps.add(Some("queued and unreadable".into()));
        let listed = vec![Entry::new("listed".into(), Arc::new("listed"))];
        let replaced =
            queue
                .staging()
                .unwrap()
                .replace_entries(listed, gaps, ResourceVersion::new("11"));
        replaced.unwrap();
        let mut popped = Vec::new();
        while !queue.is_empty() {
            let deltas = queue.pop(&mut |_, _| Ok(())).unwrap();
            let is_deleted = matches!(deltas.newest(), Some(Delta::Deleted { .. }));
            popped.push((deltas.key().unwrap().to_string(), is_deleted));
        }
        let expected = [
            ("queued and unreadable", false),
            ("queued and gone", true),
            ("listed", false),
            ("gone", true),
        ];
        assert_eq!(
            popped,
            expected.map(|(key, is_deleted)| (key.to_owned(), is_deleted))
        );
        assert_eq!(queue.processed().current(), ResourceVersion::new("11"));
    }
}

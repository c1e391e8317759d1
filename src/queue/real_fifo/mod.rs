mod in_order;
mod options;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

pub use options::RealFifoOptions;

use self::in_order::{InOrder, push_list};
use super::forward::forward_queue;
use super::front;
use super::{Delta, Deltas, ReplacedAll};
use crate::base::digest::Digest;
use crate::entry::{Entry, Gaps, Staging};
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, ReflectorStore, StoreError};

/// A queue of all changes of all objects in the order of their arrival. Changes are neither merged
/// nor dropped. client-go's `RealFIFO`, the queue of its informers since 1.33.
///
/// Use it if the order across objects matters, or if a list must reach the store as a whole. A
/// [`DeltaFifo`](super::DeltaFifo) delivers the changes of one object together and has at most one
/// entry for each object. A `RealFifo` has one entry for each change, so it grows with every change
/// in a burst.
///
/// **Lists.** A list is one [`Delta::ReplacedAll`], and a resync one [`Delta::SyncAll`]. The
/// consumer compares them with its store to determine what they mean for each object.
///
/// **Threads.** Any number of threads may write. Any number of threads may pop, but one at a time:
/// a [`pop`](super::Queue::pop) waits until the previous pop has finished processing. A write wakes
/// one pop; [`close`](super::Queue::close) wakes all of them. No lock is held during processing.
/// A batch has up to 1000 changes, each of a different object: either all of them belong to the
/// initial list or none. A list, a resync of all objects and a bookmark are delivered alone.
///
/// **Back-pressure.** While 2000 or more changes are left in the queue, writers wait for the end of
/// processing. This is the only back-pressure. The callback itself may always write.
///
/// **User code.** Key functions and transforms run without any lock; a panic in them becomes an
/// error.
///
/// ```
/// use k8s_informer::object::ResourceVersion;
/// use k8s_informer::Deleted;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Delta, Origin, Queue, RealFifo};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = RealFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// let list = vec![Arc::new("a1".to_owned()), Arc::new("b1".to_owned())];
/// queue.replace(list, ResourceVersion::new("7"))?;
/// queue.delete(Deleted::Final(Arc::new("a1".to_owned())))?;
/// let popped = queue.pop(&mut |deltas, origin| {
///     assert_eq!((deltas.len(), origin), (1, Origin::InitialList));
///     Ok(())
/// })?;
/// let Some(Delta::ReplacedAll(list)) = popped.newest() else { panic!() };
/// assert_eq!((list.entries.len(), &list.resource_version), (2, &ResourceVersion::new("7")));
/// assert!(queue.has_synced());
/// assert_eq!(queue.list_keys(), ["a"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "RealFIFO")]
pub struct RealFifo<T> {
    front: Front<T>,
}

type Front<T> = front::Front<T, InOrder<T>>;
type Locked<'a, T> = front::Locked<'a, T, InOrder<T>>;

impl<T> RealFifo<T> {
    /// Creates an empty, open queue without known objects.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::with_options(accessor, RealFifoOptions::new())
    }

    /// Creates an empty, open queue.
    #[doc(alias = "NewRealFIFOWithOptions")]
    pub fn with_options(accessor: Accessor<T>, options: RealFifoOptions<T>) -> Self {
        let waiting = InOrder {
            items: VecDeque::new(),
        };
        let mut front = Front::new(accessor, options.front, "RealFifo", waiting);
        front.door = front.door.with_transformed_keys();
        Self { front }
    }

    /// Returns all waiting changes in order, one for each entry.
    pub fn list(&self) -> Vec<Deltas<T>> {
        let items = &self.front.lock().waiting.items;
        items.iter().cloned().collect()
    }

    /// Returns the keys of all waiting changes, each once, in the order of their first change.
    pub fn list_keys(&self) -> Vec<Key> {
        let items = &self.front.lock().waiting.items;
        let mut seen = HashSet::new();
        let keys = items.iter().filter_map(Deltas::key);
        keys.filter(|key| seen.insert(*key)).cloned().collect()
    }
}

impl<T: Send + Sync> ReflectorStore<T> for RealFifo<T> {
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

    /// Queues [`Delta::Deleted`], even if the object is unknown.
    ///
    /// # Errors
    ///
    /// The same as `add`. The transform does not run on tombstones.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.front.write(Change::Delete(gone))
    }

    /// Queues [`Delta::ReplacedAll`], without checking the keys of the objects.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Transform`] if the transform fails on an object. Nothing is queued
    /// then.
    fn replace(
        &self,
        objects: Vec<Arc<T>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let door = &self.front.door;
        let mut list = ReplacedAll {
            resource_version,
            entries: Vec::with_capacity(objects.len()),
            without_key: Vec::new(),
            gaps: Gaps::default(),
        };
        for (position, object) in objects.into_iter().enumerate() {
            let (before, version) = (door.accessor().key(&object).ok(), door.version(&object));
            let object = match door.transform() {
                None => object,
                Some(transform) => {
                    transform
                        .apply(object)
                        .map_err(|error| StoreError::Transform {
                            key: before.clone(),
                            error,
                        })?
                }
            };
            match door.transformed_key(&object).or(before) {
                Some(key) => list.entries.push(Entry {
                    key,
                    version,
                    object,
                    digest: Digest::NONE,
                }),
                None => list.without_key.push((position, object)),
            }
        }
        push_list(&self.front, list);
        Ok(())
    }

    /// Queues [`Delta::SyncAll`].
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn resync(&self) -> Result<(), StoreError> {
        let mut queue = self.front.lock_for_write();
        queue.push(Delta::SyncAll, false);
        queue.unlock();
        Ok(())
    }

    /// Queues [`Delta::Bookmark`].
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        let bookmark = Delta::Bookmark(resource_version);
        self.front.apply_entries(&mut vec![bookmark]);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(&self.front)
    }
}

forward_queue!(RealFifo, "change", "changes");

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::object::KeyError;
    use crate::queue::Queue;

    #[test]
    fn queue_with_few_changes_left_frees_its_memory() {
        let accessor = Accessor::new(|number: &u32| Ok::<_, KeyError>(number.to_string().into()));
        let queue = RealFifo::new(accessor);
        for number in 0..100_000 {
            queue.update(Arc::new(number)).unwrap();
        }
        for _ in 10..100_000 {
            queue.pop(&mut |_, _| Ok(())).unwrap();
        }
        let capacity = queue.front.lock().waiting.items.capacity();
        assert!(capacity < 10_000, "{capacity}");
    }
}

mod builder;
mod pop;

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

pub use builder::RealFifoBuilder;

use super::body::{self, Accumulator, Body, InFlight};
use super::delta::{self, Origin};
use super::{Delta, Deltas, ReplacedAll};
use crate::base::derive::debug_fields;
use crate::base::digest::Digest;
use crate::base::panic::catch;
use crate::base::sync::{Condvar, MutexGuard, thread};
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::store::{
    Change, Door, Entry, EntryChange, Gaps, ReflectorStore, Staging, StoreError, Transform,
};

/// The maximum number of changes in a batch (R14). Under shuttle, whose queues are short, it is
/// two.
const BATCH: usize = if cfg!(shuttle) { 2 } else { 1000 };

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
/// While 2000 or more changes are left in the queue, writers wait for the end of processing. This is
/// the only back-pressure.
///
/// The callback itself may always write.
///
/// **User code.** Key functions and transforms run without any lock; a panic in them becomes an
/// error.
///
/// ```
/// use k8s_informer::Deleted;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{Delta, Queue, RealFifo};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let queue = RealFifo::new(Accessor::new(|word: &String| Ok::<_, KeyError>(word[..1].into())));
/// queue.replace(vec![Arc::new("a1".to_owned()), Arc::new("b1".to_owned())], "7")?;
/// queue.delete(Deleted::Final(Arc::new("a1".to_owned())))?;
/// let popped = queue.pop(&mut |deltas, in_initial_list| {
///     assert!(deltas.len() == 1 && in_initial_list);
///     Ok(())
/// })?;
/// let Some(Delta::ReplacedAll(list)) = popped.newest() else { panic!() };
/// assert_eq!((list.objects.len(), list.resource_version.as_str()), (2, "7"));
/// assert!(queue.has_synced());
/// assert_eq!(queue.list_keys(), ["a".into()]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "RealFIFO")]
pub struct RealFifo<T> {
    body: Body<T, InOrder<T>>,
    /// Writers wait here until an exclusive flight has ended. The end of a flight wakes all of
    /// them.
    flight_ended: Condvar,
}

type State<T> = body::State<InOrder<T>>;

/// The waiting changes.
struct InOrder<T> {
    /// Entries with one delta each. The key is that of the transformed object, or `None` if the
    /// object has no key.
    items: VecDeque<Deltas<T>>,
    /// Whether a pop is in flight and other threads must wait until it ends before they write.
    is_exclusive: bool,
}

impl<T> Accumulator for InOrder<T> {
    fn len(&self) -> usize {
        self.items.len()
    }
}

impl<T> RealFifo<T> {
    /// Creates a queue without known objects.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::builder(accessor).build()
    }

    /// Returns the transform, if there is one. client-go's `Transformer`.
    pub fn transformer(&self) -> Option<&Transform<T>> {
        self.body.door.transform()
    }

    /// Returns the number of waiting changes, without those that are being processed.
    pub fn len(&self) -> usize {
        self.body.len()
    }

    /// Whether no change is waiting.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all waiting changes in order, one for each entry.
    pub fn list(&self) -> Vec<Deltas<T>> {
        self.body.lock().waiting.items.iter().cloned().collect()
    }

    /// Returns the keys of all waiting changes, each once, in the order of their first change.
    pub fn list_keys(&self) -> Vec<Key> {
        let items = &self.body.lock().waiting.items;
        let mut seen = HashSet::new();
        let keys = items.iter().filter_map(Deltas::key);
        keys.filter(|key| seen.insert(*key)).cloned().collect()
    }

    /// Takes the lock for a write, after any exclusive flight of another thread has ended.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        let this = Some(InFlight::Running(thread::current().id()));
        let mut state = self.body.lock();
        while state.waiting.is_exclusive && state.in_flight != this {
            self.flight_ended.wait(&mut state);
        }
        state
    }

    fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        let entered = self.body.door.change(change).map(|change| {
            let (key, delta, origin) = delta::of_change(change);
            (self.key_after_transform(key, &delta), delta, origin)
        });
        let mut state = self.lock();
        // After a failed write, the queue also counts as populated (R2, R3).
        state.populated = true;
        let result = entered.map(|(key, delta, origin)| state.put(key, delta, origin));
        self.body.unlock(state);
        result
    }

    /// Returns the key of the transformed object (R3).
    fn key_after_transform(&self, key: Option<Key>, delta: &Delta<T>) -> Option<Key> {
        match delta {
            Delta::Deleted(Deleted::FinalStateUnknown { .. }) => key,
            _ if self.transformer().is_none() => key,
            delta => self.body.door.accessor().key(delta.object()?).ok(),
        }
    }

    /// Queues a list as one change (R7).
    fn push_list(&self, list: ReplacedAll<T>) {
        let version = ResourceVersion::from(&*list.resource_version);
        let mut state = self.lock();
        state.push(None, Delta::ReplacedAll(Arc::new(list)), Origin::default());
        state.versions.record_list(version);
        state.replaced();
        self.body.unlock(state);
    }
}

impl<T> State<T> {
    fn put(&mut self, key: Option<Key>, delta: Delta<T>, origin: Origin) {
        let (version, is_added) = (origin.version.clone(), matches!(delta, Delta::Added(_)));
        self.populated |= !matches!(delta, Delta::Bookmark(_));
        self.push(key, delta, origin);
        self.versions.record_object(version, is_added);
    }

    fn push(&mut self, key: Option<Key>, delta: Delta<T>, origin: Origin) {
        let since = self.versions.begin();
        let deltas = Deltas::one(since, key, delta, origin);
        self.waiting.items.push_back(deltas);
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

    /// Queues [`Delta::Deleted`], even if the object is unknown.
    ///
    /// # Errors
    ///
    /// The same as `add`. The transform does not run on tombstones.
    fn delete(&self, gone: Deleted<T>) -> Result<(), StoreError> {
        self.write(Change::Delete(gone))
    }

    /// Queues [`Delta::ReplacedAll`], without checking the keys of the objects.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Transform`] if the transform fails on an object. Nothing is queued
    /// then.
    fn replace(&self, mut objects: Vec<Arc<T>>, resource_version: &str) -> Result<(), StoreError> {
        let accessor = self.body.door.accessor();
        if let Some(transform) = self.body.door.transform() {
            for object in &mut objects {
                let transformed = transform.apply(Arc::clone(object));
                *object = transformed.map_err(|message| StoreError::Transform {
                    key: accessor.key(object).ok(),
                    message: message.into(),
                })?;
            }
        }
        let mark = |object: &Arc<T>| (accessor.key(object).ok(), Digest::NONE);
        self.push_list(ReplacedAll {
            resource_version: resource_version.to_owned(),
            marks: objects.iter().map(mark).collect(),
            objects,
            gaps: Gaps::default(),
        });
        Ok(())
    }

    /// Queues [`Delta::SyncAll`].
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn resync(&self) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.push(None, Delta::SyncAll, Origin::default());
        self.body.unlock(state);
        Ok(())
    }

    /// Queues [`Delta::Bookmark`].
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.apply_entries(&mut vec![EntryChange::Bookmark(
            resource_version.to_owned(),
        )]);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T: Send + Sync> Staging<T> for RealFifo<T> {
    fn door(&self) -> &Door<T> {
        &self.body.door
    }

    /// Returns the state in the [known objects](RealFifoBuilder::known_objects).
    fn known(&self, key: &str) -> Option<Entry<T>> {
        catch(|| self.body.known_objects.as_ref()?.entry(key)).ok()?
    }

    fn is_settled(&self) -> bool {
        self.body.lock().versions.is_settled()
    }

    fn skipped(&self, version: &str) {
        self.body.skipped(version);
    }

    /// Queues all changes under one lock and wakes one pop.
    fn apply_entries(&self, changes: &mut Vec<EntryChange<T>>) -> Vec<StoreError> {
        let mut state = self.lock();
        let mut has_items = false;
        for change in changes.drain(..) {
            let (key, delta, origin) = delta::of_change(change);
            has_items |= key.is_some();
            state.put(key, delta, origin);
        }
        if has_items {
            self.body.unlock(state);
        } else {
            // client-go does not report the depth after a bookmark (R22).
            self.body.publish(state);
        }
        Vec::new()
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let (mut objects, mut marks) = (Vec::new(), Vec::new());
        for entry in entries {
            objects.push(entry.object);
            marks.push((Some(entry.key), entry.digest));
        }
        self.push_list(ReplacedAll {
            resource_version: resource_version.to_owned(),
            objects,
            marks,
            gaps,
        });
        Ok(())
    }
}

debug_fields!(RealFifo<T>, this,
    len: this.len(),
    synced: this.body.synced().is_done(),
    closed: this.body.is_closed()
);

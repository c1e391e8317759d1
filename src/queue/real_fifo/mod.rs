mod builder;
mod pop;
mod read;

use std::collections::VecDeque;
use std::sync::Arc;

pub use builder::RealFifoBuilder;

use super::timing::Timing;
use super::version_tracker::{self, VersionTracker};
use super::{Delta, Deltas, ReplacedAll};
use crate::base::derive::debug_fields;
use crate::base::digest::Digest;
use crate::base::panic::catch;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::stop::Done;
use crate::store::{
    Change, Door, Entry, EntryChange, Gaps, KnownObjects, ReflectorStore, Staging, StoreError,
    Transform,
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
    door: Door<T>,
    known_objects: Option<Arc<dyn KnownObjects<T>>>,
    synced: Done,
    timing: Timing,
    /// Guards all mutable state. The innermost lock: while it is held, no user code runs and
    /// `synced` is not set.
    state: Mutex<State<T>>,
    /// Pops wait here until there is an item and nothing is in flight. [`unlock`](RealFifo::unlock)
    /// wakes one of them when both hold, and all of them once the queue is closed. `close` also
    /// wakes all of them.
    changed: Condvar,
    /// Writers wait here until an exclusive flight has ended. The end of a flight wakes all of
    /// them.
    flight_ended: Condvar,
}

struct State<T> {
    /// Entries with one delta each. The key is that of the transformed object, or `None` if the
    /// object has no key.
    items: VecDeque<Deltas<T>>,
    in_flight: Option<InFlight>,
    /// Whether there has been a write or a successful replace.
    populated: bool,
    /// The number of items at the head of the queue that were there after the first replace,
    /// including those in flight (R8).
    initial_population: usize,
    /// Whether the queue has synced. Never becomes false again.
    synced: bool,
    closed: bool,
    /// Tracks each entry of `items` and each change in flight.
    versions: VersionTracker,
}

/// A pop that is processing.
struct InFlight {
    thread: ThreadId,
    /// Whether other threads must wait before they write.
    exclusive: bool,
}

impl<T> RealFifo<T> {
    /// Creates a queue without known objects.
    pub fn new(accessor: Accessor<T>) -> Self {
        Self::builder(accessor).build()
    }

    /// Returns the transform, if there is one. client-go's `Transformer`.
    pub fn transformer(&self) -> Option<&Transform<T>> {
        self.door.transform()
    }

    /// Takes the lock for a write, after any exclusive flight of another thread has ended.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        let this = thread::current().id();
        let mut state = self.state.lock();
        while state
            .in_flight
            .as_ref()
            .is_some_and(|in_flight| in_flight.exclusive && in_flight.thread != this)
        {
            self.flight_ended.wait(&mut state);
        }
        state
    }

    /// Publishes and unlocks, then reports the depth.
    fn unlock(&self, state: MutexGuard<'_, State<T>>) {
        self.publish(state);
        self.timing.depth(|| self.len());
    }

    /// Updates the watermark, wakes pops and unlocks. Then sets `synced` if due.
    fn publish(&self, mut state: MutexGuard<'_, State<T>>) {
        state.versions.publish();
        state.synced |= state.populated && state.initial_population == 0;
        let synced = state.synced;
        if state.in_flight.is_none() {
            if !state.items.is_empty() {
                self.changed.notify_one();
            } else if state.closed {
                self.changed.notify_all();
            }
        }
        drop(state);
        if synced && !self.synced.is_done() {
            self.synced.set();
        }
    }

    fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        let entered = self.door.change(change).map(|change| {
            let key = self.key_after_transform(&change);
            (change, key)
        });
        let mut state = self.lock();
        // After a failed write, the queue also counts as populated (R2, R3).
        state.populated = true;
        let result = entered.map(|(change, key)| state.put(change, key));
        self.unlock(state);
        result
    }

    /// Returns the key of the transformed object (R3).
    fn key_after_transform(&self, change: &EntryChange<T>) -> Option<Key> {
        let object = match change {
            EntryChange::Add(entry, _) | EntryChange::Update(entry, _) => Some(&entry.object),
            EntryChange::Delete(_, Deleted::Final(object), _) => Some(object),
            _ => None,
        };
        match (object, self.door.transform()) {
            (Some(object), Some(_)) => self.door.accessor().key(object).ok(),
            _ => change.key().cloned(),
        }
    }

    /// Queues a list as one change (R7).
    fn push_list(&self, list: ReplacedAll<T>) {
        let version = ResourceVersion::from(&*list.resource_version);
        let mut state = self.lock();
        state.push(None, Delta::ReplacedAll(Arc::new(list)), Digest::NONE);
        state.versions.record_list(version);
        state.replaced();
        self.unlock(state);
    }
}

impl<T> State<T> {
    /// Queues a change under this key.
    fn put(&mut self, change: EntryChange<T>, key: Option<Key>) {
        let (version, digest, delta) = match change {
            EntryChange::Add(entry, version) => (version, entry.digest, Delta::Added(entry.object)),
            EntryChange::Update(entry, version) => {
                (version, entry.digest, Delta::Updated(entry.object))
            }
            EntryChange::Delete(_, gone, version) => (version, Digest::NONE, Delta::Deleted(gone)),
            EntryChange::Bookmark(version) => {
                let delta = Delta::Bookmark(version.as_str().into());
                (version_tracker::version(&version), Digest::NONE, delta)
            }
        };
        let is_added = matches!(delta, Delta::Added(_));
        self.populated |= !matches!(delta, Delta::Bookmark(_));
        self.push(key, delta, digest);
        self.versions.record_object(version, is_added);
    }

    fn push(&mut self, key: Option<Key>, delta: Delta<T>, digest: Digest) {
        let since = self.versions.begin();
        self.items.push_back(Deltas::one(since, key, delta, digest));
    }

    /// Completes a replace. If the queue was not populated, all waiting items form the initial list
    /// (R8).
    fn replaced(&mut self) {
        if !self.populated {
            self.populated = true;
            self.initial_population = self.items.len();
        }
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
        let accessor = self.door.accessor();
        if let Some(transform) = self.door.transform() {
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
        state.push(None, Delta::SyncAll, Digest::NONE);
        self.unlock(state);
        Ok(())
    }

    /// Queues [`Delta::Bookmark`].
    ///
    /// # Errors
    ///
    /// Never returns an error.
    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        let mut state = self.lock();
        state.put(EntryChange::Bookmark(resource_version.to_owned()), None);
        // Use `publish`, which does not report the depth: client-go does not report it after a
        // bookmark either (R22).
        self.publish(state);
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T: Send + Sync> Staging<T> for RealFifo<T> {
    fn door(&self) -> &Door<T> {
        &self.door
    }

    /// Returns the state in the [known objects](RealFifoBuilder::known_objects).
    fn known(&self, key: &str) -> Option<Entry<T>> {
        catch(|| self.known_objects.as_ref()?.entry(key)).ok()?
    }

    fn is_settled(&self) -> bool {
        self.state.lock().versions.is_settled()
    }

    /// Queues all changes under one lock and wakes one pop.
    fn apply_entries(&self, changes: &mut Vec<EntryChange<T>>) -> Vec<StoreError> {
        let mut state = self.lock();
        let mut has_items = false;
        for change in changes.drain(..) {
            has_items |= !matches!(change, EntryChange::Bookmark(_));
            let key = change.key().cloned();
            state.put(change, key);
        }
        if has_items {
            self.unlock(state);
        } else {
            self.publish(state);
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
    synced: this.synced.is_done(),
    closed: this.state.lock().closed
);

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
use crate::base::panic::catch;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::object::{Accessor, Deleted, Key, KeyError};
use crate::resource_version::ResourceVersion;
use crate::stop::Done;
use crate::store::{
    Change, Gaps, KnownObjects, ReflectorStore, Rejected, Staging, StoreError, Transform,
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
    accessor: Accessor<T>,
    transform: Option<Transform<T>>,
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

/// Functions that wrap an object in its delta, or in its original change.
type Wrap<T> = (fn(Arc<T>) -> Delta<T>, fn(Arc<T>) -> Change<T>);

/// A change whose key function and transform have run.
struct Prepared<T> {
    key: Option<Key>,
    delta: Delta<T>,
    /// The version of the object before the transform.
    version: Option<ResourceVersion>,
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
        self.transform.as_ref()
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

    /// Prepares an object for the queue. It must have a key before the transform. It is queued
    /// under the key that it has after the transform (R3, K4).
    fn prepare(&self, object: Arc<T>) -> Result<(Option<Key>, Arc<T>), StoreError> {
        let key = self.accessor.key(&object)?;
        self.transformed(key, object)
    }

    fn transformed(&self, key: Key, object: Arc<T>) -> Result<(Option<Key>, Arc<T>), StoreError> {
        if self.transform.is_none() {
            return Ok((Some(key), object));
        }
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok((self.accessor.key(&object).ok(), object))
    }

    /// Prepares a change before the lock is taken: runs the key function and the transform, and
    /// reads the resource version.
    fn prepare_change(&self, change: Change<T>) -> Result<Prepared<T>, Rejected<T>> {
        let is_deletion = matches!(change, Change::Delete(_));
        let (object, (delta, change)): (_, Wrap<T>) = match change {
            Change::Add(object) => (object, (Delta::Added, Change::Add)),
            Change::Update(object) => (object, (Delta::Updated, Change::Update)),
            Change::Delete(Deleted::Final(object)) => (
                object,
                (
                    |object| Delta::Deleted(Deleted::Final(object)),
                    |object| Change::Delete(Deleted::Final(object)),
                ),
            ),
            Change::Delete(Deleted::FinalStateUnknown { key, last_known }) => {
                return Ok(Prepared {
                    key: Some(Key::clone(&key)),
                    delta: Delta::Deleted(Deleted::FinalStateUnknown { key, last_known }),
                    version: None,
                });
            }
            Change::Bookmark(version) => {
                return Ok(Prepared {
                    key: None,
                    version: version_tracker::version(&version),
                    delta: Delta::Bookmark(version.into()),
                });
            }
        };
        let key = match self.accessor.key(&object) {
            Ok(key) => key,
            Err(error) => return Err(Rejected::new(change(object), error)),
        };
        let version = version_tracker::version_of(&self.accessor, &object);
        // If the transform fails, only the rejection of a deletion contains the object. The queue
        // keeps a second reference for this, so a transform that changes the object in place must
        // clone it.
        let kept = (is_deletion && self.transform.is_some()).then(|| Arc::clone(&object));
        match self.transformed(key, object) {
            Ok((key, object)) => Ok(Prepared {
                key,
                delta: delta(object),
                version,
            }),
            Err(error) => Err(Rejected {
                change: kept.map(change),
                error,
            }),
        }
    }

    fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        let prepared = self.prepare_change(change);
        let mut state = self.lock();
        // After a failed write, the queue also counts as populated (R2, R3).
        state.populated = true;
        let result = prepared.map(|prepared| state.put(prepared));
        self.unlock(state);
        result.map_err(|rejected| rejected.error)
    }

    /// Queues a list as one change (R7).
    fn push_list(&self, list: ReplacedAll<T>) {
        let version = ResourceVersion::from(&*list.resource_version);
        let mut state = self.lock();
        state.push(None, Delta::ReplacedAll(Arc::new(list)));
        state.versions.record_list(version);
        state.replaced();
        self.unlock(state);
    }
}

impl<T> State<T> {
    fn put(&mut self, prepared: Prepared<T>) {
        let Prepared {
            key,
            delta,
            version,
        } = prepared;
        let is_added = matches!(delta, Delta::Added(_));
        self.populated |= !matches!(delta, Delta::Bookmark(_));
        self.push(key, delta);
        self.versions.record_object(version, is_added);
    }

    fn push(&mut self, key: Option<Key>, delta: Delta<T>) {
        let since = self.versions.begin();
        self.items.push_back(Deltas::one(since, key, delta));
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
        if let Some(transform) = &self.transform {
            for object in &mut objects {
                let transformed = transform.apply(Arc::clone(object));
                *object = transformed.map_err(|message| StoreError::Transform {
                    key: self.accessor.key(object).ok(),
                    message: message.into(),
                })?;
            }
        }
        self.push_list(ReplacedAll {
            resource_version: resource_version.to_owned(),
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
        state.push(None, Delta::SyncAll);
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
        state.push(None, Delta::Bookmark(resource_version.into()));
        let version = version_tracker::version(resource_version);
        state.versions.record_event(version);
        // Use `publish`, which does not report the depth: client-go does not report it after a
        // bookmark either (R22).
        self.publish(state);
        Ok(())
    }

    /// Queues all changes under one lock and wakes one pop.
    ///
    /// # Errors
    ///
    /// The same as `add`, `update` and `delete`.
    fn apply(&self, changes: &mut VecDeque<Change<T>>) -> Result<(), Rejected<T>> {
        let mut prepared = Vec::with_capacity(changes.len());
        let mut result = Ok(());
        while let Some(change) = changes.pop_front() {
            match self.prepare_change(change) {
                Ok(change) => prepared.push(change),
                Err(rejected) => {
                    result = Err(rejected);
                    break;
                }
            }
        }
        let mut state = self.lock();
        // A write that fails also populates (R2, R3).
        state.populated |= result.is_err();
        let mut has_items = false;
        for change in prepared {
            has_items |= !matches!(change.delta, Delta::Bookmark(_));
            state.put(change);
        }
        if has_items {
            self.unlock(state);
        } else {
            self.publish(state);
        }
        result
    }

    fn staging(&self) -> Option<&dyn Staging<T>> {
        Some(self)
    }
}

impl<T: Send + Sync> Staging<T> for RealFifo<T> {
    fn key_of_name(&self, namespace: &str, name: &str) -> Option<Key> {
        self.accessor.key_of_name(namespace, name)
    }

    fn prepare(&self, object: Arc<T>) -> Result<(Key, Arc<T>), StoreError> {
        match self.prepare(object)? {
            (Some(key), object) => Ok((key, object)),
            (None, _) => Err(KeyError::new("the transform removed the key of the object").into()),
        }
    }

    /// Returns the state in the [known objects](RealFifoBuilder::known_objects).
    fn cached(&self, key: &str) -> Option<Arc<T>> {
        catch(|| self.known_objects.as_ref()?.lookup(key).ok()?).ok()?
    }

    fn is_settled(&self) -> bool {
        self.state.lock().versions.is_settled()
    }

    fn replace_staged(
        &self,
        objects: Vec<(Key, Arc<T>)>,
        gaps: Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let objects = objects.into_iter().map(|(_, object)| object).collect();
        self.push_list(ReplacedAll {
            resource_version: resource_version.to_owned(),
            objects,
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

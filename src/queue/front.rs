//! The front of each queue: the lock, the waits, the initial list, the versions and the writes. An
//! [`Accumulator`] behind it determines how the items wait.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use super::error::Processed;
use super::options::FrontOptions;
use super::timing::Timing;
use super::version_tracker::VersionTracker;
use super::{Deltas, Origin, PopError, Process, ProcessBatch, ProcessError, Watermark};
use crate::base::panic::catch;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::entry::{Applied, Delta, Door, Entry, Gaps, Staging};
use crate::metrics::Meter;
use crate::object::Accessor;
use crate::resource_version::ResourceVersion;
use crate::stop::{Done, DoneSetter};
use crate::store::{Change, KnownObjects, StoreError};

/// The waiting items of a queue: the part that differs between the queues.
pub(super) trait Accumulator {
    /// The number of waiting items.
    fn len(&self) -> usize;

    /// Whether only the thread of the pop that has just taken its items may write before the pop
    /// ends (R19).
    fn is_exclusive(&self) -> bool {
        false
    }
}

/// The waiting deltas of a queue.
pub(super) trait DeltaAccumulator<T>: Accumulator + Sized {
    /// A change that has passed the door.
    type Entered: From<Delta<T>>;

    /// The maximum number of items in a batch.
    const BATCH: usize;

    /// Removes the next item.
    fn take_one(&mut self) -> Option<Deltas<T>>;

    /// Removes up to `most` items.
    fn take(&mut self, most: usize) -> Vec<Deltas<T>>;

    /// Returns the newest waiting state of an object. Returns `None` if none waits, or if the waiting
    /// items can't be found by their key.
    fn newest(&self, key: &str) -> Option<Entry<T>>;

    /// Lets a change pass the door. Runs key functions and the transform, so no lock is
    /// held.
    ///
    /// # Errors
    ///
    /// The object has no key, or the transform fails.
    fn enter(front: &Front<T, Self>, change: Change<T>) -> Result<Self::Entered, StoreError>;

    /// Whether the queue counts as populated after a change whose object has no key.
    fn is_populated_without_key(change: &Change<T>) -> bool;

    /// Queues a change. client-go's `queueActionInternalLocked` and `addToItems_locked`.
    ///
    /// # Errors
    ///
    /// The known objects could not be read. Then the change is not queued.
    fn put(queue: &mut Locked<'_, T, Self>, change: Self::Entered) -> Result<(), StoreError>;

    /// Queues a list.
    ///
    /// # Errors
    ///
    /// The known objects could not be read. Then nothing has changed.
    fn replace(
        front: &Front<T, Self>,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError>;

    /// Queues requested deltas again, and whatever else waited for the end of a pop.
    fn settle(queue: &mut Locked<'_, T, Self>, popped: &Popped<'_, T>);
}

/// A queue of objects, whose items wait in an accumulator.
pub(super) struct Front<T, A> {
    pub(super) door: Door<T>,
    pub(super) known_objects: Option<Arc<dyn KnownObjects<T>>>,
    pub(super) timing: Timing,
    synced: DoneSetter,
    /// Guards all mutable state. [`DeltaFifo`](super::DeltaFifo) calls `KnownObjects` under this
    /// lock, so the locks of an implementation come after it. While this lock is held, no other user
    /// code runs, no object is dropped, and `synced` is not set.
    state: Mutex<State<A>>,
    /// Pops wait here until there is an item and no other pop is under way.
    /// [`publish`](Locked::publish) wakes one of them when both hold, and all of them once the queue
    /// is closed and empty. `close` also wakes all of them.
    changed: Condvar,
    /// Writers wait here until an exclusive pop has ended. Its end wakes all of them.
    exclusive_pop_ended: Condvar,
}

/// The pop of a queue. There is at most one at a time.
#[derive(Clone, Copy)]
enum Pop {
    /// Any thread may pop.
    Idle,
    /// The next pop is that of this thread. In a closed queue, the reservation does not count, so
    /// that no pop waits for a thread that has ended.
    Reserved(ThreadId),
    /// This thread runs a callback. If the pop is exclusive, the other threads must not write.
    Running { by: ThreadId, is_exclusive: bool },
}

pub(super) struct State<A> {
    pub(super) waiting: A,
    pop: Pop,
    /// Whether there has been a write or a successful replace (D2, D8).
    pub(super) populated: bool,
    /// The number of unprocessed items of the first list: those in flight, as far as their
    /// [`Flight`] counts them, and the first ones that wait.
    initial_population: usize,
    closed: bool,
    /// Tracks each item that waits or is in flight. Its sequence number is that of its oldest
    /// change.
    pub(super) versions: VersionTracker,
}

impl<A: Accumulator> State<A> {
    /// Whether no pop is reserved or running.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.pop, Pop::Idle)
    }

    /// Whether the current thread has reserved the next pop. Until that pop, it calls no user code.
    fn is_reserved_here(&self) -> bool {
        matches!(self.pop, Pop::Reserved(owner) if owner == thread::current().id())
    }

    /// Whether the initial list has been processed. Never becomes false again.
    fn is_synced(&self) -> bool {
        self.populated && self.initial_population == 0
    }

    /// Counts items that went back to the front of the queue. They belong to the initial list if
    /// they did before, or if the initial list arrived behind them.
    pub(super) fn returned_to_front(&mut self, items: usize, flight: &Flight) {
        if flight.initial > 0 || self.initial_population > 0 {
            self.initial_population += items;
        }
    }

    /// Completes a replace. If the queue was not populated, all waiting items form the initial list
    /// (R8).
    pub(super) fn replaced(&mut self) {
        if !self.populated {
            self.populated = true;
            self.initial_population = self.waiting.len();
        }
    }
}

/// The state of the queue when a pop took its items.
pub(super) struct Flight {
    pub(super) origin: Origin,
    /// How many of the items `initial_population` counts. A first list that arrives after the pop
    /// does not count them (R13).
    initial: usize,
    /// The number of items that remain in the queue.
    depth: usize,
}

/// Deltas whose callback has returned.
pub(super) struct Popped<'a, T> {
    pub(super) deltas: &'a [Deltas<T>],
    pub(super) flight: &'a Flight,
    pub(super) processed: &'a Processed,
}

/// The outcome of [`turn`](Front::turn).
enum Turn<'a, T, A> {
    /// An item waits, and the pop of this thread is the only one.
    Items(Locked<'a, T, A>),
    /// The queue is closed and empty.
    Closed,
    /// The pop was reserved, and nothing waits.
    Nothing,
}

/// A locked queue. It unlocks first and then frees what the locked section has removed, because
/// destructors are user code.
pub(super) struct Locked<'a, T, A> {
    pub(super) front: &'a Front<T, A>,
    // Rust drops the fields in this order.
    state: MutexGuard<'a, State<A>>,
    /// The objects that the locked section has removed.
    pub(super) dropped: Vec<Arc<T>>,
}

impl<T, A> Deref for Locked<'_, T, A> {
    type Target = State<A>;

    fn deref(&self) -> &State<A> {
        &self.state
    }
}

impl<T, A> DerefMut for Locked<'_, T, A> {
    fn deref_mut(&mut self) -> &mut State<A> {
        &mut self.state
    }
}

impl<T, A: Accumulator> Locked<'_, T, A> {
    /// Publishes and unlocks, then reports the depth. If this thread has reserved the next pop, that
    /// pop reports it: metrics are user code.
    pub(super) fn unlock(self) {
        let (front, is_reserved) = (self.front, self.is_reserved_here());
        let dropped = self.release();
        if !is_reserved {
            front.timing.depth(|| front.len());
        }
        drop(dropped);
    }

    /// Updates the watermark, wakes pops and unlocks. Then sets `synced` if due.
    pub(super) fn publish(self) {
        drop(self.release());
    }

    /// Publishes and returns the objects to drop. A destructor that panics must not keep the caller
    /// from its other duties, so it comes last.
    fn release(self) -> Vec<Arc<T>> {
        let Self {
            front,
            mut state,
            dropped,
        } = self;
        state.versions.publish();
        // Setting `synced` runs the callbacks of users. If this thread has reserved the next pop,
        // that pop sets it.
        let is_synced = state.is_synced() && !state.is_reserved_here();
        if state.is_idle() {
            if state.waiting.len() > 0 {
                front.changed.notify_one();
            } else if state.closed {
                front.changed.notify_all();
            }
        }
        drop(state);
        if is_synced && !front.synced.is_done() {
            front.synced.set();
        }
        dropped
    }
}

impl<T, A: Accumulator> Front<T, A> {
    /// Creates a queue. `default_name` is its name if the options have none.
    pub(super) fn new(
        accessor: Accessor<T>,
        options: FrontOptions<T>,
        default_name: &str,
        waiting: A,
    ) -> Self {
        let name = options.name.unwrap_or_else(|| default_name.to_owned());
        Self {
            door: Door::new(accessor, options.transform),
            known_objects: options.known_objects,
            synced: DoneSetter::new(name.as_str()),
            timing: Timing {
                name,
                meter: Meter::new(options.metrics),
                clock: options.clock,
            },
            state: Mutex::new(State {
                waiting,
                pop: Pop::Idle,
                populated: false,
                initial_population: 0,
                closed: false,
                versions: VersionTracker::new(),
            }),
            changed: Condvar::new(),
            exclusive_pop_ended: Condvar::new(),
        }
    }

    /// Takes the lock for a read, or for the state of a pop.
    pub(super) fn lock(&self) -> Locked<'_, T, A> {
        Locked {
            front: self,
            state: self.state.lock(),
            dropped: Vec::new(),
        }
    }

    /// Takes the lock for a write, after any exclusive pop of another thread has ended.
    pub(super) fn lock_for_write(&self) -> Locked<'_, T, A> {
        let mut queue = self.lock();
        while matches!(queue.pop, Pop::Running { by, is_exclusive: true } if by != thread::current().id())
        {
            self.exclusive_pop_ended.wait(&mut queue.state);
        }
        queue
    }

    /// Records the version of a change that is not queued.
    pub(super) fn skipped(&self, version: Option<ResourceVersion>) {
        let mut queue = self.lock();
        queue.versions.record_event(version);
        queue.publish();
    }

    /// See [`Sealed::reserve_if_empty`](super::Sealed::reserve_if_empty).
    pub(super) fn reserve_if_empty(&self) -> bool {
        self.reserve_if(|waiting| waiting == 0)
    }

    /// See [`Sealed::reserve_next`](super::Sealed::reserve_next).
    pub(super) fn reserve_next(&self) -> bool {
        self.reserve_if(|waiting| waiting > 0)
    }

    /// Reserves the next pop. Until that pop, no other thread is woken.
    fn reserve_if(&self, condition: impl FnOnce(usize) -> bool) -> bool {
        let mut queue = self.lock();
        let reserves = queue.is_idle() && condition(queue.waiting.len());
        if reserves {
            queue.pop = Pop::Reserved(thread::current().id());
        }
        reserves
    }

    /// Waits until this thread may pop.
    fn turn(&self, this: ThreadId) -> Turn<'_, T, A> {
        let mut queue = self.lock();
        loop {
            match queue.pop {
                Pop::Idle if queue.waiting.len() > 0 => return Turn::Items(queue),
                Pop::Idle if queue.closed => return Turn::Closed,
                // This is the reserved pop. Other pops may have waited for its end.
                Pop::Reserved(owner) if owner == this => {
                    queue.pop = Pop::Idle;
                    if queue.waiting.len() > 0 {
                        return Turn::Items(queue);
                    }
                    queue.publish();
                    return Turn::Nothing;
                }
                // The owner may never pop. If it does, it waits for this pop like any other.
                Pop::Reserved(_) if queue.closed => queue.pop = Pop::Idle,
                Pop::Running { by, .. } if by == this => {
                    drop(queue);
                    // A pop inside a callback would wait for itself. The panic becomes the error of
                    // the outer pop.
                    panic!("a process callback must not pop from its queue");
                }
                Pop::Idle | Pop::Reserved(_) | Pop::Running { .. } => {
                    self.changed.wait(&mut queue.state);
                }
            }
        }
    }

    /// Waits for items and begins their flight. `take` removes up to the given number of items:
    /// either all of them belong to the initial list or none. It returns `None` if it removed items
    /// that need no processing. Returns `None` if the queue is closed and empty, or if a reserved pop
    /// finds nothing.
    pub(super) fn take<P>(
        &self,
        most: usize,
        take: impl Fn(&mut A, usize) -> Option<P>,
    ) -> Option<(P, Flight)> {
        let this = thread::current().id();
        loop {
            let mut queue = match self.turn(this) {
                Turn::Items(queue) => queue,
                // The thread of a reserved pop does not wait, whatever the reason.
                Turn::Closed | Turn::Nothing => return None,
            };
            let origin = match queue.is_synced() {
                true => Origin::Later,
                false => Origin::InitialList,
            };
            let before = queue.waiting.len();
            // The items of the initial list are the first ones.
            let most = match queue.initial_population {
                0 => most,
                initial => most.min(initial),
            };
            let popped = take(&mut queue.waiting, most);
            let depth = queue.waiting.len();
            let initial = queue.initial_population.min(before - depth);
            let Some(popped) = popped else {
                queue.initial_population -= initial;
                queue.unlock();
                continue;
            };
            queue.pop = Pop::Running {
                by: this,
                is_exclusive: queue.waiting.is_exclusive(),
            };
            drop(queue);
            self.timing.depth(|| self.len());
            let flight = Flight {
                origin,
                initial,
                depth,
            };
            return Some((popped, flight));
        }
    }

    /// Ends a flight. `finish` runs under the lock.
    pub(super) fn finish(&self, flight: &Flight, finish: impl FnOnce(&mut Locked<'_, T, A>)) {
        let mut queue = self.lock();
        if let Pop::Running {
            is_exclusive: true, ..
        } = queue.pop
        {
            self.exclusive_pop_ended.notify_all();
        }
        queue.pop = Pop::Idle;
        queue.initial_population -= flight.initial;
        finish(&mut queue);
        queue.unlock();
    }

    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    pub(super) fn synced(&self) -> Done {
        self.synced.signal()
    }

    pub(super) fn processed(&self) -> Watermark {
        self.lock().versions.watermark()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

impl<T, A: DeltaAccumulator<T>> Front<T, A> {
    /// Queues a change of an object.
    pub(super) fn write(&self, change: Change<T>) -> Result<(), StoreError> {
        let populates = A::is_populated_without_key(&change);
        let entered = A::enter(self, change);
        let mut queue = self.lock_for_write();
        let result = entered.and_then(|change| A::put(&mut queue, change));
        // A write that failed for another reason also counts (D2, R2, R3).
        queue.populated |= populates || !matches!(result, Err(StoreError::Key(_)));
        queue.unlock();
        result
    }

    pub(super) fn pop(
        &self,
        process: &mut Process<'_, T>,
    ) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        let take = |waiting: &mut A, _| Some([waiting.take_one()?]);
        let process = |deltas: &[_], origin| process(&deltas[0], origin);
        let popped = self.pop_some(1, take, process);
        let popped = popped.map(|[deltas]| deltas);
        popped.map_err(|error| error.map(|[deltas]| deltas))
    }

    pub(super) fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let take = |waiting: &mut A, most| Some(waiting.take(most));
        let process = |deltas: &[_], origin| match deltas {
            [deltas] => process(deltas, origin),
            batch => process_batch(batch, origin),
        };
        self.pop_some(A::BATCH, take, process)
    }

    /// Takes deltas, runs the callback without the lock, and ends the flight.
    fn pop_some<P: AsRef<[Deltas<T>]>>(
        &self,
        most: usize,
        take: impl Fn(&mut A, usize) -> Option<P>,
        process: impl FnOnce(&[Deltas<T>], Origin) -> Result<(), ProcessError>,
    ) -> Result<P, PopError<P>> {
        // The queue is closed and empty, or a reserved pop found nothing.
        let (popped, flight) = self.take(most, take).ok_or(PopError::Closed)?;
        let deltas = popped.as_ref();
        let key = deltas.first().and_then(Deltas::key);
        let run = || catch(|| process(deltas, flight.origin));
        let processed = Processed::from(self.timing.run(deltas.len(), key, flight.depth, run));
        self.finish(&flight, |queue| {
            // Requested deltas are tracked until they have been processed. All others have been
            // processed now, even if their callback failed.
            if !processed.is_requeued() {
                for deltas in deltas {
                    queue.versions.end(deltas.since);
                }
            }
            let popped = Popped {
                deltas,
                flight: &flight,
                processed: &processed,
            };
            A::settle(queue, &popped);
        });
        processed.into_result(popped)
    }
}

impl<T: Send + Sync, A: DeltaAccumulator<T> + Send> Staging<T> for Front<T, A> {
    fn door(&self) -> &Door<T> {
        &self.door
    }

    /// Returns the newest queued state of the object, if the queue finds it by its key. Otherwise
    /// returns the state in the known objects.
    fn known(&self, key: &str) -> Option<Entry<T>> {
        let queued = self.lock().waiting.newest(key);
        queued.or_else(|| catch(|| self.known_objects.as_ref()?.entry(key)).ok()?)
    }

    fn is_settled(&self) -> bool {
        self.lock().versions.is_settled()
    }

    fn skipped(&self, version: Option<ResourceVersion>) {
        self.skipped(version);
    }

    /// Queues the changes under one lock and wakes one pop.
    fn apply_entries(&self, changes: &mut Vec<Delta<T>>) -> Applied {
        let (mut applied, mut has_items) = (Applied::default(), false);
        let mut queue = self.lock_for_write();
        for delta in changes.drain(..) {
            has_items |= !matches!(delta, Delta::Bookmark(_));
            let rejected = A::put(&mut queue, delta.into()).err();
            applied.rejected.extend(rejected);
        }
        if has_items {
            queue.unlock();
        } else {
            // A bookmark does not report the depth (R22).
            queue.publish();
        }
        applied
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<Applied, StoreError> {
        A::replace(self, entries, gaps, resource_version)?;
        Ok(Applied::default())
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::thread;

    use super::*;
    use crate::queue::{DeltaFifo, Queue, RealFifo};

    fn queues() -> [(&'static str, Arc<dyn Queue<u32>>); 2] {
        let accessor = || Accessor::new(|number: &u32| Ok(number.to_string().into()));
        [
            ("DeltaFifo", Arc::new(DeltaFifo::new(accessor()))),
            ("RealFifo", Arc::new(RealFifo::new(accessor()))),
        ]
    }

    #[test]
    fn reserved_pop_of_an_empty_queue_is_as_if_closed() {
        for (name, queue) in queues() {
            assert!(
                queue.reserve_if_empty() && !queue.reserve_if_empty(),
                "{name}"
            );
            let popped = queue.pop(&mut |_, _| Ok(()));
            assert!(matches!(popped, Err(PopError::Closed)), "{name}");
            queue.add(Arc::new(1)).unwrap();
            assert!(!queue.reserve_if_empty() && queue.reserve_next(), "{name}");
            assert_eq!(queue.pop(&mut |_, _| Ok(())).unwrap().len(), 1, "{name}");
        }
    }

    /// The thread that reserves a pop may end without it, for example after a panic. No reservation
    /// is given back then, so a closed queue does not wait for it.
    #[test]
    fn closed_queue_does_not_wait_for_a_reservation() {
        for (name, queue) in queues() {
            let reserved = thread::scope(|scope| {
                let reserves = scope.spawn(|| queue.reserve_if_empty());
                reserves.join().unwrap()
            });
            assert!(reserved, "{name}");
            queue.add(Arc::new(1)).unwrap();
            queue.close();
            queue.pop(&mut |_, _| Ok(())).unwrap();
            let closed = queue.pop(&mut |_, _| Ok(()));
            assert!(matches!(closed, Err(PopError::Closed)), "{name}");
        }
    }
}

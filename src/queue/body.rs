//! What all queues have in common: the lock, the waits, the initial list and the versions.

use std::sync::Arc;

use super::error::Processed;
use super::timing::Timing;
use super::version_tracker::VersionTracker;
use super::{Deltas, PopError, Process, ProcessBatch, ProcessError};
use crate::base::panic::catch;
use crate::base::sync::thread::{self, ThreadId};
use crate::base::sync::{Condvar, Mutex, MutexGuard};
use crate::metrics::Meter;
use crate::object::Accessor;
use crate::stop::Done;
use crate::store::{Door, KnownObjects};
use crate::time::RealClock;

/// How the items of a queue wait. This is what differs between the queues.
pub(super) trait Accumulator {
    /// The number of waiting items.
    fn len(&self) -> usize;
}

/// How the deltas of a queue wait.
pub(super) trait DeltaAccumulator<T>: Accumulator {
    fn take_one(&mut self) -> Option<Deltas<T>>;

    /// Removes up to `most` items.
    fn take(&mut self, most: usize) -> Vec<Deltas<T>>;
}

/// A queue of objects without its accumulator and its writes.
pub(super) struct Body<T, A> {
    pub(super) door: Door<T>,
    pub(super) known_objects: Option<Arc<dyn KnownObjects<T>>>,
    pub(super) timing: Timing,
    synced: Done,
    /// Guards all mutable state. [`DeltaFifo`](super::DeltaFifo) calls `KnownObjects` under this
    /// lock, so the locks of an implementation come after it. While this lock is held, no other user
    /// code runs, no object is dropped, and `synced` is not set.
    state: Mutex<State<A>>,
    /// Pops wait here until there is an item and nothing is in flight. [`publish`](Self::publish)
    /// wakes one of them when both hold, and all of them once the queue is closed and empty. `close`
    /// also wakes all of them.
    changed: Condvar,
}

/// A pop that is in flight. There is at most one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum InFlight {
    /// The next pop is that of this thread. It does not count in a closed queue, so that no pop
    /// waits for a thread that has ended.
    Reserved(ThreadId),
    /// This thread runs a callback.
    Running(ThreadId),
}

pub(super) struct State<A> {
    pub(super) waiting: A,
    /// The pop that no other one may overtake.
    pub(super) in_flight: Option<InFlight>,
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
    /// Whether the current thread has reserved the next pop. Until that pop, it calls no user code.
    fn is_reserved_here(&self) -> bool {
        matches!(self.in_flight, Some(InFlight::Reserved(owner)) if owner == thread::current().id())
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
    pub(super) is_in_initial_list: bool,
    /// How many of the items `initial_population` counts. A first list that arrives after the pop
    /// does not count them (R13).
    initial: usize,
    /// The number of items that remain in the queue.
    depth: usize,
}

impl<T, A: Accumulator> Body<T, A> {
    pub(super) fn new(accessor: Accessor<T>, name: &str, waiting: A) -> Self {
        Self {
            door: Door::new(accessor, None),
            known_objects: None,
            timing: Timing {
                name: name.to_owned(),
                meter: Meter::new(None),
                clock: Arc::new(RealClock),
            },
            synced: Done::new(name),
            state: Mutex::new(State {
                waiting,
                in_flight: None,
                populated: false,
                initial_population: 0,
                closed: false,
                versions: VersionTracker::default(),
            }),
            changed: Condvar::new(),
        }
    }

    pub(super) fn set_name(&mut self, name: String) {
        self.synced = Done::new(name.as_str());
        self.timing.name = name;
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<A>> {
        self.state.lock()
    }

    /// Publishes and unlocks, then reports the depth. If this thread has reserved the next pop, that
    /// pop reports it: metrics are user code.
    pub(super) fn unlock(&self, state: MutexGuard<'_, State<A>>) {
        let is_reserved = state.is_reserved_here();
        self.publish(state);
        if !is_reserved {
            self.timing.depth(|| self.len());
        }
    }

    /// Records the version of a change that is not queued.
    pub(super) fn skipped(&self, version: &str) {
        let mut state = self.lock();
        state.versions.record_event(Some(version.into()));
        self.publish(state);
    }

    /// Updates the watermark, wakes pops and unlocks. Then sets `synced` if due. If this thread has
    /// reserved the next pop, that pop sets it: this runs the callbacks of users.
    pub(super) fn publish(&self, mut state: MutexGuard<'_, State<A>>) {
        state.versions.publish();
        let is_synced = state.is_synced() && !state.is_reserved_here();
        if state.in_flight.is_none() {
            if state.waiting.len() > 0 {
                self.changed.notify_one();
            } else if state.closed {
                self.changed.notify_all();
            }
        }
        drop(state);
        if is_synced && !self.synced.is_done() {
            self.synced.set();
        }
    }

    /// See [`Sealed::reserve`](super::Sealed::reserve). Until the pop, no other thread is woken.
    pub(super) fn reserve(&self, empty: bool) -> bool {
        let mut state = self.lock();
        let reserves = state.in_flight.is_none() && (state.waiting.len() == 0) == empty;
        if reserves {
            state.in_flight = Some(InFlight::Reserved(thread::current().id()));
        }
        reserves
    }

    /// Waits until an item waits and no callback runs. Returns `None` once the queue is closed and
    /// empty, or if a reserved pop finds nothing.
    fn turn(&self, this: ThreadId) -> Option<MutexGuard<'_, State<A>>> {
        let mut state = self.lock();
        loop {
            match state.in_flight {
                None if state.waiting.len() > 0 => return Some(state),
                None if state.closed => return None,
                // This is the reserved pop. Other pops may have waited for its end.
                Some(InFlight::Reserved(owner)) if owner == this => {
                    state.in_flight = None;
                    if state.waiting.len() > 0 {
                        return Some(state);
                    }
                    self.publish(state);
                    return None;
                }
                // The owner may never pop. If it does, it waits for this pop like any other.
                Some(InFlight::Reserved(_)) if state.closed => state.in_flight = None,
                Some(InFlight::Running(owner)) if owner == this => {
                    drop(state);
                    // A pop inside a callback would wait for itself. The panic becomes the error of
                    // the outer pop.
                    panic!("a process callback must not pop from its queue");
                }
                _ => self.changed.wait(&mut state),
            }
        }
    }

    /// Waits for items and begins their flight. `take` removes up to the given number of items:
    /// either all of them belong to the initial list or none. It returns `None` if it removed items
    /// that need no processing. Returns `None` in the cases of [`turn`](Self::turn).
    pub(super) fn take<P>(
        &self,
        most: usize,
        take: impl Fn(&mut A, usize) -> Option<P>,
    ) -> Option<(P, Flight)> {
        let this = thread::current().id();
        loop {
            let mut state = self.turn(this)?;
            let is_in_initial_list = !state.is_synced();
            let before = state.waiting.len();
            let popped = match state.initial_population {
                0 => take(&mut state.waiting, most),
                initial => take(&mut state.waiting, most.min(initial)),
            };
            let depth = state.waiting.len();
            let initial = state.initial_population.min(before - depth);
            let Some(popped) = popped else {
                state.initial_population -= initial;
                self.unlock(state);
                continue;
            };
            state.in_flight = Some(InFlight::Running(this));
            drop(state);
            self.timing.depth(|| self.len());
            let flight = Flight {
                is_in_initial_list,
                initial,
                depth,
            };
            return Some((popped, flight));
        }
    }

    /// Ends a flight. `finish` runs under the lock; its result is dropped without the lock.
    pub(super) fn finish<R>(&self, flight: &Flight, finish: impl FnOnce(&mut State<A>) -> R) {
        let mut state = self.lock();
        state.in_flight = None;
        state.initial_population -= flight.initial;
        let old = finish(&mut state);
        self.unlock(state);
        drop(old);
    }

    pub(super) fn len(&self) -> usize {
        self.lock().waiting.len()
    }

    pub(super) fn synced(&self) -> Done {
        self.synced.clone()
    }

    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }
}

impl<T, A: DeltaAccumulator<T>> Body<T, A> {
    pub(super) fn pop<R>(
        &self,
        process: &mut Process<'_, T>,
        finish: impl FnOnce(&mut State<A>, Popped<'_, T>) -> R,
    ) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        let take = |waiting: &mut A, _| Some([waiting.take_one()?]);
        let process = |deltas: &[_], is_in_initial_list| process(&deltas[0], is_in_initial_list);
        let popped = self.pop_some(1, take, process, finish);
        let popped = popped.map(|[deltas]| deltas);
        popped.map_err(|error| error.map(|[deltas]| deltas))
    }

    pub(super) fn pop_batch<R>(
        &self,
        most: usize,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
        finish: impl FnOnce(&mut State<A>, Popped<'_, T>) -> R,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let take = |waiting: &mut A, most| Some(waiting.take(most));
        let process = |deltas: &[_], is_in_initial_list| match deltas {
            [deltas] => process(deltas, is_in_initial_list),
            batch => process_batch(batch, is_in_initial_list),
        };
        self.pop_some(most, take, process, finish)
    }

    /// Takes deltas, runs the callback without the lock, and ends the flight. `finish` runs under the
    /// lock. It queues requested deltas again; all others have been processed.
    fn pop_some<P: AsRef<[Deltas<T>]>, R>(
        &self,
        most: usize,
        take: impl Fn(&mut A, usize) -> Option<P>,
        process: impl FnOnce(&[Deltas<T>], bool) -> Result<(), ProcessError>,
        finish: impl FnOnce(&mut State<A>, Popped<'_, T>) -> R,
    ) -> Result<P, PopError<P>> {
        let (popped, flight) = self.take(most, take).ok_or(PopError::Closed)?;
        let deltas = popped.as_ref();
        let key = deltas.first().and_then(Deltas::key);
        let run = || catch(|| process(deltas, flight.is_in_initial_list));
        let processed = Processed::from(self.timing.run(deltas.len(), key, flight.depth, run));
        self.finish(&flight, |state| {
            if !processed.is_requeued() {
                for deltas in deltas {
                    state.versions.end(deltas.since);
                }
            }
            let (flight, processed) = (&flight, &processed);
            finish(
                state,
                Popped {
                    deltas,
                    flight,
                    processed,
                },
            )
        });
        processed.into_result(popped)
    }
}

/// Deltas whose callback has returned.
pub(super) struct Popped<'a, T> {
    pub(super) deltas: &'a [Deltas<T>],
    pub(super) flight: &'a Flight,
    pub(super) processed: &'a Processed,
}

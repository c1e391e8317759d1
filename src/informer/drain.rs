//! The second half of a pipeline: from the queue to the cache and the handlers.

use std::slice;
use std::sync::Arc;

use super::process::Reports;
use crate::base::panic::{self, Panicked};
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::log;
use crate::object::Object;
use crate::queue::{
    BoxError, Delta, Deltas, Failure, Origin, PopError, ProcessError, Queue, Requeue,
};
use crate::reflector::Reflector;
use crate::stop::Stop;
use crate::store::SlowTransaction;

/// Processes what a [`Drain`] has popped: the callbacks of a [`Controller`](super::Controller), or the
/// cache and the handlers of an informer.
pub(super) trait Outlet<T>: Send {
    /// Processes the changes of one object, or of several if it takes [batches](Items::Batches). Adds
    /// what is to be reported after the pop to `reports`. `stop` ends the run.
    fn process(
        &mut self,
        items: &[Deltas<T>],
        origin: Origin,
        reports: &mut Reports,
        stop: &Stop,
    ) -> Result<(), ProcessError>;

    /// Called when the queue is empty, if one thread does everything.
    fn deliver_waiting(&mut self) {}
}

/// What a call of an [`Outlet`] receives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Items {
    /// The changes of one object.
    One,
    /// Those of as many objects as the queue returns together.
    Batches,
}

/// Pops changes from the queue and passes them to the outlet. client-go's `processLoop`.
///
/// The right to pop is the lock of the drain: the queue has at most one pop at a time, and the
/// process thread sleeps in it.
pub(super) struct Drain<T> {
    name: Arc<str>,
    queue: Arc<dyn Queue<T>>,
    reflector: Reflector<T>,
    items: Items,
    /// `None` during a call, because an outlet calls user code, and no lock is held then. An innermost
    /// lock.
    outlet: Mutex<Option<Box<dyn Outlet<T>>>>,
    /// The events of the last pops, until one of the threads reports them. An innermost lock.
    unreported: Mutex<Vec<Unreported>>,
}

/// The outcome of a step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Drained {
    /// The next items have been processed.
    Processed,
    /// The queue is closed and empty, or nothing waited for a reserved pop.
    Closed,
    /// The queue has panicked.
    Failed,
}

/// An event that is reported after the pop: loggers and callbacks may block, and must not delay the
/// other pops and the writers of the queue.
enum Unreported {
    /// The cache lacks the newest state of an object, or has it without values in an index.
    Object(Error),
    /// The event is about no object, so the cache lacks none.
    Other(String),
    /// The event is processed again.
    Requeued(String),
    Slow(SlowTransaction),
}

/// What an outlet did with one item.
enum ItemOutcome<'a> {
    Done,
    /// These errors are about single objects of a list. The others have been processed.
    Partly(Vec<&'a BoxError>),
    Failed(&'a BoxError),
    Requeued(&'a Requeue),
}

impl<T: Object> Drain<T> {
    pub(super) fn new(
        name: Arc<str>,
        queue: Arc<dyn Queue<T>>,
        reflector: Reflector<T>,
        items: Items,
        outlet: Box<dyn Outlet<T>>,
    ) -> Self {
        Self {
            name,
            queue,
            reflector,
            items,
            outlet: Mutex::new(Some(outlet)),
            unreported: Mutex::default(),
        }
    }

    /// Processes the next items of the queue, and waits for them unless this thread has reserved the
    /// pop. Then reports what happened.
    pub(super) fn step(&self, stop: &Stop) -> Drained {
        let drained = self.pop(stop);
        self.report();
        drained
    }

    /// Processes everything that waits in the queue, and lets the outlet deliver. Then reports what
    /// happened: everything that was read has been delivered, as callbacks may expect.
    pub(super) fn process_waiting(&self, stop: &Stop) -> Drained {
        let mut drained = Drained::Processed;
        while !stop.is_stopped() && drained == Drained::Processed && self.queue.reserve_next() {
            drained = self.pop(stop);
        }
        if let Err(panic) = self.call(|outlet| outlet.deliver_waiting()) {
            log::error!("{}: the delivery {panic}", self.name);
        }
        self.report();
        drained
    }

    /// Ends the drain. The destructors of callbacks and handlers are user code.
    pub(super) fn end(self) {
        let (name, outlet) = (self.name, self.outlet);
        if let Err(panic) = panic::catch(|| drop(outlet)) {
            log::error!("{name}: the destructor of a callback {panic}");
        }
    }

    /// Takes the drain for this thread if no other thread is in it and nothing waits in the queue.
    pub(super) fn try_reserve<'d>(&'d self, stop: &'d Stop) -> Option<ReservedStep<'d, T>> {
        let is_reserved = self.queue.reserve_if_empty();
        is_reserved.then(|| ReservedStep { drain: self, stop })
    }

    fn pop(&self, stop: &Stop) -> Drained {
        // The destructors of popped objects are user code.
        match panic::catch(|| self.pop_items(stop)) {
            // `record` has recorded the error of a callback.
            Ok(Ok(()) | Err(PopError::Process { .. })) => Drained::Processed,
            Ok(Err(PopError::Closed)) => Drained::Closed,
            Err(panic) => {
                log::error!("{}: the queue {panic}", self.name);
                Drained::Failed
            }
        }
    }

    fn pop_items(&self, stop: &Stop) -> Result<(), PopError<()>> {
        let one = &mut |deltas: &Deltas<T>, origin: Origin| {
            self.process(slice::from_ref(deltas), origin, stop)
        };
        match self.items {
            Items::Batches => {
                let batch =
                    &mut |items: &[Deltas<T>], origin: Origin| self.process(items, origin, stop);
                let popped = self.queue.pop_batch(batch, one);
                popped.map(drop).map_err(|error| error.map(drop))
            }
            Items::One => {
                let popped = self.queue.pop(one);
                popped.map(drop).map_err(|error| error.map(drop))
            }
        }
    }

    /// Passes items to the outlet and records the outcome, within the pop. The queue counts the items
    /// as processed after this method, so waits and the status see the outcome.
    fn process(
        &self,
        items: &[Deltas<T>],
        origin: Origin,
        stop: &Stop,
    ) -> Result<(), ProcessError> {
        let mut reports = Reports::default();
        // A panic of a callback is the error of its items.
        let called = self.call(|outlet| outlet.process(items, origin, &mut reports, stop));
        let result = called.unwrap_or_else(|panic| Err(panic.into()));
        let mut unreported: Vec<_> = reports.slow.map(Unreported::Slow).into_iter().collect();
        for error in reports.unindexed {
            let error = Error::other(error.to_string());
            self.reflector.unindexed(&error);
            unreported.push(Unreported::Object(error));
        }
        self.record(items, &result, &mut unreported);
        if !unreported.is_empty() {
            self.unreported.lock().append(&mut unreported);
        }
        result
    }

    /// Calls the outlet, without a lock.
    fn call<R>(&self, call: impl FnOnce(&mut dyn Outlet<T>) -> R) -> Result<R, Panicked> {
        let Some(mut outlet) = self.outlet.lock().take() else {
            unreachable!(
                "a call is within a pop or between two of them, and there is one pop at a time"
            )
        };
        let called = panic::catch(|| call(&mut *outlet));
        *self.outlet.lock() = Some(outlet);
        called
    }

    /// Records which objects could not be processed, and which ones could after all.
    fn record(
        &self,
        items: &[Deltas<T>],
        result: &Result<(), ProcessError>,
        unreported: &mut Vec<Unreported>,
    ) {
        // The usual case: nothing is missing, so nothing changes.
        if result.is_ok() && self.reflector.missing().is_empty() {
            return;
        }
        for (position, deltas) in items.iter().enumerate() {
            match outcome_of(position, result) {
                ItemOutcome::Done => self.record_success(deltas),
                ItemOutcome::Partly(errors) => {
                    unreported.extend(errors.iter().map(|error| self.record_error(deltas, error)));
                    self.record_partly(deltas);
                }
                ItemOutcome::Failed(error) => unreported.push(self.record_error(deltas, error)),
                // The items have been neither processed nor rejected. They have one reason.
                ItemOutcome::Requeued(requeue) if position == 0 => {
                    unreported.extend(requeued(deltas, requeue));
                }
                ItemOutcome::Requeued(_) => {}
            }
        }
    }

    /// Records that an item was not processed.
    fn record_error(&self, deltas: &Deltas<T>, error: &BoxError) -> Unreported {
        let key = deltas.key();
        let text = match key {
            Some(key) => format!("an event was lost: {key}: {error}"),
            None => format!("an event was lost: {error}"),
        };
        match deltas.newest() {
            // The cache lacks no object after this.
            None | Some(Delta::SyncAll | Delta::Bookmark(_)) => Unreported::Other(text),
            Some(newest) => {
                let (version, error) = (newest.version().cloned(), Error::other(text));
                self.reflector.rejected(key.cloned(), version, &error);
                Unreported::Object(error)
            }
        }
    }

    /// Records that an item was processed.
    fn record_success(&self, deltas: &Deltas<T>) {
        let missing = self.reflector.missing();
        match deltas.newest() {
            None | Some(Delta::SyncAll | Delta::Bookmark(_)) => {}
            Some(Delta::ReplacedAll(_)) => missing.accepted_list(|_| false),
            // A resync may deliver an older state than the rejected one.
            Some(Delta::Sync(entry)) => {
                missing.accepted_resync(&entry.key, entry.version.as_ref());
            }
            Some(_) => {
                if let Some(key) = deltas.key() {
                    missing.accepted(key);
                }
            }
        }
    }

    /// Records that a list was processed, except for objects without a key.
    fn record_partly(&self, deltas: &Deltas<T>) {
        // The empty key stands for objects without a key, and for those beyond the limit.
        if let Some(Delta::ReplacedAll(_)) = deltas.newest() {
            let missing = self.reflector.missing();
            missing.accepted_list(|key| key.is_empty());
        }
    }

    /// Passes events to the log and the callbacks. No pop is under way.
    fn report(&self) {
        let unreported = std::mem::take(&mut *self.unreported.lock());
        for event in unreported {
            match event {
                Unreported::Object(error) => self.reflector.notify_rejected(&error),
                Unreported::Other(text) => log::error!("{}: {text}", self.name),
                // A callback may request its items again and again, without a pause.
                Unreported::Requeued(text) => log::debug!("{}: {text}", self.name),
                Unreported::Slow(slow) => slow.log(),
            }
        }
    }
}

/// A drain that this thread has taken, so that no other thread pops. The step happens on drop, so the
/// drain is given back whatever happens. Before it there is only a write to the queue: user code may
/// block, and would hold up everything that waits in the queue.
pub(super) struct ReservedStep<'d, T: Object> {
    drain: &'d Drain<T>,
    stop: &'d Stop,
}

impl<T: Object> Drop for ReservedStep<'_, T> {
    fn drop(&mut self) {
        // A panic of the queue has been logged. The process thread takes what is left.
        let _ = self.drain.step(self.stop);
    }
}

/// Returns the outcome of the item at this position of a batch.
fn outcome_of(position: usize, result: &Result<(), ProcessError>) -> ItemOutcome<'_> {
    match result {
        Ok(()) => ItemOutcome::Done,
        Err(ProcessError(Failure::All(error))) => ItemOutcome::Failed(error),
        Err(ProcessError(Failure::Requeue(requeue))) => ItemOutcome::Requeued(requeue),
        Err(ProcessError(Failure::Some(failed))) => {
            let errors: Vec<_> = failed.of(position).collect();
            match errors.is_empty() {
                true => ItemOutcome::Done,
                false => ItemOutcome::Partly(errors),
            }
        }
    }
}

/// Returns why a callback requests its items again, if it gives a reason.
fn requeued<T>(first: &Deltas<T>, requeue: &Requeue) -> Option<Unreported> {
    let reason = requeue.reason.as_ref()?;
    let first = first.key().map_or("an event", |key| key);
    let text = format!("{first} is processed again: {reason}");
    Some(Unreported::Requeued(text))
}

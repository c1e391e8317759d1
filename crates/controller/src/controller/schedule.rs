//! When the named handlers of each key run.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::outcome::{Failure, Next};
use k8s_informer::object::Key;

/// The times at which the handlers of each key are due, and their last failures.
///
/// This is plain data for use under a lock: no method blocks or calls user code. Values that it
/// removes are returned, so that their destructors run without the lock.
#[derive(Default)]
pub(super) struct Schedule {
    /// A tree gives its memory back after a peak.
    keys: BTreeMap<Key, Entry>,
}

/// The state of a key. A key without an entry is due: all its handlers run.
#[derive(Default)]
struct Entry {
    /// When all handlers are due, because of a change or a delayed request.
    all: Option<Instant>,
    /// The handlers that have failed or that wait for a time, by their positions.
    handlers: BTreeMap<usize, Waiting>,
}

#[derive(Clone, Default)]
pub(super) struct Waiting {
    /// `None` if the handler waits for the next change.
    due: Option<Instant>,
    /// The failed calls in a row.
    pub(super) failures: usize,
    pub(super) failure: Option<Failure>,
}

/// The handlers of a key that run now.
#[derive(Default)]
pub(super) struct Due {
    /// Whether all handlers run.
    pub(super) is_all: bool,
    handlers: BTreeMap<usize, Waiting>,
    /// The time of a delayed request that is not due yet.
    later: Option<Instant>,
}

impl Schedule {
    /// All handlers of a key are due at a time.
    pub(super) fn all_at(&mut self, key: &Key, at: Instant) {
        let all = &mut self.keys.entry(Key::clone(key)).or_default().all;
        *all = earlier(*all, Some(at));
    }

    /// Begins a run of a key.
    pub(super) fn take(&mut self, key: &Key, now: Instant) -> Due {
        let Some(entry) = self.keys.remove(key) else {
            return Due {
                is_all: true,
                ..Due::default()
            };
        };
        let is_all = entry.all.is_some_and(|all| all <= now);
        Due {
            is_all,
            handlers: entry.handlers,
            later: entry.all.filter(|_| !is_all),
        }
    }

    /// Ends a run of a key. Returns the time of the next one, unless a change causes it earlier.
    pub(super) fn put(&mut self, key: &Key, due: Due) -> Option<Instant> {
        if due.handlers.is_empty() && due.later.is_none() {
            return None;
        }
        let times = due.handlers.values().filter_map(|waiting| waiting.due);
        let next = times.chain(due.later).min();
        // A change during the run has created a new entry.
        let entry = self.keys.entry(Key::clone(key)).or_default();
        entry.all = earlier(entry.all, due.later);
        entry.handlers = due.handlers;
        next
    }
}

impl Due {
    /// Whether a handler runs.
    pub(super) fn is_due(&self, handler: usize, now: Instant) -> bool {
        let due = self.handlers.get(&handler).and_then(|waiting| waiting.due);
        self.is_all || due.is_some_and(|due| due <= now)
    }

    /// Whether a handler waits for its time, or for the next change.
    pub(super) fn is_waiting(&self, handler: usize, now: Instant) -> bool {
        let waits = |waiting: &Waiting| waiting.due.is_none_or(|due| due > now);
        !self.is_all && self.handlers.get(&handler).is_some_and(waits)
    }

    /// Lets a handler run at a time.
    pub(super) fn run_at(&mut self, handler: usize, at: Instant) {
        self.handlers.entry(handler).or_default().due = Some(at);
    }

    /// Lets a handler that is due wait until another one is due again.
    pub(super) fn wait_for(&mut self, handler: usize, other: usize) {
        let due = self.handlers.get(&other).and_then(|other| other.due);
        self.handlers.entry(handler).or_default().due = due;
    }

    /// Returns the number of failed calls in a row of a handler.
    pub(super) fn failures(&self, handler: usize) -> usize {
        self.handlers
            .get(&handler)
            .map_or(0, |waiting| waiting.failures)
    }

    /// Sets the outcome of a handler that ran. `retry` is the time after a failure. Returns the
    /// replaced state.
    pub(super) fn ran(
        &mut self,
        handler: usize,
        result: Result<Next, Failure>,
        now: Instant,
        retry: Duration,
    ) -> Option<Waiting> {
        let waiting = match result {
            Ok(Next::Done) => return self.handlers.remove(&handler),
            Ok(Next::After(delay)) => Waiting {
                due: now.checked_add(delay),
                ..Waiting::default()
            },
            Err(failure) => Waiting {
                due: (!failure.is_terminal())
                    .then(|| now.checked_add(retry))
                    .flatten(),
                failures: self.failures(handler).saturating_add(1),
                failure: Some(failure),
            },
        };
        self.handlers.insert(handler, waiting)
    }

    /// Removes the handlers that wait for the next change, because the object is gone. Returns
    /// their states.
    pub(super) fn forget_waiting(&mut self) -> BTreeMap<usize, Waiting> {
        let handlers = std::mem::take(&mut self.handlers).into_iter();
        let (due, forgotten) = handlers.partition(|(_, waiting)| waiting.due.is_some());
        self.handlers = due;
        forgotten
    }

    /// Returns the handlers whose last call failed, with their failures.
    pub(super) fn failing(&self) -> impl Iterator<Item = (usize, &Failure)> {
        let handlers = self.handlers.iter();
        handlers.filter_map(|(&handler, waiting)| Some((handler, waiting.failure.as_ref()?)))
    }
}

fn earlier(one: Option<Instant>, other: Option<Instant>) -> Option<Instant> {
    one.into_iter().chain(other).min()
}

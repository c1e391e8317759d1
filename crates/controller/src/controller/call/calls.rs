//! The calls of a controller in one term: which of them run, and how they ended.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ::log::Level;
use parking_lot::Mutex;

use super::core::Core;
use super::failure_log::{FailureLog, Note, Recovery, Topic};
use super::outcome::{Failure, LastFailure};
use crate::leader_election::Leading;
use crate::log;
use k8s_informer::__private::catch;
use k8s_informer::client::Client;
use k8s_informer::object::Key;
use k8s_informer::stop::Stopper;

/// The calls of a controller in one term: which of them run, and which have failed.
pub(crate) struct Calls {
    core: Arc<Core>,
    /// The term with its client, from its first call on. Empty without leader election.
    term: OnceLock<(Leading, Client)>,
    /// No other lock is taken and no user code runs while this one is held.
    state: Mutex<State>,
}

/// Its collections are trees, which give memory back after a peak.
#[derive(Default)]
struct State {
    /// The keys of the calls in progress, with the times of their starts.
    running: BTreeMap<Key, Instant>,
    failures: BTreeMap<Key, LastFailure>,
    log: FailureLog,
}

/// One call. `Display` writes the start of its log lines.
#[derive(Clone)]
pub(crate) struct Call {
    calls: Arc<Calls>,
    pub(crate) key: Key,
    /// The failed calls in a row, plus one.
    pub(crate) attempt: usize,
    pub(crate) stop: Stopper,
}

impl Calls {
    pub(crate) fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            term: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Sets the term, before the first call.
    pub(crate) fn set_leading(&self, leading: &Leading) {
        let client = self.core.client.gated(leading.gate());
        let _ = self.term.set((leading.clone(), client));
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Returns the next call for a key.
    pub(crate) fn next(self: &Arc<Self>, key: &Key, stop: Stopper) -> Call {
        let failures = self
            .state
            .lock()
            .failures
            .get(key)
            .map(|last| last.attempts);
        Call {
            calls: Arc::clone(self),
            key: Key::clone(key),
            attempt: failures.unwrap_or_default().saturating_add(1),
            stop,
        }
    }

    /// Sets the start of the call for a key, or removes it after the call.
    pub(crate) fn set_running(&self, key: &Key, began: Option<Instant>) {
        {
            let running = &mut self.state.lock().running;
            match began {
                Some(began) => running.insert(Key::clone(key), began),
                None => running.remove(key),
            };
        }
        let running = || self.state.lock().running.len();
        self.core
            .meter
            .level(running, |metrics, running| metrics.active_workers(running));
    }

    pub(crate) fn is_running(&self, key: &Key) -> bool {
        self.state.lock().running.contains_key(key)
    }

    /// Returns the keys of the calls in progress with their durations, the longest first.
    pub(crate) fn running(&self) -> Vec<(Key, Duration)> {
        let now = self.core.clock.now();
        let running = self.state.lock().running.clone();
        let since = |(key, began)| (key, now.saturating_duration_since(began));
        let mut running: Vec<_> = running.into_iter().map(since).collect();
        running.sort_by(|(a, longest), (b, other)| other.cmp(longest).then_with(|| a.cmp(b)));
        running
    }

    /// Calls user code. A panic is counted, and becomes a failure.
    pub(crate) fn guarded<R>(
        &self,
        what: &str,
        call: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        catch(call).unwrap_or_else(|panic| {
            self.core.meter.event(|metrics| metrics.panicked());
            Err(Failure::new(format!("{what} {panic}")))
        })
    }

    pub(crate) fn last_failure(&self, key: &str) -> Option<LastFailure> {
        self.state.lock().failures.get(key).cloned()
    }

    /// Returns the first keys whose last call failed, sorted.
    pub(crate) fn failures(&self, count: usize) -> Vec<(Key, LastFailure)> {
        let failures = &self.state.lock().failures;
        let first = failures.iter().take(count);
        first
            .map(|(key, last)| (Key::clone(key), last.clone()))
            .collect()
    }

    /// The number of keys whose last call failed.
    pub(crate) fn failing(&self) -> usize {
        self.state.lock().failures.len()
    }
}

impl Call {
    /// Returns what the controller of the call has.
    pub(crate) fn core(&self) -> &Core {
        &self.calls.core
    }

    /// Returns the term of the call, or `None` without leader election.
    pub(crate) fn leading(&self) -> Option<&Leading> {
        self.calls.term.get().map(|(leading, _)| leading)
    }

    /// Returns the client, which can change something only in the term of the call.
    pub(crate) fn client(&self) -> &Client {
        let term = self.calls.term.get();
        term.map_or(&self.calls.core.client, |(_, client)| client)
    }

    /// Logs a problem of the key. Repetitions are debug messages.
    pub(crate) fn report(
        &self,
        level: Level,
        topic: Topic,
        is_retried: bool,
        problem: impl fmt::Display,
    ) {
        let now = self.calls.core.clock.now();
        let note = self
            .calls
            .state
            .lock()
            .log
            .failed(&self.key, topic, is_retried, now);
        write_problem(level, format_args!("{self}: {problem}"), note);
    }

    /// Reports a call that still runs after its time limit, because it may never return.
    pub(crate) fn report_excess(&self, limit: Duration) {
        let (calls, id) = (&self.calls, (Key::clone(&self.key), Topic::Calls));
        let now = calls.core.clock.now();
        // The failure of the same call follows.
        let note = calls.state.lock().log.line(&id, true, now);
        let what = format_args!("{self}: the call exceeds its time limit of {limit:?}");
        write_problem(Level::Warn, what, note);
        calls.core.meter.event(|metrics| metrics.timed_out());
    }

    /// Records the end of the call.
    pub(crate) fn ended(&self, failure: Option<Failure>) {
        let has_failed = failure.is_some();
        let last = failure.map(|failure| LastFailure {
            failure,
            attempts: self.attempt,
            time: self.calls.core.clock.wall_clock(),
        });
        let mut recovery = Recovery::default();
        let replaced = {
            let State { failures, log, .. } = &mut *self.calls.state.lock();
            match last {
                Some(last) => failures.insert(Key::clone(&self.key), last),
                None => {
                    let last = failures.remove(&self.key);
                    recovery = log.recovered(&self.key, failures.is_empty());
                    last
                }
            }
        };
        // The destructor of the old error is user code, so it runs without the lock.
        drop(replaced);
        // A terminal failure for an object that is gone is forgotten, but is no recovery.
        if recovery.is_logged && !has_failed {
            let failed = self.attempt.saturating_sub(1);
            log::info!("{self}: recovered (failed calls: {failed})");
        }
        if recovery.hidden > 0 {
            let (name, hidden) = (&self.calls.core.name, recovery.hidden);
            log::info!(
                "controller {name:?}: no key fails any more (failures at level debug: {hidden})"
            );
        }
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (controller, key, attempt) = (&self.calls.core.name, &*self.key, self.attempt);
        write!(
            f,
            "controller {controller:?}, key {key:?}, attempt {attempt}"
        )
    }
}

/// Writes a line, or a debug message if it has no note.
fn write_problem(level: Level, what: fmt::Arguments<'_>, note: Option<Note>) {
    match note {
        Some(note) => log::log!(level, "{what}{note}"),
        None => log::debug!("{what}"),
    }
}

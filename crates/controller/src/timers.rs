//! Actions at later times, on one thread.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use k8s_informer::__private::catch;
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::time::Clock;

/// The target of log lines: only controllers have timers.
const TARGET: &str = "k8s_informer_controller::controller";

/// Runs actions when their time comes. [`run`](Self::run) needs a thread of its own.
///
/// The delaying queue cannot do this: its items cannot be cancelled.
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    /// No other lock is taken and no user code runs while this one is held.
    state: Mutex<State>,
}

/// Identifies a timer, so that it can be cancelled.
pub(crate) type TimerId = (Instant, u64);

#[derive(Default)]
struct State {
    next: u64,
    actions: BTreeMap<TimerId, Box<dyn FnOnce() + Send>>,
    /// Ends the current wait of the thread.
    wake: Stopper,
}

impl Timers {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            state: Mutex::default(),
        }
    }

    /// Runs `action` after `delay`, on the thread of [`run`](Self::run).
    pub(crate) fn after(
        &self,
        delay: Duration,
        action: impl FnOnce() + Send + 'static,
    ) -> Option<TimerId> {
        let due = self.clock.now().checked_add(delay)?;
        let (id, wake) = {
            let mut state = self.state.lock();
            let id = (due, state.next);
            state.next += 1;
            state.actions.insert(id, Box::new(action));
            let is_first = state.actions.keys().next() == Some(&id);
            (id, is_first.then(|| state.wake.clone()))
        };
        if let Some(wake) = wake {
            wake.stop();
        }
        Some(id)
    }

    /// Removes a timer, unless its action runs or has run.
    pub(crate) fn cancel(&self, id: TimerId) {
        let action = self.state.lock().actions.remove(&id);
        // The destructor of the action runs without the lock.
        drop(action);
    }

    /// Lets the thread read the clock again. A fake clock can advance after the thread has computed
    /// its wait and before the wait begins.
    pub(crate) fn wake(&self) {
        let wake = self.state.lock().wake.clone();
        wake.stop();
    }

    /// Returns the time of the next action.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.state.lock().actions.keys().next().map(|&(due, _)| due)
    }

    /// Runs due actions until `stop` is signalled.
    pub(crate) fn run(&self, stop: &Stop) {
        while !stop.is_stopped() {
            let (now, wake) = (self.clock.now(), stop.child());
            let (due, next, previous) = {
                let mut state = self.state.lock();
                let later = state.actions.split_off(&(now, u64::MAX));
                let due = std::mem::replace(&mut state.actions, later);
                let next = state.actions.keys().next().map(|&(due, _)| due);
                (due, next, std::mem::replace(&mut state.wake, wake.clone()))
            };
            // The destructor of a `Stopper` takes other locks.
            drop(previous);
            let is_idle = due.is_empty();
            for action in due.into_values() {
                // Without this thread, no call would have a time limit any more.
                if let Err(panic) = catch(action) {
                    drop(catch(|| {
                        log::error!(target: TARGET, "a timer of a controller {panic}");
                    }));
                }
            }
            match next {
                _ if !is_idle => {}
                Some(next) => {
                    let wait = next.saturating_duration_since(self.clock.now());
                    self.clock.wait(wait, &wake);
                }
                None => wake.wait(),
            }
        }
    }
}

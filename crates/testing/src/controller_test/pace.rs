//! Starts the calls of a controller one by one.

use std::time::{Duration, Instant};

use k8s_informer::handler::HandlerRegistration;
use k8s_informer::object::Key;
use parking_lot::{Condvar, Mutex};

/// The meeting point of a test and the workers of its controller.
#[derive(Default)]
pub(super) struct Pace {
    /// An innermost lock: no other lock is taken and no user code runs while it is held.
    state: Mutex<State>,
    /// Notified when a worker may begin or has ended, and when the controller has ended.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    handlers: Vec<HandlerRegistration>,
    /// Whether a worker may take the next key.
    may_begin: bool,
    /// Whether a worker may begin or has not ended yet.
    is_busy: bool,
    /// The keys of ended calls, until the test takes them.
    calls: Vec<Key>,
    /// Whether the workers are not held back any more.
    is_open: bool,
    has_ended: bool,
}

impl Pace {
    /// Lets one worker take one key.
    pub(super) fn begin(&self) {
        let mut state = self.state.lock();
        state.may_begin = true;
        state.is_busy = true;
        self.changed.notify_all();
    }

    /// Waits until the worker has ended. Returns `false` after the deadline.
    pub(super) fn wait_for_end(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while state.is_busy && !state.has_ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return !state.is_busy;
            }
        }
        true
    }

    pub(super) fn take_calls(&self) -> Vec<Key> {
        std::mem::take(&mut self.state.lock().calls)
    }

    /// Whether the handlers have been called for all changes in the caches.
    pub(super) fn handlers_are_idle(&self) -> bool {
        let handlers = self.state.lock().handlers.clone();
        handlers.iter().all(|handler| {
            let stats = handler.stats();
            stats.delivered + stats.merged >= stats.received
        })
    }

    /// Waits for a change, for at most a millisecond.
    pub(super) fn wait_briefly(&self) {
        let deadline = Instant::now() + Duration::from_millis(1);
        self.changed.wait_until(&mut self.state.lock(), deadline);
    }

    /// Lets all workers continue, so that they see the stop.
    pub(super) fn open(&self) {
        self.state.lock().is_open = true;
        self.changed.notify_all();
    }

    /// Records that the controller has ended.
    pub(super) fn end(&self) {
        self.state.lock().has_ended = true;
        self.changed.notify_all();
    }

    pub(super) fn has_ended(&self) -> bool {
        self.state.lock().has_ended
    }

    /// Waits until the controller has ended. Returns `false` after the deadline.
    pub(super) fn wait_until_ended(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.has_ended {
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                break;
            }
        }
        state.has_ended
    }
}

/// The functions that a [`Drive`](k8s_informer_controller::__private::Drive) calls.
impl Pace {
    pub(super) fn handler_added(&self, registration: HandlerRegistration) {
        self.state.lock().handlers.push(registration);
    }

    pub(super) fn wait_to_begin(&self) {
        let mut state = self.state.lock();
        while !state.may_begin && !state.is_open {
            self.changed.wait(&mut state);
        }
        state.may_begin = false;
    }

    pub(super) fn ended(&self, key: Key, is_called: bool) {
        let mut state = self.state.lock();
        state.is_busy = false;
        if is_called {
            state.calls.push(key);
        }
        drop(state);
        self.changed.notify_all();
    }
}

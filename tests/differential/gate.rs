//! Synchronization between the test and its threads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Blocks the threads that pass it while it is closed.
#[derive(Clone, Default)]
pub(crate) struct Gate {
    state: Arc<(Mutex<bool>, Condvar)>,
}

impl Gate {
    pub(crate) fn close(&self) {
        *self.state.0.lock() = true;
    }

    pub(crate) fn open(&self) {
        *self.state.0.lock() = false;
        self.state.1.notify_all();
    }

    pub(crate) fn pass(&self) {
        let mut closed = self.state.0.lock();
        while *closed {
            self.state.1.wait(&mut closed);
        }
    }
}

/// Wakes the waiting test.
#[derive(Clone, Default)]
pub(crate) struct Signal {
    state: Arc<(Mutex<u64>, Condvar)>,
}

impl Signal {
    pub(crate) fn raise(&self) {
        *self.state.0.lock() += 1;
        self.state.1.notify_all();
    }

    /// Calls `look` until it returns a value or `timeout` passes. It calls `look` after each signal
    /// and every two milliseconds, because some conditions do not raise the signal.
    pub(crate) fn until<R>(
        &self,
        timeout: Duration,
        mut look: impl FnMut() -> Option<R>,
    ) -> Option<R> {
        let deadline = Instant::now() + timeout;
        loop {
            let seen = *self.state.0.lock();
            if let Some(response) = look() {
                return Some(response);
            }
            let now = Instant::now();
            if now >= deadline {
                return None;
            }
            let mut raised = self.state.0.lock();
            if *raised == seen {
                self.state
                    .1
                    .wait_until(&mut raised, deadline.min(now + Duration::from_millis(2)));
            }
        }
    }
}

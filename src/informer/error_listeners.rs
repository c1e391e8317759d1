use std::sync::{Arc, Weak};

use crate::base::panic;
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::log;

/// The error callbacks of an informer, for failed requests and objects that cannot be decoded or
/// stored. Also records which reflectors of the informer cannot sync; `source` is the number of a
/// reflector.
pub(super) struct ErrorListeners {
    state: Mutex<State>,
}

/// The state under the lock. No user code runs under this lock.
struct State {
    listeners: Vec<(u64, Arc<OnError>)>,
    next: u64,
    /// For each reflector, whether its last failure was a first list that will fail in the same way
    /// again.
    refused: Vec<bool>,
}

/// Called with an error, and with whether the error keeps the informer from syncing.
type OnError = dyn Fn(&Error, bool) + Send + Sync;

impl ErrorListeners {
    pub(super) fn new(sources: usize) -> Arc<Self> {
        let state = State {
            listeners: Vec::new(),
            next: 0,
            refused: vec![false; sources],
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    /// Calls `listener` for each error until the subscription is dropped.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        listener: impl Fn(&Error, bool) + Send + Sync + 'static,
    ) -> ErrorSubscription {
        let mut state = self.state.lock();
        let id = state.next;
        state.next += 1;
        state.listeners.push((id, Arc::new(listener)));
        ErrorSubscription {
            listeners: Arc::downgrade(self),
            id,
        }
    }

    /// Calls the listeners. `refused` is whether a first list failed and will fail in the same way
    /// again.
    pub(super) fn publish(&self, source: usize, error: &Error, refused: bool, informer: &str) {
        let listeners: Vec<_> = {
            let mut state = self.state.lock();
            state.refused[source] = refused;
            state
                .listeners
                .iter()
                .map(|(_, listener)| Arc::clone(listener))
                .collect()
        };
        for listener in listeners {
            if let Err(panic) = panic::catch(|| listener(error, refused)) {
                log::error!("{informer}: the error handler {panic}");
            }
        }
    }

    /// Whether the last failure of a reflector was a first list that will fail in the same way
    /// again.
    pub(super) fn is_refused(&self, source: usize) -> bool {
        self.state.lock().refused[source]
    }
}

/// Unsubscribes its listener when dropped.
pub(crate) struct ErrorSubscription {
    listeners: Weak<ErrorListeners>,
    id: u64,
}

impl Drop for ErrorSubscription {
    fn drop(&mut self) {
        let Some(listeners) = self.listeners.upgrade() else {
            return;
        };
        let listener = {
            let mut state = listeners.state.lock();
            let position = state.listeners.iter().position(|(id, _)| *id == self.id);
            position.map(|at| state.listeners.remove(at))
        };
        // Drop the listener after the unlock: its destructor is user code.
        drop(listener);
    }
}

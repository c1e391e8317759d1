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
    listeners: Vec<Weak<OnError>>,
    /// For each reflector, whether its last failure was a first list that will fail in the same way
    /// again.
    refused: Vec<bool>,
}

/// Called with an error, and with whether the error keeps the informer from syncing.
pub(super) type OnError = dyn Fn(&Error, bool) + Send + Sync;

impl ErrorListeners {
    pub(super) fn new(sources: usize) -> Self {
        Self {
            state: Mutex::new(State {
                listeners: Vec::new(),
                refused: vec![false; sources],
            }),
        }
    }

    /// Calls `listener` for each error until the returned reference is dropped.
    #[must_use]
    pub(super) fn subscribe(
        &self,
        listener: impl Fn(&Error, bool) + Send + Sync + 'static,
    ) -> Arc<OnError> {
        let listener: Arc<OnError> = Arc::new(listener);
        let mut state = self.state.lock();
        state.listeners.retain(|other| other.strong_count() > 0);
        state.listeners.push(Arc::downgrade(&listener));
        listener
    }

    /// Calls the listeners. `refused` is whether a first list failed and will fail in the same way
    /// again.
    pub(super) fn publish(&self, source: usize, error: &Error, refused: bool, informer: &str) {
        let listeners: Vec<_> = {
            let mut state = self.state.lock();
            state.refused[source] = refused;
            state.listeners.iter().filter_map(Weak::upgrade).collect()
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

//! Bookkeeping for a store that must become current, although its watch may be behind.

use std::io::BufReader;
use std::time::Instant;

use super::{ListOptions, ListerWatcher};
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::stop::{Done, Stop};
use crate::wire::ListMeta;

/// What is known about the age of the objects, and what is requested.
#[derive(Default)]
pub(super) struct CatchUp {
    /// Innermost lock: nothing is called while it is held.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// When the newest consistent read began, and its version.
    pub(super) read: Option<(Instant, String)>,
    /// When the newest consistent list began whose objects the store has received. That of the
    /// first list is set when it begins, because nothing reads it before that list can be seen.
    pub(super) listed: Option<Instant>,
    /// The requested version. It is empty if only a list will do. The session takes it.
    pub(super) wanted: Option<String>,
    /// Set when the store has received the requested version, or a consistent list.
    pub(super) reached: Option<Done>,
    /// Ends the open watch, or the wait.
    pub(super) interrupt: Option<Stop>,
}

impl CatchUp {
    /// Takes the requested version, and remembers how to interrupt the open watch or the wait.
    pub(super) fn take_wanted(&self, interrupt: Option<&Stop>) -> Option<String> {
        let mut state = self.state.lock();
        state.interrupt = interrupt.cloned();
        state.wanted.take()
    }

    /// Ends the current step soon, if it waits.
    pub(super) fn interrupt(&self) {
        let interrupt = self.state.lock().interrupt.take();
        if let Some(interrupt) = interrupt {
            interrupt.stop();
        }
    }

    /// Reports that the session has reached what it has taken.
    pub(super) fn reached(&self) {
        let reached = {
            let mut state = self.state.lock();
            let is_new = state.wanted.is_none();
            state.reached.take_if(|_| is_new)
        };
        if let Some(reached) = reached {
            reached.set();
        }
    }
}

/// Returns the current version of the server, or an empty string if it has none. The list is limited
/// because only its version matters.
pub(super) fn read_version(from: &dyn ListerWatcher, stop: &Stop) -> Result<String, Error> {
    let options = ListOptions {
        limit: Some(1),
        ..ListOptions::default()
    };
    let body = from.list(&options, stop)?;
    let list: serde_json::Result<ListMeta> = serde_json::from_reader(BufReader::new(body));
    let list = list.map_err(|error| match error.io_error_kind() {
        Some(_) => Error::from(std::io::Error::from(error)),
        None => Error::invalid("the answer is not a list"),
    })?;
    Ok(list.resource_version().to_owned())
}

//! Bookkeeping for a store that must become current, although its watch may be behind.

use std::io::BufReader;
use std::time::Instant;

use super::{ListOptions, ListerWatcher};
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::resource_version::{Comparable, ResourceVersion};
use crate::stop::{DoneSetter, Stop, Stopper};
use crate::wire::ListMeta;

/// The age of the objects, and the waits for newer ones.
#[derive(Default)]
pub(super) struct CatchUp {
    /// Innermost lock: nothing is called while it is held.
    pub(super) state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// When the newest consistent read began, and what it requires.
    read: Option<(Instant, Target)>,
    /// When the newest consistent list began whose objects the store has received. That of the
    /// first list is set when it begins, because nothing reads it before that list can be seen.
    pub(super) listed: Option<Instant>,
    /// The waits that have not ended. Each one ends at its own version.
    waits: Vec<Wait>,
    /// What the waits require that began since the feed looked.
    wanted: Option<Target>,
    /// Ends the present step of the feed, if it waits for the server and serves no wait.
    interrupt: Option<Stopper>,
}

/// What a store must receive to be current.
#[derive(Clone)]
pub(super) enum Target {
    /// This version, or a later one.
    Version(Comparable),
    /// A consistent list, because versions can't tell.
    ConsistentList,
}

impl Target {
    /// Whether a store at this version has what is required.
    pub(super) fn is_reached(&self, version: Option<&ResourceVersion>) -> bool {
        match self {
            Self::Version(wanted) => {
                version.is_some_and(|version| version.is_at_least(wanted.version()))
            }
            Self::ConsistentList => false,
        }
    }

    /// Returns what meets both targets. It never is a lower version than one of them.
    pub(super) fn and(self, other: Self) -> Self {
        match (self, other) {
            (Self::Version(a), Self::Version(b)) => Self::Version(a.max(b)),
            _ => Self::ConsistentList,
        }
    }

    /// Adds a target to those that are wanted already.
    pub(super) fn join(wanted: &mut Option<Self>, target: Self) {
        *wanted = Some(match wanted.take() {
            Some(wanted) => wanted.and(target),
            None => target,
        });
    }
}

/// One wait until the store is current.
struct Wait {
    /// The moment whose state the caller must see.
    since: Instant,
    target: Target,
    /// Set when the store has received the target, or a consistent list that began after `since`.
    reached: DoneSetter,
}

/// A wait that is registered. It ends when it is dropped.
pub(crate) struct Waiting<'a> {
    catch_up: &'a CatchUp,
    /// Set when the store has received what the wait requires, or a consistent list.
    pub(crate) reached: DoneSetter,
    pub(super) target: Target,
}

impl Waiting<'_> {
    /// The version to reach. `None` if only a list will do.
    pub(crate) fn version(&self) -> Option<&Comparable> {
        match &self.target {
            Target::Version(version) => Some(version),
            Target::ConsistentList => None,
        }
    }
}

/// A caller that was stopped must not leave its wait behind.
impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut state = self.catch_up.state.lock();
        state.waits.retain(|wait| !wait.reached.is(&self.reached));
    }
}

impl CatchUp {
    /// Returns the target of the newest read if it began after `since`.
    pub(super) fn read_since(&self, since: Instant) -> Option<(Instant, Target)> {
        let state = self.state.lock();
        state.read.clone().filter(|(began, _)| *began >= since)
    }

    /// Whether the store has received a consistent list that began after `since`.
    pub(super) fn is_listed_since(&self, since: Instant) -> bool {
        let listed = self.state.lock().listed;
        listed.is_some_and(|listed| listed >= since)
    }

    /// Returns a wait that has ended.
    pub(super) fn over(&self) -> Waiting<'_> {
        let reached = DoneSetter::new("reached");
        reached.set();
        Waiting {
            catch_up: self,
            reached,
            target: Target::ConsistentList,
        }
    }

    /// Begins a wait. `read` is when its read began, and what it requires.
    pub(super) fn wait(&self, since: Instant, read: (Instant, Target)) -> Waiting<'_> {
        let (reached, target) = (DoneSetter::new("reached"), read.1.clone());
        let mut state = self.state.lock();
        // A slow read may end after a newer one.
        if state.read.as_ref().is_none_or(|newest| newest.0 < read.0) {
            state.read = Some(read);
        }
        state.waits.push(Wait {
            since,
            target: target.clone(),
            reached: reached.clone(),
        });
        Target::join(&mut state.wanted, target.clone());
        Waiting {
            catch_up: self,
            reached,
            target,
        }
    }

    /// Takes what new waits require, and remembers how to interrupt the next step.
    pub(super) fn take_wanted(&self, interrupt: Option<Stopper>) -> Option<Target> {
        let mut state = self.state.lock();
        state.interrupt = interrupt;
        state.wanted.take()
    }

    /// Ends the present step soon, if a new wait may end it.
    pub(super) fn interrupt(&self) {
        let interrupt = { self.state.lock().interrupt.take() };
        if let Some(interrupt) = interrupt {
            interrupt.stop();
        }
    }

    /// Ends the waits whose targets the store has received. `version` is that of the store.
    pub(super) fn release(&self, version: Option<&ResourceVersion>) {
        let released: Vec<Wait> = {
            let mut state = self.state.lock();
            // The usual case, after each step.
            if state.waits.is_empty() {
                return;
            }
            let listed = state.listed;
            let is_over = |wait: &mut Wait| {
                let has_list = listed.is_some_and(|listed| listed >= wait.since);
                has_list || wait.target.is_reached(version)
            };
            state.waits.extract_if(.., is_over).collect()
        };
        for wait in released {
            wait.reached.set();
        }
    }
}

/// Returns the current version of the server, or `None` if it has none. The list is limited because
/// only its version matters.
pub(super) fn read_version(
    from: &dyn ListerWatcher,
    stop: &Stop,
) -> Result<Option<ResourceVersion>, Error> {
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
    Ok(ResourceVersion::new(list.resource_version()))
}

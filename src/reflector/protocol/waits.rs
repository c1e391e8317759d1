use std::time::Instant;

use crate::reflector::catch_up::Target;
use crate::resource_version::ResourceVersion;

/// What the waits until the store is current require of the protocol.
///
/// A short watch serves the waits that are known when it is opened, and a consistent list those that
/// are known when it begins. Waits that come later are served by the next one: if each of them began
/// a new one, none would end.
#[derive(Default)]
pub(super) struct Waits {
    served: Option<Served>,
    /// What the later waits require.
    later: Option<Target>,
    /// Whether a short watch has ended before it had brought everything. The time of the list
    /// comes first, unless the connection was cut or the server ends watches early.
    was_cut: bool,
}

struct Served {
    target: Target,
    by: Server,
}

/// What serves the waits.
enum Server {
    /// The short watch, or the next one. A list begins at this time, which no later wait postpones.
    Watch {
        list_at: Instant,
    },
    List,
}

impl Waits {
    /// Whether nothing is required.
    pub(super) fn is_empty(&self) -> bool {
        self.served.is_none() && self.later.is_none()
    }

    /// Whether the open watch is a short one that serves waits.
    pub(super) fn is_served(&self) -> bool {
        self.served.is_some()
    }

    /// Adds what new waits require.
    pub(super) fn add(&mut self, target: Target) {
        Target::join(&mut self.later, target);
    }

    /// Whether the open watch serves nothing, but there are waits.
    pub(super) fn needs_watch(&self) -> bool {
        self.served.is_none() && self.later.is_some()
    }

    /// Reports that a short watch was opened, which serves all waits.
    pub(super) fn watch_opened(&mut self, list_at: Instant) {
        let Some(later) = self.later.take() else {
            return;
        };
        self.served = Some(match self.served.take() {
            // The earliest time counts.
            Some(Served { target, by }) => Served {
                target: target.and(later),
                by,
            },
            None => Served {
                target: later,
                by: Server::Watch { list_at },
            },
        });
    }

    /// Reports that the open watch has ended. The next one serves what a short one has not brought,
    /// because the connection may have been cut. The second time, a list is due.
    pub(super) fn watch_ended(&mut self, now: Instant) {
        let by_watch = |served: &mut Served| matches!(served.by, Server::Watch { .. });
        let Some(Served { target, .. }) = self.served.take_if(by_watch) else {
            return;
        };
        match std::mem::replace(&mut self.was_cut, true) {
            false => Target::join(&mut self.later, target),
            true => {
                let by = Server::Watch { list_at: now };
                self.served = Some(Served { target, by });
            }
        }
    }

    /// The time of the consistent list. `None` if a list serves the waits already, or if the watch
    /// is not open yet.
    pub(super) fn list_at(&self, now: Instant) -> Option<Instant> {
        match &self.served {
            Some(Served { by, .. }) => match by {
                Server::Watch { list_at } => Some(*list_at),
                Server::List => None,
            },
            // A watch would not help.
            None => matches!(self.later, Some(Target::ConsistentList)).then_some(now),
        }
    }

    /// Reports that a consistent list begins, which serves all waits.
    pub(super) fn list_begins(&mut self) {
        let served = self.served.take().map(|served| served.target);
        for target in served.into_iter().chain(self.later.take()) {
            self.served = Some(Served {
                target,
                by: Server::List,
            });
        }
    }

    /// Reports that the store has received a list.
    pub(super) fn listed(&mut self) {
        self.served
            .take_if(|served| matches!(served.by, Server::List));
        self.was_cut &= !self.is_empty();
    }

    /// Reports that the store has reached this version.
    pub(super) fn reached(&mut self, version: Option<&ResourceVersion>) {
        self.served
            .take_if(|served| served.target.is_reached(version));
        self.later.take_if(|target| target.is_reached(version));
        self.was_cut &= !self.is_empty();
    }
}

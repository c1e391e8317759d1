//! The messages between the program and its candidates. Each is a line of JSON.

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub(crate) use crate::timing::{LEASE, Micros, RENEW_DEADLINE, RETRY, now};

/// How long work that ignores its stop goes on.
pub(crate) const IGNORED_STOP: Duration = Duration::from_secs(12);

/// How long a slow credential plugin runs: longer than a request of the elector, which ends after
/// half the renew deadline.
pub(crate) const SLOW_PLUGIN: Duration = Duration::from_millis(1100);

/// How long a credential is valid.
pub(crate) const CREDENTIAL: Duration = Duration::from_secs(15);

pub(crate) const NAMESPACE: &str = "elections";

/// A line on the standard input of a candidate, which ends with its standard input.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) enum Command {
    /// Stop the process the next time that it is between `ensure` and a write.
    Plant,
    Unplant,
    /// The work goes on for [`IGNORED_STOP`] after its next stop.
    IgnoreStop,
    /// Stop the elector and run it again.
    Resign,
    /// The logger blocks at lines of the election.
    BlockLog,
    /// The lock blocks at updates, whatever their stop.
    BlockLock,
    /// Neither blocks.
    Unblock,
    /// The wall clock is ahead by this number of milliseconds.
    SetClock(i64),
}

/// A line on the standard output of a candidate. `term` is the number of transitions.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// The work of a term has started.
    Leading {
        term: i32,
        lease_uid: String,
        at: Micros,
    },
    /// `ensure` succeeded during the term: for the first time before `first`, and for the last time
    /// after `last`. So a pause of the process can't make the span longer.
    Ensured {
        term: i32,
        first: Micros,
        last: Micros,
    },
    /// `ensure` fails after it has succeeded.
    Expired {
        term: i32,
        last: Micros,
    },
    /// The process is about to stop itself between `ensure` and a write.
    Planted {
        term: i32,
        at: Micros,
    },
    /// A write of the guarded object, and how it ended.
    Write {
        write: Write,
        /// Whether the process was stopped before it.
        planted: bool,
        outcome: Outcome,
    },
    /// The work is about to return.
    Joined {
        term: i32,
        at: Micros,
    },
    /// The thread that ignores each stop has sent so many changes through its gate since the last
    /// report, and the gate has refused so many.
    Gated {
        changes: u64,
        refused: u64,
    },
    /// The elector has returned.
    Ended(String),
    Log(String),
    /// Something that must never happen.
    Violation(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// The server accepted it as this version.
    Accepted(u64),
    /// The server refused it with a conflict.
    Refused,
    /// No response came.
    Unknown,
}

/// What a write puts into the guarded object.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Write {
    pub(crate) term: i32,
    pub(crate) lease_uid: String,
    pub(crate) candidate: String,
    /// Counts the writes of the term.
    pub(crate) counter: u64,
    /// The version that it replaces, and the term that wrote it.
    pub(crate) replaced: u64,
    pub(crate) replaced_term: i32,
}

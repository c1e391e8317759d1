//! The decisions of event recording, without I/O, threads and clocks: which events are equal, which
//! are counted, combined or filtered, and how they look as JSON.
//!
//! Times are durations since 1970. The module uses nothing else of the crate, so that the replay of
//! client-go traces and the fuzz target build the same source files.

pub(crate) mod aggregate;
pub(crate) mod correlator;
pub(crate) mod delivery;
pub(crate) mod event;
pub(crate) mod filter;
pub(crate) mod json;
pub(crate) mod lru;
pub(crate) mod reference;
pub(crate) mod series;

#[allow(
    clippy::duplicate_mod,
    reason = "`time` has it as well, and this module uses nothing else of the crate"
)]
#[path = "../../time/rfc3339.rs"]
pub(crate) mod rfc3339;

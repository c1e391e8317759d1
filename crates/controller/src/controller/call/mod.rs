//! The calls of a controller: their outcomes, failures and timers.

pub(crate) mod calls;
pub(crate) mod failure_log;
pub(crate) mod outcome;
pub(crate) mod status;
pub(crate) mod timers;

//! The calls of a controller, their outcomes and failures, and what all of them share.

pub(crate) mod calls;
pub(crate) mod core;
pub(crate) mod failure_log;
pub(crate) mod outcome;

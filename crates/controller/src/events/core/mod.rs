//! The decisions of event recording, without I/O, threads and clocks: which events are equal, when a
//! series ends, what follows an answer, and how events look as JSON. Times are durations since 1970.
//!
//! The replay of client-go traces uses this module.

pub mod delivery;
pub mod event;
pub mod series;

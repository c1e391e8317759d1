//! The only source of blocking and racing primitives: locks, condvars, channels, atomics and
//! threads.
//!
//! In interleaving tests (the package `tests/shuttle`, built with `cfg(shuttle)`), these primitives
//! are replaced by others, so that a scheduler chooses the next thread at each call. These tests
//! are in the modules named `shuttle_tests`.

#[cfg(shuttle)]
#[allow(
    missing_docs,
    unnameable_types,
    reason = "only interleaving tests use it"
)]
mod simulated;
#[cfg(shuttle)]
pub use simulated::*;

#[cfg(not(shuttle))]
mod real {
    pub use crossbeam_channel as channel;
    pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
    pub use std::panic::catch_unwind;
    pub use std::sync::atomic;
    pub use std::{thread, thread_local};
}
#[cfg(not(shuttle))]
pub use real::*;

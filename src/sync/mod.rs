//! The only source of blocking and racing primitives: locks, condvars, channels, atomics and
//! threads.
//!
//! In interleaving tests (the package `tests/shuttle`, built with `cfg(shuttle)`), these primitives
//! are replaced by others, so that a scheduler chooses the next thread at each call. These tests
//! are in the modules named `shuttle_tests`.

#[cfg(test)]
#[cfg(shuttle)]
mod simulated;
#[cfg(all(test, shuttle))]
pub(crate) use simulated::*;

#[cfg(not(all(test, shuttle)))]
mod real {
    pub(crate) use crossbeam_channel as channel;
    pub(crate) use parking_lot::{
        Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard,
    };
    pub(crate) use std::panic::catch_unwind;
    pub(crate) use std::sync::atomic;
    pub(crate) use std::{thread, thread_local};
}
#[cfg(not(all(test, shuttle)))]
pub(crate) use real::*;

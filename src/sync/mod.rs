//! Everything that blocks or races, named once: locks, condvars, channels, atomics and threads.
//!
//! In interleaving tests (the package `tests/shuttle`, built with `cfg(shuttle)`) these are replacements that let a
//! scheduler choose the next thread at each call. Those tests are the modules called `shuttle_tests`.

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

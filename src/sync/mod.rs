//! Everything that blocks or races, named once: locks, condvars, channels, atomics and threads.
//!
//! The real ones, or, in models of interleavings (`RUSTFLAGS="--cfg shuttle"`), stand-ins that let a
//! scheduler decide who runs at each of these calls. Models are the modules called `models`.

#[cfg(test)]
#[cfg(shuttle)]
mod model;
#[cfg(all(test, shuttle))]
pub(crate) use model::*;

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

//! The locks, condvars and channels that everything uses, named once: a model checker can stand in for them
//! here.

pub(crate) use crossbeam_channel as channel;
pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

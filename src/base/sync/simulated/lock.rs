//! Locks and condvars with the interface of parking_lot.

use std::ops::{Deref, DerefMut};
use std::sync::PoisonError;
use std::time::Instant;

use super::{any, thread};

#[derive(Debug, Default)]
pub struct Mutex<T>(shuttle::sync::Mutex<T>);

pub struct MutexGuard<'a, T> {
    mutex: &'a shuttle::sync::Mutex<T>,
    /// `None` only while a condvar waits.
    held: Option<shuttle::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::Mutex::new(value))
    }

    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard {
            mutex: &self.0,
            held: Some(held),
        }
    }

    pub fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.held.as_ref().expect("held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.held.as_mut().expect("held")
    }
}

#[derive(Debug, Default)]
pub struct Condvar(shuttle::sync::Condvar);

pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        if let Some(held) = guard.held.take() {
            guard.held = Some(self.0.wait(held).unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// Yields once, then reports a timeout or a spurious wakeup. The wait thus ends even if no
    /// thread notifies it, and callers must check their condition again.
    pub fn wait_until<T>(&self, guard: &mut MutexGuard<'_, T>, _: Instant) -> WaitTimeoutResult {
        guard.held = None;
        thread::yield_now();
        guard.held = Some(guard.mutex.lock().unwrap_or_else(PoisonError::into_inner));
        WaitTimeoutResult(any(2) == 0)
    }

    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A read-write lock that is stricter than parking_lot's: a second read lock on the same thread
/// always deadlocks. With parking_lot, it deadlocks only if a writer waits.
#[derive(Debug, Default)]
pub struct RwLock<T>(shuttle::sync::RwLock<T>);

pub struct RwLockReadGuard<'a, T>(shuttle::sync::RwLockReadGuard<'a, T>);

pub struct RwLockWriteGuard<'a, T>(shuttle::sync::RwLockWriteGuard<'a, T>);

impl<T> RwLock<T> {
    pub fn new(value: T) -> Self {
        Self(shuttle::sync::RwLock::new(value))
    }

    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard(self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        RwLockWriteGuard(self.0.write().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T> RwLockReadGuard<'_, T> {
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> RwLockWriteGuard<'_, T> {
    pub fn unlock_fair(guard: Self) {
        drop(guard);
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

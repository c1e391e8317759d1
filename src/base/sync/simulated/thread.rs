//! Threads with the interface of the standard library, based on shuttle's.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Result;

pub use shuttle::thread::{Scope, ScopedJoinHandle, Thread, ThreadId, current, park, yield_now};

pub fn spawn<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> JoinHandle<R> {
    Builder::new().spawn(work).unwrap()
}

/// Opens a scope for threads. When the last thread of a shuttle scope ends, it wakes the thread
/// that opened the scope from any wait, as if the awaited event had happened. To prevent this, an
/// additional thread lives until the opening thread reaches the end of the scope.
pub fn scope<'env, R>(work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> R) -> R {
    shuttle::thread::scope(|scope| {
        let ended = Arc::new(AtomicBool::new(false));
        let last = scope.spawn({
            let ended = Arc::clone(&ended);
            move || {
                while !ended.load(Ordering::Acquire) {
                    park();
                }
            }
        });
        let result = work(scope);
        ended.store(true, Ordering::Release);
        last.thread().unpark();
        result
    })
}

#[derive(Debug)]
pub struct Builder(shuttle::thread::Builder);

impl Builder {
    pub fn new() -> Self {
        Self(shuttle::thread::Builder::new())
    }

    pub fn name(self, name: String) -> Self {
        Self(self.0.name(name))
    }

    /// Ignored, because shuttle allocates the stacks.
    pub fn stack_size(self, _: usize) -> Self {
        self
    }

    pub fn spawn<R: Send + 'static>(
        self,
        work: impl FnOnce() -> R + Send + 'static,
    ) -> io::Result<JoinHandle<R>> {
        let finished = Arc::new(AtomicBool::new(false));
        let handle = self.0.spawn({
            let finished = Arc::clone(&finished);
            move || {
                let result = work();
                finished.store(true, Ordering::Release);
                result
            }
        })?;
        Ok(JoinHandle { handle, finished })
    }

    pub fn spawn_scoped<'scope, R: Send + 'scope>(
        self,
        scope: &'scope Scope<'scope, '_>,
        work: impl FnOnce() -> R + Send + 'scope,
    ) -> io::Result<ScopedJoinHandle<'scope, R>> {
        Ok(scope.spawn(work))
    }
}

#[derive(Debug)]
pub struct JoinHandle<R> {
    handle: shuttle::thread::JoinHandle<R>,
    finished: Arc<AtomicBool>,
}

impl<R> JoinHandle<R> {
    pub fn join(self) -> Result<R> {
        self.handle.join()
    }

    pub fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Acquire)
    }

    pub fn thread(&self) -> &Thread {
        self.handle.thread()
    }
}

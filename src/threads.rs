//! The threads that the crate starts: named, counted, joined by whoever started them, and never by
//! themselves.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::panic;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Mutex, thread_local};

/// To whom a thread belongs: an informer's threads may not wait for that informer's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner(u64);

thread_local! {
    /// Whose thread this is. 0 is nobody's.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

impl Owner {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Whose thread this is.
    pub(crate) fn current() -> Self {
        Self(CURRENT.with(Cell::get))
    }

    /// Whether the current thread is one of the owner's.
    pub(crate) fn is_current(self) -> bool {
        CURRENT.with(Cell::get) == self.0
    }

    /// Runs `work` on this thread as on one of the owner's.
    pub(crate) fn adopt<R>(self, work: impl FnOnce() -> R) -> R {
        /// Gives the thread back, also when `work` panics.
        struct Restore(u64);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.with(|current| current.set(self.0));
            }
        }
        let _restore = Restore(CURRENT.with(|current| current.replace(self.0)));
        work()
    }
}

/// A thread to be, of this name. The standard library panics at a NUL, and names come from users.
pub(crate) fn named(name: String) -> Builder {
    Builder::new().name(if name.contains('\0') { name.replace('\0', "?") } else { name })
}

/// How much stack a thread gets that needs so much: what the environment says, if that is more.
pub(crate) fn stack_of(needed: usize) -> usize {
    let wanted = std::env::var("RUST_MIN_STACK").ok().and_then(|wanted| wanted.parse().ok());
    wanted.unwrap_or(needed).max(needed)
}

/// A group of threads that end together.
#[derive(Debug)]
pub(crate) struct Threads {
    owner: Owner,
    /// Held by who waits for the threads, so that whoever else does returns no sooner. Before `handles`.
    joining: Mutex<()>,
    /// Those that have not been joined. Nothing else is locked, and nobody is waited for, under it.
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// The names of those that run, also of one that is waited for. Innermost.
    running: Arc<Mutex<Vec<String>>>,
}

impl Threads {
    pub(crate) fn new(owner: Owner) -> Self {
        Self { owner, joining: Mutex::default(), handles: Mutex::default(), running: Arc::default() }
    }

    /// Starts a thread of the group.
    pub(crate) fn spawn(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        /// Takes the name out, also when the thread panics.
        struct Running(Arc<Mutex<Vec<String>>>, String);
        impl Drop for Running {
            fn drop(&mut self) {
                let mut running = self.0.lock();
                if let Some(at) = running.iter().position(|name| *name == self.1) {
                    running.swap_remove(at);
                }
            }
        }
        let owner = self.owner;
        self.running.lock().push(name.clone());
        let running = Running(Arc::clone(&self.running), name.clone());
        let handle = named(name).spawn(move || {
            let _running = running;
            owner.adopt(work);
        })?;
        let mut handles = self.handles.lock();
        handles.retain(|handle| !handle.is_finished());
        handles.push(handle);
        Ok(())
    }

    /// The names of those that have not ended.
    pub(crate) fn running(&self) -> Vec<String> {
        self.running.lock().clone()
    }

    /// Waits for all threads of the group. The caller has told them to end, and is none of the owner's.
    pub(crate) fn join(&self) {
        let _joining = self.joining.lock();
        while let Some(handle) = { self.handles.lock().pop() } {
            let name = handle.thread().name().unwrap_or_default().to_owned();
            if let Err(panic) = handle.join() {
                log::error!("thread {name:?} {}", panic::message(&*panic));
            }
        }
    }
}

//! The threads that the crate starts: named, counted, joined by whoever started them, and never by
//! themselves.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use crate::panic;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Mutex, thread_local};

/// An informer, a handler or a queue: something whose end is the end of its threads. A handler's thread belongs
/// to the handler and to its informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Owner(u64);

/// The owners of a thread, to hand to the threads that it starts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Vec<Owner>);

thread_local! {
    /// The owners of this thread.
    static CURRENT: RefCell<Vec<Owner>> = const { RefCell::new(Vec::new()) };
}

/// A thread of `waiter`s that waits for the end of `targets`.
struct Wait {
    id: u64,
    waiter: Vec<Owner>,
    targets: Vec<Owner>,
}

/// The waits in progress, so that no two wait for each other. Nothing else is locked, and no user code runs,
/// under it; waits of threads without an owner are left out, as nothing waits for these.
static WAITS: std::sync::Mutex<Vec<Wait>> = std::sync::Mutex::new(Vec::new());

fn waits() -> std::sync::MutexGuard<'static, Vec<Wait>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owner {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the current thread is one of the owner's.
    pub(crate) fn is_current(self) -> bool {
        // None while the thread is being destroyed.
        CURRENT
            .try_with(|current| current.borrow().contains(&self))
            .unwrap_or(false)
    }

    /// Runs `work` on this thread as on one of the owner's.
    pub(crate) fn adopt<R>(self, work: impl FnOnce() -> R) -> R {
        let mut owners = Owners::current();
        owners.0.push(self);
        owners.adopt(work)
    }

    /// Runs `wait`, which waits for the end of the targets' threads. Returns `None`, without a wait, if one of
    /// these threads is the current one, or waits for it, directly or by way of others.
    pub(crate) fn wait_for<R>(targets: &[Self], wait: impl FnOnce() -> R) -> Option<R> {
        /// Takes the wait out, also when it panics.
        struct Ended(u64);
        impl Drop for Ended {
            fn drop(&mut self) {
                waits().retain(|wait| wait.id != self.0);
            }
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let Owners(waiter) = Owners::current();
        if waiter.is_empty() {
            return Some(wait());
        }
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        {
            let mut waits = waits();
            if leads_to(&waits, targets, &waiter) {
                return None;
            }
            waits.push(Wait {
                id,
                waiter,
                targets: targets.to_vec(),
            });
        }
        let _ended = Ended(id);
        Some(wait())
    }
}

/// Whether the end of one of the targets waits for a thread with these owners.
fn leads_to(waits: &[Wait], targets: &[Owner], waiter: &[Owner]) -> bool {
    let (mut open, mut seen) = (targets.to_vec(), HashSet::new());
    while let Some(target) = open.pop() {
        if waiter.contains(&target) {
            return true;
        }
        if seen.insert(target) {
            let of_target = waits.iter().filter(|wait| wait.waiter.contains(&target));
            open.extend(of_target.flat_map(|wait| &wait.targets));
        }
    }
    false
}

impl Owners {
    /// Those of the current thread.
    pub(crate) fn current() -> Self {
        Self(
            CURRENT
                .try_with(|current| current.borrow().clone())
                .unwrap_or_default(),
        )
    }

    /// Runs `work` on this thread as on one of theirs.
    pub(crate) fn adopt<R>(self, work: impl FnOnce() -> R) -> R {
        /// Gives the thread back, also when `work` panics.
        struct Restore(Vec<Owner>);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.with(|current| current.replace(std::mem::take(&mut self.0)));
            }
        }
        let _restore = Restore(CURRENT.with(|current| current.replace(self.0)));
        work()
    }
}

/// How much stack, in bytes, the threads of an informer get.
///
/// A stack is address space, and costs memory only as far as it was ever used: an informer that is idle holds
/// some 20 kB on each of its threads, whatever the sizes. They matter where address space does: under
/// `ulimit -v` or `ulimit -d`, on 32 bits, where all memory is locked, and to code of yours that goes deep.
///
/// The system rounds up what is less than a thread can be started with. More than it can give is an error of
/// whatever starts the thread, and so is less than a thread's thread-local variables take.
///
/// ```
/// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
/// use k8s_informer::informer::SharedIndexInformerOptions;
/// use std::sync::{Arc, PoisonError};
///
/// fn deep(levels: usize) -> usize {
///     let frame = std::hint::black_box([1; 1024]);
///     if levels == 0 { 0 } else { frame[0] + deep(levels - 1) }
/// }
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let mut options = SharedIndexInformerOptions::<DynamicObject>::default();
/// options.reflector.stack_sizes.handlers = Some(64 << 20);
/// let informer = SharedIndexInformer::new(Arc::new(script), options);
/// let handler = informer.add_event_handler(|handler| {
///     handler.on_add(|_, _| assert_eq!(deep(2_000), 2_000)) // 16 MiB and more
/// })?;
/// let stop = Stop::new();
/// std::thread::scope(|scope| {
///     scope.spawn(|| informer.run(&stop));
///     handler.synced().wait();
///     stop.stop();
/// });
/// assert_eq!(handler.stats().panics, 0);
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StackSizes {
    /// Of the thread that lists, watches and decodes, where transforms run, too, and most destructors of
    /// objects. `None`, the default: 4 MiB,
    /// twice what the deepest-going types of Kubernetes take, see
    /// [`DecodeLimits::nesting`](crate::reflector::DecodeLimits::nesting); or what the environment's `RUST_MIN_STACK`
    /// says, if that is more.
    ///
    /// A [`Reflector`](crate::reflector::Reflector) by itself runs on its caller's thread.
    pub reflector: Option<usize>,
    /// Of the threads that handlers are called on. `None`, the default: the 2 MiB of the standard library,
    /// or `RUST_MIN_STACK`.
    pub handlers: Option<usize>,
    /// Of the others: the process loop, where the caller has given it no thread of his; the one that feeds
    /// each handler; the resyncs. Index functions run there. By default as [`handlers`](Self::handlers).
    ///
    /// A destructor of an object may run on any of the threads.
    pub others: Option<usize>,
}

impl StackSizes {
    /// What the reflector's thread gets.
    pub(crate) fn of_reflector(self) -> usize {
        const DEFAULT: usize = 4 << 20;
        self.reflector.unwrap_or_else(|| {
            let wanted = std::env::var("RUST_MIN_STACK")
                .ok()
                .and_then(|wanted| wanted.parse().ok());
            wanted.unwrap_or(DEFAULT).max(DEFAULT)
        })
    }
}

/// A thread to be, of this name and with this stack, if not the usual one. The standard library panics at a
/// NUL, and names come from users; and so it does at sizes that the system would refuse, where it can't be
/// more than a part of all there is.
pub(crate) fn named(name: String, stack: Option<usize>) -> Builder {
    const MOST: usize = usize::MAX / 8;
    let thread = Builder::new().name(if name.contains('\0') {
        name.replace('\0', "?")
    } else {
        name
    });
    match stack {
        Some(stack) => thread.stack_size(stack.min(MOST)),
        None => thread,
    }
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
        Self {
            owner,
            joining: Mutex::default(),
            handles: Mutex::default(),
            running: Arc::default(),
        }
    }

    /// Starts a thread of the group, with this stack if not the usual one.
    pub(crate) fn spawn(
        &self,
        name: String,
        stack: Option<usize>,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
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
        let handle = named(name, stack).spawn(move || {
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
        let mut panics = Vec::new();
        {
            let _joining = self.joining.lock();
            while let Some(handle) = { self.handles.lock().pop() } {
                let name = handle.thread().name().unwrap_or_default().to_owned();
                panics.extend(
                    handle
                        .join()
                        .err()
                        .map(|panic| (name, panic::message(&*panic))),
                );
            }
        }
        // A logger is user code: it may wait for the threads, too.
        for (name, panic) in panics {
            log::error!("thread {name:?} {panic}");
        }
    }
}

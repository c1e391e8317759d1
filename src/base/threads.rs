//! The threads of the crate: named, counted, and joined by the code that started them. A thread
//! never joins itself.

use std::cell::RefCell;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use crate::base::derive::setters;
use crate::base::panic::Panicked;
use crate::base::sync::thread::{Builder, JoinHandle};
use crate::base::sync::{Mutex, thread_local};

/// The identity of an informer, a handler or a queue, which ends when its threads have ended. A
/// handler's thread belongs to the handler and to its informer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner(u64);

/// An owner that becomes known later than the values that refer to it. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct LateOwner(Arc<OnceLock<Owner>>);

/// The owners of a thread, which the threads that it starts inherit.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Vec<Owner>);

thread_local! {
    /// The owners of the current thread.
    static CURRENT: RefCell<Vec<Owner>> = const { RefCell::new(Vec::new()) };
}

/// A thread that waits until all threads of `targets` have ended. `waiter` holds the owners of the
/// waiting thread.
struct Wait {
    id: u64,
    waiter: Vec<Owner>,
    targets: Vec<Owner>,
}

/// The waits in progress. They reveal cycles, so that two threads never wait for each other. While
/// this lock is held, no other lock is taken and no user code runs. Waits of threads without owners
/// are not recorded, because no recorded wait has such a thread as its target.
static WAITS: std::sync::Mutex<Vec<Wait>> = std::sync::Mutex::new(Vec::new());

fn waits() -> std::sync::MutexGuard<'static, Vec<Wait>> {
    WAITS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Owner {
    /// Creates an owner that no thread belongs to.
    #[allow(
        clippy::new_without_default,
        reason = "each owner differs from all others"
    )]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }

    /// Whether the current thread belongs to this owner.
    pub fn is_current(self) -> bool {
        // The thread-local is unavailable while the thread exits.
        CURRENT
            .try_with(|current| current.borrow().contains(&self))
            .unwrap_or(false)
    }

    /// Runs `work` on the current thread as if it belonged to this owner.
    pub fn adopt<R>(self, work: impl FnOnce() -> R) -> R {
        let mut owners = Owners::current();
        owners.0.push(self);
        owners.adopt(work)
    }

    /// Runs `wait`, which waits for the threads of `targets` to end. Returns `None` without waiting
    /// if the current thread is one of these threads, or if one of them waits for it, directly or
    /// indirectly.
    pub fn wait_for<R>(targets: &[Self], wait: impl FnOnce() -> R) -> Option<R> {
        /// Removes the entry from `WAITS`, even if `wait` panics.
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
            if waits_for(&waits, targets, &waiter) {
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

/// Whether one of the targets waits, directly or indirectly, for a thread of `waiter`.
fn waits_for(waits: &[Wait], targets: &[Owner], waiter: &[Owner]) -> bool {
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

impl LateOwner {
    /// Sets the owner. Later calls do nothing.
    pub(crate) fn set(&self, owner: Owner) {
        let _was_set = self.0.set(owner);
    }

    /// Returns the owner, or `None` if it is not known yet.
    pub(crate) fn get(&self) -> Option<Owner> {
        self.0.get().copied()
    }

    /// Whether the owner is known, and the current thread belongs to it.
    pub(crate) fn is_current(&self) -> bool {
        self.get().is_some_and(Owner::is_current)
    }
}

impl Owners {
    /// Returns the owners of the current thread.
    pub(crate) fn current() -> Self {
        Self(
            CURRENT
                .try_with(|current| current.borrow().clone())
                .unwrap_or_default(),
        )
    }

    /// Runs `work` on the current thread as if it belonged to these owners.
    pub(crate) fn adopt<R>(self, work: impl FnOnce() -> R) -> R {
        /// Restores the previous owners, even if `work` panics.
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

/// The stack sizes of an informer's threads, in bytes.
///
/// A stack reserves address space. It takes memory only for the part that has been used: an idle
/// informer takes about 20 kB for each of its threads, whatever the sizes. The sizes matter if
/// address space is limited (`ulimit -v`, `ulimit -d`, 32-bit systems), if all memory is locked,
/// and if your code recurses deeply.
///
/// A size below 512 KiB counts as 512 KiB, because a stack that overflows ends the process. Starting
/// a thread fails if the size exceeds what the system can provide, or if the stack cannot hold the
/// thread-local variables.
///
/// ```
/// use k8s_informer::informer::SharedIndexInformerOptions;
/// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
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
/// let stop = Stopper::new();
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
    /// The stack size of the thread that lists, watches and decodes. Transforms and most
    /// destructors of objects run on this thread. The default, `None`, is 4 MiB, or
    /// `RUST_MIN_STACK` if that is larger. 4 MiB is twice the stack that the most deeply nested
    /// types of Kubernetes need, see
    /// [`DecodeLimits::nesting`](crate::reflector::DecodeLimits::nesting).
    ///
    /// A [`Reflector`](crate::reflector::Reflector) without an informer runs on its caller's
    /// thread.
    pub reflector: Option<usize>,
    /// The stack size of the threads that call handlers. The default, `None`, is the 2 MiB of the
    /// standard library, or `RUST_MIN_STACK`.
    pub handlers: Option<usize>,
    /// The stack size of the other threads: the process loop (unless it runs on the caller's
    /// thread), and the thread that feeds each handler. The default is that of
    /// [`handlers`](Self::handlers).
    ///
    /// Index functions run on the process loop, or on the reflector's thread if it processes a change
    /// itself.
    ///
    /// A destructor of an object can run on any of the threads.
    pub others: Option<usize>,
}

impl StackSizes {
    /// Creates the default sizes.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the stack size in bytes of the [thread that lists, watches and
        /// decodes](Self#structfield.reflector).
        reflector(bytes: usize) = Some(bytes);
        /// Sets the stack size in bytes of the threads that call handlers.
        handlers(bytes: usize) = Some(bytes);
        /// Sets the stack size in bytes of the [other threads](Self#structfield.others).
        others(bytes: usize) = Some(bytes);
    }

    /// Returns the stack size of the reflector's thread.
    pub(crate) fn of_reflector(self) -> usize {
        const DEFAULT: usize = 4 << 20;
        self.reflector.unwrap_or_else(|| {
            let configured = std::env::var("RUST_MIN_STACK")
                .ok()
                .and_then(|configured| configured.parse().ok());
            configured.unwrap_or(DEFAULT).max(DEFAULT)
        })
    }
}

/// Returns a builder for a thread with this name, and with this stack size or the default. Names
/// come from users, and the standard library panics at a NUL byte. It also panics, instead of
/// returning an error, at sizes that no system can provide, so sizes are limited to an eighth of
/// the address space. The minimum is twice what a debug build needs to decode a `Pod` of
/// k8s-openapi; an optimized build needs a small part of that.
pub fn named(name: String, stack: Option<usize>) -> Builder {
    const MIN_STACK: usize = 512 << 10;
    const MAX_STACK: usize = usize::MAX / 8;
    let thread = Builder::new().name(if name.contains('\0') {
        name.replace('\0', "?")
    } else {
        name
    });
    match stack {
        Some(stack) => thread.stack_size(stack.clamp(MIN_STACK, MAX_STACK)),
        None => thread,
    }
}

/// A group of threads that end together.
#[derive(Debug)]
pub struct Threads {
    owner: Owner,
    /// Held while a caller joins the threads, so that a concurrent caller does not return before
    /// the threads have ended. In the lock order it comes before `handles`.
    joining: Mutex<()>,
    /// The threads that have not been joined. No other lock is taken and no thread is joined under
    /// this lock.
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// The names of the running threads, including one that is being joined. An innermost lock.
    running: Arc<Mutex<Vec<String>>>,
}

impl Threads {
    /// Creates a group of threads that belong to `owner`.
    pub fn new(owner: Owner) -> Self {
        Self {
            owner,
            joining: Mutex::default(),
            handles: Mutex::default(),
            running: Arc::default(),
        }
    }

    /// Starts a thread of the group, with this stack size or the default.
    ///
    /// # Errors
    ///
    /// Fails if the system cannot start a thread.
    pub fn spawn(
        &self,
        name: String,
        stack: Option<usize>,
        work: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        /// Removes the name, even if the thread panics.
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

    /// Returns the names of the threads that have not ended.
    pub fn running(&self) -> Vec<String> {
        self.running.lock().clone()
    }

    /// Joins all threads of the group. The caller has signaled them to end, and is not one of the
    /// owner's threads.
    pub fn join(&self) {
        let mut panics = Vec::new();
        {
            let _joining = self.joining.lock();
            while let Some(handle) = { self.handles.lock().pop() } {
                let name = handle.thread().name().unwrap_or_default().to_owned();
                panics.extend(
                    handle
                        .join()
                        .err()
                        .map(|panic| (name, Panicked::of(&*panic))),
                );
            }
        }
        // A logger is user code and may wait for these threads, so no lock is held here.
        for (name, panic) in panics {
            log::error!(target: "k8s_informer", "thread {name:?} {panic}");
        }
    }
}

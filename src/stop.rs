//! Signals between threads: [`Stop`] ends work, and [`Done`] reports that an event has happened.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`Stop`] | ends informers, requests and waits immediately; has children | `stopCh`, `ctx.Done()` |
//! | [`Stopper`] | sets a `Stop` | `close(stopCh)`, `cancel` |
//! | [`Done`] | is set once; threads wait for it | `DoneChecker`, `InformerSynced` |
//! | [`DoneSetter`] | sets a `Done` | |
//! | [`Subscription`] | a callback of a `Stop` or a `Done`; unregistered when the subscription is dropped | |
//!
//! Each signal has two halves, as in Go, where a function gets a receive-only channel:
//!
//! - Code that ends with a signal has a `Stop` and cannot set it: a function takes a `&Stop`, a
//!   struct stores a `Stop`.
//! - The owner of the signal stores a `Stopper`. [`Stopper::signal`] returns a `Stop` for others.
//!   `clone` returns another setter.
//!
//! A `Stopper` dereferences to its `Stop`: it has the methods of `Stop`, and `&stopper` is
//! accepted where a function takes a `&Stop`. `Done` and `DoneSetter` relate in the same way.
//!
//! ```
//! use k8s_informer::{Stop, Stopper};
//!
//! fn work(stop: &Stop) {
//!     stop.wait();
//! }
//!
//! let stopper = Stopper::new();
//! let worker = std::thread::spawn({ let stop = stopper.signal(); move || work(&stop) });
//! stopper.stop();
//! worker.join().unwrap();
//! assert!(stopper.is_stopped());
//! ```

pub(crate) mod guard;

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::base::derive::{debug_fields, unwind_safe};
use crate::base::panic;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::{Condvar, Mutex};
use crate::base::threads::{LateOwner, Owner};
use crate::error::{WaitCause, WaitError};
use crate::log;

#[cfg(feature = "signals")]
mod signals;

/// The action to perform when a [`Done`] is set.
enum Callback {
    Run(Box<dyn FnOnce() + Send>),
    /// Sets the signal of a child [`Stop`].
    Child(Weak<Shared>),
}

impl Callback {
    fn child(&self) -> Option<Arc<Shared>> {
        match self {
            Self::Run(_) => None,
            Self::Child(child) => child.upgrade(),
        }
    }
}

/// A signal that is set once, and that threads can wait for without polling. client-go's
/// `DoneChecker`.
///
/// Clones share the same signal. A [`DoneSetter`] sets it.
///
/// **Waiting for the own thread.** Some signals of informers are never set while a certain callback
/// runs. [`ended`](crate::SharedIndexInformer::ended) is set when no callback runs any more. If an
/// informer runs on [one
/// thread](crate::informer::SharedIndexInformerOptions::one_thread), a handler also keeps that
/// thread from setting [`synced`](crate::SharedIndexInformer::synced). In such a callback, the waits
/// for the signal return at once and log a warning, also [`wait`](Self::wait), although the signal
/// is not set.
///
/// ```
/// use k8s_informer::stop::DoneSetter;
///
/// let setter = DoneSetter::new("pods");
/// let synced = setter.signal();
/// assert!(!synced.is_done());
/// let waiter = std::thread::spawn({ let synced = synced.clone(); move || synced.wait() });
/// setter.set();
/// waiter.join().unwrap();
/// assert_eq!((synced.is_done(), synced.name()), (true, "pods"));
/// ```
#[derive(Clone)]
#[doc(alias = "DoneChecker")]
pub struct Done {
    shared: Arc<Shared>,
}

/// The setter of a [`Done`]. It dereferences to its `Done`. A clone also sets the signal.
///
/// ```
/// use k8s_informer::stop::DoneSetter;
///
/// let loaded = DoneSetter::new("configuration");
/// loaded.set();
/// assert!(loaded.is_done());
/// ```
#[derive(Clone)]
pub struct DoneSetter(Done);

struct Shared {
    name: String,
    /// The threads that keep the signal from being set while they wait for it.
    setting_threads: SettingThreads,
    /// Written under the lock of `state`. Read without it where a stale `false` is harmless.
    done: AtomicBool,
    /// Guards the callbacks and the change of `done`. This is an innermost lock: no other lock is
    /// taken, and no callback runs, while it is held.
    state: Mutex<Callbacks>,
    /// Notified by `set`; waiters wait for `done`.
    changed: Condvar,
}

/// The threads that keep a signal from being set while they wait for it.
enum SettingThreads {
    /// None that are known.
    Unknown,
    Owner(Owner),
    /// Those of an owner that may be known only later.
    Late(LateOwner),
    Either(Owner, LateOwner),
}

impl SettingThreads {
    /// Whether the current thread is one of them.
    fn is_current(&self) -> bool {
        match self {
            Self::Unknown => false,
            Self::Owner(owner) => owner.is_current(),
            Self::Late(late) => late.is_current(),
            Self::Either(owner, late) => owner.is_current() || late.is_current(),
        }
    }
}

#[derive(Default)]
struct Callbacks {
    next: u64,
    callbacks: BTreeMap<u64, Callback>,
}

impl Done {
    /// Whether both are the same signal.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Returns the name of the signal.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether the signal is set.
    pub fn is_done(&self) -> bool {
        self.shared.done.load(Ordering::Acquire)
    }

    /// Blocks until the signal is set.
    ///
    /// In a callback that [keeps the signal from being set](Self), returns at once.
    pub fn wait(&self) {
        if self.waits_for_itself() {
            return;
        }
        let mut state = self.shared.state.lock();
        while !self.is_done() {
            self.shared.changed.wait(&mut state);
        }
    }

    /// Blocks until the signal is set, or until `timeout` has passed. Returns whether the signal is
    /// set.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        let Some(deadline) = Deadline::after(timeout) else {
            self.wait();
            return self.is_done();
        };
        if self.waits_for_itself() {
            return false;
        }
        let mut state = self.shared.state.lock();
        while !self.is_done() {
            if self
                .shared
                .changed
                .wait_until(&mut state, deadline.at)
                .timed_out()
            {
                return self.is_done();
            }
        }
        true
    }

    /// Blocks until the signal is set, until `timeout` has elapsed, or until `stop` is set.
    ///
    /// # Errors
    ///
    /// Fails if the wait ends before the signal is set. In a callback that [keeps the signal from being
    /// set](Self), fails at once with [`WaitCause::OwnThread`].
    pub fn wait_or_stop(
        &self,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let waited = self.wait_until_either(Deadline::after(timeout), stop);
        waited.map_err(|cause| WaitError::new(cause, format!("waiting for {}", self.name())))
    }

    /// Like [`wait_or_stop`](Self::wait_or_stop). Returns only the cause.
    pub(crate) fn wait_until_either(
        &self,
        deadline: Option<Deadline>,
        stop: &Stop,
    ) -> Result<(), WaitCause> {
        if self.waits_for_itself() {
            return Err(WaitCause::OwnThread);
        }
        match (self.wait_until(deadline, stop), deadline) {
            (true, _) => Ok(()),
            (false, Some(deadline)) if !stop.is_stopped() => {
                Err(WaitCause::TimedOut(deadline.timeout))
            }
            (false, _) => Err(WaitCause::Stopped),
        }
    }

    /// Whether the signal is never set while the current thread waits for it. Logs such waits.
    fn waits_for_itself(&self) -> bool {
        let waits = !self.is_done() && self.shared.setting_threads.is_current();
        if waits {
            let name = self.name();
            log::warn!("{name}: a callback waits for its own thread; the wait returns at once");
        }
        waits
    }

    /// Blocks until the signal is set, until `deadline`, or until `stop` is set. Returns whether
    /// this signal is set.
    pub(crate) fn wait_until(&self, deadline: Option<Deadline>, stop: &Stop) -> bool {
        let (either, _subscriptions) = self.or(&stop.done);
        match deadline {
            Some(deadline) => _ = either.wait_timeout(deadline.rest()),
            None => either.wait(),
        }
        self.is_done()
    }

    /// Runs `callback` when the signal is set, on the thread that [sets](DoneSetter::set) it. If the
    /// signal is already set, runs `callback` immediately on the current thread.
    ///
    /// Dropping the subscription unregisters the callback. The drop does not wait for a callback
    /// that is running.
    pub fn on_done(&self, callback: impl FnOnce() + Send + 'static) -> Subscription {
        let subscription = self.subscribe(Callback::Run(Box::new(callback)));
        subscription.unwrap_or_else(|callback| {
            if let Callback::Run(callback) = callback {
                callback();
            }
            Subscription {
                id: 0,
                shared: Weak::new(),
            }
        })
    }

    /// Returns the signal as a stop, for waits that end when it is set.
    pub(crate) fn as_stop(&self) -> Stop {
        Stop {
            done: self.clone(),
            parents: None,
        }
    }

    /// Returns a signal that is set when this one or `other` is set, before any callback runs. It
    /// is set only while the subscriptions exist.
    fn or(&self, other: &Self) -> (Self, [Option<Subscription>; 2]) {
        let DoneSetter(either) = DoneSetter::new("stop");
        let subscriptions = [self.also_sets(&either), other.also_sets(&either)];
        (either, subscriptions)
    }

    /// Sets `other` as well when this signal is set, before any callback runs.
    fn also_sets(&self, other: &Self) -> Option<Subscription> {
        let subscription = self.subscribe(Callback::Child(Arc::downgrade(&other.shared)));
        subscription.map_err(|_| other.shared.set()).ok()
    }

    /// Registers a callback, or returns it if the signal is already set.
    fn subscribe(&self, callback: Callback) -> Result<Subscription, Callback> {
        let mut state = self.shared.state.lock();
        if self.is_done() {
            return Err(callback);
        }
        let id = state.next;
        state.next += 1;
        state.callbacks.insert(id, callback);
        Ok(Subscription {
            id,
            shared: Arc::downgrade(&self.shared),
        })
    }
}

impl DoneSetter {
    /// Creates a signal that is not set. A wait that ends without the signal reports `name`.
    pub fn new(name: impl Into<String>) -> Self {
        Self::with_setter(SettingThreads::Unknown, name.into())
    }

    /// Creates a signal that is not set while a thread of `setter` waits for it. Such waits return
    /// at once.
    pub(crate) fn set_by(setter: Owner, name: impl Into<String>) -> Self {
        Self::with_setter(SettingThreads::Owner(setter), name.into())
    }

    /// Creates a signal like [`set_by`](Self::set_by), whose setter may become known later. Until
    /// then, each thread may wait for the signal.
    pub(crate) fn set_by_late(setter: &LateOwner, name: impl Into<String>) -> Self {
        Self::with_setter(SettingThreads::Late(setter.clone()), name.into())
    }

    /// Creates a signal like [`set_by`](Self::set_by) that threads of both owners keep from being
    /// set.
    pub(crate) fn set_by_either(setter: Owner, late: &LateOwner, name: impl Into<String>) -> Self {
        Self::with_setter(SettingThreads::Either(setter, late.clone()), name.into())
    }

    fn with_setter(setting_threads: SettingThreads, name: String) -> Self {
        Self(Done {
            shared: Arc::new(Shared {
                name,
                setting_threads,
                done: AtomicBool::new(false),
                state: Mutex::default(),
                changed: Condvar::new(),
            }),
        })
    }

    /// Returns the signal, for code that waits for it and must not set it.
    pub fn signal(&self) -> Done {
        self.0.clone()
    }

    /// Sets the signal. This wakes every waiter and runs the callbacks on the current thread. A
    /// panic in a callback is caught and logged. Later calls do nothing.
    pub fn set(&self) {
        self.0.shared.set();
    }
}

impl Deref for DoneSetter {
    type Target = Done;

    fn deref(&self) -> &Done {
        &self.0
    }
}

unwind_safe!(DoneSetter);
debug_fields!(DoneSetter, this, name: this.name(), done: this.is_done());

impl Shared {
    /// Sets the signal and those of its children, wakes every waiter, and runs the callbacks.
    fn set(self: &Arc<Self>) {
        // A callback that blocks must not keep a child from being set.
        self.set_without_callbacks();
        // A stack instead of recursion, because children can be nested as deeply as memory allows.
        let mut open = vec![self.set_and_take_callbacks()];
        while let Some(callbacks) = open.last_mut() {
            match callbacks.next() {
                None => drop(open.pop()),
                Some(Callback::Child(child)) => {
                    open.extend(child.upgrade().map(|child| child.set_and_take_callbacks()));
                }
                // A panic must not stop the loop: the next callback may be the one that ends a
                // thread.
                Some(Callback::Run(callback)) => {
                    if let Err(panic) = panic::catch(callback) {
                        log::error!("{}: a callback {panic}", self.name);
                    }
                }
            }
        }
    }

    /// Sets the signal and those of its children, and wakes every waiter. The callbacks run at the
    /// next [`set`](Self::set).
    fn set_without_callbacks(self: &Arc<Self>) {
        let mut open = vec![Arc::clone(self)];
        while let Some(shared) = open.pop() {
            let state = shared.state.lock();
            shared.done.store(true, Ordering::Release);
            shared.changed.notify_all();
            open.extend(state.callbacks.values().filter_map(Callback::child));
        }
    }

    /// Sets the signal, wakes every waiter, and returns the callbacks, oldest first.
    fn set_and_take_callbacks(&self) -> impl Iterator<Item = Callback> + use<> {
        let mut state = self.state.lock();
        self.done.store(true, Ordering::Release);
        self.changed.notify_all();
        std::mem::take(&mut state.callbacks).into_values()
    }
}

unwind_safe!(Done);
debug_fields!(Done, this, name: this.name(), done: this.is_done());

/// A callback that is registered with a [`Done`] or a [`Stop`]. Dropping the subscription
/// unregisters it.
#[must_use = "dropping the subscription unregisters the callback"]
pub struct Subscription {
    id: u64,
    shared: Weak<Shared>,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.upgrade() {
            // The callback is dropped after the unlock, because its captures may run any code.
            let _callback = shared.state.lock().callbacks.remove(&self.id);
        }
    }
}

debug_fields!(Subscription:);

/// The stop signal. Threads wait for it, blocked I/O ends with it, and it can have children. Go's
/// `stopCh` and `ctx.Done()`.
///
/// Clones share the same signal. Everything that the crate blocks in ends immediately when the
/// signal is set: a connect, a silent watch, a back-off, a full channel. The exception is a user
/// callback that is running. A name lookup continues on a detached thread, but nothing waits for
/// it.
///
/// A [`Stopper`] sets it. To end only a part of the work that a signal ends, create a
/// [`child`](Self::child).
///
/// ```
/// use k8s_informer::Stopper;
///
/// let stopper = Stopper::new();
/// let child = stopper.child();
/// child.stop();
/// assert!(child.is_stopped() && !stopper.is_stopped());
/// let other = stopper.child();
/// stopper.stop();
/// assert!(other.is_stopped());
/// ```
#[derive(Clone)]
#[doc(alias = "stopCh")]
pub struct Stop {
    done: Done,
    /// Keeps a child registered with its parents while any clone of the child exists. A parent keeps
    /// its own registration in the same way. `None` without parents, or if one was set already.
    parents: Option<Arc<[Option<Parent>; 2]>>,
}

/// A signal that also sets another one, and the registration of the other one.
type Parent = (Subscription, Stop);

/// The setter of a [`Stop`]. Go's `close(stopCh)` and `cancel`.
///
/// It dereferences to its `Stop`, so you can wait for it, and pass `&stopper` as a `&Stop`. To give
/// the signal away without the right to set it, call [`signal`](Self::signal): a clone also sets the
/// signal. Dropping the last clone does not set it.
///
/// ```
/// use k8s_informer::Stopper;
///
/// let stopper = Stopper::new();
/// let stop = stopper.signal();
/// assert!(!stop.is_stopped());
/// stopper.stop();
/// assert!(stop.is_stopped());
/// ```
#[derive(Clone)]
pub struct Stopper(Stop);

impl Stop {
    /// Creates a signal that is never set: for a call that nothing ends early, or that another call
    /// ends, such as a `shutdown`.
    ///
    /// ```
    /// use k8s_informer::Stop;
    ///
    /// assert!(!Stop::never().is_stopped());
    /// ```
    pub fn never() -> Self {
        Stopper::new().0
    }

    /// Creates a signal that is set when the process receives SIGINT (Ctrl-C) or SIGTERM. A second
    /// SIGINT or SIGTERM ends the process immediately, as it would without this call.
    ///
    /// Starts a thread named `signals`, which runs until the process ends. To end the program for
    /// another reason as well, use a [`child`](Self::child).
    ///
    /// # Errors
    ///
    /// Fails if the system refuses to register the signal handlers or cannot start a thread.
    #[cfg(feature = "signals")]
    pub fn on_signals() -> std::io::Result<Self> {
        use signals::{SIGNALS, Signals};
        use std::sync::atomic::AtomicBool;

        let stopper = Stopper::new();
        let stop = stopper.signal();
        let second = Arc::new(AtomicBool::new(false));
        for signal in SIGNALS {
            signal_hook::flag::register_conditional_default(signal, Arc::clone(&second))?;
        }
        let mut signals = Signals::register()?;
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(move || {
                loop {
                    signals.wait();
                    second.store(true, Ordering::Release);
                    stopper.stop();
                }
            })?;
        Ok(stop)
    }

    /// Whether the signal is set.
    pub fn is_stopped(&self) -> bool {
        self.done.is_done()
    }

    /// Blocks until the signal is set.
    pub fn wait(&self) {
        self.done.wait();
    }

    /// Blocks until the signal is set, or until `timeout` has passed. Returns whether the signal is
    /// set.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.done.wait_timeout(timeout)
    }

    /// Creates a child. Setting this signal also sets the child. The returned [`Stopper`] sets only
    /// the child.
    pub fn child(&self) -> Stopper {
        let DoneSetter(done) = DoneSetter::new("stop");
        let parent = self.done.also_sets(&done).map(|kept| (kept, self.clone()));
        let parents = parent.map(|parent| Arc::new([Some(parent), None]));
        Stopper(Self { done, parents })
    }

    /// Returns a signal that is set when this one or `other` is set, for a wait that both end.
    ///
    /// ```
    /// use k8s_informer::Stopper;
    ///
    /// let (shutdown, ended) = (Stopper::new(), Stopper::new());
    /// let either = shutdown.or(&ended);
    /// assert!(!either.is_stopped());
    /// ended.stop();
    /// assert!(either.is_stopped() && !shutdown.is_stopped());
    /// ```
    #[must_use]
    pub fn or(&self, other: &Self) -> Self {
        let (done, [first, second]) = self.done.or(&other.done);
        let parents = [
            first.map(|kept| (kept, self.clone())),
            second.map(|kept| (kept, other.clone())),
        ];
        Self {
            done,
            parents: Some(Arc::new(parents)),
        }
    }

    /// Sets `other` as well when this signal is set, before any callback runs.
    pub(crate) fn also_stops(&self, other: &Stopper) -> Option<Subscription> {
        self.done.also_sets(&other.done)
    }

    /// Runs `callback` when the signal is set, on the thread that [sets](Stopper::stop) it. If
    /// the signal is already set, runs `callback` immediately on the current thread.
    ///
    /// The callback must not block. Typical callbacks shut down a socket, close a queue, or wake a
    /// thread. A callback that blocks delays the other callbacks of the signal and of its children,
    /// but not the signals: all of them are set before the first callback runs. Dropping the
    /// subscription unregisters the callback.
    ///
    /// ```
    /// use k8s_informer::Stopper;
    ///
    /// let (stopper, (sender, ended)) = (Stopper::new(), std::sync::mpsc::channel());
    /// let kept = stopper.on_stop({ let sender = sender.clone(); move || sender.send("kept").unwrap() });
    /// drop(stopper.on_stop(move || sender.send("dropped").unwrap()));
    /// stopper.stop();
    /// assert_eq!(ended.try_iter().collect::<Vec<_>>(), ["kept"]);
    /// # drop(kept);
    /// ```
    pub fn on_stop(&self, callback: impl FnOnce() + Send + 'static) -> Subscription {
        self.done.on_done(callback)
    }
}

impl Stopper {
    /// Creates a signal that is not set.
    pub fn new() -> Self {
        let DoneSetter(done) = DoneSetter::new("stop");
        Self(Stop {
            done,
            parents: None,
        })
    }

    /// Returns the signal, for code that waits for it and must not set it.
    pub fn signal(&self) -> Stop {
        self.0.clone()
    }

    /// Sets the signal. Later calls do nothing.
    pub fn stop(&self) {
        self.done.shared.set();
    }

    /// Sets the signal and wakes every wait. The callbacks run at the next [`stop`](Self::stop).
    #[cfg(feature = "client")]
    #[doc(hidden)]
    pub fn stop_without_callbacks(&self) {
        self.done.shared.set_without_callbacks();
    }
}

impl Deref for Stopper {
    type Target = Stop;

    fn deref(&self) -> &Stop {
        &self.0
    }
}

impl Default for Stopper {
    fn default() -> Self {
        Self::new()
    }
}

/// Drops the parents in a loop. Recursion could overflow the stack, because the last child may be
/// the last owner of a long chain.
impl Drop for Stop {
    fn drop(&mut self) {
        let (mut next, mut open) = (self.parents.take(), Vec::new());
        while let Some(parents) = next {
            for (subscription, mut stop) in Arc::into_inner(parents).into_iter().flatten().flatten()
            {
                drop(subscription);
                open.extend(stop.parents.take());
            }
            next = open.pop();
        }
    }
}

unwind_safe!(Stop);
debug_fields!(Stop, this, stopped: this.is_stopped());
unwind_safe!(Stopper);
debug_fields!(Stopper, this, stopped: this.is_stopped());

#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn stop_reaches_grandchild_of_dropped_child() {
        let stop = Stopper::new();
        let grandchild = stop.child().child();
        stop.stop();
        assert!(grandchild.is_stopped());
    }

    #[test]
    fn dropped_children_leave_no_callbacks() {
        let stop = Stopper::new();
        for _ in 0..3 {
            drop(stop.child().child());
        }
        assert!(stop.done.shared.state.lock().callbacks.is_empty());
    }

    #[test]
    fn either_of_two_signals_is_set_by_both() {
        for sets_first in [true, false] {
            let (first, second) = (Stopper::new(), Stopper::new());
            // The registration of a parent lasts as long as the child.
            let either = first.child().or(&second.child());
            let set = if sets_first { &first } else { &second };
            set.stop();
            assert!(either.is_stopped());
            // A signal that was set before also counts.
            assert!(first.or(&second).is_stopped());
            assert!(!(first.is_stopped() && second.is_stopped()));
        }
    }

    #[test]
    fn dropped_either_leaves_no_callbacks() {
        let (first, second) = (Stopper::new(), Stopper::new());
        let either = first.child().or(&second).or(&first);
        assert!(!either.is_stopped());
        drop(either);
        for stop in [first, second] {
            assert!(stop.done.shared.state.lock().callbacks.is_empty());
        }
    }

    /// Returns a stop and its descendant, `generations` levels below it.
    fn descendant(generations: usize) -> (Stopper, Stop) {
        let stop = Stopper::new();
        let last = (0..generations).fold(stop.signal(), |parent, _| parent.child().signal());
        (stop, last)
    }

    #[test]
    fn stop_of_deeply_nested_children_needs_no_stack() {
        let (stop, last) = descendant(100_000);
        stop.stop();
        assert!(last.is_stopped());
    }

    #[test]
    fn drop_of_deeply_nested_children_needs_no_stack() {
        let (stop, last) = descendant(100_000);
        drop(last);
        assert!(stop.done.shared.state.lock().callbacks.is_empty());
    }

    #[test]
    fn stop_runs_callbacks_of_children_in_order() {
        let (stop, (sender, called)) = (Stopper::new(), channel());
        let on_stop = |stop: &Stop, name: &'static str| {
            let sender = sender.clone();
            stop.on_stop(move || sender.send(name).unwrap())
        };
        let _first = on_stop(&stop, "first");
        let child = stop.child();
        let (_child, grandchild) = (on_stop(&child, "child"), child.child());
        let _others = [
            on_stop(&grandchild, "grandchild"),
            on_stop(&child, "sibling"),
            on_stop(&stop, "last"),
        ];
        stop.stop();
        assert_eq!(
            called.try_iter().collect::<Vec<_>>(),
            ["first", "child", "grandchild", "sibling", "last"]
        );
    }

    #[test]
    fn callback_that_blocks_delays_neither_children_nor_waits() {
        let (stop, child) = (Stopper::new(), Arc::new(OnceLock::<Stopper>::new()));
        let ((sender, result), (ends, ended)) = (channel(), channel());
        let set = Arc::clone(&child);
        let _blocks = stop.on_stop(move || {
            let is_child_set = set.wait().is_stopped();
            let is_wait_over = ended.recv_timeout(Duration::from_secs(20)).is_ok();
            sender.send((is_child_set, is_wait_over)).unwrap();
        });
        child.set(stop.child()).unwrap();
        let stopper = std::thread::spawn({
            let stop = stop.clone();
            move || stop.stop()
        });
        let ended = DoneSetter::new("done").wait_or_stop(None, &stop);
        assert!(ended.unwrap_err().is_stopped());
        let _ = ends.send(());
        stopper.join().unwrap();
        assert_eq!(result.recv().unwrap(), (true, true));
    }

    #[test]
    fn late_setter_may_wait_until_it_is_known() {
        let (owner, late) = (Owner::new(), LateOwner::default());
        let done = DoneSetter::set_by_late(&late, "done");
        owner.adopt(|| assert!(!done.waits_for_itself()));
        late.set(owner);
        owner.adopt(|| assert!(done.waits_for_itself()));
        assert!(!done.waits_for_itself());
    }

    #[test]
    fn wait_of_either_setter_returns_at_once() {
        let (owner, late_owner, late) = (Owner::new(), Owner::new(), LateOwner::default());
        let done = DoneSetter::set_by_either(owner, &late, "done");
        late.set(late_owner);
        for setter in [owner, late_owner] {
            setter.adopt(|| done.wait());
        }
        assert!(!done.is_done());
    }

    #[test]
    fn panicking_callback_does_not_block_later_callbacks() {
        let (done, next) = (DoneSetter::new("done"), DoneSetter::new("next"));
        let _bad = done.on_done(|| panic!("callback failed"));
        let _good = done.on_done({
            let next = next.clone();
            move || next.set()
        });
        done.set();
        assert!(next.is_done());
    }
}

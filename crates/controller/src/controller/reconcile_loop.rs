//! The queue and the workers of a controller, without its object type.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant, SystemTime};

use ::log::Level;

use super::context::Context;
use super::error::ControllerError;
use super::failure_log::{FailureLog, Note, Recovery, Topic};
use super::named_handlers::HandlerErrors;
use super::outcome::{Failure, Next};
use super::own_writes::{Observed, OwnWrites, Settled, Times, Write};
use super::probe::Probe;
use super::schedule::{Due, Schedule};
use super::source::AnySource;
use super::timers::{TimerId, Timers};
use crate::leader_election::Leading;
use crate::log;
use crate::metrics::{ControllerMetrics, ReconcileResult};
use k8s_informer::__private::Meter;
use k8s_informer::__private::catch;
use k8s_informer::__private::sync::Mutex;
use k8s_informer::__private::{Owner, Threads};
use k8s_informer::client::Client;
use k8s_informer::client::api::{WriteObserver, WriteOutcome};
use k8s_informer::error::Error;
use k8s_informer::object::{GroupVersionKind, GroupVersionResource, Key, ObjectName};
use k8s_informer::stop::Stop;
use k8s_informer::time::Clock;
use k8s_informer::workqueue::{AddOptions, PriorityQueue};

/// The priority of keys from initial lists and resyncs, as in controller-runtime. Changes have the
/// priority 0.
pub(super) const LOW_PRIORITY: i32 = -100;

/// A reconcile function for keys: looks up the object and calls the user's functions.
pub(super) type ReconcileFn = dyn Fn(Context, &Key) -> Outcome + Send + Sync;

/// The outcome of a call.
pub(super) struct Outcome {
    result: Result<Next, Failure>,
    /// `None` if the call has one function, so that its result decides about the next call.
    handlers: Option<HandlersOutcome>,
}

/// The state of the named handlers of a key after a call.
struct HandlersOutcome {
    /// The failures of all handlers, also of those that this call did not run.
    failure: Option<Failure>,
    /// The time until the next call.
    next: Option<Duration>,
}

impl From<Result<Next, Failure>> for Outcome {
    fn from(result: Result<Next, Failure>) -> Self {
        Self {
            result,
            handlers: None,
        }
    }
}

impl Outcome {
    /// `failed` has the failures of the handlers that this call ran.
    pub(super) fn of_handlers(
        failed: Option<Failure>,
        failure: Option<Failure>,
        next: Option<Duration>,
    ) -> Self {
        Self {
            result: failed.map_or(Ok(next.map_or(Next::Done, Next::After)), Err),
            handlers: Some(HandlersOutcome { failure, next }),
        }
    }
}

/// The settings of a loop.
pub(super) struct Settings {
    pub(super) name: String,
    /// The kind of the primary objects. `None` for a dynamic resource without a declared kind.
    pub(super) kind: Option<GroupVersionKind>,
    pub(super) workers: usize,
    pub(super) time_limit: Option<Duration>,
    pub(super) grace_period: Duration,
    pub(super) own_writes_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) metrics: Option<Arc<dyn ControllerMetrics>>,
    pub(super) probe: Option<Arc<dyn Probe>>,
    /// `Some` if the controller has named handlers. No other lock is taken and no user code runs
    /// while this one is held.
    pub(super) schedule: Option<Mutex<Schedule>>,
}

impl Settings {
    /// Returns how long calls can take after their stop signals.
    fn last_grace(&self) -> Duration {
        self.grace_period.max(MIN_GRACE)
    }

    /// Returns the time between two checks of own writes.
    fn own_writes_retry(&self) -> Duration {
        self.own_writes_timeout.clamp(MIN_CHECK, YEAR)
    }

    /// Returns how long a stop can take.
    pub(super) fn max_stop(&self) -> Duration {
        self.grace_period.saturating_add(self.last_grace())
    }
}

/// The time between two checks of a write that the watch has not delivered is at least this long.
const MIN_CHECK: Duration = Duration::from_secs(1);

/// The own writes of all keys are checked after this multiple of the time between two checks of a
/// key that waits.
const SWEEP_RETRIES: u32 = 10;

/// The maximum number of awaited writes in a status.
const MAX_AWAITED: usize = 20;

/// Replaces timeouts that exceed the range of `Instant`.
const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The minimum time for calls to react to their stop signals.
const MIN_GRACE: Duration = Duration::from_secs(1);

/// After a panic outside the reconcile function, the key is queued again after this time.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The queue and the workers of a controller.
pub(super) struct ReconcileLoop {
    pub(super) settings: Settings,
    pub(super) client: Client,
    pub(super) queue: PriorityQueue<Key>,
    /// The first one holds the primary objects.
    pub(super) sources: Vec<Arc<dyn AnySource>>,
    pub(super) leading: OnceLock<Leading>,
    reconcile: OnceLock<Box<ReconcileFn>>,
    meter: Meter<dyn ControllerMetrics>,
    pub(super) timers: Timers,
    threads: Threads,
    /// No other lock is taken and no user code runs while this one is held.
    state: Mutex<State>,
}

/// Its collections are trees, which give memory back after a peak.
#[derive(Default)]
struct State {
    own_writes: OwnWrites,
    /// Whether a timer will check the own writes of all keys.
    has_sweep: bool,
    /// The keys that wait for their own writes.
    postponed: BTreeMap<Key, Postponed>,
    /// The number of calls of [`ReconcileLoop::check_all_again`].
    rejections: u64,
    /// The keys of the calls in progress, with the times of their starts.
    running: BTreeMap<Key, Instant>,
    failures: BTreeMap<Key, LastFailure>,
    log: FailureLog,
}

struct Postponed {
    /// The priority with which the key continues.
    priority: i32,
    /// The timer of the next check.
    timer: Option<TimerId>,
}

/// The last failure of a key. A successful call removes it.
///
/// With named handlers, it has the failures of all handlers whose last call failed. `attempts` and
/// `time` are those of the last call in which one failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastFailure {
    /// The error of the last call.
    pub failure: Failure,
    /// The number of failed calls in a row.
    pub attempts: usize,
    /// The time of the last call's end.
    pub time: SystemTime,
}

/// The work of a controller at one moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ControllerStatus {
    /// The number of keys that are ready for a worker, or are queued again during their call.
    pub queued: usize,
    /// The number of keys that wait for a time: a retry, or [`Next::After`].
    pub delayed: usize,
    /// The number of keys that wait until the caches contain the controller's own writes.
    pub postponed: usize,
    /// One write that each of these keys waits for, for the first 20 keys.
    pub awaited: Vec<AwaitedWrite>,
    /// The keys of the calls in progress with their durations, the longest first.
    pub running: Vec<(Key, Duration)>,
    /// The number of keys whose last call failed.
    pub failing: usize,
}

/// A write that a key waits for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct AwaitedWrite {
    /// The key that waits.
    pub key: Key,
    /// The name of the informer whose cache lacks the write.
    pub informer: String,
    /// The key of the written object. Empty if its name is unknown because the server generates it.
    pub object: Key,
    /// What the cache lacks: `version 71`, `its deletion`, or `a change` after a write whose result
    /// is unknown.
    pub change: String,
    /// The time since the write.
    pub since: Duration,
}

impl ReconcileLoop {
    pub(super) fn new(
        mut settings: Settings,
        client: Client,
        queue: PriorityQueue<Key>,
        sources: Vec<Arc<dyn AnySource>>,
    ) -> Self {
        Self {
            meter: Meter::new(settings.metrics.take()),
            timers: Timers::new(Arc::clone(&settings.clock)),
            settings,
            client,
            queue,
            sources,
            leading: OnceLock::new(),
            reconcile: OnceLock::new(),
            threads: Threads::new(Owner::new()),
            state: Mutex::default(),
        }
    }

    /// Sets the function that the workers call.
    pub(super) fn set_reconcile(&self, reconcile: Box<ReconcileFn>) {
        let is_set = self.reconcile.set(reconcile).is_ok();
        debug_assert!(is_set, "a loop has one reconcile function");
    }

    /// Runs the workers until `stop` is signalled, and joins them.
    ///
    /// After the stop, calls in progress can finish. The grace period ends them through `abort`,
    /// which callers may signal earlier. A call that still has not returned after another grace
    /// period is reported as stuck.
    pub(super) fn run(self: &Arc<Self>, stop: &Stop, abort: &Stop) -> Result<(), ControllerError> {
        let workers_ended = Stop::new();
        let all_ended = Arc::new(SignalOnDrop(workers_ended.clone()));
        let (workers_stop, timers_stop) = (stop.child(), Stop::new());
        let workers = self.settings.workers;
        self.meter
            .event(|metrics| metrics.max_concurrent_reconciles(workers));
        let started = self.start(&workers_stop, abort, &timers_stop, &all_ended);
        drop(all_ended);
        if started.is_ok() {
            stop.wait();
        }
        workers_stop.stop();
        self.queue.shut_down();
        let (clock, began) = (&*self.settings.clock, self.settings.clock.now());
        let grace = self.settings.grace_period;
        if !abort.is_stopped() && clock.wait(grace, &workers_ended) {
            abort.stop_without_callbacks();
            // On another thread: a callback of a call must not delay the report that calls hang.
            let on_thread = abort.clone();
            let name = format!("{} abort", self.settings.name);
            let spawned = self.threads.spawn(name, None, move || on_thread.stop());
            if spawned.is_err() {
                abort.stop();
            }
        }
        if !workers_ended.is_stopped() {
            clock.wait(self.settings.last_grace(), &workers_ended);
        }
        timers_stop.stop();
        if !workers_ended.is_stopped() {
            return Err(ControllerError::Stuck {
                controller: self.settings.name.clone(),
                keys: self
                    .running()
                    .iter()
                    .map(|(key, _)| key.to_string())
                    .collect(),
                after: clock.now().saturating_duration_since(began),
            });
        }
        self.threads.join();
        started.map_err(|source| ControllerError::Thread {
            controller: self.settings.name.clone(),
            source: Arc::new(source),
        })
    }

    fn start(
        self: &Arc<Self>,
        stop: &Stop,
        abort: &Stop,
        timers_stop: &Stop,
        all_ended: &Arc<SignalOnDrop>,
    ) -> std::io::Result<()> {
        let name = &self.settings.name;
        let (this, timers_stop) = (Arc::clone(self), timers_stop.clone());
        let timers = move || this.timers.run(&timers_stop);
        self.threads.spawn(format!("{name} timers"), None, timers)?;
        for worker in 0..self.settings.workers {
            let this = Arc::clone(self);
            let (stop, abort, ended) = (stop.clone(), abort.clone(), Arc::clone(all_ended));
            let work = move || {
                let _ended = ended;
                this.work(&stop, &abort);
            };
            self.threads
                .spawn(format!("{name} worker {worker}"), None, work)?;
        }
        Ok(())
    }

    /// Runs a worker. On a stop, waiting keys are dropped: the next start lists all objects.
    fn work(self: &Arc<Self>, stop: &Stop, abort: &Stop) {
        let probe = self.settings.probe.as_deref();
        loop {
            probe.inspect(|probe| probe.wait_to_begin());
            let Some(item) = self.queue.take_or_stop(stop) else {
                return;
            };
            // User code runs outside the call as well: clocks, loggers, rate limiters, and the
            // messages and destructors of errors.
            let worked = catch(|| {
                let is_ready = self.ready_or_postpone(&item, item.priority());
                if is_ready {
                    self.reconcile(&item, item.priority(), abort);
                }
                is_ready
            });
            let is_called = worked.unwrap_or_else(|panic| {
                self.set_running(&item, None);
                drop(catch(|| {
                    let options = AddOptions::new().priority(item.priority());
                    self.queue
                        .add_with(Key::clone(&item), options.after(AFTER_PANIC));
                }));
                let name = &self.settings.name;
                drop(catch(|| {
                    let what =
                        format_args!("controller {name:?}, key {:?}: a worker {panic}", *item);
                    self.report(Level::Error, &item, Topic::Calls, false, what);
                }));
                true
            });
            let key = Key::clone(&item);
            item.done();
            probe.inspect(|probe| probe.ended(key, is_called));
        }
    }

    fn reconcile(self: &Arc<Self>, key: &Key, priority: i32, abort: &Stop) {
        let Some(reconcile) = self.reconcile.get() else {
            return;
        };
        let attempt = self.next_attempt(key);
        let call_stop = abort.child();
        let clock = &self.settings.clock;
        let began = clock.now();
        self.set_running(key, Some(began));
        // The metric is user code: the leadership may have been lost while it blocked.
        if abort.is_stopped() {
            self.set_running(key, None);
            return;
        }
        let limit = self.settings.time_limit.and_then(|limit| {
            let (this, key) = (Arc::downgrade(self), Key::clone(key));
            let call_stop = call_stop.clone();
            self.timers.after(limit, move || {
                if let Some(this) = this.upgrade() {
                    this.exceed_time_limit(key, attempt, limit, call_stop);
                }
            })
        });
        let context = Context::new(Arc::clone(self), Key::clone(key), attempt, call_stop);
        let call = || Ok(reconcile(context, key));
        let outcome = self.guarded("the reconcile function", call);
        if let Some(limit) = limit {
            self.timers.cancel(limit);
        }
        let took = clock.now().saturating_duration_since(began);
        let outcome = outcome.unwrap_or_else(|failure| {
            // The panic has lost the handlers that were due.
            self.schedule_all(key, Duration::ZERO);
            Err(failure).into()
        });
        let again = AddOptions::new().priority(priority);
        self.finish(key, attempt, outcome, again, took, abort);
        // Often the cache has the writes by now, and no event follows that would remove them.
        self.settle(key, |_, _| ());
        self.set_running(key, None);
    }

    /// Calls user code. A panic is counted, and becomes a failure.
    pub(super) fn guarded<R>(
        &self,
        what: &str,
        call: impl FnOnce() -> Result<R, Failure>,
    ) -> Result<R, Failure> {
        catch(call).unwrap_or_else(|panic| {
            self.meter.event(|metrics| metrics.panicked());
            Err(Failure::new(format!("{what} {panic}")))
        })
    }

    /// Returns the number of the next call for a key: the failures in a row, plus one.
    fn next_attempt(&self, key: &Key) -> usize {
        let state = self.state.lock();
        state
            .failures
            .get(key)
            .map_or(0, |last| last.attempts)
            .saturating_add(1)
    }

    /// Sets the start of the call for a key, or removes it after the call.
    fn set_running(&self, key: &Key, began: Option<Instant>) {
        {
            let running = &mut self.state.lock().running;
            match began {
                Some(began) => running.insert(Key::clone(key), began),
                None => running.remove(key),
            };
        }
        let running = || self.state.lock().running.len();
        self.meter
            .level(running, |metrics, running| metrics.active_workers(running));
    }

    /// Stops a call and reports it while it still runs, because it may never return.
    ///
    /// Callbacks of the stop, loggers and metrics are user code, so they run on a separate thread.
    /// On the thread of the timers, one that blocks would end all time limits.
    fn exceed_time_limit(self: Arc<Self>, key: Key, attempt: usize, limit: Duration, stop: Stop) {
        // The call ends at once. The callbacks of its stop can block.
        stop.stop_without_callbacks();
        let (this, call_stop) = (Arc::clone(&self), stop.clone());
        let work = move || {
            call_stop.stop();
            let now = this.settings.clock.now();
            let id = (key, Topic::Calls);
            let note = this.state.lock().log.line(&id, true, now);
            let call = this.call_name(&id.0, attempt);
            let what = format_args!("{call}: the call exceeds its time limit of {limit:?}");
            write_failure(Level::Warn, what, note);
            this.meter.event(|metrics| metrics.timed_out());
        };
        let name = &self.settings.name;
        if let Err(error) = self.threads.spawn(format!("{name} time limit"), None, work) {
            stop.stop();
            log::error!(
                "controller {name:?}: a call exceeds its time limit of {limit:?}, which is not reported: \
                 can't start a thread: {error}"
            );
        }
    }

    /// Logs a failure of a key. Repetitions are debug messages.
    fn report(
        &self,
        level: Level,
        key: &Key,
        topic: Topic,
        is_retried: bool,
        what: fmt::Arguments<'_>,
    ) {
        let now = self.settings.clock.now();
        let note = self.state.lock().log.failed(key, topic, is_retried, now);
        write_failure(level, what, note);
    }

    fn call_name<'a>(&'a self, key: &'a Key, attempt: usize) -> CallName<'a> {
        CallName {
            controller: &self.settings.name,
            key,
            attempt,
        }
    }

    /// Queues the key again if necessary, and reports the outcome. `again` has the priority of the
    /// call.
    fn finish(
        &self,
        key: &Key,
        attempt: usize,
        outcome: Outcome,
        again: AddOptions,
        took: Duration,
        abort: &Stop,
    ) {
        let call = self.call_name(key, attempt);
        let Outcome { result, handlers } = outcome;
        let next_of_handlers = handlers.as_ref().map(|handlers| handlers.next);
        let retry = |next: Option<Duration>| {
            if let Some(delay) = next {
                self.queue.add_with(Key::clone(key), again.after(delay));
            }
        };
        let outcome = match &result {
            Ok(next) => {
                log::debug!("{call}: {next:?} after {took:?}");
                self.queue.forget(key);
                match next {
                    Next::Done => ReconcileResult::Success,
                    Next::After(delay) => {
                        self.queue.add_with(Key::clone(key), again.after(*delay));
                        ReconcileResult::RequeueAfter
                    }
                }
            }
            Err(failure) if abort.is_stopped() => {
                log::debug!("{call}: ended by the stop: {failure}");
                ReconcileResult::Error
            }
            Err(failure) if failure.is_terminal() => {
                let what = format_args!("{call}: {failure}; it is not retried");
                self.report(Level::Error, key, Topic::Calls, false, what);
                self.queue.forget(key);
                retry(next_of_handlers.flatten());
                ReconcileResult::TerminalError
            }
            Err(failure) => {
                let what = format_args!("{call}: {failure}; it will be retried");
                match is_conflict(failure) {
                    // Conflicts are part of normal operation: the cache was old.
                    true => log::debug!("{what}"),
                    false => self.report(Level::Warn, key, Topic::Calls, true, what),
                }
                match next_of_handlers {
                    Some(next) => {
                        self.queue.forget(key);
                        retry(next);
                    }
                    None => self.queue.add_with(Key::clone(key), again.rate_limited()),
                }
                ReconcileResult::Error
            }
        };
        let time = match result.is_err() {
            true => Some(self.settings.clock.wall_clock()),
            false => None,
        };
        let failure = match handlers {
            Some(handlers) => handlers.failure,
            None => result.err(),
        };
        let mut recovery = Recovery::default();
        let replaced = {
            let State { failures, log, .. } = &mut *self.state.lock();
            match (failure, time) {
                (None, _) => {
                    let last = failures.remove(key);
                    recovery = log.recovered(key, failures.is_empty());
                    last.map(|last| last.failure)
                }
                (Some(failure), Some(time)) => {
                    let last = LastFailure {
                        failure,
                        attempts: attempt,
                        time,
                    };
                    let replaced = failures.insert(Key::clone(key), last);
                    replaced.map(|last| last.failure)
                }
                // Only other handlers ran, so this is an earlier failure.
                (Some(failure), None) => failures
                    .get_mut(key)
                    .map(|last| std::mem::replace(&mut last.failure, failure)),
            }
        };
        // The destructor of the old error is user code, so it runs without the lock.
        drop(replaced);
        // A terminal failure for an object that is gone is forgotten, but is no recovery.
        if recovery.is_logged && time.is_none() {
            let failed = attempt.saturating_sub(1);
            log::info!("{call}: recovered (failed calls: {failed})");
        }
        if recovery.hidden > 0 {
            let (name, hidden) = (&self.settings.name, recovery.hidden);
            log::info!(
                "controller {name:?}: no key fails any more (failures at level debug: {hidden})"
            );
        }
        self.meter
            .event(|metrics| metrics.reconciled(outcome, took));
    }

    /// Returns whether the caches contain the own writes of a key. Otherwise the key is put aside
    /// until they do.
    fn ready_or_postpone(self: &Arc<Self>, key: &Key, priority: i32) -> bool {
        let rejections = self.state.lock().rejections;
        let settled = self.settle(key, |state, settled| {
            let postponed = state.postponed.remove(key);
            if settled.check_at.is_some() {
                let earlier = postponed.as_ref().map(|earlier| earlier.priority);
                let waiting = Postponed {
                    priority: earlier.map_or(priority, |earlier| earlier.max(priority)),
                    timer: None,
                };
                state.postponed.insert(Key::clone(key), waiting);
            }
            (settled, postponed)
        });
        let Some((settled, postponed)) = settled else {
            return true;
        };
        self.cancel(postponed.and_then(|postponed| postponed.timer));
        let late = settled.late.iter().map(|&source| {
            let cache = self.sources[source].name();
            format!(
                "the cache of {cache} still lacks a write of this controller; the key waits for it"
            )
        });
        let given_up = settled.given_up.first().map(|(source, object)| {
            let (cache, count) = (self.sources[*source].name(), settled.given_up.len());
            format!(
                "objects that this controller has deleted remain, such as {object:?} in the cache of {cache} ({count} \
                 in all); the key does not wait any longer: find out what holds them"
            )
        });
        for problem in late.chain(given_up) {
            let call = self.call_name(key, self.next_attempt(key));
            let problem = format_args!("{call}: {problem}");
            self.report(Level::Warn, key, Topic::OwnWrites, true, problem);
        }
        let Some(check_at) = settled.check_at else {
            return true;
        };
        let this = Arc::downgrade(self);
        let now = self.settings.clock.now();
        // A cache that has rejected an object meanwhile may have been checked before.
        let delay = match self.state.lock().rejections == rejections {
            true => check_at.saturating_duration_since(now),
            false => Duration::ZERO,
        };
        let waiting = Key::clone(key);
        let check = move || Self::check_again(&this, &waiting);
        let timer = self.timers.after(delay, check);
        let unused = match self.state.lock().postponed.get_mut(key) {
            Some(postponed) => std::mem::replace(&mut postponed.timer, timer),
            // The last write has arrived in the meantime.
            None => timer,
        };
        self.cancel(unused);
        false
    }

    /// Checks the own writes of a key, and forgets those that the caches have. Calls `then` under
    /// the lock, unless there are no writes.
    fn settle<R>(&self, key: &Key, then: impl FnOnce(&mut State, Settled) -> R) -> Option<R> {
        let writes: Vec<_> = self.state.lock().own_writes.of(key).cloned().collect();
        if writes.is_empty() {
            return None;
        }
        let now = self.settings.clock.now();
        let check = |write: Write| (write.id, write.check(&self.sources, now));
        let checks = writes.into_iter().map(check).collect();
        let retry = self.settings.own_writes_retry();
        let state = &mut *self.state.lock();
        let settled = state.own_writes.settle(key, &checks, now, retry);
        Some(then(state, settled))
    }

    /// Checks the own writes of all keys, because no event or call may follow that would remove
    /// them. A key that waits has its own timer, which also reports delays.
    fn sweep(this: &Weak<Self>) {
        let Some(this) = this.upgrade() else { return };
        let mut keys = {
            let state = &mut *this.state.lock();
            let keys = state.own_writes.keys();
            state.has_sweep = !keys.is_empty();
            keys
        };
        if keys.is_empty() {
            return;
        }
        keys.retain(|key| !this.state.lock().postponed.contains_key(key));
        for key in &keys {
            let ready = this.settle(key, |state, settled| match settled.check_at {
                Some(_) => None,
                // Put aside in the meantime.
                None => state.postponed.remove(key),
            });
            if let Some(postponed) = ready.flatten() {
                this.cancel(postponed.timer);
                this.requeue(Key::clone(key), postponed.priority);
            }
        }
        this.sweep_later();
    }

    fn sweep_later(self: &Arc<Self>) {
        let this = Arc::downgrade(self);
        // Rarely, because an event or the check after the call ends most writes.
        let delay = SWEEP_RETRIES * self.settings.own_writes_retry();
        self.timers.after(delay, move || Self::sweep(&this));
    }

    fn cancel(&self, timer: Option<TimerId>) {
        timer
            .into_iter()
            .for_each(|timer| self.timers.cancel(timer));
    }

    fn check_again(this: &Weak<Self>, key: &Key) {
        let Some(this) = this.upgrade() else { return };
        let postponed = this.state.lock().postponed.remove(key);
        if let Some(postponed) = postponed {
            this.requeue(Key::clone(key), postponed.priority);
        }
    }

    /// Checks the keys that wait again after a failure of a source. If its cache has rejected an
    /// object that they wait for, no event ends the wait.
    pub(super) fn check_all_again(&self, source: usize) {
        if self.sources[source].status().complete {
            return;
        }
        let postponed = {
            let state = &mut *self.state.lock();
            state.rejections += 1;
            std::mem::take(&mut state.postponed)
        };
        for (key, postponed) in postponed {
            self.cancel(postponed.timer);
            self.requeue(key, postponed.priority);
        }
    }

    /// Whether the caches may lack own writes.
    pub(super) fn awaits_writes(&self) -> bool {
        !self.state.lock().own_writes.is_empty()
    }

    /// Reports a change in the cache of a source, so that keys continue that wait for it.
    pub(super) fn observed(&self, source: usize, object: &Key, change: Observed<'_>) {
        let ready: Vec<_> = {
            let state = &mut *self.state.lock();
            let arrived = state.own_writes.observed(source, object, &change);
            let take = |key: Key| Some((state.postponed.remove(&key)?, key));
            arrived.into_iter().filter_map(take).collect()
        };
        for (postponed, key) in ready {
            self.cancel(postponed.timer);
            self.requeue(key, postponed.priority);
        }
    }

    /// Queues keys because of a change, or of the initial list.
    pub(super) fn enqueue(&self, keys: impl IntoIterator<Item = Key>, priority: i32) {
        for key in keys {
            self.schedule_all(&key, Duration::ZERO);
            self.requeue(key, priority);
        }
    }

    pub(super) fn enqueue_after(&self, key: Key, delay: Duration) {
        self.schedule_all(&key, delay);
        self.queue.add_with(key, AddOptions::new().after(delay));
    }

    /// Queues a key again that was put aside.
    fn requeue(&self, key: Key, priority: i32) {
        self.queue
            .add_with(key, AddOptions::new().priority(priority));
    }

    /// Lets the next call run all named handlers of a key.
    fn schedule_all(&self, key: &Key, delay: Duration) {
        let Some(schedule) = &self.settings.schedule else {
            return;
        };
        if let Some(at) = self.settings.clock.now().checked_add(delay) {
            schedule.lock().all_at(key, at);
        }
    }

    /// Returns the named handlers that a call for a key runs.
    pub(super) fn take_due(&self, key: &Key) -> Due {
        let now = self.settings.clock.now();
        match &self.settings.schedule {
            Some(schedule) => schedule.lock().take(key, now),
            None => Schedule::default().take(key, now),
        }
    }

    /// Ends a call of named handlers. Returns the time until the next one.
    pub(super) fn put_due(&self, key: &Key, due: Due) -> Option<Duration> {
        let next = self.settings.schedule.as_ref()?.lock().put(key, due)?;
        Some(next.saturating_duration_since(self.settings.clock.now()))
    }

    /// Ends a call that has run no handler, so that the next one runs those that were due.
    pub(super) fn restore_due(&self, key: &Key, due: Due) {
        if due.is_all() {
            self.schedule_all(key, Duration::ZERO);
        }
        self.put_due(key, due);
    }

    /// Records writes of a key.
    pub(super) fn record(self: &Arc<Self>, key: &Key, writes: Vec<Write>) {
        // After the end of the controller, nothing would remove the record.
        if writes.is_empty() || self.queue.shutting_down() {
            return;
        }
        let (is_running, has_sweep) = {
            let state = &mut *self.state.lock();
            writes
                .into_iter()
                .for_each(|write| state.own_writes.add(key, write));
            let has_sweep = std::mem::replace(&mut state.has_sweep, true);
            (state.running.contains_key(key), has_sweep)
        };
        if !has_sweep {
            self.sweep_later();
        }
        // A write after the end of the call, by another thread. No event of the key may follow.
        if !is_running {
            self.queue.add(Key::clone(key));
        }
    }

    /// Returns the times of a write that is made now.
    fn times(&self) -> Times {
        let timeout = self.settings.own_writes_timeout.min(YEAR);
        let now = self.settings.clock.now();
        Times::new(now, timeout, self.settings.own_writes_retry())
    }

    pub(super) fn last_failure(&self, key: &str) -> Option<LastFailure> {
        self.state.lock().failures.get(key).cloned()
    }

    /// Returns all keys whose last call failed, sorted.
    pub(super) fn failures(&self) -> Vec<(Key, LastFailure)> {
        let failures = self.state.lock().failures.clone();
        failures.into_iter().collect()
    }

    /// Returns the first `count` of the [`failures`](Self::failures). It copies only these.
    pub(super) fn first_failures(&self, count: usize) -> Vec<(Key, LastFailure)> {
        let failures = &self.state.lock().failures;
        let first = failures.iter().take(count);
        first
            .map(|(key, last)| (Key::clone(key), last.clone()))
            .collect()
    }

    fn running(&self) -> Vec<(Key, Duration)> {
        let now = self.settings.clock.now();
        let running = self.state.lock().running.clone();
        let since = |(key, began)| (key, now.saturating_duration_since(began));
        let mut running: Vec<_> = running.into_iter().map(since).collect();
        running.sort_by(|(a, longest), (b, other)| other.cmp(longest).then_with(|| a.cmp(b)));
        running
    }

    /// Returns one write that each postponed key waits for, for the first keys.
    fn awaited(&self) -> Vec<AwaitedWrite> {
        let awaited: Vec<_> = {
            let State {
                own_writes,
                postponed,
                ..
            } = &*self.state.lock();
            let keys = postponed.keys().take(MAX_AWAITED);
            let first = |key| Some((Key::clone(key), own_writes.of(key).next()?.clone()));
            keys.filter_map(first).collect()
        };
        let now = self.settings.clock.now();
        let awaited = awaited.into_iter().map(|(key, write)| {
            let (source, object) = write.object();
            AwaitedWrite {
                key,
                informer: self.sources[*source].name().to_owned(),
                object: Key::clone(object),
                change: write.result().to_string(),
                since: now.saturating_duration_since(write.time()),
            }
        });
        awaited.collect()
    }

    pub(super) fn status(&self) -> ControllerStatus {
        let (running, awaited) = (self.running(), self.awaited());
        let (postponed, failing) = {
            let state = self.state.lock();
            (state.postponed.len(), state.failures.len())
        };
        ControllerStatus {
            queued: self.queue.len(),
            delayed: self.queue.delayed_len(),
            postponed,
            awaited,
            running,
            failing,
        }
    }
}

/// Writes a line, or a debug message if it has no note.
fn write_failure(level: Level, what: fmt::Arguments<'_>, note: Option<Note>) {
    match note {
        Some(note) => log::log!(level, "{what}{note}"),
        None => log::debug!("{what}"),
    }
}

/// Whether all errors of a failure are conflicts.
fn is_conflict(failure: &Failure) -> bool {
    match failure.downcast_ref::<HandlerErrors>() {
        Some(errors) => errors.iter().all(|(_, failure)| is_conflict(failure)),
        None => failure.downcast_ref().is_some_and(Error::is_conflict),
    }
}

/// Records the writes of one key.
pub(super) struct KeyWrites {
    pub(super) reconcile_loop: Weak<ReconcileLoop>,
    pub(super) key: Key,
}

impl KeyWrites {
    fn record(&self, writes: impl FnOnce(&[Arc<dyn AnySource>], Times) -> Vec<Write>) {
        if let Some(of) = self.reconcile_loop.upgrade() {
            of.record(&self.key, writes(&of.sources, of.times()));
        }
    }
}

impl KeyWrites {
    /// Records that an object was removed.
    pub(super) fn deleted(&self, resource: &GroupVersionResource, object: &ObjectName, uid: &str) {
        self.record(|sources, times| {
            Write::deleted(sources, resource, object, uid, Vec::new(), times)
        });
    }
}

impl WriteObserver for KeyWrites {
    fn before_write<'a>(
        &'a self,
        resource: &GroupVersionResource,
        object: &ObjectName,
    ) -> Box<dyn FnOnce(WriteOutcome<'_>) + 'a> {
        let of = self.reconcile_loop.upgrade();
        let before = of.map(|of| Write::before(&of.sources, resource, object));
        let before = before.unwrap_or_default();
        let (resource, object) = (resource.clone(), object.clone());
        Box::new(move |outcome| {
            self.record(|sources, times| match outcome {
                WriteOutcome::Written(state) => Write::written(sources, &resource, state, times),
                WriteOutcome::Deleted { uid } => {
                    Write::deleted(sources, &resource, &object, uid, before, times)
                }
                _ => Write::unknown(sources, &resource, &object, before, times),
            });
        })
    }
}

/// The start of a log line about a call.
pub(super) struct CallName<'a> {
    pub(super) controller: &'a str,
    pub(super) key: &'a str,
    pub(super) attempt: usize,
}

impl fmt::Display for CallName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            controller,
            key,
            attempt,
        } = self;
        write!(
            f,
            "controller {controller:?}, key {key:?}, attempt {attempt}"
        )
    }
}

struct SignalOnDrop(Stop);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

#[cfg(test)]
mod tests;

//! The queue and the workers of a controller in one term, without its object type.

use std::fmt::Display;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::log::Level;

use super::probe::Probe;
use super::queue::QueueSettings;
use super::reconcile::{Called, Reconcile};
use super::status::ControllerStatus;
use super::vanished::VanishedObjects;
use crate::controller::call::calls::{Call, Calls};
use crate::controller::call::core::Core;
use crate::controller::call::failure_log::Topic;
use crate::controller::call::outcome::{Failure, Next};
use crate::controller::context::Context;
use crate::controller::error::{ControllerError, ControllerErrorKind};
use crate::controller::sources::barrier::Barrier;
use crate::controller::sources::catch_up::CatchUps;
use crate::controller::sources::optional::{Change, OptionalKinds};
use crate::controller::sources::source::PRIMARY;
use crate::controller::writes::own_writes::OwnWrites;
use crate::log;
use crate::metrics::ReconcileResult;
use crate::timers::Timers;
use k8s_informer::__private::{Owner, StopOnDrop, Threads, catch};
use k8s_informer::object::Key;
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::workqueue::{AddOptions, AnyWorkQueue, PriorityQueue};

/// The priority of keys from initial lists and resyncs, as in controller-runtime. Changes have the
/// priority 0.
pub(crate) const LOW_PRIORITY: i32 = -100;

/// The minimum time for calls to react to their stop signals.
const MIN_GRACE: Duration = Duration::from_secs(1);

/// After a panic outside the reconcile function, the key is queued again after this time.
const AFTER_PANIC: Duration = Duration::from_secs(1);

/// The settings of a loop.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) workers: usize,
    pub(crate) time_limit: Option<Duration>,
    pub(crate) grace_period: Duration,
    pub(crate) own_writes_timeout: Duration,
}

impl Settings {
    /// Returns how long calls can take after their stop signals.
    fn last_grace(&self) -> Duration {
        self.grace_period.max(MIN_GRACE)
    }

    /// Returns how long a stop can take.
    pub(crate) fn max_stop(&self) -> Duration {
        self.grace_period.saturating_add(self.last_grace())
    }
}

/// What all loops of a controller have in common.
pub(crate) struct LoopParts {
    pub(crate) settings: Settings,
    pub(crate) core: Arc<Core>,
    pub(crate) queue: QueueSettings,
    pub(crate) reconciler: Arc<dyn Reconcile>,
    pub(crate) probe: Option<Arc<Probe>>,
}

/// The queue and the workers of a controller. Without leader election, a controller has one loop.
///
/// A leader has one for each term, over the same sources. So nothing that an earlier term knew
/// reaches a later one: keys, delays, failures, own writes, answers to applies, and which optional
/// kinds exist.
pub(crate) struct ReconcileLoop {
    pub(crate) settings: Settings,
    pub(crate) core: Arc<Core>,
    pub(crate) calls: Arc<Calls>,
    pub(crate) queue: Arc<PriorityQueue<Key>>,
    pub(crate) timers: Arc<Timers>,
    pub(crate) optional: Arc<OptionalKinds>,
    pub(crate) own_writes: Arc<OwnWrites>,
    pub(crate) barrier: Arc<Barrier>,
    pub(crate) vanished: VanishedObjects,
    catch_ups: Arc<CatchUps>,
    pub(crate) probe: Option<Arc<Probe>>,
    reconciler: Arc<dyn Reconcile>,
    threads: Threads,
}

impl ReconcileLoop {
    /// Builds the loop of the next term. No other loop of the controller runs.
    pub(crate) fn new(parts: &LoopParts) -> io::Result<Self> {
        let LoopParts { settings, core, .. } = parts;
        let queue = Arc::new(parts.queue.build()?);
        let core = Arc::clone(core);
        let calls = Arc::new(Calls::new(&core));
        let timers = Arc::new(Timers::new(Arc::clone(&core.clock)));
        let catch_ups = Arc::new(CatchUps::new());
        let own_writes = Arc::new(OwnWrites::new(
            Arc::clone(&calls),
            Arc::clone(&queue),
            Arc::clone(&timers),
            Arc::clone(&catch_ups),
            settings.own_writes_timeout,
        ));
        let barrier = Arc::new(Barrier::new(&catch_ups));
        let vanished = VanishedObjects::new(&core, &queue);
        let on_change = {
            let (sources, queue) = (Arc::clone(&core.sources), Arc::clone(&queue));
            let own_writes = Arc::clone(&own_writes);
            move |change| {
                // Every call may see a change of what the caches have.
                enqueue(&queue, sources[PRIMARY].keys(), LOW_PRIORITY);
                // No event ends the wait for a write to a kind that is gone.
                if change == Change::Gone {
                    own_writes.resume_all();
                }
            }
        };
        let optional = OptionalKinds::new(
            &core.name,
            &core.sources,
            &core.client,
            &core.clock,
            &barrier,
            parts.probe.is_some(),
            on_change,
        );
        Ok(Self {
            settings: *settings,
            core,
            calls,
            queue,
            timers,
            optional: Arc::new(optional),
            own_writes,
            barrier,
            vanished,
            catch_ups,
            probe: parts.probe.clone(),
            reconciler: Arc::clone(&parts.reconciler),
            threads: Threads::new(Owner::new()),
        })
    }

    /// Queues keys because of a change, or of the initial list.
    pub(crate) fn enqueue(&self, keys: impl IntoIterator<Item = Key>, priority: i32) {
        enqueue(&self.queue, keys, priority);
    }

    pub(crate) fn enqueue_after(&self, key: Key, delay: Duration) {
        self.queue.add_with(key, AddOptions::new().after(delay));
    }

    pub(crate) fn status(&self) -> ControllerStatus {
        ControllerStatus {
            running: self.calls.running(),
            awaited: self.own_writes.awaited(),
            postponed: self.own_writes.postponed(),
            old_caches: self.barrier.waits(),
            failing: self.calls.failing(),
            queued: self.queue.len(),
            delayed: self.queue.delayed_len(),
        }
    }

    /// Forgets the failures of all keys, so that the back-off of the next term begins again.
    pub(crate) fn forget_failures(&self) {
        for (key, _) in self.calls.failures(usize::MAX) {
            // The limiter is user code.
            drop(catch(|| self.queue.forget(&key)));
        }
    }

    /// Runs the workers until `stop` is signalled, and joins them.
    ///
    /// After the stop, calls in progress can finish. The grace period ends them through `abort`,
    /// which callers may signal earlier. A call that still has not returned after another grace
    /// period is reported as stuck.
    pub(crate) fn run(
        self: &Arc<Self>,
        stop: &Stop,
        abort: &Stopper,
    ) -> Result<(), ControllerError> {
        let (workers_stop, timers_stop) = (stop.child(), Stopper::new());
        let workers_ended = Stopper::new();
        let (name, workers) = (&self.core.name, self.settings.workers);
        self.core
            .meter
            .event(|metrics| metrics.max_concurrent_reconciles(workers));
        let started = self.start(&workers_stop, abort, &timers_stop, &workers_ended);
        if started.is_ok() {
            stop.wait();
        }
        self.optional.stop();
        self.catch_ups.stop();
        workers_stop.stop();
        self.queue.stop();
        let clock = &*self.core.clock;
        let began = clock.now();
        if !abort.is_stopped() && clock.wait(self.settings.grace_period, &workers_ended) {
            abort.stop_without_callbacks();
            // On another thread: a callback of a call must not delay the report that calls hang.
            let on_thread = abort.clone();
            let work = move || on_thread.stop();
            let spawned = self.threads.spawn(format!("{name} abort"), None, work);
            if spawned.is_err() {
                abort.stop();
            }
        }
        if !workers_ended.is_stopped() {
            clock.wait(self.settings.last_grace(), &workers_ended);
        }
        timers_stop.stop();
        if !workers_ended.is_stopped() {
            let running = self.calls.running().into_iter();
            let stuck = ControllerErrorKind::Stuck {
                keys: running.map(|(key, _)| key.to_string()).collect(),
                after: clock.now().saturating_duration_since(began),
            };
            return Err(ControllerError::of(name, stuck));
        }
        self.threads.join();
        self.catch_ups.join();
        started.map_err(|source| ControllerError::thread(name, source))
    }

    fn start(
        self: &Arc<Self>,
        stop: &Stop,
        abort: &Stop,
        timers_stop: &Stop,
        workers_ended: &Stopper,
    ) -> io::Result<()> {
        let all_ended = Arc::new(StopOnDrop(workers_ended.clone()));
        let name = &self.core.name;
        let (timers, timers_stop) = (Arc::clone(&self.timers), timers_stop.clone());
        let run_timers = move || timers.run(&timers_stop);
        self.threads
            .spawn(format!("{name} timers"), None, run_timers)?;
        if self.optional.has_any() {
            let optional = Arc::clone(&self.optional);
            let run = move || optional.run();
            self.threads.spawn(format!("{name} optional"), None, run)?;
            self.optional.check_all();
        }
        for worker in 0..self.settings.workers {
            let this = Arc::clone(self);
            let (stop, abort, ended) = (stop.clone(), abort.clone(), Arc::clone(&all_ended));
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
        loop {
            self.probe.as_ref().inspect(|probe| (probe.wait_to_begin)());
            let Some(item) = self.queue.take_or_stop(stop) else {
                return;
            };
            // User code runs outside the call as well: clocks, loggers, rate limiters, and the
            // messages and destructors of errors.
            let call = self.calls.next(&item, abort.child());
            let worked = catch(|| {
                // Otherwise the key is put aside.
                self.own_writes.is_ready(&call, item.priority())
                    && self.call(&call, item.priority(), abort)
            });
            let is_called = worked.unwrap_or_else(|panic| {
                self.recover(&call, item.priority(), &panic);
                true
            });
            let key = Key::clone(&item);
            item.done();
            self.probe
                .as_ref()
                .inspect(|probe| (probe.ended)(key, is_called));
        }
    }

    /// Queues a key again after a panic outside the reconcile function.
    fn recover(&self, call: &Call, priority: i32, panic: &impl Display) {
        self.calls.set_running(&call.key, None);
        drop(catch(|| {
            let options = AddOptions::new().priority(priority);
            self.queue
                .add_with(Key::clone(&call.key), options.after(AFTER_PANIC));
        }));
        drop(catch(|| {
            let problem = format_args!("a worker {panic}");
            call.report(Level::Error, Topic::Calls, false, problem);
        }));
    }

    /// Makes a call, and records its end. Returns whether a function of the user was called.
    fn call(self: &Arc<Self>, call: &Call, priority: i32, abort: &Stop) -> bool {
        let (calls, key) = (&self.calls, &call.key);
        let began = self.core.clock.now();
        calls.set_running(key, Some(began));
        // The metric is user code: the leadership may have been lost while it blocked.
        if abort.is_stopped() {
            calls.set_running(key, None);
            return true;
        }
        let limit = self.settings.time_limit.and_then(|limit| {
            let (this, call) = (Arc::downgrade(self), call.clone());
            self.timers.after(limit, move || {
                this.upgrade()
                    .inspect(|this| this.exceed_time_limit(call, limit));
            })
        });
        let context = Context::new(call.clone(), &self.own_writes);
        let reconcile = || self.reconciler.reconcile(context, &self.vanished);
        let result = calls.guarded("the reconcile function", reconcile);
        if let Some(limit) = limit {
            self.timers.cancel(limit);
        }
        let result = match result {
            Ok(Called::Yes(next)) => Ok(next),
            Ok(Called::No) => {
                calls.set_running(key, None);
                return false;
            }
            Err(failure) => Err(failure),
        };
        let took = self.core.clock.now().saturating_duration_since(began);
        self.finish(call, result, priority, took, abort);
        // Often the cache has the writes by now, and no event follows that would remove them.
        self.own_writes.forget_arrived(key);
        calls.set_running(key, None);
        true
    }

    /// Stops a call and reports it while it still runs.
    ///
    /// Callbacks of the stop, loggers and metrics are user code, so they run on a separate thread.
    /// On the thread of the timers, one that blocks would end all time limits.
    fn exceed_time_limit(&self, call: Call, limit: Duration) {
        let stop = call.stop.clone();
        // The call ends at once. The callbacks of its stop can block.
        stop.stop_without_callbacks();
        let work = move || {
            call.stop.stop();
            call.report_excess(limit);
        };
        let name = &self.core.name;
        if let Err(error) = self.threads.spawn(format!("{name} time limit"), None, work) {
            stop.stop();
            log::error!(
                "controller {name:?}: a call exceeds its time limit of {limit:?}, which is not reported: \
                 can't start a thread: {error}"
            );
        }
    }

    /// Reports the result of a call, and queues the key again if necessary.
    fn finish(
        &self,
        call: &Call,
        result: Result<Next, Failure>,
        priority: i32,
        took: Duration,
        abort: &Stop,
    ) {
        let is_aborted = result.is_err() && abort.is_stopped();
        let metric = match &result {
            Ok(next) => {
                log::debug!("{call}: {next:?} after {took:?}");
                match next {
                    Next::Done => ReconcileResult::Success,
                    Next::After(_) => ReconcileResult::RequeueAfter,
                }
            }
            Err(failure) if is_aborted => {
                log::debug!("{call}: ended by the stop: {failure}");
                ReconcileResult::Error
            }
            Err(failure) => {
                report(call, failure);
                match failure.is_terminal() {
                    true => ReconcileResult::TerminalError,
                    false => ReconcileResult::Error,
                }
            }
        };
        if !is_aborted {
            self.queue_again(&call.key, &result, priority);
        }
        call.ended(result.err());
        self.core
            .meter
            .event(|metrics| metrics.reconciled(metric, took));
    }

    fn queue_again(&self, key: &Key, result: &Result<Next, Failure>, priority: i32) {
        let options = AddOptions::new().priority(priority);
        let options = match result {
            Ok(Next::After(delay)) => {
                self.queue.forget(key);
                options.after(*delay)
            }
            Err(failure) if !failure.is_terminal() => options.rate_limited(true),
            Ok(Next::Done) | Err(_) => return self.queue.forget(key),
        };
        self.queue.add_with(Key::clone(key), options);
    }
}

fn enqueue(queue: &PriorityQueue<Key>, keys: impl IntoIterator<Item = Key>, priority: i32) {
    for key in keys {
        queue.add_with(key, AddOptions::new().priority(priority));
    }
}

fn report(call: &Call, failure: &Failure) {
    let is_retried = !failure.is_terminal();
    let (level, follows) = match is_retried {
        // Conflicts are part of normal operation: the cache was old.
        true if failure.is_conflict() => {
            log::debug!("{call}: {failure}; it will be retried");
            return;
        }
        true => (Level::Warn, "will be"),
        false => (Level::Error, "is not"),
    };
    let problem = format_args!("{failure}; it {follows} retried");
    call.report(level, Topic::Calls, is_retried, problem);
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

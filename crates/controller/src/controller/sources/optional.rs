//! Sources of kinds that may be missing: when these kinds are checked, and what follows.
//!
//! The informer of such a source always runs. While its kind is missing, its lists fail. The kind
//! exists for the controller once a complete list is in the cache, so no call sees a part of it. It
//! is missing once lists fail with 404 and discovery has lacked it for `SETTLE`.
//!
//! No fact about a kind is learned only once. From the start of the informers on, checks repeat the
//! question: on a thread of the start until the first call, and then on a thread of their own.
//! [`Presence`] decides what the answers mean.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::barrier::Barrier;
use super::presence::{CHECK, Finding, Presence, Reason, Rejoin, SETTLE, Served, Stage};
use super::source::{AnySource, Sources};
use crate::log;
use crate::timers::{TimerId, Timers};
use k8s_informer::client::Client;
use k8s_informer::error::WaitError;
use k8s_informer::informer::{SharedInformerFactory, SyncOptions};
use k8s_informer::reflector::ReflectorState;
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::time::Clock;

/// The real time between two looks of a test at an informer.
const TICK: Duration = Duration::from_millis(1);

/// Follows the kinds of the optional sources of a controller, in one term.
pub(crate) struct OptionalKinds {
    controller: String,
    sources: Sources,
    client: Client,
    clock: Arc<dyn Clock>,
    barrier: Arc<Barrier>,
    /// How long discovery must lack a kind before the first call. Zero in a test: its only API
    /// server has no other one beside it that may know more.
    settle_at_start: Duration,
    on_change: Box<dyn Fn(Change) + Send + Sync>,
    /// The checks after the start. They send requests, which must not delay other timers.
    checks: Checks,
}

/// What calls see differently from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// A kind exists that was missing.
    Exists,
    /// A kind is missing that existed.
    Gone,
}

/// The checks that are planned, at most one for each source.
struct Checks {
    timers: Timers,
    stop: Stopper,
    /// By the position of the source. An innermost lock.
    planned: Mutex<BTreeMap<usize, TimerId>>,
}

impl OptionalKinds {
    /// Begins a term, in which no kind is decided yet. The checks of an earlier one have ended.
    ///
    /// `is_test` is whether the controller has a test attached.
    pub(crate) fn new(
        controller: &str,
        sources: &Sources,
        client: &Client,
        clock: &Arc<dyn Clock>,
        barrier: &Arc<Barrier>,
        is_test: bool,
        on_change: impl Fn(Change) + Send + Sync + 'static,
    ) -> Self {
        for source in sources.iter() {
            source.presence().inspect(|presence| presence.begin_term());
        }
        Self {
            controller: controller.to_owned(),
            sources: Arc::clone(sources),
            client: client.clone(),
            clock: Arc::clone(clock),
            barrier: Arc::clone(barrier),
            settle_at_start: if is_test { Duration::ZERO } else { SETTLE },
            on_change: Box::new(on_change),
            checks: Checks {
                timers: Timers::new(Arc::clone(clock)),
                stop: Stopper::new(),
                planned: Mutex::default(),
            },
        }
    }

    /// Whether the controller has optional sources.
    pub(crate) fn has_any(&self) -> bool {
        self.sources.iter().any(|source| source.is_optional())
    }

    /// The optional source at a position, with its presence.
    fn get(&self, at: usize) -> Option<(&Arc<dyn AnySource>, &Presence)> {
        let source = &self.sources[at];
        Some((source, source.presence()?))
    }

    /// Waits until each optional kind has its first list, or turns out to be missing. Meanwhile,
    /// [`check_until`](Self::check_until) has to run on another thread.
    pub(crate) fn wait_for_first_lists(
        &self,
        factory: &SharedInformerFactory,
        timeout: Duration,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let start = Instant::now();
        for at in 0..self.sources.len() {
            let Some((source, presence)) = self.get(at) else {
                continue;
            };
            let Some(awaited) = presence.awaits(stop) else {
                continue;
            };
            let mut rest = timeout.saturating_sub(start.elapsed());
            loop {
                let (synced, options) = ([source.synced()], SyncOptions::new().timeout(rest));
                match factory.wait_for_cache_sync_of(synced, options, &awaited) {
                    Ok(()) => break,
                    // A check has found out that the kind is missing.
                    Err(error) if error.is_stopped() && !stop.is_stopped() => break,
                    // Discovery lacks the kind, but not for long enough. A short time for the list is
                    // none for this decision.
                    Err(error) if !error.is_stopped() && presence.is_doubted() => rest = CHECK,
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Decides which optional kinds are missing, until `started` is set. Runs on a thread of its own
    /// while the first call waits for the caches.
    ///
    /// It uses the real time, as the waits of the start and the informers do.
    pub(crate) fn check_until(&self, started: &Stop) {
        while !started.is_stopped() {
            // One answer for all kinds whose informers do not work.
            let is_doubtful = |at: &usize| {
                self.get(*at).is_some_and(|(source, presence)| {
                    let works = source.is_listed() && self.barrier.failed_reads(*at).is_none();
                    !presence.is_missing() && !works
                })
            };
            let doubtful: Vec<_> = (0..self.sources.len()).filter(is_doubtful).collect();
            if !doubtful.is_empty() {
                let answer = self.client.rediscover(started);
                for at in doubtful {
                    let served = Served::of(&answer, self.sources[at].resource());
                    self.check_during_start(at, served);
                }
            }
            started.wait_timeout(CHECK);
        }
    }

    fn check_during_start(&self, at: usize, served: Served) {
        let Some((source, presence)) = self.get(at) else {
            return;
        };
        let was_listed = source.synced().is_done();
        let status = source.status();
        // The start waits for the first list, and then for what the barrier waits for.
        let failures = match was_listed {
            true => self.barrier.failed_reads(at),
            false => (status.failures > 0).then_some(status.failures),
        };
        let found = Finding {
            served,
            is_listed: source.is_listed(),
            failures,
        };
        let Some(reason) = presence.add_finding(found, Instant::now(), self.settle_at_start) else {
            return;
        };
        let (controller, resource) = (&self.controller, source.resource());
        match reason {
            Reason::Absent => {
                log::info!("controller {controller:?}: the optional kind {resource} is missing");
            }
            Reason::Unlistable => {
                let error = self.barrier.last_error(at).or(status.last_error);
                let error = error.map_or_else(String::new, |error| error.to_string());
                log::warn!(
                    "controller {controller:?}: starts without the optional kind {resource}, because it can't be read: \
                     {error}; it is added when it can"
                );
            }
        }
        presence.set_missing(reason, was_listed);
    }

    /// The start is over: the kinds that have not turned out to be missing exist.
    pub(crate) fn end_start(&self) {
        for source in self.sources.iter() {
            source.presence().inspect(|presence| presence.end_start());
        }
    }

    /// Runs the checks after the start, until [`stop`](Self::stop).
    pub(crate) fn run(&self) {
        self.checks.timers.run(&self.checks.stop);
    }

    pub(crate) fn stop(&self) {
        self.checks.stop.stop();
    }

    /// Checks all optional sources: what the checks of the start knew may have changed.
    pub(crate) fn check_all(self: &Arc<Self>) {
        for at in 0..self.sources.len() {
            self.check_after(at, Duration::ZERO);
        }
    }

    /// Checks a source after a delay, on the thread of [`run`](Self::run). Replaces the check that was
    /// planned before. Does nothing for a required source.
    pub(crate) fn check_after(self: &Arc<Self>, at: usize, delay: Duration) {
        if self.get(at).is_none() {
            return;
        }
        // Cancelled first: the new check can run at once, and plan another one.
        let planned = self.checks.planned.lock().remove(&at);
        planned.inspect(|timer| self.checks.timers.cancel(*timer));
        let this = Arc::downgrade(self);
        let timer = self.checks.timers.after(delay, move || {
            this.upgrade().inspect(|this| this.check(at));
        });
        let planned = &self.checks.planned;
        timer.inspect(|timer| _ = planned.lock().insert(at, *timer));
    }

    /// Checks whether the kind of a source has appeared or is gone. Runs only on the thread of these
    /// checks, so each change is noticed once.
    fn check(self: &Arc<Self>, at: usize) {
        let Some((source, presence)) = self.get(at) else {
            return;
        };
        match presence.stage() {
            // The start decides.
            Stage::Undecided => {}
            Stage::Exists => self.check_existing(at, source, presence),
            Stage::Missing {
                was_listed,
                rejoin: Rejoin::NotListed,
                ..
            } => {
                let is_first_list = !was_listed && source.synced().is_done();
                if is_first_list || source.is_listed() {
                    self.catch_up(at, source, presence);
                } else if was_listed {
                    // Later lists have no signal. That of the first list causes the next check.
                    self.check_after(at, SETTLE);
                }
            }
            // The end of the wait causes the next check.
            Stage::Missing {
                rejoin: Rejoin::CatchingUp,
                ..
            } => {}
            Stage::Missing {
                rejoin: Rejoin::Current,
                ..
            } => {
                presence.set_exists();
                self.changed(source, Change::Exists);
            }
        }
    }

    /// Checks whether the kind is gone.
    fn check_existing(
        self: &Arc<Self>,
        at: usize,
        source: &Arc<dyn AnySource>,
        presence: &Presence,
    ) {
        let is_listed = source.is_listed();
        let served = match is_listed {
            true => Served::Yes,
            false => {
                let answer = self.client.rediscover(&self.checks.stop);
                Served::of(&answer, source.resource())
            }
        };
        // A kind that exists stays so if it can't be listed any longer.
        let found = Finding {
            served,
            is_listed,
            failures: None,
        };
        let missing = presence.add_finding(found, self.clock.now(), SETTLE);
        if let Some(reason) = missing {
            presence.set_missing(reason, true);
            self.changed(source, Change::Gone);
            self.check_after(at, SETTLE);
        } else if presence.is_doubted() {
            self.check_after(at, CHECK);
        }
        // Otherwise, the next failed list causes the next check.
    }

    /// Waits on another thread until a kind that has appeared may exist. Its first list can come from
    /// an API server that is behind: the rule for the sources of the start holds for this one, too.
    fn catch_up(self: &Arc<Self>, at: usize, source: &Arc<dyn AnySource>, presence: &Presence) {
        presence.set_rejoin(Rejoin::CatchingUp);
        let this = Arc::downgrade(self);
        let then = move || {
            let Some(this) = this.upgrade() else { return };
            if let Some((_, presence)) = this.get(at) {
                presence.set_rejoin(Rejoin::Current);
                this.check_after(at, Duration::ZERO);
            }
        };
        let controller = &self.controller;
        if let Err(error) = self.barrier.catch_up(controller, source, then) {
            log::error!(
                "controller {controller:?}: the optional kind {} is added later: can't start a thread: {error}",
                source.resource()
            );
            presence.set_rejoin(Rejoin::NotListed);
            self.check_after(at, SETTLE);
        }
    }

    fn changed(&self, source: &Arc<dyn AnySource>, change: Change) {
        let is = match change {
            Change::Exists => "exists",
            Change::Gone => "is gone",
        };
        log::info!(
            "controller {:?}: the optional kind {} {is}",
            self.controller,
            source.resource()
        );
        (self.on_change)(change);
    }
}

/// What a test needs, whose clock stands still.
impl OptionalKinds {
    /// Whether a source is required, or its kind is served, so that its cache gets the changes. If
    /// the kind is not served, waits until its informer and the controller have noticed that.
    pub(crate) fn is_served(self: &Arc<Self>, at: usize, deadline: Instant) -> bool {
        let Some((source, presence)) = self.get(at) else {
            return true;
        };
        let answer = self.client.rediscover(&Stop::never());
        if Served::of(&answer, source.resource()) != Served::No {
            return true;
        }
        // A watch that has ended is not enough: the time of the controller would run before the
        // informer has asked for the kind again, or after that.
        while !is_refused(&**source) && Instant::now() < deadline {
            thread::sleep(TICK);
        }
        // The deletions that the server has sent.
        let rest = deadline.saturating_duration_since(Instant::now());
        if let Some(version) = source.status().resource_version {
            let _ = source.wait_for_version(&version, rest);
        }
        // A kind that has existed is gone after some time, which begins now.
        self.check_until_holds(at, deadline, || {
            presence.is_missing() || presence.is_doubted()
        });
        false
    }

    /// Waits until calls see the objects of a source that is served.
    pub(crate) fn wait_until_exists(self: &Arc<Self>, at: usize, deadline: Instant) {
        if let Some((_, presence)) = self.get(at) {
            self.check_until_holds(at, deadline, || presence.exists());
        }
    }

    /// Repeats the check of a source until `condition` holds. The threads of the informer report one
    /// after another that the first list is complete.
    fn check_until_holds(
        self: &Arc<Self>,
        at: usize,
        deadline: Instant,
        condition: impl Fn() -> bool,
    ) {
        while !condition() && Instant::now() < deadline {
            // It begins after the start.
            self.check_after(at, Duration::ZERO);
            self.wait_for_due(deadline.min(Instant::now() + TICK));
            if !condition() {
                thread::sleep(TICK);
            }
        }
        // The last check may still queue the keys.
        self.wait_for_due(deadline);
    }

    /// Waits until all checks that are due have run.
    fn wait_for_due(&self, deadline: Instant) {
        let done = Stopper::new();
        let set = done.clone();
        self.after_due(move || set.stop());
        let rest = deadline.saturating_duration_since(Instant::now());
        done.wait_timeout(rest);
    }

    /// Calls `then` after all checks that are due.
    pub(crate) fn after_due(&self, then: impl FnOnce() + Send + 'static) {
        self.checks.timers.after(Duration::ZERO, then);
        self.checks.timers.wake();
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.checks.timers.next_due()
    }
}

/// Whether the lists and watches of a source fail.
fn is_refused(source: &dyn AnySource) -> bool {
    let status = source.status();
    let is_watching = status.state == ReflectorState::Watching;
    status.failures > 0 && !is_watching
}

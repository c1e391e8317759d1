//! Sources of kinds that may be missing.
//!
//! The informer of such a source always runs. While its kind is missing, its lists fail. The kind
//! exists for the controller once a complete list is in the cache, so no call sees a part of it. It
//! is missing once lists fail with 404 and discovery has lacked it for `SETTLE`.
//!
//! No fact about a kind is learned only once. From the start of the informers on, checks repeat the
//! question: on a thread of the start until the first call, and then on the thread of the timers.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::reconcile_loop::{LOW_PRIORITY, ReconcileLoop};
use crate::controller::sources::presence::{
    CHECK, Finding, Presence, Reason, Rejoin, SETTLE, Served, Stage,
};
use crate::controller::sources::source::AnySource;
use crate::log;
use k8s_informer::stop::Stop;

impl ReconcileLoop {
    pub(crate) fn has_optional(&self) -> bool {
        let mut sources = self.calls.sources.iter();
        sources.any(|source| source.presence().is_some())
    }

    /// The presence of an optional source, by the position of the source.
    fn presence(&self, at: usize) -> Option<(&Arc<dyn AnySource>, &Presence)> {
        let source = &self.calls.sources[at];
        Some((source, source.presence()?))
    }

    /// Decides which optional kinds are missing, until `started` is set. Runs on a thread of its own
    /// while the first call waits for the caches.
    ///
    /// It uses the real time, as the waits of the start and the informers do.
    pub(crate) fn check_optional_until(&self, started: &Stop) {
        // The only API server of a test has no other one beside it that may know more.
        let settle = match self.probe {
            Some(_) => Duration::ZERO,
            None => SETTLE,
        };
        while !started.is_stopped() {
            // One answer for all kinds whose informers do not work.
            let doubtful = |at: &usize| {
                let source = &self.calls.sources[*at];
                source.presence().is_some_and(|of| !of.is_missing())
                    && !(source.is_listed() && self.barrier.failed_reads(*at).is_none())
            };
            let sources = 0..self.calls.sources.len();
            let doubtful: Vec<_> = sources.filter(doubtful).collect();
            if !doubtful.is_empty() {
                let answer = self.calls.client.rediscover(started);
                for at in doubtful {
                    let resource = self.calls.sources[at].resource();
                    self.check_during_start(at, Served::of(&answer, resource), settle);
                }
            }
            started.wait_timeout(CHECK);
        }
    }

    fn check_during_start(&self, at: usize, served: Served, settle: Duration) {
        let Some((source, presence)) = self.presence(at) else {
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
        let missing = {
            let state = &mut *presence.state.lock();
            state.doubts.add(found, Instant::now(), settle)
        };
        let (controller, resource) = (&self.calls.controller, source.resource());
        match missing {
            None => return,
            Some(Reason::Absent) => {
                log::info!("controller {controller:?}: the optional kind {resource} is missing");
            }
            Some(Reason::Unlistable) => {
                let error = self.barrier.last_error(at).or(status.last_error);
                let error = error.map_or_else(String::new, |error| error.to_string());
                log::warn!(
                    "controller {controller:?}: starts without the optional kind {resource}, because it can't be read: \
                     {error}; it is added when it can"
                );
            }
        }
        missing.inspect(|reason| presence.set_missing(*reason, was_listed));
    }

    /// Checks all optional sources after the start.
    pub(crate) fn check_all_optional(self: &Arc<Self>) {
        for at in 0..self.calls.sources.len() {
            self.check_optional_after(at, Duration::ZERO);
        }
    }

    /// Checks an optional source after a delay, on the thread of these checks. Replaces the check
    /// that was planned before. Does nothing for other sources.
    pub(crate) fn check_optional_after(self: &Arc<Self>, at: usize, delay: Duration) {
        let Some((_, presence)) = self.presence(at) else {
            return;
        };
        // Cancelled first: the new check can run at once, and plan another one.
        let planned = presence.state.lock().timer.take();
        planned.inspect(|timer| self.optional.cancel(*timer));
        let this = Arc::downgrade(self);
        let timer = self.optional.after(delay, move || {
            this.upgrade().inspect(|this| this.check_optional(at));
        });
        presence.state.lock().timer = timer;
    }

    /// Checks whether the kind of an optional source has appeared or is gone. Runs only on the thread
    /// of these checks, so each change is noticed once.
    fn check_optional(self: &Arc<Self>, at: usize) {
        let Some((source, presence)) = self.presence(at) else {
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
                    self.check_optional_after(at, SETTLE);
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
                self.changed(source, "exists");
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
                let answer = self.calls.client.rediscover(&self.optional_stop);
                Served::of(&answer, source.resource())
            }
        };
        // A kind that exists stays so if it can't be listed any longer.
        let found = Finding {
            served,
            is_listed,
            failures: None,
        };
        let now = self.calls.clock.now();
        let (missing, is_absent) = {
            let doubts = &mut presence.state.lock().doubts;
            (doubts.add(found, now, SETTLE), doubts.is_absent())
        };
        if let Some(reason) = missing {
            presence.set_missing(reason, true);
            self.changed(source, "is gone");
            self.postponed.resume_all();
            self.check_optional_after(at, SETTLE);
        } else if is_absent {
            self.check_optional_after(at, CHECK);
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
            if let Some((_, presence)) = this.presence(at) {
                presence.set_rejoin(Rejoin::Current);
                this.check_optional_after(at, Duration::ZERO);
            }
        };
        let controller = &self.calls.controller;
        let since = self.since.get().copied().unwrap_or_else(Instant::now);
        if let Err(error) = self.catch_ups.start(controller, source, since, then) {
            log::error!(
                "controller {controller:?}: the optional kind {} is added later: can't start a thread: {error}",
                source.resource()
            );
            presence.set_rejoin(Rejoin::NotListed);
            self.check_optional_after(at, SETTLE);
        }
    }

    /// Queues all keys, because a kind has appeared or is gone.
    fn changed(&self, source: &Arc<dyn AnySource>, is: &str) {
        log::info!(
            "controller {:?}: the optional kind {} {is}",
            self.calls.controller,
            source.resource()
        );
        self.enqueue(self.calls.sources[0].keys(), LOW_PRIORITY);
    }
}

//! No call begins before the caches contain what was committed before the term of the controller.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde::Serialize;

use super::catch_up::{CatchUps, wait_until_current};
use super::source::{AnySource, Sources};
use crate::controller::error::ControllerError;
use crate::log;
use crate::metrics::ControllerMetrics;
use crate::serve::json;
use k8s_informer::__private::{Meter, Owner, StopOnDrop, Threads};
use k8s_informer::error::Error;
use k8s_informer::error::WaitError;
use k8s_informer::stop::{Stop, Stopper};

/// The time between two updates of the metric.
const UPDATE: Duration = Duration::from_secs(1);

/// The time before the first line in the log. It doubles with each line.
const FIRST_LINE: Duration = Duration::from_secs(10);

/// An informer whose cache may be too old for the first call.
///
/// Its JSON has whole seconds, as `/status` shows them.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct SourceWait {
    /// The name of the informer.
    pub informer: String,
    /// Why the wait is not over: the last error, or that the watch is behind.
    #[serde(serialize_with = "json::one_line")]
    pub reason: String,
    /// The duration of the wait.
    #[serde(rename = "seconds", serialize_with = "json::whole_seconds")]
    pub since: Duration,
}

/// The sources whose caches may lack something that was committed before the term.
pub(crate) struct Barrier {
    /// When the term began. Empty before the start.
    since: OnceLock<Instant>,
    catch_ups: Arc<CatchUps>,
    /// By the position of the source. An innermost lock.
    waits: Mutex<BTreeMap<usize, Wait>>,
}

#[derive(Clone)]
struct Wait {
    source: Arc<dyn AnySource>,
    since: Instant,
    /// The error of the last consistent read.
    last_error: Option<Error>,
    failed_reads: u64,
}

impl Barrier {
    pub(crate) fn new(catch_ups: &Arc<CatchUps>) -> Self {
        Self {
            since: OnceLock::new(),
            catch_ups: Arc::clone(catch_ups),
            waits: Mutex::default(),
        }
    }

    /// Sets the begin of the term. The caches contain everything that was committed before when the
    /// first call begins.
    pub(crate) fn set_since(&self, since: Instant) {
        let _ = self.since.set(since);
    }

    fn since(&self) -> Instant {
        self.since.get().copied().unwrap_or_else(Instant::now)
    }

    /// Calls `then` on a new thread once the cache of a source that has appeared since then contains
    /// everything that was committed before the term.
    pub(super) fn catch_up(
        &self,
        controller: &str,
        source: &Arc<dyn AnySource>,
        then: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        self.catch_ups.start(controller, source, self.since(), then)
    }

    /// Returns the waits in progress.
    pub(crate) fn waits(&self) -> Vec<SourceWait> {
        let waits = self.waits.lock().clone().into_values();
        waits
            .map(|wait| {
                let status = wait.source.status();
                let failing = (status.failures > 0).then_some(status.last_error).flatten();
                SourceWait {
                    informer: wait.source.name().to_owned(),
                    reason: wait.last_error.or(failing).map_or_else(
                        || "its watch has not reached the present version".to_owned(),
                        |error| error.to_string(),
                    ),
                    since: wait.since.elapsed(),
                }
            })
            .collect()
    }

    /// The number of consistent reads of a source that have failed, if its wait is in progress and
    /// has failed.
    pub(super) fn failed_reads(&self, at: usize) -> Option<u64> {
        let waits = self.waits.lock();
        let failed = waits.get(&at).map(|wait| wait.failed_reads);
        failed.filter(|failed| *failed > 0)
    }

    /// The error of the last consistent read of a source.
    pub(super) fn last_error(&self, at: usize) -> Option<Error> {
        self.waits.lock().get(&at)?.last_error.clone()
    }

    /// Waits until the caches of all sources contain everything that was committed before the term,
    /// or until `stop` is set. The wait for an optional kind also ends when it turns out to be
    /// missing.
    ///
    /// There is no deadline, because an old cache must not lead to a call. A long wait is reported.
    pub(crate) fn wait(
        self: &Arc<Self>,
        name: &str,
        sources: &Sources,
        meter: &Meter<dyn ControllerMetrics>,
        stop: &Stop,
    ) -> Result<(), ControllerError> {
        let since = self.since();
        let threads = Threads::new(Owner::new());
        let stop = stop.child();
        let failure = Arc::new(OnceLock::new());
        // Set when the last thread has dropped its share.
        let all = Arc::new(StopOnDrop(Stopper::new()));
        let all_ended = all.0.signal();
        for (at, source) in sources.iter().enumerate() {
            let Some(awaited) = source.awaits(&stop) else {
                continue;
            };
            let wait = Wait {
                source: Arc::clone(source),
                since: Instant::now(),
                last_error: None,
                failed_reads: 0,
            };
            self.waits.lock().insert(at, wait);
            let (this, of, failure) = (Arc::clone(self), Arc::clone(source), Arc::clone(&failure));
            let (ended, all) = (stop.clone(), Arc::clone(&all));
            let work = move || {
                let _all = all;
                let failed = |error: WaitError| {
                    if let Some(wait) = this.waits.lock().get_mut(&at) {
                        wait.last_error = error.last_error().cloned();
                        wait.failed_reads += 1;
                    }
                };
                if let Err(error) = wait_until_current(&*of, since, &awaited, failed) {
                    let _ = failure.set(error);
                    ended.stop();
                }
                this.waits.lock().remove(&at);
            };
            let thread = format!("{name} wait for {}", source.name());
            if let Err(error) = threads.spawn(thread, None, work) {
                stop.stop();
                threads.join();
                return Err(ControllerError::thread(name, error));
            }
        }
        drop(all);
        self.report_until(&all_ended, name, meter);
        threads.join();
        let failure = failure.get().cloned();
        failure.map_or(Ok(()), |error| Err(ControllerError::informer(name, error)))
    }

    /// Reports what is awaited until `ended` is set.
    fn report_until(&self, ended: &Stop, name: &str, meter: &Meter<dyn ControllerMetrics>) {
        let (began, mut next) = (Instant::now(), FIRST_LINE);
        let mut reported: Vec<SourceWait> = Vec::new();
        loop {
            let is_over = ended.wait_timeout(UPDATE);
            let waits = if is_over { Vec::new() } else { self.waits() };
            let is_waiting = |name: &str| waits.iter().any(|wait| wait.informer == name);
            let over = reported.iter().filter(|wait| !is_waiting(&wait.informer));
            let over = over.map(|wait| (wait.informer.as_str(), Duration::ZERO));
            let behind = waits
                .iter()
                .map(|wait| (wait.informer.as_str(), wait.since));
            for (source, time) in over.chain(behind) {
                meter.event(|metrics| metrics.waits_for_source(source, time));
            }
            if is_over {
                return;
            }
            if began.elapsed() >= next {
                next *= 2;
                for wait in &waits {
                    log::warn!(
                        "controller {name:?}: no calls yet, because the cache of {} may be old: {}; waiting for {} s",
                        wait.informer,
                        wait.reason,
                        wait.since.as_secs()
                    );
                }
            }
            reported = waits;
        }
    }
}

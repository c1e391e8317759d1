//! No call begins before the caches contain what was committed before the term of the controller.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::controller::call::calls::Calls;
use crate::controller::call::status::SourceWait;
use crate::controller::error::ControllerError;
use crate::controller::sources::catch_up::wait_until_current;
use crate::controller::sources::source::AnySource;
use crate::log;
use k8s_informer::__private::{Owner, Threads};
use k8s_informer::error::Error;
use k8s_informer::error::WaitError;
use k8s_informer::stop::{Done, DoneSetter, Stop};

/// The time between two updates of the metric.
const UPDATE: Duration = Duration::from_secs(1);

/// The time before the first line in the log. It doubles with each line.
const FIRST_LINE: Duration = Duration::from_secs(10);

/// The sources whose caches may lack something that was committed before the term.
#[derive(Default)]
pub(crate) struct Barrier {
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
    pub(crate) fn failed_reads(&self, at: usize) -> Option<u64> {
        let waits = self.waits.lock();
        let failed = waits.get(&at).map(|wait| wait.failed_reads);
        failed.filter(|failed| *failed > 0)
    }

    /// The error of the last consistent read of a source.
    pub(crate) fn last_error(&self, at: usize) -> Option<Error> {
        self.waits.lock().get(&at)?.last_error.clone()
    }

    /// Waits until the caches of all sources contain everything that was committed before `since`,
    /// or until `stop` is set. The wait for an optional kind also ends when it turns out to be
    /// missing.
    ///
    /// There is no deadline, because an old cache must not lead to a call. A long wait is reported.
    pub(crate) fn wait(
        self: &Arc<Self>,
        calls: &Arc<Calls>,
        since: Instant,
        stop: &Stop,
    ) -> Result<(), ControllerError> {
        let name = &calls.controller;
        let threads = Threads::new(Owner::new());
        let stop = stop.child();
        let failure = Arc::new(OnceLock::new());
        let all = Arc::new(SetOnDrop(DoneSetter::new("current caches")));
        let ended = all.0.signal();
        for (at, source) in calls.sources.iter().enumerate() {
            let awaited = match source.presence() {
                None => Some(stop.child().signal()),
                Some(presence) => presence.awaits(&stop),
            };
            let Some(awaited) = awaited else {
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
        self.report_until(&ended, calls);
        threads.join();
        let failure = failure.get().cloned();
        failure.map_or(Ok(()), |error| Err(ControllerError::informer(name, error)))
    }

    /// Reports what is awaited until `ended` is set.
    fn report_until(&self, ended: &Done, calls: &Calls) {
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
                calls
                    .meter
                    .event(|metrics| metrics.waits_for_source(source, time));
            }
            if is_over {
                return;
            }
            if began.elapsed() >= next {
                next *= 2;
                for wait in &waits {
                    log::warn!(
                        "controller {:?}: no calls yet, because the cache of {} may be old: {}; waiting for {} s",
                        calls.controller,
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

struct SetOnDrop(DoneSetter);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

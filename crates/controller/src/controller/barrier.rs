//! No call begins before the caches contain what was committed before the term of the controller.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::calls::Calls;
use super::error::ControllerError;
use super::source::AnySource;
use super::status::SourceWait;
use crate::log;
use k8s_informer::__private::{Owner, Threads};
use k8s_informer::error::Error;
use k8s_informer::informer::InformerError;
use k8s_informer::stop::{Done, Stop};
use k8s_informer::time::Backoff;

/// The time between two updates of the metric.
const UPDATE: Duration = Duration::from_secs(1);

/// The time before the first line in the log. It doubles with each line.
const FIRST_LINE: Duration = Duration::from_secs(10);

/// The sources whose caches may lack something that was committed before the term.
#[derive(Default)]
pub(super) struct Barrier {
    /// By the position of the source. An innermost lock.
    waits: Mutex<BTreeMap<usize, Wait>>,
}

#[derive(Clone)]
struct Wait {
    source: Arc<dyn AnySource>,
    since: Instant,
    /// The error of the last consistent read.
    last_error: Option<Error>,
}

impl Barrier {
    /// Returns the waits in progress.
    pub(super) fn waits(&self) -> Vec<SourceWait> {
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

    /// Waits until the caches of all sources contain everything that was committed before `since`,
    /// or until `stop` is set.
    ///
    /// There is no deadline, because an old cache must not lead to a call. A long wait is reported.
    pub(super) fn wait(
        self: &Arc<Self>,
        calls: &Arc<Calls>,
        since: Instant,
        stop: &Stop,
    ) -> Result<(), ControllerError> {
        let name = &calls.controller;
        let threads = Threads::new(Owner::new());
        let stop = stop.child();
        let failure = Arc::new(OnceLock::new());
        let all = Arc::new(SetOnDrop(Done::new("current caches")));
        let ended = all.0.clone();
        for (at, source) in calls.sources.iter().enumerate() {
            if source.presence().is_some_and(|presence| !presence.exists()) {
                continue;
            }
            let wait = Wait {
                source: Arc::clone(source),
                since: Instant::now(),
                last_error: None,
            };
            self.waits.lock().insert(at, wait);
            let (this, of, failure) = (Arc::clone(self), Arc::clone(source), Arc::clone(&failure));
            let (ended, all) = (stop.clone(), Arc::clone(&all));
            let work = move || {
                let _all = all;
                if let Err(error) = this.wait_for(at, &*of, since, &ended) {
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

    fn wait_for(
        &self,
        at: usize,
        source: &dyn AnySource,
        since: Instant,
        stop: &Stop,
    ) -> Result<(), InformerError> {
        let mut backoff = Backoff::new(UPDATE, 2.0, Duration::from_secs(30), 0.5);
        while !stop.is_stopped() {
            let error = match source.wait_until_current(since, stop) {
                Ok(()) => break,
                Err(_) if stop.is_stopped() => break,
                // The kind is optional and was removed.
                Err(error) if error.is_not_found() && source.presence().is_some() => break,
                Err(error) if error.is_stopped() => {
                    return Err(InformerError::Stopped {
                        name: source.name().into(),
                        what: "the controller was not started",
                    });
                }
                Err(error) => error,
            };
            if let Some(wait) = self.waits.lock().get_mut(&at) {
                wait.last_error = Some(error);
            }
            stop.wait_timeout(backoff.step());
        }
        Ok(())
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

struct SetOnDrop(Done);

impl Drop for SetOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

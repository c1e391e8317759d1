//! Makes caches current, although their watches may be behind.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::source::AnySource;
use k8s_informer::__private::{Owner, Threads};
use k8s_informer::error::{WaitCause, WaitError};
use k8s_informer::informer::InformerError;
use k8s_informer::stop::{Stop, Stopper};
use k8s_informer::time::Backoff;

/// The delays between consistent reads that fail.
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MAX_DELAY: Duration = Duration::from_secs(30);
const JITTER: f64 = 0.5;

/// Waits until the cache contains everything that was committed before `since`, or until `stop` is
/// set. Repeats failed reads with back-off, and passes their errors to `failed`.
pub(crate) fn wait_until_current(
    source: &dyn AnySource,
    since: Instant,
    stop: &Stop,
    mut failed: impl FnMut(WaitError),
) -> Result<(), InformerError> {
    let mut backoff = Backoff::new(FIRST_DELAY)
        .factor(2.0)
        .cap(MAX_DELAY)
        .jitter(JITTER);
    while !stop.is_stopped() {
        match source.wait_until_current(since, stop) {
            Ok(()) => break,
            Err(_) if stop.is_stopped() => break,
            // The informer has ended.
            Err(error) if *error.cause() == WaitCause::Ended => {
                return Err(InformerError::Stopped {
                    name: source.name().into(),
                    what: "the controller was not started",
                });
            }
            // Also a 404: one API server of several may not know the kind yet.
            Err(error) => failed(error),
        }
        stop.wait_timeout(backoff.step());
    }
    Ok(())
}

/// The threads on which caches of a running controller become current.
pub(crate) struct CatchUps {
    threads: Threads,
    stop: Stopper,
}

impl CatchUps {
    pub(crate) fn new() -> Self {
        Self {
            threads: Threads::new(Owner::new()),
            stop: Stopper::new(),
        }
    }

    /// Calls `then` on a new thread once the cache contains everything that was committed before
    /// `since`. After the end of the controller, it is not called.
    pub(crate) fn start(
        &self,
        controller: &str,
        source: &Arc<dyn AnySource>,
        since: Instant,
        then: impl FnOnce() + Send + 'static,
    ) -> io::Result<()> {
        let (of, stop) = (Arc::clone(source), self.stop.clone());
        let work = move || {
            let ended = wait_until_current(&*of, since, &stop, |_| {});
            if ended.is_ok() && !stop.is_stopped() {
                then();
            }
        };
        let name = format!("{controller} wait for {}", source.name());
        self.threads.spawn(name, None, work)
    }

    /// Ends all waits.
    pub(crate) fn stop(&self) {
        self.stop.stop();
    }

    pub(crate) fn join(&self) {
        self.threads.join();
    }
}

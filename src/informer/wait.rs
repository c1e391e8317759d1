use std::fmt;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::stop::{Done, Stop};

/// Blocks until all of these have happened, or `stop` is given. client-go's `WaitForCacheSync` and `WaitFor`;
/// without polling.
///
/// ```
/// use k8s_informer::{Done, Stop, wait_for_cache_sync};
///
/// let (pods, nodes, stop) = (Done::new("pods"), Done::new("nodes"), Stop::new());
/// pods.set();
/// stop.stop();
/// let error = wait_for_cache_sync(&stop, [&pods, &nodes]).unwrap_err();
/// assert_eq!(error.to_string(), "stopped before these had synced: nodes");
/// nodes.set();
/// assert!(wait_for_cache_sync(&stop, [&pods, &nodes]).is_ok());
/// ```
///
/// # Errors
///
/// If `stop` is given before: which have not happened then, each one looked at once more (WT2).
pub fn wait_for_cache_sync<'a>(
    stop: &Stop,
    synced: impl IntoIterator<Item = &'a Done>,
) -> Result<(), SyncError> {
    wait(stop, None, synced)
}

/// As [`wait_for_cache_sync`], but no longer than this.
///
/// ```
/// use k8s_informer::{Done, Stop, wait_for_cache_sync_timeout};
/// use std::time::Duration;
///
/// let pods = Done::new("pods");
/// let error = wait_for_cache_sync_timeout(&Stop::new(), Duration::from_millis(1), [&pods]).unwrap_err();
/// assert_eq!(error.to_string(), "after 1ms these had not synced: pods");
/// ```
///
/// # Errors
///
/// As there, and after this time.
pub fn wait_for_cache_sync_timeout<'a>(
    stop: &Stop,
    timeout: Duration,
    synced: impl IntoIterator<Item = &'a Done>,
) -> Result<(), SyncError> {
    wait(stop, Some(timeout), synced)
}

fn wait<'a>(
    stop: &Stop,
    timeout: Option<Duration>,
    synced: impl IntoIterator<Item = &'a Done>,
) -> Result<(), SyncError> {
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let mut unsynced = Vec::new();
    for done in synced {
        if !done.wait_until(deadline, stop) {
            unsynced.push(Unsynced { name: done.name().to_owned(), last_error: None });
        }
    }
    if unsynced.is_empty() {
        return Ok(());
    }
    Err(SyncError::new(unsynced, timeout.filter(|_| !stop.is_stopped())))
}

/// A wait for caches to sync ended before they had. client-go's `SyncResult`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncError {
    /// What has not synced, by name.
    pub unsynced: Vec<Unsynced>,
    /// How long it took, if that was the end of it, and not a stop.
    timeout: Option<Duration>,
}

/// One that has not synced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// Which informer; of several namespaces, which of them.
    pub name: String,
    /// What went wrong with it last, if anything did.
    pub last_error: Option<Error>,
}

impl SyncError {
    pub(super) fn new(mut unsynced: Vec<Unsynced>, timeout: Option<Duration>) -> Self {
        unsynced.sort_by(|a, b| a.name.cmp(&b.name));
        Self { unsynced, timeout }
    }

    /// Whether there was a limit to the wait and it was over; else something was stopped.
    pub fn timed_out(&self) -> bool {
        self.timeout.is_some()
    }
}

impl Unsynced {
    pub(super) fn new(name: &str, last_error: Option<Error>) -> Self {
        Self { name: name.to_owned(), last_error }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.timeout {
            Some(timeout) => write!(f, "after {timeout:?} these had not synced: ")?,
            None => f.write_str("stopped before these had synced: ")?,
        }
        for (at, Unsynced { name, last_error }) in self.unsynced.iter().enumerate() {
            let separator = if at == 0 { "" } else { ", " };
            write!(f, "{separator}{name}")?;
            if let Some(error) = last_error {
                write!(f, " ({error})")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for SyncError {}

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::reflector::UndecodableList;
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
            unsynced.push(Unsynced::new(done.name(), None));
        }
    }
    if unsynced.is_empty() {
        return Ok(());
    }
    Err(SyncError::new(
        unsynced,
        timeout.filter(|_| !stop.is_stopped()),
    ))
}

/// A wait for caches to sync ended before they had, or they have synced without being able to decode
/// anything. client-go's `SyncResult`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncError {
    /// What has not synced, by name, and what has synced with a list that could not be decoded.
    pub unsynced: Vec<Unsynced>,
    /// How long it took, if that was the end of it, and not a stop.
    timeout: Option<Duration>,
}

/// An informer, or one of its namespaces, that has not synced or could not decode its first list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// Which informer; of several namespaces, which of them.
    pub name: String,
    /// What went wrong with it last, if anything did.
    pub last_error: Option<Error>,
    /// Set if the cache has synced, but no object of the list could be decoded, and there were at least two:
    /// most likely the Rust type does not match the resource.
    pub undecodable: Option<UndecodableList>,
}

impl SyncError {
    pub(super) fn new(mut unsynced: Vec<Unsynced>, timeout: Option<Duration>) -> Self {
        unsynced.sort_by(|a, b| a.name.cmp(&b.name));
        Self { unsynced, timeout }
    }

    /// Nothing is wrong if there is none.
    pub(super) fn undecodable(undecodable: Vec<Unsynced>) -> Result<(), Self> {
        if undecodable.is_empty() {
            Ok(())
        } else {
            Err(Self::new(undecodable, None))
        }
    }

    /// Whether there was a limit to the wait and it was over; else something was stopped.
    pub fn timed_out(&self) -> bool {
        self.timeout.is_some()
    }
}

impl Unsynced {
    pub(super) fn new(name: &str, last_error: Option<Error>) -> Self {
        Self {
            name: name.to_owned(),
            last_error,
            undecodable: None,
        }
    }

    pub(super) fn decoded_nothing(name: &str, list: UndecodableList) -> Self {
        let last_error = Some(list.first_error.clone());
        Self {
            name: name.to_owned(),
            last_error,
            undecodable: Some(list),
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsynced = self.unsynced.iter().filter(|one| one.undecodable.is_none());
        for (
            at,
            Unsynced {
                name, last_error, ..
            },
        ) in unsynced.enumerate()
        {
            match (at, self.timeout) {
                (0, Some(timeout)) => write!(f, "after {timeout:?} these had not synced: ")?,
                (0, None) => f.write_str("stopped before these had synced: ")?,
                _ => f.write_str(", ")?,
            }
            f.write_str(name)?;
            if let Some(error) = last_error {
                write!(f, " ({error})")?;
            }
        }
        let is_first = self.unsynced.iter().all(|one| one.undecodable.is_some());
        let undecodable = self
            .unsynced
            .iter()
            .filter_map(|one| Some((&one.name, one.undecodable.as_ref()?)));
        for (at, (name, list)) in undecodable.enumerate() {
            let separator = if at == 0 && is_first { "" } else { "; " };
            write!(f, "{separator}{name}: {list}")?;
        }
        Ok(())
    }
}

impl std::error::Error for SyncError {}

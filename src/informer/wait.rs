use std::fmt;

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
    let mut unsynced = Vec::new();
    for done in synced {
        if !done.wait_or_stop(stop) {
            unsynced.push(Unsynced { name: done.name().to_owned(), last_error: None });
        }
    }
    if unsynced.is_empty() { Ok(()) } else { Err(SyncError::new(unsynced)) }
}

/// A wait for caches to sync ended before they had. client-go's `SyncResult`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SyncError {
    /// What has not synced, by name.
    pub unsynced: Vec<Unsynced>,
}

/// One that has not synced.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// Which informer.
    pub name: String,
    /// What went wrong with it last, if anything did.
    pub last_error: Option<Error>,
}

impl SyncError {
    pub(super) fn new(mut unsynced: Vec<Unsynced>) -> Self {
        unsynced.sort_by(|a, b| a.name.cmp(&b.name));
        Self { unsynced }
    }
}

impl Unsynced {
    pub(super) fn new(name: &str, last_error: Option<Error>) -> Self {
        Self { name: name.to_owned(), last_error }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped before these had synced: ")?;
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

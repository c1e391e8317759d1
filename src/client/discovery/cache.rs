//! What a client remembers of discovery.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::document::Discovery;
use crate::base::sync::Mutex;
use crate::error::Error;
use crate::stop::DoneSetter;

/// The minimum time between two fetches that are caused by missing names.
const MIN_REFETCH_INTERVAL: Duration = Duration::from_secs(10);

/// The discovery cache of a client. Nothing blocks while its lock is held.
#[derive(Default)]
pub(in crate::client) struct Cache {
    /// The number of the fetch that was started last.
    pub(super) last_started: u64,
    /// The fetch in progress.
    pub(super) pending: Option<Arc<Fetch>>,
    /// The latest result, with the number of its fetch.
    pub(super) current: Option<(u64, Arc<Discovery>)>,
    /// The time of the last fetch that was caused by a missing name.
    pub(super) missed: Option<Instant>,
    /// The time of the last fetch that was caused by the error of another request.
    pub(super) explained: Option<Instant>,
}

/// A fetch, shared by all threads that wait for its result.
pub(super) struct Fetch {
    pub(super) number: u64,
    pub(super) done: DoneSetter,
    pub(super) result: OnceLock<Result<Arc<Discovery>, Error>>,
}

/// Whether something may be done again that is done at most every [`MIN_REFETCH_INTERVAL`].
pub(super) fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let is_due =
        last.is_none_or(|last| now.saturating_duration_since(last) >= MIN_REFETCH_INTERVAL);
    if is_due {
        *last = Some(now);
    }
    is_due
}

/// Ends a fetch when dropped, also after a panic: caches its result if it succeeded, and wakes the
/// waiting threads.
pub(super) struct FetchGuard<'a> {
    pub(super) cache: &'a Mutex<Cache>,
    pub(super) fetch: &'a Fetch,
}

impl Drop for FetchGuard<'_> {
    fn drop(&mut self) {
        let old = {
            let mut cache = self.cache.lock();
            cache.pending = None;
            match self.fetch.result.get() {
                Some(Ok(found)) => cache.current.replace((self.fetch.number, found.clone())),
                _ => None,
            }
        };
        drop(old);
        self.fetch.done.set();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_name_refetches_discovery_once_per_ten_seconds() {
        let (mut last, start) = (None, Instant::now());
        assert!(is_due(&mut last, start));
        assert!(!is_due(
            &mut last,
            start + MIN_REFETCH_INTERVAL - Duration::from_millis(1)
        ));
        assert!(is_due(&mut last, start + MIN_REFETCH_INTERVAL));
        assert!(!is_due(&mut last, start + MIN_REFETCH_INTERVAL));
    }
}

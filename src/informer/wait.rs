use std::time::Duration;

use crate::base::deadline::Deadline;
use crate::error::{Unsynced, WaitCause, WaitError};
use crate::stop::{Done, Stop};

/// Blocks until all signals are set, until `timeout` has elapsed, or until `stop` is set. This does
/// not poll. client-go's `WaitForCacheSync` and `WaitFor`.
///
/// ```
/// use k8s_informer::informer::wait_for_cache_sync;
/// use k8s_informer::stop::{DoneSetter, Stopper};
///
/// let (pods, nodes, stop) = (DoneSetter::new("pods"), DoneSetter::new("nodes"), Stopper::new());
/// let all = [pods.signal(), nodes.signal()];
/// pods.set();
/// stop.stop();
/// let error = wait_for_cache_sync(&all, None, &stop).unwrap_err();
/// assert_eq!(error.to_string(), "stopped before syncing: nodes");
/// nodes.set();
/// assert!(wait_for_cache_sync(&all, None, &stop).is_ok());
/// ```
///
/// # Errors
///
/// If the timeout elapses or `stop` is set first, the error names the signals that are not set. Each
/// signal is checked once more after the stop.
#[doc(alias = "WaitForCacheSync")]
pub fn wait_for_cache_sync<'a>(
    synced: impl IntoIterator<Item = &'a Done>,
    timeout: impl Into<Option<Duration>>,
    stop: &Stop,
) -> Result<(), WaitError> {
    let deadline = Deadline::after(timeout);
    let mut cause = WaitCause::Stopped;
    let mut unsynced = Vec::new();
    for done in synced {
        if let Err(ended) = done.wait_until_either(deadline, stop) {
            unsynced.push(Unsynced::new(done.name(), None));
            cause = ended;
        }
    }
    if unsynced.is_empty() {
        return Ok(());
    }
    Err(WaitError::unsynced_with(cause, unsynced))
}

/// Options for waiting until informers have synced. By default, the wait has no timeout and
/// continues on errors.
///
/// A `Duration` and `None` convert to `SyncOptions`.
///
/// ```
/// use k8s_informer::informer::SyncOptions;
/// use k8s_informer::{Client, Config, Stop, observe};
/// use k8s_informer_testing::{ApiServer, Fault};
/// use k8s_openapi::api::core::v1::Pod;
/// use std::time::{Duration, Instant};
///
/// let server = ApiServer::start()?;
/// server.fail_next(Fault::status(403).always());
/// let client = Client::new(Config::new(server.url()))?;
/// let pods = observe::<Pod>(client).start()?;
/// let options = SyncOptions::new().timeout(Duration::from_secs(60)).fail_fast(true);
/// let error = pods.wait_for_sync(options, &Stop::never()).unwrap_err();
/// assert!(error.is_refused() && !error.is_timed_out());
/// assert!(error.last_error().is_some_and(|error| error.is_forbidden()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SyncOptions {
    pub(super) timeout: Option<Duration>,
    pub(super) fail_fast: bool,
}

impl SyncOptions {
    /// Creates options for a wait until the informers have synced or `stop` is set.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets a timeout.
    #[must_use]
    pub fn timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        Self {
            timeout: timeout.into(),
            ..self
        }
    }

    /// Sets whether the wait ends as soon as the first list fails with an error that the same request will get
    /// again: 400, 401, 403, 404, 405 or 422, a TLS failure, or an invalid configuration.
    ///
    /// The informer keeps trying and may sync later, for example when an administrator grants the
    /// missing permission. Use this option if a person waits for the program. A controller that is
    /// deployed together with its RBAC rules should only use a [timeout](Self::timeout).
    #[must_use]
    pub fn fail_fast(self, fail_fast: bool) -> Self {
        Self { fail_fast, ..self }
    }
}

impl From<Duration> for SyncOptions {
    fn from(timeout: Duration) -> Self {
        Self::new().timeout(timeout)
    }
}

impl From<Option<Duration>> for SyncOptions {
    fn from(timeout: Option<Duration>) -> Self {
        Self {
            timeout,
            fail_fast: false,
        }
    }
}

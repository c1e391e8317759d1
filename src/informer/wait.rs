use std::fmt;
use std::time::Duration;

use crate::error::{Error, debug_as_display};
use crate::queue::WaitError;
use crate::stop::{Done, Stop};

/// Blocks until all signals are set, or until `stop` is set. This does not poll. client-go's
/// `WaitForCacheSync` and `WaitFor`.
///
/// ```
/// use k8s_informer::informer::wait_for_cache_sync;
/// use k8s_informer::stop::{DoneSetter, Stopper};
///
/// let (pods, nodes, stop) = (DoneSetter::new("pods"), DoneSetter::new("nodes"), Stopper::new());
/// let all = [pods.signal(), nodes.signal()];
/// pods.set();
/// stop.stop();
/// let error = wait_for_cache_sync(&all, &stop).unwrap_err();
/// assert_eq!(error.to_string(), "stopped before syncing: nodes");
/// nodes.set();
/// assert!(wait_for_cache_sync(&all, &stop).is_ok());
/// ```
///
/// # Errors
///
/// If `stop` is set first, the error names the signals that are not set. Each signal is checked
/// once more after the stop.
#[doc(alias = "WaitForCacheSync")]
pub fn wait_for_cache_sync<'a>(
    synced: impl IntoIterator<Item = &'a Done>,
    stop: &Stop,
) -> Result<(), SyncError> {
    let mut unsynced = Vec::new();
    for done in synced {
        if !done.wait_or_stop(stop) {
            unsynced.push(Unsynced::new(done.name(), None));
        }
    }
    if unsynced.is_empty() {
        return Ok(());
    }
    Err(SyncError::new(unsynced, SyncEnd::Stopped))
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
/// use std::time::Duration;
///
/// let server = ApiServer::start()?;
/// server.fail_next(Fault::status(403).always());
/// let client = Client::new(Config::new(server.url()))?;
/// let pods = observe::<Pod>(client).start()?;
/// let options = SyncOptions::new().timeout(Duration::from_secs(60)).fail_fast();
/// let error = pods.wait_for_sync(options, &Stop::never()).unwrap_err();
/// assert!(error.is_refused() && !error.timed_out());
/// assert!(error.unsynced[0].last_error.as_ref().is_some_and(|error| error.is_forbidden()));
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
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// Ends the wait as soon as the first list fails with an error that the same request will get
    /// again: 400, 401, 403, 404, 405 or 422, a TLS failure, or an invalid configuration.
    ///
    /// The informer keeps trying and may sync later, for example when an administrator grants the
    /// missing permission. Use this option if a person waits for the program. A controller that is
    /// deployed together with its RBAC rules should only use a [timeout](Self::timeout).
    #[must_use]
    pub fn fail_fast(self) -> Self {
        Self {
            fail_fast: true,
            ..self
        }
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

/// The error of waiting until caches have synced. Either the wait ended before all caches had
/// synced, or all have synced but a list had no decodable object. client-go's `SyncResult`.
///
/// `Display` and `Debug` name the informers and their last errors.
#[derive(Clone)]
#[non_exhaustive]
pub struct SyncError {
    /// The caches that have not synced, and those that have synced with a list that could not be
    /// decoded. Sorted by name.
    pub unsynced: Vec<Unsynced>,
    end: SyncEnd,
}

/// The reason why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncEnd {
    /// The caches have synced, but for at least one of them no object of the list could be decoded.
    Synced,
    /// The `stop` of the wait was set.
    Stopped,
    /// An informer ended.
    Ended,
    TimedOut(Duration),
    /// A first list failed permanently.
    Refused,
    /// The factory has informers that were not started.
    NotStarted,
    /// The wait would block the only thread of an informer.
    OwnThread,
}

/// The start of an error message; the names of the informers follow.
impl fmt::Display for SyncEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(timeout) => write!(f, "timed out after {timeout:?}; not synced: "),
            Self::Refused => f.write_str("cannot sync: "),
            Self::NotStarted => f.write_str("call `start` first; not started: "),
            Self::OwnThread => write!(f, "{}: ", WaitError::OwnThread),
            Self::Ended => f.write_str("ended before syncing: "),
            Self::Stopped | Self::Synced => f.write_str("stopped before syncing: "),
        }
    }
}

/// An informer, or one namespace of an informer with several namespaces, that has not synced or
/// could not decode its list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// The name of the informer or of its namespace.
    pub name: String,
    /// Whether the informer was never started. Start it with
    /// [`start`](crate::SharedInformerFactory::start) of its factory or with
    /// [`run`](crate::SharedIndexInformer::run).
    pub not_started: bool,
    /// The last error, if there was one.
    pub last_error: Option<Error>,
    /// Set if the cache has synced, but the list had at least two objects and none of them could be
    /// decoded and stored. Most likely the Rust type does not match the resource, or a transform
    /// rejects every object.
    pub undecodable: Option<Error>,
}

impl SyncError {
    pub(super) fn new(mut unsynced: Vec<Unsynced>, end: SyncEnd) -> Self {
        unsynced.sort_by(|a, b| a.name.cmp(&b.name));
        Self { unsynced, end }
    }

    /// Whether the `stop` of the wait was set. In this case nothing is wrong: the program is about
    /// to end.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop, Stopper, observe};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let stop = Stopper::new();
    /// stop.stop(); // With `Stop::on_signals`, this is Ctrl-C.
    /// let pods = observe::<Pod>(client).start()?;
    /// match pods.wait_for_sync(None, &stop) {
    ///     Err(error) if error.is_stopped() => return Ok(()),
    ///     synced => synced?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_stopped(&self) -> bool {
        self.end == SyncEnd::Stopped
    }

    /// Whether the timeout of the wait elapsed.
    pub fn timed_out(&self) -> bool {
        matches!(self.end, SyncEnd::TimedOut(_))
    }

    /// Whether the wait used [`fail_fast`](SyncOptions::fail_fast) and a first list failed
    /// permanently.
    pub fn is_refused(&self) -> bool {
        self.end == SyncEnd::Refused
    }
}

impl Unsynced {
    pub(super) fn new(name: &str, last_error: Option<Error>) -> Self {
        Self {
            name: name.to_owned(),
            not_started: false,
            last_error,
            undecodable: None,
        }
    }

    pub(super) fn not_started(name: &str) -> Self {
        Self {
            not_started: true,
            ..Self::new(name, None)
        }
    }

    pub(super) fn decoded_nothing(name: &str, error: Error) -> Self {
        Self {
            undecodable: Some(error.clone()),
            ..Self::new(name, Some(error))
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut unsynced, mut undecodable) = (Vec::new(), Vec::new());
        for one in &self.unsynced {
            let name = &one.name;
            let is_news = one.not_started && self.end != SyncEnd::NotStarted;
            let not_started = if is_news { " (not started)" } else { "" };
            match (&one.undecodable, &one.last_error) {
                (Some(list), _) => undecodable.push(format!("{name}: {list}")),
                (None, Some(error)) => unsynced.push(format!("{name}{not_started} ({error})")),
                (None, None) => unsynced.push(format!("{name}{not_started}")),
            }
        }
        if !unsynced.is_empty() {
            undecodable.insert(0, format!("{}{}", self.end, unsynced.join(", ")));
        }
        f.write_str(&undecodable.join("; "))
    }
}

impl std::error::Error for SyncError {}

debug_as_display!(SyncError);

use std::fmt;
use std::time::{Duration, Instant};

use crate::error::{Error, debug_as_display};
use crate::reflector::UndecodableList;
use crate::stop::{Done, Stop};

/// Blocks until all of these have happened, or `stop` is given. client-go's `WaitForCacheSync` and `WaitFor`;
/// without polling.
///
/// ```
/// use k8s_informer::{Done, Stop};
/// use k8s_informer::informer::wait_for_cache_sync;
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
#[doc(alias = "WaitForCacheSync")]
pub fn wait_for_cache_sync<'a>(
    stop: &Stop,
    synced: impl IntoIterator<Item = &'a Done>,
) -> Result<(), SyncError> {
    wait(stop, None, synced)
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
    Err(SyncError::new(unsynced, SyncEnd::of(stop, timeout, false)))
}

/// When to stop waiting for a sync: after a time, on errors that do not heal, or, by default, never.
///
/// A `Duration` and `None` convert to it.
///
/// ```
/// use k8s_informer::testing::{ApiServer, Fault};
/// use k8s_informer::{Client, Config, Stop, observe};
/// use k8s_informer::informer::SyncOptions;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::time::Duration;
///
/// let server = ApiServer::start()?;
/// server.fail_next(Fault::status(403).always());
/// let client = Client::new(Config::new(server.url()))?;
/// let pods = observe::<Pod>(client).start()?;
/// let options = SyncOptions::new().timeout(Duration::from_secs(60)).fail_fast();
/// let error = pods.wait_for_sync(&Stop::new(), options).unwrap_err();
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
    /// Waits until the informers have synced, or until `stop` is given.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits at most this long.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..self
        }
    }

    /// Returns as soon as the first list fails with an error that the same request will get again: 400, 401,
    /// 403, 404, 405 or 422, a TLS failure, or a configuration that cannot be used.
    ///
    /// The informer keeps trying, and may sync later, for example when an administrator grants the missing right.
    /// Use it where a person waits for the program; a controller that starts together with its RBAC rules should
    /// wait with a [timeout](Self::timeout) only.
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

/// A wait for caches to sync ended before they had, or they have synced without being able to decode
/// anything. client-go's `SyncResult`.
///
/// `Display` and `Debug` name the informers and their last errors.
#[derive(Clone)]
#[non_exhaustive]
pub struct SyncError {
    /// What has not synced, by name, and what has synced with a list that could not be decoded.
    pub unsynced: Vec<Unsynced>,
    end: SyncEnd,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncEnd {
    /// The caches have synced, with objects that cannot be decoded.
    Synced,
    /// The `stop` of the wait.
    Stopped,
    /// The end of the informers.
    Ended,
    TimedOut(Duration),
    /// A first list was refused.
    Refused,
    /// The factory was never started.
    NotStarted,
}

impl SyncEnd {
    /// The end of a wait with this `stop` and time, unless it was another one.
    pub(super) fn of(stop: &Stop, timeout: Option<Duration>, has_ended: bool) -> Self {
        match timeout {
            _ if stop.is_stopped() => Self::Stopped,
            Some(timeout) if !has_ended => Self::TimedOut(timeout),
            _ => Self::Ended,
        }
    }
}

/// What a message about informers that have not synced begins with.
impl fmt::Display for SyncEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(timeout) => write!(f, "after {timeout:?} these had not synced: "),
            Self::Refused => f.write_str("these cannot sync: "),
            Self::NotStarted => f.write_str("call `start` first; these were not started: "),
            Self::Ended => f.write_str("ended before these had synced: "),
            Self::Stopped | Self::Synced => f.write_str("stopped before these had synced: "),
        }
    }
}

/// An informer, or one of its namespaces, that has not synced or could not decode its first list.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Unsynced {
    /// Which informer; of several namespaces, which of them.
    pub name: String,
    /// Whether it was never started: only [`start`](crate::SharedInformerFactory::start) of its factory, or
    /// [`run`](crate::SharedIndexInformer::run), makes it list.
    pub not_started: bool,
    /// What went wrong with it last, if anything did.
    pub last_error: Option<Error>,
    /// Set if the cache has synced, but no object of the list could be decoded, and there were at least two:
    /// most likely the Rust type does not match the resource.
    pub undecodable: Option<UndecodableList>,
}

impl SyncError {
    pub(super) fn new(mut unsynced: Vec<Unsynced>, end: SyncEnd) -> Self {
        unsynced.sort_by(|a, b| a.name.cmp(&b.name));
        Self { unsynced, end }
    }

    /// Nothing is wrong if there is none.
    pub(super) fn undecodable(undecodable: Vec<Unsynced>) -> Result<(), Self> {
        if undecodable.is_empty() {
            Ok(())
        } else {
            Err(Self::new(undecodable, SyncEnd::Synced))
        }
    }

    /// Whether the `stop` of the wait was given: the program is to end, and nothing is wrong.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop, observe};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let stop = Stop::new();
    /// stop.stop(); // Ctrl-C, if it is `Stop::on_signals`.
    /// let pods = observe::<Pod>(client).start()?;
    /// match pods.wait_for_sync(&stop, None) {
    ///     Err(error) if error.is_stopped() => return Ok(()),
    ///     synced => synced?,
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_stopped(&self) -> bool {
        self.end == SyncEnd::Stopped
    }

    /// Whether the time of the wait was over.
    pub fn timed_out(&self) -> bool {
        matches!(self.end, SyncEnd::TimedOut(_))
    }

    /// Whether the wait was to [fail fast](SyncOptions::fail_fast), and a first list failed for good.
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

    pub(super) fn decoded_nothing(name: &str, list: UndecodableList) -> Self {
        Self {
            undecodable: Some(list.clone()),
            ..Self::new(name, Some(list.first_error))
        }
    }
}

impl fmt::Display for SyncError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unsynced = self.unsynced.iter().filter(|one| one.undecodable.is_none());
        for (at, one) in unsynced.enumerate() {
            match at {
                0 => self.end.fmt(f)?,
                _ => f.write_str(", ")?,
            }
            f.write_str(&one.name)?;
            if one.not_started && self.end != SyncEnd::NotStarted {
                f.write_str(" (not started)")?;
            }
            if let Some(error) = &one.last_error {
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

debug_as_display!(SyncError);

//! The error of all waits.

use std::fmt;
use std::time::Duration;

use super::{Error, debug_as_display};
use crate::resource_version::ResourceVersion;

/// The error of a wait: for the first sync of informers, for a version in a cache, for an object in
/// the cluster, or for leadership.
///
/// [`cause`](Self::cause) is the reason, and the `Display` text has all that is known: what was
/// awaited, the state that was seen last, and the last error of the server. Of an object, the text
/// contains at most the version, the types, statuses and reasons of conditions, and finalizers. The
/// error of [`install_crds`](crate::Client::install_crds) also contains messages of conditions.
///
/// ```
/// use k8s_informer::error::WaitCause;
/// use k8s_informer::informer::wait_for_cache_sync;
/// use k8s_informer::stop::{DoneSetter, Stopper};
///
/// let (pods, stop) = (DoneSetter::new("pods"), Stopper::new());
/// stop.stop();
/// let error = wait_for_cache_sync([&*pods], None, &stop).unwrap_err();
/// assert!(error.is_stopped() && !error.is_timed_out());
/// assert_eq!(error.cause(), &WaitCause::Stopped);
/// assert_eq!(error.unsynced()[0].name, "pods");
/// assert_eq!(error.to_string(), "stopped before syncing: pods");
/// ```
#[derive(Clone)]
pub struct WaitError {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    cause: WaitCause,
    /// What the wait did: `waiting for the deletion of pods "a"`.
    doing: String,
    last_seen: LastSeen,
    last_error: Option<Error>,
    unsynced: Vec<Unsynced>,
}

/// The state that a wait has seen last.
#[derive(Clone)]
enum LastSeen {
    /// The wait does not report states.
    Unknown,
    Nothing,
    State(String),
}

/// The reason why a wait failed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitCause {
    /// The `stop` of the wait was set. In this case nothing is wrong: the program is about to end.
    Stopped,
    /// The timeout elapsed. What was awaited may still happen, and you can wait again.
    TimedOut(Duration),
    /// A request failed, and the wait does not repeat it; [`WaitError::last_error`] is the error. Most
    /// waits end like this only if the same request would get the same error again. Examples are 401,
    /// 403, 404 because the kind does not exist, and the name of a definition that another one has.
    Refused,
    /// The informer or the factory ended.
    Ended,
    /// An informer was never started, so it cannot sync. Call
    /// [`start`](crate::SharedInformerFactory::start) of its factory first.
    NotStarted,
    /// The caches have synced, but for at least one of them no object of the list could be decoded.
    /// See [`Unsynced::undecodable`].
    Undecodable,
    /// The wait would never end, because it blocks the thread that ends it. A callback waits for its
    /// own handler, or for its informer, which runs on [one
    /// thread](crate::informer::SharedIndexInformerOptions::one_thread).
    OwnThread,
    /// The requested version, or the one that the server sent, is not a decimal number or has a
    /// leading zero. Such versions have no order. `None` for an object without a version.
    NotComparable(Option<ResourceVersion>),
    /// The informer does not watch the namespace of the object.
    OtherNamespace {
        /// The namespace of the object.
        namespace: String,
        /// The namespaces that the informer watches.
        watched: Vec<String>,
    },
    /// The version has been processed, but the cache has an older state of the object, or none. The
    /// new state could not be decoded, or a transform rejected it. The log has the reason.
    NotStored {
        /// The requested version.
        version: ResourceVersion,
        /// The version in the cache. `None` if the cache does not have the object.
        cached: Option<ResourceVersion>,
    },
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

impl WaitError {
    /// Creates the error of your own wait. `doing` completes the sentence "timed out after 1s …", for
    /// example `waiting for the first backup`.
    ///
    /// ```
    /// use k8s_informer::error::{Error, WaitCause, WaitError};
    /// use std::time::Duration;
    ///
    /// let timed_out = WaitCause::TimedOut(Duration::from_secs(1));
    /// let error = WaitError::new(timed_out, "waiting for the first backup");
    /// let error = error.seen("2 of 3 volumes".to_owned()).caused_by(Error::other("no space"));
    /// assert!(error.is_timed_out());
    /// let text = "timed out after 1s waiting for the first backup; last seen: 2 of 3 volumes; last error: no space";
    /// assert_eq!(error.to_string(), text);
    /// ```
    pub fn new(cause: WaitCause, doing: impl Into<String>) -> Self {
        let inner = Inner {
            cause,
            doing: doing.into(),
            last_seen: LastSeen::Unknown,
            last_error: None,
            unsynced: Vec::new(),
        };
        Self {
            inner: Box::new(inner),
        }
    }

    /// Adds the last error.
    #[must_use]
    pub fn caused_by(mut self, error: impl Into<Option<Error>>) -> Self {
        self.inner.last_error = error.into();
        self
    }

    /// Adds the state that was seen last. `None` says that the wait has seen nothing.
    #[must_use]
    pub fn seen(mut self, state: impl Into<Option<String>>) -> Self {
        self.inner.last_seen = state.into().map_or(LastSeen::Nothing, LastSeen::State);
        self
    }

    /// Changes the cause: the caller of the wait knows it better.
    pub(crate) fn with_cause(mut self, cause: WaitCause) -> Self {
        self.inner.cause = cause;
        self
    }

    /// Creates the error of a wait for the first sync of these informers.
    pub(crate) fn unsynced_with(cause: WaitCause, mut unsynced: Vec<Unsynced>) -> Self {
        unsynced.sort_by(|a, b| a.name.cmp(&b.name));
        let mut error = Self::new(cause, "waiting for caches to sync");
        error.inner.last_error = unsynced.iter().find_map(|one| one.last_error.clone());
        error.inner.unsynced = unsynced;
        error
    }

    /// Returns the reason of the error.
    pub fn cause(&self) -> &WaitCause {
        &self.inner.cause
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
        self.inner.cause == WaitCause::Stopped
    }

    /// Whether the timeout of the wait elapsed.
    pub fn is_timed_out(&self) -> bool {
        matches!(self.inner.cause, WaitCause::TimedOut(_))
    }

    /// Whether the wait ended because of its [`last_error`](Self::last_error); see
    /// [`WaitCause::Refused`].
    pub fn is_refused(&self) -> bool {
        self.inner.cause == WaitCause::Refused
    }

    /// Returns the last error of a request, or `None` if there was none since the last successful
    /// one. If several informers have not synced, it is the error of the first that has one.
    pub fn last_error(&self) -> Option<&Error> {
        self.inner.last_error.as_ref()
    }

    /// Returns the state that was seen last: the version that a cache has reached, or what is known
    /// of an object. `None` if the wait has seen nothing.
    pub fn last_seen(&self) -> Option<&str> {
        match &self.inner.last_seen {
            LastSeen::State(state) => Some(state),
            LastSeen::Unknown | LastSeen::Nothing => None,
        }
    }

    /// Returns the caches that have not synced, and those that have synced with a list that could
    /// not be decoded, sorted by name. Empty unless the wait was for the first sync of caches.
    pub fn unsynced(&self) -> &[Unsynced] {
        &self.inner.unsynced
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            cause,
            doing,
            last_seen,
            last_error,
            unsynced,
        } = &*self.inner;
        if !unsynced.is_empty() {
            return fmt_unsynced(cause, unsynced, f);
        }
        match cause {
            WaitCause::Stopped => write!(f, "stopped {doing}")?,
            WaitCause::TimedOut(timeout) => write!(f, "timed out after {timeout:?} {doing}")?,
            WaitCause::Ended => write!(f, "the informer ended while {doing}")?,
            WaitCause::Refused | WaitCause::NotStarted | WaitCause::Undecodable => {
                write!(f, "failed {doing}")?;
            }
            WaitCause::OwnThread => write!(f, "failed {doing}: {OWN_THREAD}")?,
            WaitCause::NotComparable(version) => write!(
                f,
                "failed {doing}: the resourceVersion {:?} can't be compared; expected a decimal number without leading zeros",
                ResourceVersion::text(version.as_ref())
            )?,
            WaitCause::OtherNamespace { namespace, watched } => {
                let watched = watched.join(", ");
                write!(
                    f,
                    "failed {doing}: the informer does not watch the namespace {namespace:?}; it watches: {watched}"
                )?;
            }
            WaitCause::NotStored { version, cached } => {
                write!(
                    f,
                    "failed {doing}: the resourceVersion \"{version}\" was not stored; "
                )?;
                match cached {
                    None => f.write_str("the cache does not have the object")?,
                    Some(cached) => write!(f, "the cache still has \"{cached}\"")?,
                }
                f.write_str(
                    ": the object could not be decoded, or a transform rejected it (see the log)",
                )?;
            }
        }
        match last_seen {
            LastSeen::Unknown => {}
            LastSeen::Nothing => f.write_str("; last seen: nothing")?,
            LastSeen::State(state) => write!(f, "; last seen: {state}")?,
        }
        match last_error {
            Some(error) if self.is_refused() => write!(f, ": {error}"),
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

const OWN_THREAD: &str = "this thread can't wait for itself";

/// Writes the names of the informers, each with its last error.
fn fmt_unsynced(
    cause: &WaitCause,
    unsynced: &[Unsynced],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let (mut names, mut parts) = (Vec::new(), Vec::new());
    for informer in unsynced {
        let name = &informer.name;
        let is_news = informer.not_started && *cause != WaitCause::NotStarted;
        let not_started = if is_news { " (not started)" } else { "" };
        match (&informer.undecodable, &informer.last_error) {
            (Some(list), _) => parts.push(format!("{name}: {list}")),
            (None, Some(error)) => names.push(format!("{name}{not_started} ({error})")),
            (None, None) => names.push(format!("{name}{not_started}")),
        }
    }
    if !names.is_empty() {
        let start = match cause {
            WaitCause::TimedOut(timeout) => format!("timed out after {timeout:?}; not synced: "),
            WaitCause::Refused => "cannot sync: ".to_owned(),
            WaitCause::NotStarted => "call `start` first; not started: ".to_owned(),
            WaitCause::OwnThread => format!("{OWN_THREAD}: "),
            WaitCause::Ended => "ended before syncing: ".to_owned(),
            _ => "stopped before syncing: ".to_owned(),
        };
        parts.insert(0, format!("{start}{}", names.join(", ")));
    }
    f.write_str(&parts.join("; "))
}

impl std::error::Error for WaitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.last_error().map(|error| error as _)
    }
}

debug_as_display!(WaitError);

impl Unsynced {
    pub(crate) fn new(name: &str, last_error: Option<Error>) -> Self {
        Self {
            name: name.to_owned(),
            not_started: false,
            last_error,
            undecodable: None,
        }
    }

    pub(crate) fn not_started(name: &str) -> Self {
        Self {
            not_started: true,
            ..Self::new(name, None)
        }
    }

    pub(crate) fn decoded_nothing(name: &str, error: Error) -> Self {
        Self {
            undecodable: Some(error.clone()),
            ..Self::new(name, Some(error))
        }
    }
}

//! Errors of communication with an API server, the `Status` in the server's responses, and the
//! error of shutdowns.
//!
//! [`WaitError`] is the error of all waits. The error types of other operations are in the modules of
//! these operations, for example [`StoreError`](crate::store::StoreError). [`Error`] has an example.

mod wait;

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use self::wait::{Unsynced, WaitCause, WaitError};
pub use crate::base::panic::Panicked;
pub use crate::status::{Status, StatusCause, StatusDetails};

/// Implements `Debug` through `Display`, because a `main` that returns an error prints it with
/// `Debug`.
#[doc(hidden)]
#[macro_export]
macro_rules! __debug_as_display {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

pub(crate) use __debug_as_display as debug_as_display;

/// The longest wait at the request of a server, so that a garbled `Retry-After` does not stop the
/// program.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// An error in the communication with an API server.
///
/// The type is opaque. Use its predicates to decide what to do: relist if
/// [`is_gone`](Self::is_gone), retry if [`is_retryable`](Self::is_retryable), and report other
/// errors to the user.
///
/// Clones are cheap, so an informer can keep its last error. `Display` shows the request, the
/// response, and a remedy if one is known. It never shows a credential.
///
/// ```
/// use k8s_informer::Error;
/// use k8s_informer::error::Status;
/// use std::time::Duration;
///
/// let status: Status = serde_json::from_str(
///     r#"{"message": "slow down", "reason": "TooManyRequests", "details": {"retryAfterSeconds": 3}, "code": 429}"#,
/// )?;
/// let error = Error::from_status(status);
/// assert!(error.is_too_many_requests() && error.is_retryable() && !error.is_gone());
/// assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
/// assert_eq!(error.to_string(), "slow down (429 TooManyRequests)");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone)]
pub struct Error {
    inner: Arc<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    /// The operation that failed: `list pods in namespace "a": GET https://…`.
    context: Option<String>,
    /// What the client knows about the cause.
    hint: Option<String>,
}

/// The reasons that Kubernetes defines. An admission webhook can send any other one. The counterpart
/// is `knownReasons` in apimachinery.
const KNOWN_REASONS: [&str; 19] = [
    "AlreadyExists",
    "BadRequest",
    "Conflict",
    "Expired",
    "Forbidden",
    "Gone",
    "InternalError",
    "Invalid",
    "MethodNotAllowed",
    "NotAcceptable",
    "NotFound",
    "RequestEntityTooLarge",
    "ServerTimeout",
    "ServiceUnavailable",
    "StorageReadError",
    "Timeout",
    "TooManyRequests",
    "Unauthorized",
    "UnsupportedMediaType",
];

/// The classes of [`Error`].
#[cfg_attr(
    not(feature = "client"),
    expect(dead_code, reason = "only the client creates some variants")
)]
#[derive(Clone, Debug)]
pub(crate) enum ErrorKind {
    /// The server responded with a status other than 2xx, or sent an ERROR event.
    Api {
        status: Box<Status>,
        retry_after: Option<Duration>,
    },
    /// The connection was refused.
    Refused(String),
    /// The connection could not be opened, or it broke.
    Connection(String),
    /// TLS failed: an unknown authority, a wrong name, an expired certificate.
    Tls(String),
    /// No data arrived in time.
    Timeout(String),
    /// The operation was stopped by its [`Stop`](crate::Stop).
    Stopped,
    /// A gate has not let the request out, or has ended it.
    NotLeading {
        cause: Arc<dyn std::error::Error + Send + Sync>,
        sent: Sent,
    },
    /// The response violates the API: broken JSON, a wrong type.
    Decode(String),
    /// The response exceeds a limit of the client.
    TooLarge(String),
    /// The configuration is unusable: a kubeconfig, a certificate, an authentication method.
    Config(String),
    /// No credentials are available: a plugin failed.
    Credentials(String),
    /// The credentials have expired, and the client cannot renew them.
    Expired(String),
    /// The server has no resource with this name.
    NoMatch(String),
    /// The error of a custom lister-watcher.
    Other(String),
}

/// Whether bytes of a request have left.
#[cfg_attr(
    not(feature = "client"),
    expect(dead_code, reason = "only the client sends requests")
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sent {
    No,
    /// The server may have executed the request.
    Maybe,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                context: None,
                hint: None,
            }),
        }
    }

    /// Prepends a description of the operation to the context.
    #[must_use]
    pub(crate) fn context(self, context: impl Into<String>) -> Self {
        let context = match &self.inner.context {
            None => context.into(),
            Some(within) => format!("{}: {within}", context.into()),
        };
        let context = Some(context);
        Self {
            inner: Arc::new(Inner {
                context,
                ..(*self.inner).clone()
            }),
        }
    }

    /// Sets what the client knows about the cause.
    #[cfg(feature = "client")]
    #[must_use]
    pub(crate) fn hint(self, hint: String) -> Self {
        Self {
            inner: Arc::new(Inner {
                hint: Some(hint),
                ..(*self.inner).clone()
            }),
        }
    }

    /// Creates an error for a custom lister-watcher. It belongs to no class: all `is_*` methods
    /// return `false`. The reflector retries with back-off.
    pub fn other(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Other(message.into()))
    }

    /// Creates an error for a custom lister-watcher, from the [`Status`] of the server's response.
    pub fn from_status(status: Status) -> Self {
        let seconds = status
            .details
            .as_ref()
            .map_or(0, |details| details.retry_after_seconds);
        let retry_after = (seconds > 0).then(|| Duration::from_secs(seconds.into()));
        Self::api(status, retry_after)
    }

    pub(crate) fn api(status: Status, retry_after: Option<Duration>) -> Self {
        Self::new(ErrorKind::Api {
            status: Box::new(status),
            retry_after,
        })
    }

    /// Creates an error for a custom lister-watcher whose operation was ended by its
    /// [`Stop`](crate::Stop). [`is_stopped`](Self::is_stopped) returns `true`.
    pub fn stopped() -> Self {
        Self::new(ErrorKind::Stopped)
    }

    /// Creates the error for a response or an object with invalid content.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Decode(message.into()))
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Timeout(message.into()))
    }

    pub(crate) fn connection(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Connection(message.into()))
    }

    /// Returns the `Status` of the server's response, if there was a response. For a response
    /// without a `Status` body, it is built from the HTTP status code and the text.
    pub fn status(&self) -> Option<&Status> {
        match &self.inner.kind {
            ErrorKind::Api { status, .. } => Some(status),
            _ => None,
        }
    }

    /// Returns how long the server asked the client to wait before the next attempt. It can be any
    /// time. The waits, reflectors and recorders of this crate wait at most ten minutes.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.inner.kind {
            ErrorKind::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// The wait that the server asked for, up to [`MAX_RETRY_AFTER`].
    #[cfg(feature = "client")]
    pub(crate) fn pause(&self) -> Duration {
        self.retry_after().unwrap_or_default().min(MAX_RETRY_AFTER)
    }

    /// Whether the object, the namespace or the resource does not exist (404). Only the message
    /// tells these cases apart.
    pub fn is_not_found(&self) -> bool {
        self.is_api(404, "NotFound")
    }

    /// Whether an object with this name already exists (409 AlreadyExists).
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// Whether the request conflicts with the state of the object (409 Conflict). The object
    /// changed since it was read, it does not match a precondition, or another field manager owns
    /// an applied field.
    pub fn is_conflict(&self) -> bool {
        self.is_api(409, "Conflict")
    }

    /// Whether a create was rejected because the namespace is being deleted (403). Retrying does
    /// not help.
    pub fn is_namespace_terminating(&self) -> bool {
        let causes = self
            .status()
            .and_then(|status| status.details.as_ref())
            .map(|details| &details.causes);
        causes
            .into_iter()
            .flatten()
            .any(|cause| cause.reason == "NamespaceTerminating")
    }

    /// Whether the resource does not support the verb (405).
    pub fn is_method_not_allowed(&self) -> bool {
        self.is_api(405, "MethodNotAllowed")
    }

    /// Whether the resource version or the continue token is too old (410, Expired or Gone). List
    /// again.
    pub fn is_gone(&self) -> bool {
        self.is_expired() || self.is_api(410, "Gone")
    }

    /// Whether the reason is Expired, or the code is 410 and the reason is not known. A paged list
    /// falls back to a full list only on such an error (L13).
    pub(crate) fn is_expired(&self) -> bool {
        self.is_api(410, "Expired")
    }

    /// Whether the object or the options are invalid (422).
    pub fn is_invalid(&self) -> bool {
        self.is_api(422, "Invalid")
    }

    /// Whether the server does not understand the request (400).
    pub fn is_bad_request(&self) -> bool {
        self.is_api(400, "BadRequest")
    }

    /// Whether the user does not have permission (403).
    pub fn is_forbidden(&self) -> bool {
        self.is_api(403, "Forbidden")
    }

    /// Whether the server does not accept the credentials (401).
    pub fn is_unauthorized(&self) -> bool {
        self.is_api(401, "Unauthorized")
    }

    /// Whether the client has sent too many requests (429, whatever the reason is).
    pub fn is_too_many_requests(&self) -> bool {
        self.code() == 429 || self.reason() == "TooManyRequests"
    }

    /// Whether the server had an internal error (500 InternalError).
    pub fn is_internal_error(&self) -> bool {
        self.is_api(500, "InternalError")
    }

    /// Whether the requested resource version is newer than the server's. This happens if the
    /// client switches to another server, or after a restore of etcd.
    pub fn is_too_large_resource_version(&self) -> bool {
        const TOO_LARGE: &str = "Too large resource version";
        let Some(status) = self.status() else {
            return false;
        };
        let Some(details) = &status.details else {
            return false;
        };
        let causes = &details.causes;
        causes
            .iter()
            .any(|cause| cause.reason == "ResourceVersionTooLarge")
            || status.reason == "Timeout"
                && (causes.iter().any(|cause| cause.message == TOO_LARGE)
                    || status.message.contains(TOO_LARGE))
    }

    /// Whether the connection was refused.
    pub fn is_connection_refused(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Refused(_))
    }

    /// Whether the connection could not be opened or broke: refused, reset, ended early, or TLS
    /// failed.
    pub fn is_connection(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Refused(_) | ErrorKind::Connection(_) | ErrorKind::Tls(_)
        )
    }

    /// Whether no data arrived in time, or the server reported a timeout (504).
    pub fn is_timeout(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Timeout(_)) || self.is_api(504, "Timeout")
    }

    /// Whether TLS failed: an untrusted authority, a name that does not match, or an expired
    /// certificate.
    pub fn is_tls(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Tls(_))
    }

    /// Whether the configuration is unusable. Retrying does not help.
    pub fn is_config(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Config(_))
    }

    /// Whether no credentials are available, because a credential plugin failed or the credentials
    /// have expired. The request was not sent.
    pub fn is_credentials(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Credentials(_) | ErrorKind::Expired(_)
        )
    }

    /// Whether the response violates the API, or exceeds a limit of the client.
    pub fn is_decode(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Decode(_) | ErrorKind::TooLarge(_)
        )
    }

    /// Whether the response exceeds a limit of the client. The same request gets the same response.
    #[cfg(feature = "client")]
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::TooLarge(_))
    }

    /// Whether the server has no resource with the requested name or kind, as far as discovery
    /// succeeded. The CustomResourceDefinition may be created later. client-go's
    /// `meta.IsNoMatchError`.
    pub fn is_no_match(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::NoMatch(_))
    }

    /// Whether the operation was stopped by its [`Stop`](crate::Stop).
    pub fn is_stopped(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Stopped)
    }

    /// Whether the program does not lead, so that the [gate](crate::client::WriteGate) of the client
    /// has not sent the request, or has ended it. [`source`](std::error::Error::source) is the reason of
    /// the gate. That of a leader election says whether the term has ended, or may still be renewed. The
    /// error is not [retryable](Self::is_retryable), because a request of a former leader must not be
    /// repeated.
    #[cfg(feature = "client")]
    pub fn is_not_leading(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::NotLeading { .. })
    }

    /// Adds to the error of a gate that bytes of an earlier attempt have left.
    #[cfg(feature = "client")]
    #[must_use]
    pub(crate) fn possibly_sent(self) -> Self {
        let mut inner = (*self.inner).clone();
        if let ErrorKind::NotLeading { sent, .. } = &mut inner.kind {
            *sent = Sent::Maybe;
        }
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Whether the same request can succeed later: connection errors, timeouts, 429, 500, 502, 503
    /// and 504. Errors of [credentials](Self::is_credentials) are not included, because it is
    /// unknown whether a retry can succeed. Informers retry after errors of credentials
    /// nevertheless.
    pub fn is_retryable(&self) -> bool {
        self.is_connection()
            || self.is_timeout()
            || matches!(self.code(), 429 | 500 | 502 | 503 | 504)
            || matches!(
                self.reason(),
                "TooManyRequests" | "InternalError" | "ServiceUnavailable" | "ServerTimeout"
            )
    }

    /// Whether the request is the cause: 400, 414, 422 or 431, or it could not be sent. A different
    /// resource version may help.
    pub(crate) fn is_unacceptable_request(&self) -> bool {
        self.is_bad_request()
            || self.is_invalid()
            || matches!(self.code(), 414 | 431)
            || self.is_config()
    }

    /// Whether the server may have executed the request although it failed: the connection broke or
    /// the wait ended, the server failed, or the response is unreadable. If it is a request that
    /// changes something, read the object before you repeat it.
    ///
    /// Also `true` for some requests that were not sent, for example because they were stopped while
    /// connecting.
    #[cfg(feature = "client")]
    pub fn is_outcome_unknown(&self) -> bool {
        match &self.inner.kind {
            ErrorKind::NotLeading { sent, .. } => *sent == Sent::Maybe,
            ErrorKind::Connection(_)
            | ErrorKind::Timeout(_)
            | ErrorKind::Stopped
            | ErrorKind::Decode(_)
            | ErrorKind::TooLarge(_) => true,
            ErrorKind::Api { .. } => self.code() >= 500,
            ErrorKind::Refused(_)
            | ErrorKind::Tls(_)
            | ErrorKind::Config(_)
            | ErrorKind::Credentials(_)
            | ErrorKind::Expired(_)
            | ErrorKind::NoMatch(_)
            | ErrorKind::Other(_) => false,
        }
    }

    /// Whether the same request fails again until the request, the user's permissions or the
    /// cluster change: 400, 401, 403, 404, 405, 422, TLS errors, expired credentials, and unusable
    /// configurations.
    pub(crate) fn is_permanent(&self) -> bool {
        self.is_bad_request()
            || self.is_unauthorized()
            || self.is_forbidden()
            || self.is_not_found()
            || self.is_method_not_allowed()
            || self.is_invalid()
            || self.is_tls()
            || self.is_config()
            || matches!(self.inner.kind, ErrorKind::Expired(_))
    }

    /// Whether the `Status` has this reason or, if its reason is not [known](KNOWN_REASONS), this
    /// code.
    fn is_api(&self, code: u16, reason: &str) -> bool {
        match self.reason() {
            known if KNOWN_REASONS.contains(&known) => known == reason,
            _ => self.code() == code,
        }
    }

    fn reason(&self) -> &str {
        self.status().map_or("", |status| &status.reason)
    }

    fn code(&self) -> u16 {
        self.status().map_or(0, |status| status.code)
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Api { status, .. } => write!(f, "{status}"),
            Self::Refused(message)
            | Self::Connection(message)
            | Self::Timeout(message)
            | Self::NoMatch(message)
            | Self::Other(message) => f.write_str(message),
            Self::Tls(message) => write!(f, "TLS: {message}"),
            Self::Stopped => f.write_str("stopped"),
            Self::NotLeading { cause, sent } => {
                let request = match sent {
                    Sent::No => "not sent",
                    Sent::Maybe => "ended, and the server may have executed it",
                };
                write!(f, "not leading, so the request was {request}: {cause}")
            }
            Self::Decode(message) | Self::TooLarge(message) => {
                write!(f, "unexpected response: {message}")
            }
            Self::Config(message) => write!(f, "configuration: {message}"),
            Self::Credentials(message) | Self::Expired(message) => {
                write!(f, "credentials: {message}")
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.inner.context {
            write!(f, "{context}: ")?;
        }
        write!(f, "{}", self.inner.kind)?;
        match &self.inner.hint {
            Some(hint) => write!(f, "; {hint}"),
            None => Ok(()),
        }
    }
}

debug_as_display!(Error);

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.inner.kind {
            ErrorKind::NotLeading { cause, .. } => Some(&**cause),
            _ => None,
        }
    }
}

/// Converts the I/O error of a custom lister-watcher. If the I/O error wraps an [`Error`], the
/// result is that error.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => Self::new(match error.kind() {
                io::ErrorKind::ConnectionRefused => ErrorKind::Refused(error.to_string()),
                io::ErrorKind::TimedOut => ErrorKind::Timeout(error.to_string()),
                _ => ErrorKind::Connection(error.to_string()),
            }),
        }
    }
}

/// The error of a shutdown that did not wait until everything had ended.
///
/// In every case, what was shut down has the signal to stop: an informer starts no further threads,
/// and a queue accepts no further items.
///
/// ```
/// use k8s_informer::error::ShutdownError;
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};
/// use std::time::Duration;
///
/// let queue = WorkQueue::builder().name("pods").build()?;
/// queue.add("a");
/// let item = queue.take();
/// let timeout = Duration::from_millis(1);
/// let Err(ShutdownError::TimedOut { after, stuck }) = queue.shut_down(timeout) else {
///     panic!("an item is in process");
/// };
/// assert_eq!(after, timeout);
/// assert_eq!(stuck, ["pods: 1 item in process, 0 waiting"]);
/// # drop(item);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The timeout elapsed first.
    TimedOut {
        /// The timeout.
        after: Duration,
        /// What is still running.
        ///
        /// For informers, these are the names of threads. The reflectors and process loops of an
        /// informer end before its handlers. If a reflector or process loop is still running, the
        /// list has only the reflectors and process loops of this informer: they are in user code
        /// such as a transform or an index function. Otherwise the list has the handlers that are
        /// in a callback.
        ///
        /// A work queue has one entry with its name and the number of its items. An event recorder
        /// has the number of events that are not written, and are lost.
        stuck: Vec<String>,
    },
    /// Something else ended the wait: another thread called [`stop`] on the work queue, or the
    /// `Stop` of an event recorder was set.
    ///
    /// [`stop`]: crate::workqueue::AnyWorkQueue::stop
    Interrupted {
        /// What is still running.
        stuck: Vec<String>,
    },
    /// Nothing was shut down: the handler with this name belongs to another informer.
    NotFound {
        /// The name of the handler.
        name: String,
    },
    /// The shutdown was called from a callback of what it shuts down, or from another callback that
    /// such a callback waits for. Waiting would have blocked forever.
    FromWithin,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { after, stuck } => {
                write!(
                    f,
                    "timed out after {after:?}; unfinished: {}",
                    stuck.join(", ")
                )
            }
            Self::NotFound { name } => {
                write!(f, "the handler {name:?} belongs to another informer")
            }
            Self::Interrupted { stuck } => {
                write!(f, "interrupted; unfinished: {}", stuck.join(", "))
            }
            Self::FromWithin => {
                f.write_str("shut down from one of its own callbacks; not waiting for its threads")
            }
        }
    }
}

impl std::error::Error for ShutdownError {}

debug_as_display!(ShutdownError);

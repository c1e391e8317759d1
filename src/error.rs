//! The error of everything that talks to an API server, and the `Status` that servers answer with.
//!
//! Errors of one operation are in the module of that operation, for example
//! [`informer::SyncError`](crate::informer::SyncError). [`Error`] has an example.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

pub use crate::status::{Status, StatusCause, StatusDetails};

/// Implements `Debug` by `Display`: a `main` that returns an error prints it by `Debug`.
macro_rules! debug_as_display {
    ($($error:ty),+) => {$(
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    )+};
}

pub(crate) use debug_as_display;

/// Why talking to an API server failed.
///
/// One opaque type with predicates, because what a caller does depends on the class and not on the words:
/// relist on [`is_gone`](Self::is_gone), try again on [`is_retryable`](Self::is_retryable), tell the user on
/// the rest. It is cheap to clone, so that an informer can keep its last one. `Display` says what was asked,
/// what came back, and what to do where that is known; it never holds a credential.
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

struct Inner {
    kind: ErrorKind,
    /// What was being done: `list pods in namespace "a": GET https://…`.
    context: Option<String>,
}

/// The classes of [`Error`].
#[cfg_attr(
    not(feature = "client"),
    expect(dead_code, reason = "some of them only a client makes")
)]
#[derive(Clone, Debug)]
pub(crate) enum ErrorKind {
    /// The server answered with something else than 2xx, or with an ERROR event.
    Api {
        status: Box<Status>,
        retry_after: Option<Duration>,
    },
    /// Nothing listens there.
    Refused(String),
    /// The connection could not be made, or it broke.
    Connection(String),
    /// TLS failed: an unknown authority, a wrong name, an expired certificate.
    Tls(String),
    /// Nothing came for too long.
    Timeout(String),
    /// The signal to stop was given.
    Stopped,
    /// What came is not what the API promises: broken JSON, a wrong type, a limit exceeded.
    Decode(String),
    /// A configuration can't be used: a kubeconfig, a certificate, a way to authenticate.
    Config(String),
    /// There is nothing to authenticate with: a plugin failed, a token has expired.
    Credentials(String),
    /// The server has no resource of that name.
    NoMatch(String),
    /// What a user's own lister-watcher failed with.
    Other(String),
}

impl Error {
    pub(crate) fn new(kind: ErrorKind) -> Self {
        Self {
            inner: Arc::new(Inner {
                kind,
                context: None,
            }),
        }
    }

    /// Says what was being done. The outermost words come first.
    #[must_use]
    pub(crate) fn context(self, context: impl Into<String>) -> Self {
        let context = match &self.inner.context {
            None => context.into(),
            Some(within) => format!("{}: {within}", context.into()),
        };
        Self {
            inner: Arc::new(Inner {
                kind: self.inner.kind.clone(),
                context: Some(context),
            }),
        }
    }

    /// For a lister-watcher of your own: an error of none of the classes below. It is retried with back-off.
    pub fn other(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Other(message.into()))
    }

    /// For a lister-watcher of your own: what the server answered, as its [`Status`].
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

    #[cfg(any(feature = "client", feature = "testing"))]
    pub(crate) fn stopped() -> Self {
        Self::new(ErrorKind::Stopped)
    }

    pub(crate) fn decode(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Decode(message.into()))
    }

    pub(crate) fn timeout(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Timeout(message.into()))
    }

    pub(crate) fn connection(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Connection(message.into()))
    }

    /// The server's answer, if it gave one. An answer without a `Status` body has one made of the status code
    /// and the text.
    pub fn status(&self) -> Option<&Status> {
        match &self.inner.kind {
            ErrorKind::Api { status, .. } => Some(status),
            _ => None,
        }
    }

    /// How long the server asks to wait before the next try.
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.inner.kind {
            ErrorKind::Api { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// 404: no such object, namespace or resource. Which of them only the message tells.
    pub fn is_not_found(&self) -> bool {
        self.is_api(404, "NotFound")
    }

    /// 409 AlreadyExists: an object of that name is there.
    pub fn is_already_exists(&self) -> bool {
        self.reason() == "AlreadyExists"
    }

    /// 409 Conflict: the object changed since it was read, it is another one than a precondition asks for, or
    /// another field manager owns what is applied.
    pub fn is_conflict(&self) -> bool {
        match self.reason() {
            "" => self.code() == 409,
            reason => reason == "Conflict",
        }
    }

    /// 403 of a create because the namespace is being deleted: nothing new comes into it, and trying again
    /// does not help.
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

    /// 405: the resource has not that verb.
    pub fn is_method_not_allowed(&self) -> bool {
        self.is_api(405, "MethodNotAllowed")
    }

    /// 410, Expired or Gone: the resourceVersion or the continue token is too old; list again.
    pub fn is_gone(&self) -> bool {
        self.is_expired() || self.is_api(410, "Gone")
    }

    /// 410 with reason Expired: what the full-list fallback of a paged list answers to (L13).
    pub(crate) fn is_expired(&self) -> bool {
        match self.reason() {
            "" => self.code() == 410,
            reason => reason == "Expired",
        }
    }

    /// 422: the object or the options are not valid.
    pub fn is_invalid(&self) -> bool {
        self.is_api(422, "Invalid")
    }

    /// 400: the server does not understand the request.
    pub fn is_bad_request(&self) -> bool {
        self.is_api(400, "BadRequest")
    }

    /// 403: the user may not do this.
    pub fn is_forbidden(&self) -> bool {
        self.is_api(403, "Forbidden")
    }

    /// 401: the server does not know who this is.
    pub fn is_unauthorized(&self) -> bool {
        self.is_api(401, "Unauthorized")
    }

    /// 429: too many requests.
    pub fn is_too_many_requests(&self) -> bool {
        self.is_api(429, "TooManyRequests")
    }

    /// 500 InternalError.
    pub fn is_internal_error(&self) -> bool {
        self.is_api(500, "InternalError")
    }

    /// The resourceVersion asked for lies in the server's future: another server, or a restored etcd (L12).
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

    /// Nothing listens at the address.
    pub fn is_connection_refused(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Refused(_))
    }

    /// The connection could not be made or broke: refused, reset, ended early, TLS.
    pub fn is_connection(&self) -> bool {
        matches!(
            self.inner.kind,
            ErrorKind::Refused(_) | ErrorKind::Connection(_) | ErrorKind::Tls(_)
        )
    }

    /// Nothing came for too long, or the server says that it ran out of time (504).
    pub fn is_timeout(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Timeout(_)) || self.is_api(504, "Timeout")
    }

    /// TLS failed: an authority that is not trusted, a name that does not match, a certificate that has
    /// expired.
    pub fn is_tls(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Tls(_))
    }

    /// The configuration can't be used; trying again does not help.
    pub fn is_config(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Config(_))
    }

    /// There is nothing to authenticate with: a credential plugin failed, or what is at hand has expired. The
    /// server was not asked.
    pub fn is_credentials(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Credentials(_))
    }

    /// What came is not what the API promises.
    pub fn is_decode(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Decode(_))
    }

    /// The server has no resource of the name or kind that was asked for, as far as it could be asked:
    /// perhaps its CustomResourceDefinition is still to be created. client-go's `meta.IsNoMatchError`.
    pub fn is_no_match(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::NoMatch(_))
    }

    /// The [`Stop`](crate::Stop) was given.
    pub fn is_stopped(&self) -> bool {
        matches!(self.inner.kind, ErrorKind::Stopped)
    }

    /// Whether the same request can succeed later: connections, time-outs, 429, 500, 502, 503, 504. Of
    /// [credentials](Self::is_credentials) nobody knows that: informers go on asking.
    pub fn is_retryable(&self) -> bool {
        self.is_connection()
            || self.is_timeout()
            || matches!(self.code(), 429 | 500 | 502 | 503 | 504)
            || matches!(
                self.reason(),
                "TooManyRequests" | "InternalError" | "ServiceUnavailable" | "ServerTimeout"
            )
    }

    /// Whether the request itself is the problem: 400, 414, 422 or 431, or it could not be sent. Another
    /// resourceVersion may help.
    pub(crate) fn is_unacceptable_request(&self) -> bool {
        self.is_bad_request()
            || self.is_invalid()
            || matches!(self.code(), 414 | 431)
            || self.is_config()
    }

    /// Whether the same request will fail again until the request, the user's rights or the cluster change: 400,
    /// 401, 403, 404, 405, 422, TLS, and configurations that cannot be used.
    pub(crate) fn is_permanent(&self) -> bool {
        self.is_bad_request()
            || self.is_unauthorized()
            || self.is_forbidden()
            || self.is_not_found()
            || self.is_method_not_allowed()
            || self.is_invalid()
            || self.is_tls()
            || self.is_config()
    }

    /// A `Status` tells by its reason; one without a reason tells by its code.
    fn is_api(&self, code: u16, reason: &str) -> bool {
        match self.reason() {
            "" => self.code() == code,
            given => given == reason,
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
            Self::Decode(message) => write!(f, "unexpected answer: {message}"),
            Self::Config(message) => write!(f, "configuration: {message}"),
            Self::Credentials(message) => write!(f, "credentials: {message}"),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(context) = &self.inner.context {
            write!(f, "{context}: ")?;
        }
        write!(f, "{}", self.inner.kind)
    }
}

debug_as_display!(Error);

impl std::error::Error for Error {}

/// For a lister-watcher of your own: what the connection failed with. One that carries an [`Error`] is that
/// error again.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(ours) => ours,
            Err(error) => Self::new(match error.kind() {
                io::ErrorKind::ConnectionRefused => ErrorKind::Refused(error.to_string()),
                io::ErrorKind::TimedOut => ErrorKind::Timeout(error.to_string()),
                _ => ErrorKind::Connection(error.to_string()),
            }),
        }
    }
}

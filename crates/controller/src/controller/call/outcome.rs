use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::error_type::ErrorType;
use k8s_informer::error;

/// The outcome of a successful reconcile call.
///
/// controller-runtime's `Result`. In both cases the failures of the key are forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Next {
    /// The actual state is the desired state. The next call follows the next change.
    Done,
    /// The next call follows the next change, but comes after this duration at the latest. If a
    /// change comes first, only the outcome of its call counts.
    After(Duration),
}

/// The error of a reconcile call.
///
/// Every error type converts to a `Failure`, so `?` works in a reconcile function. The key of a
/// failed call is retried with back-off, unless the failure is [terminal](Self::terminal).
///
/// A `Box<dyn Error + Send + Sync>` is not an error type itself. Convert it with
/// `.map_err(Failure::new)?`.
///
/// `Failure` does not implement [`Error`], because the conversion from all error types rules this
/// out.
///
/// ```
/// use k8s_informer_controller::Failure;
///
/// fn replicas(text: &str) -> Result<u32, Failure> {
///     let replicas = text.parse()?; // retried
///     if replicas > 100 {
///         return Err(Failure::terminal("more than 100 replicas")); // not retried
///     }
///     Ok(replicas)
/// }
///
/// let failure = replicas("x").unwrap_err();
/// assert!(failure.downcast_ref::<std::num::ParseIntError>().is_some() && !failure.is_terminal());
/// assert!(replicas("101").unwrap_err().is_terminal());
///
/// fn read() -> Result<String, Box<dyn std::error::Error + Send + Sync>> {
///     Err("no file".into())
/// }
///
/// fn reconcile() -> Result<(), Failure> {
///     read().map_err(Failure::new)?; // a box
///     Ok(())
/// }
/// assert_eq!(reconcile().unwrap_err().to_string(), "no file");
/// ```
#[derive(Clone)]
pub struct Failure {
    error: Arc<dyn Error + Send + Sync>,
    is_terminal: bool,
}

/// The last failure of a key. A successful call removes it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LastFailure {
    /// The error of the last call.
    pub failure: Failure,
    /// The number of failed calls in a row.
    pub attempts: usize,
    /// The time of the last call's end.
    pub time: SystemTime,
}

impl Failure {
    /// Creates a failure from a message or an error. The key is retried with back-off.
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            error: error.into().into(),
            is_terminal: false,
        }
    }

    /// Creates a failure that is not retried: the key waits for its next change.
    ///
    /// Use it if only a change of the object can help, for example after a validation error. It
    /// corresponds to controller-runtime's `TerminalError`.
    pub fn terminal(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self {
            is_terminal: true,
            ..Self::new(error)
        }
    }

    /// Whether the failure is not retried.
    pub fn is_terminal(&self) -> bool {
        self.is_terminal
    }

    /// Returns the error.
    pub fn error(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.error
    }

    /// Returns the error if it has the type `E`, for example [`k8s_informer::Error`](k8s_informer::Error).
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.error.downcast_ref()
    }

    /// Whether the error is a conflict with a newer version. A retry does not resolve a conflict of
    /// field managers.
    pub(crate) fn is_conflict(&self) -> bool {
        self.downcast_ref::<error::Error>().is_some_and(|error| {
            let details = error.status().and_then(|status| status.details.as_ref());
            let mut causes = details.into_iter().flat_map(|details| &details.causes);
            error.is_conflict() && !causes.any(|cause| cause.reason == "FieldManagerConflict")
        })
    }
}

/// Every type that implements [`Error`] and is `Send + Sync + 'static` converts.
impl<E: ErrorType> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::new(error)
    }
}

mod error_type {
    use std::error::Error;

    /// An error type. A bound of its own, so that the compiler names the remedy for a box and for a
    /// text, which are none: it shows the label at the `?`.
    #[allow(unnameable_types, reason = "only a bound of `From` for `Failure`")]
    #[diagnostic::on_unimplemented(
        message = "`{Self}` does not implement `std::error::Error`, so it is no `Failure`",
        label = "not an error type; use `Failure::new`, here as `.map_err(Failure::new)`"
    )]
    pub trait ErrorType: Into<Box<dyn Error + Send + Sync>> {}

    #[diagnostic::do_not_recommend]
    impl<E: Error + Send + Sync + 'static> ErrorType for E {}
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("error", &format_args!("{}", self.error))
            .field("is_terminal", &self.is_terminal)
            .finish()
    }
}

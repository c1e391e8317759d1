use std::fmt;
use std::sync::Arc;

use k8s_informer::__private::debug_as_display;

/// The error of a call that records an event, or that creates a recorder.
///
/// A call reports only what it can see at once. Errors of the server are counted, logged, and
/// available from [`EventRecorder::last_error`](super::EventRecorder::last_error).
///
/// ```
/// use k8s_informer_controller::events::EventError;
///
/// let error = EventError::Invalid { field: "reason", problem: "is empty".into() };
/// assert_eq!(error.to_string(), "invalid event: reason is empty");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum EventError {
    /// The server would refuse the event.
    Invalid {
        /// The field of the event, for example `reason`.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The recorder has been shut down or stopped.
    Stopped,
    /// The system could not start the thread of the recorder.
    Thread(Arc<std::io::Error>),
}

impl fmt::Display for EventError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid { field, problem } => write!(f, "invalid event: {field} {problem}"),
            Self::Stopped => f.write_str("the event recorder has stopped"),
            Self::Thread(error) => write!(f, "can't start the thread of the recorder: {error}"),
        }
    }
}

debug_as_display!(EventError);

impl std::error::Error for EventError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Thread(error) => Some(error),
            Self::Invalid { .. } | Self::Stopped => None,
        }
    }
}

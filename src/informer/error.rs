use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::error::debug_as_display;
use crate::store::AddIndexersError;

/// The error of an informer, a controller or a factory.
#[derive(Clone)]
#[non_exhaustive]
pub enum InformerError {
    /// The informer or controller was started before. It runs only once.
    AlreadyStarted {
        /// The name of the informer or controller.
        name: Arc<str>,
    },
    /// The informer or factory has stopped and cannot be started again.
    Stopped {
        /// The name of the informer or factory.
        name: Arc<str>,
        /// The operation that failed.
        what: &'static str,
    },
    /// A resource or a namespace has a name that cannot be part of a request.
    InvalidScope {
        /// The name of the informer.
        name: Arc<str>,
        /// The invalid name, and which names are valid.
        source: Error,
    },
    /// An index could not be added.
    Index(AddIndexersError),
    /// The system could not start a thread.
    Thread {
        /// The name of the informer, controller or handler that needed the thread.
        name: Arc<str>,
        /// The error of the system.
        source: Arc<std::io::Error>,
    },
}

impl InformerError {
    pub(super) fn thread(name: &str, error: std::io::Error) -> Self {
        let (name, source) = (name.into(), Arc::new(error));
        Self::Thread { name, source }
    }
}

impl fmt::Display for InformerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted { name } => write!(f, "{name}: already started"),
            Self::Stopped { name, what } => {
                write!(f, "{name}: already stopped; {what}")
            }
            Self::InvalidScope { name, source } => write!(f, "{name}: not started: {source}"),
            Self::Index(error) => write!(f, "{error}"),
            Self::Thread { name, source } => write!(f, "{name}: can't start a thread: {source}"),
        }
    }
}

impl std::error::Error for InformerError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::InvalidScope { source, .. } => Some(source),
            Self::Index(error) => Some(error),
            Self::Thread { source, .. } => Some(source),
            _ => None,
        }
    }
}

debug_as_display!(InformerError);

use std::fmt;
use std::sync::Arc;

use crate::error::Error;
use crate::error::debug_as_display;
use crate::store::AddIndexersError;

/// Why an informer, a controller or a factory did not do what it was asked.
#[derive(Clone)]
#[non_exhaustive]
pub enum InformerError {
    /// It was started before; it runs once.
    AlreadyStarted {
        /// Which one.
        name: Arc<str>,
    },
    /// It has stopped, for good.
    Stopped {
        /// Which one.
        name: Arc<str>,
        /// What was asked of it.
        what: &'static str,
    },
    /// Its resource or its namespaces have names that can't be requested.
    InvalidScope {
        /// Which one.
        name: Arc<str>,
        /// Which name is wrong, and what is allowed.
        source: Error,
    },
    /// An index could not be added.
    Index(AddIndexersError),
    /// The system has no thread to give.
    Thread {
        /// What the thread was for.
        name: Arc<str>,
        /// What the system said.
        source: Arc<std::io::Error>,
    },
}

impl fmt::Display for InformerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyStarted { name } => write!(f, "{name}: already started"),
            Self::Stopped { name, what } => {
                write!(f, "{name}: {what} because it has stopped already")
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

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::error::debug_as_display;
use crate::informer::{InformerError, SyncError};

/// The error of building or running a controller or a manager.
///
/// `Display` names the controller, the problem and what to do.
#[derive(Clone)]
#[non_exhaustive]
pub enum ControllerError {
    /// The controller cannot be built as described.
    Invalid {
        /// The name of the controller.
        controller: String,
        /// The problem, and what to do.
        problem: String,
    },
    /// An informer could not be created or started.
    Informer {
        /// The name of the controller.
        controller: String,
        /// The cause.
        source: InformerError,
    },
    /// The caches did not sync in time. The error names the informers and their last errors.
    Sync {
        /// The name of the controller.
        controller: String,
        /// The cause.
        source: Arc<SyncError>,
    },
    /// The controller has run before. A controller runs once; build another one.
    AlreadyRan {
        /// The name of the controller.
        controller: String,
    },
    /// Reconcile calls did not return after the stop. Their threads still run.
    Stuck {
        /// The name of the controller.
        controller: String,
        /// The keys of the calls.
        keys: Vec<String>,
        /// The time since the stop.
        after: Duration,
    },
    /// A thread could not be started.
    Thread {
        /// The name of the controller.
        controller: String,
        /// The cause.
        source: Arc<std::io::Error>,
    },
}

impl ControllerError {
    pub(super) fn invalid(controller: &str, problem: impl Into<String>) -> Self {
        Self::Invalid {
            controller: controller.to_owned(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for ControllerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Invalid { controller, .. }
        | Self::Informer { controller, .. }
        | Self::Sync { controller, .. }
        | Self::AlreadyRan { controller }
        | Self::Stuck { controller, .. }
        | Self::Thread { controller, .. }) = self;
        write!(f, "controller {controller:?}: ")?;
        match self {
            Self::Invalid { problem, .. } => f.write_str(problem),
            Self::Informer { source, .. } => source.fmt(f),
            Self::Sync { source, .. } => source.fmt(f),
            Self::AlreadyRan { .. } => {
                f.write_str("it has run before; a controller runs once, so build another one")
            }
            Self::Stuck { keys, after, .. } => write!(
                f,
                "reconcile calls have not returned {after:?} after the stop: {}",
                keys.join(", ")
            ),
            Self::Thread { source, .. } => write!(f, "can't start a thread: {source}"),
        }
    }
}

impl Error for ControllerError {}

debug_as_display!(ControllerError);

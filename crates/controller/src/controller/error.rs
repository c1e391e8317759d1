use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::leader_election::LeaderElectionError;
use k8s_informer::__private::debug_as_display;
use k8s_informer::informer::{InformerError, SyncError};

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
    /// Reconcile calls did not return after the stop. Their threads still run, so end the process.
    /// A leader has kept its Lease, which expires.
    Stuck {
        /// The name of the controller.
        controller: String,
        /// The keys of the calls.
        keys: Vec<String>,
        /// The time since the stop.
        after: Duration,
    },
    /// The program has lost its leadership. Its reconcile calls have ended; otherwise the error is
    /// [`Stuck`](Self::Stuck).
    LeadershipLost {
        /// The last error of a renewal.
        last_error: Option<k8s_informer::error::Error>,
    },
    /// The leader election could not run, or its work did not end.
    LeaderElection(LeaderElectionError),
    /// The HTTP endpoints could not be started.
    Endpoints {
        /// The configured address.
        address: String,
        /// The cause.
        source: Arc<std::io::Error>,
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

    pub(super) fn informer(controller: &str, source: InformerError) -> Self {
        Self::Informer {
            controller: controller.to_owned(),
            source,
        }
    }

    pub(super) fn thread(controller: &str, source: std::io::Error) -> Self {
        Self::Thread {
            controller: controller.to_owned(),
            source: Arc::new(source),
        }
    }
}

impl fmt::Display for ControllerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid {
                controller,
                problem,
            } => write!(f, "controller {controller:?}: {problem}"),
            Self::Informer { controller, source } => {
                write!(f, "controller {controller:?}: {source}")
            }
            Self::Sync { controller, source } => write!(f, "controller {controller:?}: {source}"),
            Self::AlreadyRan { controller } => write!(
                f,
                "controller {controller:?}: it has run before; it runs once, so build another one"
            ),
            Self::Stuck {
                controller,
                keys,
                after,
            } => write!(
                f,
                "controller {controller:?}: reconcile calls have not returned {after:?} after the stop: {}",
                keys.join(", ")
            ),
            Self::LeadershipLost { last_error } => {
                f.write_str("the leadership was lost")?;
                match last_error {
                    Some(error) => write!(f, "; the last error: {error}"),
                    None => Ok(()),
                }
            }
            Self::LeaderElection(error) => error.fmt(f),
            Self::Endpoints { address, source } => {
                write!(f, "can't serve HTTP on {address:?}: {source}")
            }
            Self::Thread { controller, source } => {
                write!(
                    f,
                    "controller {controller:?}: can't start a thread: {source}"
                )
            }
        }
    }
}

impl Error for ControllerError {}

debug_as_display!(ControllerError);

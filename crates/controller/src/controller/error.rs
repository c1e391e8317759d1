use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use crate::leader_election::LeaderElectionError;
use k8s_informer::__private::debug_as_display;
use k8s_informer::error::WaitError;
use k8s_informer::informer::InformerError;

/// The error of building or running a controller or a manager.
///
/// [`kind`](Self::kind) says what happened. `Display` names the controller, the problem and what to
/// do.
///
/// ```
/// use k8s_informer::informer::Source;
/// use k8s_informer::{Client, Config};
/// use k8s_informer_controller::{Controller, ControllerErrorKind, Next};
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let client = Client::new(Config::new("http://127.0.0.1:8001"))?;
/// let builder = Controller::builder(&client, Source::of::<ConfigMap>(), "maps");
/// let error = builder.workers(0).by(|_, _| Ok(Next::Done)).unwrap_err();
/// assert_eq!(error.controller(), Some("maps"));
/// assert!(matches!(error.kind(), ControllerErrorKind::Invalid { .. }));
/// # Ok::<(), k8s_informer::Error>(())
/// ```
#[derive(Clone)]
pub struct ControllerError {
    /// `None` is the manager.
    controller: Option<Arc<str>>,
    kind: ControllerErrorKind,
}

/// What a [`ControllerError`] reports.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ControllerErrorKind {
    /// The controller or the manager cannot be built as described.
    Invalid {
        /// The problem, and what to do.
        problem: String,
    },
    /// An informer could not be created or started.
    Informer(InformerError),
    /// The caches did not sync in time. The error names the informers and their last errors.
    Sync(WaitError),
    /// The controller or the manager has run before. It runs once; build another one.
    AlreadyRan,
    /// Reconcile calls did not return after the stop. Their threads still run, so end the process.
    /// A leader has kept its Lease, which expires.
    Stuck {
        /// The keys of the calls.
        keys: Vec<String>,
        /// The time since the stop.
        after: Duration,
    },
    /// Code of the program has panicked on a thread of the controller, for example a logger or a clock.
    /// Calls may still run, so end the process. A leader has kept its Lease, which expires.
    Panicked(String),
    /// The program has lost its leadership. Its reconcile calls have ended; otherwise the kind is
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
        /// The error of the system.
        source: Arc<io::Error>,
    },
    /// The system could not start a thread.
    Thread(Arc<io::Error>),
}

impl ControllerError {
    /// Returns what happened.
    pub fn kind(&self) -> &ControllerErrorKind {
        &self.kind
    }

    /// Returns the name of the controller, or `None` if the error concerns the whole manager.
    pub fn controller(&self) -> Option<&str> {
        self.controller.as_deref()
    }

    /// Creates the error of a controller.
    pub(crate) fn of(controller: &str, kind: ControllerErrorKind) -> Self {
        Self {
            controller: Some(controller.into()),
            kind,
        }
    }

    /// Creates the error of a manager.
    pub(crate) fn of_manager(kind: ControllerErrorKind) -> Self {
        Self {
            controller: None,
            kind,
        }
    }

    pub(crate) fn invalid(controller: &str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::of(controller, ControllerErrorKind::Invalid { problem })
    }

    pub(crate) fn invalid_manager(problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::of_manager(ControllerErrorKind::Invalid { problem })
    }

    pub(crate) fn informer(controller: &str, source: InformerError) -> Self {
        Self::of(controller, ControllerErrorKind::Informer(source))
    }

    pub(crate) fn thread(controller: &str, source: io::Error) -> Self {
        Self::of(controller, ControllerErrorKind::Thread(Arc::new(source)))
    }

    pub(crate) fn election(source: LeaderElectionError) -> Self {
        Self::of_manager(ControllerErrorKind::LeaderElection(source))
    }

    /// Whether calls may still run.
    pub(crate) fn is_stuck(&self) -> bool {
        let kind = &self.kind;
        matches!(
            kind,
            ControllerErrorKind::Stuck { .. } | ControllerErrorKind::Panicked(_)
        )
    }
}

impl fmt::Display for ControllerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.controller {
            Some(controller) => write!(f, "controller {controller:?}: ")?,
            None => f.write_str("manager: ")?,
        }
        match &self.kind {
            ControllerErrorKind::Invalid { problem } => f.write_str(problem),
            ControllerErrorKind::Informer(source) => source.fmt(f),
            ControllerErrorKind::Sync(source) => source.fmt(f),
            ControllerErrorKind::AlreadyRan => {
                f.write_str("it has run before; it runs once, so build another one")
            }
            ControllerErrorKind::Stuck { keys, after } => write!(
                f,
                "reconcile calls have not returned {after:?} after the stop: {}",
                keys.join(", ")
            ),
            ControllerErrorKind::Panicked(panic) => {
                write!(
                    f,
                    "its thread {panic}; calls may still run, so end the process"
                )
            }
            ControllerErrorKind::LeadershipLost { last_error } => {
                f.write_str("the leadership was lost")?;
                match last_error {
                    Some(error) => write!(f, "; the last error: {error}"),
                    None => Ok(()),
                }
            }
            ControllerErrorKind::LeaderElection(error) => error.fmt(f),
            ControllerErrorKind::Endpoints { address, source } => {
                write!(f, "can't serve HTTP on {address:?}: {source}")
            }
            ControllerErrorKind::Thread(source) => write!(f, "can't start a thread: {source}"),
        }
    }
}

impl Error for ControllerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            ControllerErrorKind::Informer(source) => Some(source),
            ControllerErrorKind::Sync(source) => Some(source),
            ControllerErrorKind::LeadershipLost { last_error } => {
                last_error.as_ref().map(|error| error as _)
            }
            ControllerErrorKind::LeaderElection(source) => Some(source),
            ControllerErrorKind::Endpoints { source, .. } => Some(&**source),
            ControllerErrorKind::Thread(source) => Some(&**source),
            ControllerErrorKind::Invalid { .. }
            | ControllerErrorKind::AlreadyRan
            | ControllerErrorKind::Panicked(_)
            | ControllerErrorKind::Stuck { .. } => None,
        }
    }
}

debug_as_display!(ControllerError);

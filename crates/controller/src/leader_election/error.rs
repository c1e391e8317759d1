use std::fmt;
use std::time::Duration;

use k8s_informer::__private::debug_as_display;
use k8s_informer::error::Error;

/// An error of a [`LeaderElector`](super::LeaderElector). It names the lock, and the last error of
/// a request if that is the cause.
#[derive(Clone)]
pub struct LeaderElectionError {
    lock: String,
    kind: Kind,
    last_error: Option<Error>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// The options can't work together.
    Options(String),
    /// The elector runs already.
    Running,
    /// The work has not ended within the grace period.
    Stuck(Duration),
    /// A thread could not be started.
    Thread(String),
    /// The last renewal is too old. The next one makes the term valid again.
    Expired {
        age: Duration,
        limit: Duration,
    },
    TermEnded,
    /// The leader has not renewed the Lease for this time.
    NotRenewed(Duration),
}

impl LeaderElectionError {
    pub(super) fn new(lock: &str, kind: Kind, last_error: Option<Error>) -> Self {
        Self {
            lock: lock.to_owned(),
            kind,
            last_error,
        }
    }

    /// Returns the error of the last request, if it failed.
    pub fn last_error(&self) -> Option<&Error> {
        self.last_error.as_ref()
    }

    /// Whether the work of a term has not ended within the grace period after its stop. Its thread
    /// still runs. Exit the process, so that the work can't go on beside that of the next leader.
    pub fn is_stuck(&self) -> bool {
        matches!(self.kind, Kind::Stuck(_))
    }

    /// Whether this candidate was not certainly the leader at the time of the call.
    pub fn is_not_leading(&self) -> bool {
        matches!(self.kind, Kind::Expired { .. } | Kind::TermEnded)
    }

    /// Whether the term has ended for good.
    pub fn is_term_ended(&self) -> bool {
        matches!(self.kind, Kind::TermEnded)
    }
}

impl fmt::Display for LeaderElectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "leader election {}: ", self.lock)?;
        match &self.kind {
            Kind::Options(problem) => f.write_str(problem)?,
            Kind::Running => f.write_str("the elector is running already; use another elector")?,
            Kind::Stuck(grace) => write!(
                f,
                "the thread \"leader {}\" has not ended within {grace:?} after its stop; exit the process",
                self.lock
            )?,
            Kind::Thread(error) => write!(f, "can't start a thread: {error}")?,
            Kind::Expired { age, limit } => write!(
                f,
                "not certainly the leader: the last renewal is {age:?} old, the limit is {limit:?}"
            )?,
            Kind::TermEnded => f.write_str("not the leader: the term has ended")?,
            Kind::NotRenewed(age) => write!(f, "the leader has not renewed its Lease for {age:?}")?,
        }
        match &self.last_error {
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

debug_as_display!(LeaderElectionError);

impl std::error::Error for LeaderElectionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.last_error.as_ref().map(|error| error as _)
    }
}

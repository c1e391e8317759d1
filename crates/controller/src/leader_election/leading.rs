use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::core::TermId;
use super::elector::Shared;
use super::error::{Kind, LeaderElectionError};
use k8s_informer::stop::Stop;

/// A term of leadership, which [`LeaderElector::run`](super::LeaderElector::run) passes to the
/// work. Clones refer to the same term.
#[derive(Clone)]
pub struct Leading {
    pub(super) shared: Arc<Shared>,
    pub(super) id: TermId,
    pub(super) stop: Stop,
    pub(super) lost: Stop,
}

impl Leading {
    /// Returns the signal that ends the work: the elector was stopped, or has lost the Lease. It is
    /// a child of the stop that was passed to [`run`](super::LeaderElector::run).
    pub fn stop(&self) -> &Stop {
        &self.stop
    }

    /// Returns the signal that the Lease is lost. [`stop`](Self::stop) is set as well, so work only
    /// needs this signal to end without a grace period after a loss. After a loss, callbacks of both
    /// signals run on a separate thread.
    pub fn lost(&self) -> &Stop {
        &self.lost
    }

    /// Checks that no other candidate can be the leader now. This reads clocks and a lock, and
    /// sends no request.
    ///
    /// It also succeeds after a stop, while the Lease is still held. Call it immediately before an
    /// operation that must not happen twice. It can't guard what happens after it returns: see
    /// [the module](super).
    ///
    /// # Errors
    ///
    /// Returns an [`is_not_leading`](LeaderElectionError::is_not_leading) error if the last renewal
    /// began more than the renew deadline ago. This can pass, with the next renewal. If the term
    /// has ended, every call fails, and the error
    /// [`is_term_ended`](LeaderElectionError::is_term_ended).
    ///
    /// ```
    /// # use k8s_informer_testing::ApiServer;
    /// # use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_controller::leader_election::{Ended, LeaderElector, LeaseLock};
    ///
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// let elector = LeaderElector::builder(LeaseLock::new(&client, "default", "a")).build()?;
    /// let Ended::Finished(leading) = elector.run(&Stop::new(), |leading| {
    ///     leading.ensure().unwrap();
    ///     leading
    /// })? else { panic!("the work has ended first") };
    /// // The Lease was released after the work.
    /// assert!(leading.ensure().unwrap_err().is_term_ended());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ensure(&self) -> Result<(), LeaderElectionError> {
        let now = self.shared.now();
        let mut status = self.shared.status.lock();
        let kind = match &mut status.term {
            Some(term) if term.id == self.id => match term.is_valid(now) {
                true => return Ok(()),
                false if term.has_ended() => Kind::TermEnded,
                false => Kind::Expired {
                    age: term.age(now),
                    limit: self.shared.times.renew_deadline,
                },
            },
            _ => Kind::TermEnded,
        };
        let last_error = status.last_error.clone();
        Err(self.shared.error(kind, last_error))
    }

    /// Ends the term for good: first for [`ensure`](Self::ensure), then for the work. The callbacks
    /// of the signals are user code, and run on the thread that watches the deadline. Returns `false`
    /// if the term has ended already.
    pub(super) fn lose(&self) -> bool {
        let mut status = self.shared.status.lock();
        match &mut status.term {
            Some(term) if term.id == self.id && !term.has_ended() => term.end(),
            _ => return false,
        }
        drop(status);
        self.lost.stop_without_callbacks();
        self.stop.stop_without_callbacks();
        true
    }

    /// Returns the time until the term is lost if it is not renewed. `None` if it has ended.
    pub(super) fn left(&self) -> Option<Duration> {
        let (now, times) = (self.shared.now(), &self.shared.times);
        let limit = times.retry_period.saturating_add(times.renew_deadline);
        let status = self.shared.status.lock();
        let term = status.term.as_ref().filter(|term| term.id == self.id);
        term.and_then(|term| term.left(now, limit))
    }

    /// Lets the Lease expire instead of releasing it, because work of this term still runs. The
    /// elector can't run again.
    pub(crate) fn keep_lease(&self) {
        self.shared.status.lock().is_stuck = true;
    }

    /// Returns the fencing token of the term. No other term has the same, unless the Lease was
    /// edited.
    pub fn token(&self) -> Token {
        Token {
            lease_uid: self.id.uid.clone(),
            transitions: self.id.transitions,
        }
    }
}

impl fmt::Debug for Leading {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leading")
            .field("lock", &self.shared.name)
            .field("token", &self.token())
            .finish_non_exhaustive()
    }
}

/// Identifies a term. With each term of a Lease, `transitions` increases; a Lease that was deleted
/// and created again has another `lease_uid`. If the Lease is edited to have `i32::MAX` transitions,
/// later terms all have this number, and so the same token: delete such a Lease.
///
/// Store it beside the data that the leader writes. Reject a write with the same `lease_uid` and
/// fewer `transitions`; if the `lease_uid` is another, the order is unknown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Token {
    /// The UID of the Lease.
    pub lease_uid: String,
    /// How many terms of this Lease there were before.
    pub transitions: i32,
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.lease_uid, self.transitions)
    }
}

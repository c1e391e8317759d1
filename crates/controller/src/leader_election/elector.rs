mod leader;

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::leader::{Leading, Token};
use self::leader::{Run, Verdict};
use super::clocks::Clocks;
use super::error::{Kind, LeaderElectionError};
use super::lease::Lock;
use super::options::LeaderElectionOptions;
use super::steps::{Now, Observation, Steps};
use k8s_informer::__private::sync::{Condvar, Mutex};
use k8s_informer::__private::{LastProblem, catch};
use k8s_informer::client::{Client, WriteGate};
use k8s_informer::error::Error;
use k8s_informer::error::{WaitCause, WaitError};
use k8s_informer::stop::{Stop, Stopper};

/// A candidate in a leader election. client-go's `LeaderElector`.
///
/// [`run`](Self::run) waits for leadership, runs the work of the leader, and releases the Lease.
/// The other methods can be called on any thread, before, during and after the run. Clones refer to
/// the same candidate.
///
/// The [module](super) has an example, and states when there is at most one leader.
#[derive(Clone)]
#[doc(alias = "RunOrDie")]
#[doc(alias = "NewLeaderElector")]
pub struct LeaderElector {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// The name of the lock, which is user code and must not run under a lock.
    pub(super) name: String,
    /// The identity of this candidate, also from user code.
    pub(super) identity: String,
    pub(super) lock: Box<dyn Lock>,
    pub(super) options: LeaderElectionOptions,
    clocks: Clocks,
    /// An innermost lock: while it is held, no other lock is taken and no user code runs.
    pub(super) status: Mutex<Status>,
    /// Notified by each response, and when a wait is stopped. Waiters wait for a valid term.
    pub(super) changed: Condvar,
}

pub(super) struct Status {
    /// Whether a run is in progress, or its work still is.
    pub(super) is_running: bool,
    pub(super) is_stuck: bool,
    /// The state of the run, with its term. Without a run, there is no term.
    pub(super) steps: Steps,
    /// Ends the requests of gated clients at the end of the last term.
    pub(super) ended: Stop,
    /// The last known holder.
    pub(super) leader: Option<String>,
    pub(super) last_error: LastProblem<Error>,
}

/// How a run that tries to acquire the Lease once has ended.
pub(crate) enum Attempt<R> {
    /// The Lease has another holder, or a request has failed, so that it is not known to be free.
    /// Has what was seen of the Lease.
    NotFree(Option<Observation>),
    Ended(Ended<R>),
}

/// How a run has ended. Each variant has the result of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended<R> {
    /// The stop was set. `None` if the work had not started.
    Stopped(Option<R>),
    /// The Lease was lost: it was not renewed in time, or another candidate holds it.
    Lost(R),
    /// The work ended on its own.
    Finished(R),
}

impl LeaderElector {
    /// Creates an elector. It sends no request before [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns an error that names the problem if the durations can't work together:
    ///
    /// - The lease duration is not a whole number of seconds from 1 to `i32::MAX`.
    /// - The retry period is less than a second.
    /// - The renew deadline is not more than 1.2 retry periods.
    /// - The lease duration is not more than the renew deadline and the retry period together.
    ///
    /// Also if the identity is empty, or if the lock panics.
    ///
    /// ```
    /// # use k8s_informer::{Client, Config};
    /// use k8s_informer_controller::leader_election::{LeaderElectionOptions, LeaderElector, LeaseLock};
    /// use std::time::Duration;
    ///
    /// # let client = Client::new(Config::new("http://127.0.0.1:8001"))?;
    /// let lock = LeaseLock::new(&client, "default", "a");
    /// let short = LeaderElectionOptions::new().lease_duration(Duration::from_secs(11));
    /// assert_eq!(
    ///     LeaderElector::new(lock, short).unwrap_err().to_string(),
    ///     "leader election default/a: the lease duration (11s) must be more than the renew deadline (10s) \
    ///      and the retry period (2s) together",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn new(
        lock: impl Lock,
        options: LeaderElectionOptions,
    ) -> Result<Self, LeaderElectionError> {
        let clocks = Clocks::new(Arc::clone(&options.clock));
        Self::with_clocks(lock, options, clocks)
    }

    /// Creates an elector with these clocks. The caller can then pass what it has observed on them.
    pub(crate) fn with_clocks(
        lock: impl Lock,
        options: LeaderElectionOptions,
        clocks: Clocks,
    ) -> Result<Self, LeaderElectionError> {
        let invalid =
            |name: &str, problem| LeaderElectionError::new(name, Kind::Options(problem), None);
        let name = catch(|| lock.name().to_owned())
            .map_err(|panic| invalid("without a name", format!("the lock {panic}")))?;
        let identity = catch(|| lock.identity().to_owned())
            .map_err(|panic| invalid(&name, format!("the lock {panic}")))?;
        if let Some(problem) = options.problem(&identity) {
            return Err(invalid(&name, problem));
        }
        // No request is one of a term yet.
        let ended = Stopper::new();
        ended.stop();
        let status = Status {
            is_running: false,
            is_stuck: false,
            steps: options.steps(&identity),
            ended: ended.signal(),
            leader: None,
            last_error: LastProblem::default(),
        };
        options.event(|metrics| metrics.is_leader(false));
        let shared = Shared {
            name,
            identity,
            lock: Box::new(lock),
            clocks,
            options,
            status: Mutex::new(status),
            changed: Condvar::new(),
        };
        Ok(Self {
            shared: Arc::new(shared),
        })
    }

    /// Waits until this candidate leads, runs `work` once, and returns when it has ended.
    ///
    /// `work` runs on a separate thread, and the election on the current thread. `work` must end
    /// when [`Leading::stop`] is set. This happens if `stop` is set or if the Lease is lost. In any
    /// case, the Lease is renewed until `work` has returned, as far as possible, and then released.
    /// If `stop` is set before leadership, `work` does not run.
    ///
    /// A stop can end the request that acquires the Lease, although the server has carried it out.
    /// Likewise, the response to this request can have been lost before the stop. So the Lease is
    /// read, and released if that request has acquired it. This delays the return by two requests,
    /// or by one second if the server does not respond. If it fails, or if the server carries out
    /// the request later, the Lease expires.
    ///
    /// A panic in `work` ends the term in the same way, and then continues on the current thread.
    ///
    /// An elector can run again after `run` has returned. Each term has another
    /// [token](Leading::token).
    ///
    /// # Errors
    ///
    /// Returns an error if the elector is running already or a thread can't be started. Failing
    /// requests are retried until `stop` is set; see [`last_error`](Self::last_error).
    ///
    /// Returns an [`is_stuck`](LeaderElectionError::is_stuck) error if `work` has not ended within
    /// the [grace period](LeaderElectionOptions::grace_period). It still runs then, and the Lease
    /// expires. You should exit the process.
    pub fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(Leading) -> R + Send + 'static,
        stop: &Stop,
    ) -> Result<Ended<R>, LeaderElectionError> {
        Run::new(&self.shared, stop)?.run(work)
    }

    /// Like [`run`](Self::run), but returns if the Lease is not free at once. It is, if the caller
    /// has observed it unchanged for its duration.
    pub(crate) fn run_if_free<R: Send + 'static>(
        &self,
        observation: Option<Observation>,
        work: impl FnOnce(Leading) -> R + Send + 'static,
        stop: &Stop,
    ) -> Result<Attempt<R>, LeaderElectionError> {
        Run::new(&self.shared, stop)?.run_if_free(observation, work)
    }

    /// Whether this candidate is certainly the leader now. See [`Leading::ensure`].
    ///
    /// client-go's `IsLeader` is true for as long as this candidate has not seen another holder.
    pub fn is_leader(&self) -> bool {
        let now = self.shared.now();
        self.shared.status.lock().leads(now)
    }

    /// Returns a client that can change something only while this candidate leads. Use it for all that
    /// only a leader may do.
    ///
    /// It shares connections with `client`, which stays as it is: a client that your program has made
    /// before is not gated. Do not gate the client of the [`Lock`]: a candidate could never acquire the
    /// Lease. [`Client::gated`] states what a gate does. Its errors are
    /// [`is_not_leading`](k8s_informer::Error::is_not_leading).
    ///
    /// A term that may still be renewed refuses new requests, and ends none. The end of a term ends its
    /// requests: a request of one term never leaves in another.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop};
    /// use k8s_informer_controller::leader_election::{LeaderElectionOptions, LeaderElector, LeaseLock};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let elector = LeaderElector::new(LeaseLock::new(&client, "default", "a"), LeaderElectionOptions::new())?;
    /// let maps = elector.gate(&client).api::<ConfigMap>(Some("default"));
    /// let create = move || maps.create(&json!({"metadata": {"name": "leader"}}), &Stop::never()).map(drop);
    /// let error = create().unwrap_err();
    /// assert!(error.is_not_leading() && !error.is_outcome_unknown());
    /// elector.run(move |_| create(), &Stop::never())?;
    /// assert!(server.get("/api/v1/namespaces/default/configmaps/leader").is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "WriteGate")]
    pub fn gate(&self, client: &Client) -> Client {
        client.gated(ElectorGate(self.clone()))
    }

    /// Whether a gated request may leave now: [`WriteGate::pass`].
    pub(crate) fn pass(&self) -> Result<Stop, Box<dyn StdError + Send + Sync>> {
        let now = self.shared.now();
        let mut status = self.shared.status.lock();
        let verdict = Verdict::of(status.steps.term(), now);
        self.shared.check(verdict, &status)?;
        Ok(status.ended.clone())
    }

    /// Returns how long [`run`](Self::run) waits for the work after its stop.
    pub(crate) fn grace_period(&self) -> Duration {
        self.shared.options.grace()
    }

    /// Returns the identity of the last known holder, or `None` if there is none. client-go's
    /// `GetLeader`.
    pub fn leader(&self) -> Option<String> {
        self.shared.status.lock().leader.clone()
    }

    /// Returns this candidate's identity.
    pub fn identity(&self) -> &str {
        &self.shared.identity
    }

    /// Returns the error of the last request, if it failed. A conflict with another candidate is
    /// not an error.
    ///
    /// An error that needs a remedy stays until the cause is removed, for example a
    /// missing permission or namespace. It is also logged, once for each change.
    pub fn last_error(&self) -> Option<Error> {
        self.shared.status.lock().last_error.get().cloned()
    }

    /// Blocks until this candidate leads, until `timeout`, or until `stop` is set. Call it on
    /// another thread than [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Fails if the timeout elapses or `stop` is set. The error has the
    /// [`last_error`](Self::last_error), and the leader that was seen last.
    pub fn wait_for_leadership(
        &self,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let timeout = timeout.into();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || {
            // Takes the lock, so that the wake-up cannot fall between a waiter's check and its
            // wait.
            let _status = shared.status.lock();
            shared.changed.notify_all();
        });
        let cause = loop {
            let now = self.shared.now();
            let mut status = self.shared.status.lock();
            if status.leads(now) {
                return Ok(());
            }
            if stop.is_stopped() {
                break WaitCause::Stopped;
            }
            match deadline {
                None => self.shared.changed.wait(&mut status),
                Some(deadline) if Instant::now() < deadline => {
                    self.shared.changed.wait_until(&mut status, deadline);
                }
                Some(_) => break WaitCause::TimedOut(timeout.unwrap_or_default()),
            }
        };
        let error = WaitError::new(cause, format!("waiting to lead {}", self.shared.name));
        let leader = self.leader().map(|leader| format!("the leader {leader:?}"));
        Err(error.seen(leader).caused_by(self.last_error()))
    }

    /// Checks whether this candidate works: it does not lead, or has renewed the Lease within the
    /// lease duration and `tolerance`. client-go's `HealthzAdaptor`.
    ///
    /// It is meant for liveness probes: restart the process if it fails. A candidate without a term
    /// is healthy, and whether it is ready depends on your program. A term counts until its work
    /// has been joined, even if the Lease is lost.
    ///
    /// # Errors
    ///
    /// Returns an error that states how long the leader has not renewed, or an
    /// [`is_stuck`](LeaderElectionError::is_stuck) error.
    pub fn health(&self, tolerance: Duration) -> Result<(), LeaderElectionError> {
        let now = self.shared.now();
        let mut status = self.shared.status.lock();
        let options = &self.shared.options;
        let limit = options.times.lease_duration.saturating_add(tolerance);
        let age = status.steps.term().map(|term| term.age(now));
        let kind = match age.filter(|age| *age > limit) {
            _ if status.is_stuck => Kind::Stuck(options.grace()),
            Some(age) => Kind::NotRenewed(age),
            None => return Ok(()),
        };
        Err(self.shared.error(kind, status.last_error.get().cloned()))
    }
}

/// Lets requests out in each term of a candidate.
struct ElectorGate(LeaderElector);

impl WriteGate for ElectorGate {
    fn pass(&self) -> Result<Stop, Box<dyn StdError + Send + Sync>> {
        self.0.pass()
    }
}

impl fmt::Debug for LeaderElector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElector")
            .field("lock", &self.shared.name)
            .field("identity", &self.identity())
            .field("leader", &self.leader())
            .finish_non_exhaustive()
    }
}

impl Shared {
    pub(super) fn now(&self) -> Now {
        self.clocks.now()
    }

    pub(super) fn error(&self, kind: Kind, last_error: Option<Error>) -> LeaderElectionError {
        LeaderElectionError::new(&self.name, kind, last_error)
    }
}

impl Status {
    /// Remembers the result of a request. Returns an error that should be logged.
    ///
    /// A conflict is not an error, because another candidate was faster. Nor is a Lease that does
    /// not exist yet, and nor is a request that the elector itself has stopped.
    pub(super) fn record(&mut self, is_read: bool, error: Option<Error>) -> Option<Error> {
        let error = match error {
            Some(error) if error.is_stopped() || (is_read && error.is_not_found()) => return None,
            Some(error) if !error.is_conflict() && !error.is_already_exists() => error,
            _ => {
                self.last_error.ended();
                return None;
            }
        };
        let is_new = self.last_error.occurred(error.clone());
        is_new.then_some(error)
    }

    fn leads(&mut self, now: Now) -> bool {
        self.steps.term().is_some_and(|term| term.is_valid(now))
    }
}

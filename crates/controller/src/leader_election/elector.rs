mod leader;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant, UNIX_EPOCH};

use self::leader::Run;
pub use self::leader::{Leading, Token};
use super::error::{Kind, LeaderElectionError};
use super::lease::{Lock, random};
use super::steps::{Now, Policy, Steps, Times};
use crate::events::EventRecorder;
use crate::metrics::LeaderElectionMetrics;
use k8s_informer::__private::Meter;
use k8s_informer::__private::catch;
use k8s_informer::__private::sync::{Condvar, Mutex};
use k8s_informer::error::Error;
use k8s_informer::stop::Stop;
use k8s_informer::time::{Clock, RealClock};

/// A candidate in a leader election. client-go's `LeaderElector`.
///
/// [`run`](Self::run) waits for leadership, runs the work of the leader, and releases the Lease.
/// The other methods can be called on any thread, before, during and after the run. Clones refer to
/// the same candidate.
///
/// The [module](super) has an example, and states when there is at most one leader.
#[derive(Clone)]
#[doc(alias = "RunOrDie")]
pub struct LeaderElector {
    shared: Arc<Shared>,
}

pub(super) struct Shared {
    /// The name of the lock, which is user code and must not run under a lock.
    pub(super) name: String,
    /// The identity of this candidate, also from user code.
    pub(super) identity: String,
    pub(super) options: LeaderElectorBuilder,
    /// The origin of the elapsed time.
    origin: Instant,
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
    /// The last known holder.
    pub(super) leader: String,
    pub(super) last_error: Option<Error>,
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
    /// Starts to configure an elector with client-go's defaults: a lease duration of 15 s, a renew
    /// deadline of 10 s, and a retry period of 2 s.
    pub fn builder(lock: impl Lock) -> LeaderElectorBuilder {
        LeaderElectorBuilder {
            lock: Arc::new(lock),
            times: Times {
                lease_duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
            },
            grace: Duration::from_secs(30),
            releases: true,
            watches: true,
            clock: Arc::new(RealClock),
            on_new_leader: None,
            meter: Arc::new(Meter::new(None)),
            recorder: None,
        }
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
    /// the [grace period](LeaderElectorBuilder::grace_period). It still runs then, and the Lease
    /// expires. You should exit the process.
    pub fn run<R: Send + 'static>(
        &self,
        work: impl FnOnce(Leading) -> R + Send + 'static,
        stop: &Stop,
    ) -> Result<Ended<R>, LeaderElectionError> {
        Run::new(&self.shared, stop)?.run(work)
    }

    /// Whether this candidate is certainly the leader now. See [`Leading::ensure`].
    ///
    /// client-go's `IsLeader` is true for as long as this candidate has not seen another holder.
    pub fn is_leader(&self) -> bool {
        let now = self.shared.now();
        self.shared.status.lock().leads(now)
    }

    /// Returns how long [`run`](Self::run) waits for the work after its stop.
    pub(crate) fn grace_period(&self) -> Duration {
        self.shared.options.grace
    }

    /// Returns the identity of the last known holder, or `None` if there is none. client-go's
    /// `GetLeader`.
    pub fn leader(&self) -> Option<String> {
        let leader = self.shared.status.lock().leader.clone();
        Some(leader).filter(|leader| !leader.is_empty())
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
        self.shared.status.lock().last_error.clone()
    }

    /// Blocks until this candidate leads, until `timeout`, or until `stop` is set. Call it on
    /// another thread than [`run`](Self::run).
    ///
    /// # Errors
    ///
    /// Returns an error if the time is over or `stop` is set. The error contains the
    /// [`last_error`](Self::last_error).
    pub fn wait_until_leading(
        &self,
        timeout: impl Into<Option<Duration>>,
        stop: &Stop,
    ) -> Result<(), LeaderElectionError> {
        let timeout = timeout.into();
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || {
            // Takes the lock, so that the wake-up cannot fall between a waiter's check and its
            // wait.
            let _status = shared.status.lock();
            shared.changed.notify_all();
        });
        let kind = loop {
            let now = self.shared.now();
            let mut status = self.shared.status.lock();
            if status.leads(now) {
                return Ok(());
            }
            if stop.is_stopped() {
                break Kind::Stopped;
            }
            match deadline {
                None => self.shared.changed.wait(&mut status),
                Some(deadline) if Instant::now() < deadline => {
                    self.shared.changed.wait_until(&mut status, deadline);
                }
                Some(_) => break Kind::TimedOut(timeout.unwrap_or_default()),
            }
        };
        Err(self.shared.error(kind, self.last_error()))
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
            _ if status.is_stuck => Kind::Stuck(options.grace),
            Some(age) => Kind::NotRenewed(age),
            None => return Ok(()),
        };
        Err(self.shared.error(kind, status.last_error.clone()))
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
        let clock = &self.options.clock;
        let wall = clock.wall_clock().duration_since(UNIX_EPOCH);
        let wall = wall.unwrap_or_default().as_micros();
        Now {
            elapsed: clock.now().saturating_duration_since(self.origin),
            wall: i64::try_from(wall).unwrap_or(i64::MAX),
        }
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
                self.last_error = None;
                return None;
            }
        };
        let last = self.last_error.replace(error.clone());
        let is_new = last.is_none_or(|last| last.to_string() != error.to_string());
        is_new.then_some(error)
    }

    fn leads(&mut self, now: Now) -> bool {
        self.steps.term().is_some_and(|term| term.is_valid(now))
    }
}

type OnNewLeader = Arc<dyn Fn(&str) + Send + Sync>;

/// The options of a [`LeaderElector`]. client-go's `LeaderElectionConfig`.
///
/// All candidates for a Lease should have the same durations.
#[derive(Clone)]
#[must_use]
pub struct LeaderElectorBuilder {
    pub(crate) lock: Arc<dyn Lock>,
    pub(crate) times: Times,
    pub(crate) grace: Duration,
    pub(super) releases: bool,
    pub(super) watches: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(super) on_new_leader: Option<OnNewLeader>,
    pub(super) meter: Arc<Meter<dyn LeaderElectionMetrics>>,
    pub(super) recorder: Option<EventRecorder>,
}

impl LeaderElectorBuilder {
    /// Sets how long other candidates wait after the last renewal that they have seen, before one
    /// of them takes over. Whole seconds; the default is 15 s.
    pub fn lease_duration(mut self, duration: Duration) -> Self {
        self.times.lease_duration = duration;
        self
    }

    /// Sets for how long a renewal makes the leader certain of its leadership. After another
    /// [retry period](Self::retry_period) without a renewal, the Lease is lost. The default is
    /// 10 s.
    pub fn renew_deadline(mut self, deadline: Duration) -> Self {
        self.times.renew_deadline = deadline;
        self
    }

    /// Sets the time between renewals. Other candidates read the Lease every 1 to 2.2 retry
    /// periods. At least 1 s, because times in a Lease have whole seconds for client-go; the
    /// default is 2 s.
    pub fn retry_period(mut self, period: Duration) -> Self {
        self.times.retry_period = period;
        self
    }

    /// Sets how long the work may take to end after its stop. The default is 30 s.
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.grace = period;
        self
    }

    /// Sets whether the Lease is released after the work has ended, so that another candidate can
    /// take over at once. Otherwise it expires. The default is `true`; in client-go it is `false`.
    pub fn release(mut self, release: bool) -> Self {
        self.releases = release;
        self
    }

    /// Sets whether a waiting candidate watches the Lease, so that it takes over as soon as the
    /// Lease is released. The default is `true`. Without the permission to watch it, the candidate
    /// only polls.
    pub fn watch(mut self, watch: bool) -> Self {
        self.watches = watch;
        self
    }

    /// Sets a callback for each change of the leader that this candidate sees after an attempt,
    /// with the identity of the leader. The identity is empty if the Lease was free and this
    /// candidate failed to take it. Its own release is not reported.
    ///
    /// Calls are in order, on a separate thread. A panic is caught and logged. client-go's
    /// `OnNewLeader`.
    pub fn on_new_leader(mut self, callback: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.on_new_leader = Some(Arc::new(callback));
        self
    }

    /// Sets where metrics go.
    pub fn metrics(mut self, metrics: Arc<dyn LeaderElectionMetrics>) -> Self {
        self.meter = Arc::new(Meter::new(Some(metrics)));
        self
    }

    /// Records an event about the Lease when a term begins and when it has ended, after the
    /// release. client-go's `EventRecorder` of a lock.
    pub fn recorder(mut self, recorder: EventRecorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Sets the clock, for tests. The deadline of a term is measured with it, so no method of it may
    /// block for longer than requested. [`wait_until_leading`](LeaderElector::wait_until_leading) always
    /// times out in real time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Creates the elector. It sends no request before [`run`](LeaderElector::run).
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
    /// # use k8s_informer_testing::ApiServer;
    /// use k8s_informer_controller::leader_election::{LeaderElector, LeaseLock};
    /// use std::time::Duration;
    ///
    /// # let server = ApiServer::start()?;
    /// # let client = Client::new(Config::new(server.url()))?;
    /// // A small cluster with a slow API server, as in OpenShift.
    /// let slow = LeaderElector::builder(LeaseLock::new(&client, "default", "a"))
    ///     .lease_duration(Duration::from_secs(137))
    ///     .renew_deadline(Duration::from_secs(107))
    ///     .retry_period(Duration::from_secs(26));
    /// assert!(slow.build().is_ok());
    ///
    /// let short = LeaderElector::builder(LeaseLock::new(&client, "default", "a"))
    ///     .lease_duration(Duration::from_secs(11));
    /// assert_eq!(
    ///     short.build().unwrap_err().to_string(),
    ///     "leader election default/a: the lease duration (11s) must be more than the renew deadline (10s) \
    ///      and the retry period (2s) together",
    /// );
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn build(self) -> Result<LeaderElector, LeaderElectionError> {
        let invalid =
            |name: &str, problem| LeaderElectionError::new(name, Kind::Options(problem), None);
        let name = catch(|| self.lock.name().to_owned())
            .map_err(|panic| invalid("without a name", format!("the lock {panic}")))?;
        let identity = catch(|| self.lock.identity().to_owned())
            .map_err(|panic| invalid(&name, format!("the lock {panic}")))?;
        if let Some(problem) = self.problem(&identity) {
            return Err(invalid(&name, problem));
        }
        let status = Status {
            is_running: false,
            is_stuck: false,
            steps: self.steps(&identity),
            leader: String::new(),
            last_error: None,
        };
        let shared = Shared {
            name,
            identity,
            origin: self.clock.now(),
            options: self,
            status: Mutex::new(status),
            changed: Condvar::new(),
        };
        let meter = &shared.options.meter;
        meter.event(|metrics| metrics.is_leader(false));
        Ok(LeaderElector {
            shared: Arc::new(shared),
        })
    }

    /// Returns the steps of a candidate that knows nothing of the Lease.
    pub(super) fn steps(&self, identity: &str) -> Steps {
        let random = || (random() >> 11) as f64 / (1u64 << 53) as f64;
        let identity = identity.to_owned();
        Steps::new(identity, self.times, Policy::SAFE, Box::new(random))
    }

    /// What is wrong with the options. client-go's `NewLeaderElector` checks less.
    fn problem(&self, identity: &str) -> Option<String> {
        let Times {
            lease_duration: lease,
            renew_deadline: renew,
            retry_period: retry,
        } = self.times;
        let second = Duration::from_secs(1);
        let most = Duration::from_secs(u64::from(i32::MAX.unsigned_abs()));
        if lease.subsec_nanos() != 0 || lease < second || lease > most {
            Some(format!(
                "the lease duration ({lease:?}) must be a whole number of seconds from 1 to {}",
                i32::MAX
            ))
        } else if retry < second {
            Some(format!("the retry period ({retry:?}) must be at least 1s"))
        } else if renew.saturating_mul(5) <= retry.saturating_mul(6) {
            Some(format!(
                "the renew deadline ({renew:?}) must be more than 1.2 retry periods ({retry:?})"
            ))
        } else if lease <= renew.saturating_add(retry) {
            Some(format!(
                "the lease duration ({lease:?}) must be more than the renew deadline ({renew:?}) and the retry \
                 period ({retry:?}) together"
            ))
        } else {
            let problem = "the identity of the lock is empty";
            identity.is_empty().then(|| problem.to_owned())
        }
    }
}

impl fmt::Debug for LeaderElectorBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElectorBuilder")
            .field("lock", &self.lock.name())
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

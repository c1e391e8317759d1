use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::lease::random;
use super::steps::{Steps, Times};
use crate::events::EventRecorder;
use crate::metrics::LeaderElectionMetrics;
use k8s_informer::__private::Meter;
use k8s_informer::time::{Clock, RealClock};

type OnNewLeader = Arc<dyn Fn(Option<&str>) + Send + Sync>;

/// The options of a [`LeaderElector`](super::LeaderElector). client-go's `LeaderElectionConfig`.
///
/// All candidates for a Lease should have the same durations.
///
/// ```
/// use k8s_informer_controller::leader_election::LeaderElectionOptions;
/// use std::time::Duration;
///
/// // A small cluster with a slow API server, as in OpenShift.
/// let options = LeaderElectionOptions::new()
///     .lease_duration(Duration::from_secs(137))
///     .renew_deadline(Duration::from_secs(107))
///     .retry_period(Duration::from_secs(26));
/// assert!(format!("{options:?}").contains("lease_duration: 137s"));
/// ```
#[derive(Clone)]
#[must_use]
#[doc(alias = "LeaderElectionConfig")]
pub struct LeaderElectionOptions {
    pub(crate) times: Times,
    grace: Option<Duration>,
    pub(super) releases: bool,
    pub(super) watches: bool,
    pub(crate) clock: Arc<dyn Clock>,
    pub(super) on_new_leader: Option<OnNewLeader>,
    meter: Option<Arc<Meter<dyn LeaderElectionMetrics>>>,
    pub(super) recorder: Option<EventRecorder>,
}

impl LeaderElectionOptions {
    /// Returns client-go's defaults: a lease duration of 15 s, a renew deadline of 10 s, and a retry
    /// period of 2 s.
    pub fn new() -> Self {
        Self {
            times: Times {
                lease_duration: Duration::from_secs(15),
                renew_deadline: Duration::from_secs(10),
                retry_period: Duration::from_secs(2),
            },
            grace: None,
            releases: true,
            watches: true,
            clock: Arc::new(RealClock),
            on_new_leader: None,
            meter: None,
            recorder: None,
        }
    }

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

    /// Sets how long the work may take to end after its stop. The default is 30 s, or a minute in a
    /// [`Manager`](crate::Manager).
    pub fn grace_period(mut self, period: Duration) -> Self {
        self.grace = Some(period);
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
    /// with the identity of the leader, or `None` if the Lease was free and this candidate failed to
    /// take it. Its own release is not reported.
    ///
    /// The calls of a run are in order, on a thread of their own. A later run begins again: it can report
    /// the same leader once more, while a slow call of the last run still runs. A panic is caught and
    /// logged. client-go's
    /// `OnNewLeader`.
    pub fn on_new_leader(
        mut self,
        callback: impl Fn(Option<&str>) + Send + Sync + 'static,
    ) -> Self {
        self.on_new_leader = Some(Arc::new(callback));
        self
    }

    /// Sets where metrics go. In a [`Manager`](crate::Manager), the default is its registry.
    pub fn metrics(mut self, metrics: Arc<dyn LeaderElectionMetrics>) -> Self {
        self.meter = Some(Arc::new(Meter::new(Some(metrics))));
        self
    }

    /// Records an event about the Lease when a term begins and when it has ended, after the
    /// release. client-go's `EventRecorder` of a lock.
    pub fn recorder(mut self, recorder: EventRecorder) -> Self {
        self.recorder = Some(recorder);
        self
    }

    /// Sets the clock, for tests. The deadline of a term is measured with it, so no method of it may
    /// block for longer than requested. [`wait_for_leadership`](super::LeaderElector::wait_for_leadership) always
    /// times out in real time.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the [grace period](Self::grace_period) and the [metrics](Self::metrics), unless they are
    /// set already.
    pub(crate) fn or(mut self, grace: Duration, metrics: Arc<dyn LeaderElectionMetrics>) -> Self {
        self.grace.get_or_insert(grace);
        self.meter
            .get_or_insert_with(|| Arc::new(Meter::new(Some(metrics))));
        self
    }

    /// Returns how long the work may take to end after its stop.
    pub(crate) fn grace(&self) -> Duration {
        self.grace.unwrap_or(Duration::from_secs(30))
    }

    /// Reports a metric.
    pub(super) fn event(&self, event: impl FnOnce(&dyn LeaderElectionMetrics)) {
        if let Some(meter) = &self.meter {
            meter.event(event);
        }
    }

    /// Returns the steps of a candidate that knows nothing of the Lease.
    pub(super) fn steps(&self, identity: &str) -> Steps {
        let random = || (random() >> 11) as f64 / (1u64 << 53) as f64;
        let identity = identity.to_owned();
        Steps::new(identity, self.times, Box::new(random))
    }

    /// What is wrong with the options. client-go's `NewLeaderElector` checks less.
    pub(super) fn problem(&self, identity: &str) -> Option<String> {
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

impl Default for LeaderElectionOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for LeaderElectionOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaderElectionOptions")
            .field("times", &self.times)
            .finish_non_exhaustive()
    }
}

//! The metrics of controllers and electors, with the names of controller-runtime and of the
//! components of Kubernetes.

use std::sync::Arc;
use std::time::Duration;

use super::handles::{Counter, Gauge, Histogram, Labelled};
use super::series::{Family, SeriesMap, gauge};
use crate::metrics::{ControllerMetrics, LastState, LeaderElectionMetrics, ReconcileResult};

const RECONCILES: &str = "controller_runtime_reconcile_total";
const RECONCILES_HELP: &str = "Total number of reconciliations per controller";

static SOURCE_WAIT: Family = gauge(
    "controller_runtime_source_wait_seconds",
    "How long a controller has waited for a current cache of a source before its first call",
);

/// The series of a controller.
pub(super) struct ControllerSeries {
    map: Arc<SeriesMap>,
    name: String,
    successes: Counter,
    requeues_after: Counter,
    error_results: Counter,
    errors: Counter,
    terminal_errors: Counter,
    panics: Counter,
    timeouts: Counter,
    reconcile_time: Histogram,
    max_concurrent_reconciles: Gauge,
    active_workers: Gauge,
    own_writes_wait: Histogram,
    vanished_final: Counter,
    vanished_tombstone: Counter,
}

impl ControllerSeries {
    pub(super) fn new(map: &Arc<SeriesMap>, name: &str) -> Self {
        let labels = &[("controller", name)];
        let of = Labelled::new(map, labels);
        let reconciles = |result| {
            let labels = &[("controller", name), ("result", result)];
            Labelled::new(map, labels).counter(RECONCILES, RECONCILES_HELP)
        };
        // controller-runtime has the deprecated result `requeue`, so its dashboards expect the series.
        reconciles("requeue");
        let vanished = |last_state| {
            let labels = &[("controller", name), ("last_state", last_state)];
            Labelled::new(map, labels).counter(
                "controller_runtime_vanished_objects_total",
                "Total number of objects that the server has removed although the finalizer of the controller was on them",
            )
        };
        Self {
            map: Arc::clone(map),
            name: name.to_owned(),
            successes: reconciles("success"),
            requeues_after: reconciles("requeue_after"),
            error_results: reconciles("error"),
            errors: of.counter(
                "controller_runtime_reconcile_errors_total",
                "Total number of reconciliation errors per controller",
            ),
            terminal_errors: of.counter(
                "controller_runtime_terminal_reconcile_errors_total",
                "Total number of terminal reconciliation errors per controller",
            ),
            panics: of.counter(
                "controller_runtime_reconcile_panics_total",
                "Total number of reconciliation panics per controller",
            ),
            timeouts: of.counter(
                "controller_runtime_reconcile_timeouts_total",
                "Total number of reconciliation timeouts per controller",
            ),
            reconcile_time: of.histogram(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                &[
                    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6,
                    0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0,
                    7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
                ],
            ),
            max_concurrent_reconciles: of.gauge(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
            ),
            active_workers: of.gauge(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
            ),
            vanished_final: vanished("final"),
            vanished_tombstone: vanished("tombstone"),
            // The name and the buckets are those of the waits of a controller-runtime client, without
            // the labels of its operations: here keys wait, and not reads.
            own_writes_wait: of.histogram(
                "controller_runtime_consistency_wait_duration_seconds",
                "Length of time keys wait for the cache to observe their own writes per controller",
                &[
                    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0,
                ],
            ),
        }
    }
}

impl ControllerMetrics for ControllerSeries {
    fn reconciled(&self, result: ReconcileResult, took: Duration) {
        self.reconcile_time.observe_time(took);
        match result {
            ReconcileResult::Success => self.successes.increment(),
            ReconcileResult::RequeueAfter => self.requeues_after.increment(),
            ReconcileResult::Error => {
                self.errors.increment();
                self.error_results.increment();
            }
            // It counts as an error, too (CR7).
            ReconcileResult::TerminalError => {
                self.errors.increment();
                self.terminal_errors.increment();
                self.error_results.increment();
            }
        }
    }

    fn panicked(&self) {
        self.panics.increment();
    }

    fn timed_out(&self) {
        self.timeouts.increment();
    }

    fn waited_for_own_writes(&self, waited: Duration) {
        self.own_writes_wait.observe_time(waited);
    }

    fn waits_for_source(&self, source: &str, time: Duration) {
        let labels = [("controller", self.name.as_str()), ("source", source)];
        let series = self.map.get(&SOURCE_WAIT, &labels);
        series.set(time.as_secs_f64());
    }

    fn vanished(&self, last_state: LastState) {
        match last_state {
            LastState::Final => self.vanished_final.increment(),
            LastState::Tombstone => self.vanished_tombstone.increment(),
        }
    }

    fn max_concurrent_reconciles(&self, workers: usize) {
        self.max_concurrent_reconciles.set(workers as f64);
    }

    fn active_workers(&self, workers: usize) {
        self.active_workers.set(workers as f64);
    }
}

/// The series of the shards of a manager.
pub(super) struct ShardSeries {
    pub(super) shards: Gauge,
    pub(super) with_holder: Gauge,
}

impl ShardSeries {
    pub(super) fn new(map: &SeriesMap, name: &str) -> Self {
        let labels = &[("name", name)];
        let of = Labelled::new(map, labels);
        Self {
            shards: of.gauge(
                "controller_runtime_shards",
                "Number of shards among which the replicas divide the objects",
            ),
            with_holder: of.gauge(
                "controller_runtime_shards_with_holder",
                "Number of shards that a replica holds, as seen by this one",
            ),
        }
    }
}

/// The series of a leader elector.
pub(super) struct ElectorSeries {
    master_status: Gauge,
    slow_path: Counter,
    lost_terms: Counter,
}

impl ElectorSeries {
    pub(super) fn new(map: &SeriesMap, name: &str) -> Self {
        let labels = &[("name", name)];
        let of = Labelled::new(map, labels);
        Self {
            master_status: of.gauge(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 \
                 indicates master. 'name' is the string used to identify the lease. Please make sure to group \
                 by name.",
            ),
            slow_path: of.counter(
                "leader_election_slowpath_total",
                "Total number of slow path exercised in renewing leader leases. 'name' is the string used to \
                 identify the lease. Please make sure to group by name.",
            ),
            lost_terms: of.counter(
                "leader_election_lost_terms_total",
                "Total number of terms that have ended because the lease was lost. 'name' is the string used to \
                 identify the lease.",
            ),
        }
    }
}

impl LeaderElectionMetrics for ElectorSeries {
    fn is_leader(&self, is_leader: bool) {
        self.master_status.set(is_leader.into());
    }

    fn slow_path(&self) {
        self.slow_path.increment();
    }

    fn term_lost(&self) {
        self.lost_terms.increment();
    }
}

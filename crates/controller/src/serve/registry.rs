//! Metrics in the text format of Prometheus.

mod client;
mod program;
mod series;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use self::client::CERTIFICATES;
pub use self::program::{Counter, Gauge, Histogram};
use self::series::{Family, Group, Kind, SeriesMap, counter, family, gauge, histogram};
use crate::metrics::{
    ControllerMetrics, ControllerMetricsProvider, LeaderElectionMetrics, ReconcileResult,
};
use k8s_informer::error::Error;
use k8s_informer::metrics::{ClientMetrics, InformerMetrics, MetricsProvider, WorkQueueMetrics};
use k8s_informer::object::GroupVersionResource;

/// The metrics of controllers, work queues, informers, clients and leader electors, for Prometheus.
///
/// It corresponds to controller-runtime's `metrics.Registry`. Add the metrics of your program with
/// [`counter`](Self::counter), [`gauge`](Self::gauge) and [`histogram`](Self::histogram), and those of
/// another library with [`append`](Self::append).
///
/// Names, labels and buckets are those of controller-runtime and of the components of Kubernetes,
/// so that their dashboards and alerts work. `workqueue_depth` has no label `priority`: it counts
/// the keys of all priorities. All series of a controller and of a queue exist from the start. The
/// series of an informer disappear when it ends. Two queues, controllers or electors with the same name
/// share their series, and so do two informers with the same name and resource.
///
/// Clones share the same metrics. To update a value, a thread changes an atomic number. A request
/// of a client also takes a short lock, because its labels depend on the response.
///
/// ```
/// use k8s_informer::informer::FactoryOptions;
/// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
/// use k8s_informer_controller::MetricsRegistry;
/// use k8s_informer_testing::ApiServer;
/// use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue};
/// use k8s_openapi::api::core::v1::Pod;
/// use std::sync::Arc;
///
/// let registry = MetricsRegistry::new();
/// let server = ApiServer::start()?;
/// let config = Config::new(server.url()).metrics(registry.client_metrics());
/// let factory = SharedInformerFactory::with_options(Client::new(config)?, FactoryOptions::new().metrics("team-controller", Arc::new(registry.clone())));
/// factory.informer::<Pod>();
/// let queue = WorkQueue::builder().name("team").metrics_provider(Arc::new(registry.clone())).build()?;
/// queue.add("a");
///
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
/// let text = registry.render();
/// assert!(text.contains("# TYPE workqueue_depth gauge\n"));
/// assert!(text.contains("workqueue_depth{name=\"team\",controller=\"team\"} 1\n"));
/// assert!(text.contains("rest_client_requests_total{code=\"200\",method=\"GET\",host="));
/// assert!(text.contains("informer_queued_items{name=\"team-controller\",group=\"\",version=\"v1\",resource=\"pods\"} 0\n"));
///
/// factory.shut_down(None)?;
/// assert!(!registry.render().contains("informer_queued_items"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct MetricsRegistry {
    series: Arc<SeriesMap>,
}

impl MetricsRegistry {
    /// The `Content-Type` of [`render`](Self::render).
    pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

    /// Creates a registry without series.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the metrics for [`Config::metrics`](k8s_informer::Config::metrics). Clients may share them.
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    ///
    /// let registry = MetricsRegistry::new();
    /// registry.client_metrics().request("200", "GET", "10.0.0.1:6443");
    /// let line = r#"rest_client_requests_total{code="200",method="GET",host="10.0.0.1:6443"} 1"#;
    /// assert!(registry.render().contains(line));
    /// ```
    pub fn client_metrics(&self) -> Arc<dyn ClientMetrics> {
        Arc::new(self.group(&CERTIFICATES, &[]))
    }

    /// Returns the metrics for the elector of the Lease `name`.
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    ///
    /// let registry = MetricsRegistry::new();
    /// let metrics = registry.leader_election_metrics("team-controller");
    /// metrics.is_leader(true);
    /// assert!(registry.render().contains("leader_election_master_status{name=\"team-controller\"} 1\n"));
    /// ```
    pub fn leader_election_metrics(&self, name: &str) -> Arc<dyn LeaderElectionMetrics> {
        Arc::new(self.group(&ELECTOR, &[("name", name)]))
    }

    /// Returns a counter of the program. Calls with the same name and labels return the same counter.
    ///
    /// Create it when the program starts, so that its series begins at 0, and keep it: updates of a
    /// counter do not lock. A series exists as long as the registry, so a label must have few values.
    /// For a series for each object, see [`append`](Self::append).
    ///
    /// # Errors
    ///
    /// Returns an error if the name or a label is invalid, if a label occurs twice, if the name has
    /// another type already, or if it starts with a prefix of the metrics of this crate:
    /// `controller_runtime_`, `workqueue_`, `informer_`, `leader_election_` or `rest_client_`.
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    ///
    /// let registry = MetricsRegistry::new();
    /// let help = "Number of requests to the DNS service.";
    /// let errors = registry.counter("dns_requests_total", help, &[("result", "error")])?;
    /// errors.increment();
    /// let text = registry.render();
    /// assert!(text.ends_with("# TYPE dns_requests_total counter\ndns_requests_total{result=\"error\"} 1\n"));
    /// assert!(registry.counter("dns requests", help, &[]).is_err());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn counter(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Result<Counter, Error> {
        let series = program::series(&self.series, &counter(name, help), labels)?;
        Ok(Counter { series })
    }

    /// Returns a gauge of the program, as [`counter`](Self::counter) does.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`counter`](Self::counter).
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    ///
    /// let registry = MetricsRegistry::new();
    /// let hosts = registry.gauge("dns_hosts", "Number of registered hosts.", &[])?;
    /// hosts.set(3.0);
    /// hosts.add(-0.5);
    /// assert!(registry.render().ends_with("# TYPE dns_hosts gauge\ndns_hosts 2.5\n"));
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn gauge(
        &self,
        name: &'static str,
        help: &'static str,
        labels: &[(&str, &str)],
    ) -> Result<Gauge, Error> {
        let series = program::series(&self.series, &gauge(name, help), labels)?;
        Ok(Gauge { series })
    }

    /// Returns a histogram of the program, as [`counter`](Self::counter) does. `bounds` are the upper
    /// bounds of its buckets, without the last one, which is infinite.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`counter`](Self::counter), and an error if a label is named `le`, or if
    /// the bounds are not finite or do not increase.
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    ///
    /// let registry = MetricsRegistry::new();
    /// let help = "Length of requests to the DNS service.";
    /// let times = registry.histogram("dns_request_seconds", help, &[0.1, 1.0], &[("verb", "PUT")])?;
    /// times.observe(0.25);
    /// assert!(registry.render().contains("dns_request_seconds_bucket{verb=\"PUT\",le=\"1\"} 1\n"));
    /// assert!(registry.histogram("b", help, &[1.0, 1.0], &[]).is_err());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn histogram(
        &self,
        name: &'static str,
        help: &'static str,
        bounds: &'static [f64],
        labels: &[(&str, &str)],
    ) -> Result<Histogram, Error> {
        let family = family(name, help, Kind::Histogram(bounds));
        let series = program::series(&self.series, &family, labels)?;
        Ok(Histogram { series })
    }

    /// Appends the text that `text` returns to that of [`render`](Self::render): the text format of
    /// another metrics library, or series that come and go with objects.
    ///
    /// Each scrape calls it, possibly several at once, without a lock. The text must be in version
    /// 0.0.4 of the text format, and must not contain a metric that the registry has. If `text`
    /// panics, the scrape has the other metrics, and the log has an error.
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    ///
    /// let registry = MetricsRegistry::new();
    /// registry.append(|| "# TYPE website_ready gauge\nwebsite_ready{name=\"blue\"} 1\n".to_owned());
    /// assert!(registry.render().ends_with("website_ready{name=\"blue\"} 1\n"));
    /// ```
    pub fn append(&self, text: impl Fn() -> String + Send + Sync + 'static) {
        self.series.texts.lock().push(Arc::new(text));
    }

    /// Returns the current values of all series, in version 0.0.4 of the text format. Its content type
    /// is `text/plain; version=0.0.4; charset=utf-8`. Series are sorted, first by name, then by their
    /// labels. A family without series is omitted.
    ///
    /// Threads that are measured wait at most while the list of series is copied.
    ///
    /// ```
    /// use k8s_informer_controller::MetricsRegistry;
    /// use k8s_informer_controller::metrics::{ControllerMetricsProvider, ReconcileResult};
    /// use std::time::Duration;
    ///
    /// let registry = MetricsRegistry::new();
    /// assert_eq!(registry.render(), "");
    /// let metrics = registry.controller_metrics("team").unwrap();
    /// metrics.reconciled(ReconcileResult::Success, Duration::from_millis(3));
    /// let text = registry.render();
    /// assert!(text.contains("controller_runtime_reconcile_total{controller=\"team\",result=\"success\"} 1\n"));
    /// assert!(text.contains("controller_runtime_reconcile_total{controller=\"team\",result=\"error\"} 0\n"));
    /// ```
    pub fn render(&self) -> String {
        self.series.render(SystemTime::now())
    }

    pub(crate) fn set_shards(&self, name: &str, count: u32, held: usize) {
        let group = self.group(&SHARDS, &[("name", name)]);
        group.set(0, count.into());
        group.set(1, held as f64);
    }

    fn group(&self, families: &'static [Family], labels: &[(&str, &str)]) -> Group {
        let series = families.iter();
        let series = series.map(|family| self.series.get(family, labels));
        Group::new(series, &self.series)
    }
}

impl MetricsProvider for MetricsRegistry {
    fn informer_metrics(
        &self,
        name: &str,
        resource: &GroupVersionResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        let series = INFORMER.iter();
        let series = series.map(|family| self.series.of_informer(family, name, resource));
        Some(Arc::new(Group::new(series, &self.series)))
    }

    fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
        let labels = [("name", name), ("controller", name)];
        Some(Arc::new(self.group(&QUEUE, &labels)))
    }
}

impl ControllerMetricsProvider for MetricsRegistry {
    fn controller_metrics(&self, name: &str) -> Option<Arc<dyn ControllerMetrics>> {
        // controller-runtime has the deprecated result `requeue`, so its dashboards expect the series.
        let results = ["success", "requeue_after", "error", "requeue"].map(|result| {
            let labels = [("controller", name), ("result", result)];
            self.series.get(&RECONCILES, &labels)
        });
        let mut group = self.group(&CONTROLLER, &[("controller", name)]);
        group.series.extend(results);
        Some(Arc::new(OfController {
            group,
            name: name.to_owned(),
        }))
    }
}

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsRegistry").finish_non_exhaustive()
    }
}

// The constants are the positions of families in the table above them, and of their series in a group.

static RECONCILES: Family = counter(
    "controller_runtime_reconcile_total",
    "Total number of reconciliations per controller",
);
static SOURCE_WAIT: Family = gauge(
    "controller_runtime_source_wait_seconds",
    "How long a controller has waited for a current cache of a source before its first call",
);
/// The families of a controller. The series of [`RECONCILES`] follow them.
static CONTROLLER: [Family; 8] = [
    counter(
        "controller_runtime_reconcile_errors_total",
        "Total number of reconciliation errors per controller",
    ),
    counter(
        "controller_runtime_terminal_reconcile_errors_total",
        "Total number of terminal reconciliation errors per controller",
    ),
    counter(
        "controller_runtime_reconcile_panics_total",
        "Total number of reconciliation panics per controller",
    ),
    counter(
        "controller_runtime_reconcile_timeouts_total",
        "Total number of reconciliation timeouts per controller",
    ),
    histogram(
        "controller_runtime_reconcile_time_seconds",
        "Length of time per reconciliation per controller",
        &[
            0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7,
            0.8, 0.9, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0,
            10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
        ],
    ),
    gauge(
        "controller_runtime_max_concurrent_reconciles",
        "Maximum number of concurrent reconciles per controller",
    ),
    gauge(
        "controller_runtime_active_workers",
        "Number of currently used workers per controller",
    ),
    // The name and the buckets are those of the waits of a controller-runtime client, without the
    // labels of its operations: here keys wait, and not reads.
    histogram(
        "controller_runtime_consistency_wait_duration_seconds",
        "Length of time keys wait for the cache to observe their own writes per controller",
        &[
            0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 6.0, 8.0, 10.0,
        ],
    ),
];

const ERRORS: usize = 0;
const TERMINAL_ERRORS: usize = 1;
const PANICS: usize = 2;
const TIMEOUTS: usize = 3;
const TIME: usize = 4;
const MAX_WORKERS: usize = 5;
const ACTIVE_WORKERS: usize = 6;
const OWN_WRITES_WAIT: usize = 7;
const SUCCESS: usize = 8;
const REQUEUE_AFTER: usize = 9;
const ERROR_RESULT: usize = 10;

/// The series of a controller.
struct OfController {
    group: Group,
    name: String,
}

impl ControllerMetrics for OfController {
    fn reconciled(&self, result: ReconcileResult, took: Duration) {
        self.group.observe(TIME, took);
        self.group.increment(match result {
            ReconcileResult::Success => SUCCESS,
            ReconcileResult::RequeueAfter => REQUEUE_AFTER,
            ReconcileResult::Error | ReconcileResult::TerminalError => {
                self.group.increment(ERRORS);
                if result == ReconcileResult::TerminalError {
                    self.group.increment(TERMINAL_ERRORS);
                }
                ERROR_RESULT
            }
        });
    }

    fn panicked(&self) {
        self.group.increment(PANICS);
    }

    fn timed_out(&self) {
        self.group.increment(TIMEOUTS);
    }

    fn waited_for_own_writes(&self, waited: Duration) {
        self.group.observe(OWN_WRITES_WAIT, waited);
    }

    fn waits_for_source(&self, source: &str, time: Duration) {
        let labels = [("controller", self.name.as_str()), ("source", source)];
        let series = self.group.map.get(&SOURCE_WAIT, &labels);
        series.set(time.as_secs_f64());
    }

    fn max_concurrent_reconciles(&self, workers: usize) {
        self.group.set(MAX_WORKERS, workers as f64);
    }

    fn active_workers(&self, workers: usize) {
        self.group.set(ACTIVE_WORKERS, workers as f64);
    }
}

static SHARDS: [Family; 2] = [
    gauge(
        "controller_runtime_shards",
        "Number of shards among which the replicas divide the objects",
    ),
    gauge(
        "controller_runtime_shards_with_holder",
        "Number of shards that a replica holds, as seen by this one",
    ),
];

/// The families of a work queue.
static QUEUE: [Family; 7] = [
    gauge("workqueue_depth", "Current depth of workqueue"),
    counter(
        "workqueue_adds_total",
        "Total number of adds handled by workqueue",
    ),
    histogram(
        "workqueue_queue_duration_seconds",
        "How long in seconds an item stays in workqueue before being requested.",
        QUEUE_SECONDS,
    ),
    histogram(
        "workqueue_work_duration_seconds",
        "How long in seconds processing an item from workqueue takes.",
        QUEUE_SECONDS,
    ),
    gauge(
        "workqueue_unfinished_work_seconds",
        "How many seconds of work has been done that is in progress and hasn't been observed by \
     work_duration. Large values indicate stuck threads. One can deduce the number of stuck \
     threads by observing the rate at which this increases.",
    ),
    gauge(
        "workqueue_longest_running_processor_seconds",
        "How many seconds has the longest running processor for workqueue been running.",
    ),
    counter(
        "workqueue_retries_total",
        "Total number of retries handled by workqueue",
    ),
];

const QUEUE_SECONDS: &[f64] = &[
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0,
];

const DEPTH: usize = 0;
const ADDS: usize = 1;
const QUEUE_DURATION: usize = 2;
const WORK_DURATION: usize = 3;
const UNFINISHED_WORK: usize = 4;
const LONGEST_RUNNING: usize = 5;
const RETRIES: usize = 6;

impl WorkQueueMetrics for Group {
    fn depth(&self, items: usize) {
        self.set(DEPTH, items as f64);
    }

    fn added(&self) {
        self.increment(ADDS);
    }

    fn queue_duration(&self, waited: Duration) {
        self.observe(QUEUE_DURATION, waited);
    }

    fn work_duration(&self, worked: Duration) {
        self.observe(WORK_DURATION, worked);
    }

    fn unfinished_work(&self, total: Duration) {
        self.set(UNFINISHED_WORK, total.as_secs_f64());
    }

    fn longest_running_processor(&self, longest: Duration) {
        self.set(LONGEST_RUNNING, longest.as_secs_f64());
    }

    fn retried(&self) {
        self.increment(RETRIES);
    }
}

/// The families of an informer.
static INFORMER: [Family; 3] = [
    gauge(
        "informer_queued_items",
        "Number of items currently queued in the FIFO.",
    ),
    gauge(
        "informer_store_resource_version",
        "The 15 least significant digits of the resource version of the store.",
    ),
    histogram(
        "informer_processing_latency_seconds",
        "Time taken to process events after popping from the queue.",
        &[
            0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
        ],
    ),
];

const QUEUED_ITEMS: usize = 0;
const STORE_VERSION: usize = 1;
const LATENCY: usize = 2;

impl InformerMetrics for Group {
    fn queued_items(&self, items: usize) {
        self.set(QUEUED_ITEMS, items as f64);
    }

    fn processing_latency(&self, latency: Duration) {
        self.observe(LATENCY, latency);
    }

    fn store_resource_version(&self, version: u64) {
        self.set(STORE_VERSION, version as f64);
    }

    fn ended(&self) {
        self.map.end_informer(&self.series);
    }
}

/// The families of a leader elector.
static ELECTOR: [Family; 2] = [
    gauge(
        "leader_election_master_status",
        "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 \
     indicates master. 'name' is the string used to identify the lease. Please make sure to group \
     by name.",
    ),
    counter(
        "leader_election_slowpath_total",
        "Total number of slow path exercised in renewing leader leases. 'name' is the string used to \
     identify the lease. Please make sure to group by name.",
    ),
];

const MASTER_STATUS: usize = 0;
const SLOW_PATH: usize = 1;

impl LeaderElectionMetrics for Group {
    fn is_leader(&self, is_leader: bool) {
        self.set(MASTER_STATUS, is_leader.into());
    }

    fn slow_path(&self) {
        self.increment(SLOW_PATH);
    }
}

#[cfg(test)]
mod tests;

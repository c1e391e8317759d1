//! Metrics in the text format of Prometheus.

mod client;
mod controller;
mod handles;
mod informer;
mod program;
mod series;

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use self::client::ClientSeries;
use self::controller::{ControllerSeries, ElectorSeries, ShardSeries};
pub use self::handles::{Counter, Gauge, Histogram};
use self::informer::{InformerSeries, QueueSeries};
use self::series::{Kind, SeriesMap, counter, family, gauge};
use crate::metrics::{ControllerMetrics, ControllerMetricsProvider, LeaderElectionMetrics};
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
        Arc::new(ClientSeries::new(&self.series))
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
        Arc::new(ElectorSeries::new(&self.series, name))
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
        let series = ShardSeries::new(&self.series, name);
        series.shards.set(count.into());
        series.with_holder.set(held as f64);
    }
}

impl MetricsProvider for MetricsRegistry {
    fn informer_metrics(
        &self,
        name: &str,
        resource: &GroupVersionResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        Some(Arc::new(InformerSeries::new(&self.series, name, resource)))
    }

    fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
        Some(Arc::new(QueueSeries::new(&self.series, name)))
    }
}

impl ControllerMetricsProvider for MetricsRegistry {
    fn controller_metrics(&self, name: &str) -> Option<Arc<dyn ControllerMetrics>> {
        Some(Arc::new(ControllerSeries::new(&self.series, name)))
    }
}

impl fmt::Debug for MetricsRegistry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MetricsRegistry").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

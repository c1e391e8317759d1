//! A metrics provider that exports its figures in version 0.0.4 of the text format of Prometheus.
//!
//! Names, labels, help texts and buckets are those of the components of Kubernetes
//! (`component-base/metrics/prometheus`), if they exist there. The reflector metrics have the names
//! of former client-go versions.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_informer::handler::{HandlerRegistration, HandlerStats};
use k8s_informer::metrics::{InformerMetrics, MetricsProvider};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{ReflectorState, ReflectorStatus};

/// The upper bounds of the buckets, in seconds.
const BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Collects the metrics of informers, reflectors and handlers.
#[derive(Default)]
pub(crate) struct Exporter {
    /// By their labels. Informers with the same labels share their figures.
    informers: Mutex<BTreeMap<String, Arc<Figures>>>,
    reflectors: Mutex<Vec<(String, ReadStatus)>>,
    handlers: Mutex<Vec<(String, HandlerRegistration)>>,
}

type ReadStatus = Box<dyn Fn() -> ReflectorStatus + Send>;

impl MetricsProvider for Exporter {
    fn informer_metrics(
        &self,
        name: &str,
        resource: &GroupVersionResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        let mut informers = lock(&self.informers);
        let figures = informers.entry(labels(name, resource)).or_default();
        figures.informers.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(figures) as _)
    }
}

/// The metrics of informers with the same labels.
struct Figures {
    /// The number of informers that have not ended.
    informers: AtomicUsize,
    queued_items: AtomicUsize,
    store_resource_version: AtomicU64,
    processing_latency: Mutex<Histogram>,
}

impl Default for Figures {
    fn default() -> Self {
        Self {
            informers: AtomicUsize::default(),
            queued_items: AtomicUsize::default(),
            store_resource_version: AtomicU64::default(),
            processing_latency: Mutex::new(Histogram::new(BUCKETS)),
        }
    }
}

impl InformerMetrics for Figures {
    fn queued_items(&self, items: usize) {
        self.queued_items.store(items, Ordering::Relaxed);
    }

    fn processing_latency(&self, latency: Duration) {
        lock(&self.processing_latency).observe(latency.as_secs_f64());
    }

    fn store_resource_version(&self, version: u64) {
        self.store_resource_version
            .store(version, Ordering::Relaxed);
    }

    fn ended(&self) {
        self.informers.fetch_sub(1, Ordering::Relaxed);
    }
}

#[derive(Clone)]
pub(crate) struct Histogram {
    buckets: &'static [f64],
    /// The count of each bucket alone. It does not include the smaller buckets.
    counts: Vec<u64>,
    count: u64,
    sum: f64,
}

impl Histogram {
    pub(crate) fn new(buckets: &'static [f64]) -> Self {
        Self {
            buckets,
            counts: vec![0; buckets.len()],
            count: 0,
            sum: 0.0,
        }
    }

    pub(crate) fn observe(&mut self, value: f64) {
        let bucket = self.buckets.iter().position(|bound| value <= *bound);
        if let Some(count) = bucket.and_then(|bucket| self.counts.get_mut(bucket)) {
            *count += 1;
        }
        self.count += 1;
        self.sum += value;
    }
}

impl Exporter {
    /// Publishes the status of an informer until its reflector has stopped.
    pub(crate) fn read_reflector(
        &self,
        resource: &GroupVersionResource,
        name: &str,
        status: impl Fn() -> ReflectorStatus + Send + 'static,
    ) {
        lock(&self.reflectors).push((labels(name, resource), Box::new(status)));
    }

    /// Publishes the statistics of a handler until the handler has ended.
    pub(crate) fn read_handler(
        &self,
        resource: &GroupVersionResource,
        name: &str,
        handler: HandlerRegistration,
    ) {
        let labels = format!(
            "{},{}",
            labels(name, resource),
            label("handler", handler.name())
        );
        lock(&self.handlers).push((labels, handler));
    }

    /// Returns the current values of all metrics.
    pub(crate) fn text(&self) -> String {
        let mut text = Text::default();
        self.write_informers(&mut text);
        self.write_reflectors(&mut text);
        self.write_handlers(&mut text);
        text.into_string()
    }

    fn write_informers(&self, text: &mut Text) {
        let informers: Vec<(String, Arc<Figures>)> = {
            let mut informers = lock(&self.informers);
            // Remove informers that have ended.
            informers.retain(|_, figures| figures.informers.load(Ordering::Relaxed) > 0);
            informers.clone().into_iter().collect()
        };
        text.family(
            "informer_queued_items",
            "gauge",
            "Number of items currently queued in the FIFO.",
            informers
                .iter()
                .map(|(labels, figures)| (labels, figures.queued_items.load(Ordering::Relaxed))),
        );
        text.family(
            "informer_store_resource_version",
            "gauge",
            "The 15 least significant digits of the resource version of the store.",
            informers.iter().map(|(labels, figures)| {
                (
                    labels,
                    figures.store_resource_version.load(Ordering::Relaxed),
                )
            }),
        );
        text.histograms(
            "informer_processing_latency_seconds",
            "Time taken to process events after popping from the queue.",
            informers
                .iter()
                .map(|(labels, figures)| (labels, lock(&figures.processing_latency).clone())),
        );
    }

    fn write_reflectors(&self, text: &mut Text) {
        let reflectors: Vec<(String, ReflectorStatus)> = {
            let mut reflectors = lock(&self.reflectors);
            let now: Vec<_> = reflectors
                .iter()
                .map(|(labels, status)| (labels.clone(), status()))
                .collect();
            let mut states = now.iter().map(|(_, status)| status.state);
            reflectors.retain(|_| states.next() != Some(ReflectorState::Stopped));
            now
        };
        let mut family = |name, kind, help, figure: fn(&ReflectorStatus) -> Option<u64>| {
            let samples = reflectors
                .iter()
                .filter_map(|(labels, status)| Some((labels, figure(status)?)));
            text.family(name, kind, help, samples);
        };
        family(
            "reflector_lists_total",
            "counter",
            "Total number of API lists done by the reflectors; each page of a list is one.",
            |status| Some(status.lists),
        );
        family(
            "reflector_watches_total",
            "counter",
            "Total number of API watches done by the reflectors.",
            |status| Some(status.watches),
        );
        family(
            "reflector_listed_items",
            "gauge",
            "Number of items returned by the last API list, or by the current one, for the reflectors.",
            |status| Some(status.received as u64),
        );
        family(
            "reflector_last_resource_version",
            "gauge",
            "Last resource version seen for the reflectors, its 15 least significant digits.",
            |status| last_digits(&status.resource_version.as_ref()?.to_string()),
        );
        // The metrics below have no counterpart in client-go.
        family(
            "reflector_unreadable_items_total",
            "counter",
            "Total number of items of API lists and watches that could not be decoded.",
            |status| Some(status.unreadable),
        );
        family(
            "reflector_synced",
            "gauge",
            "Whether the store has received a complete list.",
            |status| Some(status.listed.into()),
        );
    }

    fn write_handlers(&self, text: &mut Text) {
        let handlers: Vec<(String, HandlerStats)> = {
            let mut handlers = lock(&self.handlers);
            handlers.retain(|(_, handler)| !handler.ended().is_done());
            handlers
                .iter()
                .map(|(labels, handler)| (labels.clone(), handler.stats()))
                .collect()
        };
        let mut family = |name, kind, help, figure: fn(&HandlerStats) -> u64| {
            let samples = handlers
                .iter()
                .map(|(labels, stats)| (labels, figure(stats)));
            text.family(name, kind, help, samples);
        };
        family(
            "informer_pending_notifications",
            "gauge",
            "Number of pending notifications in the processor listener ring buffer.",
            |stats| stats.waiting as u64,
        );
        // The metrics below have no counterpart in client-go.
        family(
            "informer_notifications_total",
            "counter",
            "Total number of notifications delivered to a handler.",
            |stats| stats.delivered,
        );
        family(
            "informer_merged_notifications_total",
            "counter",
            "Total number of notifications merged into another one before delivery.",
            |stats| stats.merged,
        );
        family(
            "informer_handler_panics_total",
            "counter",
            "Total number of handler calls that panicked.",
            |stats| stats.panics,
        );
    }
}

/// Builds the text format.
#[derive(Default)]
pub(crate) struct Text(String);

impl Text {
    pub(crate) fn into_string(self) -> String {
        self.0
    }

    pub(crate) fn family<'a>(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl Iterator<Item = (&'a String, impl Display)>,
    ) {
        self.head(name, kind, help);
        for (labels, value) in samples {
            self.line(name, labels, value);
        }
    }

    pub(crate) fn histograms<'a>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl Iterator<Item = (&'a String, Histogram)>,
    ) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (
            labels,
            Histogram {
                buckets,
                counts,
                count,
                sum,
            },
        ) in samples
        {
            let comma = if labels.is_empty() { "" } else { "," };
            let mut so_far = 0;
            for (bound, count) in buckets.iter().zip(counts) {
                so_far += count;
                self.line(
                    &bucket,
                    &format!("{labels}{comma}{}", label("le", &bound.to_string())),
                    so_far,
                );
            }
            self.line(
                &bucket,
                &format!("{labels}{comma}{}", label("le", "+Inf")),
                count,
            );
            self.line(&format!("{name}_sum"), labels, sum);
            self.line(&format!("{name}_count"), labels, count);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', r"\\").replace('\n', r"\n");
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn line(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{name}{{{labels}}} {value}");
    }
}

/// Returns the labels that identify the series of one informer.
fn labels(name: &str, resource: &GroupVersionResource) -> String {
    let labels = [
        ("name", name),
        ("group", &*resource.group),
        ("version", &*resource.version),
        ("resource", &*resource.resource),
    ];
    labels.map(|(name, value)| label(name, value)).join(",")
}

pub(crate) fn label(name: &str, value: &str) -> String {
    format!(
        "{name}=\"{}\"",
        value
            .replace('\\', r"\\")
            .replace('"', "\\\"")
            .replace('\n', r"\n")
    )
}

/// Returns the last 15 digits of `version`, which a float represents exactly, or `None` if
/// `version` is not a number.
fn last_digits(version: &str) -> Option<u64> {
    let digits = version.get(version.len().saturating_sub(15)..)?;
    digits.parse().ok()
}

/// Locks `mutex`. After a panic of another thread, a scrape shows the values as they are.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

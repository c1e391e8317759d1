//! The metrics of informers and work queues, with the names of client-go and of its components.

use std::sync::Arc;
use std::time::Duration;

use super::handles::{Counter, Gauge, Histogram, Labelled};
use super::series::SeriesMap;
use k8s_informer::metrics::{InformerMetrics, WorkQueueMetrics};
use k8s_informer::object::GroupVersionResource;

/// The series of an informer. Informers with the same name and resource share them.
pub(super) struct InformerSeries {
    map: Arc<SeriesMap>,
    queued_items: Gauge,
    store_resource_version: Gauge,
    processing_latency: Histogram,
}

impl InformerSeries {
    pub(super) fn new(map: &Arc<SeriesMap>, name: &str, resource: &GroupVersionResource) -> Self {
        let labels = &[
            ("name", name),
            ("group", &resource.group),
            ("version", &resource.version),
            ("resource", &resource.resource),
        ];
        let of = Labelled::of_informer(map, labels);
        Self {
            map: Arc::clone(map),
            queued_items: of.gauge(
                "informer_queued_items",
                "Number of items currently queued in the FIFO.",
            ),
            store_resource_version: of.gauge(
                "informer_store_resource_version",
                "The 15 least significant digits of the resource version of the store.",
            ),
            processing_latency: of.histogram(
                "informer_processing_latency_seconds",
                "Time taken to process events after popping from the queue.",
                &[
                    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
                ],
            ),
        }
    }
}

impl InformerMetrics for InformerSeries {
    fn queued_items(&self, items: usize) {
        self.queued_items.set(items as f64);
    }

    fn processing_latency(&self, latency: Duration) {
        self.processing_latency.observe_time(latency);
    }

    fn store_resource_version(&self, version: u64) {
        self.store_resource_version.set(version as f64);
    }

    fn ended(&self) {
        // The compiler names a series that is forgotten here.
        let Self {
            map,
            queued_items,
            store_resource_version,
            processing_latency,
        } = self;
        map.end_informer([
            &queued_items.series,
            &store_resource_version.series,
            &processing_latency.series,
        ]);
    }
}

const QUEUE_SECONDS: &[f64] = &[
    1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 100.0, 1000.0,
];

/// The series of a work queue.
pub(super) struct QueueSeries {
    depth: Gauge,
    adds: Counter,
    queue_duration: Histogram,
    work_duration: Histogram,
    unfinished_work: Gauge,
    longest_running_processor: Gauge,
    retries: Counter,
}

impl QueueSeries {
    pub(super) fn new(map: &SeriesMap, name: &str) -> Self {
        let labels = &[("name", name), ("controller", name)];
        let of = Labelled::new(map, labels);
        Self {
            depth: of.gauge("workqueue_depth", "Current depth of workqueue"),
            adds: of.counter(
                "workqueue_adds_total",
                "Total number of adds handled by workqueue",
            ),
            queue_duration: of.histogram(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested.",
                QUEUE_SECONDS,
            ),
            work_duration: of.histogram(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                QUEUE_SECONDS,
            ),
            unfinished_work: of.gauge(
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has been done that is in progress and hasn't been observed by \
                 work_duration. Large values indicate stuck threads. One can deduce the number of stuck \
                 threads by observing the rate at which this increases.",
            ),
            longest_running_processor: of.gauge(
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
            ),
            retries: of.counter(
                "workqueue_retries_total",
                "Total number of retries handled by workqueue",
            ),
        }
    }
}

impl WorkQueueMetrics for QueueSeries {
    fn depth(&self, items: usize) {
        self.depth.set(items as f64);
    }

    fn added(&self) {
        self.adds.increment();
    }

    fn queue_duration(&self, waited: Duration) {
        self.queue_duration.observe_time(waited);
    }

    fn work_duration(&self, worked: Duration) {
        self.work_duration.observe_time(worked);
    }

    fn unfinished_work(&self, total: Duration) {
        self.unfinished_work.set(total.as_secs_f64());
    }

    fn longest_running_processor(&self, longest: Duration) {
        self.longest_running_processor.set(longest.as_secs_f64());
    }

    fn retried(&self) {
        self.retries.increment();
    }
}

//! Metrics of informers, work queues and clients, for the metrics library of your choice.
//!
//! To collect metrics, implement a trait and pass it to a factory, a queue or a client. Without an
//! implementation, nothing is measured.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`MetricsProvider`] | creates the metrics of each informer of a factory | `InformerMetricsProvider` |
//! | [`InformerMetrics`] | queue length, latency and version of one informer | `informer_metrics.go` |
//! | [`WorkQueueMetrics`] | depth, latency, retries of a work queue | `workqueue.MetricsProvider` |
//! | `ClientMetrics` | requests, latency and retries of a client | `tools/metrics` |
//!
//! `examples/metrics` serves them in the Prometheus format. [`InformerMetrics`] has an example.

#[cfg(feature = "client")]
mod client;
pub(crate) mod meter;
mod shares;
mod work_queue;

use std::sync::Arc;
use std::time::Duration;

use crate::object::GroupVersionResource;
#[cfg(feature = "client")]
pub use client::ClientMetrics;
pub(crate) use meter::{Meter, call, resource_version_metric};
pub(crate) use shares::shares;
pub use work_queue::WorkQueueMetrics;

/// Receives the metrics of an informer's queue and store. A [`MetricsProvider`] creates an
/// `InformerMetrics` for each informer, or you pass one to a single queue, store or informer. In
/// client-go, each method is a separate metric.
///
/// Every method has a default that does nothing. The threads that write and process call these
/// methods, so they must be fast. A lock of the metrics is held during a call, so a method must not
/// write to the measured queue or store. A panic is caught and logged. Without metrics, nothing is
/// measured.
///
/// ```
/// use k8s_informer::metrics::InformerMetrics;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::{DeltaFifo, DeltaFifoOptions};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// #[derive(Default)]
/// struct Depth(AtomicUsize);
///
/// impl InformerMetrics for Depth {
///     fn queued_items(&self, items: usize) {
///         self.0.store(items, Ordering::Relaxed);
///     }
/// }
///
/// let depth = Arc::new(Depth::default());
/// let accessor = Accessor::new(|word: &String| Ok::<_, KeyError>(word.as_str().into()));
/// let queue = DeltaFifo::with_options(accessor, DeltaFifoOptions::new().metrics(depth.clone()));
/// queue.add(Arc::new("a".to_owned()))?;
/// assert_eq!(depth.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait InformerMetrics: Send + Sync + 'static {
    /// The current length of the queue: keys in a [`DeltaFifo`](crate::queue::DeltaFifo), changes
    /// in a [`RealFifo`](crate::queue::RealFifo). For an informer of several namespaces, it is the
    /// total of all queues. Kubernetes publishes it as the gauge `informer_queued_items`.
    fn queued_items(&self, items: usize) {
        let _ = items;
    }

    /// The duration of processing one item or one batch. Kubernetes publishes it as the histogram
    /// `informer_processing_latency_seconds`.
    fn processing_latency(&self, latency: Duration) {
        let _ = latency;
    }

    /// The resource version of the store: its last 15 digits, which an `f64` represents exactly, or
    /// 0 if there is no version. Not called for versions that are not numbers. Kubernetes publishes
    /// it as the gauge `informer_store_resource_version`.
    fn store_resource_version(&self, version: u64) {
        let _ = version;
    }

    /// The informer has ended, or was dropped without running. You can remove its metrics.
    fn ended(&self) {}
}

/// Creates the metrics of informers and work queues. client-go's
/// `InformerMetricsProvider`, and the `MetricsProvider` of its work queues.
///
/// A factory [with a provider](crate::informer::FactoryOptions::metrics) calls it for
/// each informer that it creates. The informer uses the returned metrics until it
/// [ends](InformerMetrics::ended). A panic in the provider is logged, and the informer has no
/// metrics.
///
/// Two informers, or two work queues, may have the same labels: a name does not have to be unique,
/// and a factory can have several informers for one resource, with different types or scopes. The
/// provider decides whether to distinguish them or to let them share their values.
///
/// Other statistics need no provider: you can read [`SharedIndexInformer::status`] and
/// [`HandlerRegistration::stats`] at any time. `examples/metrics` publishes all of them.
///
/// [`SharedIndexInformer::status`]: crate::SharedIndexInformer::status
/// [`HandlerRegistration::stats`]: crate::handler::HandlerRegistration::stats
///
/// ```
/// use k8s_informer::informer::FactoryOptions;
/// use k8s_informer::metrics::{InformerMetrics, MetricsProvider};
/// use k8s_informer::object::GroupVersionResource;
/// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::Pod;
/// use std::collections::HashMap;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::{Arc, Mutex};
///
/// /// The resourceVersion of each informer's store.
/// #[derive(Default)]
/// struct Versions(Mutex<HashMap<String, Arc<Version>>>);
///
/// #[derive(Default)]
/// struct Version(AtomicU64);
///
/// impl InformerMetrics for Version {
///     fn store_resource_version(&self, version: u64) {
///         self.0.store(version, Ordering::Relaxed);
///     }
/// }
///
/// impl MetricsProvider for Versions {
///     fn informer_metrics(&self, name: &str, resource: &GroupVersionResource) -> Option<Arc<dyn InformerMetrics>> {
///         let version = Arc::new(Version::default());
///         self.0.lock().unwrap().insert(format!("{name} {resource}"), version.clone());
///         Some(version)
///     }
/// }
///
/// let server = ApiServer::start()?;
/// server.create("/api/v1/namespaces/default/pods", serde_json::json!({"metadata": {"name": "web-0"}}))?;
/// let versions = Arc::new(Versions::default());
/// let factory = SharedInformerFactory::with_options(Client::new(Config::new(server.url()))?, FactoryOptions::new().metrics("my-agent", versions.clone()));
/// factory.informer::<Pod>();
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
/// assert!(versions.0.lock().unwrap()["my-agent pods.v1"].0.load(Ordering::Relaxed) > 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait MetricsProvider: Send + Sync + 'static {
    /// Returns the metrics of an informer of this resource, in a factory with this name. The default
    /// is `None`, for no metrics. Called on the thread that creates the informer, without a lock.
    /// If two threads request the same new informer at once, this method can be called twice; one of
    /// the two informers ends immediately.
    fn informer_metrics(
        &self,
        name: &str,
        resource: &GroupVersionResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        let _ = (name, resource);
        None
    }

    /// Returns the metrics of a work queue. The default is `None`, for no metrics.
    /// [`WorkQueueBuilder::metrics_provider`](crate::workqueue::WorkQueueBuilder::metrics_provider)
    /// calls this method.
    fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
        let _ = name;
        None
    }
}

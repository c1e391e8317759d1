//! Metrics of informers, work queues and clients, for the metrics library of your choice.
//!
//! Implement a trait and give it to a factory, a queue or a client; without one nothing is measured.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`MetricsProvider`] | creates the metrics of each informer of a factory | `InformerMetricsProvider` |
//! | [`InformerMetrics`] | queue length, latency and version of one informer | `informer_metrics.go` |
//! | [`InformerName`] | names an informer, once in a process | `identity.go` |
//! | [`WorkQueueMetrics`] | depth, latency, retries of a work queue | `workqueue.MetricsProvider` |
//! | `ClientMetrics` | requests, latency and retries of a client | `tools/metrics` |
//!
//! `examples/metrics` serves all of them in Prometheus' format. [`InformerMetrics`] has an example.

#[cfg(feature = "client")]
mod client;
mod identity;
mod meter;
mod shares;
mod work_queue;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "client")]
pub use client::ClientMetrics;
pub(crate) use identity::ReservedMetrics;
pub use identity::{InformerName, InformerNameAndResource, InformerNameError};
pub(crate) use meter::{Meter, call, resource_version_metric};
pub(crate) use shares::shares;
pub use work_queue::WorkQueueMetrics;

/// Is told how an informer's queue and store stand; asked for with a [`MetricsProvider`], or given to one
/// queue, store or informer by hand. In client-go each of the figures is a metric of its own.
///
/// Each has a default that does nothing. They are called by the threads that write and process, so they must
/// be quick, and under a lock of the metrics' own, so they must not write to what they measure; a panic in
/// one is logged. Where nobody wants to know, nothing is measured.
///
/// ```
/// use k8s_informer::metrics::InformerMetrics;
/// use k8s_informer::object::{Accessor, KeyError};
/// use k8s_informer::queue::DeltaFifo;
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
/// let queue = DeltaFifo::builder(accessor).metrics(depth.clone()).build();
/// queue.add(Arc::new("a".to_owned()))?;
/// assert_eq!(depth.0.load(Ordering::Relaxed), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait InformerMetrics: Send + Sync + 'static {
    /// How much waits in the queue now: keys in a [`DeltaFifo`](crate::queue::DeltaFifo), changes in a
    /// [`RealFifo`](crate::queue::RealFifo) (R22); of an informer of several namespaces, in all its queues together.
    /// Kubernetes publishes it as the gauge `informer_queued_items`.
    fn queued_items(&self, items: usize) {
        let _ = items;
    }

    /// How long the processing of one item, or of one batch, took (R22): the histogram
    /// `informer_processing_latency_seconds`.
    fn processing_latency(&self, latency: Duration) {
        let _ = latency;
    }

    /// The resourceVersion of the store: its last fifteen digits, which a `f64` holds exactly; 0 if there is
    /// none. Not called for one that isn't a number (X13). The gauge `informer_store_resource_version`.
    fn store_resource_version(&self, version: u64) {
        let _ = version;
    }

    /// The shared informer has ended: it tells nothing any more, and its figures can go.
    fn ended(&self) {}
}

/// Gives each informer, and each work queue, whom to tell. client-go's `InformerMetricsProvider`, and the
/// `MetricsProvider` of its work queues.
///
/// A factory that [has one](crate::informer::SharedInformerFactoryBuilder::metrics) asks it for each informer that it
/// makes. What it answers is told until the informer has ended, or its [name](InformerName) is released; a
/// provider that is asked what there is leaves out whoever is not
/// [reserved](InformerNameAndResource::is_reserved) any more. A panic in it is logged, and the informer has
/// no metrics.
///
/// What else is worth publishing needs nobody to be told: [`SharedIndexInformer::status`] and
/// [`HandlerRegistration::stats`] can be read whenever somebody asks. `examples/metrics` publishes all of it.
///
/// [`SharedIndexInformer::status`]: crate::SharedIndexInformer::status
/// [`HandlerRegistration::stats`]: crate::handler::HandlerRegistration::stats
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
/// use k8s_informer::metrics::{InformerMetrics, InformerName, InformerNameAndResource, MetricsProvider};
/// use k8s_openapi::api::core::v1::Pod;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::sync::{Arc, Mutex};
///
/// /// The resourceVersion of each informer's store.
/// #[derive(Default)]
/// struct Versions(Mutex<Vec<(InformerNameAndResource, Arc<Version>)>>);
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
///     fn informer_metrics(&self, informer: InformerNameAndResource) -> Option<Arc<dyn InformerMetrics>> {
///         let version = Arc::new(Version::default());
///         self.0.lock().unwrap().push((informer, version.clone()));
///         Some(version)
///     }
/// }
///
/// let server = ApiServer::start()?;
/// server.create("/api/v1/namespaces/default/pods", serde_json::json!({"metadata": {"name": "web-0"}}))?;
/// let versions = Arc::new(Versions::default());
/// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?)
///     .metrics(InformerName::new("my-agent")?, versions.clone())
///     .build();
/// factory.informer::<Pod>();
/// let stop = Stop::new();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(&stop)?;
/// {
///     let versions = versions.0.lock().unwrap();
///     let (informer, version) = &versions[0];
///     assert_eq!(informer.to_string(), "my-agent pods.v1");
///     assert!(informer.is_reserved() && version.0.load(Ordering::Relaxed) > 0);
/// }
/// factory.shutdown();
/// assert!(!versions.0.lock().unwrap()[0].0.is_reserved());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait MetricsProvider: Send + Sync + 'static {
    /// Whom an informer tells; `None`, the default, for nobody. Asked once for each informer, on the thread
    /// that makes it and under a lock of the factory's: it must not ask the factory for an informer.
    fn informer_metrics(
        &self,
        informer: InformerNameAndResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        let _ = informer;
        None
    }

    /// Whom a work queue of this name tells; `None`, the default, for nobody. Asked by
    /// [`WorkQueueBuilder::metrics_provider`](crate::workqueue::WorkQueueBuilder::metrics_provider). Two
    /// queues may have one name: it is the provider that tells them apart, or adds them up.
    fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
        let _ = name;
        None
    }
}

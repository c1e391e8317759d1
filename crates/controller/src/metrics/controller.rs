use std::sync::Arc;
use std::time::Duration;

use k8s_informer::metrics::MetricsProvider;

/// Creates the metrics of controllers, besides those of their informers and work queues.
///
/// [`ControllerBuilder::metrics`](crate::ControllerBuilder::metrics) takes one. The controllers of a
/// [`Manager`](crate::Manager) use its [`MetricsRegistry`](crate::MetricsRegistry).
/// [`ControllerMetrics`] has an example.
pub trait ControllerMetricsProvider: MetricsProvider {
    /// Returns the metrics of a controller. The default is `None`, for no metrics. Called once for
    /// each controller, on the thread that builds it, without a lock. The work queue of the
    /// controller has the same name and its
    /// [own metrics](MetricsProvider::work_queue_metrics).
    fn controller_metrics(&self, name: &str) -> Option<Arc<dyn ControllerMetrics>> {
        let _ = name;
        None
    }
}

/// Receives the metrics of a controller. controller-runtime's
/// `pkg/internal/controller/metrics`, where each method is a separate metric. A `ControllerMetrics`
/// belongs to one controller, so its methods have no parameter for the controller's name.
/// [`ControllerMetricsProvider`] creates it.
///
/// Every method has a default that does nothing. The worker threads call these methods, so they
/// must be fast. A lock of the metrics is held during a call, so a method must not use the
/// controller. A panic is caught and logged. Without metrics, nothing is measured.
///
/// [`MetricsRegistry`](crate::MetricsRegistry) implements this trait for Prometheus. As
/// there, publish each counter as 0 from the start: an alert on an increase misses the first error
/// of a series that begins at 1.
///
/// ```
/// use k8s_informer::metrics::MetricsProvider;
/// use k8s_informer_controller::metrics::{ControllerMetrics, ControllerMetricsProvider, ReconcileResult};
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct Errors(AtomicU64);
///
/// impl ControllerMetrics for Errors {
///     fn reconciled(&self, result: ReconcileResult, _took: Duration) {
///         if matches!(result, ReconcileResult::Error | ReconcileResult::TerminalError) {
///             self.0.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
///
/// #[derive(Default)]
/// struct Provider(Arc<Errors>);
///
/// impl MetricsProvider for Provider {}
///
/// impl ControllerMetricsProvider for Provider {
///     fn controller_metrics(&self, _name: &str) -> Option<Arc<dyn ControllerMetrics>> {
///         Some(self.0.clone())
///     }
/// }
///
/// let provider = Provider::default();
/// let metrics = provider.controller_metrics("team").unwrap();
/// metrics.reconciled(ReconcileResult::Error, Duration::from_millis(3));
/// metrics.reconciled(ReconcileResult::Success, Duration::from_millis(5));
/// assert_eq!(provider.0.0.load(Ordering::Relaxed), 1);
/// ```
pub trait ControllerMetrics: Send + Sync + 'static {
    /// A reconcile has returned `result` after `took`. Called once for each reconcile, also for one
    /// that panicked or exceeded its time limit. `controller_runtime_reconcile_total`,
    /// `controller_runtime_reconcile_time_seconds`, `controller_runtime_reconcile_errors_total` and
    /// `controller_runtime_terminal_reconcile_errors_total`.
    fn reconciled(&self, result: ReconcileResult, took: Duration) {
        let _ = (result, took);
    }

    /// A reconcile panicked. `controller_runtime_reconcile_panics_total`.
    fn panicked(&self) {}

    /// A reconcile exceeded its time limit. `controller_runtime_reconcile_timeouts_total`.
    fn timed_out(&self) {}

    /// A key waited until the caches contained its own writes. Called once for each wait, before the
    /// reconcile that follows it. `controller_runtime_consistency_wait_duration_seconds`, the
    /// counterpart of controller-runtime's
    /// `controller_runtime_client_consistency_wait_duration_seconds`.
    fn waited_for_own_writes(&self, waited: Duration) {
        let _ = waited;
    }

    /// The controller has waited for this time until the cache of the informer `source` contains what
    /// was committed before its start, or before the term of this leader. Called every second for each
    /// source, and with zero at the end. `controller_runtime_source_wait_seconds`, which
    /// controller-runtime does not have.
    fn waits_for_source(&self, source: &str, time: Duration) {
        let _ = (source, time);
    }

    /// An object has vanished with the finalizer of the controller, and its cleanup begins.
    /// `last_state` is what proves it. `controller_runtime_vanished_objects_total`, which
    /// controller-runtime does not have.
    fn vanished(&self, last_state: LastState) {
        let _ = last_state;
    }

    /// The number of workers. Called before the first reconcile of each term.
    /// `controller_runtime_max_concurrent_reconciles`.
    fn max_concurrent_reconciles(&self, workers: usize) {
        let _ = workers;
    }

    /// The current number of workers that run a reconcile. `controller_runtime_active_workers`.
    fn active_workers(&self, workers: usize) {
        let _ = workers;
    }
}

/// What proves that an object has vanished, for [`ControllerMetrics::vanished`]: the label `last_state`
/// of `controller_runtime_vanished_objects_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LastState {
    /// The deletion event has the last state of the object. The label `final`.
    Final,
    /// The deletion was missed, and the last state that is known has the finalizer. Somebody may have
    /// removed the finalizer by hand meanwhile. The label `tombstone`.
    Tombstone,
}

/// The result of a reconcile, for [`ControllerMetrics::reconciled`]. The label `result` of
/// `controller_runtime_reconcile_total` has three values: a terminal error has the label of an error,
/// and a counter of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReconcileResult {
    /// The key is done. The label `success`.
    Success,
    /// The key is done for now, and is reconciled again after a delay. The label `requeue_after`.
    RequeueAfter,
    /// An error or a panic. The key is retried after a back-off. The label `error`.
    Error,
    /// An error that is not retried. The label `error`.
    TerminalError,
}

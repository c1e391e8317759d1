//! Metrics of controllers and leader electors.
//!
//! [`k8s_informer::metrics`] has those of informers, work queues and clients.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`ControllerMetricsProvider`] | creates the metrics of each controller | |
//! | [`ControllerMetrics`], [`ReconcileResult`] | results and durations of a controller | controller-runtime's `metrics` |
//! | [`LeaderElectionMetrics`] | who leads, slow renewals | `leaderelection.MetricsProvider` |

use k8s_informer::__private::catch;

use crate::log;

mod controller;
mod leader_election;

pub use controller::{ControllerMetrics, ControllerMetricsProvider, ReconcileResult};
pub use leader_election::LeaderElectionMetrics;

/// Calls a method of the metrics, which is user code. A panic is caught and logged.
pub(crate) fn call(record: impl FnOnce()) {
    if let Err(panic) = catch(record) {
        // A panic of the logger cannot be reported.
        drop(catch(|| log::error!("metrics {panic}")));
    }
}

//! Metrics of controllers and leader electors.
//!
//! [`k8s_informer::metrics`] has those of informers, work queues and clients.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`ControllerMetricsProvider`] | creates the metrics of each controller | |
//! | [`ControllerMetrics`], [`ReconcileResult`] | results and durations of a controller | controller-runtime's `metrics` |
//! | [`LeaderElectionMetrics`] | who leads, slow renewals | `leaderelection.MetricsProvider` |

mod controller;
mod leader_election;

pub use controller::{ControllerMetrics, ControllerMetricsProvider, ReconcileResult};
pub use leader_election::LeaderElectionMetrics;

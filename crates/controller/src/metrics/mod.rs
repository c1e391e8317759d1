//! Metrics of controllers and leader electors.
//!
//! [`k8s_informer::metrics`] has those of informers, work queues and clients.
//!
//! | type | purpose | Go |
//! |---|---|---|
//! | [`ControllerMetricsProvider`] | creates the metrics of each controller | |
//! | [`ControllerMetrics`], [`ReconcileResult`] | results and durations of a controller | controller-runtime's `metrics` |
//! | [`LastState`] | what proves that an object has vanished | |
//! | [`LeaderElectionMetrics`] | who leads, slow renewals | `leaderelection.MetricsProvider` |

mod controller;
mod leader_election;

pub use controller::{ControllerMetrics, ControllerMetricsProvider, LastState, ReconcileResult};
pub use leader_election::LeaderElectionMetrics;

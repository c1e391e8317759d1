//! Controllers: reconcile functions, owned objects, finalizers and conditions.
//!
//! A controller calls a reconcile function for each object that has changed. The function compares
//! the desired state in the object with the actual state in the caches, and writes the difference.
//!
//! | type | purpose | counterpart |
//! |---|---|---|
//! | [`Controller`], [`ControllerBuilder`] | one reconcile function for the objects of one kind | `Controller`, `Builder` |
//! | [`Manager`], [`ManagerBuilder`] | runs several controllers, with leader election, probes, metrics and status | `Manager` |
//! | [`Context`] | reads the caches, writes, and ends a call | `Client`, `context.Context` |
//! | [`Next`], [`Failure`] | the outcome of a call | `Result`, `error`, `TerminalError` |
//! | [`Applied`], [`ApplyOptions`] | how `cx.apply` writes an object, and what it did | |
//! | [`Predicate`] | selects the updates that cause a call | `predicate.Predicate` |
//! | [`Condition`], [`Conditions`] | the conditions in a status | `meta.SetStatusCondition` |
//! | [`remove_finalizers`] | removes the finalizers of a controller that is uninstalled | |
//! | [`ControllerStatus`], [`AwaitedWrite`], [`SourceWait`], [`LastFailure`] | what a controller does, what it waits for, and what failed | |
//! | [`ControllerError`] | why a controller or a manager could not be built or run | |
//! | [`MetricsRegistry`] | the metrics, for Prometheus | `metrics.Registry` |
//! | [`Counter`], [`Gauge`], [`Histogram`] | the metrics of your program | `prometheus.Counter` … |
//!
//! This controller creates a ConfigMap for each Deployment:
//!
//! ```
//! use k8s_informer::informer::Source;
//! use k8s_informer::{Client, Config, Object, Stopper};
//! use k8s_informer_controller::{Controller, Next};
//! use k8s_informer_testing::ApiServer;
//! use k8s_openapi::api::apps::v1::Deployment;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use serde_json::json;
//! use std::time::Duration;
//!
//! let server = ApiServer::start()?;
//! let client = Client::new(Config::new(server.url()))?;
//! let controller = Controller::builder(&client, Source::of::<Deployment>(), "notes")
//!     .owns(Source::of::<ConfigMap>())
//!     .by(|cx, deployment| {
//!         if cx.children::<ConfigMap>()?.is_empty() {
//!             let map = json!({"metadata": {"generateName": "notes-"}, "data": {"of": deployment.name()}});
//!             cx.api::<ConfigMap>(Some(cx.namespace())).create(&cx.owned(map)?, cx.stop())?;
//!         }
//!         Ok(Next::Done)
//!     })?;
//!
//! let stop = Stopper::new();
//! let running = std::thread::spawn({ let (controller, stop) = (controller.clone(), stop.signal()); move || controller.run(&stop) });
//! server.create("/apis/apps/v1/namespaces/default/deployments", json!({"metadata": {"name": "web"}}))?;
//! let is_create = |request: &k8s_informer_testing::RequestRecord| request.path().ends_with("/default/configmaps");
//! server.wait_for_requests(|requests| requests.iter().any(is_create), Duration::from_secs(10)).unwrap();
//! stop.stop();
//! running.join().unwrap()?;
//!
//! let maps = server.list("/api/v1/namespaces/default/configmaps")?;
//! assert_eq!(maps["items"].as_array().unwrap().len(), 1);
//! assert_eq!(maps["items"][0]["metadata"]["ownerReferences"][0]["name"], "web");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Modules import only from modules above them in this list.
mod log;
pub mod metrics;
mod rfc3339;
mod timers;

pub mod events;
pub mod leader_election;

mod serve;

mod finalizers;

mod controller;

pub use controller::{
    Applied, ApplyOptions, AwaitedWrite, Condition, ConditionStatus, Conditions, Context,
    Controller, ControllerBuilder, ControllerError, ControllerErrorKind, ControllerStatus, Failure,
    LastFailure, Manager, ManagerBuilder, Next, OwnerError, Predicate, ShardBy, SourceWait,
    annotations_changed, generation_changed, labels_changed,
};
pub use finalizers::{RemovalOutcome, RemoveFinalizersError, RemovedFinalizers, remove_finalizers};
/// The informers and the client, so that a controller needs one dependency.
pub use k8s_informer;
pub use serve::{Counter, Gauge, Histogram, MetricsRegistry};

#[cfg(doc)]
pub mod guide;

/// Compiles the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Support for `ControllerTest`, and for the simulation and the replay of traces.
#[doc(hidden)]
pub mod __private {
    pub use crate::controller::Drive;

    /// The decisions of elections.
    pub mod steps {
        pub use crate::leader_election::steps::*;
    }

    pub mod events {
        pub use crate::events::core::{delivery, event, series};
    }
}

//! Informers for synchronous Rust programs: client-go's `tools/cache` on plain OS threads and
//! blocking HTTP.
//!
//! An informer keeps a local, indexed copy of one kind of Kubernetes objects. It lists the objects,
//! watches for changes, and calls your handlers when they change. Your program reads from the local
//! copy and does not send a request to the API server for each read.
//!
//! This example starts an informer for Pods. It prints the Pods that exist, finds a Pod by its
//! node, and waits for its deletion:
//!
//! ```
//! use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
//! use k8s_informer_testing::ApiServer;
//! use k8s_openapi::api::core::v1::Pod;
//! use serde_json::json;
//!
//! // A test API server inside this program. For a real cluster, use Client::try_default().
//! let server = ApiServer::start()?;
//! let pod = json!({"metadata": {"name": "web-0"}, "spec": {"nodeName": "worker-1", "containers": []}});
//! server.create("/api/v1/namespaces/default/pods", pod)?;
//! let client = Client::new(Config::new(server.url()))?;
//!
//! let factory = SharedInformerFactory::new(client);
//! let pods = factory.informer::<Pod>();
//! pods.add_index("node", |pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())?;
//! let (sender, gone) = std::sync::mpsc::channel();
//! pods.add_event_handler(|handler| handler
//!     .on_add(|pod, initial| println!("+ {} {initial}", pod.name()))
//!     .on_delete(move |pod| sender.send(pod.name().to_owned()).unwrap()))?;
//!
//! let stop = Stop::never(); // In a program: Stop::on_signals()?
//! factory.start(&stop)?;
//! factory.wait_for_cache_sync(None, &stop)?;
//! assert_eq!(pods.lister().by_index("node", "worker-1")?[0].name(), "web-0");
//!
//! server.delete("/api/v1/namespaces/default/pods/web-0")?;
//! assert_eq!(gone.recv()?, "web-0");
//! assert!(pods.lister().list().is_empty(), "the cache is at least as new as the last notification");
//! factory.shut_down(None)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! If you only need callbacks for added, modified and deleted objects, use [`observe`]. It runs the
//! informer for you.
//!
//! # Overview
//!
//! The primary type in this crate is [`SharedIndexInformer`]. One informer holds the cache of one
//! kind of object. The following types work together with it:
//!
//! - A [`SharedInformerFactory`] creates the informers of a program, one for each kind of object
//!   and scope. It starts them together and shuts them down together.
//! - A [`Lister`] reads the cache: by name, by namespace, by label selector, and by your own
//!   indexes.
//! - A [handler](handler::ResourceEventHandler) receives a notification for each change. Each
//!   handler has its own threads, so a slow handler does not delay the others.
//! - A [`Stop`] is a signal that ends informers, requests and waits. It has the role of Go's
//!   `stopCh`. A [`Stopper`] sets it.
//! - A [`Client`] connects to the API server. [`Client::try_default`] uses a kubeconfig, or the
//!   service account of the Pod.
//!
//! Cached objects are shared as `Arc<T>`, so readers have no mutable access. `T` is any type that
//! implements [`Object`]:
//!
//! - the types of `k8s-openapi` (feature `k8s-openapi`);
//! - a custom struct with only the fields that you need ([`impl_object!`]);
//! - [`DynamicObject`], for a kind that is chosen at run time;
//! - [`PartialObjectMetadata`], for metadata only;
//! - [`Compact`], for a typed object that stays JSON until you decode it. Its page helps you choose
//!   between these types.
//!
//! The [`guide`] has a page for each topic, from [getting started](guide::getting_started) to
//! [operations](guide::operations) and [tuning](guide::tuning). [Coming from] maps the names of
//! client-go, controller-runtime and kube to the names of these packages.
//!
//! # Layers and features
//!
//! The layers of an informer are public, in modules with one topic each, and you can use each of
//! them alone: [`reflector`], [`queue`], [`store`], [`handler`], [`informer`] and [`workqueue`]. The
//! [README] lists the features, and its section "Threads" has a picture of the layers.
//!
//! The package [k8s-informer-controller] adds controllers, leader election and Kubernetes events,
//! and [k8s-informer-testing] an API server for tests.
//!
//! # Differences from client-go
//!
//! The types follow the behavior of client-go. The tests replay recordings of it against the types
//! of this crate. [`deviations`] lists the differences that change a program. Rule ids such as K1,
//! D6 or SP12 refer to single rules of client-go's behavior.
//!
//! # Crate features
//!
//! - **client** (default): HTTP, TLS and proxies.
//! - **kubeconfig** (default): kubeconfig files.
//! - **ring** (default) or **aws-lc-rs**: the TLS provider.
//! - **gzip**: compressed lists.
//! - **k8s-openapi**: the types of the `k8s-openapi` crate as objects. Your program selects the
//!   Kubernetes version with a feature of that crate.
//! - **signals**: `Stop::on_signals`.
//!
//! Without default features, the crate contains only the stores, queues, work queues, reflector and
//! informers.
//!
//! [README]: https://docs.rs/crate/k8s-informer/0.1
//! [Coming from]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/coming_from/index.html
//! [k8s-informer-controller]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/index.html
//! [k8s-informer-testing]: https://docs.rs/k8s-informer-testing/0.1/k8s_informer_testing/index.html
//! [`Compact`]: object::Compact
//! [`PartialObjectMetadata`]: object::PartialObjectMetadata
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// Modules import only from modules above them in this list.
mod base;
mod decode_error;
pub mod error;
mod json;
mod log;
pub mod metrics;
pub mod object;
mod resource_version;
pub mod selector;
mod status;
pub mod stop;
pub mod time;

mod entry;
pub mod store;

pub mod queue;
mod wire;

pub mod workqueue;

pub mod reflector;

#[cfg(feature = "client")]
pub mod client;
pub mod handler;
pub mod informer;

#[cfg(feature = "client")]
pub use client::{Client, Config};
/// The crate of the channels that [`ChannelHandler`](handler::ChannelHandler) uses, re-exported for
/// its `Receiver` and its `select!`.
pub use crossbeam_channel;
pub use error::Error;
pub use handler::Notification;
pub use informer::{SharedIndexInformer, SharedInformerFactory, observe};
pub use object::{Deleted, DynamicObject, Object, ObjectMeta, Resource};
pub use selector::Selector;
pub use stop::{Done, Stop, Stopper};
pub use store::{Indexer, Lister};

#[cfg(doc)]
pub mod guide;

/// The differences from client-go that change a program.
#[doc = include_str!("../DEVIATIONS.md")]
#[cfg(doc)]
pub mod deviations {}

#[cfg(simulation)]
pub use crate::base::hash::{on_wait, seed};

/// Support for the macros of this crate, for its fuzz targets and for the replay of traces.
#[doc(hidden)]
pub mod __private {
    pub use crate::__debug_as_display as debug_as_display;
    pub use crate::base::last_problem::LastProblem;
    pub use crate::base::panic::catch;
    #[cfg(feature = "client")]
    pub mod client {
        pub use crate::client::auth::exec::exec_credential;
        pub use crate::client::transport::cancel::ignore_shutdowns;
    }
    pub use crate::metrics::meter::Meter;
    #[cfg(feature = "k8s-openapi")]
    pub mod openapi {
        pub use crate::object::openapi::{Derived, ScopeOf};
    }
    pub use crate::resource_version::Comparable;
    pub mod sync {
        pub use crate::base::sync::*;
    }
    pub use crate::base::text::{EscapedName, EscapedText};
    pub use crate::base::threads::{Owner, Threads, named};
    pub use crate::stop::guard::StopOnDrop;
    #[cfg(feature = "client")]
    pub use crate::time::unix_time::UnixTime;
    pub use serde_json::Error as JsonError;
}

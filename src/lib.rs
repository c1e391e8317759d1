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
//! let factory = SharedInformerFactory::builder(client).build();
//! let pods = factory.informer::<Pod>();
//! pods.add_index("node", |pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect())?;
//! let (sender, gone) = std::sync::mpsc::channel();
//! pods.add_event_handler(|handler| handler
//!     .on_add(|pod, initial| println!("+ {} {initial}", pod.name()))
//!     .on_delete(move |pod| sender.send(pod.name().to_owned()).unwrap()))?;
//!
//! let stop = Stop::new();
//! factory.start(&stop)?;
//! factory.wait_for_cache_sync(&stop)?;
//! assert_eq!(pods.lister().by_index("node", "worker-1")?[0].name(), "web-0");
//!
//! server.delete("/api/v1/namespaces/default/pods/web-0")?;
//! assert_eq!(gone.recv()?, "web-0");
//! assert!(pods.lister().list().is_empty(), "the cache is at least as new as the last notification");
//! factory.shutdown();
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
//!   `stopCh`.
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
//! The rest of this page is organized as follows:
//!
//! - [Layers](#layers) lists the building blocks, each of which you can use alone.
//! - [Features](#features) gives a summary of what informers support.
//! - [Differences from client-go](#differences-from-client-go) explains how closely the crate
//!   follows client-go.
//! - [Crate features](#crate-features) lists the Cargo features.
//!
//! The [`guide`] has a page for each topic, from [getting started](guide::getting_started) to
//! [operations](guide::operations) and [tuning](guide::tuning). [Coming from] maps the names of
//! client-go, kube and microbean to the names of these packages.
//!
//! # Layers
//!
//! You can use each layer alone:
//!
//! | layer | types |
//! |---|---|
//! | source of objects | [`ListerWatcher`]: a resource of a client, two closures ([`ListWatch`]), or a custom transport |
//! | keeps a store equal to the server | [`Reflector`], which writes to any [`ReflectorStore`] |
//! | queues of changes | [`DeltaFifo`] and [`RealFifo`], both of which implement [`Queue`] |
//! | a queue of objects | [`Fifo`], ordered by arrival |
//! | reflector, queue and process loop | [`Controller`], [`new_informer`], [`new_indexer_informer`] |
//! | caches | [`Indexer`] and [`ThreadSafeStore`], read through a [`Lister`]; [`ExpirationCache`] |
//! | work queues for controllers | [`WorkQueue`](workqueue::WorkQueue), [delaying](workqueue::DelayingQueue), [rate limiting](workqueue::RateLimitingQueue), [with priorities](workqueue::PriorityQueue) |
//! | one cache with many handlers | [`SharedIndexInformer`], [`SharedInformerFactory`] |
//! | connection and credentials | [`Config`], [`KubeconfigOptions`], [`ExecConfig`]; [`Client`], which sends any [`Request`] |
//! | read, watch and write without a cache | [`Api`], [`Patch`], [`retry_on_conflict`] |
//! | waits for one object; CustomResourceDefinitions | [`Api::wait_for`](client::api::Api::wait_for), [`Client::install_crds`] |
//! | discovery, by kind or by the names that kubectl accepts | [`Client::discover`], [`Client::discover_kind`], [`Discovery`] |
//!
//! The package [k8s-informer-controller] adds controllers, leader election and Kubernetes events,
//! and [k8s-informer-testing] an API server for tests.
//!
//! # Features
//!
//! Here is a list of things that informers support:
//!
//! - **Handlers.** A handler is a set of [closures](handler::HandlerFuncs), a custom type that
//!   implements [`ResourceEventHandler`], a [`FilteringHandler`] around another handler, or a
//!   [`ChannelHandler`] whose receiver works in a `select!`. Each handler has
//!   [options](handler::HandlerOptions): a name, a resync period, and a
//!   [buffer](handler::HandlerBuffer). The buffer keeps every notification, or merges the
//!   notifications of one object. [Statistics](handler::HandlerStats) of each handler are available
//!   at any time.
//! - **Selection.** An [`InformerScope`] selects objects by namespace, by label and field
//!   selectors, or as one [`Shard`] of several (experimental). Each namespace has its own list and
//!   watch. One factory can hold informers of the same type with different scopes.
//! - **Freshness.** [`store_resource_version`] returns the version that the cache has reached.
//!   [`wait_for_resource_version`] and [`wait_for_object`] wait until the cache contains your own
//!   write.
//! - **Status.** [`status`](SharedIndexInformer::status) returns the state, progress, last contact
//!   and last error of an informer at any time. It prints as [one
//!   line](reflector::ReflectorStatus).
//! - **Waits with reasons.** Waits for the initial sync take a deadline, and [their
//!   error](informer::SyncError) lists what each informer is missing.
//! - **Shutdown.** You can [stop one informer](SharedInformerFactory::stop_informer) of a factory.
//!   [A shutdown with a timeout](SharedInformerFactory::shutdown_timeout) returns the names of
//!   threads that are blocked in your callbacks.
//! - **Isolation.** A panic in a handler is caught, logged and counted.
//!   [Operations](guide::operations#panics-in-callbacks) lists the other callbacks.
//! - **Configuration.** [`Client::try_default`] reads kubeconfigs with certificates, tokens,
//!   plugins and proxies, or the service account of a Pod. Changed files of tokens and certificates
//!   take effect with the next request.
//! - **Metrics.** A [`MetricsProvider`] creates the metrics of each informer, under an
//!   [`InformerName`].
//! - **Logs.** Messages go to the `log` facade. They quote no objects, but the texts of errors from
//!   the server and of panics. [Operations](guide::operations) lists the levels.
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
//! [Coming from]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/coming_from/index.html
//! [k8s-informer-controller]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/index.html
//! [k8s-informer-testing]: https://docs.rs/k8s-informer-testing/0.1/k8s_informer_testing/index.html
//! [`Api`]: client::api::Api
//! [`ChannelHandler`]: handler::ChannelHandler
//! [`Compact`]: object::Compact
//! [`Controller`]: informer::Controller
//! [`DeltaFifo`]: queue::DeltaFifo
//! [`Discovery`]: client::discovery::Discovery
//! [`ExecConfig`]: client::ExecConfig
//! [`ExpirationCache`]: store::ExpirationCache
//! [`Fifo`]: queue::Fifo
//! [`FilteringHandler`]: handler::FilteringHandler
//! [`InformerName`]: metrics::InformerName
//! [`InformerScope`]: informer::InformerScope
//! [`KubeconfigOptions`]: client::KubeconfigOptions
//! [`ListWatch`]: reflector::ListWatch
//! [`ListerWatcher`]: reflector::ListerWatcher
//! [`MetricsProvider`]: metrics::MetricsProvider
//! [`PartialObjectMetadata`]: object::PartialObjectMetadata
//! [`Patch`]: client::api::Patch
//! [`Queue`]: queue::Queue
//! [`RealFifo`]: queue::RealFifo
//! [`Reflector`]: reflector::Reflector
//! [`ReflectorStore`]: store::ReflectorStore
//! [`Request`]: client::Request
//! [`ResourceEventHandler`]: handler::ResourceEventHandler
//! [`Shard`]: reflector::Shard
//! [`ThreadSafeStore`]: store::ThreadSafeStore
//! [`new_indexer_informer`]: informer::new_indexer_informer
//! [`new_informer`]: informer::new_informer
//! [`retry_on_conflict`]: client::api::retry_on_conflict
//! [`store_resource_version`]: SharedIndexInformer::store_resource_version
//! [`wait_for_resource_version`]: SharedIndexInformer::wait_for_resource_version
//! [`wait_for_object`]: SharedIndexInformer::wait_for_object
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
pub use stop::{Done, Stop};
pub use store::{Indexer, Lister};

#[cfg(doc)]
pub mod guide;

/// The differences from client-go that change a program.
#[doc = include_str!("../DEVIATIONS.md")]
#[cfg(doc)]
pub mod deviations {}

/// Support for the macros of this crate, for its fuzz targets and for the replay of traces.
#[doc(hidden)]
pub mod __private {
    pub use crate::__debug_as_display as debug_as_display;
    pub use crate::base::panic::catch;
    #[cfg(feature = "client")]
    pub use crate::client::auth::exec::exec_credential;
    pub use crate::informer::listener::RingGrowing;
    pub use crate::metrics::meter::Meter;
    pub use crate::object::full_metadata::FullMetadataField;
    pub use crate::object::meta::ObjectMetadata;
    pub use crate::queue::sealed::Sealed;
    pub use crate::store::staging::{Gaps, Staging};
    pub mod sync {
        pub use crate::base::sync::*;
    }
    pub use crate::base::text::{EscapedName, EscapedText};
    pub use crate::base::threads::{Owner, Threads, named};
    #[cfg(feature = "client")]
    pub use crate::time::unix_time::UnixTime;
    pub use serde_json::Error as JsonError;
}

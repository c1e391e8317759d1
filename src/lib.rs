//! client-go's `tools/cache` for synchronous Rust: a local, indexed, always fresh copy of a kind of
//! Kubernetes objects, and callbacks for every change, on plain OS threads over blocking HTTP.
//!
//! # In short
//!
//! A [`SharedInformerFactory`] gives one [`SharedIndexInformer`] for each kind of objects. It lists them,
//! watches from there on, keeps its cache equal to the server, and calls each [handler](handler::ResourceEventHandler)
//! on a thread of the handler's own. You read the cache through a [`Lister`], and end it all with a [`Stop`].
//!
//! ```
//! use k8s_informer::testing::ApiServer;
//! use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
//! use k8s_openapi::api::core::v1::Pod;
//! use serde_json::json;
//!
//! // A cluster, here one inside of this program. With a real one: Client::try_default().
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
//! assert!(pods.lister().list().is_empty(), "the cache is as new as what a handler is told");
//! factory.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Who wants no more than to be told when something is added, modified or deleted calls [`observe`], which
//! takes care of all of that. Where the names of other systems are to be found here: [`coming_from`].
//!
//! # What it is made of
//!
//! Each layer can be used by itself, as in Go:
//!
//! | layer | types |
//! |---|---|
//! | what is listed and watched | [`ListerWatcher`]: a client's resource, two closures ([`ListWatch`]), a transport of your own |
//! | keeps a store equal to the server | [`Reflector`] into any [`ReflectorStore`] |
//! | queues of changes | [`DeltaFifo`] and [`RealFifo`], each a [`Queue`] |
//! | queues of objects | [`Fifo`] by arrival, [`Heap`] by urgency |
//! | a reflector, a queue, and the loop that empties it | [`Controller`], [`new_informer`], [`new_indexer_informer`] |
//! | caches | [`Indexer`], [`ThreadSafeStore`], read through a [`Lister`]; [`ExpirationCache`], [`UndeltaStore`] |
//! | your own writes, seen before the watch brings them | [`MutationCache`], of an informer: [`mutation_cache`] |
//! | queues of what is to be done, for controllers | [`WorkQueue`](workqueue::WorkQueue), [delaying](workqueue::DelayingQueue), [rate limiting](workqueue::RateLimitingQueue) |
//! | one cache, many handlers | [`SharedIndexInformer`], [`SharedInformerFactory`] |
//! | the way to the server, and who asks | [`Config`], [`KubeconfigOptions`], [`ExecConfig`]; [`Client`], any [`Request`] |
//! | objects read, watched and written without a cache | [`Api`], [`Patch`], [`retry_on_conflict`] |
//! | what the server serves, by kind or by kubectl's names | [`Client::discover`], [`Client::discover_kind`], [`Discovery`] |
//!
//! Objects are whatever implements [`Object`]: k8s-openapi's types (feature `k8s-openapi`), structs of your
//! own with just the fields that you need ([`impl_object!`]), any kind at run time ([`DynamicObject`]), or
//! metadata alone ([`PartialObjectMetadata`]). A [`Compact`] object stays its JSON until somebody reads it,
//! and says when which of them is the cheapest. They are shared as `Arc<T>`: nobody who reads the cache can
//! change it.
//!
//! # What else it does
//!
//! - **Handlers** are [closures](handler::HandlerFuncs), types of your own ([`ResourceEventHandler`]), a
//!   [`FilteringHandler`] around either, or a [`ChannelHandler`], whose receiver goes into a `select!`. Each
//!   has [options](handler::HandlerOptions): a name, a resync period, and a [buffer](handler::HandlerBuffer) that keeps every
//!   event or merges those of one object. [How it fares](handler::HandlerStats) can be read.
//! - **Which objects**: an [`InformerScope`] has namespaces, each listed and watched by itself, label and
//!   field selectors, or one [`Shard`] of several (experimental). Informers of one type with different scopes
//!   live in one factory.
//! - **How fresh**: [`store_resource_version`] tells how far the cache has come;
//!   [`wait_for_resource_version`] and [`wait_for_object`] wait for what you wrote.
//! - **Its life**: [`status`](SharedIndexInformer::status) has state, progress, last contact and last error
//!   at any time, and prints as [one line](reflector::ReflectorStatus); waits for a sync take a deadline and [say](informer::SyncError) what each informer lacks; one
//!   informer [can be stopped](SharedInformerFactory::stop_informer), and [a
//!   shutdown](SharedInformerFactory::shutdown_timeout) names the threads that are stuck in a callback of
//!   yours. A panic in one is caught, logged and counted.
//! - **Where it connects**: wherever kubectl does, by [`Client::try_default`]: kubeconfigs with certificates,
//!   tokens, plugins and proxies, or the service account of a pod; what changes in files is used at once.
//! - **Metrics and logs**: a [`MetricsProvider`] is asked for each informer, under an [`InformerName`]; what
//!   is logged goes to the `log` facade, without the content of objects, and the README says at which level.
//!
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
//! [`Heap`]: queue::Heap
//! [`InformerName`]: metrics::InformerName
//! [`InformerScope`]: informer::InformerScope
//! [`KubeconfigOptions`]: client::KubeconfigOptions
//! [`ListWatch`]: reflector::ListWatch
//! [`ListerWatcher`]: reflector::ListerWatcher
//! [`MetricsProvider`]: metrics::MetricsProvider
//! [`MutationCache`]: store::MutationCache
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
//! [`UndeltaStore`]: store::UndeltaStore
//! [`new_indexer_informer`]: informer::new_indexer_informer
//! [`new_informer`]: informer::new_informer
//! [`retry_on_conflict`]: client::api::retry_on_conflict
//! [`mutation_cache`]: SharedIndexInformer::mutation_cache
//! [`store_resource_version`]: SharedIndexInformer::store_resource_version
//! [`wait_for_resource_version`]: SharedIndexInformer::wait_for_resource_version
//! [`wait_for_object`]: SharedIndexInformer::wait_for_object
//!
//! # Faithful to client-go
//!
//! The same input gives the same observable result: recordings of client-go are replayed against these types.
//! Ids like K1, D6 or SP12 in these pages name single rules of its behaviour. What differs on purpose is
//! listed, with reasons and tests, in [`deviations`].
//!
//! # Features
//!
//! `client` (default): HTTP, TLS, proxies. `kubeconfig` (default): kubeconfig files. `ring` (default) or
//! `aws-lc-rs`: the TLS provider. `gzip`: lists come compressed. `k8s-openapi`: its types as objects; the
//! program that uses them picks the Kubernetes version by a feature of that crate. `testing`: [an API server
//! and other helpers](testing) for tests. `signals`: `Stop::on_signals`.
//!
//! Without default features the crate is the stores, queues, work queues, reflector and informers alone.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// From here down each module may use those above it.
mod adaptive_buffer;
mod decode_error;
pub mod error;
mod json;
pub mod metrics;
pub mod object;
mod panic;
mod resource_version;
pub mod selector;
mod shrink;
mod stack;
mod status;
pub mod stop;
mod sync;
mod text;
mod threads;
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

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "client")]
pub use client::{Client, Config};
/// The crate whose channels a [`ChannelHandler`](handler::ChannelHandler) sends into: with its `Receiver` and its `select!`.
pub use crossbeam_channel;
pub use error::Error;
pub use handler::Notification;
pub use informer::{SharedIndexInformer, SharedInformerFactory, observe};
pub use object::{Deleted, DynamicObject, Object, ObjectMeta, Resource};
pub use selector::Selector;
pub use stop::{Done, Stop};
pub use store::{Indexer, Lister};

/// Where the crate differs from client-go on purpose.
#[doc = include_str!("../DEVIATIONS.md")]
#[cfg(doc)]
pub mod deviations {}

/// Where the names of other systems are to be found here.
#[doc = include_str!("coming_from.md")]
#[cfg(doc)]
pub mod coming_from {}

/// The README's program compiles.
#[cfg(all(doctest, feature = "client", feature = "kubeconfig"))]
#[doc = include_str!("../README.md")]
struct Readme;

/// For the macros of this crate, and for its fuzz targets.
#[doc(hidden)]
pub mod __private {
    #[cfg(feature = "client")]
    pub use crate::client::exec_credential;
    pub use crate::informer::listener::RingGrowing;
    pub use crate::object::{ObjectMetadata, api_version_group, api_version_version};
}

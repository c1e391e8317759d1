//! client-go's `tools/cache` for synchronous Rust: a local, indexed, always fresh copy of a kind of
//! Kubernetes objects, and callbacks for every change, on plain OS threads over blocking HTTP.
//!
//! # In short
//!
//! A [`SharedInformerFactory`] gives one [`SharedIndexInformer`] for each kind of objects. It lists them,
//! watches from there on, keeps its cache equal to the server, and calls each [handler](ResourceEventHandler)
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
//! - **Handlers** are [closures](HandlerFuncs), types of your own ([`ResourceEventHandler`]), a
//!   [`FilteringHandler`] around either, or a [`ChannelHandler`], whose receiver goes into a `select!`. Each
//!   has [options](HandlerOptions): a name, a resync period, and a [buffer](HandlerBuffer) that keeps every
//!   event or merges those of one object. [How it fares](HandlerStats) can be read.
//! - **Which objects**: an [`InformerScope`] has namespaces, each listed and watched by itself, label and
//!   field selectors, or one [`Shard`] of several (experimental). Informers of one type with different scopes
//!   live in one factory.
//! - **How fresh**: [`store_resource_version`] tells how far the cache has come;
//!   [`wait_for_resource_version`] and [`wait_for_object`] wait for what you wrote.
//! - **Its life**: [`status`](SharedIndexInformer::status) has state, progress, last contact and last error
//!   at any time, and prints as [one line](ReflectorStatus); waits for a sync take a deadline and [say](SyncError) what each informer lacks; one
//!   informer [can be stopped](SharedInformerFactory::stop_informer), and [a
//!   shutdown](SharedInformerFactory::shutdown_timeout) names the threads that are stuck in a callback of
//!   yours. A panic in one is caught, logged and counted.
//! - **Where it connects**: wherever kubectl does, by [`Client::try_default`]: kubeconfigs with certificates,
//!   tokens, plugins and proxies, or the service account of a pod; what changes in files is used at once.
//! - **Metrics and logs**: a [`MetricsProvider`] is asked for each informer, under an [`InformerName`]; what
//!   is logged goes to the `log` facade, without the content of objects, and the README says at which level.
//!
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
mod decode_error;
mod error;
mod metrics;
mod object;
mod panic;
mod resource_version;
mod scan;
mod selector;
mod stack;
mod status;
mod stop;
mod sync;
mod text;
mod threads;
mod time;

mod store;

mod queue;
mod wire;

pub mod workqueue;

mod reflector;

#[cfg(feature = "client")]
mod client;
mod informer;

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "client")]
pub use client::{
    Api, Client, Config, DeleteOptions, DiscoveredGroup, DiscoveredResource, DiscoveredSubresource,
    Discovery, DiscoveryFailure, ExecConfig, Fetched, FieldValidation, Impersonation,
    InteractiveMode, LogOptions, ObjectList, Pages, Patch, PropagationPolicy, Request,
    ResourceListerWatcher, Response, Scale, ScaleSpec, ScaleStatus, Subresource, Warning,
    WatchEvent, WatchEvents, retry_on_conflict,
};
#[cfg(feature = "kubeconfig")]
pub use client::{Kubeconfig, KubeconfigOptions};
/// The crate whose channels a [`ChannelHandler`] sends into: with its `Receiver` and its `select!`.
pub use crossbeam_channel;
pub use error::Error;
pub use informer::{
    ChannelHandler, Controller, ControllerConfig, Event, FilteringHandler, HandlerBuffer,
    HandlerFuncs, HandlerOptions, HandlerRegistration, HandlerStats, InformerError,
    InformerOptions, InformerQueue, InformerScope, Observation, Observe, ProcessBatchFn, ProcessFn,
    ResourceEventHandler, RingGrowing, SharedIndexInformer, SharedIndexInformerOptions,
    SharedInformerFactory, SharedInformerFactoryBuilder, ShutdownError, SyncError, SyncOptions,
    Unsynced, WrapQueue, new_indexer_informer, new_informer, observe, observe_dynamic,
    wait_for_cache_sync, wait_for_cache_sync_timeout,
};
#[cfg(feature = "client")]
pub use metrics::ClientMetrics;
pub use metrics::{
    InformerMetrics, InformerName, InformerNameAndResource, InformerNameError, MetricsProvider,
};
pub use object::{
    Accessor, Compact, Deleted, DynamicObject, FullObjectMeta, GroupVersionKind,
    GroupVersionResource, Key, KeyError, Object, ObjectMeta, ObjectName, OwnerReference,
    PartialObjectMetadata, Resource, Scope, StringMap, StringMapIter, WholeObject,
    meta_namespace_key, split_meta_namespace_key,
};
pub use queue::{
    BatchError, Delta, DeltaFifo, DeltaFifoBuilder, Deltas, Fifo, Heap, PopError, Process,
    ProcessBatch, ProcessError, Queue, RealFifo, RealFifoBuilder, RealFifoMode, Refused,
    ReplacedAll, Requeue, WaitError, Watermark,
};
pub use reflector::{
    Body, ListWatch, ListerWatcher, ListerWatcherSource, Reflector, ReflectorOptions,
    ReflectorState, ReflectorStatus, TimedRead, UndecodableList, WatchErrorHandler,
};
pub use selector::{Selector, SelectorError};
pub use status::{Status, StatusCause, StatusDetails};
pub use stop::{Done, Stop, Subscription};
pub use store::{
    AddIndexersError, Change, ExpirationCache, ExpirationCacheBuilder, ExpirationPolicy, Gaps,
    IndexError, IndexFunc, Indexer, Indexers, KnownObjects, Lister, MutationCache,
    MutationCacheBuilder, NAMESPACE_INDEX, NamespaceLister, ReflectorStore, Rejected, StagedList,
    Staging, Store, StoreError, ThreadSafeStore, TimestampedEntry, TransactionError, Transform,
    TtlPolicy, UndeltaStore, meta_namespace_index,
};
pub use threads::StackSizes;
pub use time::{Backoff, Clock, RealClock};
pub use wire::{
    DecodeLimits, FieldPathError, FieldPaths, ListOptions, ResourceVersionMatch, Shard, ShardError,
};

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
    pub use crate::object::{ObjectMetadata, api_version_group, api_version_version};
}

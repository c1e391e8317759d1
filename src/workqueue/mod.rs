//! Queues of what wants to be done, for the workers of a controller. client-go's `util/workqueue`.
//!
//! The handlers of an informer put keys in, workers take them out: each key once for however many changes, no
//! key by two workers at a time, and again later if it failed.
//!
//! ```
//! use k8s_informer::workqueue::{RateLimitingQueue, default_controller_rate_limiter};
//! use std::collections::HashMap;
//!
//! let queue = RateLimitingQueue::new(default_controller_rate_limiter())?;
//! for key in ["default/web", "default/db", "default/web"] {
//!     queue.add(key.to_owned()); // a handler
//! }
//! let reconcile = |key: &str, attempt: usize| match key {
//!     "default/db" if attempt == 0 => Err("not ready"),
//!     _ => Ok(()),
//! };
//! let tries = std::sync::Mutex::new(HashMap::<String, usize>::new());
//! std::thread::scope(|scope| {
//!     for _ in 0..2 {
//!         scope.spawn(|| {
//!             while let Some(key) = queue.take() {
//!                 match reconcile(&key, queue.num_requeues(&key)) {
//!                     Ok(()) => queue.forget(&key),
//!                     Err(_) => queue.add_rate_limited(key.clone()),
//!                 }
//!                 let mut tries = tries.lock().unwrap();
//!                 *tries.entry(key.clone()).or_default() += 1;
//!                 if tries.values().sum::<usize>() == 3 {
//!                     queue.shut_down();
//!                 }
//!             }
//!         });
//!     }
//! });
//! assert_eq!(tries.into_inner().unwrap()["default/db"], 2);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Writing a controller
//!
//! `examples/controller` is a whole one, made to be read. It runs on an API server of its own, or on yours.
//!
//! ```
//! # use k8s_informer::testing::ApiServer;
//! # use k8s_informer::workqueue::{RateLimitingQueue, default_controller_rate_limiter};
//! # use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use std::sync::Arc;
//! # let server = ApiServer::start()?;
//! # server.create("/api/v1/namespaces/web/configmaps", serde_json::json!({"metadata": {"name": "a"}}))?;
//! # let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
//! # let stop = Stop::new();
//! let queue = Arc::new(RateLimitingQueue::new(default_controller_rate_limiter())?);
//! let maps = factory.informer::<ConfigMap>();
//! let keys = Arc::clone(&queue);
//! maps.add_event_handler(|handler| handler.on_event(move |event| keys.add(event.key())))?;
//! factory.start(&stop)?;
//! factory.wait_for_cache_sync(&stop)?;
//!
//! let key = queue.take().expect("there is one"); // a worker
//! let map = maps.lister().get_by_key(&key).expect("it is in the cache");
//! assert_eq!((&**key, map.metadata.name.as_deref()), ("web/a", Some("a")));
//! queue.forget(&key);
//! # drop(key);
//! # factory.shutdown();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **Handlers put keys into the queue**, and do nothing else: that of the object, [`Notification::key`], or of
//!   what it belongs to ([`FullObjectMeta::controller`]). They need every event: no
//!   [`HandlerBuffer::Coalescing`], which does not tell of what came and went, while a worker may have seen
//!   it in the cache.
//! - **Levels, not edges.** A worker does not know what has happened. It reads from [`Lister`]s what is
//!   wanted and what is there, and writes what differs; what is not in the cache is gone. So it makes no
//!   difference how many events there were, and whether the program ran then. Workers begin once the caches
//!   have synced: before, everything that has not come yet seems to be gone.
//! - **Writes say on what they rely**, as the cache is behind: a `resourceVersion` in a patch, a create that
//!   fails if there is one, [`DeleteOptions::unchanged`], or server-side apply of just what is yours
//!   ([`Patch::apply`]). A conflict is no accident: the key goes back into the queue, and the next try reads
//!   something newer.
//! - **Your own writes come late, too.** [`wait_for_object`] before the key is done: nobody else has it until
//!   then, and the next one to look sees what was written. Where a conflict would not tell (a
//!   `generateName`), or workers must not wait for a watch that is late, a [`mutation_cache`] has the answers
//!   of your writes at once.
//! - **Errors belong to the key**: [`add_rate_limited`] and later again, [`forget`] after a success, and
//!   after so many failures: then it is given up until something changes. Errors of lists and watches are the
//!   informer's: it goes on trying, and [`status`] tells.
//! - **A resync** ([`resync`]) tells about everything once more: for what was given up, and what no event
//!   tells (the world outside of the cluster). No change of an object stays untold, so it need not be often.
//! - **The end** takes two [`Stop`]s. The one that ends the program only shuts the queue down:
//!   [`shut_down_with_drain_timeout`] while caches and server can still be used. If that is not enough the
//!   other ends the calls that workers are in. Then come the threads, and [`shutdown`] of the factory.
//! - **A panic** of a worker ends its thread, and its key is done; catch it around what may.
//!
//! [`Notification::key`]: crate::Notification::key
//! [`FullObjectMeta::controller`]: crate::object::FullObjectMeta::controller
//! [`HandlerBuffer::Coalescing`]: crate::handler::HandlerBuffer::Coalescing
//! [`Lister`]: crate::Lister
//! [`DeleteOptions::unchanged`]: crate::client::api::DeleteOptions::unchanged
//! [`Patch::apply`]: crate::client::api::Patch::apply
//! [`wait_for_object`]: crate::SharedIndexInformer::wait_for_object
//! [`mutation_cache`]: crate::SharedIndexInformer::mutation_cache
//! [`add_rate_limited`]: RateLimitingQueue::add_rate_limited
//! [`forget`]: RateLimitingQueue::forget
//! [`status`]: crate::SharedIndexInformer::status
//! [`resync`]: crate::informer::SharedInformerFactoryBuilder::resync
//! [`Stop`]: crate::Stop
//! [`shutdown`]: crate::SharedInformerFactory::shutdown
//! [`shut_down_with_drain_timeout`]: WorkQueue::shut_down_with_drain_timeout
//!
//! | controller-runtime, sample-controller | here |
//! |---|---|
//! | `Reconcile(ctx, Request)` | a function of yours, of a key and a `Stop` |
//! | `Request`, `SplitMetaNamespaceKey` | [`Key`](crate::object::Key), [`ObjectName`](crate::object::ObjectName), [`split_meta_namespace_key`](crate::object::split_meta_namespace_key) |
//! | returns `nil`; an error | [`forget`]; [`add_rate_limited`] |
//! | `Result{RequeueAfter: …}` | [`forget`], [`add_after`](DelayingQueue::add_after) |
//! | `reconcile.TerminalError` | [`forget`], and say so |
//! | `MaxConcurrentReconciles` | so many threads that [`take`](WorkQueue::take) |
//! | `For`, `EnqueueRequestForObject` | [`on_event`](crate::handler::HandlerFuncs::on_event) and [`Notification::key`] |
//! | `Owns`, `EnqueueRequestForOwner` | the same, with the key of the [`FullObjectMeta::controller`] |
//! | `Watches`, `EnqueueRequestsFromMapFunc` | the same, with keys of your own |
//! | `WithEventFilter`, predicates | [`FilteringHandler`](crate::handler::FilteringHandler); what the server can select, an [`InformerScope`](crate::informer::InformerScope) |
//! | `mgr.GetClient()`, reading; `IndexField` | [`Lister`]; [`add_index`](crate::SharedIndexInformer::add_index) |
//! | `mgr.GetClient()`, writing; `Status()` | [`Client::api`](crate::Client::api); [`Api::status`](crate::client::api::Api::status) |
//! | `controllerutil.CreateOrUpdate` | [`Patch::apply`] |
//! | `mgr.Start(ctx)`, `WaitForCacheSync` | [`start`](crate::SharedInformerFactory::start), [`wait_for_cache_sync`](crate::SharedInformerFactory::wait_for_cache_sync), then your threads |
//! | leader election, webhooks, a manager | not here |
//!
//! # Names
//!
//! | client-go | here |
//! |---|---|
//! | `TypedInterface`, `Typed`, `NewTyped` | [`WorkQueue`], [`WorkQueue::new`] |
//! | `TypedDelayingInterface`, `NewTypedDelayingQueue` | [`DelayingQueue`], which is a `WorkQueue` by `Deref` |
//! | `TypedRateLimitingInterface`, `NewTypedRateLimitingQueue` | [`RateLimitingQueue`], which is a `DelayingQueue` by `Deref` |
//! | `TypedQueueConfig`, `TypedDelayingQueueConfig`, `TypedRateLimitingQueueConfig` | [`WorkQueueBuilder`] |
//! | `Get`, `Done` | [`WorkQueue::take`], whose [`WorkItem`] is done when it is dropped; [`get`](WorkQueue::get) and [`done`](WorkQueue::done) |
//! | `Queue`, `DefaultQueue` | [`Order`], [`ArrivalOrder`] |
//! | `MetricsProvider`, `SetProvider` | [`WorkQueueMetrics`], by [`WorkQueueBuilder::metrics`], or a [`MetricsProvider`](crate::metrics::MetricsProvider) that gives them |
//! | `TypedRateLimiter` | [`RateLimiter`] |
//! | `TypedItemExponentialFailureRateLimiter`, `TypedItemFastSlowRateLimiter` | [`ItemExponentialFailureRateLimiter`], [`ItemFastSlowRateLimiter`] |
//! | `TypedBucketRateLimiter` and `rate.Limiter` | [`BucketRateLimiter`] |
//! | `TypedMaxOfRateLimiter`, `TypedWithMaxWaitRateLimiter` | [`MaxOfRateLimiter`], [`WithMaxWaitRateLimiter`] |
//! | `DefaultTypedControllerRateLimiter`, `DefaultTypedItemBasedRateLimiter` | [`default_controller_rate_limiter`], [`default_item_based_rate_limiter`] |
//! | `ParallelizeUntil`, `WithChunkSize` | [`parallelize_until`] |

mod bucket;
mod builder;
mod delayed;
mod delaying;
mod limiter;
mod order;
mod parallelize;
mod queue;
mod rate_limiting;
mod shared;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod state;

pub use crate::metrics::WorkQueueMetrics;
pub use bucket::BucketRateLimiter;
pub use builder::WorkQueueBuilder;
pub use delaying::DelayingQueue;
pub use limiter::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter, RateLimiter,
    WithMaxWaitRateLimiter, default_controller_rate_limiter,
    default_controller_rate_limiter_with_clock, default_item_based_rate_limiter,
};
pub use order::{ArrivalOrder, Order};
pub use parallelize::parallelize_until;
pub use queue::{WorkItem, WorkQueue};
pub use rate_limiting::RateLimitingQueue;

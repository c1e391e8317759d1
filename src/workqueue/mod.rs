//! Work queues for controllers, like client-go's `util/workqueue` and controller-runtime's
//! `priorityqueue`.
//!
//! Event handlers add keys and workers take them. A queue holds each key once, however many changes
//! there were. It never gives a key to two workers at a time. A key that failed can be retried
//! later.
//!
//! ```
//! use k8s_informer::workqueue::{AnyWorkQueue, RateLimitingQueue, default_controller_rate_limiter};
//! use std::collections::HashMap;
//!
//! let queue = RateLimitingQueue::new(default_controller_rate_limiter())?;
//! for key in ["default/web", "default/db", "default/web"] {
//!     queue.add(key.to_owned()); // an event handler
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
//!                 match reconcile(&key, queue.requeues(&key)) {
//!                     Ok(()) => queue.forget(&key),
//!                     Err(_) => queue.add_rate_limited(key.clone()),
//!                 }
//!                 let mut tries = tries.lock().unwrap();
//!                 *tries.entry(key.clone()).or_default() += 1;
//!                 if tries.values().sum::<usize>() == 3 {
//!                     queue.stop();
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
//! A [`Controller`] of k8s-informer-controller runs a [`PriorityQueue`] and its workers for you.
//! Read on if your program needs its own workers.
//!
//! ```
//! # use k8s_informer::workqueue::{AnyWorkQueue, RateLimitingQueue, default_controller_rate_limiter};
//! # use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
//! # use k8s_informer_testing::ApiServer;
//! # use k8s_openapi::api::core::v1::ConfigMap;
//! # use std::sync::Arc;
//! # let server = ApiServer::start()?;
//! # server.create("/api/v1/namespaces/web/configmaps", serde_json::json!({"metadata": {"name": "a"}}))?;
//! # let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
//! # let stop = Stop::never();
//! let queue = Arc::new(RateLimitingQueue::new(default_controller_rate_limiter())?);
//! let maps = factory.informer::<ConfigMap>();
//! let keys = Arc::clone(&queue);
//! maps.add_event_handler(|handler| handler.on_event(move |event| keys.add(event.key())))?;
//! factory.start(&stop)?;
//! factory.wait_for_cache_sync(None, &stop)?;
//!
//! let key = queue.take().expect("the queue has an item"); // in a worker
//! let map = maps.lister().get_by_key(&key).expect("the object is in the cache");
//! assert_eq!((&**key, map.metadata.name.as_deref()), ("web/a", Some("a")));
//! queue.forget(&key);
//! # drop(key);
//! # factory.shut_down(None)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - **Handlers only add keys to the queue.** The key is that of the object ([`Notification::key`])
//!   or of its owner ([`FullObjectMeta::controller`]). Handlers need every event, so do not use
//!   [`HandlerBuffer::Coalescing`]. It skips an object that was added and deleted in between,
//!   although a worker may have seen that object in the cache.
//! - **Level-triggered, not edge-triggered.** A worker does not learn which events happened. It
//!   reads the desired and the actual state from [`Lister`]s and writes the difference. Treat an
//!   object that is not in the cache as deleted. The number of events does not matter, nor whether
//!   the program was running when they happened. Start workers after the caches have synced: before
//!   that, objects seem to be deleted that are merely not listed yet.
//! - **Make writes conditional**, because the cache lags behind the server. Put a `resourceVersion`
//!   into a patch, use a create that fails if the object exists, use [`DeleteOptions::unchanged`],
//!   or use server-side apply for only the fields that you own ([`Patch::apply`]). A conflict is
//!   normal: add the key again, and the next attempt reads newer state.
//! - **Your own writes arrive late as well.** Call [`wait_for_object`] before you finish the key:
//!   no other worker gets the key until then, and the next attempt sees the write. A
//!   [`Controller`] does this without blocking a worker.
//! - **Errors belong to the key.** Call [`add_rate_limited`] after a failure and [`forget`] after a
//!   success. To give up after a number of failures, call [`forget`] as well: the key then returns
//!   when the object changes, or with the next resync. Errors of lists and watches belong to the informer: it keeps
//!   retrying, and [`status`] reports them.
//! - **A resync** ([`resync`]) delivers every object again. It picks up dropped keys and changes
//!   that cause no event, such as those outside the cluster. No change of an object is missed
//!   without it, so a resync can be infrequent.
//! - **Shutdown** has an order, because workers need the caches until they have finished. Do not
//!   pass the signal that ends the program to `start` of the factory: the informers would end first,
//!   and a worker that waits for its write would fail. Instead, call these in turn:
//!
//!   ```
//!   # use k8s_informer::workqueue::{AnyWorkQueue, RateLimitingQueue, default_controller_rate_limiter};
//!   # use k8s_informer::{Client, Config, SharedInformerFactory, Stop, Stopper};
//!   # use k8s_informer_testing::ApiServer;
//!   # use std::time::Duration;
//!   # let server = ApiServer::start()?;
//!   # let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
//!   # let queue: RateLimitingQueue<String> = RateLimitingQueue::new(default_controller_rate_limiter())?;
//!   # let workers: Vec<std::thread::JoinHandle<()>> = Vec::new();
//!   # let program = Stopper::new();
//!   # program.stop();
//!   let calls = Stopper::new(); // Workers pass it to their requests and waits.
//!   factory.start(&Stop::never())?;
//!
//!   program.wait(); // The signal that ends the program, such as `Stop::on_signals`.
//!   let drained = queue.shut_down(Duration::from_secs(20)); // Items in back-off are dropped.
//!   calls.stop(); // Ends what workers still do.
//!   for worker in workers {
//!       worker.join().expect("a worker does not panic");
//!   }
//!   factory.shut_down(Duration::from_secs(10))?;
//!   drained?; // The error says how many items were not finished.
//!   # Ok::<(), Box<dyn std::error::Error>>(())
//!   ```
//!
//!   After a stop, a request or a wait of a worker fails with an error for which `is_stopped` is true,
//!   and [`add_rate_limited`] does nothing.
//! - **A panic** in a worker ends its thread and finishes its key. Catch panics around code that
//!   may panic.
//!
//! [`Notification::key`]: crate::Notification::key
//! [`FullObjectMeta::controller`]: crate::object::FullObjectMeta::controller
//! [`HandlerBuffer::Coalescing`]: crate::handler::HandlerBuffer::Coalescing
//! [`Lister`]: crate::Lister
//! [`DeleteOptions::unchanged`]: crate::client::api::DeleteOptions::unchanged
//! [`Patch::apply`]: crate::client::api::Patch::apply
//! [`wait_for_object`]: crate::SharedIndexInformer::wait_for_object
//! [`add_rate_limited`]: RateLimitingQueue::add_rate_limited
//! [`forget`]: RateLimitingQueue::forget
//! [`status`]: crate::SharedIndexInformer::status
//! [`resync`]: crate::informer::FactoryOptions::resync_period
//! [`Controller`]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/struct.Controller.html
//! [its table]: https://docs.rs/k8s-informer-controller/0.1/k8s_informer_controller/guide/coming_from/index.html#from-controller-runtime
//!
//! If you use a [`Controller`], see [its table] instead.
//!
//! | controller-runtime, sample-controller | a loop of your own |
//! |---|---|
//! | `Reconcile(ctx, Request)` | a function of yours that takes a key and a `Stop` |
//! | `Request`, `SplitMetaNamespaceKey` | [`Key`](crate::object::Key), [`ObjectName`](crate::object::ObjectName), [`split_meta_namespace_key`](crate::object::split_meta_namespace_key) |
//! | returns `nil`; an error | [`forget`]; [`add_rate_limited`] |
//! | `Result{RequeueAfter: …}` | [`forget`], [`add_after`](DelayingQueue::add_after) |
//! | `reconcile.TerminalError` | [`forget`], and log the error |
//! | `MaxConcurrentReconciles` | the number of threads that call [`take`](AnyWorkQueue::take) |
//! | `For`, `EnqueueRequestForObject` | [`on_event`](crate::handler::HandlerFuncs::on_event) and [`Notification::key`] |
//! | `Owns`, `EnqueueRequestForOwner` | [`on_event`](crate::handler::HandlerFuncs::on_event) and the key of the [`FullObjectMeta::controller`] |
//! | `Watches`, `EnqueueRequestsFromMapFunc` | [`on_event`](crate::handler::HandlerFuncs::on_event) and keys that you compute |
//! | `WithEventFilter`, predicates | [`FilteringHandler`](crate::handler::FilteringHandler); for server-side selection, an [`InformerScope`](crate::informer::InformerScope) |
//! | `mgr.GetClient()`, reading; `IndexField` | [`Lister`]; [`add_index`](crate::SharedIndexInformer::add_index) |
//! | `mgr.GetClient()`, writing; `Status()` | [`Client::api`](crate::Client::api); [`Api::status`](crate::client::api::Api::status) |
//! | `controllerutil.CreateOrUpdate` | [`Patch::apply`] |
//! | `mgr.Start(ctx)`, `WaitForCacheSync` | [`start`](crate::SharedInformerFactory::start), [`wait_for_cache_sync`](crate::SharedInformerFactory::wait_for_cache_sync), then your threads |
//! | `LeaderElection: true` | `LeaderElector` of k8s-informer-controller |
//! | webhooks | not provided |
//!
//! # Names
//!
//! | client-go | k8s-informer |
//! |---|---|
//! | `TypedInterface` | the trait [`AnyWorkQueue`], which all queues implement |
//! | `Typed`, `NewTyped` | [`WorkQueue`], [`WorkQueue::new`] |
//! | `TypedDelayingInterface`, `NewTypedDelayingQueue` | [`DelayingQueue`] |
//! | `TypedRateLimitingInterface`, `NewTypedRateLimitingQueue` | [`RateLimitingQueue`] |
//! | `TypedQueueConfig`, `TypedDelayingQueueConfig`, `TypedRateLimitingQueueConfig` | [`WorkQueueBuilder`] |
//! | `Get`, `Done` | [`take`](AnyWorkQueue::take), whose [`WorkItem`] calls `done` on drop; or [`get`](AnyWorkQueue::get) and [`done`](AnyWorkQueue::done) |
//! | `ShutDown`; `ShutDownWithDrain`; `ShuttingDown` | [`stop`](AnyWorkQueue::stop); [`shut_down`](AnyWorkQueue::shut_down); [`is_stopped`](AnyWorkQueue::is_stopped) |
//! | `NumRequeues` | [`requeues`](RateLimitingQueue::requeues) |
//! | `PriorityQueue`, `AddOpts` of controller-runtime | [`PriorityQueue`], [`AddOptions`] |
//! | `Queue` | [`Order`] |
//! | `MetricsProvider`, `SetProvider` | [`WorkQueueMetrics`], set with [`WorkQueueBuilder::metrics`] or returned by a [`MetricsProvider`](crate::metrics::MetricsProvider) |
//! | `TypedRateLimiter` | [`RateLimiter`] |
//! | `TypedItemExponentialFailureRateLimiter`, `TypedItemFastSlowRateLimiter` | [`ItemExponentialFailureRateLimiter`], [`ItemFastSlowRateLimiter`] |
//! | `TypedBucketRateLimiter` and `rate.Limiter` | [`BucketRateLimiter`] |
//! | `TypedMaxOfRateLimiter`, `TypedWithMaxWaitRateLimiter` | [`MaxOfRateLimiter`], [`WithMaxWaitRateLimiter`] |
//! | `DefaultTypedControllerRateLimiter` | [`default_controller_rate_limiter`] |
//! | `DefaultTypedItemBasedRateLimiter` | an [`ItemExponentialFailureRateLimiter`] from 1 ms to 1,000 s |

mod any_work_queue;
mod builder;
mod core;
mod delayed;
mod delaying;
mod item;
mod limiter;
mod order;
mod priority;
mod priority_queue;
mod queue;
mod rate_limiting;
mod shared;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod state;
mod work_item;

pub use crate::metrics::WorkQueueMetrics;
pub use any_work_queue::AnyWorkQueue;
pub use builder::WorkQueueBuilder;
pub use delaying::DelayingQueue;
pub use item::Item;
pub use limiter::bucket::BucketRateLimiter;
pub use limiter::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter, RateLimiter,
    WithMaxWaitRateLimiter, default_controller_rate_limiter,
    default_controller_rate_limiter_with_clock,
};
pub use order::Order;
pub use priority_queue::{AddOptions, PriorityQueue};
pub use queue::WorkQueue;
pub use rate_limiting::RateLimitingQueue;
pub use work_item::WorkItem;

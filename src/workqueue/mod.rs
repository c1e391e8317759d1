//! Queues of what wants to be done, for the workers of a controller. client-go's `util/workqueue`.
//!
//! The handlers of an informer put keys in, workers take them out: each key once for however many changes, no key
//! by two workers at a time, and again later if it failed.
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
//! | `MetricsProvider`, `SetProvider` | [`WorkQueueMetrics`], by [`WorkQueueBuilder::metrics`], or a [`MetricsProvider`](crate::MetricsProvider) that gives them |
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
#[cfg(test)]
#[cfg(shuttle)]
mod models;
mod order;
mod parallelize;
mod queue;
mod rate_limiting;
mod shared;
mod state;

pub use crate::metrics::WorkQueueMetrics;
pub use bucket::BucketRateLimiter;
pub use builder::WorkQueueBuilder;
pub use delaying::DelayingQueue;
pub use limiter::{
    ItemExponentialFailureRateLimiter, ItemFastSlowRateLimiter, MaxOfRateLimiter, RateLimiter,
    WithMaxWaitRateLimiter, default_controller_rate_limiter, default_controller_rate_limiter_with_clock,
    default_item_based_rate_limiter,
};
pub use order::{ArrivalOrder, Order};
pub use parallelize::parallelize_until;
pub use queue::{WorkItem, WorkQueue};
pub use rate_limiting::RateLimitingQueue;

/// Room for this many items is kept when a queue has run empty; more is given back.
const KEEP: usize = 1024;

//! Shared informers: a local cache that follows the API server, with handlers for every change.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`SharedInformerFactory`] | creates one informer per kind and scope; starts and stops all of them | `SharedInformerFactory` |
//! | [`SharedIndexInformer`] | the cache of one kind, its handlers and its status | `SharedIndexInformer` |
//! | [`Source`] | selects objects: a type or a resource, and a scope | |
//! | [`InformerScope`] | selects objects: namespaces, selectors, a shard | `WithNamespace`, `WithTweakListOptions` |
//! | [`SharedIndexInformerOptions`] | options of one informer: queue, resync period, indexers, names | `SharedIndexInformerOptions` |
//! | [`observe`] | closures for added, modified and deleted objects, without a factory | |
//! | [`new_informer`], [`new_indexer_informer`] | a store and one handler, without sharing | `NewInformer`, `NewIndexerInformer` |
//! | [`Driver`], [`step_all`] | an informer without threads, in the loop of the program | |
//! | [`Controller`] | the layer below: a reflector, a queue and the process loop | `Controller` |
//! | [`wait_for_cache_sync`] | waits until caches have their initial lists | `WaitForCacheSync` |
//!
//! There are two ways to an informer. [`observe`] runs one for your closures. A
//! [`SharedInformerFactory`] shares informers between the parts of a program:
//! [`informer::<T>()`](SharedInformerFactory::informer) returns the one of a type, and
//! [`informer_for`](SharedInformerFactory::informer_for) that of a [`Source`]. If you have a
//! lister-watcher instead of a client, create the informer yourself:
//!
//! ```
//! use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
//! use k8s_informer_testing::{Answer, ScriptedListerWatcher};
//! use std::sync::Arc;
//!
//! let list = r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"},
//!     "items": [{"metadata": {"name": "web-0", "namespace": "default", "resourceVersion": "1"}}]}"#;
//! let pods = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
//! let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(pods), Default::default());
//! let stop = Stopper::new();
//! let thread = std::thread::spawn({
//!     let (informer, stop) = (informer.clone(), stop.signal());
//!     move || informer.run(&stop)
//! });
//! assert!(informer.wait_for_sync(None, &stop).is_ok());
//! assert!(informer.lister().get("default", "web-0").is_some());
//! stop.stop();
//! thread.join().unwrap()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod any_informer;
mod controller;
mod delivery;
mod drain;
mod driver;
mod error;
mod error_listeners;
mod factory;
mod fair_lock;
pub(crate) mod handler;
pub(crate) mod listener;
mod new_informer;
mod options;
mod pipeline;
mod process;
mod queue;
pub(crate) mod registration;
mod scope;
mod shared_informer;
mod shared_processor;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod source;
mod wait;

pub use crate::base::threads::StackSizes;
pub use controller::{Controller, ControllerConfig};
pub use driver::{Driver, Progress, step_all};
pub use error::InformerError;
pub use factory::{FactoryOptions, Observation, Observe, SharedInformerFactory, observe};
pub use new_informer::{InformerOptions, new_indexer_informer, new_informer};
pub use options::SharedIndexInformerOptions;
pub use queue::InformerQueue;
pub use scope::InformerScope;
pub use shared_informer::SharedIndexInformer;
pub use source::Source;
pub use wait::{SyncOptions, wait_for_cache_sync};

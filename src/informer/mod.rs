//! From the queue to the handlers: client-go's `controller.go`, `shared_informer.go` and
//! `informers/factory.go`.

mod controller;
mod error;
mod factory;
mod handler;
#[cfg(test)]
#[cfg(shuttle)]
mod models;
mod new_informer;
mod process;
mod processor_listener;
mod queue;
mod registration;
mod ring_growing;
mod shared_informer;
mod shared_processor;
mod sync_tracker;
mod wait;

pub use controller::{Controller, ControllerConfig, ProcessFn};
pub use error::InformerError;
pub use factory::{SharedInformerFactory, SharedInformerFactoryBuilder};
pub use handler::{HandlerFuncs, ResourceEventHandler};
pub use new_informer::{InformerOptions, new_indexer_informer, new_informer};
pub use queue::InformerQueue;
pub use registration::{HandlerOptions, HandlerRegistration};
pub use ring_growing::RingGrowing;
pub use shared_informer::{SharedIndexInformer, SharedIndexInformerOptions};
pub use wait::{SyncError, Unsynced, wait_for_cache_sync};

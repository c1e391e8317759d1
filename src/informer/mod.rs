//! From the queue to the handlers: client-go's `controller.go`, `shared_informer.go` and
//! `informers/factory.go`.

mod controller;
mod error;
mod factory;
mod handler;
mod listener;
mod processor;
mod registration;
mod ring;
mod shared;
mod tracker;
mod wait;

pub use controller::{
    Controller, ControllerConfig, InformerOptions, ProcessFn, new_indexer_informer, new_informer,
};
pub use error::InformerError;
pub use factory::{SharedInformerFactory, SharedInformerFactoryBuilder};
pub use handler::{HandlerFuncs, ResourceEventHandler};
pub use registration::{HandlerOptions, HandlerRegistration};
pub use ring::RingGrowing;
pub use shared::{SharedIndexInformer, SharedIndexInformerOptions};
pub use wait::{SyncError, Unsynced, wait_for_cache_sync};

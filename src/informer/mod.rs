//! From the queue to the handlers: client-go's `controller.go`, `shared_informer.go` and
//! `informers/factory.go`.

mod controller;
mod error;
mod error_listeners;
mod factory;
mod handler;
mod listener;
mod new_informer;
mod options;
mod process;
mod queue;
mod registration;
mod returns;
mod shared_informer;
mod shared_processor;
#[cfg(test)]
#[cfg(shuttle)]
mod shuttle_tests;
mod wait;

pub use controller::{Controller, ControllerConfig, ProcessBatchFn, ProcessFn};
pub use error::InformerError;
pub use factory::{
    InformerScope, Observation, Observe, SharedInformerFactory, SharedInformerFactoryBuilder,
    ShutdownError, observe, observe_dynamic,
};
pub use handler::{ChannelHandler, Event, FilteringHandler, HandlerFuncs, ResourceEventHandler};
pub use listener::{HandlerBuffer, HandlerStats, RingGrowing};
pub use new_informer::{InformerOptions, new_indexer_informer, new_informer};
pub use options::{SharedIndexInformerOptions, WrapQueue};
pub use queue::InformerQueue;
pub use registration::{HandlerOptions, HandlerRegistration};
pub use shared_informer::SharedIndexInformer;
pub use wait::{
    SyncError, SyncOptions, Unsynced, wait_for_cache_sync, wait_for_cache_sync_timeout,
};

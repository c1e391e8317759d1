//! client-go's `tools/cache` for synchronous Rust.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// From here down each module may use those above it.
mod error;
mod object;
mod panic;
mod selector;
mod status;
mod stop;
mod sync;
mod threads;
mod time;

mod store;

mod queue;
mod wire;

mod reflector;

#[cfg(feature = "client")]
mod client;
mod informer;

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "client")]
pub use client::{Client, Config, Request, ResourceListerWatcher, Response};
pub use error::Error;
pub use informer::{
    Controller, ControllerConfig, HandlerFuncs, HandlerOptions, HandlerRegistration, InformerError,
    InformerOptions, ProcessFn, ResourceEventHandler, RingGrowing, SharedIndexInformer,
    SharedIndexInformerOptions, SharedInformerFactory, SharedInformerFactoryBuilder, SyncError, Unsynced,
    new_indexer_informer, new_informer, wait_for_cache_sync,
};
pub use object::{
    Accessor, Deleted, DynamicObject, GroupVersionResource, Key, KeyError, Object, ObjectMeta, ObjectName,
    Resource, Scope, meta_namespace_key, split_meta_namespace_key,
};
pub use queue::{Delta, DeltaFifo, DeltaFifoBuilder, Deltas, PopError, Process, ProcessError, Queue};
pub use reflector::{
    Body, ListWatch, ListerWatcher, ListerWatcherSource, Reflector, ReflectorOptions, ReflectorState,
    ReflectorStatus, WatchErrorHandler,
};
pub use selector::{Selector, SelectorError};
pub use status::{Status, StatusCause, StatusDetails};
pub use stop::{Done, Stop, Subscription};
pub use store::{
    AddIndexersError, Change, IndexError, IndexFunc, Indexer, Indexers, KnownObjects, Lister,
    NAMESPACE_INDEX, NamespaceLister, ReflectorStore, Store, StoreError, ThreadSafeStore, TransactionError,
    Transform, meta_namespace_index,
};
pub use time::{Backoff, Clock, RealClock};
pub use wire::{ListOptions, ResourceVersionMatch};

/// For the macros of this crate.
#[doc(hidden)]
pub mod __private {
    pub use crate::object::{api_version_group, api_version_version};
}

//! client-go's `tools/cache` for synchronous Rust.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

// From here down each module may use those above it.
mod error;
mod object;
mod status;
mod stop;
mod sync;
mod time;

mod queue;
mod store;
mod wire;

mod reflector;

#[cfg(feature = "client")]
mod client;

#[cfg(feature = "testing")]
pub mod testing;

#[cfg(feature = "client")]
pub use client::{Client, Config, Request, ResourceListerWatcher, Response};
pub use error::Error;
pub use object::{
    Accessor, Deleted, DynamicObject, GroupVersionResource, Key, KeyError, Object, ObjectMeta, ObjectName,
    Resource, Scope, meta_namespace_key, split_meta_namespace_key,
};
pub use queue::{Delta, Deltas, PopError, Process, ProcessError, Queue};
pub use reflector::{Body, ListWatch, ListerWatcher};
pub use status::{Status, StatusCause, StatusDetails};
pub use stop::{Done, Stop, Subscription};
pub use store::{KnownObjects, ReflectorStore, StoreError};
pub use time::{Backoff, Clock, RealClock};
pub use wire::{ListOptions, ResourceVersionMatch};

/// For the macros of this crate.
#[doc(hidden)]
pub mod __private {
    pub use crate::object::{api_version_group, api_version_version};
}

//! Lists and watches one kind of object, and keeps a store equal to the server.
//!
//! | type | purpose | client-go |
//! |---|---|---|
//! | [`ListerWatcher`] | the source: `list` and `watch`, which return bytes | `ListerWatcher` |
//! | [`ListWatch`] | a source made of two closures | `ListWatch` |
//! | [`Reflector`] | lists, watches, and writes to a [`ReflectorStore`](crate::store::ReflectorStore) until it is stopped | `Reflector` |
//! | [`ReflectorOptions`] | page size, watch-lists, limits, back-off, skipped fields | `ReflectorOptions` |
//! | [`ReflectorStatus`] | state, progress and last error, readable at any time | |
//! | [`ListOptions`] | the query of one LIST or WATCH | `metav1.ListOptions` |
//! | [`FieldPaths`] | fields that are skipped while decoding | a transform |
//! | [`Shard`] | one part of the objects of a kind, for replicas that share a large cluster | `ShardedListAndWatch` |
//!
//! ```
//! use k8s_informer::object::ResourceVersion;
//! use k8s_informer::reflector::{Reflector, ReflectorOptions};
//! use k8s_informer::{DynamicObject, Indexer, Stopper};
//! use k8s_informer_testing::{Answer, ScriptedListerWatcher};
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! let list = r#"{"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "7"},
//!     "items": [{"metadata": {"name": "web-0", "namespace": "default", "resourceVersion": "3"}}]}"#;
//! let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
//! let store = Arc::new(Indexer::<DynamicObject>::for_objects());
//! let source = Arc::new(script.clone());
//! let reflector = Reflector::new(source, store.clone(), ReflectorOptions::default());
//! let stop = Stopper::new();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| reflector.run(&stop));
//!     script.wait_for_bodies(2, Duration::from_secs(10)).unwrap(); // the list, and the start of the watch
//!     stop.stop();
//! });
//! assert!(store.get_by_key("default/web-0").is_some());
//! assert_eq!(reflector.status().resource_version, ResourceVersion::new("7"));
//! ```
//!
//! # Internals
//!
//! `protocol` decides what to request and when, without I/O. `run` has the reflector, its status and
//! its log. Its `feed` performs what the protocol requests and writes to the store.

mod catch_up;
mod failures;
mod initial_list;
mod initial_objects;
mod lister_watcher;
mod missing;
mod options;
mod protocol;
mod reclaim;
mod run;

pub use lister_watcher::{Body, ListWatch, ListerWatcher, ListerWatcherSource, TimedRead};
pub(crate) use missing::Missing;
pub(crate) use options::WatchErrorHandler;
pub use options::{ReflectorOptions, ReflectorState, ReflectorStatus};
pub(crate) use reclaim::{ReclaimQueue, drop_each};
pub use run::Reflector;
pub(crate) use run::{Feed, FeedProgress, InformerHooks, Outlook};

pub use crate::wire::{
    DecodeLimits, FieldPathError, FieldPaths, ListOptions, ResourceVersionMatch, Shard, ShardError,
};

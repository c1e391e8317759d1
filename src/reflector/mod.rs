//! Lists, watches, and keeps a store equal to the server. client-go's `reflector.go`, `listwatch.go` and `tools/pager`.
//!
//! `protocol` decides what to request and when, without IO. `run` is the loop on the reflector's thread, with the
//! status and the log; its `session` performs what the protocol requests and writes to the store.

mod failures;
mod headroom;
mod initial_list;
mod initial_objects;
mod lister_watcher;
mod options;
mod protocol;
mod read_buffer;
mod recycle;
mod run;
mod undecodable;

pub use lister_watcher::{Body, ListWatch, ListerWatcher, ListerWatcherSource, TimedRead};
pub use options::{ReflectorOptions, ReflectorState, ReflectorStatus, WatchErrorHandler};
#[cfg(feature = "client")]
pub(crate) use protocol::SLACK;
pub(crate) use recycle::Recycle;
pub(crate) use run::OnFailure;
pub use run::Reflector;
pub use undecodable::UndecodableList;

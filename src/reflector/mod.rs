//! Lists, watches, and keeps a store equal to the server. client-go's `reflector.go`, `listwatch.go` and
//! `tools/pager`.
//!
//! The protocol is in `machine` (and of a LIST that comes in pages, in `listing`): no thread, no socket, no
//! clock. The thread that drives it is in `driver`.

mod decode;
mod driver;
mod events;
mod lister_watcher;
mod listing;
mod machine;
mod options;
mod watching;

pub use driver::Reflector;
pub use lister_watcher::{Body, ListWatch, ListerWatcher, ListerWatcherSource};
pub use options::{ReflectorOptions, ReflectorState, ReflectorStatus, WatchErrorHandler};

/// How an object is made from its JSON: the one place that knows how to decode a `T`.
type Decode<T> = fn(&[u8]) -> Result<T, serde_json::Error>;

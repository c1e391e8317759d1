//! Lists, watches, and keeps a store equal to the server. client-go's `reflector.go`, `listwatch.go` and
//! `tools/pager`.
//!
//! The protocol is in `machine`: no thread, no socket, no clock. It hands a LIST, which may come in pages, to
//! `listing`, and the events of a stream to `events`; `watching` is what is known of the stream. Both read
//! objects through `decode`. The thread that drives it all is in `driver`.

mod decode;
mod driver;
mod events;
mod failures;
mod headroom;
mod initial_objects;
mod lister_watcher;
mod listing;
mod machine;
mod options;
mod read_buffer;
mod recycle;
mod repair;
mod undecodable;
mod watching;

#[cfg(feature = "client")]
pub(crate) use decode::{BadFrame, Decoder, Read, Unreadable};
pub use driver::Reflector;
pub use lister_watcher::{Body, ListWatch, ListerWatcher, ListerWatcherSource};
#[cfg(feature = "client")]
pub(crate) use machine::SLACK;
pub use options::{ReflectorOptions, ReflectorState, ReflectorStatus, WatchErrorHandler};
pub(crate) use recycle::Recycle;
pub use undecodable::UndecodableList;

/// How an object is made from its JSON: the one place that knows how to decode a `T`.
pub(crate) type Decode<T> = fn(&[u8]) -> Result<T, serde_json::Error>;

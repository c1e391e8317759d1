//! Lists, watches, and keeps a store equal to the server. client-go's `reflector.go` and `listwatch.go`.

mod lister_watcher;

pub use lister_watcher::{Body, ListWatch, ListerWatcher};

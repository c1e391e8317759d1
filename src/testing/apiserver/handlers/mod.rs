//! From a request to its response.

pub(crate) mod api;
pub(crate) mod body_writer;
pub(crate) mod discovery;
pub(crate) mod read;
pub(crate) mod subresources;
pub(crate) mod watch;

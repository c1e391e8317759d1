//! Processes requests into responses.

pub(crate) mod api;
pub(crate) mod body_writer;
pub(crate) mod discovery;
pub(crate) mod read;
pub(crate) mod subresources;
pub(crate) mod watch;

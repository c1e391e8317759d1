//! Sockets, threads, and the server that owns them.

pub(crate) mod builder;
pub(crate) mod connection;
pub(crate) mod reader;
pub(crate) mod server;

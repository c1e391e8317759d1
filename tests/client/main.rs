//! The client against servers of the tests' own and, with `USE_EXISTING_CLUSTER=true`, against a real API
//! server.

#![allow(clippy::unwrap_used)]

mod cluster;
mod config;
mod hostile;
mod http;
mod server;
mod stop;
mod timeouts;
mod tls;

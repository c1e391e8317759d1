//! Tests of the client, and of informers that use a client.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auto_traits;
mod client;
mod differential;
mod informer;
mod log_capture;
mod logs;
mod metrics;
mod own_process;

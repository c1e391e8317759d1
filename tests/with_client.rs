//! Tests of the client, and of informers that use a client.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client;
mod controller;
mod controller_test;
mod differential;
mod events;
mod informer;
mod leader_elector;
mod log_capture;
mod logs;
mod manager;
mod metrics;
mod own_process;

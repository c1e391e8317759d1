//! Tests of controllers, leader elections and event recorders on the embedded API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod auto_traits;
mod client_go_traces;
mod compile_errors;
mod controller;
mod controller_test;
mod events;
mod leader_election;
mod leader_elector;
#[path = "../../../tests/log_capture.rs"]
mod log_capture;
mod manager;
#[allow(dead_code, reason = "other tests use more of it")]
#[path = "../../../tests/client/server.rs"]
mod server;
mod support;

//! Tests that need no client: queues, stores, the reflector, work queues and the embedded API
//! server. They also pass with `--no-default-features`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client_go_traces;
mod compile_errors;
mod deviations;
mod dynamic_objects;
mod embedded_api_server;
mod fuzz_corpus;
mod hostile;
mod keys;
mod leader_election;
mod log_capture;
mod queues;
mod readiness;
mod reflector;
mod stores;
mod workqueue;

//! Tests that need no client: queues, stores, the reflector and work queues. They also pass with `--no-default-features`.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod client_go_traces;
mod compile_errors;
mod deviations;
mod dynamic_objects;
mod fuzz_corpus;
mod hostile;
mod imports;
mod keys;
mod log_capture;
mod public_api;
mod queues;
mod reflector;
mod rustc;
mod stores;
mod workqueue;

//! Tests of the embedded API server.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apiserver;

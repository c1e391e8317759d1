//! Tests of the embedded API server, and of how a real one is started.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod apiserver;
#[cfg(all(feature = "controller", feature = "real"))]
mod auto_traits;
#[cfg(unix)]
mod real;

//! Work queues from outside: a test for each rule of client-go's, and what is ours.

#![allow(clippy::unwrap_used)]

mod delaying;
mod limiters;
mod metrics;
mod model;
mod parallelize;
mod queue;
mod rate_limiting;
mod support;
mod threads;
mod user_code;

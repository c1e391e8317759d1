//! Tests of the work queues through their public API: one test for each rule of client-go, and
//! tests of what this crate adds.

mod delaying;
mod limiters;
mod metrics;
mod parallelize;
mod queue;
mod rate_limiting;
mod support;
mod threads;
mod user_code;

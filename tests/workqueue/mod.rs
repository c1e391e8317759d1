//! Tests of the work queues through their public API: tests for the rules of client-go and
//! controller-runtime, and of what this crate adds.

mod delaying;
mod limiters;
mod metrics;
mod priority;
mod queue;
mod rate_limiting;
mod support;
mod threads;
mod user_code;

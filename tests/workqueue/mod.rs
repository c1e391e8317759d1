//! Work queues from outside: a test for each rule of client-go's, and what is ours.

mod delaying;
mod limiters;
mod metrics;
mod parallelize;
mod queue;
mod rate_limiting;
mod support;
mod threads;
mod user_code;

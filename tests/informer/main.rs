//! The informer's rules, from outside: driven by a server that the test holds in its hands, and by a fake
//! clock.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod callbacks;
mod controller;
mod factory;
mod handlers;
mod observe;
mod queues;
mod resync;
mod shared;
mod stress;
mod support;
mod versions;

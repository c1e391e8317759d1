//! The informer's rules, from outside: driven by a server that the test holds in its hands, and by a fake
//! clock. Those that concern a queue run on each of the three.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::duplicate_mod, reason = "one suite, three queues")]

mod delta_fifo;
mod real_fifo_atomic;
mod real_fifo_in_order;
mod support;

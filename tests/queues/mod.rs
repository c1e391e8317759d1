//! Tests of the queues through their public API. They port the essence of client-go's tests, and
//! test what this crate adds.

mod bad_input;
mod batches;
mod delta_fifo;
mod delta_fifo_deletions;
mod fifo;
mod fifo_threads;
mod lists;
mod metrics;
mod real_fifo;
mod requeue;
mod settled;
mod things;
mod watermark;

//! Runs a controller: queues keys, and calls the reconcile function for each of them.

pub(crate) mod enqueue;
pub(crate) mod finalize;
pub(crate) mod probe;
pub(crate) mod queue;
pub(crate) mod reconcile;
pub(crate) mod reconcile_loop;
pub(crate) mod runner;
pub(crate) mod status;
pub(crate) mod vanished;

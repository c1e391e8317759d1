//! Controllers: reconcile loops with owners, finalizers and leader election.

mod builder;
mod context;
mod enqueue;
mod error;
mod finalize;
mod finalizer;
mod handle;
mod outcome;
mod own_writes;
mod owner;
mod predicate;
mod reconcile_loop;
mod source;
mod timers;

pub use builder::ControllerBuilder;
pub use context::Context;
pub use error::ControllerError;
pub use handle::Controller;
pub use outcome::{Failure, Next};
pub use predicate::Predicate;
pub use reconcile_loop::{ControllerStatus, LastFailure};

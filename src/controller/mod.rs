//! Controllers: reconcile loops with owners, finalizers and leader election.

mod builder;
mod conditions;
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
pub use conditions::{Condition, ConditionStatus, Conditions};
pub use context::Context;
pub use error::ControllerError;
pub use handle::Controller;
pub use outcome::{Failure, Next};
pub use predicate::{
    Predicate, annotations_changed, generation_changed, labels_changed, resource_version_changed,
};
pub use reconcile_loop::{ControllerStatus, LastFailure};

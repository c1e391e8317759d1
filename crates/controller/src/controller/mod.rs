//! Controllers: the reconcile loop, and what a reconcile function uses.

mod builder;
mod conditions;
mod context;
mod enqueue;
mod error;
mod failure_log;
mod finalize;
mod finalizer;
mod handle;
mod manager;
mod named_handlers;
mod outcome;
mod own_writes;
mod owner;
mod predicate;
pub(crate) mod probe;
mod reconcile_loop;
mod remove_finalizers;
mod schedule;
mod source;
mod timers;

pub use builder::ControllerBuilder;
pub use conditions::{Condition, ConditionStatus, Conditions};
pub use context::Context;
pub use error::ControllerError;
pub use handle::Controller;
pub use manager::{Manager, ManagerBuilder};
pub use named_handlers::{HandlerContext, HandlerErrors, NamedHandlers};
pub use outcome::{Failure, Next};
pub use owner::OwnerError;
pub use predicate::{
    Predicate, annotations_changed, generation_changed, labels_changed, resource_version_changed,
};
pub use reconcile_loop::{AwaitedWrite, ControllerStatus, LastFailure};
pub use remove_finalizers::{RemoveFinalizersError, RemovedFinalizers, remove_finalizers};

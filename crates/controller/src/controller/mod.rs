//! Controllers: the reconcile loop, and what a reconcile function uses.

mod applied;
mod apply;
mod barrier;
mod builder;
mod calls;
mod conditions;
mod context;
mod drive;
mod enqueue;
mod error;
mod failure_log;
mod finalize;
mod finalizer;
mod handle;
mod manager;
mod optional;
mod outcome;
mod own_writes;
mod owner;
mod postponed;
mod predicate;
mod presence;
mod probe;
mod reconcile;
mod reconcile_loop;
mod remove_finalizers;
mod runner;
mod source;
mod status;
mod timers;

pub use apply::{Applied, ApplyOptions};
pub use builder::ControllerBuilder;
pub use conditions::{Condition, ConditionStatus, Conditions};
pub use context::Context;
#[doc(hidden)]
pub use drive::Drive;
pub use error::ControllerError;
pub use handle::Controller;
pub use manager::{Manager, ManagerBuilder};
pub use outcome::{Failure, Next};
pub use owner::OwnerError;
pub use predicate::{Predicate, annotations_changed, generation_changed, labels_changed};
pub use remove_finalizers::{RemoveFinalizersError, RemovedFinalizers, remove_finalizers};
pub use status::{AwaitedWrite, ControllerStatus, LastFailure, SourceWait};

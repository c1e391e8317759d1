//! Controllers: the reconcile loop, and what a reconcile function uses.

mod applied;
mod apply;
mod barrier;
mod builder;
mod calls;
mod catch_up;
mod conditions;
mod context;
mod division;
mod drive;
mod enqueue;
mod error;
mod failure_log;
mod finalize;
mod finalizer;
mod handle;
mod managed_fields;
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
mod sharding;
mod source;
mod status;
mod timers;

pub use apply::{Applied, ApplyOptions};
pub use builder::ControllerBuilder;
pub use conditions::{Condition, ConditionStatus, Conditions};
pub use context::Context;
pub use division::ShardBy;
#[doc(hidden)]
pub use drive::Drive;
pub use error::{ControllerError, ControllerErrorKind};
pub use handle::Controller;
pub use manager::{Manager, ManagerBuilder};
pub use outcome::{Failure, Next};
pub use owner::OwnerError;
pub use predicate::{Predicate, annotations_changed, generation_changed, labels_changed};
pub use remove_finalizers::{
    RemovalOutcome, RemoveFinalizersError, RemovedFinalizers, remove_finalizers,
};
pub use status::{AwaitedWrite, ControllerStatus, LastFailure, SourceWait};

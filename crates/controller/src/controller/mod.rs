//! Controllers: the reconcile loop, and what a reconcile function uses.

// Modules import only from modules above them in this list.
mod error;
mod objects;

mod sources;

mod call;

mod writes;

mod context;

mod engine;

mod surface;

mod manager;

pub use call::outcome::{Failure, LastFailure, Next};
pub use context::Context;
pub use context::apply::{Applied, ApplyOptions};
pub use engine::status::ControllerStatus;
pub use error::{ControllerError, ControllerErrorKind};
pub use manager::{Manager, ManagerBuilder};
pub use objects::conditions::{Condition, ConditionStatus, Conditions};
pub use objects::owner::OwnerError;
pub use objects::predicate::{Predicate, annotations_changed, generation_changed, labels_changed};
pub use sources::barrier::SourceWait;
pub use sources::division::ShardBy;
pub use surface::builder::ControllerBuilder;
#[doc(hidden)]
pub use surface::drive::Drive;
pub use surface::handle::Controller;
pub use writes::own_writes::AwaitedWrite;

//! Controllers.

mod conditions;

pub use conditions::{Condition, ConditionStatus, Conditions};

//! What a controller reads and writes in objects: owners, conditions, finalizers, managed fields. No I/O.

pub(crate) mod conditions;
pub(crate) mod managed_fields;
pub(crate) mod owner;
pub(crate) mod predicate;

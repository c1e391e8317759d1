//! What a controller reads and writes in objects: owners, conditions, managed fields, and what an
//! update changes. No I/O.

pub(crate) mod conditions;
pub(crate) mod managed_fields;
pub(crate) mod owner;
pub(crate) mod predicate;

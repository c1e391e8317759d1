//! The informers of a controller: which objects they have, whether their kinds exist, and when their
//! caches are current.

pub(crate) mod barrier;
pub(crate) mod catch_up;
pub(crate) mod division;
pub(crate) mod optional;
pub(crate) mod presence;
pub(crate) mod source;

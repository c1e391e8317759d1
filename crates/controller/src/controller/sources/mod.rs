//! The informers of a controller: which objects they have, whether their kinds exist, and how their
//! caches become current.

pub(crate) mod catch_up;
pub(crate) mod division;
pub(crate) mod presence;
pub(crate) mod source;

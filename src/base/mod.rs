//! Helpers that know nothing of Kubernetes.

pub(crate) mod adaptive_buffer;
pub(crate) mod deadline;
pub(crate) mod derive;
pub(crate) mod digest;
pub(crate) mod hash;
pub(crate) mod last_problem;
pub(crate) mod panic;
pub(crate) mod shrink;
pub(crate) mod sync;
pub(crate) mod text;
pub(crate) mod threads;

//! Builds and controls a controller.

pub(crate) mod builder;
pub(crate) mod drive;
pub(crate) mod handle;
pub(crate) mod remove_finalizers;

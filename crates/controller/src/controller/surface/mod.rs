//! Builds and controls a controller.

pub(crate) mod builder;
pub(crate) mod drive;
pub(crate) mod handle;

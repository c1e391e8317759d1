//! The store and its operations: versions, lists, writes, CustomResourceDefinitions.

pub(crate) mod crd;
pub(crate) mod garbage;
pub(crate) mod list;
pub(crate) mod shared;
pub(crate) mod store;
pub(crate) mod watches;
pub(crate) mod write;

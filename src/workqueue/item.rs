use std::hash::Hash;

/// An item of a [`WorkQueue`](super::WorkQueue). Every type with these traits is one.
pub trait Item: Clone + Eq + Hash + Send + 'static {}

impl<T: Clone + Eq + Hash + Send + 'static> Item for T {}

//! What the calls of a controller have written, and the keys that wait until the caches have it.

pub(crate) mod applied;
pub(crate) mod own_writes;
mod postponed;
pub(crate) mod record;

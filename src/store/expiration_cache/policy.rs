use std::sync::Arc;
use std::time::Instant;

use crate::base::derive::debug_fields;
use crate::object::Key;

/// Returns whether an entry has expired.
pub(super) type Policy<T> = dyn Fn(&TimestampedEntry<T>) -> bool + Send + Sync;

/// An entry of an [`ExpirationCache`](super::ExpirationCache): an object and the time of its last
/// write. client-go's `TimestampedEntry`.
#[non_exhaustive]
pub struct TimestampedEntry<T> {
    /// The key of the object.
    pub key: Key,
    /// The object.
    pub object: Arc<T>,
    /// The time of the last write, by the clock of the cache.
    pub timestamp: Instant,
}

debug_fields!(TimestampedEntry<T>: key, timestamp);

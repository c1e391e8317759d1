use std::fmt;
use std::sync::Arc;
use std::time::Instant;

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

impl<T> fmt::Debug for TimestampedEntry<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimestampedEntry")
            .field("key", &self.key)
            .field("timestamp", &self.timestamp)
            .finish_non_exhaustive()
    }
}

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::object::Key;
use crate::time::Clock;

/// Decides when an entry of an [`ExpirationCache`](super::ExpirationCache) has expired. client-go's
/// `ExpirationPolicy`.
///
/// The cache calls the policy on each read of the entry, without a lock. The policy may use the
/// cache. Closures implement this trait; [`TtlPolicy`] is the usual implementation.
///
/// ```
/// use k8s_informer::object::Accessor;
/// use k8s_informer::store::{ExpirationCache, ReflectorStore, Store, TimestampedEntry};
/// use std::sync::Arc;
///
/// let cache = ExpirationCache::builder(Accessor::new(|word: &String| Ok(word.as_str().into())))
///     .policy(|entry: &TimestampedEntry<String>| entry.object.starts_with('x'))
///     .build();
/// cache.add(Arc::new("keep".to_owned()))?;
/// cache.add(Arc::new("xyz".to_owned()))?;
/// assert_eq!(cache.list(), [Arc::new("keep".to_owned())]);
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
pub trait ExpirationPolicy<T>: Send + Sync {
    /// Whether the entry has expired.
    fn is_expired(&self, entry: &TimestampedEntry<T>) -> bool;
}

impl<T, F: Fn(&TimestampedEntry<T>) -> bool + Send + Sync> ExpirationPolicy<T> for F {
    fn is_expired(&self, entry: &TimestampedEntry<T>) -> bool {
        self(entry)
    }
}

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

/// A policy by which entries expire at a certain age. client-go's `TTLPolicy`.
///
/// [`ExpirationCacheBuilder::ttl`](super::ExpirationCacheBuilder::ttl) creates one with the clock
/// of the cache. Use this type directly in a custom policy.
///
/// ```
/// use k8s_informer::store::{ExpirationPolicy, ReflectorStore, Store, TimestampedEntry, TtlPolicy};
/// use k8s_informer::time::RealClock;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let ttl = TtlPolicy { ttl: Duration::from_secs(60), clock: Arc::new(RealClock) };
/// let but_the_root =
///     move |entry: &TimestampedEntry<String>| &*entry.key != "root" && ttl.is_expired(entry);
/// # let accessor = k8s_informer::object::Accessor::new(|word: &String| Ok(word.as_str().into()));
/// let cache = k8s_informer::store::ExpirationCache::builder(accessor).policy(but_the_root).build();
/// cache.add(Arc::new("root".to_owned()))?;
/// assert_eq!(cache.list().len(), 1);
/// # Ok::<(), k8s_informer::store::StoreError>(())
/// ```
#[derive(Clone)]
#[doc(alias = "TTLPolicy")]
pub struct TtlPolicy {
    /// The maximum age. Older entries have expired; an entry of exactly this age has not. With
    /// zero, entries never expire.
    pub ttl: Duration,
    /// The clock that measures the age. It must be the clock that sets the timestamps of the
    /// entries.
    pub clock: Arc<dyn Clock>,
}

impl<T> ExpirationPolicy<T> for TtlPolicy {
    fn is_expired(&self, entry: &TimestampedEntry<T>) -> bool {
        !self.ttl.is_zero()
            && self.clock.now().saturating_duration_since(entry.timestamp) > self.ttl
    }
}

impl fmt::Debug for TtlPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TtlPolicy")
            .field("ttl", &self.ttl)
            .finish_non_exhaustive()
    }
}

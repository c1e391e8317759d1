use std::sync::Arc;
use std::time::Duration;

use super::policy::Policy;
use super::{ExpirationCache, TimestampedEntry};
use crate::base::derive::debug_fields;
use crate::object::Accessor;
use crate::store::{Indexers, ThreadSafeStore};
use crate::time::{Clock, RealClock};

/// Options for an [`ExpirationCache`].
#[must_use]
pub struct ExpirationCacheBuilder<T> {
    accessor: Accessor<T>,
    ttl: Duration,
    policy: Option<Box<Policy<T>>>,
    clock: Arc<dyn Clock>,
}

impl<T> ExpirationCacheBuilder<T> {
    pub(super) fn new(accessor: Accessor<T>) -> Self {
        Self {
            accessor,
            ttl: Duration::ZERO,
            policy: None,
            clock: Arc::new(RealClock),
        }
    }

    /// Sets the age after which objects expire. An object of exactly this age has not expired. The
    /// default is zero: objects never expire. This call replaces an earlier
    /// [`policy`](Self::policy). client-go's `TTLPolicy` and `NewTTLStore`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        (self.ttl, self.policy) = (ttl, None);
        self
    }

    /// Sets a policy: a function that returns whether an entry has expired. It is called on each
    /// read of the entry, without a lock. It may write to the cache, but must not read an entry of the
    /// cache: that calls the policy again. This call replaces an earlier [`ttl`](Self::ttl).
    /// client-go's `ExpirationPolicy` and `NewExpirationStore`.
    ///
    /// ```
    /// use k8s_informer::object::Accessor;
    /// use k8s_informer::store::{ExpirationCache, ReflectorStore, Store};
    /// use std::sync::Arc;
    ///
    /// let cache = ExpirationCache::builder(Accessor::new(|word: &String| Ok(word.as_str().into())))
    ///     .policy(|entry| entry.object.starts_with('x'))
    ///     .build();
    /// cache.add(Arc::new("keep".to_owned()))?;
    /// cache.add(Arc::new("xyz".to_owned()))?;
    /// assert_eq!(cache.list(), [Arc::new("keep".to_owned())]);
    /// # Ok::<(), k8s_informer::store::StoreError>(())
    /// ```
    pub fn policy(
        mut self,
        policy: impl Fn(&TimestampedEntry<T>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.policy = Some(Box::new(policy));
        self
    }

    /// Sets the clock for the timestamps of entries and the age of a [`ttl`](Self::ttl). The
    /// default is [`RealClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Creates the empty cache.
    pub fn build(self) -> ExpirationCache<T> {
        let Self { ttl, clock, .. } = self;
        let now = Arc::clone(&clock);
        let policy = self.policy.unwrap_or_else(|| {
            Box::new(move |entry: &TimestampedEntry<T>| {
                !ttl.is_zero() && now.now().saturating_duration_since(entry.timestamp) > ttl
            })
        });
        ExpirationCache {
            accessor: self.accessor,
            policy,
            clock,
            storage: ThreadSafeStore::new(Indexers::new()),
        }
    }
}

debug_fields!(ExpirationCacheBuilder<T>:);

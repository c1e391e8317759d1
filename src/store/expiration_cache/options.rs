use std::sync::Arc;
use std::time::Duration;

use super::TimestampedEntry;
use super::policy::Policy;
use crate::base::derive::debug_fields;
use crate::time::{Clock, RealClock};

/// Options for an [`ExpirationCache`](super::ExpirationCache).
#[must_use]
#[non_exhaustive]
pub struct ExpirationCacheOptions<T> {
    expiry: Expiry<T>,
    clock: Arc<dyn Clock>,
}

/// When the objects of a cache expire.
enum Expiry<T> {
    Never,
    /// When they are older.
    Ttl(Duration),
    Policy(Box<Policy<T>>),
}

impl<T> ExpirationCacheOptions<T> {
    /// Creates the default options: objects never expire.
    pub fn new() -> Self {
        Self {
            expiry: Expiry::Never,
            clock: Arc::new(RealClock),
        }
    }

    /// Sets the age after which objects expire. An object of exactly this age has not expired. With
    /// zero, objects never expire, which is the default. This call replaces an earlier
    /// [`policy`](Self::policy). client-go's `TTLPolicy` and `NewTTLStore`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.expiry = match ttl {
            Duration::ZERO => Expiry::Never,
            ttl => Expiry::Ttl(ttl),
        };
        self
    }

    /// Sets a policy: a function that returns whether an entry has expired. It is called on each
    /// read of the entry, without a lock. It may write to the cache, but must not read an entry of the
    /// cache: that calls the policy again. This call replaces an earlier [`ttl`](Self::ttl).
    /// client-go's `ExpirationPolicy` and `NewExpirationStore`.
    ///
    /// ```
    /// use k8s_informer::object::Accessor;
    /// use k8s_informer::store::{ExpirationCache, ExpirationCacheOptions, ReflectorStore, Store};
    /// use std::sync::Arc;
    ///
    /// let accessor = Accessor::new(|word: &String| Ok(word.as_str().into()));
    /// let options = ExpirationCacheOptions::<String>::new().policy(|entry| entry.object.starts_with('x'));
    /// let cache = ExpirationCache::with_options(accessor, options);
    /// cache.add(Arc::new("keep".to_owned()))?;
    /// cache.add(Arc::new("xyz".to_owned()))?;
    /// assert_eq!(cache.list(), [Arc::new("keep".to_owned())]);
    /// # Ok::<(), k8s_informer::store::StoreError>(())
    /// ```
    pub fn policy(
        mut self,
        policy: impl Fn(&TimestampedEntry<T>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.expiry = Expiry::Policy(Box::new(policy));
        self
    }

    /// Sets the clock for the timestamps of entries and the age of a [`ttl`](Self::ttl). The
    /// default is [`RealClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Returns the function that decides whether an entry has expired, and the clock.
    pub(super) fn into_parts(self) -> (Box<Policy<T>>, Arc<dyn Clock>) {
        let Self { expiry, clock } = self;
        let policy: Box<Policy<T>> = match expiry {
            Expiry::Never => Box::new(|_| false),
            Expiry::Ttl(ttl) => {
                let clock = Arc::clone(&clock);
                Box::new(move |entry| clock.now().saturating_duration_since(entry.timestamp) > ttl)
            }
            Expiry::Policy(policy) => policy,
        };
        (policy, clock)
    }
}

impl<T> Default for ExpirationCacheOptions<T> {
    fn default() -> Self {
        Self::new()
    }
}

debug_fields!(ExpirationCacheOptions<T>:);

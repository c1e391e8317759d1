use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ExpirationCache, ExpirationPolicy, TtlPolicy};
use crate::object::Accessor;
use crate::store::{Indexers, ThreadSafeStore};
use crate::time::{Clock, RealClock};

/// Options for an [`ExpirationCache`].
#[must_use]
pub struct ExpirationCacheBuilder<T> {
    accessor: Accessor<T>,
    expires: Expires<T>,
    clock: Arc<dyn Clock>,
}

enum Expires<T> {
    After(Duration),
    By(Box<dyn ExpirationPolicy<T>>),
}

impl<T> ExpirationCacheBuilder<T> {
    pub(super) fn new(accessor: Accessor<T>) -> Self {
        Self {
            accessor,
            expires: Expires::After(Duration::ZERO),
            clock: Arc::new(RealClock),
        }
    }

    /// Sets the age after which objects expire. An object of exactly this age has not expired. The
    /// default is zero: objects never expire. This call replaces an earlier
    /// [`policy`](Self::policy). client-go's `NewTTLStore`.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.expires = Expires::After(ttl);
        self
    }

    /// Sets a policy that decides which objects have expired. This call replaces an earlier
    /// [`ttl`](Self::ttl). client-go's `NewExpirationStore`.
    pub fn policy(mut self, policy: impl ExpirationPolicy<T> + 'static) -> Self {
        self.expires = Expires::By(Box::new(policy));
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
        let Self {
            accessor,
            expires,
            clock,
        } = self;
        let policy = match expires {
            Expires::After(ttl) => Box::new(TtlPolicy {
                ttl,
                clock: Arc::clone(&clock),
            }),
            Expires::By(policy) => policy,
        };
        ExpirationCache {
            accessor,
            policy,
            clock,
            storage: ThreadSafeStore::new(Indexers::new()),
        }
    }
}

impl<T> fmt::Debug for ExpirationCacheBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExpirationCacheBuilder")
            .finish_non_exhaustive()
    }
}

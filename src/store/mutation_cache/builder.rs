use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::MutationCache;
use super::lru::Lru;
use crate::object::Accessor;
use crate::store::{Indexer, Store};
use crate::sync::Mutex;
use crate::time::{Clock, RealClock};

const TTL: Duration = Duration::from_secs(5 * 60);
const MAX_SIZE: usize = 100;

/// Options for a [`MutationCache`]. client-go's `MutationCacheOptions`.
#[must_use]
pub struct MutationCacheBuilder<T> {
    accessor: Accessor<T>,
    store: Arc<dyn Store<T>>,
    indexer: Option<Arc<Indexer<T>>>,
    include_adds: bool,
    ttl: Duration,
    max_size: usize,
    clock: Arc<dyn Clock>,
}

impl<T> MutationCacheBuilder<T> {
    pub(super) fn new(accessor: Accessor<T>, store: Arc<dyn Store<T>>) -> Self {
        Self {
            accessor,
            store,
            indexer: None,
            include_adds: false,
            ttl: TTL,
            max_size: MAX_SIZE,
            clock: Arc::new(RealClock),
        }
    }

    /// Sets the indexer that [`by_index`](MutationCache::by_index) reads, usually the store itself.
    /// There is no default: without an indexer, `by_index` fails.
    pub fn indexer(mut self, indexer: Arc<Indexer<T>>) -> Self {
        self.indexer = Some(indexer);
        self
    }

    /// Sets whether to return objects that the store does not have. The default is `false`.
    ///
    /// The store does not have an object that you created until the watch delivers it. If the
    /// object has been deleted in the meantime, the watch may never deliver it. Then the cache
    /// returns the object until the mutation expires.
    pub fn include_adds(mut self, include_adds: bool) -> Self {
        self.include_adds = include_adds;
        self
    }

    /// Sets how long a mutation is kept. Choose a time that is at least as long as the watch may be
    /// delayed. The default is five minutes. Zero also means five minutes.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = if ttl.is_zero() { TTL } else { ttl };
        self
    }

    /// Sets how many mutations are kept. A new mutation evicts the least recently read or written
    /// one. The default is 100. Zero also means 100.
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = if max_size == 0 { MAX_SIZE } else { max_size };
        self
    }

    /// Sets the clock that measures the age of mutations. The default is [`RealClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Creates the cache, without mutations.
    pub fn build(self) -> MutationCache<T> {
        let Self {
            accessor,
            store,
            indexer,
            include_adds,
            ttl,
            max_size,
            clock,
        } = self;
        let overlay = Mutex::new(Lru::new(max_size, ttl));
        MutationCache {
            accessor,
            store,
            indexer,
            include_adds,
            clock,
            overlay,
        }
    }
}

impl<T> fmt::Debug for MutationCacheBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MutationCacheBuilder")
            .field("include_adds", &self.include_adds)
            .field("ttl", &self.ttl)
            .field("max_size", &self.max_size)
            .finish_non_exhaustive()
    }
}

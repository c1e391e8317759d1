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

/// Options of a [`MutationCache`]. client-go's `MutationCacheOptions`.
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

    /// Where [`by_index`](MutationCache::by_index) looks: most often the store itself. Default: none, and
    /// then there is no looking by index.
    pub fn indexer(mut self, indexer: Arc<Indexer<T>>) -> Self {
        self.indexer = Some(indexer);
        self
    }

    /// Whether objects are answered that the store does not have: you have created them, and the watch has
    /// not brought them yet. Or somebody has deleted them since, and the watch will never bring them: then
    /// they are answered until they are too old. Default: no.
    pub fn include_adds(mut self, include_adds: bool) -> Self {
        self.include_adds = include_adds;
        self
    }

    /// How long a mutation is remembered: as long as the watch may be late. Default, and what zero stands
    /// for: five minutes.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = if ttl.is_zero() { TTL } else { ttl };
        self
    }

    /// How many mutations are remembered; the one not read or written for longest makes room for a new one.
    /// Default, and what zero stands for: 100.
    pub fn max_size(mut self, max_size: usize) -> Self {
        self.max_size = if max_size == 0 { MAX_SIZE } else { max_size };
        self
    }

    /// Tells the age of mutations. Default: [`RealClock`].
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The cache, without mutations.
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

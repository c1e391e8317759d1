//! A cache that includes your own writes before the watch delivers them.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::{Shared, SharedIndexInformer};
use crate::informer::error::InformerError;
use crate::informer::handler::ResourceEventHandler;
use crate::informer::listener::HandlerBuffer;
use crate::informer::registration::{HandlerOptions, HandlerRegistration};
use crate::log;
use crate::object::{Deleted, Object};
use crate::store::{MutationCache, MutationCacheBuilder, Store, StoreError};

impl<T: Object> SharedIndexInformer<T> {
    /// Returns a cache that includes your own writes before the watch delivers them. Pass the
    /// server's response to each write to [`MutationCache::mutation`], and read from this cache
    /// instead of the informer's. `set` sets the options.
    ///
    /// The method adds a handler to the informer. The handler drops a mutation when the watch
    /// delivers the object in the same or a later version, or its deletion. The handler uses two
    /// threads. After you drop the last reference to the cache, the next notification removes the
    /// handler.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer::client::Request;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    /// use std::sync::Arc;
    ///
    /// let server = ApiServer::start()?;
    /// server.create("/api/v1/namespaces/web/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// let client = Client::new(Config::new(server.url()))?;
    /// let factory = SharedInformerFactory::builder(client.clone()).build();
    /// let maps = factory.informer::<ConfigMap>();
    /// let fresh = maps.mutation_cache(|cache| cache.include_adds(true))?;
    /// let stop = Stop::new();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(&stop)?;
    ///
    /// let patch = Request::patch("/api/v1/namespaces/web/configmaps/a")
    ///     .content_type("application/merge-patch+json")
    ///     .json(&json!({"data": {"k": "v"}}))?;
    /// let written: ConfigMap = client.request(&patch, &stop)?.json()?;
    /// fresh.mutation(Arc::new(written))?;
    /// let read = fresh.get_by_key("web/a")?.expect("the object exists");
    /// assert_eq!(read.data.as_ref().expect("the object has data")["k"], "v"); // Before the watch event.
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails like [`add_handler`](Self::add_handler).
    pub fn mutation_cache(
        &self,
        set: impl FnOnce(MutationCacheBuilder<T>) -> MutationCacheBuilder<T>,
    ) -> Result<Arc<MutationCache<T>>, InformerError> {
        let indexer = &self.shared.indexer;
        let store: Arc<dyn Store<T>> = Arc::clone(indexer) as _;
        let cache =
            MutationCache::builder(indexer.accessor().clone(), store).indexer(Arc::clone(indexer));
        let cache = Arc::new(set(cache).build());
        let options = HandlerOptions {
            name: format!("mutation cache of {}", self.name()),
            resync_period: Some(Duration::ZERO),
            // Every notification is needed: a coalescing buffer would drop an add together with the
            // delete that follows, but only the delete ends the mutation of the object.
            buffer: HandlerBuffer::Unbounded,
        };
        let own = Arc::default();
        let (informer, weak_cache) = (Arc::downgrade(&self.shared), Arc::downgrade(&cache));
        let updater = MutationCacheUpdater {
            cache: weak_cache,
            informer,
            own: Arc::clone(&own),
        };
        let registration = self.add_handler_with_options(updater, options)?;
        own.get_or_init(|| registration);
        Ok(cache)
    }
}

/// Passes the informer's notifications to a mutation cache while the cache exists.
struct MutationCacheUpdater<T> {
    cache: Weak<MutationCache<T>>,
    informer: Weak<Shared<T>>,
    /// The registration of this handler. It is set before the caller gets the cache and can drop
    /// it.
    own: Arc<OnceLock<HandlerRegistration>>,
}

impl<T: Object> MutationCacheUpdater<T> {
    fn update_cache(&self, update: impl FnOnce(&MutationCache<T>) -> Result<(), StoreError>) {
        if let Some(cache) = self.cache.upgrade() {
            // The error is harmless, so a debug message is enough: an object whose version cannot
            // be compared counts as newer than any mutation.
            if let Err(error) = update(&cache) {
                log::debug!("mutation cache: not updated: {error}");
            }
        } else if let (Some(shared), Some(own)) = (self.informer.upgrade(), self.own.get()) {
            SharedIndexInformer { shared }.remove_event_handler(own);
        }
    }
}

impl<T: Object> ResourceEventHandler<T> for MutationCacheUpdater<T> {
    fn on_add(&mut self, object: &Arc<T>, _is_in_initial_list: bool) {
        self.update_cache(|cache| cache.on_add_or_update(object));
    }

    fn on_update(&mut self, _old: &Arc<T>, new: &Arc<T>) {
        self.on_add(new, false);
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        self.update_cache(|cache| cache.on_delete(gone));
    }
}

//! Your own writes, seen before the watch brings them.

use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use super::{Shared, SharedIndexInformer};
use crate::informer::error::InformerError;
use crate::informer::handler::ResourceEventHandler;
use crate::informer::listener::HandlerBuffer;
use crate::informer::registration::{HandlerOptions, HandlerRegistration};
use crate::object::{Deleted, Object};
use crate::store::{MutationCache, MutationCacheBuilder, Store, StoreError};

impl<T: Object> SharedIndexInformer<T> {
    /// The cache as it will be once the watch has brought what you have written yourself: hand it what the
    /// server answers to your writes, and read there instead of in the cache. `set` sets its options. It
    /// learns from a handler of its own what the watch brings, and forgets what is overtaken. That handler,
    /// with its two threads, goes with the first event after nobody has the cache any more.
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
    /// let read = fresh.get_by_key("web/a")?.expect("it is there");
    /// assert_eq!(read.data.as_ref().expect("the new data")["k"], "v"); // Whatever the watch has brought.
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`add_handler`](Self::add_handler).
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
            // It has to hear of what came and went, too: that is a mutation's end.
            buffer: HandlerBuffer::Unbounded,
        };
        let own = Arc::default();
        let (informer, told) = (Arc::downgrade(&self.shared), Arc::downgrade(&cache));
        let overtakes = Overtakes {
            cache: told,
            informer,
            own: Arc::clone(&own),
        };
        let registration = self.add_handler_with_options(overtakes, options)?;
        own.get_or_init(|| registration);
        Ok(cache)
    }
}

/// Tells a mutation cache, while somebody has it, what the watch brings (M4).
struct Overtakes<T> {
    cache: Weak<MutationCache<T>>,
    informer: Weak<Shared<T>>,
    /// Its own registration, there before anybody can have dropped the cache.
    own: Arc<OnceLock<HandlerRegistration>>,
}

impl<T: Object> Overtakes<T> {
    fn update_cache(&self, update: impl FnOnce(&MutationCache<T>) -> Result<(), StoreError>) {
        if let Some(cache) = self.cache.upgrade() {
            // An object whose version can't be compared counts as newer than any mutation, whatever is told.
            if let Err(error) = update(&cache) {
                log::debug!("mutation cache: not told: {error}");
            }
        } else if let (Some(shared), Some(own)) = (self.informer.upgrade(), self.own.get()) {
            SharedIndexInformer { shared }.remove_event_handler(own);
        }
    }
}

impl<T: Object> ResourceEventHandler<T> for Overtakes<T> {
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

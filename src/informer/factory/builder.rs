use std::any::TypeId;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use super::{Factory, SharedInformerFactory};
use crate::base::derive::debug_fields;
use crate::base::sync::Mutex;
use crate::base::threads::{Owner, Threads};
use crate::informer::queue::InformerQueue;
use crate::informer::scope::InformerScope;
use crate::metrics::MetricsProvider;
use crate::object::Object;
use crate::reflector::{ListerWatcherSource, ReflectorOptions};
use crate::store::Transform;

/// A builder for a [`SharedInformerFactory`]. Its settings apply to all informers of the factory.
///
/// ```
/// use k8s_informer::informer::InformerScope;
/// use k8s_informer::object::GroupVersionResource;
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
/// use k8s_informer_testing::ApiServer;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let maps = "/api/v1/namespaces/default/configmaps";
/// server.create(maps, json!({"metadata": {"name": "a", "labels": {"app": "web"}}}))?;
/// server.create(maps, json!({"metadata": {"name": "b"}}))?;
///
/// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?)
///     .scope(InformerScope::all().namespace("default").label_selector("app=web".parse()?))
///     .build();
/// let maps = factory.dynamic(GroupVersionResource::new("", "v1", "configmaps"));
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(&stop)?;
/// let names: Vec<_> = maps.lister().list().iter().map(|map| map.name().to_owned()).collect();
/// assert_eq!(names, ["a"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct SharedInformerFactoryBuilder {
    factory: Factory,
}

impl SharedInformerFactoryBuilder {
    pub(super) fn new(source: Arc<dyn ListerWatcherSource>) -> Self {
        Self {
            factory: Factory {
                source,
                scope: InformerScope::all(),
                reflector: ReflectorOptions::default(),
                queue: InformerQueue::default(),
                recreation_as_delete_and_add: false,
                one_thread: false,
                transforms: HashMap::new(),
                metrics: None,
                informers: Mutex::default(),
                threads: Threads::new(Owner::new()),
            },
        }
    }

    /// Sets the resync period: the interval at which handlers receive an update for every object in
    /// the cache. By default there are no resyncs.
    pub fn resync(mut self, period: Duration) -> Self {
        self.factory.reflector.resync_period = period;
        self
    }

    /// Restricts the factory to the objects of this namespace. Call it several times for several
    /// namespaces. By default the factory covers all namespaces.
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.factory.scope = self.factory.scope.clone().namespace(namespace);
        self
    }

    /// Sets the scope of informers that are requested without a scope. The default is all objects.
    pub fn scope(mut self, scope: InformerScope) -> Self {
        self.factory.scope = scope;
        self
    }

    /// Sets the options of the reflectors: page size, back-off, clock, watch error handler. This
    /// also replaces the resync period set by [`resync`](Self::resync), and sets the stack sizes of
    /// the threads.
    pub fn reflector_options(mut self, options: ReflectorOptions) -> Self {
        self.factory.reflector = options;
        self
    }

    /// Sets whether each informer runs on [one
    /// thread](crate::informer::SharedIndexInformerOptions::one_thread).
    pub fn one_thread(mut self, one_thread: bool) -> Self {
        self.factory.one_thread = one_thread;
        self
    }

    /// Sets the kind of queue between the reflectors and the caches.
    pub fn queue(mut self, queue: InformerQueue) -> Self {
        self.factory.queue = queue;
        self
    }

    /// Sets the transform of all informers for `T`. It changes each object before the object
    /// reaches the cache and the handlers. client-go's `WithTransform`.
    ///
    /// Call this method once for each type. To drop fields from the objects of every type, for
    /// example `managedFields`, use [`ReflectorOptions::skip`]. Skipped fields are not decoded at
    /// all.
    ///
    /// ```
    /// use k8s_informer::store::Transform;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let map = json!({"metadata": {"name": "a"}, "data": {"large": "x"}});
    /// server.create("/api/v1/namespaces/default/configmaps", map)?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?)
    ///     .transform(Transform::in_place(|map: &mut ConfigMap| map.data = None))
    ///     .build();
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(&stop)?;
    /// assert_eq!(maps.lister().list()[0].data, None);
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn transform<T: Object>(mut self, transform: Transform<T>) -> Self {
        let transforms = &mut self.factory.transforms;
        transforms.insert(TypeId::of::<T>(), Box::new(transform));
        self
    }

    /// Sets whether the deletion and recreation of an object that the watch missed are delivered as
    /// a deletion and an add; see
    /// [`SharedIndexInformerOptions::recreation_as_delete_and_add`](crate::informer::SharedIndexInformerOptions::recreation_as_delete_and_add).
    pub fn recreation_as_delete_and_add(mut self, recreation_as_delete_and_add: bool) -> Self {
        self.factory.recreation_as_delete_and_add = recreation_as_delete_and_add;
        self
    }

    /// Publishes metrics of the factory's informers. The factory requests the metrics of each
    /// informer from `provider`, with this name as a label.
    ///
    /// See [`MetricsProvider`]. client-go's `WithInformerName` and `SetInformerMetricsProvider`;
    /// here the provider belongs to the factory, not to the process.
    pub fn metrics(mut self, name: impl Into<String>, provider: Arc<dyn MetricsProvider>) -> Self {
        self.factory.metrics = Some((name.into(), provider));
        self
    }

    /// Builds the factory.
    pub fn build(self) -> SharedInformerFactory {
        SharedInformerFactory {
            factory: Arc::new(self.factory),
        }
    }
}

debug_fields!(SharedInformerFactoryBuilder, this,
    scope: this.factory.scope,
    reflector: this.factory.reflector
);

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::base::derive::{debug_fields, setters};
use crate::informer::queue::InformerQueue;
use crate::informer::scope::InformerScope;
use crate::metrics::MetricsProvider;
use crate::object::Object;
use crate::reflector::ReflectorOptions;
use crate::store::Transform;

/// Options for a [`SharedInformerFactory`](crate::SharedInformerFactory). They apply to all informers
/// of the factory. client-go's `SharedInformerOption`.
///
/// ```
/// use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
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
/// let client = Client::new(Config::new(server.url()))?;
/// let web = InformerScope::all().namespace("default").label_selector("app=web".parse()?);
/// let factory = SharedInformerFactory::with_options(client, FactoryOptions::new().scope(web));
/// let maps = factory.informer_for(Source::dynamic(GroupVersionResource::new("", "v1", "configmaps")));
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
/// let names: Vec<_> = maps.lister().list().iter().map(|map| map.name().to_owned()).collect();
/// assert_eq!(names, ["a"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct FactoryOptions {
    /// The scope of informers that are requested without a scope.
    pub scope: InformerScope,
    /// The options of the reflectors.
    pub reflector: ReflectorOptions,
    /// The kind of queue between the reflectors and the caches.
    pub queue: InformerQueue,
    /// Whether a recreation that the watch missed is delivered as a deletion and an add.
    pub recreation_as_delete_and_add: bool,
    /// Whether each informer runs on one thread.
    pub one_thread: bool,
    /// A [`Transform<T>`](crate::store::Transform) for each type `T`.
    pub(super) transforms: HashMap<TypeId, Arc<dyn Any + Send + Sync>>,
    /// The name of the informers in metrics, and the provider of the metrics.
    pub metrics: Option<(String, Arc<dyn MetricsProvider>)>,
}

impl FactoryOptions {
    /// Creates options for informers of all objects of a kind, without resyncs.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the scope of informers that are requested without a scope. The default is all objects.
        scope(scope: InformerScope) = scope;
        /// Sets the options of the reflectors: page size, back-off, clock, watch error handler. This
        /// also replaces the period set by [`resync_period`](Self::resync_period), and sets the stack
        /// sizes of the threads.
        reflector(options: ReflectorOptions) = options;
        /// Sets whether each informer runs on [one
        /// thread](crate::informer::SharedIndexInformerOptions::one_thread).
        one_thread(one_thread: bool) = one_thread;
        /// Sets the kind of queue between the reflectors and the caches.
        queue(queue: InformerQueue) = queue;
        /// Sets whether the deletion and recreation of an object that the watch missed are delivered as
        /// a deletion and an add; see
        /// [`SharedIndexInformerOptions::recreation_as_delete_and_add`](crate::informer::SharedIndexInformerOptions::recreation_as_delete_and_add).
        recreation_as_delete_and_add(separate: bool) = separate;
    }

    /// Sets the resync period: the interval at which handlers receive an update for every object in
    /// the cache. By default there are no resyncs.
    #[must_use]
    pub fn resync_period(mut self, period: Duration) -> Self {
        self.reflector.resync_period = period;
        self
    }

    /// Adds this namespace to the [`scope`](Self::scope). Call it several times for several namespaces.
    /// By default the factory covers all namespaces.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.scope = self.scope.namespace(namespace);
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
    /// use k8s_informer::informer::FactoryOptions;
    /// use k8s_informer::store::Transform;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let map = json!({"metadata": {"name": "a"}, "data": {"large": "x"}});
    /// server.create("/api/v1/namespaces/default/configmaps", map)?;
    /// let without_data = Transform::in_place(|map: &mut ConfigMap| map.data = None);
    /// let options = FactoryOptions::new().transform(without_data);
    /// let factory = SharedInformerFactory::with_options(Client::new(Config::new(server.url()))?, options);
    /// let maps = factory.informer::<ConfigMap>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(None, &stop)?;
    /// assert_eq!(maps.lister().list()[0].data, None);
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn transform<T: Object>(mut self, transform: Transform<T>) -> Self {
        self.transforms
            .insert(TypeId::of::<T>(), Arc::new(transform));
        self
    }

    /// Publishes metrics of the factory's informers. The factory requests the metrics of each
    /// informer from `provider`, with this name as a label.
    ///
    /// See [`MetricsProvider`]. client-go's `WithInformerName` and `SetInformerMetricsProvider`;
    /// here the provider belongs to the factory, not to the process.
    #[must_use]
    pub fn metrics(mut self, name: impl Into<String>, provider: Arc<dyn MetricsProvider>) -> Self {
        self.metrics = Some((name.into(), provider));
        self
    }
}

debug_fields!(FactoryOptions: scope, reflector);

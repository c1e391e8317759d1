//! Factories: one shared informer per kind and scope, started and stopped together.

mod any_informer;
mod builder;
mod lifecycle;
mod observe;

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use self::any_informer::AnyInformer;
use super::error::InformerError;
use super::handler::ResourceEventHandler;
use super::options::SharedIndexInformerOptions;
use super::queue::InformerQueue;
use super::scope::{InformerScope, Scoped};
use super::shared_informer::{Part, SharedIndexInformer};
use super::source::Source;
use crate::base::derive::debug_fields;
use crate::base::panic::catch;
use crate::base::sync::Mutex;
use crate::base::threads::Threads;
use crate::error::Error;
use crate::log;
use crate::metrics::{InformerMetrics, MetricsProvider};
use crate::object::{DynamicObject, GroupVersionKind, GroupVersionResource, Object, Resource};
use crate::reflector::{ListerWatcher, ListerWatcherSource, ReflectorOptions};
use crate::stop::{Done, Stop};
use crate::store::Indexers;

pub use builder::SharedInformerFactoryBuilder;
pub use lifecycle::ShutdownError;
pub use observe::{Observation, Observe, observe};

/// Creates and shares informers: one for each kind of object and scope. client-go's
/// `SharedInformerFactory`.
///
/// Clones refer to the same factory. Dropping the last clone stops the informers that the factory
/// started, without waiting for them.
///
/// ```
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let factory = SharedInformerFactory::builder(client).namespace("kube-system").build();
/// let maps = factory.informer::<ConfigMap>();
///
/// let stop = Stop::new();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(&stop)?;
/// assert!(maps.lister().list().is_empty());
/// factory.shutdown();
/// assert!(maps.is_stopped());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedInformerFactory {
    factory: Arc<Factory>,
}

struct Factory {
    source: Arc<dyn ListerWatcherSource>,
    /// The scope of informers that are requested without a scope.
    scope: InformerScope,
    common: Common,
    /// The name of the informers in metrics, and the provider of the metrics.
    metrics: Option<(String, Arc<dyn MetricsProvider>)>,
    /// The informers, and whether the factory was shut down. No blocking call is made under this
    /// lock.
    informers: Mutex<Informers>,
    /// The threads that run informers.
    threads: Threads,
}

/// The initial options of all informers of a factory.
#[derive(Default)]
struct Common {
    reflector: ReflectorOptions,
    queue: InformerQueue,
    recreation_as_delete_and_add: bool,
    /// A [`Transform<T>`] for each type `T`.
    transforms: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

#[derive(Default)]
struct Informers {
    all: HashMap<Identity, Entry>,
    /// The informers that were stopped individually and are no longer in `all`. A shutdown waits
    /// for them until they have ended.
    stopping: Vec<Entry>,
    shut_down: bool,
}

impl Informers {
    /// The informers that were started, with their runs.
    fn running(&self) -> impl Iterator<Item = (&Arc<dyn AnyInformer>, &Run)> {
        let entries = self.all.values().chain(&self.stopping);
        entries.filter_map(|entry| Some((&entry.informer, entry.run.as_ref()?)))
    }
}

/// Identifies an informer of the factory. Requests with equal identities get the same informer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    type_id: TypeId,
    resource: GroupVersionResource,
    scope: InformerScope,
    /// 0 for a shared informer; a unique number for an informer that is not shared.
    exclusive: u64,
}

impl Identity {
    fn new<T: 'static>(source: &Source<T>, exclusive: u64) -> Self {
        Self {
            type_id: TypeId::of::<T>(),
            resource: source.resource.clone(),
            scope: source.scope.clone().unwrap_or_default(),
            exclusive,
        }
    }

    /// Checks the names in request paths. An invalid name would make every request fail.
    fn check(&self, entry: &Entry) -> Result<(), InformerError> {
        let checked = self
            .scope
            .check()
            .and_then(|()| self.resource.path(None).map(drop));
        checked.map_err(|source| InformerError::InvalidScope {
            name: entry.informer.name().into(),
            source,
        })
    }
}

struct Entry {
    informer: Arc<dyn AnyInformer>,
    /// Whether the informer was requested by anything except an observation. If so, the informer
    /// stays when the last observation ends.
    is_requested: bool,
    /// The number of observations.
    observations: usize,
    /// `None` until the informer is started.
    run: Option<Run>,
}

/// The run of an informer on one of the factory's threads.
#[derive(Clone)]
struct Run {
    /// Ends the run.
    stop: Stop,
    ended: Done,
}

impl SharedInformerFactory {
    /// Returns a builder for a factory. `source` is a client, or any other source of
    /// lister-watchers.
    pub fn builder(source: impl ListerWatcherSource + 'static) -> SharedInformerFactoryBuilder {
        SharedInformerFactoryBuilder::new(Arc::new(source))
    }

    /// Returns the informer for a type in the factory's scope, with an index by namespace. Equal
    /// requests return the same informer.
    ///
    /// The informer runs once the factory is [started](Self::start). To run an informer that you
    /// request later, call `start` again. This method is short for
    /// `informer_of(Source::of::<T>())`.
    pub fn informer<T: Resource + DeserializeOwned>(&self) -> SharedIndexInformer<T> {
        self.informer_of(Source::of::<T>())
    }

    /// Returns the informer for a resource chosen at run time, in the factory's scope. This method
    /// is short for `informer_of(Source::dynamic(resource))`.
    pub fn dynamic(&self, resource: GroupVersionResource) -> SharedIndexInformer<DynamicObject> {
        self.informer_of(Source::dynamic(resource))
    }

    /// Returns the informer for a [`Source`]: a resource, a type and a scope. Each combination of
    /// type, resource and scope has its own informer, with its own list, watch and cache.
    ///
    /// ```
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::{Client, Config, SharedInformerFactory};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let web = InformerScope::all().label_selector("app=web".parse()?);
    /// let here = InformerScope::all().field_selector("spec.nodeName=worker-1");
    /// let web = factory.informer_of(Source::of::<Pod>().scope(web));
    /// let here = factory.informer_of(Source::of::<Pod>().scope(here));
    /// assert!(!std::sync::Arc::ptr_eq(web.indexer(), here.indexer()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn informer_of<T: Object + DeserializeOwned>(
        &self,
        source: Source<T>,
    ) -> SharedIndexInformer<T> {
        let source = self.factory.resolved(source);
        self.informer_or(&source, 0, false, |factory, options| {
            factory.make(&source, options, None)
        })
    }

    /// Returns the scope of a source in this factory: its own, or else that of the factory.
    ///
    /// ```
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::{Client, Config, SharedInformerFactory};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let web = InformerScope::all().namespace("web");
    /// let client = Client::new(Config::new("https://127.0.0.1:1"))?;
    /// let factory = SharedInformerFactory::builder(client).scope(web.clone()).build();
    /// assert_eq!(factory.effective_scope(&Source::of::<Pod>()), web);
    /// let all = Source::of::<Pod>().scope(InformerScope::all());
    /// assert_eq!(factory.effective_scope(&all), InformerScope::all());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn effective_scope<T>(&self, source: &Source<T>) -> InformerScope {
        let scope = source.scope.as_ref();
        scope.unwrap_or(&self.factory.scope).clone()
    }

    /// Finds a resource by its kind or by a name that kubectl accepts: `deployments.apps`,
    /// `deploy`, `Deployment`, `Deployment.v1.apps`.
    ///
    /// Blocks while the client requests the server's discovery document. The client caches the
    /// document.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let stop = Stop::new();
    /// let deployments = factory.dynamic(factory.find_resource("deploy", &stop)?);
    /// assert_eq!(deployments.name(), "deployments.apps");
    ///
    /// let error = factory.find_resource("deploymens.apps", &stop).unwrap_err();
    /// assert!(error.is_no_match() && error.to_string().contains("similar names: deployments.apps"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such resource, returns an error for which [`is_no_match`](Error::is_no_match)
    /// is true; its message lists similar names. Returns other errors if the resource cannot be
    /// listed and watched, if the request fails, or if the factory was not built with a client.
    pub fn find_resource(&self, name: &str, stop: &Stop) -> Result<GroupVersionResource, Error> {
        self.factory.source.find_resource(name, stop)
    }

    /// Returns the informer for a source. If there is none, `new` creates it. `exclusive` is not 0
    /// for an informer that is not shared.
    fn informer_or<T: Object + DeserializeOwned>(
        &self,
        source: &Source<T>,
        exclusive: u64,
        is_observed: bool,
        new: impl FnOnce(&Factory, SharedIndexInformerOptions<T>) -> SharedIndexInformer<T>,
    ) -> SharedIndexInformer<T> {
        let identity = Identity::new(source, exclusive);
        let factory = &*self.factory;
        let request = |entry: &mut Entry| -> Option<SharedIndexInformer<T>> {
            entry.is_requested |= !is_observed;
            entry.observations += usize::from(is_observed);
            entry.informer.as_any().downcast_ref().cloned()
        };
        if let Some(informer) = {
            factory
                .informers
                .lock()
                .all
                .get_mut(&identity)
                .and_then(request)
        } {
            return informer;
        }
        // Call `new` after the unlock: it may be user code, which may request another informer.
        let informer = new(factory, factory.options(&identity, source.kind.clone()));
        let existing = {
            let mut informers = factory.informers.lock();
            request(informers.all.entry(identity).or_insert_with(|| Entry {
                informer: Arc::new(informer.clone()),
                is_requested: false,
                observations: 0,
                run: None,
            }))
        };
        // If another thread has already inserted its informer, `informer` is dropped here. This
        // happens after the unlock, because `informer` may own user values, whose destructors run
        // here.
        existing.unwrap_or(informer)
    }
}

impl Factory {
    /// Returns the metrics of a new informer. A panic of the provider is logged.
    fn metrics(&self, resource: &GroupVersionResource) -> Option<Arc<dyn InformerMetrics>> {
        let (name, provider) = self.metrics.as_ref()?;
        let metrics = catch(|| provider.informer_metrics(name, resource));
        metrics.unwrap_or_else(|panic| {
            log::error!("{name} {resource}: the metrics provider {panic}");
            None
        })
    }

    fn options<T: Object>(
        &self,
        identity: &Identity,
        kind: Option<GroupVersionKind>,
    ) -> SharedIndexInformerOptions<T> {
        let Common {
            reflector,
            queue,
            recreation_as_delete_and_add,
            transforms,
        } = &self.common;
        let mut reflector = reflector.clone();
        reflector.expected_kind = reflector.expected_kind.or(kind);
        reflector.shard = identity.scope.selected_shard().cloned().or(reflector.shard);
        SharedIndexInformerOptions {
            indexers: Indexers::new().with_namespace(),
            reflector,
            queue: *queue,
            recreation_as_delete_and_add: *recreation_as_delete_and_add,
            metrics: self.metrics(&identity.resource),
            transform: transforms
                .get(&TypeId::of::<T>())
                .and_then(|transform| transform.downcast_ref())
                .cloned(),
            ..SharedIndexInformerOptions::default()
        }
    }

    /// Returns the source with the factory's scope if it has no scope.
    fn resolved<T>(&self, mut source: Source<T>) -> Source<T> {
        source.scope.get_or_insert_with(|| self.scope.clone());
        source
    }

    fn make<T: Object + DeserializeOwned>(
        &self,
        source: &Source<T>,
        options: SharedIndexInformerOptions<T>,
        inline: Option<Box<dyn ResourceEventHandler<T>>>,
    ) -> SharedIndexInformer<T> {
        let scope = source.scope.clone().unwrap_or_default();
        let resource = &source.resource;
        let lister_watcher = |namespace: Option<&str>| -> Arc<dyn ListerWatcher> {
            Arc::new(Scoped {
                lister_watcher: match source.is_metadata {
                    false => self.source.lister_watcher(resource, namespace),
                    true => self.source.metadata_lister_watcher(resource, namespace),
                },
                scope: scope.clone(),
            })
        };
        let namespaces = scope.namespaces();
        let is_only = namespaces.len() == 1;
        let part = |namespace: &String| Part {
            namespace: Some(namespace.clone()).filter(|_| !is_only),
            only_namespace: Some(namespace.clone()).filter(|_| is_only),
            lister_watcher: lister_watcher(Some(namespace)),
        };
        let parts = match namespaces {
            [] => vec![Part {
                namespace: None,
                only_namespace: None,
                lister_watcher: lister_watcher(None),
            }],
            namespaces => namespaces.iter().map(part).collect(),
        };
        SharedIndexInformer::of(parts, options, inline)
    }
}

debug_fields!(SharedInformerFactory, this, scope: this.factory.scope);

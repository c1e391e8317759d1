//! Many informers: one for each kind and scope, shared by all who ask, started and stopped together.

mod any_informer;
mod builder;
mod life;
mod metrics;
mod observe;
mod scope;

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use self::any_informer::AnyInformer;
use self::metrics::FactoryMetrics;
use self::scope::{TweakListOptions, Tweaked};
use super::error::InformerError;
use super::handler::ResourceEventHandler;
use super::options::SharedIndexInformerOptions;
use super::queue::InformerQueue;
use super::shared_informer::{SharedIndexInformer, Source};
use crate::error::Error;
use crate::object::{
    DynamicObject, GroupVersionKind, GroupVersionResource, Object, PartialObjectMetadata, Resource,
};
use crate::reflector::{ListerWatcher, ListerWatcherSource, ReflectorOptions};
use crate::stop::{Done, Stop};
use crate::store::Indexers;
use crate::sync::Mutex;
use crate::threads::Threads;

pub use builder::SharedInformerFactoryBuilder;
pub use life::ShutdownError;
pub use observe::{Observation, Observe, observe, observe_dynamic};
pub use scope::InformerScope;

/// One informer for each kind of objects and each scope, shared by all who ask for it. client-go's
/// `SharedInformerFactory`.
///
/// Clones are the same factory. When the last one is dropped, what it started is stopped, and not waited for.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
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
    /// Of informers that are asked for without one.
    scope: InformerScope,
    tweak_list_options: Option<Arc<TweakListOptions>>,
    common: Common,
    /// The resync periods of single resources.
    resync: HashMap<GroupVersionResource, Duration>,
    /// Who is told how the informers stand, if anybody is.
    metrics: Option<FactoryMetrics>,
    /// Which informers there are, and whether the factory was shut down. Nothing blocks under it.
    informers: Mutex<Informers>,
    /// The threads on which informers run.
    threads: Threads,
}

/// The options that all informers of a factory begin with.
#[derive(Default)]
struct Common {
    reflector: ReflectorOptions,
    queue: InformerQueue,
    tell_recreation: bool,
}

#[derive(Default)]
struct Informers {
    all: HashMap<Identity, Entry>,
    /// Those that were stopped alone and are forgotten, till they have ended: a shutdown waits for them,
    /// too.
    stopping: Vec<Entry>,
    /// Whether [`start`](SharedInformerFactory::start) was called.
    start_called: bool,
    shut_down: bool,
}

impl Informers {
    /// What runs, or has not ended.
    fn running(&self) -> impl Iterator<Item = (&Arc<dyn AnyInformer>, &Run)> {
        let entries = self.all.values().chain(&self.stopping);
        entries.filter_map(|entry| Some((&entry.informer, entry.run.as_ref()?)))
    }
}

/// What makes two informers of a factory one (FA1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    type_id: TypeId,
    resource: GroupVersionResource,
    scope: InformerScope,
    /// Not 0 for one that is shared with nobody.
    exclusive: u64,
}

impl Identity {
    fn new<T: 'static>(resource: GroupVersionResource, scope: &InformerScope) -> Self {
        Self {
            type_id: TypeId::of::<T>(),
            resource,
            scope: scope.clone(),
            exclusive: 0,
        }
    }

    /// Checks what would otherwise fail every request of the informer.
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

/// What there is to list.
#[derive(Clone, Copy)]
enum What<'a> {
    Objects(&'a GroupVersionResource),
    Metadata(&'a GroupVersionResource),
}

struct Entry {
    informer: Arc<dyn AnyInformer>,
    /// Whether somebody has it who is no observation: it then stays when the last one ends.
    is_asked_for: bool,
    /// How many observations it has.
    observations: usize,
    /// Once it has been started.
    run: Option<Run>,
}

/// The run of an informer on a thread of the factory's.
#[derive(Clone)]
struct Run {
    /// Ends it.
    stop: Stop,
    ended: Done,
}

impl SharedInformerFactory {
    /// A factory whose informers talk to this client, or to any other source of lister-watchers.
    pub fn builder(source: impl ListerWatcherSource + 'static) -> SharedInformerFactoryBuilder {
        SharedInformerFactoryBuilder::new(Arc::new(source))
    }

    /// The informer for a type: the same one for all who ask (FA1), with an index by namespace (FA8). It runs
    /// once the factory is started; one that is asked for later needs another [`start`](Self::start).
    pub fn informer<T: Resource + DeserializeOwned>(&self) -> SharedIndexInformer<T> {
        self.informer_in(&self.factory.scope)
    }

    /// The informer for the objects of a type that are in a scope. There can be several of one type, each
    /// with its own cache.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, SharedInformerFactory};
    /// use k8s_informer::informer::InformerScope;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let web = InformerScope::all().label_selector("app=web".parse()?);
    /// let here = InformerScope::all().field_selector("spec.nodeName=worker-1");
    /// let (web, here) = (factory.informer_in::<Pod>(&web), factory.informer_in::<Pod>(&here));
    /// assert!(!std::sync::Arc::ptr_eq(web.indexer(), here.indexer()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn informer_in<T: Resource + DeserializeOwned>(
        &self,
        scope: &InformerScope,
    ) -> SharedIndexInformer<T> {
        self.typed(scope, |factory, options| {
            factory.make(
                What::Objects(&T::group_version_resource()),
                scope,
                options,
                None,
            )
        })
    }

    /// The informer for a type, made by you if there is none yet: `new` gets what the factory would take
    /// lister-watchers from, and the options that it would use. It counts as the one that
    /// [`informer`](Self::informer) gives (FA1). client-go's `InformerFor`.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Resource, SharedIndexInformer, SharedInformerFactory};
    /// use k8s_informer::informer::InformerQueue;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let pods = factory.informer_for::<Pod>(|source, mut options| {
    ///     options.queue = InformerQueue::RealFifoAtomic;
    ///     SharedIndexInformer::new(source.lister_watcher(&Pod::group_version_resource(), Some("web")), options)
    /// });
    /// assert!(std::sync::Arc::ptr_eq(pods.indexer(), factory.informer::<Pod>().indexer()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn informer_for<T: Resource + DeserializeOwned>(
        &self,
        new: impl FnOnce(
            &dyn ListerWatcherSource,
            SharedIndexInformerOptions<T>,
        ) -> SharedIndexInformer<T>,
    ) -> SharedIndexInformer<T> {
        self.typed(&self.factory.scope, |factory, options| {
            new(&*factory.source, options)
        })
    }

    /// The informer for a resource that is known only at run time (FA7).
    pub fn dynamic(&self, resource: GroupVersionResource) -> SharedIndexInformer<DynamicObject> {
        self.dynamic_in(resource, &self.factory.scope)
    }

    /// The informer for the objects in a scope of a resource that is known only at run time.
    pub fn dynamic_in(
        &self,
        resource: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<DynamicObject> {
        self.dynamic_as_in(resource, scope)
    }

    /// As [`dynamic`](Self::dynamic), of a type that says neither where its objects are nor of what kind they
    /// have to be: a [`Compact`](crate::object::Compact), or whatever else can be decoded from all of them. Each type
    /// has an informer of its own, with a list, a watch and a cache.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer::object::{Compact, GroupVersionResource};
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let map = json!({"metadata": {"name": "a"}, "data": {"colour": "red"}});
    /// server.create("/api/v1/namespaces/web/configmaps", map)?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let maps = factory.dynamic_as::<Compact>(GroupVersionResource::new("", "v1", "configmaps"));
    /// let stop = Stop::new();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(&stop)?;
    /// let map = maps.lister().get("web", "a").unwrap();
    /// assert_eq!((map.kind(), map.pointer::<&str>("/data/colour")?), ("ConfigMap", Some("red")));
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn dynamic_as<T: Object + DeserializeOwned>(
        &self,
        resource: GroupVersionResource,
    ) -> SharedIndexInformer<T> {
        self.dynamic_as_in(resource, &self.factory.scope)
    }

    /// As [`dynamic_as`](Self::dynamic_as), of the objects in a scope.
    pub fn dynamic_as_in<T: Object + DeserializeOwned>(
        &self,
        resource: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<T> {
        let identity = Identity::new::<T>(resource.clone(), scope);
        self.informer_or(identity, None, false, |factory, options| {
            factory.make(What::Objects(&resource), scope, options, None)
        })
    }

    /// The informer for a resource by what kubectl calls it, or by its kind: `deployments.apps`, `deploy`,
    /// `Deployment`, `Deployment.v1.apps`. It is the one that [`dynamic`](Self::dynamic) gives for the
    /// resource of that name. Blocks while the server is asked, which it is once for all names; the client
    /// has the rules (`Client::discover`).
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer::object::GroupVersionResource;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let stop = Stop::new();
    /// let deployments = factory.dynamic_by_name("deployments.apps", &stop)?;
    /// let same = factory.dynamic(GroupVersionResource::new("apps", "v1", "deployments"));
    /// assert!(std::sync::Arc::ptr_eq(deployments.indexer(), same.indexer()));
    ///
    /// let error = factory.dynamic_by_name("deploymens.apps", &stop).unwrap_err();
    /// assert!(error.is_no_match() && error.to_string().contains("near it: deployments.apps"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`is_no_match`](Error::is_no_match) if there is none of that name, with what is near; it can't be
    /// listed or watched; the server can't be asked; what the factory was built with knows no names.
    pub fn dynamic_by_name(
        &self,
        name: &str,
        stop: &Stop,
    ) -> Result<SharedIndexInformer<DynamicObject>, Error> {
        self.dynamic_by_name_as(name, stop)
    }

    /// As [`dynamic_by_name`](Self::dynamic_by_name), of a type as for [`dynamic_as`](Self::dynamic_as).
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer::object::Compact;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let deployments = factory.dynamic_by_name_as::<Compact>("deploy", &Stop::new())?;
    /// assert_eq!(deployments.name(), "deployments.apps");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As there.
    pub fn dynamic_by_name_as<T: Object + DeserializeOwned>(
        &self,
        name: &str,
        stop: &Stop,
    ) -> Result<SharedIndexInformer<T>, Error> {
        Ok(self.dynamic_as(self.factory.source.find_resource(name, stop)?))
    }

    /// The informer for nothing but the metadata of a resource's objects: the server leaves the rest out, so
    /// that neither it nor this program has to read it. client-go's `metadatainformer`.
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
    /// use k8s_informer::object::GroupVersionResource;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let secret = json!({"metadata": {"name": "a"}, "stringData": {"password": "x"}});
    /// server.create("/api/v1/namespaces/web/secrets", secret)?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let secrets = factory.metadata(GroupVersionResource::new("", "v1", "secrets"));
    /// let stop = Stop::new();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(&stop)?;
    /// assert_eq!(secrets.lister().list()[0].name(), "a");
    /// # factory.shutdown();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metadata(
        &self,
        resource: GroupVersionResource,
    ) -> SharedIndexInformer<PartialObjectMetadata> {
        self.metadata_in(resource, &self.factory.scope)
    }

    /// As [`metadata`](Self::metadata), of the objects in a scope.
    pub fn metadata_in(
        &self,
        resource: GroupVersionResource,
        scope: &InformerScope,
    ) -> SharedIndexInformer<PartialObjectMetadata> {
        let identity = Identity::new::<PartialObjectMetadata>(resource.clone(), scope);
        self.informer_or(identity, None, false, |factory, options| {
            factory.make(What::Metadata(&resource), scope, options, None)
        })
    }

    fn typed<T: Resource + DeserializeOwned>(
        &self,
        scope: &InformerScope,
        new: impl FnOnce(&Factory, SharedIndexInformerOptions<T>) -> SharedIndexInformer<T>,
    ) -> SharedIndexInformer<T> {
        let identity = Identity::new::<T>(T::group_version_resource(), scope);
        self.informer_or(identity, Some(T::group_version_kind()), false, new)
    }

    /// The informer of this identity; `new` makes it if there is none.
    fn informer_or<T: Object + DeserializeOwned>(
        &self,
        identity: Identity,
        kind: Option<GroupVersionKind>,
        is_observed: bool,
        new: impl FnOnce(&Factory, SharedIndexInformerOptions<T>) -> SharedIndexInformer<T>,
    ) -> SharedIndexInformer<T> {
        let factory = &*self.factory;
        let ask = |entry: &mut Entry| -> Option<SharedIndexInformer<T>> {
            entry.is_asked_for |= !is_observed;
            entry.observations += usize::from(is_observed);
            entry.informer.as_any().downcast_ref().cloned()
        };
        if let Some(informer) = {
            factory
                .informers
                .lock()
                .all
                .get_mut(&identity)
                .and_then(ask)
        } {
            return informer;
        }
        // Made under no lock: it may be a user's code that makes it, and ask for another.
        let informer = new(factory, factory.options(&identity, kind));
        let there = {
            let mut informers = factory.informers.lock();
            ask(informers.all.entry(identity).or_insert_with(|| Entry {
                informer: Arc::new(informer.clone()),
                is_asked_for: false,
                observations: 0,
                run: None,
            }))
        };
        // If somebody was faster, this one goes, with what its maker put into it: not under the lock.
        there.unwrap_or(informer)
    }
}

impl Factory {
    /// Waits until all threads have ended. Then the name of the metrics is free for another factory (ID3).
    fn join(&self) {
        self.threads.join();
        if let Some(metrics) = &self.metrics {
            metrics.release();
        }
    }

    fn options<T: Object>(
        &self,
        identity: &Identity,
        kind: Option<GroupVersionKind>,
    ) -> SharedIndexInformerOptions<T> {
        let Common {
            reflector,
            queue,
            tell_recreation,
        } = &self.common;
        let mut reflector = reflector.clone();
        reflector.expected_kind = reflector.expected_kind.or(kind);
        reflector.shard = identity.scope.shard_of().cloned().or(reflector.shard);
        if let Some(period) = self.resync.get(&identity.resource) {
            reflector.resync_period = *period;
        }
        SharedIndexInformerOptions {
            indexers: Indexers::new().with_namespace(),
            reflector,
            queue: *queue,
            tell_recreation: *tell_recreation,
            metrics: self
                .metrics
                .as_ref()
                .and_then(|metrics| metrics.of(identity)),
            ..SharedIndexInformerOptions::default()
        }
    }

    fn make<T: Object + DeserializeOwned>(
        &self,
        what: What<'_>,
        scope: &InformerScope,
        options: SharedIndexInformerOptions<T>,
        inline: Option<Box<dyn ResourceEventHandler<T>>>,
    ) -> SharedIndexInformer<T> {
        let lister_watcher = |namespace| -> Arc<dyn ListerWatcher> {
            Arc::new(Tweaked {
                lister_watcher: match what {
                    What::Objects(resource) => self.source.lister_watcher(resource, namespace),
                    What::Metadata(resource) => {
                        self.source.metadata_lister_watcher(resource, namespace)
                    }
                },
                scope: scope.clone(),
                tweak: self.tweak_list_options.clone(),
            })
        };
        let sources = match scope.namespaces() {
            [] => {
                vec![Source {
                    namespace: None,
                    only_namespace: None,
                    lister_watcher: lister_watcher(None),
                }]
            }
            [namespace] => vec![Source {
                namespace: None,
                only_namespace: Some(namespace.clone()),
                lister_watcher: lister_watcher(Some(namespace)),
            }],
            namespaces => namespaces
                .iter()
                .map(|namespace| Source {
                    lister_watcher: lister_watcher(Some(namespace)),
                    namespace: Some(namespace.clone()),
                    only_namespace: None,
                })
                .collect(),
        };
        SharedIndexInformer::of(sources, options, inline)
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.factory.informers.lock();
        let names: Vec<_> = informers
            .all
            .values()
            .map(|entry| entry.informer.name())
            .collect();
        f.debug_struct("SharedInformerFactory")
            .field("informers", &names)
            .finish_non_exhaustive()
    }
}

//! Factories: one shared informer per kind and scope, started and stopped together.

mod lifecycle;
mod observe;
mod options;

use std::any::TypeId;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::any_informer::AnyInformer;
use super::error::InformerError;
use super::options::SharedIndexInformerOptions;
use super::scope::{InformerScope, Scoped};
use super::shared_informer::{NamespaceSource, SharedIndexInformer};
use super::source::Source;
use crate::base::derive::{debug_fields, unwind_safe};
use crate::base::panic::catch;
use crate::base::sync::Mutex;
use crate::base::threads::{Owner, Threads};
use crate::error::Error;
use crate::log;
use crate::metrics::InformerMetrics;
use crate::object::{GroupVersionResource, Object, Resource};
use crate::reflector::ListerWatcherSource;
use crate::stop::{DoneSetter, Stop, Stopper};
use crate::store::Indexers;

pub use observe::{Observation, Observe, observe};
pub use options::FactoryOptions;

/// Creates and shares informers: one for each kind of object and scope. client-go's
/// `SharedInformerFactory`.
///
/// Clones refer to the same factory. Dropping the last clone stops the informers that the factory
/// started, without waiting for them.
///
/// ```
/// use k8s_informer::informer::FactoryOptions;
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
/// use k8s_informer_testing::ApiServer;
/// use k8s_openapi::api::core::v1::ConfigMap;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let factory = SharedInformerFactory::with_options(client, FactoryOptions::new().namespace("kube-system"));
/// let maps = factory.informer::<ConfigMap>();
///
/// let stop = Stop::never();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(None, &stop)?;
/// assert!(maps.lister().list().is_empty());
/// factory.shut_down(None)?;
/// assert!(maps.is_stopped());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedInformerFactory {
    factory: Arc<Factory>,
}

struct Factory {
    source: Arc<dyn ListerWatcherSource>,
    options: FactoryOptions,
    /// The informers, and whether the factory was shut down. No blocking call is made under this
    /// lock.
    informers: Mutex<Informers>,
    /// The threads that run informers.
    threads: Threads,
}

#[derive(Default)]
struct Informers {
    /// The informers in the order of the requests. One that was stopped individually stays until
    /// its threads have ended, because a shutdown waits for them.
    all: Vec<Entry>,
    shut_down: bool,
}

impl Informers {
    /// Finds a shared informer, and records the request.
    fn request<T: Object>(
        &mut self,
        identity: &Identity,
        is_observed: bool,
    ) -> Option<SharedIndexInformer<T>> {
        let mut shared = self.all.iter_mut().filter(|entry| entry.is_shared);
        let entry = shared.find(|entry| entry.identity == *identity)?;
        entry.is_requested |= !is_observed;
        entry.observations += usize::from(is_observed);
        // The identity contains the type, so this is the informer's type.
        entry.informer.as_any().downcast_ref().cloned()
    }

    fn find(&mut self, owner: Owner) -> Option<&mut Entry> {
        self.all.iter_mut().find(|entry| entry.owner() == owner)
    }
}

/// Identifies an informer of the factory. Requests with equal identities get the same informer.
#[derive(PartialEq, Eq)]
struct Identity {
    type_id: TypeId,
    resource: GroupVersionResource,
    scope: InformerScope,
}

struct Entry {
    identity: Identity,
    informer: Arc<dyn AnyInformer>,
    /// Whether later requests get this informer. It is false for an observation on one thread, and
    /// for an informer that ends.
    is_shared: bool,
    /// Whether the options request one thread. Then the thread that runs the informer also lists,
    /// watches and calls the handlers.
    one_thread: bool,
    /// Whether the informer was stopped individually.
    is_ending: bool,
    /// Whether the informer was requested by anything except an observation. If so, the informer
    /// stays when the last observation ends.
    is_requested: bool,
    /// The number of observations.
    observations: usize,
    /// `None` until the informer is started.
    run: Option<Run>,
}

impl Entry {
    fn owner(&self) -> Owner {
        self.informer.state().owner
    }

    /// Checks the names in request paths. An invalid name would make every request fail.
    fn check(&self) -> Result<(), InformerError> {
        let Identity {
            resource, scope, ..
        } = &self.identity;
        let checked = scope.check().and_then(|()| resource.path(None).map(drop));
        checked.map_err(|source| InformerError::InvalidScope {
            name: Arc::clone(&self.informer.state().name),
            source,
        })
    }
}

/// The run of an informer on one of the factory's threads.
#[derive(Clone)]
struct Run {
    /// Ends the run.
    stop: Stopper,
    ended: DoneSetter,
}

impl SharedInformerFactory {
    /// Creates a factory with default options. `source` is a client, or any other source of
    /// lister-watchers.
    #[doc(alias = "NewSharedInformerFactory")]
    pub fn new(source: impl ListerWatcherSource + 'static) -> Self {
        Self::with_options(source, FactoryOptions::new())
    }

    /// Creates a factory with these options. `source` is a client, or any other source of
    /// lister-watchers.
    #[doc(alias = "NewSharedInformerFactoryWithOptions")]
    pub fn with_options(
        source: impl ListerWatcherSource + 'static,
        options: FactoryOptions,
    ) -> Self {
        let factory = Factory {
            source: Arc::new(source),
            options,
            informers: Mutex::default(),
            threads: Threads::new(Owner::new()),
        };
        Self {
            factory: Arc::new(factory),
        }
    }

    /// Returns the informer for a type in the factory's scope, with an index by namespace. Equal
    /// requests return the same informer.
    ///
    /// The informer runs once the factory is [started](Self::start). To run an informer that you
    /// request later, call `start` again. This method is short for
    /// `informer_for(Source::of::<T>())`.
    pub fn informer<T: Resource + DeserializeOwned>(&self) -> SharedIndexInformer<T> {
        self.informer_for(Source::of::<T>())
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
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let web = InformerScope::all().label_selector("app=web".parse()?);
    /// let here = InformerScope::all().field_selector("spec.nodeName=worker-1");
    /// let web = factory.informer_for(Source::of::<Pod>().scope(web));
    /// let here = factory.informer_for(Source::of::<Pod>().scope(here));
    /// assert!(!web.is_same(&here));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[doc(alias = "InformerFor")]
    pub fn informer_for<T: Object + DeserializeOwned>(
        &self,
        source: Source<T>,
    ) -> SharedIndexInformer<T> {
        self.request(source, true, false)
    }

    /// Returns the scope of a source in this factory: its own, or else that of the factory.
    ///
    /// ```
    /// use k8s_informer::informer::FactoryOptions;
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::{Client, Config, SharedInformerFactory};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let web = InformerScope::all().namespace("web");
    /// let client = Client::new(Config::new("https://127.0.0.1:1"))?;
    /// let factory = SharedInformerFactory::with_options(client, FactoryOptions::new().scope(web.clone()));
    /// assert_eq!(factory.effective_scope(&Source::of::<Pod>()), web);
    /// let all = Source::of::<Pod>().scope(InformerScope::all());
    /// assert_eq!(factory.effective_scope(&all), InformerScope::all());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    pub fn effective_scope<T>(&self, source: &Source<T>) -> InformerScope {
        let scope = source.scope.as_ref();
        scope.unwrap_or(&self.factory.options.scope).clone()
    }

    /// Finds a resource by its kind or by a name that kubectl accepts: `deployments.apps`,
    /// `deploy`, `Deployment`, `Deployment.v1.apps`.
    ///
    /// Blocks while the client requests the server's discovery document. The client caches the
    /// document. If it lacks the name, the client requests it again for five seconds, because one of
    /// several API servers may not know a new definition yet.
    ///
    /// ```
    /// use k8s_informer::informer::Source;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let stop = Stop::never();
    /// let deployments = factory.informer_for(Source::dynamic(factory.find_resource("deploy", &stop)?));
    /// assert_eq!(deployments.name(), "deployments.apps");
    ///
    /// let error = factory.find_resource("deployments.batch", &stop).unwrap_err();
    /// assert!(error.is_no_match() && error.to_string().contains("similar names: deployments.apps"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If there is no such resource for five seconds, returns an error for which [`is_no_match`](Error::is_no_match)
    /// is true; its message lists similar names. Returns other errors if the resource cannot be
    /// listed and watched, if the request fails, or if the factory was not built with a client.
    pub fn find_resource(&self, name: &str, stop: &Stop) -> Result<GroupVersionResource, Error> {
        self.factory.source.find_resource(name, stop)
    }

    /// Returns the informer for a source, and creates it if there is none. An informer that is
    /// not shared runs on one thread.
    fn request<T: Object + DeserializeOwned>(
        &self,
        source: Source<T>,
        is_shared: bool,
        is_observed: bool,
    ) -> SharedIndexInformer<T> {
        let informers = &self.factory.informers;
        let identity = Identity {
            type_id: TypeId::of::<T>(),
            scope: self.effective_scope(&source),
            resource: source.resource.clone(),
        };
        if is_shared && let Some(informer) = informers.lock().request(&identity, is_observed) {
            return informer;
        }
        // Not under the lock: this may call user code, which may request another informer.
        let one_thread = self.factory.options.one_thread || !is_shared;
        let informer = self
            .factory
            .new_informer(&source, &identity.scope, one_thread);
        // If another thread has inserted its informer, `informer` is dropped after the unlock,
        // because it may own user values, whose destructors run then.
        let mut informers = informers.lock();
        if is_shared && let Some(existing) = informers.request(&identity, is_observed) {
            return existing;
        }
        informers.all.push(Entry {
            identity,
            informer: Arc::new(informer.clone()),
            is_shared,
            one_thread,
            is_ending: false,
            is_requested: !is_observed,
            observations: usize::from(is_observed),
            run: None,
        });
        informer
    }
}

impl Factory {
    /// Returns the metrics of a new informer. A panic of the provider is logged.
    fn metrics(&self, resource: &GroupVersionResource) -> Option<Arc<dyn InformerMetrics>> {
        let (name, provider) = self.options.metrics.as_ref()?;
        let metrics = catch(|| provider.informer_metrics(name, resource));
        metrics.unwrap_or_else(|panic| {
            log::error!("{name} {resource}: the metrics provider {panic}");
            None
        })
    }

    fn new_informer<T: Object + DeserializeOwned>(
        &self,
        source: &Source<T>,
        scope: &InformerScope,
        one_thread: bool,
    ) -> SharedIndexInformer<T> {
        let resource = &source.resource;
        let mut reflector = self.options.reflector.clone();
        reflector.expected_kind = reflector.expected_kind.or(source.kind.clone());
        reflector.shard = scope.selected_shard().cloned().or(reflector.shard);
        // A map by type: each value is the transform of its key's type.
        let transform = self.options.transforms.get(&TypeId::of::<T>());
        let options = SharedIndexInformerOptions {
            indexers: Indexers::new().with_namespace(),
            reflector,
            queue: self.options.queue,
            recreation_as_delete_and_add: self.options.recreation_as_delete_and_add,
            one_thread,
            metrics: self.metrics(resource),
            transform: transform.and_then(|it| it.downcast_ref()).cloned(),
        };
        let namespaces = scope.namespaces();
        let part = |namespace: Option<&String>| {
            let name = namespace.map(String::as_str);
            let lister_watcher = match source.is_metadata {
                false => self.source.lister_watcher(resource, name),
                true => self.source.metadata_lister_watcher(resource, name),
            };
            NamespaceSource {
                namespace: namespace.cloned(),
                is_separate: namespaces.len() > 1,
                lister_watcher: Arc::new(Scoped {
                    lister_watcher,
                    scope: scope.clone(),
                }),
            }
        };
        let sources = match namespaces {
            [] => vec![part(None)],
            namespaces => namespaces.iter().map(Some).map(part).collect(),
        };
        SharedIndexInformer::of(sources, options)
    }
}

unwind_safe!(SharedInformerFactory);

debug_fields!(SharedInformerFactory, this, options: this.factory.options);

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::InformerError;
use super::shared_informer::{SharedIndexInformer, SharedIndexInformerOptions};
use super::wait::{SyncError, Unsynced};
use crate::error::Error;
use crate::object::{DynamicObject, GroupVersionKind, GroupVersionResource, Object, Resource};
use crate::reflector::{Body, ListerWatcher, ListerWatcherSource, ReflectorOptions, ReflectorStatus};
use crate::stop::{Done, Stop};
use crate::store::Indexers;
use crate::sync::Mutex;
use crate::threads::{Owner, Threads};
use crate::wire::ListOptions;

type TweakListOptions = dyn Fn(&mut ListOptions) + Send + Sync;

/// One informer for each kind of objects, shared by all who ask for it. client-go's `SharedInformerFactory`.
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
pub struct SharedInformerFactory {
    source: Arc<dyn ListerWatcherSource>,
    namespace: Option<String>,
    tweak_list_options: Option<Arc<TweakListOptions>>,
    reflector: ReflectorOptions,
    /// Which informers there are, and whether the factory was shut down. Nothing blocks under it.
    informers: Mutex<Informers>,
    /// The threads on which informers run.
    threads: Threads,
}

#[derive(Default)]
struct Informers {
    all: HashMap<Identity, Entry>,
    shut_down: bool,
}

/// What makes two informers of a factory one (FA1).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    type_id: TypeId,
    resource: GroupVersionResource,
}

struct Entry {
    informer: Arc<dyn AnyInformer>,
    /// What ends it, once it has been started.
    stop: Option<Stop>,
}

/// An informer whose type is forgotten.
trait AnyInformer: Send + Sync {
    fn run(&self, stop: &Stop) -> Result<(), InformerError>;
    fn name(&self) -> &str;
    fn synced(&self) -> &Done;
    fn status(&self) -> ReflectorStatus;
    fn is_own_thread(&self) -> bool;
    fn as_any(&self) -> &dyn Any;
}

impl<T: Object + DeserializeOwned> AnyInformer for SharedIndexInformer<T> {
    fn run(&self, stop: &Stop) -> Result<(), InformerError> {
        self.run(stop)
    }

    fn name(&self) -> &str {
        self.name()
    }

    fn synced(&self) -> &Done {
        self.synced()
    }

    fn status(&self) -> ReflectorStatus {
        self.status()
    }

    fn is_own_thread(&self) -> bool {
        self.is_own_thread()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

impl SharedInformerFactory {
    /// A factory whose informers talk to this client, or to any other source of lister-watchers.
    pub fn builder(source: impl ListerWatcherSource + 'static) -> SharedInformerFactoryBuilder {
        SharedInformerFactoryBuilder {
            source: Arc::new(source),
            namespace: None,
            tweak_list_options: None,
            reflector: ReflectorOptions::default(),
        }
    }

    /// The informer for a type: the same one for all who ask (FA1), with an index by namespace (FA8). It runs
    /// once the factory is started; one that is asked for later needs another [`start`](Self::start).
    pub fn informer<T: Resource + DeserializeOwned>(&self) -> SharedIndexInformer<T> {
        self.informer_for(T::group_version_resource(), Some(T::group_version_kind()))
    }

    /// The informer for a resource that is known only at run time (FA7).
    pub fn dynamic(&self, resource: GroupVersionResource) -> SharedIndexInformer<DynamicObject> {
        self.informer_for(resource, None)
    }

    fn informer_for<T: Object + DeserializeOwned>(
        &self,
        resource: GroupVersionResource,
        kind: Option<GroupVersionKind>,
    ) -> SharedIndexInformer<T> {
        let identity = Identity { type_id: TypeId::of::<T>(), resource };
        let mut informers = self.informers.lock();
        let known = informers.all.get(&identity).and_then(|entry| entry.informer.as_any().downcast_ref());
        if let Some(informer) = known {
            return SharedIndexInformer::clone(informer);
        }
        let mut lister_watcher = self.source.lister_watcher(&identity.resource, self.namespace.as_deref());
        if let Some(tweak) = &self.tweak_list_options {
            lister_watcher = Arc::new(Tweaked { lister_watcher, tweak: Arc::clone(tweak) });
        }
        let mut reflector = self.reflector.clone();
        reflector.expected_kind = reflector.expected_kind.or(kind);
        let indexers = Indexers::new().with_namespace();
        let options = SharedIndexInformerOptions { indexers, reflector, ..Default::default() };
        let informer = SharedIndexInformer::new(lister_watcher, options);
        let entry = Entry { informer: Arc::new(informer.clone()), stop: None };
        informers.all.insert(identity, entry);
        informer
    }

    /// Starts every informer that has not been started, each on a thread of its own, and does not wait (FA3).
    /// Each ends when this `stop` is given, or with [`shutdown`](Self::shutdown). Call it again for
    /// informers that were asked for later.
    ///
    /// # Errors
    ///
    /// If the factory was shut down, and if the system has no thread.
    pub fn start(&self, stop: &Stop) -> Result<(), InformerError> {
        let mut informers = self.informers.lock();
        if informers.shut_down {
            return Err(InformerError::Stopped {
                name: "factory".into(),
                what: "informers were not started",
            });
        }
        for entry in informers.all.values_mut().filter(|entry| entry.stop.is_none()) {
            let (informer, stop) = (Arc::clone(&entry.informer), stop.child());
            entry.stop = Some(stop.clone());
            let run = move || {
                let Err(error) = informer.run(&stop) else { return };
                log::error!("{error}");
                // It will never sync: whoever waits for that is to know. One that somebody else runs may.
                if !matches!(error, InformerError::AlreadyStarted { .. }) {
                    stop.stop();
                }
            };
            let name = entry.informer.name();
            self.threads.spawn(format!("{name} process"), run).map_err(|error| {
                entry.stop = None;
                InformerError::Thread { name: name.into(), source: Arc::new(error) }
            })?;
        }
        Ok(())
    }

    /// Blocks until every informer that was started has synced, or until `stop` is given (FA4).
    ///
    /// # Errors
    ///
    /// If `stop` is given, or the factory shut down, before: which informers have not synced, and what went
    /// wrong last with each.
    pub fn wait_for_cache_sync(&self, stop: &Stop) -> Result<(), SyncError> {
        let started: Vec<_> = {
            let informers = self.informers.lock();
            let entries = informers.all.values();
            entries.filter_map(|entry| Some((Arc::clone(&entry.informer), entry.stop.clone()?))).collect()
        };
        let mut unsynced = Vec::new();
        for (informer, own_stop) in started {
            let either = own_stop.child();
            let _stops = stop.on_stop({
                let either = either.clone();
                move || either.stop()
            });
            if !informer.synced().wait_or_stop(&either) {
                unsynced.push(Unsynced::new(informer.name(), informer.status().last_error));
            }
        }
        if unsynced.is_empty() { Ok(()) } else { Err(SyncError::new(unsynced)) }
    }

    /// Stops every informer that the factory started and waits until all their threads have ended; nothing
    /// can be started after. A callback that is running is waited for.
    ///
    /// Called from within a callback of one of its own informers it stops them too, but does not wait: it
    /// would be for itself. It says so in the log, and answers `false`.
    pub fn shutdown(&self) -> bool {
        let (stops, own_thread): (Vec<Stop>, bool) = {
            let mut informers = self.informers.lock();
            informers.shut_down = true;
            let entries = informers.all.values();
            let own_thread = informers.all.values().any(|entry| entry.informer.is_own_thread());
            (entries.filter_map(|entry| entry.stop.clone()).collect(), own_thread)
        };
        for stop in stops {
            stop.stop();
        }
        if own_thread {
            log::warn!(
                "a factory was shut down from within a callback of one of its informers: not waiting for it"
            );
            return false;
        }
        self.threads.join();
        true
    }
}

/// A factory that nobody holds any more stops what it started, and does not wait.
impl Drop for SharedInformerFactory {
    fn drop(&mut self) {
        for entry in self.informers.lock().all.values() {
            if let Some(stop) = &entry.stop {
                stop.stop();
            }
        }
    }
}

impl fmt::Debug for SharedInformerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let informers = self.informers.lock();
        let names: Vec<_> = informers.all.values().map(|entry| entry.informer.name()).collect();
        f.debug_struct("SharedInformerFactory").field("informers", &names).finish_non_exhaustive()
    }
}

/// What all informers of a factory have in common.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, GroupVersionResource, Object, SharedInformerFactory, Stop};
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let maps = "/api/v1/namespaces/default/configmaps";
/// server.create(maps, json!({"metadata": {"name": "a", "labels": {"app": "web"}}}))?;
/// server.create(maps, json!({"metadata": {"name": "b"}}))?;
///
/// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?)
///     .namespace("default")
///     .tweak_list_options(|options| options.label_selector = "app=web".into())
///     .build();
/// let maps = factory.dynamic(GroupVersionResource::new("", "v1", "configmaps"));
/// let stop = Stop::new();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(&stop)?;
/// let names: Vec<_> = maps.lister().list().iter().map(|map| map.name().to_owned()).collect();
/// assert_eq!(names, ["a"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct SharedInformerFactoryBuilder {
    source: Arc<dyn ListerWatcherSource>,
    namespace: Option<String>,
    tweak_list_options: Option<Arc<TweakListOptions>>,
    reflector: ReflectorOptions,
}

impl SharedInformerFactoryBuilder {
    /// Handlers are told about everything once more in this period; never by default.
    #[must_use]
    pub fn resync(mut self, period: Duration) -> Self {
        self.reflector.resync_period = period;
        self
    }

    /// Only objects of one namespace; of all by default.
    #[must_use]
    pub fn namespace(mut self, namespace: impl Into<String>) -> Self {
        self.namespace = Some(namespace.into());
        self
    }

    /// Changes the options of every LIST and WATCH, for example to select by label. Called for each request,
    /// with options that are this request's own (FA9).
    #[must_use]
    pub fn tweak_list_options(mut self, tweak: impl Fn(&mut ListOptions) + Send + Sync + 'static) -> Self {
        self.tweak_list_options = Some(Arc::new(tweak));
        self
    }

    /// How the reflectors go about it: page size, back-off, clock, the handler of watch errors. Sets the
    /// resync period, too.
    #[must_use]
    pub fn reflector_options(mut self, options: ReflectorOptions) -> Self {
        self.reflector = options;
        self
    }

    /// The factory.
    pub fn build(self) -> SharedInformerFactory {
        let Self { source, namespace, tweak_list_options, reflector } = self;
        SharedInformerFactory {
            source,
            namespace,
            tweak_list_options,
            reflector,
            informers: Mutex::default(),
            threads: Threads::new(Owner::new()),
        }
    }
}

impl fmt::Debug for SharedInformerFactoryBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedInformerFactoryBuilder")
            .field("namespace", &self.namespace)
            .field("reflector", &self.reflector)
            .finish_non_exhaustive()
    }
}

/// A lister-watcher whose options somebody has a hand in.
struct Tweaked {
    lister_watcher: Arc<dyn ListerWatcher>,
    tweak: Arc<TweakListOptions>,
}

impl Tweaked {
    fn tweaked(&self, options: &ListOptions) -> ListOptions {
        let mut options = options.clone();
        (self.tweak)(&mut options);
        options
    }
}

impl ListerWatcher for Tweaked {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.lister_watcher.list(&self.tweaked(options), stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.lister_watcher.watch(&self.tweaked(options), stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.lister_watcher.supports_watch_list()
    }

    fn description(&self) -> String {
        self.lister_watcher.description()
    }
}

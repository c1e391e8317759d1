//! One informer with a random configuration, its handlers and indexes, and the server that it
//! follows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use k8s_informer::handler::{FilteringHandler, HandlerBuffer, HandlerOptions, HandlerRegistration};
use k8s_informer::informer::{FactoryOptions, InformerQueue};
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::{
    Body, ListOptions, ListerWatcher, ListerWatcherSource, ReflectorOptions,
};
use k8s_informer::store::{IndexFunc, Indexers, Transform};
use k8s_informer::time::Backoff;
use k8s_informer::{
    Client, Config as ClientConfig, Error, SharedIndexInformer, SharedInformerFactory, Stop,
    Stopper,
};

use crate::differential::cluster::Cluster;
use crate::differential::config::{Config, HandlerConfig, Lists, Transformation};
use crate::differential::form::CacheForm;
use crate::differential::gate::{Gate, Signal};
use crate::differential::model::Model;
use crate::differential::recorder::Recorder;

/// The `watch_idle_timeout` of informers that have one.
pub(crate) const IDLE: Duration = Duration::from_millis(40);

/// How long a world waits for something that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct World<T> {
    pub(crate) config: Config,
    pub(crate) cluster: Cluster,
    pub(crate) model: Model<T>,
    pub(crate) factory: SharedInformerFactory,
    pub(crate) informer: SharedIndexInformer<T>,
    pub(crate) handlers: Vec<Handler<T>>,
    /// Removed handlers, each with the number of events delivered to it.
    removed: Vec<(Handler<T>, u64)>,
    /// The number of handlers created so far.
    handlers_created: usize,
    /// The labels that have an index with the same name.
    pub(crate) indices: Vec<&'static str>,
    /// A gate that the process loops of the informer pass for each object.
    pub(crate) processing: Gate,
    /// Whether the transform rejects objects and the index function fails now.
    pub(crate) rejects: Arc<AtomicBool>,
    /// The time of the last change of `rejects`.
    pub(crate) rejects_since: Instant,
    /// How many versions too early the next watch starts. It then repeats events.
    pub(crate) rewind: Arc<AtomicU64>,
    pub(crate) changed: Signal,
    pub(crate) stop: Stopper,
    /// Whether the informer may have received an unreadable object since its last list.
    pub(crate) was_incomplete: bool,
    /// Whether the version of the server has gone back in this round.
    pub(crate) was_restored: bool,
    /// Whether the informer must list again before the comparison, because it may have given up on
    /// rejected objects.
    pub(crate) must_relist: bool,
    /// The minimum version that the cache must reach: the version of the first marker.
    pub(crate) marked: u64,
}

pub(crate) struct Handler<T> {
    pub(crate) name: String,
    pub(crate) config: HandlerConfig,
    pub(crate) recorder: Recorder<T>,
    pub(crate) registration: HandlerRegistration,
    /// A gate that the handler passes for each event.
    pub(crate) gate: Gate,
}

/// A client whose watches start `rewind` versions too early.
#[derive(Clone)]
struct Rewinding<S> {
    client: S,
    rewind: Arc<AtomicU64>,
}

impl ListerWatcherSource for Rewinding<Client> {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(Rewinding {
            client: self.client.lister_watcher(resource, namespace),
            rewind: Arc::clone(&self.rewind),
        })
    }

    fn metadata_lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        Arc::new(Rewinding {
            client: self.client.metadata_lister_watcher(resource, namespace),
            rewind: Arc::clone(&self.rewind),
        })
    }
}

impl ListerWatcher for Rewinding<Arc<dyn ListerWatcher>> {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.client.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let mut options = options.clone();
        let version = options.resource_version.as_ref().map(ToString::to_string);
        let version = version.and_then(|version| version.parse::<u64>().ok());
        if !options.send_initial_events
            && let Some(version @ 1..) = version
        {
            let rewind = self.rewind.swap(0, Ordering::Relaxed);
            let earlier = version.saturating_sub(rewind).max(1);
            options.resource_version = ResourceVersion::new(&earlier.to_string());
        }
        self.client.watch(&options, stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.client.supports_watch_list()
    }

    fn description(&self) -> String {
        self.client.description()
    }
}

impl<T: CacheForm> World<T> {
    pub(crate) fn start(config: &Config, seed: u64) -> Self {
        let cluster = Cluster::start(config, seed);
        let rewind = Arc::new(AtomicU64::new(0));
        let rejects = Arc::new(AtomicBool::new(true));
        let client = Client::new(ClientConfig::new(cluster.server.url())).expect("a client");
        let factory = SharedInformerFactory::with_options(
            Rewinding {
                client,
                rewind: Arc::clone(&rewind),
            },
            FactoryOptions::new()
                .reflector(reflector_options(config))
                .queue(config.queue)
                .recreation_as_delete_and_add(config.recreation_as_delete_and_add)
                .one_thread(config.one_thread),
        );
        let scope = config.scope.informer_scope();
        let informer = T::informer(&factory, cluster.resource.clone(), &scope);
        let mut world = Self {
            config: config.clone(),
            cluster,
            model: Model::new(config.clone(), Arc::clone(&rejects)),
            factory,
            informer,
            handlers: Vec::new(),
            removed: Vec::new(),
            handlers_created: 0,
            indices: Vec::new(),
            processing: Gate::default(),
            rejects,
            rejects_since: Instant::now(),
            rewind,
            changed: Signal::default(),
            stop: Stopper::new(),
            was_incomplete: false,
            was_restored: false,
            must_relist: false,
            marked: 0,
        };
        world.prepare();
        world
            .factory
            .start(&world.stop)
            .expect("the informer starts");
        world
    }

    /// Sets up everything that must exist before the informer starts.
    fn prepare(&mut self) {
        let transform = match self.config.transform {
            Transformation::None => None,
            of => {
                let rejects = Arc::clone(&self.rejects);
                Some(Transform::new(move |mut object: Arc<T>| {
                    if object.label("mood") == Some("poison") && rejects.load(Ordering::SeqCst) {
                        return Err("the object is poisoned");
                    }
                    if of == Transformation::Stripping {
                        Arc::make_mut(&mut object).strip();
                    }
                    Ok(object)
                }))
            }
        };
        if let Some(transform) = transform {
            self.informer
                .set_transform(transform)
                .expect("the informer has not started");
        }
        let processing = self.processing.clone();
        let (is_picky, rejects) = (self.config.rejecting_index, Arc::clone(&self.rejects));
        let through_the_gate = IndexFunc::fallible(move |object: &T| {
            processing.pass();
            match object.label("mood") {
                Some("odd") if is_picky && rejects.load(Ordering::SeqCst) => {
                    Err("the object is odd")
                }
                _ => Ok(Vec::new()),
            }
        });
        let indexers = Indexers::new().with("gate", through_the_gate);
        self.informer
            .add_indexers(indexers)
            .expect("the index is new");
        self.add_index("tier");
        for handler in self.config.handlers.clone() {
            self.add_handler(handler);
        }
    }

    /// Adds an index by `label`. Returns false if it exists.
    pub(crate) fn add_index(&mut self, label: &'static str) -> bool {
        if self.indices.contains(&label) {
            return false;
        }
        let values = move |object: &T| object.label(label).map(str::to_owned).into_iter().collect();
        self.informer
            .add_index(label, values)
            .expect("the index is new");
        self.indices.push(label);
        true
    }

    pub(crate) fn add_handler(&mut self, config: HandlerConfig) {
        let gate = Gate::default();
        let in_step = self.is_in_step().then(|| self.informer.clone());
        let recorder = Recorder::new(gate.clone(), self.changed.clone(), in_step);
        let name = format!("handler {}", self.handlers_created);
        self.handlers_created += 1;
        let mut options = HandlerOptions::new().name(&name);
        if config.coalescing {
            options = options.buffer(HandlerBuffer::Coalescing);
        }
        let registration = if config.filtered {
            let passes = move |object: &T| config.passes(object.label("tier"));
            let handler = FilteringHandler::new(passes, recorder.clone());
            self.informer.add_handler_with_options(handler, options)
        } else {
            self.informer
                .add_handler_with_options(recorder.clone(), options)
        };
        let registration = registration.expect("the informer has not stopped");
        self.handlers.push(Handler {
            name,
            config,
            recorder,
            registration,
            gate,
        });
    }

    /// Whether each change reaches the handlers before the next one reaches the cache.
    fn is_in_step(&self) -> bool {
        self.config.one_thread && matches!(self.config.queue, InformerQueue::DeltaFifo)
    }

    /// Checks that nothing waits for a blocked handler except the change that is in progress, if the
    /// informer and its handlers are in step. The initial list of a late handler waits as a whole.
    pub(crate) fn check_backlog(&self) -> Result<(), String> {
        if !self.is_in_step() {
            return Ok(());
        }
        // A recreation can be a deletion and an add.
        let most = 1 + u64::from(self.config.recreation_as_delete_and_add);
        for Handler {
            name, registration, ..
        } in &self.handlers
        {
            let has_synced = registration.has_synced();
            let stats = registration.stats();
            if has_synced && stats.received > stats.delivered + most {
                return Err(format!("{name} has a backlog: {stats:?}"));
            }
        }
        Ok(())
    }

    /// Removes a handler. `end` checks that it receives no more events.
    pub(crate) fn remove_handler(&mut self, handler: Handler<T>) {
        handler.gate.open();
        self.informer
            .shut_down_event_handler(&handler.registration, None)
            .expect("the handler is not in a callback that waits");
        let delivered = handler.recorder.known().lock().count;
        self.removed.push((handler, delivered));
    }

    pub(crate) fn open_gates(&self) {
        self.processing.open();
        self.handlers.iter().for_each(|handler| handler.gate.open());
    }

    /// Returns the last resourceVersion of each reflector and the total number of relists.
    pub(crate) fn progress(&self) -> (Vec<u64>, u64) {
        let statuses = self.informer.statuses();
        let versions = statuses
            .iter()
            .map(|(_, status)| Some(status.resource_version.as_ref()?.to_string()))
            .map(|version| version.map_or(0, |version| version.parse().unwrap_or(0)));
        (
            versions.collect(),
            statuses.iter().map(|(_, status)| status.relists).sum(),
        )
    }

    /// Returns all cached objects by key.
    pub(crate) fn cached(&self) -> BTreeMap<String, Arc<T>> {
        let objects = self.informer.lister().list();
        let key = |object: &Arc<T>| format!("{}/{}", object.namespace(), object.name());
        objects
            .into_iter()
            .map(|object| (key(&object), object))
            .collect()
    }

    /// Stops everything and checks that it ends.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.open_gates();
        let shut_down = self.factory.shut_down(PATIENCE);
        shut_down.map_err(|error| format!("the factory did not shut down: {error}"))?;
        if let Some(handler) = self
            .handlers
            .iter()
            .find(|handler| !handler.registration.ended().is_done())
        {
            return Err(format!("{} did not end with its informer", handler.name));
        }
        let late =
            |(handler, count): &&(Handler<T>, u64)| handler.recorder.known().lock().count != *count;
        match self.removed.iter().find(late) {
            Some((handler, _)) => Err(format!("{} was called after it was removed", handler.name)),
            None => Ok(()),
        }
    }
}

/// Opens the gates, so that no thread stays blocked after a failure.
impl<T> Drop for World<T> {
    fn drop(&mut self) {
        self.processing.open();
        self.handlers.iter().for_each(|handler| handler.gate.open());
    }
}

fn reflector_options(config: &Config) -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::from_millis(1))
        .factor(1.5)
        .cap(Duration::from_millis(5));
    options.watch_list = matches!(config.lists, Lists::Streamed | Lists::Refused);
    if let Lists::Paged(size) = config.lists {
        options.page_size = Some(size);
    }
    options.watch_idle_timeout = config.idle_timeout.then_some(IDLE);
    options
}

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::controller::{Controller, ControllerConfig, reflector_name};
use super::error::InformerError;
use super::handler::{HandlerFuncs, ResourceEventHandler};
use super::process::process_deltas;
use super::processor_listener::ProcessorListener;
use super::queue::InformerQueue;
use super::registration::{HandlerOptions, HandlerRegistration};
use super::shared_processor::{SharedProcessor, drop_quietly};
use crate::object::{Accessor, Object};
use crate::reflector::{ListerWatcher, ReflectorOptions, ReflectorStatus};
use crate::stop::{Done, Stop, Subscription};
use crate::store::{IndexFunc, Indexer, Indexers, Lister};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::threads::Owner;

/// The shortest period in which a handler can be told about everything once more (I9).
const MIN_RESYNC_PERIOD: Duration = Duration::from_secs(1);

/// What may be said of a shared informer. client-go's `SharedIndexInformerOptions`.
pub struct SharedIndexInformerOptions<T> {
    /// The indices of the cache; more can be added later.
    pub indexers: Indexers<T>,
    /// How the reflector goes about it. Its `resync_period` is the period of handlers that ask for none; its
    /// `should_resync` is the informer's own.
    pub reflector: ReflectorOptions,
    /// What is between the reflector and the cache.
    pub queue: InformerQueue,
}

impl<T> Default for SharedIndexInformerOptions<T> {
    fn default() -> Self {
        Self {
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: InformerQueue::default(),
        }
    }
}

impl<T> fmt::Debug for SharedIndexInformerOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIndexInformerOptions")
            .field("reflector", &self.reflector)
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// A cache of all objects of a kind that is kept equal to the server, and any number of handlers that are
/// told what changes. client-go's `SharedIndexInformer`.
///
/// Clones are the same informer. It runs once: [`run`](Self::run) blocks the thread that calls it until it is
/// stopped; a [`SharedInformerFactory`](crate::SharedInformerFactory) does that on a thread of its own. While
/// it runs it has, beside that one, the reflector's thread, one for resyncs if there are any, and two for
/// each handler.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{Body, DynamicObject, ListOptions, ListWatch, Object, SharedIndexInformer, Stop};
///
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(r#"{"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#)),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait();
///         Ok(Body::from(""))
///     },
/// );
/// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(pods), Default::default());
/// let (sender, names) = std::sync::mpsc::channel();
/// let handler = informer.add_event_handler(|handler| handler
///     .on_add(move |pod, _| sender.send(pod.name().to_owned()).unwrap()))?;
///
/// let stop = Stop::new();
/// let running = std::thread::spawn({ let (informer, stop) = (informer.clone(), stop.clone()); move || informer.run(&stop) });
/// handler.synced().wait();
/// assert_eq!(names.recv(), Ok("a".to_owned()));
/// assert_eq!(informer.lister().list().len(), 1);
/// stop.stop();
/// running.join().unwrap()?;
/// # Ok::<(), k8s_informer::InformerError>(())
/// ```
pub struct SharedIndexInformer<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    name: Arc<str>,
    lister_watcher: Arc<dyn ListerWatcher>,
    indexer: Arc<Indexer<T>>,
    processor: SharedProcessor<T>,
    /// Where the informer is in its life, and its periods. The first lock: `block_deltas` and the
    /// processor's follow. What a callback may ask at any time does not need it.
    life: Mutex<Life>,
    /// What runs, once it does.
    controller: OnceLock<Controller<T>>,
    /// Whether the run has ended, or is about to. Set under `life`'s lock; read without it where nothing
    /// depends on the moment.
    stopped: AtomicBool,
    /// Held while the changes of one object go to the cache and to the handlers, and while a handler is
    /// added: it gets what is in the cache then, and every change after, and none twice (I12). After
    /// `life`, before the processor's and the store's.
    block_deltas: Mutex<()>,
    synced: Done,
    next_handler: AtomicU64,
    /// The period of handlers that ask for none, whatever the informer's own becomes (I9).
    default_resync_period: Duration,
    /// Also tells this informer's handlers from another's.
    owner: Owner,
}

struct Life {
    started: bool,
    reflector: ReflectorOptions,
    queue: InformerQueue,
    initial_list_is_processed: Option<Subscription>,
}

impl<T: Object + DeserializeOwned> SharedIndexInformer<T> {
    /// Nothing happens before [`run`](Self::run).
    pub fn new(lister_watcher: Arc<dyn ListerWatcher>, options: SharedIndexInformerOptions<T>) -> Self {
        let SharedIndexInformerOptions { indexers, reflector, queue } = options;
        let name = reflector_name(&reflector, &*lister_watcher);
        let owner = Owner::new();
        Self {
            shared: Arc::new(Shared {
                synced: Done::new(&*name),
                name,
                lister_watcher,
                indexer: Arc::new(Indexer::new(Accessor::object(), indexers)),
                processor: SharedProcessor::new(owner),
                default_resync_period: reflector.resync_period,
                life: Mutex::new(Life { started: false, reflector, queue, initial_list_is_processed: None }),
                controller: OnceLock::new(),
                stopped: AtomicBool::new(false),
                block_deltas: Mutex::new(()),
                next_handler: AtomicU64::new(1),
                owner,
            }),
        }
    }

    /// Lists, watches, fills the cache and calls the handlers until `stop` is given and every thread has
    /// ended (I3): first the reflector and the process loop, which is on this thread, then the handlers.
    /// What is still on its way to a handler is dropped (I4). A callback that is running is waited for.
    ///
    /// # Errors
    ///
    /// If it was started before, and if the system has not the threads that it needs.
    pub fn run(&self, stop: &Stop) -> Result<(), InformerError> {
        self.shared.owner.adopt(|| {
            let ended = self.start().and_then(|controller| controller.run(stop));
            if matches!(ended, Err(InformerError::AlreadyStarted { .. })) {
                return ended;
            }
            {
                let _life = self.shared.life.lock();
                self.shared.stopped.store(true, Ordering::Release);
            }
            self.shared.processor.stop();
            ended
        })
    }

    fn start(&self) -> Result<&Controller<T>, InformerError> {
        let Shared { name, lister_watcher, indexer, processor, life, .. } = &*self.shared;
        let mut life = life.lock();
        if std::mem::replace(&mut life.started, true) {
            return Err(InformerError::AlreadyStarted { name: Arc::clone(name) });
        }
        processor.start().map_err(|error| thread_error(name, error))?;

        let queue = life.queue.build(indexer);
        let source = Arc::clone(&queue);
        let shared = Arc::downgrade(&self.shared);
        life.initial_list_is_processed = Some(queue.synced().on_done(move || {
            if let Some(shared) = shared.upgrade() {
                shared.synced.set();
                shared.processor.upstream_has_synced();
            }
        }));

        let shared = Arc::clone(&self.shared);
        let mut config =
            ControllerConfig::new(queue, Arc::clone(lister_watcher), move |deltas, is_in_initial_list| {
                let _blocked = shared.block_deltas.lock();
                Ok(process_deltas(&shared.indexer, deltas, is_in_initial_list, |notification, sync| {
                    shared.processor.distribute(notification, sync);
                    !source.is_closed()
                })?)
            });
        config.reflector = life.reflector.clone();
        let (shared, clock) = (Arc::downgrade(&self.shared), Arc::clone(&life.reflector.clock));
        config.reflector.should_resync = Some(Arc::new(move || {
            shared.upgrade().is_some_and(|shared| shared.processor.should_resync(clock.now()))
        }));
        Ok(self.shared.controller.get_or_init(|| Controller::new(config)))
    }
}

impl<T: Object> SharedIndexInformer<T> {
    /// Adds a handler made of closures; see [`add_handler_with_options`](Self::add_handler_with_options).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add_event_handler(
        &self,
        handler: impl FnOnce(HandlerFuncs<T>) -> HandlerFuncs<T>,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add_handler(handler(HandlerFuncs::new()))
    }

    /// Adds a handler; see [`add_handler_with_options`](Self::add_handler_with_options).
    ///
    /// # Errors
    ///
    /// As there.
    pub fn add_handler(
        &self,
        handler: impl ResourceEventHandler<T> + 'static,
    ) -> Result<HandlerRegistration, InformerError> {
        self.add_handler_with_options(handler, HandlerOptions::default())
    }

    /// Adds a handler, before or after the informer is started. One that is added late is told first about
    /// everything that is in the cache, as adds of its initial list, and then about every change, none of
    /// them twice (I12).
    ///
    /// # Errors
    ///
    /// If the informer has stopped (I8), and if the system has no threads for the handler.
    pub fn add_handler_with_options(
        &self,
        handler: impl ResourceEventHandler<T> + 'static,
        options: HandlerOptions,
    ) -> Result<HandlerRegistration, InformerError> {
        let Shared { name: informer, indexer, processor, life, block_deltas, .. } = &*self.shared;
        let HandlerOptions { name, resync_period } = options;
        let id = self.shared.next_handler.fetch_add(1, Ordering::Relaxed);
        let name: Arc<str> = if name.is_empty() { format!("handler-{id}").into() } else { name.into() };

        let mut life = life.lock();
        if self.is_stopped() {
            let what = "handler was not added to shared informer";
            return Err(InformerError::Stopped { name: Arc::clone(informer), what });
        }
        let now = life.reflector.clock.now();
        let requested = self.resync_period(&mut life, resync_period);
        let period = effective_resync_period(requested, life.reflector.resync_period);
        let listener =
            ProcessorListener::new(id, Arc::clone(&name), Box::new(handler), requested, period, now);
        let tracker = Arc::clone(&listener.tracker);
        {
            let _blocked = block_deltas.lock();
            let initial = if life.started { indexer.list() } else { Vec::new() };
            processor.add_listener(listener, initial).map_err(|error| thread_error(&name, error))?;
        }
        // The initial list of a late handler is on its way; that of the others is when the queue says so.
        if self.shared.synced.is_done() {
            tracker.upstream_has_synced();
        }
        Ok(HandlerRegistration { id, informer: self.shared.owner, name, tracker })
    }

    /// Removes a handler and does not wait for it: the call that it is in goes on, what waits for it is
    /// dropped (I14, SP12). Removing one that is not there, or another informer's, does nothing.
    pub fn remove_event_handler(&self, registration: &HandlerRegistration) {
        if registration.informer != self.shared.owner {
            return;
        }
        let removed = {
            let _life = self.shared.life.lock();
            let _blocked = self.shared.block_deltas.lock();
            self.shared.processor.remove_listener(registration.id)
        };
        if let Some(listener) = removed {
            drop_quietly(listener);
        }
    }

    /// What the informer is called in logs and errors.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// The cache. It is the informer's to write (I21: empty before it runs). client-go's `GetIndexer`.
    pub fn indexer(&self) -> &Arc<Indexer<T>> {
        &self.shared.indexer
    }

    /// The cache, for reading.
    pub fn lister(&self) -> Lister<T> {
        Lister::new(Arc::clone(&self.shared.indexer))
    }

    /// Adds an index: `values` says under which values an object is found. Before the informer runs or while
    /// it does; what is in the cache is indexed at once. `values` runs while a change is processed: it
    /// must not add or remove handlers.
    ///
    /// # Errors
    ///
    /// If the informer has stopped (I7), if there is an index of that name (X8), and if `values` panics on an
    /// object of the cache.
    pub fn add_index(
        &self,
        name: &str,
        values: impl Fn(&T) -> Vec<String> + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        if self.is_stopped() {
            let (name, what) = (Arc::clone(&self.shared.name), "the index was not added");
            return Err(InformerError::Stopped { name, what });
        }
        let indexers = Indexers::new().with(name, IndexFunc::new(values));
        self.shared.indexer.add_indexers(indexers).map_err(InformerError::Index)
    }

    /// Whether everything of the initial list is in the cache and on its way to the handlers (I5). It stays
    /// true after a stop.
    pub fn has_synced(&self) -> bool {
        self.shared.synced.is_done()
    }

    /// Happens when [`has_synced`](Self::has_synced) turns true.
    pub fn synced(&self) -> &Done {
        &self.shared.synced
    }

    /// Whether it ran and has ended; it can't be started again.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// The resourceVersion that the reflector has seen last; the cache may be behind it. Empty before the
    /// first list.
    pub fn last_sync_resource_version(&self) -> String {
        self.shared.controller.get().map(Controller::last_sync_resource_version).unwrap_or_default()
    }

    /// How the reflector stands: what it does, how far the initial list has come, and what went wrong last.
    pub fn status(&self) -> ReflectorStatus {
        let mut status = self.shared.controller.get().map(Controller::status).unwrap_or_default();
        // The reflector says so a moment after the queue has the list, and the queue may be faster.
        status.listed |= self.has_synced();
        status
    }

    /// Whether the current thread is one of the informer's, so that it may not wait for the informer's end.
    pub(super) fn is_own_thread(&self) -> bool {
        self.shared.owner.is_current()
    }

    /// The period that a handler gets when it asks for this one (I9): at least a second; before the start a
    /// shorter one than the informer's becomes the informer's, after the start it is the informer's that
    /// counts.
    fn resync_period(&self, life: &mut Life, asked: Option<Duration>) -> Duration {
        let check = life.reflector.resync_period;
        let asked = asked.unwrap_or(self.shared.default_resync_period);
        if asked.is_zero() {
            return asked;
        }
        let period = asked.max(MIN_RESYNC_PERIOD);
        if period >= check {
            return period;
        }
        if life.started {
            log::warn!(
                "{}: a resync period of {period:?} can't be had after the start; it is {check:?}",
                self.name()
            );
            return check;
        }
        life.reflector.resync_period = period;
        let now = life.reflector.clock.now();
        self.shared
            .processor
            .resync_period_changed(|requested| effective_resync_period(requested, period), now);
        period
    }
}

/// What becomes of a handler's period under an informer's (I10).
fn effective_resync_period(requested: Duration, check: Duration) -> Duration {
    if requested.is_zero() || check.is_zero() { Duration::ZERO } else { requested.max(check) }
}

fn thread_error(name: &Arc<str>, error: std::io::Error) -> InformerError {
    InformerError::Thread { name: Arc::clone(name), source: Arc::new(error) }
}

impl<T> Clone for SharedIndexInformer<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> fmt::Debug for SharedIndexInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shared { name, stopped, synced, .. } = &*self.shared;
        f.debug_struct("SharedIndexInformer")
            .field("name", name)
            .field("stopped", stopped)
            .field("synced", &synced.is_done())
            .finish_non_exhaustive()
    }
}

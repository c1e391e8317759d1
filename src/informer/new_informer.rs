use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::controller::{Controller, reflector_name};
use super::drain::{Items, Outlet};
use super::handler::{Notification, ResourceEventHandler};
use super::process::{Batch, CachePart, Order, Reports};
use super::queue::InformerQueue;
use crate::base::derive::{debug_fields, setters};
use crate::base::panic;
use crate::log;
use crate::metrics::{self, InformerMetrics};
use crate::object::{Accessor, Object};
use crate::queue::{Deltas, Origin, ProcessError};
use crate::reflector::{ListerWatcher, ReflectorOptions};
use crate::stop::Stop;
use crate::store::{Indexer, Indexers, Store, Transform};

/// Options for an informer that is not shared. client-go's `InformerOptions`.
#[non_exhaustive]
pub struct InformerOptions<T> {
    /// The source of the objects.
    pub lister_watcher: Arc<dyn ListerWatcher>,
    /// The handler. The process loop calls it, so a slow handler delays the store.
    pub handler: Box<dyn ResourceEventHandler<T>>,
    /// The indexes of the store.
    pub indexers: Indexers<T>,
    /// The options of the reflector, including the resync period.
    pub reflector: ReflectorOptions,
    /// The kind of queue between the reflector and the store.
    pub queue: InformerQueue,
    /// Changes every object before it is queued.
    pub transform: Option<Transform<T>>,
    /// Receives metrics of the queue and the store.
    pub metrics: Option<Arc<dyn InformerMetrics>>,
}

impl<T> InformerOptions<T> {
    /// Creates options without indexes or a transform, with the default queue.
    pub fn new(
        lister_watcher: Arc<dyn ListerWatcher>,
        handler: impl ResourceEventHandler<T> + 'static,
    ) -> Self {
        Self {
            lister_watcher,
            handler: Box::new(handler),
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: InformerQueue::default(),
            transform: None,
            metrics: None,
        }
    }

    setters! {
        /// Sets the indexes of the store.
        indexers(indexers: Indexers<T>) = indexers;
        /// Sets the options of the reflector.
        reflector(options: ReflectorOptions) = options;
        /// Sets the kind of queue between the reflector and the store.
        queue(queue: InformerQueue) = queue;
        /// Sets the function that changes every object before it is queued.
        transform(transform: Transform<T>) = Some(transform);
        /// Sets the receiver of metrics of the queue and the store.
        metrics(metrics: Arc<dyn InformerMetrics>) = Some(metrics);
    }
}

debug_fields!(InformerOptions<T>: reflector, queue);

/// Creates an informer with one handler. Returns the store that it fills, and the controller that
/// you [run](Controller::run). Only the controller may write to the store. client-go's `NewInformer`.
///
/// Use it for one kind and one handler, if the program owns the thread. The handler is called on the
/// process loop: until a call returns, no further change reaches the store or the handler. Therefore, a
/// call must not wait for [`synced`](Controller::synced). [`begin`](ResourceEventHandler::begin) is called
/// before the first notification. A panic of the handler costs one call and is logged. Once the `Stop`
/// is set, no further call begins. A [`SharedIndexInformer`](crate::SharedIndexInformer) has several
/// handlers with their own threads, and waits for versions and objects.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Stopper};
/// use k8s_informer::handler::HandlerFuncs;
/// use k8s_informer::informer::new_informer;
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
/// let pods = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let stop = Stopper::new();
/// let enough = stop.clone();
/// let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| enough.stop());
/// let (store, controller) = new_informer(Arc::new(pods), handler);
/// controller.run(&stop)?; // Blocks until `stop` is set.
/// assert_eq!(store.list_keys(), ["a"]);
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
#[doc(alias = "NewInformer")]
pub fn new_informer<T: Object + DeserializeOwned>(
    lister_watcher: Arc<dyn ListerWatcher>,
    handler: impl ResourceEventHandler<T> + 'static,
) -> (Arc<dyn Store<T>>, Controller<T>) {
    let (indexer, controller) = new_indexer_informer(InformerOptions::new(lister_watcher, handler));
    (indexer, controller)
}

/// Like [`new_informer`], with an indexed store and with options. client-go's `NewIndexerInformer` and
/// `NewInformerWithOptions`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Object, Stopper};
/// use k8s_informer::handler::HandlerFuncs;
/// use k8s_informer::informer::{InformerOptions, new_indexer_informer};
/// use k8s_informer::store::{IndexFunc, Indexers};
/// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
///
/// let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"},
///     "items": [{"metadata": {"name": "a", "labels": {"app": "web"}}}]}"#;
/// let pods = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
/// let stop = Stopper::new();
/// let enough = stop.clone();
/// let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| enough.stop());
/// let mut options = InformerOptions::new(Arc::new(pods), handler);
/// options.indexers = Indexers::new().with("app", IndexFunc::new(|pod: &DynamicObject| {
///     pod.label("app").map(str::to_owned).into_iter().collect()
/// }));
/// let (indexer, controller) = new_indexer_informer(options);
/// controller.run(&stop)?;
/// assert_eq!(indexer.by_index("app", "web")?[0].name(), "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "NewIndexerInformer")]
pub fn new_indexer_informer<T: Object + DeserializeOwned>(
    options: InformerOptions<T>,
) -> (Arc<Indexer<T>>, Controller<T>) {
    let InformerOptions {
        lister_watcher,
        handler,
        indexers,
        reflector,
        queue,
        transform,
        metrics,
    } = options;
    // The store, and the queue that finds its known objects there.
    let mut indexer = Indexer::new(Accessor::object(), indexers);
    if let Some(metrics) = &metrics {
        indexer = indexer.with_metrics(Arc::clone(metrics));
    }
    let indexer = Arc::new(indexer);
    // One reflector fills the whole cache.
    let namespace = None;
    // A recreation that the watch missed is an update, as in client-go.
    let recreation_as_delete_and_add = false;
    let part = CachePart::new(
        Arc::clone(&indexer),
        namespace,
        recreation_as_delete_and_add,
    );
    let part = Arc::new(part);
    let name = reflector_name(&reflector, &*lister_watcher);
    let clock = Arc::clone(&reflector.clock);
    let queue = queue.build(&part, &name, transform, metrics.clone(), clock);

    // The process loop, which calls the handler.
    let outlet = Unshared {
        name: Arc::clone(&name),
        part,
        handler,
        metrics,
        has_begun: false,
    };
    let controller =
        Controller::with_outlet(name, queue, lister_watcher, reflector, Items::One, outlet);
    (indexer, controller)
}

/// Processes the changes of an informer that is not shared: updates the store and calls the handler.
struct Unshared<T> {
    name: Arc<str>,
    part: Arc<CachePart<T>>,
    handler: Box<dyn ResourceEventHandler<T>>,
    metrics: Option<Arc<dyn InformerMetrics>>,
    /// Whether the handler's `begin` has been called.
    has_begun: bool,
}

impl<T: Object> Outlet<T> for Unshared<T> {
    fn process(
        &mut self,
        items: &[Deltas<T>],
        origin: Origin,
        reports: &mut Reports,
        stop: &Stop,
    ) -> Result<(), ProcessError> {
        let (name, handler) = (&self.name, &mut self.handler);
        // `begin` comes before all other calls, on the same thread.
        if !self.has_begun {
            self.has_begun = true;
            if let Err(panic) = panic::catch(|| handler.begin(stop)) {
                log::error!("{name}: the handler's `begin` {panic}");
            }
        }
        // Change by change, so that the store is not ahead of the handler.
        for delta in items.iter().flat_map(|deltas| deltas.iter()) {
            let batch = || -> Batch<'_, T> { Box::new(std::iter::once((0, delta))) };
            let mut events = Vec::new();
            // One handler, on this thread: there is nothing to block.
            let blocked = None;
            let notify = &mut |_, event: Notification<T>, _| events.push(event);
            let order = Order::OneByOne;
            let processed = self
                .part
                .process(batch, order, origin, blocked, notify, reports);
            // The handler runs without any lock of the store.
            for event in events {
                deliver(name, &mut **handler, event, stop);
            }
            processed?;
        }
        Ok(())
    }
}

/// Calls the handler with a notification. Each panic of user code is caught here, so that the later
/// changes still reach the store and the handler (C11).
fn deliver<T>(
    name: &str,
    handler: &mut dyn ResourceEventHandler<T>,
    event: Notification<T>,
    stop: &Stop,
) {
    // After a stop, the changes still reach the store, because the queue counts them as processed.
    // Their notifications are dropped (C3).
    if !stop.is_stopped()
        && let Err(panic) = panic::catch(|| event.deliver(handler))
    {
        log::error!("{name}: the handler {panic}; continuing with the next event");
    }
    // A separate catch: a destructor that panics during the unwind of another panic would abort the
    // process.
    if let Err(panic) = panic::catch(|| drop(event)) {
        log::error!("{name}: the destructor of an object {panic}");
    }
}

/// The controller drops this at the end of its run, or when it is dropped without a run.
impl<T> Drop for Unshared<T> {
    fn drop(&mut self) {
        if let Some(metrics) = self.metrics.take() {
            metrics::call(|| metrics.ended());
        }
    }
}

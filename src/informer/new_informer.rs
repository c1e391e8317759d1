use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::controller::{Controller, ControllerConfig, reflector_name};
use super::handler::ResourceEventHandler;
use super::process::IndexerPart;
use super::queue::InformerQueue;
use crate::base::derive::debug_fields;
use crate::base::panic;
use crate::base::sync::Mutex;
use crate::log;
use crate::metrics::InformerMetrics;
use crate::object::{Accessor, Object};
use crate::reflector::{ListerWatcher, ReflectorOptions};
use crate::stop::Stop;
use crate::store::{Indexer, Indexers, Store, Transform};

/// Options for an informer that is not shared. client-go's `InformerOptions`.
#[non_exhaustive]
pub struct InformerOptions<T> {
    /// The source of the objects.
    pub lister_watcher: Arc<dyn ListerWatcher>,
    /// The handler. It is called on the process loop, so a slow handler delays the queue.
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
}

debug_fields!(InformerOptions<T>: reflector);

/// Creates an informer with one handler. Returns the store that it fills, and the controller that
/// you [run](Controller::run). client-go's `NewInformer`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Stop};
/// use k8s_informer::handler::HandlerFuncs;
/// use k8s_informer::informer::new_informer;
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch};
/// use k8s_informer::store::KnownObjects;
///
/// let stop = Stop::new();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(r#"{"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#)),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait();
///         Ok(Body::from(""))
///     },
/// );
/// let seen = stop.clone();
/// let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| seen.stop());
/// let (store, controller) = new_informer(Arc::new(pods), handler);
/// controller.run(&stop)?;
/// assert_eq!(store.list_keys(), ["a".into()]);
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

/// Creates an informer with one handler and an indexed store. client-go's `NewIndexerInformer` and
/// `NewInformerWithOptions`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Object, Stop};
/// use k8s_informer::handler::HandlerFuncs;
/// use k8s_informer::informer::{InformerOptions, new_indexer_informer};
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch};
/// use k8s_informer::store::{IndexFunc, Indexers};
///
/// let stop = Stop::new();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(
///         r#"{"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "a", "labels": {"app": "web"}}}]}"#,
///     )),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait();
///         Ok(Body::from(""))
///     },
/// );
/// let seen = stop.clone();
/// let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| seen.stop());
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
        mut handler,
        indexers,
        reflector,
        queue,
        transform,
        metrics,
    } = options;
    let mut indexer = Indexer::new(Accessor::object(), indexers);
    if let Some(metrics) = &metrics {
        indexer = indexer.with_metrics(Arc::clone(metrics));
    }
    let indexer = Arc::new(indexer);
    let part = Arc::new(IndexerPart::new(Arc::clone(&indexer), None, false));
    let name = reflector_name(&reflector, &*lister_watcher);
    let clock = Arc::clone(&reflector.clock);
    let queue = queue.build(&part, &name, transform, metrics, clock);
    let source = Arc::clone(&queue);
    let pending_begin: Arc<Mutex<Option<Stop>>> = Arc::default();
    let set_pending_begin = Arc::clone(&pending_begin);
    let mut config =
        ControllerConfig::new(queue, lister_watcher, move |deltas, is_in_initial_list| {
            if let Some(stop) = { pending_begin.lock().take() }
                && let Err(panic) = panic::catch(|| handler.begin(&stop))
            {
                log::error!("{name}: the handler's `begin` {panic}");
            }
            part.process(deltas, is_in_initial_list, &mut |_, event, _| {
                // Catch a panic here and not in the queue, so that the object's next change
                // still reaches the store.
                if let Err(panic) = panic::catch(|| event.deliver(&mut *handler)) {
                    log::error!("{name}: the handler {panic}; continuing with the next event");
                }
                !source.is_closed()
            })
        });
    config.on_start = Some(Box::new(move |stop| {
        *set_pending_begin.lock() = Some(stop.clone());
    }));
    config.reflector = reflector;
    (indexer, Controller::new(config))
}

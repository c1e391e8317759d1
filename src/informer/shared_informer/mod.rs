//! The shared informer: one cache and any number of handlers.

mod drivers;
mod handlers;
mod read;
mod run;
mod versions;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::any_informer::InformerState;
use super::error::InformerError;
use super::options::SharedIndexInformerOptions;
use super::pipeline::PipelineState;
use super::process::CachePart;
use super::shared_processor::SharedProcessor;
use crate::base::derive::{clone_fields, debug_fields, unwind_safe};
use crate::base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::base::sync::{Mutex, MutexGuard};
use crate::base::threads::Owner;
use crate::error::Error;
use crate::metrics;
use crate::object::{Accessor, Object};
use crate::queue::Watermark;
use crate::reflector::{ListerWatcher, Shard, WatchErrorHandler};
use crate::stop::{Done, DoneSetter};
use crate::store::{Indexer, Transform};

/// A cache that holds all objects of a kind and follows the API server. Any number of handlers
/// receive the changes. client-go's `SharedIndexInformer`.
///
/// Clones refer to the same informer. An informer runs once. [`run`](Self::run) blocks the calling
/// thread until the informer is stopped; a [`SharedInformerFactory`](crate::SharedInformerFactory)
/// calls it on a separate thread.
///
/// **Threads.** A running informer uses the calling thread, a reflector thread, and two threads per
/// handler. An informer for [several namespaces](Self::for_namespaces) uses two more for each further
/// namespace.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stop, Stopper};
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch};
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
/// let stop = Stopper::new();
/// let running = std::thread::spawn({ let (informer, stop) = (informer.clone(), stop.signal()); move || informer.run(&stop) });
/// handler.synced().wait();
/// assert_eq!(names.recv(), Ok("a".to_owned()));
/// assert_eq!(informer.lister().list().len(), 1);
/// stop.stop();
/// running.join().unwrap()?;
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
pub struct SharedIndexInformer<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    state: Arc<InformerState>,
    /// One for everything, or one for each namespace.
    sources: Vec<NamespaceSource>,
    indexer: Arc<Indexer<T>>,
    processor: SharedProcessor<T>,
    /// The state and the options of the informer. The first lock in the order: `block_deltas` and
    /// the processor's locks come after it. Methods that a callback may call at any time do not
    /// take it.
    lifecycle: Mutex<Lifecycle<T>>,
    /// What others read of the pipeline of each source; set at the start.
    running: OnceLock<Vec<Running<T>>>,
    /// Set when `running` is set.
    started: DoneSetter,
    /// Whether the run has ended or is about to. Written under the lock of `lifecycle`. Read
    /// without it where the exact moment does not matter.
    stopped: AtomicBool,
    /// Held while a batch of changes goes to the cache and the listeners, and while a handler is
    /// added. A new handler gets the content of the cache and then every later change exactly once
    /// (I12).
    ///
    /// Sending a batch or an initial list to the handlers' threads happens after the unlock: each
    /// listener has its changes in order by then. No user code runs under this lock. In the lock order
    /// it comes after `lifecycle` and the store's lock of index changes, and before the processor's
    /// locks and the other ones of the store.
    block_deltas: Mutex<()>,
    next_handler: AtomicU64,
    /// The resync period of handlers that request no period. It stays the same if the informer
    /// adopts the shorter period of a handler (I9).
    default_resync_period: Duration,
}

/// Ends the metrics of an informer that never ran.
impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        let metrics = { self.lifecycle.lock().options.metrics.take() };
        if let Some(metrics) = metrics {
            metrics::call(|| metrics.ended());
        }
    }
}

/// What one reflector of an informer lists and watches.
pub(crate) struct NamespaceSource {
    /// The only namespace that the lister-watcher lists, if that is known.
    pub(crate) namespace: Option<String>,
    /// Whether `namespace` is one of several that the informer lists, each with its own reflector.
    /// Objects of other namespaces are then rejected.
    pub(crate) is_separate: bool,
    pub(crate) lister_watcher: Arc<dyn ListerWatcher>,
}

/// What others read of a source that is running, or has run.
struct Running<T> {
    state: Arc<PipelineState<T>>,
    cache: Arc<CachePart<T>>,
    /// The progress of the queue.
    watermark: Watermark,
}

struct Lifecycle<T> {
    started: Started,
    /// The options, without the indexers.
    options: SharedIndexInformerOptions<T>,
}

/// Who steps the pipelines of an informer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Started {
    /// It has not started.
    No,
    /// The thread that called `run`, and those that it started.
    ByRun,
    /// The program, with its drivers.
    ByDrivers,
}

impl<T: Object + DeserializeOwned> SharedIndexInformer<T> {
    /// Creates an informer for everything that `lister_watcher` lists. It does nothing until you
    /// call [`run`](Self::run).
    pub fn new(
        lister_watcher: Arc<dyn ListerWatcher>,
        options: SharedIndexInformerOptions<T>,
    ) -> Self {
        Self::of(
            vec![NamespaceSource {
                namespace: None,
                is_separate: false,
                lister_watcher,
            }],
            options,
        )
    }

    /// Creates an informer for several namespaces, each with its own lister-watcher. Use it if you
    /// are not permitted to list all namespaces at once.
    ///
    /// The namespaces share one cache and the same handlers. Each has its own reflector and queue,
    /// so a list, a resource version or a failure affects one namespace only. The informer has
    /// synced when all namespaces have. A namespace that is named twice counts once. An empty name
    /// selects all namespaces; the other names are then ignored.
    ///
    /// If a lister-watcher returns an object of another namespace, the object is reported as
    /// unreadable and left out.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
    /// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
    /// use std::sync::Arc;
    ///
    /// let list = |namespace: &str| {
    ///     let pod = format!(r#"{{"metadata": {{"namespace": "{namespace}", "name": "web"}}}}"#);
    ///     let list = format!(r#"{{"kind": "List", "metadata": {{"resourceVersion": "7"}}, "items": [{pod}]}}"#);
    ///     Arc::new(ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]))
    /// };
    /// let informer = SharedIndexInformer::<DynamicObject>::for_namespaces(
    ///     [("blue".to_owned(), list("blue") as _), ("green".to_owned(), list("green") as _)],
    ///     Default::default(),
    /// );
    /// let stop = Stopper::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| informer.run(&stop));
    ///     informer.synced().wait();
    ///     assert_eq!(informer.lister().list().len(), 2);
    ///     stop.stop();
    /// });
    /// ```
    pub fn for_namespaces(
        namespaces: impl IntoIterator<Item = (String, Arc<dyn ListerWatcher>)>,
        options: SharedIndexInformerOptions<T>,
    ) -> Self {
        let mut sources: Vec<NamespaceSource> = Vec::new();
        for (namespace, lister_watcher) in namespaces {
            let namespace = Some(namespace);
            if sources.iter().all(|source| source.namespace != namespace) {
                sources.push(NamespaceSource {
                    namespace,
                    is_separate: true,
                    lister_watcher,
                });
            }
        }
        if let Some(at) = sources
            .iter()
            .position(|source| source.namespace.as_deref() == Some(""))
        {
            let NamespaceSource { lister_watcher, .. } = sources.swap_remove(at);
            return Self::new(lister_watcher, options);
        }
        Self::of(sources, options)
    }

    /// Creates an informer.
    pub(crate) fn of(
        sources: Vec<NamespaceSource>,
        mut options: SharedIndexInformerOptions<T>,
    ) -> Self {
        let name: Arc<str> = match options.reflector.name.as_deref() {
            None => {
                let names: Vec<_> = sources.iter().map(|source| source.name(None)).collect();
                names.join(", ").into()
            }
            Some(name) => name.into(),
        };
        let mut indexer = Indexer::new(Accessor::object(), std::mem::take(&mut options.indexers));
        if let Some(metrics) = &options.metrics {
            indexer = indexer.with_metrics(Arc::clone(metrics));
        }
        let state = Arc::new(InformerState::new(Arc::clone(&name), sources.len()));
        Self {
            shared: Arc::new(Shared {
                sources,
                indexer: Arc::new(indexer),
                processor: SharedProcessor::new(Arc::clone(&name), state.owner),
                default_resync_period: options.reflector.resync_period,
                lifecycle: Mutex::new(Lifecycle {
                    started: Started::No,
                    options,
                }),
                running: OnceLock::new(),
                started: DoneSetter::new(&*name),
                stopped: AtomicBool::new(false),
                block_deltas: Mutex::new(()),
                next_handler: AtomicU64::new(1),
                state,
            }),
        }
    }
}

impl NamespaceSource {
    /// Whether this source may contain objects of this namespace.
    pub(super) fn may_contain(&self, namespace: &str) -> bool {
        match &self.namespace {
            Some(of) if self.is_separate => of == namespace,
            // An object without a namespace is cluster-scoped, so the namespace does not restrict
            // it.
            Some(only) => only == namespace || namespace.is_empty(),
            None => true,
        }
    }

    /// Returns the namespace if it is one of several.
    fn separate_namespace(&self) -> Option<&String> {
        self.namespace.as_ref().filter(|_| self.is_separate)
    }

    /// Returns the name of this source: the name of the informer, with the namespace if it is one of
    /// several.
    fn name(&self, informer: Option<&str>) -> String {
        match (informer, self.separate_namespace()) {
            (None, _) => self.lister_watcher.description(),
            (Some(name), None) => name.to_owned(),
            (Some(name), Some(namespace)) => format!("{name} in {namespace}"),
        }
    }
}

impl<T: Object> SharedIndexInformer<T> {
    /// Returns the name of the informer in logs and errors.
    pub fn name(&self) -> &str {
        &self.shared.state.name
    }

    /// Sets the transform, which changes every object before it is queued. It replaces a transform
    /// that was set before. See [`SharedIndexInformerOptions::transform`].
    ///
    /// ```
    /// use k8s_informer::store::Transform;
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
    /// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
    /// use std::sync::Arc;
    ///
    /// let item = r#"{"metadata": {"name": "a"}, "spec": {"of no": "interest"}}"#;
    /// let list = format!(r#"{{"kind": "List", "metadata": {{"resourceVersion": "7"}}, "items": [{item}]}}"#);
    /// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
    /// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
    /// let strip = || Transform::try_in_place(|object: &mut DynamicObject| {
    ///     object.edit(|fields| drop(fields.remove("spec")))
    /// });
    /// informer.set_transform(strip())?;
    /// let stop = Stopper::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| informer.run(&stop));
    ///     informer.synced().wait();
    ///     assert!(informer.set_transform(strip()).is_err(), "too late");
    ///     stop.stop();
    /// });
    /// assert!(informer.lister().get("", "a").unwrap().read::<String>("/spec")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails if the informer has started.
    pub fn set_transform(&self, transform: Transform<T>) -> Result<(), InformerError> {
        // Dropped after the unlock: its destructor is user code.
        let _replaced = self.before_start()?.options.transform.replace(transform);
        Ok(())
    }

    /// Restricts the informer to a shard, which replaces the shard of its scope. A program can thus
    /// select the shard after it has created the informer.
    ///
    /// # Errors
    ///
    /// Fails if the informer has started.
    ///
    /// ```
    /// use k8s_informer::reflector::Shard;
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stopper};
    /// use k8s_informer_testing::{Answer, ScriptedListerWatcher};
    /// use std::sync::Arc;
    ///
    /// let items = r#"{"metadata": {"name": "own", "uid": "ab"}}, {"metadata": {"name": "other", "uid": "abc"}}"#;
    /// let list = format!(r#"{{"kind": "List", "metadata": {{"resourceVersion": "7"}}, "items": [{items}]}}"#);
    /// let script = ScriptedListerWatcher::new([Answer::body(list), Answer::open("")]);
    /// let informer = SharedIndexInformer::<DynamicObject>::new(Arc::new(script), Default::default());
    /// informer.set_shard(Shard::new(0, 2)?)?;
    /// let stop = Stopper::new();
    /// std::thread::scope(|scope| {
    ///     scope.spawn(|| informer.run(&stop));
    ///     informer.synced().wait();
    ///     assert!(informer.lister().get("", "own").is_some());
    ///     assert!(informer.lister().get("", "other").is_none());
    ///     stop.stop();
    /// });
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_shard(&self, shard: Shard) -> Result<(), InformerError> {
        self.before_start()?.options.reflector.shard = Some(shard);
        Ok(())
    }

    /// Declares that the server may lack the kind, and that the caller reports it: a 404 is then no
    /// warning. Does nothing after the start.
    #[doc(hidden)]
    pub fn expect_missing_kind(&self) {
        if let Ok(mut lifecycle) = self.before_start() {
            lifecycle.options.reflector.is_optional_kind = true;
        }
    }

    /// Sets the callback for failed lists and failed watch requests. It replaces a callback that
    /// was set before. It is not called for errors within an open watch; see
    /// [`ReflectorOptions::watch_error_handler`](crate::reflector::ReflectorOptions::watch_error_handler).
    ///
    /// # Errors
    ///
    /// Fails if the informer has started.
    pub fn set_watch_error_handler(
        &self,
        handler: impl Fn(&Error) + Send + Sync + 'static,
    ) -> Result<(), InformerError> {
        let handler: WatchErrorHandler = Arc::new(handler);
        let mut lifecycle = self.before_start()?;
        let replaced = lifecycle
            .options
            .reflector
            .watch_error_handler
            .replace(handler);
        drop(lifecycle);
        drop(replaced);
        Ok(())
    }

    /// Locks the lifecycle of an informer that has not started.
    fn before_start(&self) -> Result<MutexGuard<'_, Lifecycle<T>>, InformerError> {
        let lifecycle = self.shared.lifecycle.lock();
        if lifecycle.started != Started::No {
            return Err(InformerError::AlreadyStarted {
                name: Arc::clone(&self.shared.state.name),
            });
        }
        Ok(lifecycle)
    }

    /// The error of a call that comes too late.
    fn stopped(&self, what: &'static str) -> InformerError {
        InformerError::Stopped {
            name: Arc::clone(&self.shared.state.name),
            what,
        }
    }

    /// Whether the informer was started and has stopped. Its `run` may not have returned yet, see
    /// [`ended`](Self::ended). A stopped informer cannot be started again.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// Returns a [`Done`] that is set when the run has returned. All threads of the informer have
    /// ended by then.
    pub fn ended(&self) -> &Done {
        &self.shared.state.ended
    }

    /// Returns the owner of the informer's threads.
    pub(crate) fn owner(&self) -> Owner {
        self.shared.state.owner
    }
}

clone_fields!(SharedIndexInformer<T>: shared);

unwind_safe!(SharedIndexInformer<T>);

debug_fields!(SharedIndexInformer<T>, this,
    name: this.shared.state.name,
    synced: this.shared.state.synced.is_done()
);

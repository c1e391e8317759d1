//! One cache, and any number of handlers.

mod handlers;
mod mutations;
mod read;
mod run;
mod versions;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::controller::{Controller, reflector_name};
use super::error::InformerError;
use super::error_listeners::ErrorListeners;
use super::handler::ResourceEventHandler;
use super::options::SharedIndexInformerOptions;
use super::shared_processor::SharedProcessor;
use crate::object::{Accessor, Object};
use crate::queue::Watermark;
use crate::reflector::{ListerWatcher, WatchErrorHandler};
use crate::stop::Done;
use crate::store::{Indexer, Transform};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::threads::Owner;

/// A cache of all objects of a kind that is kept equal to the server, and any number of handlers that are
/// told what changes. client-go's `SharedIndexInformer`.
///
/// Clones are the same informer. It runs once: [`run`](Self::run) blocks the thread that calls it until it is
/// stopped; a [`SharedInformerFactory`](crate::SharedInformerFactory) does that on a thread of its own. While
/// it runs it has, beside that one, the reflector's thread, one for resyncs if there are any, and two for
/// each handler; one of [several namespaces](Self::for_namespaces) two or three more for each of them.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Object, SharedIndexInformer, Stop};
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
/// let stop = Stop::new();
/// let running = std::thread::spawn({ let (informer, stop) = (informer.clone(), stop.clone()); move || informer.run(&stop) });
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
    name: Arc<str>,
    /// What is listed and watched: all of it, or each namespace by itself.
    parts: Vec<Part>,
    indexer: Arc<Indexer<T>>,
    processor: SharedProcessor<T>,
    /// Called on the process loop, before the others. Under `block_deltas`, so nobody waits for it.
    inline: Option<Mutex<Box<dyn ResourceEventHandler<T>>>>,
    /// Where the informer is in its life, and its periods. The first lock: `block_deltas` and the
    /// processor's follow. What a callback may ask at any time does not need it.
    lifecycle: Mutex<Lifecycle<T>>,
    /// What runs, once it does: one for each source.
    controllers: OnceLock<Vec<Controller<T>>>,
    /// How far each of them has come, once they run.
    watermarks: OnceLock<Vec<Watermark>>,
    /// Happens when both are there.
    started: Done,
    /// Whether the run has ended, or is about to. Set under `lifecycle`'s lock; read without it where nothing
    /// depends on the moment.
    stopped: AtomicBool,
    /// Held while a batch of changes goes to the cache and to the listeners, and while a handler is added: it gets
    /// what is in the cache then, and every change after, and none twice (I12). Sending the batch to the handlers'
    /// threads (`flush`) comes after it: each listener has its changes in order by then. Index functions and inline
    /// observers run under it. After `lifecycle`, before the processor's and the store's.
    block_deltas: Mutex<()>,
    synced: Done,
    error_listeners: Arc<ErrorListeners>,
    /// Happens when the run has returned.
    ended: Done,
    next_handler: AtomicU64,
    /// The period of handlers that ask for none, whatever the informer's own becomes (I9).
    default_resync_period: Duration,
    /// Also tells this informer's handlers from another's.
    owner: Owner,
}

/// The part of an informer that one reflector lists and watches.
pub(in crate::informer) struct Part {
    /// `None` for everything.
    pub(in crate::informer) namespace: Option<String>,
    /// The only namespace that is listed, if that is known of a source of everything.
    pub(in crate::informer) only_namespace: Option<String>,
    pub(in crate::informer) lister_watcher: Arc<dyn ListerWatcher>,
}

struct Lifecycle<T> {
    started: bool,
    /// But for the indexers.
    options: SharedIndexInformerOptions<T>,
}

impl<T: Object + DeserializeOwned> SharedIndexInformer<T> {
    /// Of everything that there is to list. Nothing happens before [`run`](Self::run).
    pub fn new(
        lister_watcher: Arc<dyn ListerWatcher>,
        options: SharedIndexInformerOptions<T>,
    ) -> Self {
        Self::of(
            vec![Part {
                namespace: None,
                only_namespace: None,
                lister_watcher,
            }],
            options,
            None,
        )
    }

    /// Of several namespaces, each with what lists and watches it: for who may not list them all together.
    /// One cache, the same handlers; a reflector and a queue each, so that a list, a version and a failure
    /// concern one namespace. It has synced when all have. A namespace that is named twice counts once; an
    /// empty name stands for all of them, and leaves the others nothing to do.
    ///
    /// What comes of an object that is not in its namespace is reported as an object that can't be read, and
    /// left out.
    ///
    /// ```
    /// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
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
    /// let stop = Stop::new();
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
        let mut parts: Vec<Part> = Vec::new();
        for (namespace, lister_watcher) in namespaces {
            let namespace = Some(namespace);
            if parts.iter().all(|part| part.namespace != namespace) {
                parts.push(Part {
                    namespace,
                    only_namespace: None,
                    lister_watcher,
                });
            }
        }
        if let Some(at) = parts
            .iter()
            .position(|part| part.namespace.as_deref() == Some(""))
        {
            let Part { lister_watcher, .. } = parts.swap_remove(at);
            parts = vec![Part {
                namespace: None,
                only_namespace: None,
                lister_watcher,
            }];
        }
        Self::of(parts, options, None)
    }

    /// With a handler that is called on the process loop, under `block_deltas`: it must not add or
    /// remove others.
    pub(in crate::informer) fn of(
        parts: Vec<Part>,
        mut options: SharedIndexInformerOptions<T>,
        inline: Option<Box<dyn ResourceEventHandler<T>>>,
    ) -> Self {
        let names: Vec<_> = parts.iter().map(|part| part.name(&options)).collect();
        let name: Arc<str> = match options.reflector.name.as_str() {
            "" => names.join(", ").into(),
            name => name.into(),
        };
        let mut indexer = Indexer::new(Accessor::object(), std::mem::take(&mut options.indexers));
        if let Some(metrics) = &options.metrics {
            indexer = indexer.with_metrics(Arc::clone(metrics));
        }
        let owner = Owner::new();
        Self {
            shared: Arc::new(Shared {
                synced: Done::new(&*name),
                ended: Done::new(&*name),
                error_listeners: ErrorListeners::new(parts.len()),
                parts,
                indexer: Arc::new(indexer),
                processor: SharedProcessor::new(Arc::clone(&name), owner),
                inline: inline.map(Mutex::new),
                default_resync_period: options.reflector.resync_period,
                lifecycle: Mutex::new(Lifecycle {
                    started: false,
                    options,
                }),
                controllers: OnceLock::new(),
                watermarks: OnceLock::new(),
                started: Done::new(&*name),
                stopped: AtomicBool::new(false),
                block_deltas: Mutex::new(()),
                next_handler: AtomicU64::new(1),
                owner,
                name,
            }),
        }
    }
}

impl Part {
    /// Whether objects of this namespace may be among those that are listed.
    pub(super) fn may_have(&self, namespace: &str) -> bool {
        match (&self.namespace, &self.only_namespace) {
            (Some(of), _) => of == namespace,
            // An object without a namespace: its kind is cluster-scoped, and not limited to a namespace.
            (None, Some(only)) => only == namespace || namespace.is_empty(),
            (None, None) => true,
        }
    }

    /// What its part of the informer is called.
    fn name<T>(&self, options: &SharedIndexInformerOptions<T>) -> String {
        match (options.reflector.name.as_str(), &self.namespace) {
            ("", _) | (_, None) => {
                reflector_name(&options.reflector, &*self.lister_watcher).to_string()
            }
            (name, Some(namespace)) => format!("{name} in {namespace}"),
        }
    }
}

impl<T: Object> SharedIndexInformer<T> {
    /// What the informer is called in logs and errors.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Changes every object before it is queued; the last one that is set before the start counts (I6). See
    /// [`SharedIndexInformerOptions::transform`].
    ///
    /// ```
    /// use k8s_informer::testing::{Answer, ScriptedListerWatcher};
    /// use k8s_informer::{DynamicObject, SharedIndexInformer, Stop};
    /// use k8s_informer::store::Transform;
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
    /// let stop = Stop::new();
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
    /// If the informer has started.
    pub fn set_transform(&self, transform: Transform<T>) -> Result<(), InformerError> {
        self.before_start(|options| options.transform.replace(transform))
    }

    /// Is called with the failed lists and the failed requests for a watch; the last one that is set before
    /// the start counts (I6). See
    /// [`ReflectorOptions::watch_error_handler`](crate::reflector::ReflectorOptions::watch_error_handler).
    ///
    /// # Errors
    ///
    /// If the informer has started.
    pub fn set_watch_error_handler(&self, handler: WatchErrorHandler) -> Result<(), InformerError> {
        self.before_start(|options| options.reflector.watch_error_handler.replace(handler))
    }

    fn before_start<R>(
        &self,
        set: impl FnOnce(&mut SharedIndexInformerOptions<T>) -> R,
    ) -> Result<(), InformerError> {
        let mut lifecycle = self.shared.lifecycle.lock();
        if lifecycle.started {
            return Err(InformerError::AlreadyStarted {
                name: Arc::clone(&self.shared.name),
            });
        }
        let replaced = set(&mut lifecycle.options);
        drop(lifecycle);
        // Not under the lock: its destructor is a user's code.
        drop(replaced);
        Ok(())
    }

    /// Whether it ran and has ended; it can't be started again.
    pub fn is_stopped(&self) -> bool {
        self.shared.stopped.load(Ordering::Acquire)
    }

    /// Happens when the run has returned: every thread of the informer has ended.
    pub fn ended(&self) -> &Done {
        &self.shared.ended
    }
}

impl<T> Clone for SharedIndexInformer<T> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<T> fmt::Debug for SharedIndexInformer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIndexInformer")
            .field("name", &self.shared.name)
            .field("synced", &self.shared.synced.is_done())
            .finish_non_exhaustive()
    }
}

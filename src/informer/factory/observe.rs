use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::DeserializeOwned;

use super::SharedInformerFactory;
use crate::error::Error;
use crate::informer::error::InformerError;
use crate::informer::error_listeners::ErrorSubscription;
use crate::informer::handler::{HandlerFuncs, Notification, ResourceEventHandler};
use crate::informer::listener::{HandlerBuffer, HandlerStats};
use crate::informer::registration::{HandlerOptions, HandlerRegistration};
use crate::informer::scope::InformerScope;
use crate::informer::shared_informer::SharedIndexInformer;
use crate::informer::source::Source;
use crate::informer::wait::{SyncError, SyncOptions};
use crate::object::{Deleted, Object, Resource};
use crate::reflector::{ListerWatcherSource, ReflectorStatus, WatchErrorHandler};
use crate::stop::{Done, Stop};
use crate::store::Lister;

/// Observes the objects of a type: set closures for added, modified and deleted objects, and
/// [start](Observe::start). It creates and runs an informer, which ends with the returned [`Observation`].
///
/// Each call has its own connection and cache. To share them between observers, or to observe other [sources](Source)
/// than a type, use [`SharedInformerFactory::observe`].
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Object, observe};
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let (sender, names) = std::sync::mpsc::channel();
/// let pods = observe::<Pod>(client)
///     .on_added(move |pod| sender.send(pod.name().to_owned()).unwrap())
///     .on_deleted(|pod| println!("- {}", pod.name()))
///     .start()?;
///
/// server.create("/api/v1/namespaces/default/pods", json!({"metadata": {"name": "web-0"}}))?;
/// assert_eq!(names.recv()?, "web-0");
/// assert_eq!(pods.lister().list().len(), 1);
/// pods.stop();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn observe<T: Resource + DeserializeOwned>(
    source: impl ListerWatcherSource + 'static,
) -> Observe<T> {
    let factory = SharedInformerFactory::builder(source).build();
    Observe {
        owns_factory: true,
        ..factory.observe(Source::of::<T>())
    }
}

impl SharedInformerFactory {
    /// Observes the objects of a [`Source`], as [`observe`] does. Observations with equal sources share one informer,
    /// also with callers of [`informer_of`](Self::informer_of).
    ///
    /// An observation starts its informer itself. The informer ends with its last observation, or with the factory; an
    /// informer that was also requested by `informer_of` stays until the factory ends.
    ///
    /// ```
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer::testing::{ApiServer, Verb};
    /// use k8s_informer::{Client, Config, Notification, Object, SharedInformerFactory};
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// server.create("/api/v1/namespaces/blue/secrets", json!({"metadata": {"name": "a"}}))?;
    /// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
    /// let secrets = Source::dynamic(GroupVersionResource::new("", "v1", "secrets"))
    ///     .scope(InformerScope::all().namespace("blue"));
    /// let (sender, events) = std::sync::mpsc::channel();
    /// let first = factory
    ///     .observe(secrets.clone())
    ///     .on_event(move |event| sender.send(event.clone()).unwrap())
    ///     .start()?;
    /// let second = factory.observe(secrets).start()?;
    /// assert!(matches!(events.recv()?, Notification::Added { object, .. } if object.name() == "a"));
    /// assert!(std::sync::Arc::ptr_eq(first.informer().indexer(), second.informer().indexer()));
    ///
    /// drop((first, second)); // The informer has ended.
    /// assert!(events.recv().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe<T: Object + DeserializeOwned>(&self, source: Source<T>) -> Observe<T> {
        Observe {
            factory: self.clone(),
            owns_factory: false,
            source: self.factory.resolved(source),
            observer: HandlerFuncs::new(),
            on_error: None,
            inline: false,
            options: HandlerOptions::default(),
        }
    }
}

/// What is observed, and what to do: made by [`observe`], begun by [`start`](Self::start).
///
/// **Threads.** Those of an informer (one that reflects, one that processes), and two more that call the
/// closures, unless they are called [inline](Self::inline).
#[must_use = "nothing is observed before it is started"]
pub struct Observe<T> {
    factory: SharedInformerFactory,
    /// Whether nobody else uses it.
    owns_factory: bool,
    source: Source<T>,
    observer: HandlerFuncs<T>,
    on_error: Option<WatchErrorHandler>,
    inline: bool,
    options: HandlerOptions,
}

impl<T: Object + DeserializeOwned> Observe<T> {
    /// Only these objects, instead of all, or of the factory's own scope.
    pub fn scope(mut self, scope: InformerScope) -> Self {
        self.source = self.source.scope(scope);
        self
    }

    /// What to do when an object appears, or is there already.
    pub fn on_added(self, mut on_added: impl FnMut(&Arc<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_add(move |object, _| on_added(object)),
            ..self
        }
    }

    /// What to do when an object has changed: how it was, and how it is.
    pub fn on_modified(self, on_modified: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_update(on_modified),
            ..self
        }
    }

    /// What to do when an object is gone.
    pub fn on_deleted(self, on_deleted: impl FnMut(&Deleted<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_delete(on_deleted),
            ..self
        }
    }

    /// What to do whatever happens, after what the other closures do.
    pub fn on_event(self, on_event: impl FnMut(&Notification<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_event(on_event),
            ..self
        }
    }

    /// Called with each failure to list or watch, and for each object that cannot be decoded.
    ///
    /// The observation retries after every failure, so this is for messages and metrics: without a logger and
    /// without this callback, a program that may not list shows nothing. The callback runs on the reflector's
    /// thread and delays it; with several namespaces, several threads call it. Failures are logged all the same.
    ///
    /// ```
    /// use k8s_informer::testing::{ApiServer, Fault};
    /// use k8s_informer::{Client, Config};
    /// use k8s_informer::observe;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// server.fail_next(Fault::status(403).always());
    /// let (sender, errors) = std::sync::mpsc::channel();
    /// let client = Client::new(Config::new(server.url()))?;
    /// let pods = observe::<Pod>(client)
    ///     .on_error(move |error| sender.send(error.clone()).unwrap())
    ///     .start()?;
    /// assert!(errors.recv()?.is_forbidden());
    /// # drop(pods);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_error(mut self, on_error: impl Fn(&Error) + Send + Sync + 'static) -> Self {
        self.on_error = Some(Arc::new(on_error));
        self
    }

    /// Calls the closures on the thread that keeps the cache, instead of a thread of their own: two threads
    /// fewer, and the cache never gets ahead of what they know; but while one of them runs nothing else
    /// happens. Such an observation has its informer for itself, and the closures must not add or remove
    /// handlers of [it](Observation::informer): that would wait for them.
    pub fn inline(mut self) -> Self {
        self.inline = true;
        self
    }

    /// What becomes of the events that wait for the closures, if they have a thread of their own.
    pub fn buffer(mut self, buffer: HandlerBuffer) -> Self {
        self.options.buffer = buffer;
        self
    }

    /// What the observation is called in logs and in the names of its threads.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = name.into();
        self
    }

    /// Begins: lists, watches, calls. It does not wait for anything.
    ///
    /// # Errors
    ///
    /// The factory was shut down, the system has no threads, or the scope or the resource has a name that
    /// can't be requested ([`InformerError::InvalidScope`]).
    pub fn start(self) -> Result<Observation<T>, InformerError> {
        static EXCLUSIVE: AtomicU64 = AtomicU64::new(1);
        let Self {
            factory,
            owns_factory,
            source,
            observer,
            on_error,
            inline,
            options,
        } = self;
        let exclusive = if inline {
            EXCLUSIVE.fetch_add(1, Ordering::Relaxed)
        } else {
            0
        };
        let (inline, handler) = if inline {
            (
                Some(Box::new(observer) as Box<dyn ResourceEventHandler<T>>),
                None,
            )
        } else {
            (None, Some(observer))
        };
        let informer = factory.informer_or(&source, exclusive, true, |factory, options| {
            factory.make(&source, options, inline)
        });
        // From here on a failure takes it back.
        let errors = on_error.map(|on_error| informer.on_error(move |error| on_error(error)));
        let mut observation = Observation {
            factory,
            owns_factory,
            informer,
            handler: None,
            _errors: errors,
            is_over: false,
        };
        if let Some(handler) = handler {
            observation.handler = Some(
                observation
                    .informer
                    .add_handler_with_options(handler, options)?,
            );
        }
        observation
            .factory
            .start_observed(observation.informer.owner())?;
        Ok(observation)
    }
}

impl<T> fmt::Debug for Observe<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observe")
            .field("source", &self.source)
            .field("inline", &self.inline)
            .finish_non_exhaustive()
    }
}

/// Objects being observed. It ends, and every thread that it needed is joined, when it is
/// [stopped](Self::stop) or dropped.
#[must_use = "dropping it ends the observation"]
pub struct Observation<T: Object + DeserializeOwned> {
    factory: SharedInformerFactory,
    owns_factory: bool,
    informer: SharedIndexInformer<T>,
    /// `None` if it is inline.
    handler: Option<HandlerRegistration>,
    _errors: Option<ErrorSubscription>,
    is_over: bool,
}

impl<T: Object + DeserializeOwned> Observation<T> {
    /// The objects, for reading: as new as what was told last, or newer.
    pub fn lister(&self) -> Lister<T> {
        self.informer.lister()
    }

    /// Happens when the closures have been called for everything that was there at first.
    pub fn synced(&self) -> &Done {
        self.handler
            .as_ref()
            .map_or(self.informer.synced(), HandlerRegistration::synced)
    }

    /// Blocks until it [has synced](Self::synced), so until all closures have been called, until `stop` is
    /// given, until the informer has ended, or until the options say so: a timeout, `None`, or
    /// [`SyncOptions`]. Not to be called from within one of the closures.
    ///
    /// # Errors
    ///
    /// If it has not synced then; the error says what went wrong last.
    pub fn wait_for_sync(
        &self,
        stop: &Stop,
        options: impl Into<SyncOptions>,
    ) -> Result<(), SyncError> {
        self.informer.wait_for(self.synced(), stop, options.into())
    }

    /// How it stands with the server.
    pub fn status(&self) -> ReflectorStatus {
        self.informer.status()
    }

    /// How many events wait for the closures, and how these have fared. Nothing is counted if they are called
    /// [inline](Observe::inline): nothing waits then.
    pub fn stats(&self) -> HandlerStats {
        self.handler
            .as_ref()
            .map(HandlerRegistration::stats)
            .unwrap_or_default()
    }

    /// The informer behind it: to add an index, or to wait for a version. It ends with the observation,
    /// whoever has a clone of it, unless others observe by it or have [asked for
    /// it](SharedInformerFactory::informer).
    ///
    /// ```
    /// use k8s_informer::testing::ApiServer;
    /// use k8s_informer::{Client, Config, Stop, observe};
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// let pod = serde_json::json!({"metadata": {"name": "web-0"}, "spec": {"nodeName": "one", "containers": []}});
    /// server.create("/api/v1/namespaces/default/pods", pod)?;
    /// let pods = observe::<Pod>(Client::new(Config::new(server.url()))?).on_event(|_| {}).start()?;
    /// pods.informer().add_index("node", |pod| {
    ///     pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
    /// })?;
    /// pods.wait_for_sync(&Stop::new(), None)?;
    /// assert_eq!(pods.lister().by_index("node", "one")?.len(), 1);
    /// assert_eq!(pods.stats().delivered, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn informer(&self) -> &SharedIndexInformer<T> {
        &self.informer
    }

    /// Ends it: no closure is called any more, and every thread that it needed has ended. A closure that is
    /// being called is waited for; from within one it ends as soon as that returns, and the answer is
    /// `false`.
    pub fn stop(mut self) -> bool {
        self.end()
    }

    fn end(&mut self) -> bool {
        if std::mem::replace(&mut self.is_over, true) {
            return true;
        }
        let handler_ended = self
            .handler
            .as_ref()
            .is_none_or(|handler| self.informer.shut_down_event_handler(handler));
        let informer_ended = self.factory.unobserve(self.informer.owner());
        handler_ended && informer_ended && (!self.owns_factory || self.factory.shutdown())
    }
}

impl<T: Object + DeserializeOwned> Drop for Observation<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl<T: Object + DeserializeOwned> fmt::Debug for Observation<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation")
            .field("informer", &self.informer)
            .finish_non_exhaustive()
    }
}

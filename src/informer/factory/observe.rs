use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::SharedInformerFactory;
use crate::base::deadline::Deadline;
use crate::base::derive::debug_fields;
use crate::error::Error;
use crate::error::{ShutdownError, WaitError};
use crate::informer::driver::Driver;
use crate::informer::error::InformerError;
use crate::informer::handler::{HandlerFuncs, Notification, ResourceEventHandler};
use crate::informer::listener::{HandlerBuffer, HandlerStats};
use crate::informer::registration::{HandlerOptions, HandlerRegistration};
use crate::informer::scope::InformerScope;
use crate::informer::shared_informer::SharedIndexInformer;
use crate::informer::source::Source;
use crate::informer::wait::SyncOptions;
use crate::object::{Deleted, Object, Resource};
use crate::reflector::{ListerWatcherSource, ReflectorStatus, WatchErrorHandler};
use crate::stop::{Done, DoneSetter, Stop};
use crate::store::Lister;

/// Observes the objects of a type. Set closures for added, modified and deleted objects, and call
/// [`start`](Observe::start). `start` creates and runs an informer, which ends with the returned
/// [`Observation`].
///
/// Each observation created by this function has its own connection and cache. To share them
/// between observations, or to observe [sources](Source) other than a type, use
/// [`SharedInformerFactory::observe`].
///
/// ```
/// use k8s_informer::{Client, Config, Object, observe};
/// use k8s_informer_testing::ApiServer;
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
/// pods.shut_down(None)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn observe<T: Resource + DeserializeOwned>(
    source: impl ListerWatcherSource + 'static,
) -> Observe<T> {
    let factory = SharedInformerFactory::new(source);
    Observe {
        owns_factory: true,
        ..factory.observe(Source::of::<T>())
    }
}

impl SharedInformerFactory {
    /// Observes the objects of a [`Source`], like [`observe`]. Observations with equal sources
    /// share one informer. Calls of [`informer_for`](Self::informer_for) with an equal source return
    /// the same informer.
    ///
    /// An observation starts its informer automatically. The informer ends with its last
    /// observation or with the factory. An informer that was also requested with `informer_for`
    /// stays until the factory ends.
    ///
    /// ```
    /// use k8s_informer::informer::{InformerScope, Source};
    /// use k8s_informer::object::GroupVersionResource;
    /// use k8s_informer::{Client, Config, Notification, Object, SharedInformerFactory};
    /// use k8s_informer_testing::{ApiServer, Verb};
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// server.create("/api/v1/namespaces/blue/secrets", json!({"metadata": {"name": "a"}}))?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let secrets = Source::dynamic(GroupVersionResource::new("", "v1", "secrets"))
    ///     .scope(InformerScope::all().namespace("blue"));
    /// let (sender, events) = std::sync::mpsc::channel();
    /// let first = factory
    ///     .observe(secrets.clone())
    ///     .on_event(move |event| sender.send(event.clone()).unwrap())
    ///     .start()?;
    /// let second = factory.observe(secrets).start()?;
    /// assert!(matches!(events.recv()?, Notification::Added { object, .. } if object.name() == "a"));
    /// assert!(first.informer().is_same(second.informer()));
    ///
    /// drop((first, second)); // The informer has ended.
    /// assert!(events.recv().is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe<T: Object + DeserializeOwned>(&self, source: Source<T>) -> Observe<T> {
        Observe {
            factory: self.clone(),
            owns_factory: false,
            source,
            observer: HandlerFuncs::new(),
            on_changed: None,
            on_error: None,
            one_thread: false,
            options: HandlerOptions::default(),
        }
    }
}

/// A builder for an [`Observation`]. Create it with [`observe`] and finish with
/// [`start`](Self::start).
///
/// **Threads.** An observation uses the threads of an informer (a reflector and a process loop),
/// and two more threads that call the closures, unless it runs on [one thread](Self::one_thread).
#[must_use = "the observation begins when you call `start`"]
pub struct Observe<T> {
    factory: SharedInformerFactory,
    /// Whether the factory was created for this observation only.
    owns_factory: bool,
    source: Source<T>,
    observer: HandlerFuncs<T>,
    on_changed: Option<OnChanged<T>>,
    on_error: Option<WatchErrorHandler>,
    one_thread: bool,
    options: HandlerOptions,
}

impl<T: Object + DeserializeOwned> Observe<T> {
    /// Restricts the observation to this scope. It replaces the factory's scope.
    pub fn scope(mut self, scope: InformerScope) -> Self {
        self.source = self.source.scope(scope);
        self
    }

    /// Sets the closure for added objects. It is also called for the objects that exist when the
    /// observation starts.
    pub fn on_added(self, mut on_added: impl FnMut(&Arc<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_add(move |object, _| on_added(object)),
            ..self
        }
    }

    /// Sets the closure for modified objects. It receives the old and the new state.
    pub fn on_modified(self, on_modified: impl FnMut(&Arc<T>, &Arc<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_update(on_modified),
            ..self
        }
    }

    /// Sets the closure for deleted objects.
    pub fn on_deleted(self, on_deleted: impl FnMut(&Deleted<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_delete(on_deleted),
            ..self
        }
    }

    /// Sets a closure for every notification. It runs after the closure for the specific change.
    pub fn on_event(self, on_event: impl FnMut(&Notification<T>) + Send + 'static) -> Self {
        Self {
            observer: self.observer.on_event(on_event),
            ..self
        }
    }

    /// Sets a closure that receives all objects: after the initial list, even if it is empty, and after
    /// changes. It runs after the other closures.
    ///
    /// Many changes in quick succession are one call: it comes when no further change is ready, and at
    /// the latest after about a thousand changes. Use it if your program computes its state from all
    /// objects, such as the configuration of a proxy or the records of a DNS server.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Object, observe};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use serde_json::json;
    ///
    /// let server = ApiServer::start()?;
    /// let (sender, states) = std::sync::mpsc::channel();
    /// let maps = observe::<ConfigMap>(Client::new(Config::new(server.url()))?)
    ///     .on_changed(move |maps| sender.send(maps.list_keys()).unwrap())
    ///     .start()?;
    /// assert!(states.recv()?.is_empty()); // The initial list.
    ///
    /// server.create("/api/v1/namespaces/web/configmaps", json!({"metadata": {"name": "a"}}))?;
    /// assert_eq!(states.recv()?, ["web/a"]);
    /// # drop(maps);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_changed(mut self, on_changed: impl FnMut(&Lister<T>) + Send + 'static) -> Self {
        self.on_changed = Some(Box::new(on_changed));
        self
    }

    /// Sets a callback for failures to list or watch, for objects that cannot be decoded or stored,
    /// and for objects that an index function fails for.
    ///
    /// The observation retries after every failure, so use this callback for messages and metrics.
    /// Without a logger and without this callback, a program that is not allowed to list reports
    /// nothing. Failures are logged even if you set the callback.
    ///
    /// The callback runs on the reflector's thread and delays it. For an object that an [index
    /// function](crate::store::IndexFunc) fails for, it runs on the thread that fills the cache. With
    /// several namespaces, more threads call it.
    ///
    /// ```
    /// use k8s_informer::observe;
    /// use k8s_informer::{Client, Config};
    /// use k8s_informer_testing::{ApiServer, Fault};
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

    /// Sets whether the observation runs on [one
    /// thread](crate::informer::SharedIndexInformerOptions::one_thread), and does not share its
    /// informer.
    pub fn one_thread(mut self, one_thread: bool) -> Self {
        self.one_thread = one_thread;
        self
    }

    /// Sets the buffer of notifications that wait for the closures. On [one
    /// thread](Self::one_thread), there is no buffer.
    pub fn buffer(mut self, buffer: HandlerBuffer) -> Self {
        self.options.buffer = buffer;
        self
    }

    /// Sets the name of the observation in logs, in the names of its threads, and so in the error of a
    /// shutdown.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// Starts the observation. Returns at once, without waiting for the initial list.
    ///
    /// # Errors
    ///
    /// Fails if the factory was shut down, if the system has no threads left, or if a name in the
    /// scope or the resource cannot be part of a request ([`InformerError::InvalidScope`]).
    pub fn start(self) -> Result<Observation<T>, InformerError> {
        let observation = self.observe()?;
        let Observation {
            factory, informer, ..
        } = &observation;
        factory.start_observed(informer.owner())?;
        Ok(observation)
    }

    /// Like [`start`](Self::start), but returns the drivers of the observation, which does not share its
    /// informer: the program steps them, and the observation has no threads. See [`Driver`].
    ///
    /// ```
    /// use k8s_informer::informer::step_all;
    /// use k8s_informer::{Client, Config, Object, Stop, observe};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let (sender, names) = std::sync::mpsc::channel();
    /// let (namespaces, mut drivers) = observe::<Namespace>(Client::new(Config::new(server.url()))?)
    ///     .on_added(move |namespace| sender.send(namespace.name().to_owned()).unwrap())
    ///     .drivers(&Stop::never())?;
    /// while !namespaces.synced().is_done() {
    ///     step_all(&mut drivers, Duration::from_millis(10));
    /// }
    /// assert!(names.try_iter().any(|name| name == "default"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The same as [`start`](Self::start).
    pub fn drivers(mut self, stop: &Stop) -> Result<(Observation<T>, Vec<Driver>), InformerError> {
        self.one_thread = true;
        let observation = self.observe()?;
        let Observation {
            factory, informer, ..
        } = &observation;
        let drivers = factory.drive_observed(informer.owner(), stop)?;
        Ok((observation, drivers))
    }

    /// Requests the informer and adds the handler.
    fn observe(self) -> Result<Observation<T>, InformerError> {
        let informer = self.factory.request(self.source, !self.one_thread, true);
        // From here on, a failure drops `observation`, which undoes all previous steps.
        let errors = self
            .on_error
            .map(|on_error| informer.on_error(move |error| on_error(error)));
        let mut observation = Observation {
            factory: self.factory,
            owns_factory: self.owns_factory,
            informer,
            handler: None,
            synced: DoneSetter::new("").signal(),
            _errors: errors.map(|errors| Box::new(errors) as _),
            has_ended: false,
        };
        let informer = &observation.informer;
        let changed = self.on_changed.map(|on_changed| Changed {
            on_changed,
            lister: informer.lister(),
            // A thread of the informer calls the closure, so it must not wait for it.
            called: DoneSetter::set_by(informer.owner(), informer.name()),
        });
        let called = changed.as_ref().map(|changed| changed.called.signal());
        let observer = Observer {
            funcs: self.observer,
            changed,
        };
        let handler = informer.add_handler_with_options(observer, self.options)?;
        observation.synced = called.unwrap_or_else(|| handler.synced().clone());
        observation.handler = Some(handler);
        Ok(observation)
    }
}

debug_fields!(Observe<T>: source, one_thread);

type OnChanged<T> = Box<dyn FnMut(&Lister<T>) + Send>;

/// The handler of an observation.
struct Observer<T> {
    funcs: HandlerFuncs<T>,
    changed: Option<Changed<T>>,
}

/// The closure for all objects.
struct Changed<T> {
    on_changed: OnChanged<T>,
    lister: Lister<T>,
    /// Set after the first call, also if it panicked.
    called: DoneSetter,
}

/// Sets a signal when it is dropped, also by a panic.
struct SetOnDrop<'a>(&'a DoneSetter);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set();
    }
}

impl<T: Object> ResourceEventHandler<T> for Observer<T> {
    fn begin(&mut self, removed: &Stop) {
        self.funcs.begin(removed);
    }

    fn on_add(&mut self, object: &Arc<T>, is_in_initial_list: bool) {
        ResourceEventHandler::on_add(&mut self.funcs, object, is_in_initial_list);
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        ResourceEventHandler::on_update(&mut self.funcs, old, new);
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        ResourceEventHandler::on_delete(&mut self.funcs, gone);
    }

    fn on_delete_after(&mut self, last_delivered: &Arc<T>, gone: &Deleted<T>) {
        self.funcs.on_delete_after(last_delivered, gone);
    }

    fn after_changes(&mut self, is_synced: bool) {
        // Before the sync, the cache has only a part of the objects.
        if let Some(changed) = &mut self.changed
            && is_synced
        {
            let _called = SetOnDrop(&changed.called);
            (changed.on_changed)(&changed.lister);
        }
    }
}

/// A running observation. When it is [shut down](Self::shut_down) or dropped, it waits until its threads
/// have ended. These include the threads of the informer, unless the informer has other users.
#[must_use = "dropping the value ends the observation"]
pub struct Observation<T: Object> {
    factory: SharedInformerFactory,
    owns_factory: bool,
    informer: SharedIndexInformer<T>,
    /// `None` until the handler has been added.
    handler: Option<HandlerRegistration>,
    /// Set when the closures have been called for the initial list.
    synced: Done,
    _errors: Option<Box<dyn Send + Sync>>,
    has_ended: bool,
}

impl<T: Object + DeserializeOwned> Observation<T> {
    /// Returns read access to the observed objects. They are at least as new as the last delivered
    /// notification.
    pub fn lister(&self) -> Lister<T> {
        self.informer.lister()
    }

    /// Returns a [`Done`] that is set when the closures have been called for all objects of the
    /// initial list, and [`on_changed`](Observe::on_changed) for the first time.
    pub fn synced(&self) -> &Done {
        &self.synced
    }

    /// Blocks until the closures have been called for all objects of the initial list, and
    /// [`on_changed`](Observe::on_changed) for the first time.
    ///
    /// The wait also ends when `stop` is set or when the informer ends. For `options`, pass a
    /// timeout, `None`, or [`SyncOptions`]. Do not call this method from one of the closures.
    ///
    /// # Errors
    ///
    /// Fails if the observation has not synced when the wait ends; the error has the last failure.
    /// Also fails if the first list could not be decoded, like
    /// [`SharedIndexInformer::wait_for_sync`].
    pub fn wait_for_sync(
        &self,
        options: impl Into<SyncOptions>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        self.informer.wait_for(self.synced(), stop, options.into())
    }

    /// Returns the status of the reflector: what it does, and its last error.
    pub fn status(&self) -> ReflectorStatus {
        self.informer.status()
    }

    /// Returns statistics of the closures, for example the number of notifications that wait for
    /// them.
    pub fn stats(&self) -> HandlerStats {
        self.handler
            .as_ref()
            .map(HandlerRegistration::stats)
            .unwrap_or_default()
    }

    /// Returns the informer of the observation, for example to add an index or to wait for a
    /// version.
    ///
    /// The informer ends with the observation, even if clones of it exist. It continues if other
    /// observations share it or if it was also [requested from the
    /// factory](SharedInformerFactory::informer).
    ///
    /// ```
    /// use k8s_informer::{Client, Config, Stop, observe};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let server = ApiServer::start()?;
    /// let pod = serde_json::json!({"metadata": {"name": "web-0"}, "spec": {"nodeName": "one", "containers": []}});
    /// server.create("/api/v1/namespaces/default/pods", pod)?;
    /// let pods = observe::<Pod>(Client::new(Config::new(server.url()))?).on_event(|_| {}).start()?;
    /// pods.informer().add_index("node", |pod| {
    ///     pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect()
    /// })?;
    /// pods.wait_for_sync(None, &Stop::never())?;
    /// assert_eq!(pods.lister().by_index("node", "one")?.len(), 1);
    /// assert_eq!(pods.stats().delivered, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn informer(&self) -> &SharedIndexInformer<T> {
        &self.informer
    }

    /// Ends the observation. When this method returns `Ok`, the closures are not called any more and
    /// the threads of the observation have ended. The threads of the informer have ended as well,
    /// unless the informer has other users. The method waits for a closure that is running, at most
    /// for `timeout`: a `Duration`, or `None`.
    ///
    /// # Errors
    ///
    /// - [`ShutdownError::TimedOut`] names the threads that are still running.
    /// - [`ShutdownError::FromWithin`], immediately, if you call the method from one of the closures.
    ///
    /// The observation ends in any case, as soon as the closure returns.
    pub fn shut_down(mut self, timeout: impl Into<Option<Duration>>) -> Result<(), ShutdownError> {
        self.end(timeout.into())
    }
}

impl<T: Object> Observation<T> {
    fn end(&mut self, timeout: Option<Duration>) -> Result<(), ShutdownError> {
        if std::mem::replace(&mut self.has_ended, true) {
            return Ok(());
        }
        let deadline = Deadline::after(timeout);
        // Each step gets the rest of the time, and the error has the whole.
        let rest = || deadline.map(Deadline::rest);
        let whole = |error| match error {
            ShutdownError::TimedOut { stuck, .. } => ShutdownError::TimedOut {
                after: timeout.unwrap_or_default(),
                stuck,
            },
            error => error,
        };
        // All three begin even if one of them fails.
        let handler_ended = match &self.handler {
            Some(handler) => self.informer.shut_down_event_handler(handler, rest()),
            None => Ok(()),
        };
        let informer_ended = self.factory.unobserve(self.informer.owner(), rest());
        let factory_ended = match self.owns_factory {
            true => self.factory.shut_down(rest()),
            false => Ok(()),
        };
        handler_ended
            .and(informer_ended)
            .and(factory_ended)
            .map_err(whole)
    }
}

impl<T: Object> Drop for Observation<T> {
    fn drop(&mut self) {
        // Without a timeout, the only error is a drop within a closure, which is logged.
        let _ = self.end(None);
    }
}

debug_fields!(Observation<T: Object>: informer);

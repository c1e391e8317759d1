//! The lifecycle of a factory's informers: start, wait for sync, stop one, shut down all.

use std::sync::Arc;
use std::time::Duration;

use super::{Entry, Factory, Run, SharedInformerFactory};
use crate::base::deadline::Deadline;
use crate::base::panic;
use crate::base::sync::atomic::Ordering;
use crate::base::threads::Owner;
use crate::error::{ShutdownError, Unsynced, WaitCause, WaitError};
use crate::informer::any_informer::{self, AnyInformer, Awaited};
use crate::informer::driver::Driver;
use crate::informer::error::InformerError;
use crate::informer::shared_informer::SharedIndexInformer;
use crate::informer::wait::SyncOptions;
use crate::log;
use crate::object::Object;
use crate::stop::{Done, DoneSetter, Stop};

impl SharedInformerFactory {
    /// Starts every informer that has not been started, each on its own thread. Returns without
    /// waiting for them to sync.
    ///
    /// An informer stops when `stop` is set or the factory is [shut down](Self::shut_down). To
    /// start informers that were requested later, call this method again. Until then, their caches
    /// are empty, and [`wait_for_cache_sync`](Self::wait_for_cache_sync) fails.
    ///
    /// # Errors
    ///
    /// - The factory has been shut down.
    /// - A namespace is not a DNS label, or a resource name cannot be part of a path
    ///   ([`InformerError::InvalidScope`]). No informer is started in this case.
    /// - The system has no threads left.
    pub fn start(&self, stop: &Stop) -> Result<(), InformerError> {
        let mut informers = self.factory.informers.lock();
        if informers.shut_down {
            return Err(shut_down_error());
        }
        let is_waiting = |entry: &&Entry| entry.run.is_none();
        informers
            .all
            .iter()
            .filter(is_waiting)
            .try_for_each(Entry::check)?;
        for entry in &mut informers.all {
            if entry.run.is_none() {
                self.start_one(entry, stop)?;
            }
        }
        Ok(())
    }

    /// Returns the drivers of every informer that has not been started, instead of
    /// [`start`](Self::start): the program steps them, and the informers have no threads. See
    /// [`Driver`].
    ///
    /// An informer stops when `stop` is set, when one of its drivers is dropped, or when the factory is
    /// [shut down](Self::shut_down). A shutdown, and [`shut_down_informer`](Self::shut_down_informer), do not
    /// wait for it: it ends with the next step of its drivers.
    ///
    /// ```
    /// use k8s_informer::informer::step_all;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::{Namespace, Pod};
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let (pods, namespaces) = (factory.informer::<Pod>(), factory.informer::<Namespace>());
    /// let mut drivers = factory.drivers(&Stop::never())?;
    /// while !pods.has_synced() || !namespaces.has_synced() {
    ///     step_all(&mut drivers, Duration::from_millis(10));
    /// }
    /// assert!(namespaces.lister().get("", "default").is_some());
    /// factory.shut_down(None)?;
    /// step_all(&mut drivers, Duration::ZERO);
    /// assert!(pods.is_stopped());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - The factory has been shut down.
    /// - A namespace is not a DNS label, or a resource name cannot be part of a path
    ///   ([`InformerError::InvalidScope`]). No informer is started in this case.
    pub fn drivers(&self, stop: &Stop) -> Result<Vec<Driver>, InformerError> {
        let mut informers = self.factory.informers.lock();
        if informers.shut_down {
            return Err(shut_down_error());
        }
        let waiting = || informers.all.iter().filter(|entry| entry.run.is_none());
        waiting().try_for_each(Entry::check)?;
        let mut drivers = Vec::new();
        for entry in informers.all.iter_mut().filter(|entry| entry.run.is_none()) {
            drivers.extend(entry.drive(stop)?);
        }
        Ok(drivers)
    }

    /// Returns the drivers of an observed informer.
    pub(super) fn drive_observed(
        &self,
        owner: Owner,
        stop: &Stop,
    ) -> Result<Vec<Driver>, InformerError> {
        let mut informers = self.factory.informers.lock();
        if informers.shut_down {
            return Err(shut_down_error());
        }
        match informers.find(owner) {
            Some(entry) => {
                entry.check()?;
                entry.drive(stop)
            }
            None => Err(InformerError::Stopped {
                name: "informer".into(),
                what: "the observation was not started",
            }),
        }
    }

    fn start_one(&self, entry: &mut Entry, stop: &Stop) -> Result<(), InformerError> {
        let name = &entry.informer.state().name;
        let run = Run {
            stop: stop.child(),
            ended: DoneSetter::new(&**name),
        };
        let (informer, Run { stop, ended }) = (Arc::clone(&entry.informer), run.clone());
        let factory = Arc::downgrade(&self.factory);
        let work = move || {
            // A failed run never syncs: set `stop` so that waits return. If the informer already
            // runs elsewhere, `stop` is not set, because the informer may still sync.
            match panic::catch(|| informer.run(&stop)) {
                Ok(Ok(())) => {}
                Ok(Err(error @ InformerError::AlreadyStarted { .. })) => log::error!("{error}"),
                Ok(Err(error)) => {
                    stop.stop();
                    log::error!("{error}");
                }
                Err(panic) => {
                    stop.stop();
                    log::error!("{}: the informer {panic}", informer.state().name);
                }
            }
            // Drop the informer before `ended` is set, so that its cache and an observer's closures
            // are gone when a wait for `ended` returns.
            let forget = || {
                let owner = informer.state().owner;
                drop(informer);
                if let Some(factory) = factory.upgrade() {
                    factory.forget(|entry| entry.owner() == owner);
                }
            };
            if let Err(panic) = panic::catch(forget) {
                log::error!("the destructor of an informer {panic}");
            }
            ended.set();
        };
        let stacks = self.factory.options.reflector.stack_sizes;
        let (name_of_thread, stack) = match entry.one_thread {
            true => (name.to_string(), Some(stacks.of_reflector())),
            false => (format!("{name} process"), stacks.others),
        };
        let spawned = self.factory.threads.spawn(name_of_thread, stack, work);
        spawned.map_err(|error| InformerError::thread(name, error))?;
        let run_requested = &entry.informer.state().run_requested;
        run_requested.store(true, Ordering::Relaxed);
        entry.run = Some(run);
        Ok(())
    }

    /// Blocks until every informer has synced, or until `stop` is set.
    ///
    /// The method fails at once if an informer was requested after the last
    /// [`start`](Self::start), and the program does not [run](SharedIndexInformer::run) it either:
    /// nothing fills its cache. Call `start` again after the last request.
    /// A component that requests an informer while other components wait can call the informer's
    /// own [`wait_for_sync`](SharedIndexInformer::wait_for_sync) instead, which does not depend on
    /// the others.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::{Node, Pod};
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// factory.informer::<Pod>();
    /// let stop = Stop::never();
    /// let error = factory.wait_for_cache_sync(None, &stop).unwrap_err();
    /// assert_eq!(error.to_string(), "call `start` first; not started: pods");
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync(None, &stop)?;
    ///
    /// let late = factory.informer::<Node>();
    /// assert!(factory.wait_for_cache_sync(None, &stop).is_err());
    /// factory.start(&stop)?; // Starts only the new informer.
    /// late.wait_for_sync(None, &stop)?;
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// ```
    /// use k8s_informer::informer::SyncOptions;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::{ApiServer, Fault};
    /// use k8s_openapi::api::core::v1::Pod;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// server.fail_next(Fault::status(403).always());
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// factory.informer::<Pod>();
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// let error = factory.wait_for_cache_sync(Duration::from_millis(300), &stop).unwrap_err();
    /// assert!(error.is_timed_out());
    /// assert!(error.to_string().starts_with("timed out after 300ms; not synced: pods (list pods: "), "{error}");
    ///
    /// let error = factory.wait_for_cache_sync(SyncOptions::new().fail_fast(true), &stop).unwrap_err();
    /// assert!(error.to_string().starts_with("cannot sync: pods (list pods: "), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - The timeout elapsed, `stop` was set, the factory was shut down or an informer ended before all
    ///   of them had synced, or a first list failed with [`fail_fast`](SyncOptions::fail_fast). The error names the informers that have not synced, with the last error of
    ///   each.
    /// - An informer was not [started](Self::start). The error names all such informers.
    /// - An informer has synced, but the first list of one of its sources had at least two objects
    ///   and none of them could be decoded. See
    ///   [`Unsynced::undecodable`](crate::error::Unsynced::undecodable).
    pub fn wait_for_cache_sync(
        &self,
        options: impl Into<SyncOptions>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        self.wait_for(|_| true, stop, options.into())
    }

    /// Like [`wait_for_cache_sync`](Self::wait_for_cache_sync), but only for the informers
    /// with these signals. Other informers of the factory need not be started, and may be unable to
    /// sync.
    ///
    /// ```
    /// use k8s_informer::informer::SyncOptions;
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::{ApiServer, Fault};
    /// use k8s_openapi::api::core::v1::{Pod, Secret};
    ///
    /// let server = ApiServer::start()?;
    /// server.fail_next(Fault::status(403).resource("secrets").always());
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let (pods, secrets) = (factory.informer::<Pod>(), factory.informer::<Secret>());
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.wait_for_cache_sync_of([pods.synced()], SyncOptions::new(), &stop)?;
    /// assert!(pods.has_synced() && !secrets.has_synced());
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Fails like [`wait_for_cache_sync`](Self::wait_for_cache_sync).
    pub fn wait_for_cache_sync_of<'a>(
        &self,
        synced: impl IntoIterator<Item = &'a Done>,
        options: impl Into<SyncOptions>,
        stop: &Stop,
    ) -> Result<(), WaitError> {
        let awaited: Vec<&Done> = synced.into_iter().collect();
        let is_awaited = |informer: &Done| awaited.iter().any(|synced| synced.is(informer));
        self.wait_for(is_awaited, stop, options.into())
    }

    fn wait_for(
        &self,
        is_awaited: impl Fn(&Done) -> bool,
        stop: &Stop,
        options: SyncOptions,
    ) -> Result<(), WaitError> {
        let awaited: Vec<_> = {
            let informers = self.factory.informers.lock();
            let entries = informers.all.iter().filter(|entry| {
                // An observation starts its informer right after it has requested it.
                let is_started = entry.run.is_some() || entry.is_requested;
                is_started && !entry.is_ending && is_awaited(&entry.informer.state().synced)
            });
            let awaited = |entry: &Entry| Awaited {
                informer: Arc::clone(&entry.informer),
                synced: entry.informer.state().synced.signal(),
                stop: entry.run.as_ref().map(|run| run.stop.signal()),
            };
            entries.map(awaited).collect()
        };
        // A program can also run an informer on its own.
        let is_started = |one: &Awaited| {
            one.stop.is_some() || one.informer.state().run_requested.load(Ordering::Relaxed)
        };
        let not_started: Vec<_> = awaited
            .iter()
            .filter(|one| !is_started(one))
            .map(|one| Unsynced::not_started(&one.informer.state().name))
            .collect();
        if !not_started.is_empty() {
            return Err(WaitError::unsynced_with(WaitCause::NotStarted, not_started));
        }
        any_informer::wait_for_sync(&awaited, stop, options)
    }

    /// Stops one informer, waits until its threads have ended, and removes it from the factory. The
    /// next request for the same source creates a new informer. client-go has no counterpart.
    ///
    /// An informer that was not started is only removed. An informer of another factory is left
    /// alone.
    ///
    /// `timeout` limits the wait: a `Duration`, or `None`.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::{Namespace, Pod};
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let (pods, namespaces) = (factory.informer::<Pod>(), factory.informer::<Namespace>());
    /// let stop = Stop::never();
    /// factory.start(&stop)?;
    /// factory.shut_down_informer(&pods, None)?;
    /// assert!((pods.is_stopped(), namespaces.is_stopped()) == (true, false));
    /// factory.informer::<Pod>(); // A new informer ...
    /// factory.start(&stop)?; // ... which starts here.
    /// factory.wait_for_cache_sync(None, &stop)?;
    /// # factory.shut_down(None)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ShutdownError::TimedOut`] names the threads that are still running. Call the method again
    ///   to wait for them.
    /// - [`ShutdownError::FromWithin`], immediately, if you call the method from one of the
    ///   informer's callbacks, or from another callback that one of them waits for.
    ///
    /// The informer ends in any case.
    pub fn shut_down_informer<T: Object>(
        &self,
        informer: &SharedIndexInformer<T>,
        timeout: impl Into<Option<Duration>>,
    ) -> Result<(), ShutdownError> {
        self.end_one(informer.owner(), timeout.into(), |_| true)
    }

    /// Starts an observed informer unless it is already started.
    pub(super) fn start_observed(&self, owner: Owner) -> Result<(), InformerError> {
        let mut informers = self.factory.informers.lock();
        if informers.shut_down {
            return Err(shut_down_error());
        }
        match informers.find(owner).filter(|entry| !entry.is_ending) {
            Some(entry) if entry.run.is_none() => {
                entry.check()?;
                self.start_one(entry, &Stop::never())
            }
            Some(_) => Ok(()),
            // `shut_down_informer` has removed the informer since the observation requested it.
            None => Err(InformerError::Stopped {
                name: "informer".into(),
                what: "the observation was not started",
            }),
        }
    }

    /// Ends one observation of an informer. The informer ends with its last observation, unless it
    /// was also requested in another way. Waits until all threads that have to end have ended.
    pub(super) fn unobserve(
        &self,
        owner: Owner,
        timeout: Option<Duration>,
    ) -> Result<(), ShutdownError> {
        self.end_one(owner, timeout, |entry| {
            entry.observations -= 1;
            entry.observations == 0 && !entry.is_requested
        })
    }

    /// Stops and removes the informer with this owner if `ends` returns true. Waits until its threads
    /// have ended.
    fn end_one(
        &self,
        owner: Owner,
        timeout: Option<Duration>,
        ends: impl FnOnce(&mut Entry) -> bool,
    ) -> Result<(), ShutdownError> {
        let (informer, run) = {
            let mut informers = self.factory.informers.lock();
            let Some(entry) = informers.find(owner) else {
                return Ok(());
            };
            if !entry.is_ending && !ends(entry) {
                return Ok(());
            }
            (entry.is_ending, entry.is_shared) = (true, false);
            (Arc::clone(&entry.informer), entry.run.clone())
        };
        let has_ended = |entry: &Entry| entry.run.as_ref().is_none_or(|run| run.ended.is_done());
        self.factory.forget(has_ended);
        let Some(run) = run else {
            return Ok(());
        };
        run.stop.stop();
        let deadline = Deadline::after(timeout);
        let never = Stop::never();
        let ended = Owner::wait_for(&[owner], || run.ended.wait_until(deadline, &never));
        match ended {
            Some(true) => {
                self.factory.forget(has_ended);
                Ok(())
            }
            Some(false) => Err(ShutdownError::TimedOut {
                after: timeout.unwrap_or_default(),
                stuck: running_threads(&*informer),
            }),
            None => {
                let error = ShutdownError::FromWithin;
                log::warn!("{}: {error}", informer.state().name);
                Err(error)
            }
        }
    }

    /// Stops every informer that the factory started, and waits until all their threads have ended,
    /// including running callbacks. The factory cannot start informers afterwards. client-go's
    /// `Shutdown`.
    ///
    /// `timeout` limits the wait: a `Duration`, or `None`.
    ///
    /// ```
    /// use k8s_informer::{Client, Config, SharedInformerFactory, Stop};
    /// use k8s_informer_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::Namespace;
    /// use std::time::Duration;
    ///
    /// let server = ApiServer::start()?;
    /// let factory = SharedInformerFactory::new(Client::new(Config::new(server.url()))?);
    /// let (finish, finished) = std::sync::mpsc::channel::<()>();
    /// let (begin, begun) = std::sync::mpsc::channel();
    /// factory.informer::<Namespace>().add_event_handler(|handler| handler.on_add(move |_, _| {
    ///     begin.send(()).unwrap();
    ///     finished.recv().ok();
    /// }))?;
    /// factory.start(&Stop::never())?;
    /// begun.recv()?; // The callback blocks.
    /// let error = factory.shut_down(Duration::from_secs(1)).unwrap_err();
    /// assert_eq!(error.to_string(), "timed out after 1s; unfinished: handler-1 run");
    /// drop(finish);
    /// # drop(begun);
    /// factory.shut_down(Duration::from_secs(60))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// - [`ShutdownError::TimedOut`] names the threads that are still running. Call the method again
    ///   to wait for them.
    /// - [`ShutdownError::FromWithin`], immediately, if you call the method from a callback of one of
    ///   the factory's informers, or from another callback that such a callback waits for.
    ///
    /// All informers stop in any case.
    #[doc(alias = "Shutdown")]
    pub fn shut_down(&self, timeout: impl Into<Option<Duration>>) -> Result<(), ShutdownError> {
        let timeout = timeout.into();
        let started: Vec<_> = {
            let mut informers = self.factory.informers.lock();
            informers.shut_down = true;
            let all = informers.all.iter();
            all.filter_map(|entry| Some((Arc::clone(&entry.informer), entry.run.clone()?)))
                .collect()
        };
        for (_, run) in &started {
            run.stop.stop();
        }
        let owners: Vec<_> = started
            .iter()
            .map(|(informer, _)| informer.state().owner)
            .collect();
        let deadline = Deadline::after(timeout);
        match Owner::wait_for(&owners, || self.join_until(started, deadline)) {
            Some(stuck) if stuck.is_empty() => Ok(()),
            Some(stuck) => Err(ShutdownError::TimedOut {
                after: timeout.unwrap_or_default(),
                stuck,
            }),
            None => {
                let error = ShutdownError::FromWithin;
                log::warn!("factory: {error}");
                Err(error)
            }
        }
    }

    /// Waits until all threads have ended or the deadline is reached. Returns the names of the
    /// threads that are still running.
    fn join_until(
        &self,
        started: Vec<(Arc<dyn AnyInformer>, Run)>,
        deadline: Option<Deadline>,
    ) -> Vec<String> {
        let never = Stop::never();
        let mut stuck = Vec::new();
        for (informer, run) in started {
            if !run.ended.wait_until(deadline, &never) {
                stuck.extend(running_threads(&*informer));
            }
        }
        if stuck.is_empty() {
            self.factory.threads.join();
        }
        stuck.sort();
        stuck
    }

    /// Whether the factory was shut down. It starts no informers after that.
    pub fn is_shut_down(&self) -> bool {
        self.factory.informers.lock().shut_down
    }
}

impl Entry {
    /// Starts the informer in the loop of the program. The factory has no thread to wait for.
    fn drive(&mut self, stop: &Stop) -> Result<Vec<Driver>, InformerError> {
        let state = self.informer.state();
        let run = Run {
            stop: stop.child(),
            ended: DoneSetter::new(&*state.name),
        };
        run.ended.set();
        let drivers = self.informer.drivers(&run.stop)?;
        self.run = Some(run);
        Ok(drivers)
    }
}

impl Factory {
    /// Drops the matching entries among the informers that were stopped individually.
    fn forget(&self, which: impl Fn(&Entry) -> bool) {
        let forgets = |entry: &mut Entry| entry.is_ending && which(entry);
        let forgotten: Vec<_> = {
            let all = &mut self.informers.lock().all;
            all.extract_if(.., forgets).collect()
        };
        // Drop the entries after the unlock: this may drop handlers, and their destructors are user
        // code.
        drop(forgotten);
    }
}

/// Returns the names of the threads of an informer whose run has not ended.
fn running_threads(informer: &dyn AnyInformer) -> Vec<String> {
    match informer.running_threads() {
        // No thread is left, but the run has not returned yet.
        threads if threads.is_empty() => vec![format!("{} process", informer.state().name)],
        threads => threads,
    }
}

fn shut_down_error() -> InformerError {
    InformerError::Stopped {
        name: "factory".into(),
        what: "the informers were not started",
    }
}

/// Dropping the last clone of a factory stops its informers without waiting for them.
impl Drop for Factory {
    fn drop(&mut self) {
        for entry in &self.informers.lock().all {
            if let Some(run) = &entry.run {
                run.stop.stop();
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::any::TypeId;
    use std::thread::{self, ThreadId};

    use super::*;
    use crate::error::Error;
    use crate::informer::factory::Identity;
    use crate::informer::options::SharedIndexInformerOptions;
    use crate::informer::scope::InformerScope;
    use crate::object::{DynamicObject, GroupVersionResource};
    use crate::reflector::{Body, ListOptions, ListWatch, ListerWatcher, ListerWatcherSource};

    struct Nothing;

    impl ListerWatcherSource for Nothing {
        fn lister_watcher(
            &self,
            _: &GroupVersionResource,
            _: Option<&str>,
        ) -> Arc<dyn ListerWatcher> {
            let fail = |_: &ListOptions, _: &Stop| Err::<Body, _>(Error::stopped());
            Arc::new(ListWatch::new(fail, fail))
        }
    }

    /// A source whose description panics on other threads than that of the test. An informer reads
    /// the description when it is created, and when it starts.
    struct PanicsAtStart(ThreadId);

    impl ListerWatcher for PanicsAtStart {
        fn list(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
            Err(Error::stopped())
        }

        fn watch(&self, _: &ListOptions, _: &Stop) -> Result<Body, Error> {
            Err(Error::stopped())
        }

        fn description(&self) -> String {
            assert_eq!(thread::current().id(), self.0, "the start fails");
            "nothing".to_owned()
        }
    }

    #[test]
    fn fa6_informer_panicking_at_start_releases_waiters() {
        let factory = SharedInformerFactory::new(Nothing);
        let resource = GroupVersionResource::new("", "v1", "pods");
        let source = Arc::new(PanicsAtStart(thread::current().id()));
        let options = SharedIndexInformerOptions::default();
        let informer = SharedIndexInformer::<DynamicObject>::new(source, options);
        factory.factory.informers.lock().all.push(Entry {
            identity: Identity {
                type_id: TypeId::of::<DynamicObject>(),
                resource,
                scope: InformerScope::all(),
            },
            informer: Arc::new(informer.clone()),
            is_shared: true,
            one_thread: false,
            is_ending: false,
            is_requested: true,
            observations: 0,
            run: None,
        });
        let handler = informer.add_event_handler(|handler| handler).unwrap();
        factory.start(&Stop::never()).unwrap();
        let soon = Duration::from_secs(60);
        assert!(informer.ended().wait_timeout(soon) && handler.ended().wait_timeout(soon));
        assert!(informer.is_stopped());
        let error = factory
            .wait_for_cache_sync(soon, &Stop::never())
            .unwrap_err();
        assert!(!error.is_timed_out(), "{error}");
        factory.shut_down_informer(&informer, None).unwrap();
        factory.shut_down(None).unwrap();
    }
}

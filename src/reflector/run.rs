mod session;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;

use self::session::Session;
use super::failures::{Failures, named};
use super::protocol::{Protocol, Report, ReportKind};
use super::reclaim::Reclaim;
use super::undecodable::UndecodableList;
use super::{Body, ListerWatcher, ReflectorOptions, ReflectorState, ReflectorStatus};
use crate::error::Error;
use crate::object::Object;
use crate::panic;
use crate::stop::Stop;
use crate::store::{ReflectorStore, StoreError};
use crate::sync::Mutex;
use crate::sync::thread::{self, Scope, ScopedJoinHandle};
use crate::threads::{self, Owners, StackSizes};
use crate::wire::{Decode, ListOptions};

/// What is added to the log line of a failure that will happen again.
const PERMANENT: &str =
    "; this is permanent until the request, the credentials or the cluster change; retrying";

/// A list or a watch-list that takes longer is logged (L17).
const LONG: Duration = Duration::from_secs(10);

/// Receives a failure, and whether it is of a first list that will fail again in the same way.
pub(crate) type OnFailure = Arc<dyn Fn(&Error, bool) + Send + Sync>;

/// Keeps a store equal to the server: lists, watches from there on, and begins again where that breaks.
/// client-go's `Reflector`.
///
/// [`run`](Self::run) does the work on the caller's thread. The rules are those of client-go: the first list
/// asks for resourceVersion "0", a later one for the last that was seen; a watch that ends is opened again
/// from where it was; an expired one lists again; every failure waits with growing back-off. The
/// differences are in DEVIATIONS.md.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Indexer, Stop};
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch, Reflector, ReflectorOptions};
///
/// let stop = Stop::new();
/// let enough = stop.clone();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(
///         r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#,
///     )),
///     move |options: &ListOptions, _: &Stop| {
///         assert_eq!(options.resource_version.as_deref(), Some("7"));
///         enough.stop(); // Enough seen for an example.
///         Ok(Body::from(""))
///     },
/// );
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// Reflector::new(Arc::new(pods), store.clone(), ReflectorOptions::default()).run(&stop);
/// assert_eq!(store.list().len(), 1);
/// ```
pub struct Reflector<T> {
    lister_watcher: Arc<dyn ListerWatcher>,
    store: Arc<dyn ReflectorStore<T>>,
    decode: Decode<T>,
    options: ReflectorOptions,
    reclaim: Option<Arc<dyn Reclaim>>,
    /// Called with each failure, and with whether it is of a first list that will fail again in the same way.
    on_failure: Option<OnFailure>,
    /// What `status` answers. Innermost: nothing is called under it.
    status: Mutex<ReflectorStatus>,
    /// What has been logged. Only the thread of the run takes it; innermost but for the log.
    logged: Mutex<Failures>,
}

impl<T: Object + DeserializeOwned> Reflector<T> {
    /// Nothing happens before [`run`](Self::run).
    pub fn new(
        lister_watcher: Arc<dyn ListerWatcher>,
        store: Arc<dyn ReflectorStore<T>>,
        options: ReflectorOptions,
    ) -> Self {
        Self {
            lister_watcher,
            store,
            decode: Decode::new(),
            options,
            reclaim: None,
            on_failure: None,
            status: Mutex::default(),
            logged: Mutex::default(),
        }
    }
}

impl<T: Object> Reflector<T> {
    /// Frees returned objects on the reflector's thread.
    pub(crate) fn reclaiming(self, reclaim: Option<Arc<dyn Reclaim>>) -> Self {
        Self { reclaim, ..self }
    }

    /// Calls this with each failure.
    pub(crate) fn on_failure(self, on_failure: Option<OnFailure>) -> Self {
        Self { on_failure, ..self }
    }

    /// How it stands.
    pub fn status(&self) -> ReflectorStatus {
        self.status.lock().clone()
    }

    /// The resourceVersion of the last list, event or bookmark, empty before the first. The store may be
    /// behind it where a queue is in between.
    pub fn last_sync_resource_version(&self) -> String {
        self.status.lock().resource_version.clone()
    }

    pub(crate) fn stack_sizes(&self) -> StackSizes {
        self.options.stack_sizes
    }

    fn options(&self) -> &ReflectorOptions {
        &self.options
    }

    /// Lists and watches until `stop` is stopped. Blocks. Resyncs run on another thread while it watches.
    pub fn run(&self, stop: &Stop) {
        let watch_list = panic::catch(|| self.lister_watcher.supports_watch_list());
        let watch_list = watch_list.unwrap_or_else(|panic| {
            log::error!(
                "{}: the lister-watcher, asked for watch-lists, {panic}",
                self.name()
            );
            false
        });
        let reclaim = self.reclaim.clone();
        let mut session = Session::new(self, &*self.store, self.decode, reclaim, watch_list);
        thread::scope(|scope| {
            let mut listing = None;
            let mut resync: Option<Resync<'_>> = None;
            // The first response may take long.
            self.publish(&mut session);
            while !stop.is_stopped() {
                if !session.protocol.is_streaming()
                    && let Some(resync) = resync.take()
                {
                    resync.end();
                }
                if session.protocol.is_streaming() {
                    let resync = resync.get_or_insert_with(|| Resync::new(stop));
                    if session.protocol.is_watching()
                        && let Err(error) = self.start_resync(resync, scope)
                    {
                        session.abort_cycle(resync_failed(&error), None);
                        // Before the wait that follows.
                        self.publish(&mut session);
                        continue;
                    }
                }
                let phase_stop = resync.as_ref().map_or(stop, |resync| &resync.stop);
                // All user code runs in here: decoding, accessors, the store, the clock.
                let step = || {
                    self.log_if_long(&session.protocol, &mut listing);
                    session.step(phase_stop);
                };
                if let Err(panic) = panic::catch(step) {
                    let reading = session.protocol.reading();
                    let error = Error::other(format!("a step of the reflector {panic}"));
                    session.abort_cycle(error, reading);
                }
                if let Some(phase) = resync.take_if(|resync| resync.stop.is_stopped()) {
                    // In this order: a stop from outside stops the phase, too.
                    if !stop.is_stopped() {
                        session.abort_cycle(resync_failed(&phase.failure()), None);
                    }
                    phase.end();
                }
                // Also after a stop, so that the status shows what has reached the store.
                self.publish(&mut session);
            }
            if let Some(resync) = resync {
                resync.end();
            }
        });
        self.status.lock().state = ReflectorState::Stopped;
    }

    /// Logs how long a list or a watch-list took that is over now, if it took long (L17). `listing` is the one of the
    /// last step, and when it began.
    fn log_if_long(&self, protocol: &Protocol, listing: &mut Option<(&'static str, Instant)>) {
        let what = protocol.listing();
        if listing.map(|(what, _)| what) == what {
            return;
        }
        let now = self.options.clock.now();
        if let Some((what, began)) = listing.take() {
            let took = now.duration_since(began);
            if took > LONG {
                log::info!("{}: the {what} took {} s", self.name(), took.as_secs());
            }
        }
        *listing = what.map(|what| (what, now));
    }

    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let opened = panic::catch(|| self.lister_watcher.list(options, stop));
        self.status.lock().lists += 1;
        opened.unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))))
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let opened = panic::catch(|| self.lister_watcher.watch(options, stop));
        self.status.lock().watches += 1;
        opened.unwrap_or_else(|panic| Err(Error::other(format!("the lister-watcher {panic}"))))
    }

    /// The server answered or sent something.
    fn has_contact(&self, now: Instant) {
        self.status.lock().last_contact = Some(now);
    }

    fn backs_off(&self) {
        self.status.lock().state = ReflectorState::BackingOff;
    }

    /// Publishes the outcome of a list before the store has the list: a program that waits for the sync may read the
    /// status right after it. If the store rejects the list, [`publish`](Self::publish) reverts it.
    fn announce(
        &self,
        session: &Session<'_, T>,
        version: &str,
        received: usize,
        complete: bool,
        undecodable: Option<&UndecodableList>,
    ) {
        let report = session.protocol.last_report();
        let error = report.map(|report| self.in_context(report));
        let at = error
            .as_ref()
            .and_then(|_| panic::catch(|| self.options.clock.now()).ok());
        let mut status = self.status.lock();
        version.clone_into(&mut status.resource_version);
        (status.listed, status.received, status.complete) = (true, received, complete);
        status.undecodable = undecodable.cloned();
        status.unreadable = session.unreadable;
        status.relists = session.protocol.lists_replaced();
        if error.is_some() {
            (status.last_error, status.last_error_at) = (error, at);
        }
    }

    /// Adds what was being read, where the error does not say it.
    fn in_context(&self, report: &Report) -> Error {
        let error = report.error.clone();
        match report.reading {
            Some(reading) => error.context(format!("{reading} {}", self.description())),
            None => error,
        }
    }

    /// Updates the status after a step, and reports what went wrong.
    fn publish(&self, session: &mut Session<'_, T>) {
        let mut reports = session.protocol.take_reports();
        for report in &mut reports {
            report.error = self.in_context(report);
        }
        // A clock is user code: not under the lock.
        let failed_at = reports
            .last()
            .and_then(|_| panic::catch(|| self.options.clock.now()).ok());
        {
            let protocol = &session.protocol;
            let mut status = self.status.lock();
            if status.resource_version != protocol.version() {
                protocol.version().clone_into(&mut status.resource_version);
            }
            if protocol.listing().is_some() {
                let received = session.initial.received();
                let remaining = protocol.remaining().and_then(|count| count.try_into().ok());
                status.state = ReflectorState::Listing;
                status.received = received;
                status.expected = remaining.map(|remaining| received.saturating_add(remaining));
            } else if protocol.has_open_watch() {
                status.state = ReflectorState::Watching;
                status.received = session.received;
            }
            status.listed = protocol.lists_replaced() > 0;
            status.shard_applied = session.shard_applied;
            (status.complete, status.unreadable) = (session.complete, session.unreadable);
            if status.undecodable.is_some() != session.undecodable.is_some() {
                status.undecodable = session.undecodable.clone();
            }
            status.relists = protocol.lists_replaced().saturating_sub(1);
            if protocol.is_healthy() {
                status.failures = 0;
            }
            if let Some(report) = reports.last() {
                status.last_error = Some(report.error.clone());
                status.last_error_at = failed_at;
                let failures = reports
                    .iter()
                    .filter(|report| report.kind != ReportKind::Object);
                status.failures += failures.count() as u64;
            }
        }
        self.notify(session, &reports);
    }

    /// Passes what went wrong to the handler and the log.
    fn notify(&self, session: &Session<'_, T>, reports: &[Report]) {
        // Loggers are user code: not under the lock.
        let recovered = {
            let mut logged = self.logged.lock();
            if session.complete {
                logged.complete();
            }
            let is_healthy = session.protocol.is_healthy();
            is_healthy.then(|| logged.well()).flatten()
        };
        if let Some(failures) = recovered {
            log::info!("{}: well again after {failures}", self.name());
        }
        for report in reports {
            let handler = self
                .options
                .watch_error_handler
                .as_ref()
                .filter(|_| report.kind == ReportKind::Request);
            let error = report.error.to_string();
            let level = self.logged.lock().failed(report, &error);
            if handler.is_none() {
                let hint = if report.is_refusal() { PERMANENT } else { "" };
                log::log!(level, "{}{hint}", named(&self.name(), &error));
            }
            if let Some(Err(panic)) = handler.map(|handler| panic::catch(|| handler(&report.error)))
            {
                log::error!("{}: the watch error handler {panic}", self.name());
            }
            let is_routine = report.kind == ReportKind::Preliminary || report.error.is_gone();
            if let Some(on_failure) = self.on_failure.as_ref().filter(|_| !is_routine) {
                let is_first = session.protocol.lists_replaced() == 0;
                on_failure(&report.error, is_first && report.is_refusal());
            }
        }
    }

    fn name(&self) -> String {
        match self.options.name.as_str() {
            "" => self.description(),
            name => name.to_owned(),
        }
    }

    fn description(&self) -> String {
        let description = panic::catch(|| self.lister_watcher.description());
        description.unwrap_or_else(|panic| format!("objects whose description {panic}"))
    }

    /// Starts the thread, unless it runs already or there is no period.
    fn start_resync<'scope>(
        &'scope self,
        resync: &mut Resync<'scope>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<(), StoreError> {
        let period = self.options.resync_period;
        if period.is_zero() || resync.thread.is_some() {
            return Ok(());
        }
        let (stop, failed) = (resync.stop.clone(), Arc::clone(&resync.failed));
        let thread = threads::named(
            format!("{} resync", self.name()),
            self.options.stack_sizes.others,
        );
        let owners = Owners::current();
        let thread = thread.spawn_scoped(scope, move || {
            let resyncs = owners.adopt(|| panic::catch(|| self.resync_until(period, &stop)));
            if let Err(error) = resyncs.unwrap_or_else(|panic| Err(StoreError::other(panic))) {
                *failed.lock() = Some(error);
                stop.stop();
            }
        });
        let thread = thread.map_err(|error| {
            StoreError::other(format!("can't start the resync thread: {error}"))
        })?;
        resync.thread = Some(thread);
        Ok(())
    }

    /// The resync thread: at each tick, if a resync is due, the store delivers all its objects again.
    fn resync_until(&self, period: Duration, stop: &Stop) -> Result<(), StoreError> {
        while self.options.clock.wait(period, stop) {
            if self
                .options
                .should_resync
                .as_ref()
                .is_none_or(|should_resync| should_resync())
            {
                self.store.resync()?;
            }
        }
        Ok(())
    }
}

/// The resyncs of one watch phase (W13), which begin when its objects are in the store.
struct Resync<'scope> {
    /// Ends the phase: the thread, and the watch when a resync failed.
    stop: Stop,
    /// What a resync failed with. Innermost; written before `stop` is given.
    failed: Arc<Mutex<Option<StoreError>>>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

impl Resync<'_> {
    fn new(stop: &Stop) -> Self {
        Self {
            stop: stop.child(),
            failed: Arc::default(),
            thread: None,
        }
    }

    /// Why the phase was stopped, if not from outside: a resync failed, or a lister-watcher gave the stop
    /// that it was given.
    fn failure(&self) -> StoreError {
        let failed = self.failed.lock().take();
        failed.unwrap_or_else(|| StoreError::other("the watch was stopped from within"))
    }

    fn end(self) {
        self.stop.stop();
        if let Some(Err(panic)) = self.thread.map(ScopedJoinHandle::join) {
            log::error!("a resync {}", panic::message(&*panic));
        }
    }
}

fn resync_failed(error: &StoreError) -> Error {
    Error::other(format!("resync: {error}"))
}

impl<T> fmt::Debug for Reflector<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reflector")
            .field("status", &*self.status.lock())
            .finish_non_exhaustive()
    }
}

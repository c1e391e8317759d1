mod availability;
mod current;
mod custom_store;
mod session;

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::log::Level;
use serde::de::DeserializeOwned;

use self::availability::Availability;
use self::custom_store::{CustomStore, WrittenKeys};
use self::session::Session;
use super::catch_up::CatchUp;
use super::failures::{Failures, named};
use super::initial_list::InitialList;
use super::protocol::{Protocol, Report, ReportKind};
use super::reclaim::Reclaim;
use super::{ListerWatcher, Missing, ReflectorOptions, ReflectorState, ReflectorStatus};
use crate::base::derive::debug_fields;
use crate::base::panic;
use crate::base::sync::Mutex;
use crate::base::sync::thread::{self, Scope, ScopedJoinHandle};
use crate::base::threads::{self, Owners, StackSizes};
use crate::entry::Staging;
use crate::error::Error;
use crate::log;
use crate::object::{Key, Object};
use crate::resource_version::ResourceVersion;
use crate::stop::Stop;
use crate::store::{ReflectorStore, StoreError};
use crate::wire::Decode;

/// The suffix of the log message for a failure that will repeat.
const PERMANENT_HINT: &str =
    "; this error persists until the request, the credentials or the cluster change; retrying";

/// Lists and watch-lists that take longer than this are logged.
const LONG_LIST: Duration = Duration::from_secs(10);

/// The callback for failures, except expired versions and rejected watch-lists, after which a list
/// follows. The flag is true if no list has reached the store yet and the request will fail again
/// in the same way.
pub(crate) type OnFailure = Arc<dyn Fn(&Error, bool) + Send + Sync>;

/// The consumer of a queue, which can use the reflector's thread.
pub(crate) trait Consumer {
    /// Calls `write`, which queues changes. The consumer may process them before it returns.
    fn write(&self, write: &mut dyn FnMut());

    /// Processes what has been queued, if the consumer has no other thread. Called before each step,
    /// after the last one, and before the callbacks of a failure.
    fn process(&self);

    /// Whether it has no other thread. The reflector then resyncs on its own thread as well.
    fn has_no_thread(&self) -> bool;
}

/// Keeps a store equal to the server: it lists, watches from there on, and lists again when the
/// watch cannot continue.
///
/// It corresponds to client-go's `Reflector`. [`run`](Self::run) works on the caller's thread.
///
/// The rules are those of client-go; `docs/client-go-rules.md` describes the differences:
///
/// - The first list requests resource version "0". A later list requests the last version seen.
/// - A watch that ends is opened again from the last version.
/// - If that version has expired, the reflector lists again.
/// - After each failure, it waits with exponential back-off.
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
///         enough.stop(); // End the example.
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
    on_failure: Option<OnFailure>,
    missing: Arc<Missing>,
    catch_up: CatchUp,
    /// What the store has, if it is a custom one. Otherwise empty.
    written: WrittenKeys,
    /// Whether the thread of the session can soon call the consumer.
    availability: Availability,
    /// Whether the store is a queue whose consumer calls [`rejected`](Self::rejected).
    has_consumer: bool,
    /// The result of [`status`](Self::status), without the rejected objects. Innermost lock:
    /// nothing is called while it is held.
    status: Mutex<ReflectorStatus>,
    /// The failures logged so far. Innermost lock: nothing is called while it is held.
    logged: Mutex<Failures>,
}

impl<T: Object + DeserializeOwned> Reflector<T> {
    /// Creates a reflector. It does nothing until you call [`run`](Self::run).
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
            missing: Arc::default(),
            catch_up: CatchUp::default(),
            written: WrittenKeys::default(),
            availability: Availability::default(),
            has_consumer: false,
            status: Mutex::default(),
            logged: Mutex::default(),
        }
    }
}

impl<T: Object> Reflector<T> {
    /// Prepares the reflector of an informer, whose store is a queue. The reflector frees the
    /// delivered objects that `reclaim` returns to it. It calls `on_failure` with each error, and
    /// with whether the server refuses the first list.
    pub(crate) fn with_consumer(
        self,
        reclaim: Option<Arc<dyn Reclaim>>,
        on_failure: Option<OnFailure>,
    ) -> Self {
        Self {
            reclaim,
            on_failure,
            has_consumer: true,
            ..self
        }
    }

    /// Returns the objects whose newest state the store, or the consumer of its queue, lacks.
    pub(crate) fn missing(&self) -> &Missing {
        &self.missing
    }

    /// Records that the consumer of the store's queue could not process an object in this version.
    /// The reflector notices it on its own thread and schedules a relist. Pass the error to
    /// [`notify_rejected`](Self::notify_rejected) afterwards.
    pub(crate) fn rejected(
        &self,
        key: Option<Key>,
        version: Option<ResourceVersion>,
        error: &Error,
    ) {
        self.set_last_error(error.clone());
        self.missing.add_rejected(key, version);
    }

    /// Records that an index function failed for an object, which the consumer has stored. Pass the
    /// error to [`notify_rejected`](Self::notify_rejected) afterwards.
    pub(crate) fn unindexed(&self, error: &Error) {
        self.set_last_error(error.clone());
    }

    fn set_last_error(&self, error: Error) {
        let at = self.now();
        let mut status = self.status.lock();
        (status.last_error, status.last_error_at) = (Some(error), at);
    }

    /// Passes the error of a rejected or unindexed object to the log and to the callback for failures.
    pub(crate) fn notify_rejected(&self, error: &Error) {
        let text = error.to_string();
        let level = match self.logged.lock().record(ReportKind::Object, error, &text) {
            Level::Warn => Level::Error,
            level => level,
        };
        log::log!(level, "{}: {text}", self.name());
        if let Some(on_failure) = &self.on_failure {
            on_failure(error, false);
        }
    }

    /// Returns the current status.
    pub fn status(&self) -> ReflectorStatus {
        // Read before the status, which then has the errors of these objects.
        let (rejected, rejections) = (self.missing.rejected(), self.missing.rejections());
        let mut status = self.status.lock().clone();
        status.complete &= rejected == 0;
        status.unreadable += rejections;
        status.unindexed = self.store.staging().map_or(0, Staging::unindexed);
        status
    }

    /// Returns the resource version of the last list, or the newest one of the events and bookmarks
    /// since then. It is empty before the first list. If a queue is between the reflector and a
    /// store, the store may still have an older version.
    pub fn last_sync_resource_version(&self) -> String {
        ResourceVersion::text(self.last_sync_version().as_ref())
    }

    pub(crate) fn last_sync_version(&self) -> Option<ResourceVersion> {
        self.status.lock().resource_version.clone()
    }

    pub(crate) fn stack_sizes(&self) -> StackSizes {
        self.options.stack_sizes
    }

    /// Lists and watches until `stop` is stopped. This method blocks. Resyncs run on a second
    /// thread while the reflector watches.
    pub fn run(&self, stop: &Stop) {
        self.run_with(None, stop);
    }

    /// Like [`run`](Self::run), with a consumer of the store's queue.
    pub(crate) fn run_with(&self, consumer: Option<&dyn Consumer>, stop: &Stop) {
        let watch_list = panic::catch(|| self.lister_watcher.supports_watch_list());
        let watch_list = watch_list.unwrap_or_else(|panic| {
            log::error!(
                "{}: supports_watch_list of the lister-watcher {panic}",
                self.name()
            );
            false
        });
        let custom;
        let store = match self.store.staging() {
            Some(staging) => staging,
            None => {
                custom = CustomStore::new(&*self.store, &self.written);
                &custom
            }
        };
        let mut session = Session::new(self, store, self.decode, watch_list, consumer);
        let is_alone = consumer.is_some_and(Consumer::has_no_thread);
        thread::scope(|scope| {
            let mut listing = None;
            let mut resync: Option<Resync<'_>> = None;
            // Publish the status before the first request, whose response may take a long time.
            self.publish(&mut session);
            while !stop.is_stopped() {
                if !session.protocol.is_streaming()
                    && let Some(resync) = resync.take()
                {
                    session.protocol.resync_at = None;
                    resync.end();
                }
                if session.protocol.is_streaming() {
                    let resync = resync.get_or_insert_with(|| Resync::new(stop));
                    if session.protocol.is_watching()
                        && !is_alone
                        && let Err(error) = self.start_resync(resync, scope)
                    {
                        session.abort_cycle(resync_failed(&error));
                        // Publish the failure before the next step, which waits.
                        self.publish(&mut session);
                        continue;
                    }
                }
                let phase_stop = resync.as_ref().map_or(stop, |resync| &resync.stop);
                // The user code of a step runs in this closure: decoding, accessors, the store, the
                // clock.
                let step = || {
                    self.log_if_long(&session.protocol, &mut listing);
                    session.step(phase_stop, stop);
                    match is_alone && session.protocol.is_watching() {
                        true => self.resync_if_due(&mut session.protocol),
                        false => Ok(()),
                    }
                };
                match panic::catch(step) {
                    Ok(Ok(())) => {}
                    Ok(Err(error)) => session.abort_cycle(resync_failed(&error)),
                    Err(panic) => {
                        session.abort_cycle(Error::other(format!("a reflector step {panic}")));
                    }
                }
                if let Some(phase) = resync.take_if(|resync| resync.stop.is_stopped()) {
                    // Check `resync.stop` before `stop`. Stopping `stop` also stops `resync.stop`,
                    // so if `stop` is not stopped now, the phase ended on its own: a resync failed,
                    // or the lister-watcher stopped the `Stop` that it received.
                    let is_running = !stop.is_stopped();
                    let failure = phase.end().unwrap_or_else(|| {
                        StoreError::other("the lister-watcher stopped the watch")
                    });
                    if is_running {
                        session.abort_cycle(resync_failed(&failure));
                    }
                }
                // Publish even after a stop, so that the status shows what has reached the store.
                self.publish(&mut session);
            }
            if let Some(consumer) = consumer {
                consumer.process();
            }
            if let Some(resync) = resync {
                resync.end();
            }
        });
        self.status.lock().state = ReflectorState::Stopped;
    }

    /// Logs the duration of a list or watch-list that has ended, if it took longer than
    /// [`LONG_LIST`]. `listing` holds the list or watch-list of the previous step and the time at
    /// which it began.
    fn log_if_long(&self, protocol: &Protocol, listing: &mut Option<(&'static str, Instant)>) {
        let what = protocol.listing();
        if listing.map(|(what, _)| what) == what {
            return;
        }
        let now = self.options.clock.now();
        if let Some((what, began)) = listing.take() {
            let took = now.duration_since(began);
            if took > LONG_LIST {
                log::info!("{}: the {what} took {} s", self.name(), took.as_secs());
            }
        }
        *listing = what.map(|what| (what, now));
    }

    /// Publishes the outcome of a list before the store receives the list, because a program that
    /// waits for the sync may read the status immediately after the sync. If the store rejects the
    /// list, [`publish`](Self::publish) reverts the status.
    fn announce(
        &self,
        protocol: &Protocol,
        list: &InitialList<T>,
        version: Option<&ResourceVersion>,
    ) {
        let undecodable = list.undecodable();
        let mut status = self.status.lock();
        let is_first = protocol.lists == 0 || status.undecodable.is_some();
        status.undecodable = undecodable.filter(|_| is_first);
        status.resource_version = version.cloned();
        (status.listed, status.complete) = (true, list.is_complete());
        status.received = list.received();
        status.relists = protocol.lists;
        if let Some(shard_confirmed) = protocol.list_shard_confirmed() {
            status.shard_applied = match list.other_shard {
                0 => shard_confirmed.then_some(true),
                _ => Some(false),
            };
        }
    }

    /// Returns the time of the clock, which is user code: do not hold a lock.
    fn now(&self) -> Option<Instant> {
        panic::catch(|| self.options.clock.now()).ok()
    }

    /// Returns the error of a report. Its context is what was being read, for example `list pods`.
    /// The error of a failed request already has this context.
    fn in_context(&self, report: &Report) -> Error {
        let error = report.error.clone();
        match report.reading {
            Some(reading) => error.context(format!("{reading} {}", self.description())),
            None => error,
        }
    }

    /// Updates the status after a step, and reports its failures.
    fn publish(&self, session: &mut Session<'_, T>) {
        let reports = self.update_status(session);
        self.notify(session, &reports);
    }

    /// Updates the status, and returns the failures of the last step.
    fn update_status(&self, session: &mut Session<'_, T>) -> Vec<Report> {
        let mut reports = session.protocol.take_reports();
        for report in &mut reports {
            report.error = self.in_context(report);
        }
        let failed_at = reports.last().and_then(|_| self.now());
        {
            let protocol = &session.protocol;
            let mut status = self.status.lock();
            if status.resource_version.as_ref() != protocol.version() {
                status.resource_version = protocol.version().cloned();
            }
            if protocol.listing().is_some() {
                let received = session.initial.received();
                // A server that applies the shard counts the objects of all shards, and it may not
                // confirm the shard.
                let is_of_list = self.options.shard.is_none() || session.initial.other_shard > 0;
                let left = protocol.remaining().filter(|_| is_of_list);
                let left = left.and_then(|count| count.try_into().ok());
                status.state = ReflectorState::Listing;
                status.received = received;
                status.expected = left.map(|left| received.saturating_add(left));
            } else if protocol.has_open_watch() {
                status.state = ReflectorState::Watching;
            }
            let lists = protocol.lists;
            (status.listed, status.relists) = (lists > 0, lists.saturating_sub(1));
            status.complete = protocol.is_complete();
            status.unreadable = protocol.unreadable();
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
        self.catch_up.release(session.protocol.version());
        reports
    }

    /// Passes the failures to the callbacks and the log.
    fn notify(&self, session: &Session<'_, T>, reports: &[Report]) {
        // Loggers are user code, so call them without the lock.
        let recovered = {
            let mut logged = self.logged.lock();
            if session.protocol.is_complete() && self.missing.is_empty() {
                logged.forget_unreadable();
            }
            let is_healthy = session.protocol.is_healthy();
            is_healthy.then(|| logged.take_summary()).flatten()
        };
        if recovered.is_none() && reports.is_empty() {
            return;
        }
        // Loggers and callbacks may wait for what handlers do with the changes that were read before
        // the failure, so these changes are processed first.
        if let Some(consumer) = session.consumer() {
            consumer.process();
        }
        if let Some(failures) = recovered {
            log::info!("{}: recovered after {failures}", self.name());
        }
        let is_first = session.protocol.lists == 0;
        for report in reports {
            self.notify_failure(report, is_first);
        }
    }

    /// Passes a failure to the callbacks and the log. `is_first` is whether no list has reached the
    /// store yet.
    fn notify_failure(&self, report: &Report, is_first: bool) {
        let handler = self
            .options
            .watch_error_handler
            .as_ref()
            .filter(|_| report.kind == ReportKind::Request);
        let error = report.error.to_string();
        let level = match self.options.is_optional_kind && report.error.is_not_found() {
            // Neither a failure nor a recovery: the owner of the informer reports both.
            true => Level::Debug,
            false => self
                .logged
                .lock()
                .record(report.kind, &report.error, &error),
        };
        if handler.is_none() {
            let hint = if report.is_permanent() {
                PERMANENT_HINT
            } else {
                ""
            };
            log::log!(level, "{}{hint}", named(&self.name(), &error));
        }
        if let Some(Err(panic)) = handler.map(|handler| panic::catch(|| handler(&report.error))) {
            log::error!("{}: the watch error handler {panic}", self.name());
        }
        let is_routine = report.kind == ReportKind::Preliminary || report.error.is_gone();
        if let Some(on_failure) = self.on_failure.as_ref().filter(|_| !is_routine) {
            on_failure(&report.error, is_first && report.is_permanent());
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
        description.unwrap_or_else(|panic| format!("objects (the description {panic})"))
    }

    /// Starts the resync thread, unless it is running or the resync period is zero.
    fn start_resync<'scope>(
        &'scope self,
        resync: &mut Resync<'scope>,
        scope: &'scope Scope<'scope, '_>,
    ) -> Result<(), StoreError> {
        let period = self.options.resync_period;
        if period.is_zero() || resync.thread.is_some() {
            return Ok(());
        }
        let stop = resync.stop.clone();
        let thread = threads::named(
            format!("{} resync", self.name()),
            self.options.stack_sizes.others,
        );
        let owners = Owners::current();
        let thread = thread.spawn_scoped(scope, move || {
            let resyncs = owners.adopt(|| panic::catch(|| self.resync_until(period, &stop)));
            let resyncs = resyncs
                .unwrap_or_else(|panic| Err(StoreError::other(format!("a callback {panic}"))));
            if resyncs.is_err() {
                stop.stop();
            }
            resyncs
        });
        let thread = thread.map_err(|error| {
            StoreError::other(format!("can't start the resync thread: {error}"))
        })?;
        resync.thread = Some(thread);
        Ok(())
    }

    /// Runs on the resync thread.
    fn resync_until(&self, period: Duration, stop: &Stop) -> Result<(), StoreError> {
        while self.options.clock.wait(period, stop) {
            self.resync()?;
        }
        Ok(())
    }

    /// Resyncs on this thread if it is time for it.
    fn resync_if_due(&self, protocol: &mut Protocol) -> Result<(), StoreError> {
        let (period, now) = (self.options.resync_period, self.options.clock.now());
        if period.is_zero() || protocol.resync_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let is_due = protocol.resync_at.is_some();
        protocol.resync_at = now.checked_add(period);
        if is_due { self.resync() } else { Ok(()) }
    }

    /// If a resync is needed, the store delivers all its objects again.
    fn resync(&self) -> Result<(), StoreError> {
        let should_resync = self.options.should_resync.as_ref();
        match should_resync.is_none_or(|should_resync| should_resync()) {
            true => self.store.resync(),
            false => Ok(()),
        }
    }
}

/// The resync thread of one watch phase. Resyncs start when the listed objects are in the store
/// (W13).
struct Resync<'scope> {
    /// Ends the phase: stops the resync thread and, after a failed resync, the watch.
    stop: Stop,
    thread: Option<ScopedJoinHandle<'scope, Result<(), StoreError>>>,
}

impl Resync<'_> {
    fn new(stop: &Stop) -> Self {
        Self {
            stop: stop.child(),
            thread: None,
        }
    }

    /// Stops and joins the resync thread. Returns the error of a failed resync.
    fn end(self) -> Option<StoreError> {
        self.stop.stop();
        // The thread has caught the panics of callbacks.
        self.thread?.join().ok()?.err()
    }
}

fn resync_failed(error: &StoreError) -> Error {
    Error::other(format!("resync failed: {error}"))
}

debug_fields!(Reflector<T>, this, status: *this.status.lock());

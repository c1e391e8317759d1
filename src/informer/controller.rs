use std::slice;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::InformerError;
use super::process::Reports;
use crate::base::derive::debug_fields;
use crate::base::panic::{self, Panicked};
use crate::base::sync::Mutex;
use crate::base::sync::atomic::{AtomicBool, Ordering};
use crate::base::sync::thread::{self, Builder};
use crate::base::threads::{self, Owners};
use crate::error::Error;
use crate::log;
use crate::object::Object;
use crate::queue::{BoxError, Delta, Deltas, Failure, PopError, ProcessError, Queue, Requeue};
use crate::reflector::{
    Consumer, ListerWatcher, OnFailure, Reclaim, Reflector, ReflectorOptions, ReflectorState,
    ReflectorStatus,
};
use crate::resource_version::ResourceVersion;
use crate::stop::{Done, Stop};

/// The pause of the process loop after a panic in the queue.
const PAUSE: Duration = Duration::from_secs(1);

/// A callback that processes the changes of one object. The second argument is whether they belong
/// to the initial list. client-go's `ProcessFunc`.
type ProcessFn<T> = Box<dyn FnMut(&Deltas<T>, bool) -> Result<(), ProcessError> + Send>;

/// A callback that processes the changes of many objects at once. The second argument is whether
/// they belong to the initial list. client-go's `ProcessBatchFunc`.
type ProcessBatchFn<T> = Box<dyn FnMut(&[Deltas<T>], bool) -> Result<(), ProcessError> + Send>;

/// Configuration for a [`Controller`]. client-go's `cache.Config`.
#[non_exhaustive]
pub struct ControllerConfig<T> {
    /// The queue between the reflector and the process loop.
    pub queue: Arc<dyn Queue<T>>,
    /// The source of the objects.
    pub lister_watcher: Arc<dyn ListerWatcher>,
    /// Called with the changes that the process loop pops from the queue. To receive them again, it
    /// returns a [`Requeue`]. The process loop does not pause: if nothing else waits, the next call
    /// follows at once. A reason is logged at the level `debug`.
    pub process: ProcessFn<T>,
    /// Called with the changes of several objects, if the queue returns them together. If `None`,
    /// `process` is called for each object.
    pub process_batch: Option<ProcessBatchFn<T>>,
    /// The options of the reflector.
    pub reflector: ReflectorOptions,
    /// Receives the signal that stops the controller, when it starts to run.
    pub(super) started: Option<Arc<OnceLock<Stop>>>,
    /// The events of `process` to report after a pop, if it belongs to an informer.
    pub(super) reports: Option<Arc<Reports>>,
    /// A source of unused objects that the reflector thread frees.
    pub(super) reclaim: Option<Arc<dyn Reclaim>>,
    /// Called with each failure of the reflector.
    pub(super) on_failure: Option<OnFailure>,
    pub(super) in_place: InPlace,
}

/// What the reflector's thread processes of the queue.
#[derive(Clone, Default)]
pub(super) enum InPlace {
    /// Nothing: a callback may be slow.
    #[default]
    Nothing,
    /// The first items after each read, if nothing else waits: waking the process loop would cost
    /// more than the work. The process loop takes the rest, so the order is the same.
    First,
    /// Everything. There is no process loop. The function is called after it, before each step.
    All(Arc<dyn Fn() + Send + Sync>),
}

impl<T> ControllerConfig<T> {
    /// Creates a configuration with the default options for the reflector.
    pub fn new(
        queue: Arc<dyn Queue<T>>,
        lister_watcher: Arc<dyn ListerWatcher>,
        process: impl FnMut(&Deltas<T>, bool) -> Result<(), ProcessError> + Send + 'static,
    ) -> Self {
        let (process, reflector) = (Box::new(process), ReflectorOptions::default());
        Self {
            queue,
            lister_watcher,
            process,
            process_batch: None,
            reflector,
            started: None,
            reports: None,
            reclaim: None,
            on_failure: None,
            in_place: InPlace::Nothing,
        }
    }
}

debug_fields!(ControllerConfig<T>: reflector);

/// Runs a reflector that fills a queue, and a process loop that empties it. client-go's
/// `Controller` of `tools/cache`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Stop};
/// use k8s_informer::informer::{ControllerConfig, Controller};
/// use k8s_informer::object::Accessor;
/// use k8s_informer::queue::DeltaFifo;
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch};
///
/// let stop = Stop::new();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(r#"{"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#)),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait();
///         Ok(Body::from(""))
///     },
/// );
/// let queue = Arc::new(DeltaFifo::<DynamicObject>::new(Accessor::object()));
/// let enough = stop.clone();
/// let config = ControllerConfig::new(queue, Arc::new(pods), move |deltas, is_in_initial_list| {
///     assert_eq!((deltas.len(), is_in_initial_list), (1, true));
///     enough.stop();
///     Ok(())
/// });
/// let controller = Controller::new(config);
/// controller.run(&stop)?;
/// assert!(controller.has_synced());
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
pub struct Controller<T> {
    name: Arc<str>,
    queue: Arc<dyn Queue<T>>,
    reflector: Reflector<T>,
    has_started: AtomicBool,
    /// See [`ControllerConfig::started`].
    started: Option<Arc<OnceLock<Stop>>>,
    /// See [`ControllerConfig::reports`].
    reports: Option<Arc<Reports>>,
    /// `None` while a callback runs, and after `run`. The queue lets one thread in at a time.
    process: Mutex<Option<ProcessLoop<T>>>,
    has_batch: bool,
    in_place: InPlace,
    /// Whether the process loop is running; only for messages.
    processing: AtomicBool,
    /// The events of the last pops that could not be processed, until they are reported. An innermost
    /// lock.
    lost: Mutex<Vec<Lost>>,
}

/// An event that was not processed as usual.
enum Lost {
    /// The cache lacks the newest state of an object, or has it without values in an index.
    Object(Error),
    /// The event is about no object, so the cache lacks none.
    Other(String),
    /// The event is processed again.
    Requeued(String),
}

/// What a callback did with one item.
enum ItemOutcome<'a> {
    Done,
    /// These errors are about single objects of a list. The others have been processed.
    Partly(Vec<&'a BoxError>),
    Failed(&'a BoxError),
    Requeued(&'a Requeue),
}

struct ProcessLoop<T> {
    one: ProcessFn<T>,
    batch: Option<ProcessBatchFn<T>>,
}

impl<T: Object + DeserializeOwned> Controller<T> {
    /// Creates a controller. It does nothing until you call [`run`](Self::run).
    pub fn new(config: ControllerConfig<T>) -> Self {
        let name = reflector_name(&config.reflector, &*config.lister_watcher);
        let sink: Arc<dyn Queue<T>> = Arc::clone(&config.queue);
        let reflector = Reflector::new(config.lister_watcher, sink, config.reflector);
        Self {
            name,
            queue: config.queue,
            reflector: reflector.with_consumer(config.reclaim, config.on_failure),
            has_started: AtomicBool::new(false),
            started: config.started,
            reports: config.reports,
            has_batch: config.process_batch.is_some(),
            process: Mutex::new(Some(ProcessLoop {
                one: config.process,
                batch: config.process_batch,
            })),
            in_place: config.in_place,
            processing: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }
}

impl<T: Object> Controller<T> {
    /// Runs the reflector on a new thread and the process loop on the current one. Blocks until
    /// `stop` is set and both have ended. Items that are still in the queue are not processed.
    ///
    /// # Errors
    ///
    /// Fails if the controller ran before, or if the system cannot start the reflector's thread.
    pub fn run(&self, stop: &Stop) -> Result<(), InformerError> {
        if self.has_started.swap(true, Ordering::Relaxed) {
            let name = Arc::clone(&self.name);
            return Err(InformerError::AlreadyStarted { name });
        }
        if let Some(started) = &self.started {
            started.get_or_init(|| stop.clone());
        }
        let queue = Arc::clone(&self.queue);
        let _closes_queue = stop.on_stop(move || queue.close());
        log::debug!("{}: starting", self.name);
        let result = match self.in_place {
            InPlace::All(_) => {
                self.reflect(stop);
                Ok(())
            }
            _ => self.run_threads(stop),
        };
        self.drop_callbacks();
        log::debug!("{}: stopped", self.name);
        result
    }

    fn run_threads(&self, stop: &Stop) -> Result<(), InformerError> {
        thread::scope(|scope| {
            let owners = Owners::current();
            let stack = self.reflector.stack_sizes().of_reflector();
            let reflector = threads::named(format!("{} reflector", self.name), Some(stack));
            let reflector =
                reflector.spawn_scoped(scope, move || owners.adopt(|| self.reflect(stop)));
            let reflector = reflector.map_err(|error| InformerError::thread(&self.name, error))?;
            self.processing.store(true, Ordering::Relaxed);
            self.process_loop(stop);
            self.processing.store(false, Ordering::Relaxed);
            if let Err(panic) = reflector.join() {
                log::error!("{}: the reflector {}", self.name, Panicked::of(&*panic));
            }
            Ok(())
        })
    }

    fn reflect(&self, stop: &Stop) {
        let consumer = OnReflectorThread {
            controller: self,
            stop,
        };
        self.reflector.run_with(Some(&consumer), stop);
    }

    /// Drops the callbacks of a controller that will not run any more. A callback may refer to the
    /// informer that owns the controller; this reference cycle would leak both.
    pub(super) fn drop_callbacks(&self) {
        let process = self.process.lock().take();
        // Its destructors are user code.
        if let Err(panic) = panic::catch(|| drop(process)) {
            log::error!("{}: the destructor of a callback {panic}", self.name);
        }
    }

    /// Returns a builder for the thread that calls [`run`](Self::run).
    pub(super) fn thread(&self) -> Builder {
        let stacks = self.reflector.stack_sizes();
        match self.in_place {
            InPlace::All(_) => threads::named(self.name.to_string(), Some(stacks.of_reflector())),
            _ => threads::named(format!("{} process", self.name), stacks.others),
        }
    }

    /// Returns the name of the controller in logs and errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Whether the initial list has been processed.
    pub fn has_synced(&self) -> bool {
        self.queue.has_synced()
    }

    /// Returns a [`Done`] that is set when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> Done {
        self.queue.synced()
    }

    /// Returns the resource version that the reflector has seen last. Processing may be behind it.
    /// The version is empty before the first list.
    pub fn last_sync_resource_version(&self) -> String {
        self.reflector.last_sync_resource_version()
    }

    pub(super) fn last_sync_version(&self) -> Option<ResourceVersion> {
        self.reflector.last_sync_version()
    }

    /// Returns the names of the threads that have not ended. `run` is the name of the thread that
    /// called [`run`](Self::run), without the word "process".
    pub(super) fn running_threads(&self, run: &str) -> impl Iterator<Item = String> {
        let processing = self.processing.load(Ordering::Relaxed);
        let processes = processing.then(|| format!("{run} process"));
        let reflector = match self.in_place {
            InPlace::All(_) => run.to_owned(),
            _ => format!("{} reflector", self.name),
        };
        let reflects = self.status().state != ReflectorState::Stopped;
        processes.into_iter().chain(reflects.then_some(reflector))
    }

    pub(super) fn reflector(&self) -> &Reflector<T> {
        &self.reflector
    }

    /// Whether the server has sent a state of this object that could not be read or processed, and
    /// no newer one that could.
    pub(super) fn is_missing(&self, key: &str) -> bool {
        self.reflector.missing().may_contain(key)
    }

    /// Returns the status of the reflector.
    pub fn status(&self) -> ReflectorStatus {
        let mut status = self.reflector.status();
        if let Some(reports) = &self.reports {
            status.unindexed = reports.count_unindexed();
        }
        status
    }

    fn process_loop(&self, stop: &Stop) {
        while !stop.is_stopped() {
            let processed = self.process_some();
            self.report_lost();
            match processed {
                Ok(true) => {}
                // Closed by user code: there will be no more items, but the reflector continues.
                Ok(false) => stop.wait(),
                Err(()) => drop(stop.wait_timeout(PAUSE)),
            }
        }
    }

    /// Processes the next items of the queue. Returns false if there are none, and an error after a
    /// panic of the queue.
    fn process_some(&self) -> Result<bool, ()> {
        // Catch panics: the queue may be user code, and the destructors of popped objects are user
        // code as well.
        match panic::catch(|| self.process_next()) {
            Ok(Ok(())) => Ok(true),
            Ok(Err(PopError::Closed)) => Ok(false),
            // `record` has recorded it.
            Ok(Err(PopError::Process { .. })) => Ok(true),
            Err(panic) => {
                log::error!("{}: the queue {panic}", self.name);
                Err(())
            }
        }
    }

    fn process_next(&self) -> Result<(), PopError<()>> {
        let one = &mut |deltas: &Deltas<T>, is_in_initial_list: bool| {
            let processed = self.call(|process| (process.one)(deltas, is_in_initial_list));
            self.record(slice::from_ref(deltas), processed)
        };
        if self.has_batch {
            let batch = &mut |items: &[Deltas<T>], is_in_initial_list: bool| {
                let processed = self.call(|process| match &mut process.batch {
                    Some(batch) => batch(items, is_in_initial_list),
                    None => Ok(()),
                });
                self.record(items, processed)
            };
            let popped = self.queue.pop_batch(batch, one);
            popped.map(drop).map_err(|error| error.map(drop))
        } else {
            let popped = self.queue.pop(one);
            popped.map(drop).map_err(|error| error.map(drop))
        }
    }

    /// Reports the events of the last pops. Called when no pop is in flight: callbacks and
    /// loggers may block, and must not delay the other pops and the writers of the queue.
    fn report_lost(&self) {
        let lost = std::mem::take(&mut *self.lost.lock());
        for event in lost {
            match event {
                Lost::Object(error) => self.reflector.notify_rejected(&error),
                Lost::Other(text) => log::error!("{}: {text}", self.name),
                // A callback may request its items again and again, without a pause.
                Lost::Requeued(text) => log::debug!("{}: {text}", self.name),
            }
        }
        let slow = self
            .reports
            .as_ref()
            .and_then(|reports| reports.take_slow());
        if let Some(slow) = slow {
            slow.log();
        }
    }

    /// Calls a callback, without a lock.
    fn call(
        &self,
        call: impl FnOnce(&mut ProcessLoop<T>) -> Result<(), ProcessError>,
    ) -> Result<Result<(), ProcessError>, Panicked> {
        let mut process = self.process.lock().take();
        let called = panic::catch(|| process.as_mut().map_or(Ok(()), call));
        *self.process.lock() = process;
        called
    }

    /// Records which objects the callback could not process, and which ones it could after all. The
    /// queue counts the items as processed after this method, so waits and the status see the
    /// outcome.
    fn record(
        &self,
        items: &[Deltas<T>],
        processed: Result<Result<(), ProcessError>, Panicked>,
    ) -> Result<(), ProcessError> {
        let result = processed.unwrap_or_else(|panic| Err(panic.into()));
        self.record_unindexed();
        // The usual case: nothing is missing, so nothing changes.
        if result.is_ok() && self.reflector.missing().is_empty() {
            return result;
        }
        for (position, deltas) in items.iter().enumerate() {
            match outcome_of(position, &result) {
                ItemOutcome::Done => self.record_success(deltas),
                ItemOutcome::Partly(errors) => self.record_partly(deltas, &errors),
                ItemOutcome::Failed(error) => self.record_error(deltas, error),
                // The items have been neither processed nor rejected. They have one reason.
                ItemOutcome::Requeued(requeue) if position == 0 => {
                    self.record_requeue(deltas, requeue);
                }
                ItemOutcome::Requeued(_) => {}
            }
        }
        result
    }

    /// Records for which objects an index function failed.
    fn record_unindexed(&self) {
        let Some(reports) = &self.reports else {
            return;
        };
        for error in reports.take_unindexed() {
            let error = Error::other(error.to_string());
            self.reflector.unindexed(&error);
            self.lost.lock().push(Lost::Object(error));
        }
    }

    /// Records why the callback requests its items again. [`report_lost`](Self::report_lost) logs it
    /// after the pop.
    fn record_requeue(&self, first: &Deltas<T>, requeue: &Requeue) {
        let Some(reason) = &requeue.reason else {
            return;
        };
        let first = first.key().map_or("an event", |key| key);
        let text = format!("{first} is processed again: {reason}");
        self.lost.lock().push(Lost::Requeued(text));
    }

    /// Records that an item was not processed. [`report_lost`](Self::report_lost) reports it after the
    /// pop.
    fn record_error(&self, deltas: &Deltas<T>, error: &BoxError) {
        let key = deltas.key();
        let text = match key {
            Some(key) => format!("an event was lost: {key}: {error}"),
            None => format!("an event was lost: {error}"),
        };
        let event = match deltas.newest() {
            // The cache lacks no object after this.
            None | Some(Delta::SyncAll | Delta::Bookmark(_)) => Lost::Other(text),
            Some(newest) => {
                let (version, error) = (newest.version().cloned(), Error::other(text));
                self.reflector.rejected(key.cloned(), version, &error);
                Lost::Object(error)
            }
        };
        self.lost.lock().push(event);
    }

    /// Records that an item was processed.
    fn record_success(&self, deltas: &Deltas<T>) {
        let missing = self.reflector.missing();
        match deltas.newest() {
            None | Some(Delta::SyncAll | Delta::Bookmark(_)) => {}
            Some(Delta::ReplacedAll(_)) => missing.accepted_list(|_| false),
            // A resync may deliver an older state than the rejected one.
            Some(Delta::Sync(entry)) => {
                missing.accepted_resync(&entry.key, entry.version.as_ref());
            }
            Some(_) => {
                if let Some(key) = deltas.key() {
                    missing.accepted(key);
                }
            }
        }
    }

    /// Records that a list was processed, except for objects without a key.
    fn record_partly(&self, deltas: &Deltas<T>, errors: &[&BoxError]) {
        for error in errors {
            self.record_error(deltas, error);
        }
        // The empty key stands for objects without a key, and for those beyond the limit.
        if let Some(Delta::ReplacedAll(_)) = deltas.newest() {
            let missing = self.reflector.missing();
            missing.accepted_list(|key| key.is_empty());
        }
    }
}

/// Processes what the reflector's thread has queued, on this thread. See [`InPlace`].
struct OnReflectorThread<'a, T> {
    controller: &'a Controller<T>,
    stop: &'a Stop,
}

impl<T: Object> Consumer for OnReflectorThread<'_, T> {
    fn write(&self, write: &mut dyn FnMut()) {
        let controller = self.controller;
        let is_first = matches!(controller.in_place, InPlace::First);
        let _pop =
            (is_first && controller.queue.reserve_if_empty()).then(|| ReservedPop(controller));
        write();
    }

    fn process(&self) {
        let controller = self.controller;
        if let InPlace::All(then) = &controller.in_place {
            while !self.stop.is_stopped() && controller.queue.reserve_next() {
                if controller.process_some().is_err() {
                    self.stop.wait_timeout(PAUSE);
                }
            }
            then();
            // Everything that was read has been delivered, as callbacks may expect.
            controller.report_lost();
        }
    }

    fn has_no_thread(&self) -> bool {
        matches!(self.controller.in_place, InPlace::All(_))
    }
}

/// A pop that is reserved for this thread, so that no other thread pops. It happens on drop, also
/// if the write before it panics. Between the reservation and the pop there is only that write: user
/// code may block, and would hold up everything that waits in the queue.
struct ReservedPop<'a, T: Object>(&'a Controller<T>);

impl<T: Object> Drop for ReservedPop<'_, T> {
    fn drop(&mut self) {
        // A panic of the queue has been logged. The process loop takes what is left.
        let _ = self.0.process_some();
        self.0.report_lost();
    }
}

/// Returns the outcome of the item at this position of a batch.
fn outcome_of(position: usize, result: &Result<(), ProcessError>) -> ItemOutcome<'_> {
    match result {
        Ok(()) => ItemOutcome::Done,
        Err(ProcessError(Failure::All(error))) => ItemOutcome::Failed(error),
        Err(ProcessError(Failure::Requeue(requeue))) => ItemOutcome::Requeued(requeue),
        Err(ProcessError(Failure::Some(failed))) => {
            let errors: Vec<_> = failed.of(position).collect();
            match errors.is_empty() {
                true => ItemOutcome::Done,
                false => ItemOutcome::Partly(errors),
            }
        }
    }
}

debug_fields!(Controller<T>: name);

/// Returns the name of an informer in logs and errors.
pub(super) fn reflector_name(
    options: &ReflectorOptions,
    lister_watcher: &dyn ListerWatcher,
) -> Arc<str> {
    match options.name.as_str() {
        "" => lister_watcher.description().into(),
        name => name.into(),
    }
}

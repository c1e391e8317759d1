use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::error::InformerError;
use crate::object::Object;
use crate::panic;
use crate::queue::{Deltas, PopError, ProcessError, Queue};
use crate::reflector::{
    ListerWatcher, OnFailure, Reclaim, Reflector, ReflectorOptions, ReflectorState, ReflectorStatus,
};
use crate::stop::{Done, Stop};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, thread};
use crate::threads::{self, Owners, StackSizes};

/// The pause of the process loop after a panic in the queue.
const PAUSE: Duration = Duration::from_secs(1);

/// A callback that processes the changes of one object. The second argument is whether they belong
/// to the initial list. client-go's `ProcessFunc`.
pub type ProcessFn<T> = Box<dyn FnMut(&Deltas<T>, bool) -> Result<(), ProcessError> + Send>;

/// A callback that processes the changes of many objects at once. The second argument is whether
/// they belong to the initial list. client-go's `ProcessBatchFunc`.
pub type ProcessBatchFn<T> = Box<dyn FnMut(&[Deltas<T>], bool) -> Result<(), ProcessError> + Send>;

/// Configuration for a [`Controller`]. client-go's `cache.Config`.
#[non_exhaustive]
pub struct ControllerConfig<T> {
    /// The queue between the reflector and the process loop.
    pub queue: Arc<dyn Queue<T>>,
    /// The source of the objects.
    pub lister_watcher: Arc<dyn ListerWatcher>,
    /// Called with the changes that the process loop pops from the queue.
    pub process: ProcessFn<T>,
    /// Called with the changes of several objects, if the queue returns them together. If `None`,
    /// `process` is called for each object.
    pub process_batch: Option<ProcessBatchFn<T>>,
    /// The options of the reflector.
    pub reflector: ReflectorOptions,
    /// Called with the stop signal when the controller starts to run.
    pub(super) on_start: Option<StartCallback>,
    /// A source of unused objects that the reflector thread frees.
    pub(super) reclaim: Option<Arc<dyn Reclaim>>,
    /// Called with each failure of the reflector.
    pub(super) on_failure: Option<OnFailure>,
}

type StartCallback = Box<dyn FnOnce(&Stop) + Send>;

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
            on_start: None,
            reclaim: None,
            on_failure: None,
        }
    }
}

impl<T> fmt::Debug for ControllerConfig<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerConfig")
            .field("reflector", &self.reflector)
            .finish_non_exhaustive()
    }
}

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
    /// `None` once `run` has been called.
    process: Mutex<Option<ProcessLoop<T>>>,
    /// Whether the process loop is running; only for messages.
    processing: AtomicBool,
}

struct ProcessLoop<T> {
    one: ProcessFn<T>,
    batch: Option<ProcessBatchFn<T>>,
    on_start: Option<StartCallback>,
}

impl<T: Object + DeserializeOwned> Controller<T> {
    /// Creates a controller. It does nothing until you call [`run`](Self::run).
    pub fn new(config: ControllerConfig<T>) -> Self {
        let ControllerConfig {
            queue,
            lister_watcher,
            process,
            process_batch,
            reflector,
            on_start,
            reclaim,
            on_failure,
        } = config;
        let name = reflector_name(&reflector, &*lister_watcher);
        let sink: Arc<dyn Queue<T>> = Arc::clone(&queue);
        let reflector = Reflector::new(lister_watcher, sink, reflector);
        let reflector = reflector.reclaiming(reclaim).on_failure(on_failure);
        let process = ProcessLoop {
            one: process,
            batch: process_batch,
            on_start,
        };
        Self {
            name,
            queue,
            reflector,
            process: Mutex::new(Some(process)),
            processing: AtomicBool::new(false),
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
        let process = self.process.lock().take();
        let mut process = process.ok_or_else(|| InformerError::AlreadyStarted {
            name: Arc::clone(&self.name),
        })?;
        if let Some(on_start) = process.on_start.take() {
            on_start(stop);
        }
        let queue = Arc::clone(&self.queue);
        let _closes_queue = stop.on_stop(move || queue.close());
        log::debug!("{}: starting", self.name);
        thread::scope(|scope| {
            let owners = Owners::current();
            let stack = self.reflector.stack_sizes().of_reflector();
            let reflector = threads::named(format!("{} reflector", self.name), Some(stack));
            let reflector =
                reflector.spawn_scoped(scope, move || owners.adopt(|| self.reflector.run(stop)));
            let reflector = reflector.map_err(|error| InformerError::Thread {
                name: Arc::clone(&self.name),
                source: Arc::new(error),
            })?;
            self.processing.store(true, Ordering::Relaxed);
            self.process_loop(&mut process, stop);
            self.processing.store(false, Ordering::Relaxed);
            if let Err(panic) = reflector.join() {
                log::error!("{}: the reflector {}", self.name, panic::message(&*panic));
            }
            log::debug!("{}: stopped", self.name);
            Ok(())
        })
    }

    /// Drops the callbacks of a controller that will never run. A callback may refer to the
    /// informer that owns the controller; this reference cycle would leak both.
    pub(super) fn drop_callbacks(&self) {
        let process = self.process.lock().take();
        drop(process);
    }

    pub(super) fn stack_sizes(&self) -> StackSizes {
        self.reflector.stack_sizes()
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

    /// Returns the names of the threads that have not ended. The thread of the process loop is
    /// listed as `process` followed by the word "process".
    pub(super) fn running_threads(&self, process: &str) -> impl Iterator<Item = String> {
        let processes = self
            .processing
            .load(Ordering::Relaxed)
            .then(|| format!("{process} process"));
        let reflects = self.status().state != ReflectorState::Stopped;
        processes
            .into_iter()
            .chain(reflects.then(|| format!("{} reflector", self.name)))
    }

    /// Returns the status of the reflector.
    pub fn status(&self) -> ReflectorStatus {
        self.reflector.status()
    }

    fn process_loop(&self, process: &mut ProcessLoop<T>, stop: &Stop) {
        while !stop.is_stopped() {
            // Catch panics: the queue may be user code, and the destructors of popped objects are
            // user code as well.
            let processed = panic::catch(|| self.process_next(process));
            match processed {
                Ok(Ok(())) => {}
                // Closed by user code: there will be no more items, but the reflector continues.
                Ok(Err(PopError::Closed)) => stop.wait(),
                Ok(Err(PopError::Process { error, popped: () })) => {
                    log::error!("{}: an event was lost: {error}", self.name);
                }
                Err(panic) => {
                    log::error!("{}: the queue {panic}", self.name);
                    stop.wait_timeout(PAUSE);
                }
            }
        }
    }

    fn process_next(&self, process: &mut ProcessLoop<T>) -> Result<(), PopError<()>> {
        let ProcessLoop { one, batch, .. } = process;
        match batch {
            Some(batch) => self
                .queue
                .pop_batch(batch, one)
                .map(drop)
                .map_err(discard_popped),
            None => self.queue.pop(one).map(drop).map_err(discard_popped),
        }
    }
}

fn discard_popped<P>(error: PopError<P>) -> PopError<()> {
    match error {
        PopError::Closed => PopError::Closed,
        PopError::Process { error, .. } => PopError::Process { popped: (), error },
    }
}

impl<T> fmt::Debug for Controller<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

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

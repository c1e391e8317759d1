#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::drain::{Items, Outlet};
use super::error::InformerError;
use super::pipeline::{Pipeline, PipelineState, Shortcut};
use super::process::Reports;
use crate::base::derive::debug_fields;
use crate::base::sync::Mutex;
use crate::object::Object;
use crate::queue::{Deltas, Origin, ProcessError, Queue};
use crate::reflector::{
    InformerHooks, ListerWatcher, Reflector, ReflectorOptions, ReflectorStatus,
};
use crate::resource_version::ResourceVersion;
use crate::stop::{Done, Stop};

type ProcessFn<T> = Box<dyn FnMut(&Deltas<T>, Origin) -> Result<(), ProcessError> + Send>;

type ProcessBatchFn<T> = Box<dyn FnMut(&[Deltas<T>], Origin) -> Result<(), ProcessError> + Send>;

/// Configuration for a [`Controller`]. client-go's `cache.Config`.
#[non_exhaustive]
#[expect(
    clippy::type_complexity,
    reason = "the documentation spells the callbacks out"
)]
pub struct ControllerConfig<T> {
    /// The queue between the reflector and the process loop.
    pub queue: Arc<dyn Queue<T>>,
    /// The source of the objects.
    pub lister_watcher: Arc<dyn ListerWatcher>,
    /// Called with the changes that the process loop pops from the queue. To receive them again, it
    /// returns a [`Requeue`](crate::queue::Requeue). The process loop does not pause: if nothing else
    /// waits, the next call follows at once. A reason is logged at the level `debug`. client-go's
    /// `ProcessFunc`.
    pub process: Box<dyn FnMut(&Deltas<T>, Origin) -> Result<(), ProcessError> + Send>,
    /// Called with the changes of several objects, if the queue returns them together. If `None`,
    /// `process` is called for each object. client-go's `ProcessBatchFunc`.
    pub process_batch:
        Option<Box<dyn FnMut(&[Deltas<T>], Origin) -> Result<(), ProcessError> + Send>>,
    /// The options of the reflector.
    pub reflector: ReflectorOptions,
}

impl<T> ControllerConfig<T> {
    /// Creates a configuration with the default options for the reflector.
    pub fn new(
        queue: Arc<dyn Queue<T>>,
        lister_watcher: Arc<dyn ListerWatcher>,
        process: impl FnMut(&Deltas<T>, Origin) -> Result<(), ProcessError> + Send + 'static,
    ) -> Self {
        Self {
            queue,
            lister_watcher,
            process: Box::new(process),
            process_batch: None,
            reflector: ReflectorOptions::default(),
        }
    }
}

debug_fields!(ControllerConfig<T>: reflector);

/// Runs a reflector that fills a queue, and a process loop that empties it. client-go's
/// `Controller` of `tools/cache`.
///
/// ```
/// use std::sync::Arc;
/// use k8s_informer::{DynamicObject, Stop, Stopper};
/// use k8s_informer::informer::{ControllerConfig, Controller};
/// use k8s_informer::object::Accessor;
/// use k8s_informer::queue::{DeltaFifo, Origin};
/// use k8s_informer::reflector::{Body, ListOptions, ListWatch};
///
/// let stop = Stopper::new();
/// let pods = ListWatch::new(
///     |_: &ListOptions, _: &Stop| Ok(Body::from(r#"{"kind": "List", "metadata": {}, "items": [{"metadata": {"name": "a"}}]}"#)),
///     |_: &ListOptions, stop: &Stop| {
///         stop.wait();
///         Ok(Body::from(""))
///     },
/// );
/// let queue = Arc::new(DeltaFifo::<DynamicObject>::new(Accessor::object()));
/// let enough = stop.clone();
/// let config = ControllerConfig::new(queue, Arc::new(pods), move |deltas, origin| {
///     assert_eq!((deltas.len(), origin), (1, Origin::InitialList));
///     enough.stop();
///     Ok(())
/// });
/// let controller = Controller::new(config);
/// controller.run(&stop)?;
/// assert!(controller.has_synced());
/// # Ok::<(), k8s_informer::informer::InformerError>(())
/// ```
pub struct Controller<T> {
    state: Arc<PipelineState<T>>,
    /// `None` from the start of the run on.
    pipeline: Mutex<Option<Pipeline<T>>>,
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
        } = config;
        let name = reflector_name(&reflector, &*lister_watcher);
        let items = match process_batch {
            Some(_) => Items::Batches,
            None => Items::One,
        };
        let callbacks = Callbacks {
            process,
            process_batch,
        };
        Self::with_outlet(name, queue, lister_watcher, reflector, items, callbacks)
    }

    /// Creates a controller whose process loop calls `outlet`, which may be slow.
    pub(super) fn with_outlet(
        name: Arc<str>,
        queue: Arc<dyn Queue<T>>,
        lister_watcher: Arc<dyn ListerWatcher>,
        options: ReflectorOptions,
        items: Items,
        outlet: impl Outlet<T> + 'static,
    ) -> Self {
        let hooks = InformerHooks {
            reclaim: None,
            on_failure: None,
        };
        let sink: Arc<dyn Queue<T>> = Arc::clone(&queue);
        let reflector = Reflector::with_hooks(lister_watcher, sink, options, Some(hooks));
        let outlet = Box::new(outlet);
        let pipeline = Pipeline::new(name, queue, reflector, items, Shortcut::Never, outlet);
        Self {
            state: Arc::clone(&pipeline.state),
            pipeline: Mutex::new(Some(pipeline)),
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
        let Some(pipeline) = self.pipeline.lock().take() else {
            let name = Arc::clone(&self.state.name);
            return Err(InformerError::AlreadyStarted { name });
        };
        pipeline.run_threads(stop)
    }

    /// Whether the initial list has been processed.
    pub fn has_synced(&self) -> bool {
        self.state.queue.has_synced()
    }

    /// Returns a [`Done`] that is set when [`has_synced`](Self::has_synced) becomes true.
    pub fn synced(&self) -> Done {
        self.state.queue.synced()
    }

    /// Returns the resource version that the reflector has seen last. Processing may be behind it.
    /// `None` before the first list.
    pub fn last_sync_resource_version(&self) -> Option<ResourceVersion> {
        self.state.reflector.last_sync_resource_version()
    }

    /// Returns the status of the reflector.
    pub fn status(&self) -> ReflectorStatus {
        self.state.reflector.status()
    }
}

debug_fields!(Controller<T>, this, name: this.state.name);

/// The callbacks of a controller, which are called on the process loop.
struct Callbacks<T> {
    process: ProcessFn<T>,
    process_batch: Option<ProcessBatchFn<T>>,
}

impl<T: Object> Outlet<T> for Callbacks<T> {
    fn process(
        &mut self,
        items: &[Deltas<T>],
        origin: Origin,
        _: &mut Reports,
        _: &Stop,
    ) -> Result<(), ProcessError> {
        match (items, &mut self.process_batch) {
            ([deltas], _) => (self.process)(deltas, origin),
            (items, Some(process_batch)) => process_batch(items, origin),
            (_, None) => unreachable!("several items come only if there is a callback for them"),
        }
    }
}

/// Returns the name of an informer in logs and errors.
pub(super) fn reflector_name(
    options: &ReflectorOptions,
    lister_watcher: &dyn ListerWatcher,
) -> Arc<str> {
    match &options.name {
        None => lister_watcher.description().into(),
        Some(name) => name.as_str().into(),
    }
}

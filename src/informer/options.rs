use std::sync::Arc;

use super::delivery::Delivery;
use super::queue::InformerQueue;
use crate::base::derive::{clone_fields, debug_fields, setters};
use crate::metrics::InformerMetrics;
use crate::reflector::ReflectorOptions;
use crate::store::{Indexers, Transform};

/// Options for [`SharedIndexInformer`](crate::SharedIndexInformer). client-go's
/// `SharedIndexInformerOptions`.
///
/// ```
/// use k8s_informer::informer::SharedIndexInformerOptions;
/// use k8s_informer::reflector::ReflectorOptions;
/// use k8s_informer::store::Transform;
/// use k8s_informer::{DynamicObject, SharedIndexInformer};
/// use k8s_informer_testing::ScriptedListerWatcher;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let without_spec =
///     Transform::try_in_place(|object: &mut DynamicObject| object.edit(|fields| drop(fields.remove("spec"))));
/// let options = SharedIndexInformerOptions::new()
///     .reflector(ReflectorOptions::new().resync_period(Duration::from_secs(600)))
///     .transform(without_spec)
///     .recreation_as_delete_and_add(true);
/// // You can create several informers with the same options.
/// for _ in 0..2 {
///     let nothing = Arc::new(ScriptedListerWatcher::new([]));
///     assert!(!SharedIndexInformer::new(nothing, options.clone()).has_synced());
/// }
/// ```
#[non_exhaustive]
pub struct SharedIndexInformerOptions<T> {
    /// The indexes of the cache. You can add more later.
    pub indexers: Indexers<T>,
    /// The options of the reflector. Its `resync_period` applies to handlers that do not request a
    /// period.
    pub reflector: ReflectorOptions,
    /// The kind of queue between the reflector and the cache.
    pub queue: InformerQueue,
    /// Changes every object before it is queued. The cache and the handlers receive the changed
    /// object. If the transform fails or panics, the key of the object is reported, and its cached
    /// copy stays.
    pub transform: Option<Transform<T>>,
    /// Whether a recreation that the watch missed is delivered as a deletion and an add. A list
    /// reveals that an object was deleted and created again: the new object has another UID. By
    /// default the recreation is delivered as an update, as in client-go.
    pub recreation_as_delete_and_add: bool,
    /// Whether one thread for each namespace does everything: it lists, watches, fills the cache
    /// and calls the handlers. With several namespaces, these threads take turns at the cache and
    /// the handlers.
    ///
    /// Handlers then have no buffers. While a handler runs, the informer does not read from the
    /// server, apart from one read for each other namespace. If handlers are slower than the
    /// changes, the server ends the watch, and a list follows. With the default queue, the cache is
    /// not ahead of the notification that a handler receives.
    ///
    /// A handler that is added while the informer runs first receives the cached objects. If all of
    /// the threads await a response, another thread delivers these objects, and ends afterwards.
    /// The cache may be ahead of them.
    ///
    /// A handler must not wait for its informer: such waits return an error, and waits on a
    /// [`Done`](crate::Done) return at once. The [guide](crate::guide::tuning) has the details.
    pub one_thread: bool,
    /// Receives metrics of the queue and the cache.
    ///
    /// In a factory, a [`MetricsProvider`](crate::metrics::MetricsProvider) creates the metrics of
    /// each informer.
    pub metrics: Option<Arc<dyn InformerMetrics>>,
}

impl<T> SharedIndexInformerOptions<T> {
    /// Creates the default options.
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the indexes of the cache.
        indexers(indexers: Indexers<T>) = indexers;
        /// Sets the options of the reflector.
        reflector(options: ReflectorOptions) = options;
        /// Sets the kind of queue between the reflector and the cache.
        queue(queue: InformerQueue) = queue;
        /// Sets the function that changes every object [before it is
        /// queued](Self#structfield.transform).
        transform(transform: Transform<T>) = Some(transform);
        /// Sets whether a recreation that the watch missed is delivered as a [deletion and an
        /// add](Self#structfield.recreation_as_delete_and_add).
        recreation_as_delete_and_add(separate: bool) = separate;
        /// Sets whether [one thread](Self#structfield.one_thread) for each namespace does everything.
        one_thread(one_thread: bool) = one_thread;
        /// Sets the receiver of metrics of the queue and the cache.
        metrics(metrics: Arc<dyn InformerMetrics>) = Some(metrics);
    }

    /// Returns the delivery that the options request.
    pub(super) fn delivery(&self) -> Delivery {
        match self.one_thread {
            true => Delivery::Inline,
            false => Delivery::Threads,
        }
    }
}

impl<T> Default for SharedIndexInformerOptions<T> {
    fn default() -> Self {
        Self {
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: InformerQueue::default(),
            transform: None,
            recreation_as_delete_and_add: false,
            one_thread: false,
            metrics: None,
        }
    }
}

clone_fields!(SharedIndexInformerOptions<T>:
    indexers, reflector, queue, transform, recreation_as_delete_and_add, one_thread, metrics
);

debug_fields!(SharedIndexInformerOptions<T>: reflector, queue, recreation_as_delete_and_add);

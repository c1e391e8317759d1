use std::fmt;
use std::sync::Arc;

use super::queue::InformerQueue;
use crate::metrics::InformerMetrics;
use crate::queue::Queue;
use crate::reflector::ReflectorOptions;
use crate::store::{Indexers, Transform};

/// Puts something of yours around the queue of an informer.
pub type WrapQueue<T> = Arc<dyn Fn(Arc<dyn Queue<T>>) -> Arc<dyn Queue<T>> + Send + Sync>;

/// What may be said of a shared informer. client-go's `SharedIndexInformerOptions`.
///
/// ```
/// use k8s_informer::testing::ScriptedListerWatcher;
/// use k8s_informer::{DynamicObject, SharedIndexInformer};
/// use k8s_informer::informer::SharedIndexInformerOptions;
/// use k8s_informer::store::Transform;
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// let mut options = SharedIndexInformerOptions::<DynamicObject>::default();
/// options.reflector.resync_period = Duration::from_secs(600);
/// options.transform = Some(Transform::try_in_place(|object: &mut DynamicObject| {
///     object.edit(|fields| drop(fields.remove("spec")))
/// }));
/// options.recreation_as_delete_and_add = true;
/// // Several informers may be made of them.
/// for _ in 0..2 {
///     let nothing = Arc::new(ScriptedListerWatcher::new([]));
///     assert!(!SharedIndexInformer::new(nothing, options.clone()).has_synced());
/// }
/// ```
pub struct SharedIndexInformerOptions<T> {
    /// The indices of the cache; more can be added later.
    pub indexers: Indexers<T>,
    /// How the reflector goes about it. Its `resync_period` is the period of handlers that ask for none; its
    /// `should_resync` is the informer's own.
    pub reflector: ReflectorOptions,
    /// What is between the reflector and the cache.
    pub queue: InformerQueue,
    /// Changes every object before it is queued: what is cached, and what handlers get, is what it makes of
    /// them. One that it fails on, or panics, is reported by its key, and its cached copy stays.
    pub transform: Option<Transform<T>>,
    /// Whether an object that was deleted and created again while nobody watched, which a list gives away by
    /// its UID, is told as a deletion and an add. By default it is told as an update, as in client-go (I18).
    pub recreation_as_delete_and_add: bool,
    /// Is told how the queue and the cache stand. A [`MetricsProvider`](crate::metrics::MetricsProvider) gives one to
    /// each informer of a factory, and, by
    /// [`InformerNameAndResource::metrics`](crate::metrics::InformerNameAndResource::metrics), to one that no factory
    /// makes.
    pub metrics: Option<Arc<dyn InformerMetrics>>,
    /// Puts something around the queue: to hold it, to count, to look on. It has to hand on everything, the
    /// [staging](crate::store::ReflectorStore::staging) too. Without its own
    /// [`apply`](crate::store::ReflectorStore::apply) and [`pop_batch`](crate::queue::Queue::pop_batch), changes pass it one by
    /// one. One for each namespace, if there are several.
    pub wrap_queue: Option<WrapQueue<T>>,
}

impl<T> Default for SharedIndexInformerOptions<T> {
    fn default() -> Self {
        Self {
            indexers: Indexers::new(),
            reflector: ReflectorOptions::default(),
            queue: InformerQueue::default(),
            transform: None,
            recreation_as_delete_and_add: false,
            metrics: None,
            wrap_queue: None,
        }
    }
}

impl<T> Clone for SharedIndexInformerOptions<T> {
    fn clone(&self) -> Self {
        Self {
            indexers: self.indexers.clone(),
            reflector: self.reflector.clone(),
            queue: self.queue,
            transform: self.transform.clone(),
            recreation_as_delete_and_add: self.recreation_as_delete_and_add,
            metrics: self.metrics.clone(),
            wrap_queue: self.wrap_queue.clone(),
        }
    }
}

impl<T> fmt::Debug for SharedIndexInformerOptions<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedIndexInformerOptions")
            .field("reflector", &self.reflector)
            .field("queue", &self.queue)
            .field(
                "recreation_as_delete_and_add",
                &self.recreation_as_delete_and_add,
            )
            .finish_non_exhaustive()
    }
}

use std::sync::Arc;

use super::process::IndexerPart;
use crate::metrics::InformerMetrics;
use crate::object::Object;
use crate::queue::{DeltaFifo, Queue, RealFifo};
use crate::store::Transform;
use crate::time::Clock;

/// The kind of queue between an informer's reflector and its cache.
///
/// ```
/// use k8s_informer::DynamicObject;
/// use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
///
/// let mut options = SharedIndexInformerOptions::<DynamicObject>::default();
/// assert_eq!(options.queue, InformerQueue::DeltaFifo);
/// options.queue = InformerQueue::RealFifo;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerQueue {
    /// A [`DeltaFifo`]: groups the changes of one object, so a burst of changes takes one entry. A
    /// list reaches the cache object by object.
    #[default]
    DeltaFifo,
    /// A [`RealFifo`], client-go's current default: keeps all changes in order. A
    /// list reaches the cache in one step.
    ///
    /// Every deletion is delivered, as in client-go, even if the object is not in the cache. A
    /// deletion that the server sends twice reaches the handlers twice.
    RealFifo,
}

/// The options that all kinds of queues have.
pub(super) struct QueueOptions<T> {
    pub(super) name: Arc<str>,
    pub(super) transform: Option<Transform<T>>,
    pub(super) metrics: Option<Arc<dyn InformerMetrics>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl<T> QueueOptions<T> {
    pub(super) fn new(name: Arc<str>, clock: Arc<dyn Clock>) -> Self {
        Self {
            name,
            transform: None,
            metrics: None,
            clock,
        }
    }
}

impl InformerQueue {
    /// Creates a queue for this part of the cache.
    pub(super) fn build<T: Object>(
        self,
        part: &Arc<IndexerPart<T>>,
        options: QueueOptions<T>,
    ) -> Arc<dyn Queue<T>> {
        let QueueOptions {
            name,
            transform,
            metrics,
            clock,
        } = options;
        let accessor = part.accessor();
        let known: Arc<IndexerPart<T>> = Arc::clone(part);
        if self == Self::DeltaFifo {
            let mut queue = DeltaFifo::builder(accessor)
                .known_objects(known)
                .emit_replaced(true);
            queue = queue.name(&*name).clock(clock);
            queue = transform
                .into_iter()
                .fold(queue, |queue, transform| queue.transform(transform));
            queue = metrics
                .into_iter()
                .fold(queue, |queue, metrics| queue.metrics(metrics));
            return Arc::new(queue.build());
        }
        let mut queue = RealFifo::builder(accessor)
            .known_objects(known)
            .name(&*name)
            .clock(clock);
        queue = transform
            .into_iter()
            .fold(queue, |queue, transform| queue.transform(transform));
        queue = metrics
            .into_iter()
            .fold(queue, |queue, metrics| queue.metrics(metrics));
        Arc::new(queue.build())
    }
}

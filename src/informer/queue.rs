use std::sync::Arc;

use crate::object::{Accessor, Object};
use crate::queue::{DeltaFifo, Queue, RealFifo, RealFifoMode};
use crate::store::Indexer;

/// Which queue an informer has between its reflector and its cache.
///
/// ```
/// use k8s_informer::{DynamicObject, InformerQueue, SharedIndexInformerOptions};
///
/// let mut options = SharedIndexInformerOptions::<DynamicObject>::default();
/// assert_eq!(options.queue, InformerQueue::DeltaFifo);
/// options.queue = InformerQueue::RealFifoAtomic;
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum InformerQueue {
    /// A [`DeltaFifo`]: the changes of one object together, so that a burst of them costs one entry; a list
    /// reaches the cache object by object.
    #[default]
    DeltaFifo,
    /// A [`RealFifo`] in atomic mode, today's default of client-go: all changes in order, and a list at once.
    RealFifoAtomic,
    /// A [`RealFifo`] in order: all changes in order, and a list object by object.
    RealFifoInOrder,
}

impl InformerQueue {
    /// The queue before this cache.
    pub(super) fn build<T: Object>(self, indexer: &Arc<Indexer<T>>) -> Arc<dyn Queue<T>> {
        let cache: Arc<Indexer<T>> = Arc::clone(indexer);
        let accessor = Accessor::object();
        match self {
            Self::DeltaFifo => {
                Arc::new(DeltaFifo::builder(accessor).known_objects(cache).emit_replaced(true).build())
            }
            Self::RealFifoAtomic => {
                let mode = RealFifoMode::Atomic { unlock_while_processing: true, bookmarks: true };
                Arc::new(RealFifo::builder(accessor, mode).cache(cache).build())
            }
            Self::RealFifoInOrder => {
                Arc::new(RealFifo::builder(accessor, RealFifoMode::InOrder(cache)).build())
            }
        }
    }
}

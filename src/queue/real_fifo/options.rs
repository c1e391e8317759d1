use std::sync::Arc;

use crate::queue::options::{FrontOptions, queue_options};
use crate::store::KnownObjects;

/// Options for a [`RealFifo`](super::RealFifo). client-go's `RealFIFOOptions`.
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer};
/// use k8s_informer::object::Accessor;
/// use k8s_informer::queue::{Queue, RealFifo, RealFifoOptions};
/// use std::sync::Arc;
///
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// let options = RealFifoOptions::new().known_objects(store).name("pods");
/// let queue = RealFifo::with_options(Accessor::object(), options);
/// assert_eq!(queue.synced().name(), "pods");
/// ```
#[doc(alias = "RealFIFOOptions")]
#[must_use]
#[non_exhaustive]
pub struct RealFifoOptions<T> {
    pub(super) front: FrontOptions<T>,
}

impl<T> RealFifoOptions<T> {
    /// Sets the store of the consumer. On a relist, a reflector takes unchanged objects from it
    /// instead of decoding them. By default there is none.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.front.known_objects = Some(known_objects);
        self
    }
}

queue_options!(RealFifoOptions:);

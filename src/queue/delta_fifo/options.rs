use std::sync::Arc;

use crate::queue::options::{FrontOptions, queue_options};
use crate::store::KnownObjects;

/// Options for a [`DeltaFifo`](super::DeltaFifo). client-go's `DeltaFIFOOptions`.
///
/// ```
/// use k8s_informer::{DynamicObject, Indexer};
/// use k8s_informer::object::{Accessor, ResourceVersion};
/// use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Queue};
/// use k8s_informer::store::ReflectorStore;
/// use std::sync::Arc;
///
/// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
/// let options = DeltaFifoOptions::new().known_objects(store).emit_replaced(true).name("pods");
/// let queue = DeltaFifo::with_options(Accessor::object(), options);
/// let pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "a"}}"#)?;
/// queue.replace(vec![Arc::new(pod)], ResourceVersion::new("1"))?;
/// let deltas = queue.pop(&mut |_, _| Ok(()))?;
/// assert!(matches!(deltas.newest(), Some(Delta::Replaced(_))));
/// assert_eq!(queue.synced().name(), "pods");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[doc(alias = "DeltaFIFOOptions")]
#[must_use]
#[non_exhaustive]
pub struct DeltaFifoOptions<T> {
    pub(super) front: FrontOptions<T>,
    pub(super) emit_replaced: bool,
}

impl<T> DeltaFifoOptions<T> {
    /// Sets the known objects, usually the store that the consumer fills with the objects that it
    /// has processed. Without known objects, which is the default, deletions of objects that are
    /// not queued are dropped, and resyncs do nothing.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.front.known_objects = Some(known_objects);
        self
    }

    /// Sets whether the objects of a list are queued as
    /// [`Replaced`](crate::queue::Delta::Replaced). By default they are queued as
    /// [`Sync`](crate::queue::Delta::Sync), as in client-go. client-go's `EmitDeltaTypeReplaced`.
    #[doc(alias = "EmitDeltaTypeReplaced")]
    pub fn emit_replaced(mut self, emit_replaced: bool) -> Self {
        self.emit_replaced = emit_replaced;
        self
    }
}

queue_options!(DeltaFifoOptions: emit_replaced);

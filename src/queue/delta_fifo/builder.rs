use std::sync::Arc;

use super::DeltaFifo;
use super::grouped::Grouped;
use crate::base::derive::debug_fields;
use crate::object::Accessor;
use crate::queue::forward::builder_methods;
use crate::queue::front::Front;
use crate::store::KnownObjects;

/// Options for a [`DeltaFifo`]. client-go's `DeltaFIFOOptions`.
#[must_use]
pub struct DeltaFifoBuilder<T> {
    queue: DeltaFifo<T>,
}

impl<T> DeltaFifo<T> {
    /// Creates a builder with the default options.
    pub fn builder(accessor: Accessor<T>) -> DeltaFifoBuilder<T> {
        DeltaFifoBuilder {
            queue: Self {
                front: Front::new(accessor, "DeltaFifo", Grouped::new()),
            },
        }
    }
}

impl<T> DeltaFifoBuilder<T> {
    /// Sets the known objects, usually the store that the consumer fills with the objects that it
    /// has processed. Without known objects, which is the default, deletions of objects that are
    /// not queued are dropped, and resyncs do nothing.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.queue.front.known_objects = Some(known_objects);
        self
    }

    /// Sets whether the objects of a list are queued as
    /// [`Replaced`](crate::queue::Delta::Replaced). By default they are queued as
    /// [`Sync`](crate::queue::Delta::Sync), as in client-go.
    pub fn emit_replaced(self, emit_replaced: bool) -> Self {
        self.queue.front.lock().waiting.emit_replaced = emit_replaced;
        self
    }

    builder_methods!(DeltaFifo);
}

debug_fields!(DeltaFifoBuilder<T>, this, emit_replaced: this.queue.front.lock().waiting.emit_replaced);

use std::collections::VecDeque;
use std::sync::Arc;

use super::in_order::InOrder;
use super::{Front, RealFifo};
use crate::base::derive::debug_fields;
use crate::object::Accessor;
use crate::queue::forward::builder_methods;
use crate::store::KnownObjects;

/// Options for a [`RealFifo`]. client-go's `RealFIFOOptions`.
#[must_use]
pub struct RealFifoBuilder<T> {
    queue: RealFifo<T>,
}

impl<T> RealFifo<T> {
    /// Creates a builder with the default options.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, Indexer};
    /// use k8s_informer::object::Accessor;
    /// use k8s_informer::queue::{Queue, RealFifo};
    /// use std::sync::Arc;
    ///
    /// let store = Arc::new(Indexer::<DynamicObject>::for_objects());
    /// let queue = RealFifo::builder(Accessor::object()).known_objects(store).name("pods").build();
    /// assert_eq!(queue.synced().name(), "pods");
    /// ```
    pub fn builder(accessor: Accessor<T>) -> RealFifoBuilder<T> {
        let waiting = InOrder {
            items: VecDeque::new(),
        };
        let mut front = Front::new(accessor, "RealFifo", waiting);
        front.door = front.door.with_transformed_keys();
        RealFifoBuilder {
            queue: Self { front },
        }
    }
}

impl<T> RealFifoBuilder<T> {
    /// Sets the store of the consumer. On a relist, a reflector takes unchanged objects from it
    /// instead of decoding them. By default there is none.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.queue.front.known_objects = Some(known_objects);
        self
    }

    builder_methods!(RealFifo);
}

debug_fields!(RealFifoBuilder<T>, this, name: this.queue.front.timing.name);

use std::collections::VecDeque;
use std::sync::Arc;

use super::{RealFifo, State};
use crate::base::derive::debug_fields;
use crate::base::sync::{Condvar, Mutex};
use crate::object::Accessor;
use crate::queue::options::{QueueOptions, option_setters};
use crate::queue::version_tracker::VersionTracker;
use crate::stop::Done;
use crate::store::KnownObjects;

/// Options for a [`RealFifo`]. client-go's `RealFIFOOptions`.
#[must_use]
pub struct RealFifoBuilder<T> {
    options: QueueOptions<T>,
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
        RealFifoBuilder {
            options: QueueOptions::new(accessor, "RealFifo"),
        }
    }
}

impl<T> RealFifoBuilder<T> {
    /// Sets the store of the consumer. On a relist, a reflector takes unchanged objects from it
    /// instead of decoding them. By default there is none.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.options.known_objects = Some(known_objects);
        self
    }

    option_setters! {}

    /// Creates the queue, empty and open.
    pub fn build(self) -> RealFifo<T> {
        let QueueOptions {
            door,
            known_objects,
            timing,
        } = self.options;
        RealFifo {
            door,
            known_objects,
            synced: Done::new(timing.name.as_str()),
            timing,
            state: Mutex::new(State {
                items: VecDeque::new(),
                in_flight: None,
                populated: false,
                initial_population: 0,
                synced: false,
                closed: false,
                versions: VersionTracker::default(),
            }),
            changed: Condvar::new(),
            flight_ended: Condvar::new(),
        }
    }
}

debug_fields!(RealFifoBuilder<T>, this, name: this.options.timing.name);

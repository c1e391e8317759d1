use std::collections::VecDeque;
use std::sync::Arc;

use super::{RealFifo, State};
use crate::debug::debug_fields;
use crate::metrics::{InformerMetrics, Meter};
use crate::object::Accessor;
use crate::queue::timing::Timing;
use crate::queue::version_tracker::VersionTracker;
use crate::stop::Done;
use crate::store::{KnownObjects, Transform};
use crate::sync::{Condvar, Mutex};
use crate::time::{Clock, RealClock};

/// Options for a [`RealFifo`]. client-go's `RealFIFOOptions`.
#[must_use]
pub struct RealFifoBuilder<T> {
    accessor: Accessor<T>,
    transform: Option<Transform<T>>,
    known_objects: Option<Arc<dyn KnownObjects<T>>>,
    name: String,
    metrics: Option<Arc<dyn InformerMetrics>>,
    clock: Arc<dyn Clock>,
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
            accessor,
            transform: None,
            known_objects: None,
            name: "RealFifo".to_owned(),
            metrics: None,
            clock: Arc::new(RealClock),
        }
    }
}

impl<T> RealFifoBuilder<T> {
    /// Sets a transform that changes every object before it is queued. By default there is none.
    pub fn transform(mut self, transform: Transform<T>) -> Self {
        self.transform = Some(transform);
        self
    }

    /// Sets the store of the consumer. On a relist, a reflector takes unchanged objects from it
    /// instead of decoding them. By default there is none.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.known_objects = Some(known_objects);
        self
    }

    /// Sets the metrics that receive the number of waiting items and the processing times. By
    /// default there are none.
    pub fn metrics(mut self, metrics: Arc<dyn InformerMetrics>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets the clock that measures processing times for the metrics and the log. The queue logs
    /// slow processing if more than ten items wait. By default this is the real clock.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the name of the queue in the log, and of [`synced`](crate::queue::Queue::synced) in
    /// reports. The default is `RealFifo`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Creates the queue, empty and open.
    pub fn build(self) -> RealFifo<T> {
        let Self {
            accessor,
            transform,
            known_objects,
            name,
            metrics,
            clock,
        } = self;
        RealFifo {
            accessor,
            transform,
            known_objects,
            synced: Done::new(name.as_str()),
            timing: Timing {
                name,
                meter: Meter::new(metrics),
                clock,
            },
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

debug_fields!(RealFifoBuilder<T>, this, name: this.name);

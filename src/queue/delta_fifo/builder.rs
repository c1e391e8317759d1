use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{DeltaFifo, State};
use crate::debug::debug_fields;
use crate::metrics::{InformerMetrics, Meter};
use crate::object::Accessor;
use crate::queue::timing::Timing;
use crate::queue::version_tracker::VersionTracker;
use crate::stop::Done;
use crate::store::{KnownObjects, Transform};
use crate::sync::{Condvar, Mutex};
use crate::time::{Clock, RealClock};

/// Options for a [`DeltaFifo`]. client-go's `DeltaFIFOOptions`.
#[must_use]
pub struct DeltaFifoBuilder<T> {
    pub(super) accessor: Accessor<T>,
    pub(super) known_objects: Option<Arc<dyn KnownObjects<T>>>,
    pub(super) emit_replaced: bool,
    pub(super) transform: Option<Transform<T>>,
    pub(super) name: String,
    pub(super) metrics: Option<Arc<dyn InformerMetrics>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl<T> DeltaFifo<T> {
    /// Creates a builder with the default options.
    pub fn builder(accessor: Accessor<T>) -> DeltaFifoBuilder<T> {
        DeltaFifoBuilder {
            accessor,
            known_objects: None,
            emit_replaced: false,
            transform: None,
            name: "DeltaFifo".to_owned(),
            metrics: None,
            clock: Arc::new(RealClock),
        }
    }
}

impl<T> DeltaFifoBuilder<T> {
    /// Sets the known objects, usually the store that the consumer fills with the objects that it
    /// has processed. Without known objects, which is the default, deletions of objects that are
    /// not queued are dropped, and resyncs do nothing.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.known_objects = Some(known_objects);
        self
    }

    /// Sets whether the objects of a list are queued as
    /// [`Replaced`](crate::queue::Delta::Replaced). By default they are queued as
    /// [`Sync`](crate::queue::Delta::Sync), as in client-go.
    pub fn emit_replaced(mut self, emit_replaced: bool) -> Self {
        self.emit_replaced = emit_replaced;
        self
    }

    /// Sets a transform that changes every object before it is queued. By default there is none.
    pub fn transform(mut self, transform: Transform<T>) -> Self {
        self.transform = Some(transform);
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
    /// reports. The default is `DeltaFifo`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Creates the queue, empty and open.
    pub fn build(self) -> DeltaFifo<T> {
        let Self {
            accessor,
            known_objects,
            emit_replaced,
            transform,
            name,
            metrics,
            clock,
        } = self;
        DeltaFifo {
            accessor,
            known_objects,
            emit_replaced,
            transform,
            synced: Done::new(name.as_str()),
            timing: Timing {
                name,
                meter: Meter::new(metrics),
                clock,
            },
            state: Mutex::new(State {
                items: HashMap::new(),
                order: VecDeque::new(),
                in_flight: None,
                populated: false,
                initial_population: 0,
                closed: false,
                resyncs: 0,
                popped: HashSet::new(),
                versions: VersionTracker::default(),
            }),
            changed: Condvar::new(),
        }
    }
}

debug_fields!(DeltaFifoBuilder<T>, this, emit_replaced: this.emit_replaced);

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

use super::{DeltaFifo, State};
use crate::base::derive::debug_fields;
use crate::base::sync::{Condvar, Mutex};
use crate::object::Accessor;
use crate::queue::options::{QueueOptions, option_setters};
use crate::queue::version_tracker::VersionTracker;
use crate::stop::Done;
use crate::store::KnownObjects;

/// Options for a [`DeltaFifo`]. client-go's `DeltaFIFOOptions`.
#[must_use]
pub struct DeltaFifoBuilder<T> {
    options: QueueOptions<T>,
    emit_replaced: bool,
}

impl<T> DeltaFifo<T> {
    /// Creates a builder with the default options.
    pub fn builder(accessor: Accessor<T>) -> DeltaFifoBuilder<T> {
        DeltaFifoBuilder {
            options: QueueOptions::new(accessor, "DeltaFifo"),
            emit_replaced: false,
        }
    }
}

impl<T> DeltaFifoBuilder<T> {
    /// Sets the known objects, usually the store that the consumer fills with the objects that it
    /// has processed. Without known objects, which is the default, deletions of objects that are
    /// not queued are dropped, and resyncs do nothing.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.options.known_objects = Some(known_objects);
        self
    }

    /// Sets whether the objects of a list are queued as
    /// [`Replaced`](crate::queue::Delta::Replaced). By default they are queued as
    /// [`Sync`](crate::queue::Delta::Sync), as in client-go.
    pub fn emit_replaced(mut self, emit_replaced: bool) -> Self {
        self.emit_replaced = emit_replaced;
        self
    }

    option_setters! {}

    /// Creates the queue, empty and open.
    pub fn build(self) -> DeltaFifo<T> {
        let QueueOptions {
            door,
            known_objects,
            timing,
        } = self.options;
        DeltaFifo {
            door,
            known_objects,
            emit_replaced: self.emit_replaced,
            synced: Done::new(timing.name.as_str()),
            timing,
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

debug_fields!(DeltaFifoBuilder<T>: emit_replaced);

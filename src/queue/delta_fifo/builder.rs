use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use super::{DeltaFifo, State};
use crate::object::Accessor;
use crate::stop::Done;
use crate::store::{KnownObjects, Transform};
use crate::sync::{Condvar, Mutex};

/// Options of a [`DeltaFifo`]. client-go's `DeltaFIFOOptions`.
#[must_use]
pub struct DeltaFifoBuilder<T> {
    pub(super) accessor: Accessor<T>,
    pub(super) known_objects: Option<Arc<dyn KnownObjects<T>>>,
    pub(super) emit_replaced: bool,
    pub(super) transform: Option<Transform<T>>,
}

impl<T> DeltaFifoBuilder<T> {
    /// What the consumer has processed and kept: the store that it fills. Default: none; then deletions of
    /// what isn't queued are dropped, and nothing is resynced.
    pub fn known_objects(mut self, known_objects: Arc<dyn KnownObjects<T>>) -> Self {
        self.known_objects = Some(known_objects);
        self
    }

    /// Whether objects of a list come as [`Replaced`](crate::Delta::Replaced). Default: no, as
    /// [`Sync`](crate::Delta::Sync), as in client-go.
    pub fn emit_replaced(mut self, emit_replaced: bool) -> Self {
        self.emit_replaced = emit_replaced;
        self
    }

    /// Changes every object before it is queued. Default: none.
    pub fn transform(mut self, transform: Transform<T>) -> Self {
        self.transform = Some(transform);
        self
    }

    /// The queue, empty and open.
    pub fn build(self) -> DeltaFifo<T> {
        let Self { accessor, known_objects, emit_replaced, transform } = self;
        DeltaFifo {
            accessor,
            known_objects,
            emit_replaced,
            transform,
            synced: Done::new("DeltaFifo"),
            state: Mutex::new(State {
                items: HashMap::new(),
                order: VecDeque::new(),
                in_flight: None,
                populated: false,
                initial: 0,
                closed: false,
                resyncs: 0,
                popped: HashSet::new(),
            }),
            changed: Condvar::new(),
        }
    }
}

impl<T> fmt::Debug for DeltaFifoBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeltaFifoBuilder").field("emit_replaced", &self.emit_replaced).finish_non_exhaustive()
    }
}

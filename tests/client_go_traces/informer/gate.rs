//! A gate between the process loop and its queue. The loop pops only if an item is available and
//! the gate is open, so the test can see whether the loop waits.

use std::sync::Arc;

use k8s_informer::__private::{Sealed, Staging};
use k8s_informer::metrics::InformerMetrics;
use k8s_informer::queue::{Deltas, PopError, Process, ProcessBatch, Queue};
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::{Deleted, Done, Stop};

use super::source::Item;
use super::world::{Gate, State, World};

/// Records the length of the queue.
pub(super) struct Depth(pub(super) World);

impl InformerMetrics for Depth {
    fn queued_items(&self, items: usize) {
        self.0.change(|state| state.queued = items);
    }
}

pub(super) struct Gated {
    pub(super) world: World,
    pub(super) queue: Arc<dyn Queue<Item>>,
    /// Whether the queue stores a bookmark as an item. A `DeltaFifo` does not.
    pub(super) keeps_bookmarks: bool,
}

impl Gated {
    /// Blocks until an item may be popped or the queue is closed.
    fn pass<P>(&self) -> Result<(), PopError<P>> {
        self.world.change(|state| state.waits_to_pop = true);
        // Do not stop waiting at the informer's stop: the queue closes a moment after it.
        self.world
            .wait_until(&Stop::new(), State::may_pop, |state| {
                state.waits_to_pop = false;
                match &mut state.gate {
                    Gate::Open => Ok(()),
                    Gate::Closed { .. } if state.closed => Err(PopError::Closed),
                    Gate::Closed { passes } => {
                        *passes = passes.saturating_sub(1);
                        Ok(())
                    }
                }
            })
    }
}

impl Sealed for Gated {}

impl Queue<Item> for Gated {
    fn pop(&self, process: &mut Process<'_, Item>) -> Result<Deltas<Item>, PopError<Deltas<Item>>> {
        self.pass()?;
        self.queue.pop(process)
    }

    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, Item>,
        process: &mut Process<'_, Item>,
    ) -> Result<Vec<Deltas<Item>>, PopError<Vec<Deltas<Item>>>> {
        self.pass()?;
        self.queue.pop_batch(process_batch, process)
    }

    fn synced(&self) -> Done {
        self.queue.synced()
    }

    fn close(&self) {
        self.queue.close();
        self.world.change(|state| state.closed = true);
    }

    fn is_closed(&self) -> bool {
        self.queue.is_closed()
    }
}

impl ReflectorStore<Item> for Gated {
    fn add(&self, object: Arc<Item>) -> Result<(), StoreError> {
        self.queue.add(object)
    }

    fn update(&self, object: Arc<Item>) -> Result<(), StoreError> {
        self.queue.update(object)
    }

    fn delete(&self, object: Deleted<Item>) -> Result<(), StoreError> {
        self.queue.delete(object)
    }

    fn replace(&self, objects: Vec<Arc<Item>>, resource_version: &str) -> Result<(), StoreError> {
        self.queue.replace(objects, resource_version)
    }

    fn resync(&self) -> Result<(), StoreError> {
        self.queue.resync()
    }

    fn bookmark(&self, resource_version: &str) -> Result<(), StoreError> {
        self.queue.bookmark(resource_version)?;
        // Count the queued bookmark here, because the metrics do not count it (R22). No pop runs
        // concurrently: the process loop has settled before the source sends anything.
        self.world
            .change(|state| state.queued += usize::from(self.keeps_bookmarks));
        Ok(())
    }

    fn staging(&self) -> Option<&dyn Staging<Item>> {
        self.queue.staging()
    }
}

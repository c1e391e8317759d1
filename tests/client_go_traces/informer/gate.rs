//! A gate between the process loop and its queue. The loop pops only if an item is available and
//! the gate is open, so the test can see whether the loop waits.

use std::sync::Arc;

use k8s_informer::__private::Sealed;
use k8s_informer::__private::staging::{Applied, Door, Gaps, Staging};
use k8s_informer::metrics::InformerMetrics;
use k8s_informer::object::ResourceVersion;
use k8s_informer::queue::{Delta, Deltas, Entry, PopError, Process, ProcessBatch, Queue};
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
            .wait_until(&Stop::never(), State::may_pop, |state| {
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

impl Sealed for Gated {
    fn reserve_if_empty(&self) -> bool {
        false
    }

    fn reserve_next(&self) -> bool {
        false
    }
}

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
        self.queue.bookmark(resource_version)
    }

    fn staging(&self) -> Option<&dyn Staging<Item>> {
        Some(self)
    }
}

impl Gated {
    fn inner(&self) -> &dyn Staging<Item> {
        self.queue.staging().unwrap()
    }
}

impl Staging<Item> for Gated {
    fn door(&self) -> &Door<Item> {
        self.inner().door()
    }

    fn known(&self, key: &str) -> Option<Entry<Item>> {
        self.inner().known(key)
    }

    fn is_settled(&self) -> bool {
        self.inner().is_settled()
    }

    fn apply_entries(&self, changes: &mut Vec<Delta<Item>>) -> Applied {
        let is_bookmark = |change: &&_| matches!(change, Delta::Bookmark(_));
        let bookmarks = changes.iter().filter(is_bookmark).count();
        let applied = self.inner().apply_entries(changes);
        // The metrics do not count bookmarks (R22), so count them here. No pop runs concurrently:
        // the process loop has settled before the source sends anything.
        if self.keeps_bookmarks {
            self.world.change(|state| state.queued += bookmarks);
        }
        applied
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<Item>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<Applied, StoreError> {
        let staging = self.inner();
        staging.replace_entries(entries, gaps, resource_version)
    }
}

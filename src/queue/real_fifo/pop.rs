//! Pops of single changes and of batches.

use std::collections::HashSet;

use super::{BATCH, InOrder, RealFifo, State};
use crate::base::shrink::Shrink;
use crate::queue::body::{DeltaAccumulator, Popped};
use crate::queue::{Delta, Deltas, PopError, Process, ProcessBatch, Queue, Sealed, Watermark};
use crate::stop::Done;

impl<T> DeltaAccumulator<T> for InOrder<T> {
    fn take_one(&mut self) -> Option<Deltas<T>> {
        let deltas = self.items.pop_front();
        self.begin_flight();
        deltas
    }

    /// Removes the changes that form the next batch (R14–R16).
    fn take(&mut self, most: usize) -> Vec<Deltas<T>> {
        let mut batch: Vec<Deltas<T>> = Vec::new();
        let mut keys = HashSet::new();
        while batch.len() < most
            && let Some(next) = self.items.front()
        {
            let single = matches!(
                next.newest(),
                None | Some(Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_))
            );
            let ends_batch = single || next.key().is_none();
            if (single && !batch.is_empty())
                || next.key().is_some_and(|key| !keys.insert(key.clone()))
            {
                break;
            }
            batch.extend(self.items.pop_front());
            if ends_batch {
                break;
            }
        }
        self.begin_flight();
        batch
    }
}

impl<T> InOrder<T> {
    fn begin_flight(&mut self) {
        self.items.shrink_after_peak();
        self.is_exclusive = self.items.len() >= 2 * BATCH;
    }
}

impl<T> RealFifo<T> {
    /// Puts changes that the callback requests again back to the front, in their order.
    fn end_flight(&self, state: &mut State<T>, popped: &Popped<'_, T>) {
        if popped.processed.is_requeued() {
            for deltas in popped.deltas.iter().rev() {
                state.waiting.items.push_front(deltas.clone());
            }
            state.returned_to_front(popped.deltas.len(), popped.flight);
        }
        state.waiting.is_exclusive = false;
        self.flight_ended.notify_all();
    }
}

impl<T> Sealed for RealFifo<T> {
    fn reserve(&self, empty: bool) -> bool {
        self.body.reserve(empty)
    }
}

impl<T: Send + Sync> Queue<T> for RealFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        self.body
            .pop(process, |state, popped| self.end_flight(state, &popped))
    }

    /// Removes up to 1000 changes, each of a different object. Either all of them belong to the
    /// initial list or none. A list, a resync of all objects and a bookmark are delivered alone.
    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let end = |state: &mut State<T>, popped: Popped<'_, T>| self.end_flight(state, &popped);
        self.body.pop_batch(BATCH, process_batch, process, end)
    }

    fn synced(&self) -> Done {
        self.body.synced()
    }

    fn processed(&self) -> Option<Watermark> {
        Some(self.body.lock().versions.watermark())
    }

    fn close(&self) {
        self.body.close();
    }

    fn is_closed(&self) -> bool {
        self.body.is_closed()
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;
    use crate::object::{Accessor, KeyError};
    use crate::store::ReflectorStore;
    use std::sync::Arc;

    #[test]
    fn queue_with_few_changes_left_frees_its_memory() {
        let accessor = Accessor::new(|number: &u32| Ok::<_, KeyError>(number.to_string().into()));
        let queue = RealFifo::new(accessor);
        for number in 0..100_000 {
            queue.update(Arc::new(number)).unwrap();
        }
        for _ in 10..100_000 {
            queue.pop(&mut |_, _| Ok(())).unwrap();
        }
        let capacity = queue.body.lock().waiting.items.capacity();
        assert!(capacity < 10_000, "{capacity}");
    }
}

//! Pops of single changes and of batches.

use std::collections::HashSet;
use std::slice;

use super::{BATCH, InFlight, RealFifo, State};
use crate::base::panic::catch;
use crate::base::shrink::Shrink;
use crate::base::sync::{MutexGuard, thread};
use crate::queue::error::Processed;
use crate::queue::{
    Delta, Deltas, PopError, Process, ProcessBatch, Queue, Sealed, Turn, Watermark, wait_for_turn,
};
use crate::stop::Done;

/// The state of the queue when a pop removed its changes.
struct Popped {
    is_in_initial_list: bool,
    /// Whether `initial_population` counts the changes. The value is set when the changes are
    /// taken, because a first list that arrives after the pop does not count them (R13).
    is_initial: bool,
    /// The number of changes that remain in the queue.
    depth: usize,
}

impl<T> RealFifo<T> {
    /// Waits until there is an item and nothing is in flight. Returns `None` once the queue is
    /// closed and empty.
    fn ready(&self) -> Option<MutexGuard<'_, State<T>>> {
        wait_for_turn(self.state.lock(), &self.changed, |state| Turn {
            in_flight: state.in_flight.as_ref().map(|it| it.thread),
            is_empty: state.items.is_empty(),
            closed: state.closed,
        })
    }

    /// Records that a pop is in flight and releases the lock. The caller has already taken the
    /// changes from `items`.
    fn begin_pop(&self, mut state: MutexGuard<'_, State<T>>) -> Popped {
        state.items.shrink_after_peak();
        let exclusive = state.items.len() >= 2 * BATCH;
        state.in_flight = Some(InFlight {
            thread: thread::current().id(),
            exclusive,
        });
        let taken = Popped {
            is_in_initial_list: !state.synced,
            is_initial: state.initial_population > 0,
            depth: state.items.len(),
        };
        drop(state);
        self.timing.depth(|| self.len());
        taken
    }

    /// Ends the flight of a batch.
    fn finish_pop(&self, batch: &[Deltas<T>], taken: &Popped, processed: &Processed) {
        let mut state = self.state.lock();
        state.in_flight = None;
        for (at, deltas) in batch.iter().enumerate() {
            if processed.failed(at) {
                state.versions.record_failure(deltas.since);
            }
            state.versions.end(deltas.since);
            state.initial_population -= usize::from(taken.is_initial);
        }
        self.flight_ended.notify_all();
        self.unlock(state);
    }
}

impl<T> State<T> {
    /// Removes the changes that form the next batch (R14–R16).
    fn batch(&mut self) -> Vec<Deltas<T>> {
        let mut batch: Vec<Deltas<T>> = Vec::new();
        let most = if self.initial_population > 0 {
            self.initial_population.min(BATCH)
        } else {
            BATCH
        };
        let mut keys = HashSet::new();
        while batch.len() < most {
            let Some(next) = self.items.front() else {
                break;
            };
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
        batch
    }
}

impl<T> Sealed for RealFifo<T> {}

impl<T: Send + Sync> Queue<T> for RealFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        let Some(mut state) = self.ready() else {
            return Err(PopError::Closed);
        };
        let Some(deltas) = state.items.pop_front() else {
            return Err(PopError::Closed);
        };
        let taken = self.begin_pop(state);
        let process = || catch(|| process(&deltas, taken.is_in_initial_list));
        let processed = Processed::from(self.timing.run(1, deltas.key(), taken.depth, process));
        self.finish_pop(slice::from_ref(&deltas), &taken, &processed);
        processed.into_result(deltas)
    }

    /// Removes up to 1000 changes, each of a different object. Either all of them belong to the
    /// initial list or none. A list, a resync of all objects and a bookmark are delivered alone.
    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let Some(mut state) = self.ready() else {
            return Err(PopError::Closed);
        };
        let batch = state.batch();
        let taken = self.begin_pop(state);
        let process = || {
            catch(|| match batch.as_slice() {
                [single] => process(single, taken.is_in_initial_list),
                batch => process_batch(batch, taken.is_in_initial_list),
            })
        };
        let first = batch.first().and_then(Deltas::key);
        let processed = Processed::from(self.timing.run(batch.len(), first, taken.depth, process));
        self.finish_pop(&batch, &taken, &processed);
        processed.into_result(batch)
    }

    fn synced(&self) -> Done {
        self.synced.clone()
    }

    fn processed(&self) -> Option<Watermark> {
        Some(self.state.lock().versions.watermark())
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
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
        let capacity = queue.state.lock().items.capacity();
        assert!(capacity < 10_000, "{capacity}");
    }
}

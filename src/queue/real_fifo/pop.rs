//! Taking changes out, one or many.

use std::collections::{HashSet, VecDeque};

use super::{BATCH, Flight, KEEP, RealFifo, RealFifoMode, State};
use crate::panic::catch;
use crate::queue::error::Processed;
use crate::queue::{Delta, Deltas, PopError, Process, ProcessBatch, Queue, Watermark};
use crate::stop::Done;
use crate::sync::{MutexGuard, thread};

/// What a pop knows of what it took.
struct Taken {
    items: usize,
    in_initial_list: bool,
    /// How many of them `initial` counts. Not decided at the end: a first replace that comes meanwhile does
    /// not count them (R13).
    counted: usize,
    /// How many changes wait behind them.
    depth: usize,
}

impl<T> RealFifo<T> {
    /// Waits until there is something and nothing is in flight.
    fn ready(&self) -> Option<MutexGuard<'_, State<T>>> {
        let this = thread::current().id();
        let mut state = self.state.lock();
        loop {
            match &state.in_flight {
                // It would wait for itself. The panic is the outer pop's error.
                Some(flight) if flight.thread == this => {
                    drop(state);
                    panic!("a process callback must not pop from its queue");
                }
                Some(_) => {}
                None if !state.items.is_empty() => return Some(state),
                None if state.closed => return None,
                None => {}
            }
            self.changed.wait(&mut state);
        }
    }

    /// They are out of the queue, and processing begins.
    fn fly(&self, mut state: MutexGuard<'_, State<T>>, taken: usize) -> Taken {
        if state.items.is_empty() && state.items.capacity() > KEEP {
            state.items = VecDeque::new();
        }
        let unlocked = matches!(
            self.mode,
            RealFifoMode::Atomic {
                unlock_while_processing: true,
                ..
            }
        );
        let exclusive = !unlocked || state.items.len() >= 2 * BATCH;
        state.in_flight = Some(Flight {
            thread: thread::current().id(),
            exclusive,
        });
        let in_initial_list = !state.synced;
        let counted = taken.min(state.initial);
        let taken = Taken {
            items: taken,
            in_initial_list,
            counted,
            depth: state.items.len(),
        };
        drop(state);
        self.timing.depth(|| self.len());
        taken
    }

    /// They have been processed; `again` are those that go back to the head, last one first.
    fn land(&self, taken: &Taken, has_failed: bool, again: impl Iterator<Item = Deltas<T>>) {
        let mut state = self.state.lock();
        state.in_flight = None;
        let before = state.items.len();
        again.for_each(|deltas| state.items.push_front(deltas));
        let back = state.items.len() - before;
        if back == 0 {
            if has_failed {
                // Whichever of them it was.
                let first = state.done;
                state.told.failed(first);
            }
            state.initial -= taken.counted;
            state.done += taken.items as u64;
            state.publish();
        } else if taken.counted == 0 && state.initial > 0 {
            // They precede what came with a first replace meanwhile.
            state.initial += back;
        }
        self.landed.notify_all();
        if state.closed {
            self.changed.notify_all();
        } else if !state.items.is_empty() {
            self.changed.notify_one();
        }
        self.unlock(state);
    }
}

impl<T> State<T> {
    /// As many as go together (R14–R16).
    fn batch(&mut self) -> Vec<Deltas<T>> {
        let mut batch: Vec<Deltas<T>> = Vec::new();
        let most = if self.initial > 0 {
            self.initial.min(BATCH)
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
            let closes = single || next.key().is_none();
            if (single && !batch.is_empty())
                || next.key().is_some_and(|key| !keys.insert(key.clone()))
            {
                break;
            }
            batch.extend(self.items.pop_front());
            if closes {
                break;
            }
        }
        batch
    }
}

impl<T: Send + Sync> Queue<T> for RealFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        let Some(mut state) = self.ready() else {
            return Err(PopError::Closed);
        };
        let Some(deltas) = state.items.pop_front() else {
            return Err(PopError::Closed);
        };
        let taken = self.fly(state, 1);
        let process = || catch(|| process(&deltas, taken.in_initial_list));
        let processed = Processed::from(self.timing.run(1, deltas.key(), taken.depth, process));
        self.land(
            &taken,
            processed.result.is_err(),
            processed.again.then(|| deltas.clone()).into_iter(),
        );
        processed.answer(deltas)
    }

    /// As many as can be processed in one step: up to 1000 changes of different objects, all of the initial
    /// list or none. What is about all objects comes alone (R14–R18).
    fn pop_batch(
        &self,
        process_batch: &mut ProcessBatch<'_, T>,
        process: &mut Process<'_, T>,
    ) -> Result<Vec<Deltas<T>>, PopError<Vec<Deltas<T>>>> {
        let Some(mut state) = self.ready() else {
            return Err(PopError::Closed);
        };
        let batch = state.batch();
        let taken = self.fly(state, batch.len());
        let process = || {
            catch(|| match batch.as_slice() {
                [single] => process(single, taken.in_initial_list),
                batch => process_batch(batch, taken.in_initial_list),
            })
        };
        let first = batch.first().and_then(Deltas::key);
        let processed = Processed::from(self.timing.run(batch.len(), first, taken.depth, process));
        let again = if processed.again {
            batch.clone()
        } else {
            Vec::new()
        };
        self.land(&taken, processed.result.is_err(), again.into_iter().rev());
        processed.answer(batch)
    }

    fn has_more(&self) -> bool {
        !self.state.lock().items.is_empty()
    }

    fn synced(&self) -> Done {
        self.synced.clone()
    }

    fn processed(&self) -> Option<Watermark> {
        Some(self.state.lock().told.watermark())
    }

    fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}

//! Taking items out, and putting them back.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use super::{DeltaFifo, Flight, KEEP, Place, State, asking};
use crate::object::Key;
use crate::panic::catch;
use crate::queue::error::Processed;
use crate::queue::{Delta, Deltas, PopError, Process, Queue, Refused, Watermark};
use crate::stop::Done;
use crate::store::StoreError;
use crate::sync::thread;

struct Taken<T> {
    key: Key,
    deltas: Deltas<T>,
    in_initial_list: bool,
    /// Whether it is one of those that `initial` counts. Not decided at the end: a first replace that comes
    /// meanwhile does not count it.
    counts: bool,
    /// How many keys wait behind it.
    depth: usize,
}

impl<T> DeltaFifo<T> {
    /// Waits for an item and for nothing in flight, and takes the item out.
    fn take(&self) -> Option<Taken<T>> {
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
                None => {
                    if let Some((place, deltas)) = state.next() {
                        let since = state.since(&place);
                        // Its change may be younger than the place that it is taken from.
                        let is_younger = since.number > place.number;
                        let key = place.key;
                        let taken = Taken {
                            key: Arc::clone(&key),
                            in_initial_list: !state.synced(),
                            counts: state.initial > 0,
                            depth: state.len(),
                            deltas,
                        };
                        if state.resyncs > 0 {
                            state.popped.insert(Arc::clone(&key));
                        }
                        state.in_flight = Some(Flight::new(key, &taken.deltas, this, since));
                        if is_younger {
                            state.publish();
                        }
                        // It may have passed the last of the initial list.
                        self.unlock(state);
                        return Some(taken);
                    }
                    if state.synced() && !self.synced.is_done() {
                        // All that was left of the initial list were keys that a compressor has emptied.
                        self.unlock(state);
                        state = self.state.lock();
                        continue;
                    }
                    if state.closed {
                        return None;
                    }
                }
            }
            self.changed.wait(&mut state);
        }
    }

    /// What was in flight has been processed.
    fn land(&self, taken: &Taken<T>, processed: &Processed) {
        let mut state = self.state.lock();
        let Some(mut flight) = state.in_flight.take() else {
            return;
        };
        let missed = flight.missed.take();
        if processed.result.is_err() && !processed.again {
            state.told.failed(flight.since.number);
        }
        let mut left_out = Vec::new();
        let mut known_object = None;
        if processed.again {
            // A deletion that was missed is the one that is told again.
            left_out.extend(missed.map(|(gone, _)| Delta::Deleted(gone)));
            state.late.put(&taken.key, flight.since.clone());
            left_out.extend(self.put_back(
                &mut state,
                &taken.key,
                taken.deltas.clone(),
                taken.counts,
            ));
        } else {
            if taken.counts {
                state.initial = state.initial.saturating_sub(1);
            }
            // The deletion has failed: if the consumer still has the object, he is told of the next one.
            let known = self
                .known_objects
                .as_ref()
                .filter(|_| processed.result.is_err() && missed.is_some());
            known_object = known.map(|known| asking(|| known.get_by_key(&taken.key)));
            match missed {
                Some((gone, since)) if !matches!(known_object, None | Some(Ok(Ok(None)))) => {
                    state.late.put(&taken.key, since);
                    let deltas = Deltas::one(Some(Arc::clone(&taken.key)), Delta::Deleted(gone));
                    left_out.extend(self.put_back(&mut state, &taken.key, deltas, false));
                }
                missed => left_out.extend(missed.map(|(gone, _)| Delta::Deleted(gone))),
            }
        }
        if state.closed {
            self.changed.notify_all();
        } else if state.has_places() {
            self.changed.notify_one();
        }
        state.publish();
        self.unlock(state);
        drop((flight, left_out, known_object));
    }

    /// Queues what has been popped before, ahead of what came for its key since; `initial` says whether it
    /// still counts among the initial list. Answers what compression leaves out.
    #[must_use]
    fn put_back(
        &self,
        state: &mut State<T>,
        key: &Key,
        deltas: Deltas<T>,
        initial: bool,
    ) -> Vec<Delta<T>> {
        state.file();
        let newer = state.items.remove(key);
        if initial {
            let at = state.order.len().min(state.initial - 1);
            // As late as what it is put before.
            match state.order.get(at).map(|place| place.number) {
                Some(number) => state.order.insert(
                    at,
                    Place {
                        key: Arc::clone(key),
                        number,
                    },
                ),
                None => state.queue(key),
            }
        } else if newer.is_none() {
            state.queue(key);
        }
        let mut left_out = Vec::new();
        let mut all = deltas.keyed(key);
        for delta in newer.into_iter().flat_map(Deltas::into_vec) {
            all.push(delta);
            left_out.extend(all.compress());
        }
        state.items.insert(Arc::clone(key), all);
        left_out
    }

    /// Queues deltas that have been popped before, unless something newer waits for their key: then they are
    /// given back. client-go's `AddIfNotPresent`, which it had until 1.32.
    ///
    /// Of use where one thread writes and pops; elsewhere what is queued may be older than what the consumer
    /// has seen meanwhile, and a callback had better answer [`Requeue`](crate::Requeue).
    ///
    /// # Errors
    ///
    /// The deltas, if there are none, or if they have no key.
    pub fn add_if_not_present(
        &self,
        deltas: Deltas<T>,
    ) -> Result<Option<Deltas<T>>, Refused<Deltas<T>>> {
        let key = match self.key_of(&deltas) {
            Ok(Some(key)) => key,
            Ok(None) => {
                return Err(Refused {
                    value: deltas,
                    reason: StoreError::other("no deltas"),
                });
            }
            Err(error) => {
                return Err(Refused {
                    value: deltas,
                    reason: error.into(),
                });
            }
        };
        let mut state = self.filed();
        state.populated = true;
        let present = if state.items.contains_key(&key) {
            Some(deltas)
        } else {
            // Nothing newer waits, so nothing is left out.
            let _ = self.put_back(&mut state, &key, deltas, false);
            self.changed.notify_one();
            None
        };
        self.unlock(state);
        Ok(present)
    }
}

impl<T: Send + Sync> Queue<T> for DeltaFifo<T> {
    fn pop(&self, process: &mut Process<'_, T>) -> Result<Deltas<T>, PopError<Deltas<T>>> {
        let Some(taken) = self.take() else {
            return Err(PopError::Closed);
        };
        let process = || catch(|| process(&taken.deltas, taken.in_initial_list));
        let processed = Processed::from(self.timing.run(1, Some(&taken.key), taken.depth, process));
        self.land(&taken, &processed);
        processed.answer(taken.deltas)
    }

    fn has_more(&self) -> bool {
        // A compressor may leave nothing of what waits.
        self.compressor.is_none() && self.state.lock().len() > 0
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

impl<T> State<T> {
    /// The next item, past the keys that a compressor has left with none.
    fn next(&mut self) -> Option<(Place, Deltas<T>)> {
        if let Some(list) = &mut self.list {
            let next = list.next();
            self.list.take_if(|list| list.len() == 0);
            return next;
        }
        let next = loop {
            let Some(place) = self.order.pop_front() else {
                break None;
            };
            if let Some(deltas) = self.items.remove(&place.key) {
                break Some((place, deltas));
            }
            self.initial = self.initial.saturating_sub(1);
            self.publish();
        };
        if self.order.is_empty() && self.order.capacity() > KEEP {
            self.order = VecDeque::new();
            self.items = HashMap::new();
        }
        next
    }
}

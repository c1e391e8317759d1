//! What counts as known: the known objects, and what is being processed (D3, D6, D9).

use std::sync::Arc;

use super::{DeltaFifo, Since, State};
use crate::object::{Deleted, Key};
use crate::panic::catch;
use crate::queue::{Delta, Deltas};
use crate::store::StoreError;
use crate::sync::thread::ThreadId;

/// A key that has been popped and is being processed.
pub(super) struct Flight<T> {
    pub(super) key: Key,
    /// What the known objects will hold of it when the processing is over: nothing after a deletion.
    pub(super) newest: Option<Arc<T>>,
    pub(super) thread: ThreadId,
    /// Its oldest change.
    pub(super) since: Since,
    /// A deletion that came while another one was being processed: of no interest, unless that one fails.
    pub(super) missed: Option<(Deleted<T>, Since)>,
}

impl<T> Flight<T> {
    pub(super) fn new(key: Key, deltas: &Deltas<T>, thread: ThreadId, since: Since) -> Self {
        let newest = match deltas.newest() {
            Some(Delta::Deleted(_)) | None => None,
            Some(delta) => delta.object().cloned(),
        };
        Self {
            key,
            newest,
            thread,
            since,
            missed: None,
        }
    }

    /// Remembers a deletion, or answers the one that there is no need to remember (D4).
    pub(super) fn miss(&mut self, gone: Deleted<T>, since: Since) -> Option<Deleted<T>> {
        match &mut self.missed {
            Some((older, _)) if !older.is_final_state_unknown() => Some(gone),
            Some((older, _)) => Some(std::mem::replace(older, gone)),
            none => {
                *none = Some((gone, since));
                None
            }
        }
    }
}

/// Whether a deletion has somebody to tell.
pub(super) enum Known<T> {
    /// With what the known objects have, to be dropped without the lock.
    Yes(#[expect(dead_code, reason = "only dropped")] Option<Arc<T>>),
    /// Only if the deletion that is being processed fails.
    Leaving,
    No,
}

/// What the consumer knows. Declared before the lock is taken, and so dropped after it, whatever happens.
pub(super) struct Everything<T> {
    /// As he will know it when he has processed what is in flight; `None` where it can't be had.
    pub(super) objects: Vec<(Key, Option<Arc<T>>)>,
    /// What he knows as long as the deletion in flight has not succeeded.
    pub(super) leaving: Option<Deleted<T>>,
    problems: Problems,
}

/// What the known objects failed with, logged when dropped. A logger is user code: not under the lock.
struct Problems(Vec<String>);

impl Drop for Problems {
    fn drop(&mut self) {
        for problem in &self.0 {
            // It may be dropped by a panic; another one would end the process.
            drop(catch(|| log::error!("{problem}")));
        }
    }
}

impl<T> Everything<T> {
    pub(super) fn new() -> Self {
        Self {
            objects: Vec::new(),
            leaving: None,
            problems: Problems(Vec::new()),
        }
    }
}

impl<T> DeltaFifo<T> {
    /// The key in flight is known by its newest state. If the known objects can't tell, the deletion is told
    /// (D3).
    pub(super) fn is_known(&self, state: &State<T>, key: &str) -> Result<Known<T>, StoreError> {
        if state.items.contains_key(key) {
            return Ok(Known::Yes(None));
        }
        let Some(known) = &self.known_objects else {
            return Ok(Known::No);
        };
        Ok(match &state.in_flight {
            Some(flight) if &*flight.key == key => match flight.newest {
                Some(_) => Known::Yes(None),
                None => Known::Leaving,
            },
            _ => match asking(|| known.get_by_key(key))? {
                Ok(None) => Known::No,
                known => Known::Yes(known.ok().flatten()),
            },
        })
    }

    /// Whether anything is queued, in flight or known.
    pub(super) fn has_anything(&self, state: &State<T>) -> Result<bool, StoreError> {
        if !state.items.is_empty() || state.in_flight.is_some() {
            return Ok(true);
        }
        self.known_objects
            .as_ref()
            .map_or(Ok(false), |known| asking(|| !known.list_keys().is_empty()))
    }

    /// Looks the known objects up, but for some. What was found before one of them panics stays in
    /// `everything`.
    pub(super) fn known(
        &self,
        state: &State<T>,
        skip: impl Fn(&Key) -> bool,
        everything: &mut Everything<T>,
    ) -> Result<(), StoreError> {
        let Some(known) = &self.known_objects else {
            return Ok(());
        };
        let flight = state.in_flight.as_ref();
        let Everything {
            objects,
            leaving,
            problems,
        } = everything;
        let mut look_up = |key: &Key| {
            known.get_by_key(key).unwrap_or_else(|error| {
                problems
                    .0
                    .push(format!("{}: known object {key}: {error}", self.timing.name));
                None
            })
        };
        asking(|| {
            for key in known.list_keys() {
                if !skip(&key) && flight.is_none_or(|flight| flight.key != key) {
                    let object = look_up(&key);
                    objects.push((key, object));
                }
            }
            let Some(Flight { key, newest, .. }) = flight.filter(|flight| !skip(&flight.key))
            else {
                return;
            };
            let key = Arc::clone(key);
            match newest {
                Some(newest) => objects.push((key, Some(Arc::clone(newest)))),
                None => {
                    if let Some(object) = look_up(&key) {
                        *leaving = Some(Deleted::FinalStateUnknown {
                            key,
                            last_known: Some(object),
                        });
                    }
                }
            }
        })
    }
}

/// Asks the known objects, which are user code.
pub(super) fn asking<R>(ask: impl FnOnce() -> R) -> Result<R, StoreError> {
    catch(ask).map_err(|panic| StoreError::other(format!("the known objects {panic}")))
}

//! What counts as known: the known objects, and what is being processed (D3, D6, D9).

use std::sync::Arc;

use super::{DeltaFifo, State};
use crate::object::{Deleted, Key};
use crate::queue::{Delta, Deltas};
use crate::store::KnownObjects;
use crate::sync::thread::ThreadId;

/// A key that has been popped and is being processed.
pub(super) struct Flight<T> {
    pub(super) key: Key,
    /// What the known objects will hold of it when the processing is over: nothing after a deletion.
    pub(super) newest: Option<Arc<T>>,
    pub(super) thread: ThreadId,
    /// A deletion that came while another one was being processed: of no interest, unless that one fails.
    pub(super) missed: Option<Deleted<T>>,
}

impl<T> Flight<T> {
    pub(super) fn new(key: Key, deltas: &Deltas<T>, thread: ThreadId) -> Self {
        let newest = match deltas.newest() {
            Some(Delta::Deleted(_)) | None => None,
            Some(delta) => delta.object().cloned(),
        };
        Self { key, newest, thread, missed: None }
    }

    /// Remembers a deletion, or answers the one that there is no need to remember (D4).
    pub(super) fn miss(&mut self, gone: Deleted<T>) -> Option<Deleted<T>> {
        match &mut self.missed {
            Some(older) if !older.is_final_state_unknown() => Some(gone),
            missed => missed.replace(gone),
        }
    }
}

/// Whether a deletion has somebody to tell.
#[derive(PartialEq)]
pub(super) enum Known {
    Yes,
    /// Only if the deletion that is being processed fails.
    Leaving,
    No,
}

impl<T> DeltaFifo<T> {
    /// The key in flight is known by its newest state. If the known objects can't tell, the deletion is told
    /// (D3).
    pub(super) fn is_known(&self, state: &State<T>, key: &str) -> Known {
        if state.items.contains_key(key) {
            return Known::Yes;
        }
        let Some(known) = &self.known_objects else { return Known::No };
        match &state.in_flight {
            Some(flight) if &*flight.key == key => match flight.newest {
                Some(_) => Known::Yes,
                None => Known::Leaving,
            },
            _ if matches!(known.get_by_key(key), Ok(None)) => Known::No,
            _ => Known::Yes,
        }
    }

    /// The known objects, but for some, as the consumer will know them when it has processed what is in
    /// flight. Those that can't be had are `None`.
    pub(super) fn known(&self, state: &State<T>, skip: impl Fn(&Key) -> bool) -> Vec<(Key, Option<Arc<T>>)> {
        let Some(known) = &self.known_objects else { return Vec::new() };
        let mut objects = Vec::new();
        let flight = state.in_flight.as_ref();
        for key in known.list_keys() {
            if !skip(&key) && flight.is_none_or(|flight| flight.key != key) {
                let object = look_up(&**known, &key);
                objects.push((key, object));
            }
        }
        if let Some(Flight { key, newest: Some(newest), .. }) = flight.filter(|flight| !skip(&flight.key)) {
            objects.push((Arc::clone(key), Some(Arc::clone(newest))));
        }
        objects
    }

    /// What a list without the key in flight tells of it, if it is known and its deletion is being processed.
    pub(super) fn leaving(&self, state: &State<T>) -> Option<Deleted<T>> {
        let flight = state.in_flight.as_ref().filter(|flight| flight.newest.is_none())?;
        let last_known = look_up(&**self.known_objects.as_ref()?, &flight.key)?;
        Some(Deleted::FinalStateUnknown { key: Arc::clone(&flight.key), last_known: Some(last_known) })
    }
}

fn look_up<T>(known: &dyn KnownObjects<T>, key: &str) -> Option<Arc<T>> {
    known.get_by_key(key).unwrap_or_else(|error| {
        log::error!("known object {key}: {error}");
        None
    })
}

//! What a list and a resync come to for each object, in order.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{InFlight, RealFifo};
use crate::object::{Deleted, Key, KeyError};
use crate::panic::catch;
use crate::queue::Delta;
use crate::store::{Gaps, KnownObjects, StoreError};
use crate::sync::thread;

impl<T> RealFifo<T> {
    /// Tombstones for what is queued or known and not in the list, then the list (R5, R6).
    pub(super) fn replace_each(
        &self,
        known: &dyn KnownObjects<T>,
        objects: Vec<Arc<T>>,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let mut listed = HashSet::with_capacity(objects.len());
        for object in &objects {
            listed.insert(self.accessor.key(object)?);
        }
        // Made before anybody has to wait. Those before the one that fails count.
        let mut whole = Ok(resource_version);
        let mut replaced = Vec::with_capacity(objects.len());
        for object in objects {
            match self.prepare(object) {
                Ok(prepared) => replaced.push(prepared),
                Err(error) => {
                    whole = Err(error);
                    break;
                }
            }
        }
        self.replace_prepared(known, &listed, replaced, &Gaps::default(), whole)
    }

    /// The same for a list that has been prepared: `whole` is its version, or why it is only the part that
    /// came before an object that failed. What may be in one of its gaps is not gone.
    pub(super) fn replace_prepared(
        &self,
        known: &dyn KnownObjects<T>,
        listed: &HashSet<Key>,
        replaced: Vec<(Option<Key>, Arc<T>)>,
        gaps: &Gaps,
        whole: Result<&str, StoreError>,
    ) -> Result<(), StoreError> {
        self.exclusively(|| {
            let mut gone = Vec::new();
            let queued = self.newest_of_each()?;
            let stays = |key: &Key| listed.contains(key) || gaps.cover(key);
            for (key, delta) in queued.iter().filter(|(key, _)| !stays(key)) {
                if !matches!(delta, Delta::Deleted(_)) {
                    gone.push((Arc::clone(key), delta.object().cloned()));
                }
            }
            let queued: HashSet<Key> = queued.into_iter().map(|(key, _)| key).collect();
            for key in known.list_keys() {
                if !stays(&key) && !queued.contains(&key) {
                    let last_known = look_up(&self.timing.name, known, &key);
                    gone.push((key, last_known));
                }
            }
            let mut state = self.lock();
            for (key, last_known) in gone {
                let tombstone = Deleted::FinalStateUnknown {
                    key: Arc::clone(&key),
                    last_known,
                };
                state.push(Some(key), Delta::Deleted(tombstone));
            }
            for (key, object) in replaced {
                state.push(key, Delta::Replaced(object));
            }
            let result = whole.map(|version| {
                state.replaced();
                state.versions.list(version.into());
            });
            self.unlock(state);
            result
        })
    }

    /// What is known and has nothing queued (R9). The known objects have been transformed already.
    pub(super) fn resync_each(&self, known: &dyn KnownObjects<T>) -> Result<(), StoreError> {
        let result = self.exclusively(|| {
            let queued: HashSet<Key> = self
                .newest_of_each()?
                .into_iter()
                .map(|(key, _)| key)
                .collect();
            for known_key in known.list_keys() {
                if queued.contains(&known_key) {
                    continue;
                }
                let Some(object) = look_up(&self.timing.name, known, &known_key) else {
                    continue;
                };
                let key = self.accessor.key(&object)?;
                let mut state = self.lock();
                state.push(Some(key), Delta::Sync(object));
            }
            Ok(())
        });
        self.timing.depth(|| self.len());
        result
    }

    /// The last change of each key that is queued, in the order of their first ones.
    fn newest_of_each(&self) -> Result<Vec<(Key, Delta<T>)>, StoreError> {
        let state = self.lock();
        let mut newest: Vec<(Key, Delta<T>)> = Vec::new();
        let mut positions = HashMap::new();
        for (deltas, delta) in state
            .items
            .iter()
            .filter_map(|deltas| Some((deltas, deltas.newest()?)))
        {
            let Some(key) = deltas.key() else {
                drop(state);
                return Err(
                    KeyError::new("a queued object has lost its key in the transform").into(),
                );
            };
            match positions.get(key) {
                Some(&position) => newest[position] = (Arc::clone(key), delta.clone()),
                None => {
                    positions.insert(Arc::clone(key), newest.len());
                    newest.push((Arc::clone(key), delta.clone()));
                }
            }
        }
        Ok(newest)
    }

    /// Asks the known objects, which are user code: without the lock, while nobody else writes or pops. A
    /// panic in them is an error.
    fn exclusively(
        &self,
        section: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let thread = thread::current().id();
        let mut state = self.state.lock();
        let own = loop {
            match &state.in_flight {
                None => break true,
                // From within a process callback.
                Some(in_flight) if in_flight.thread == thread => break false,
                Some(_) => self.landed.wait(&mut state),
            }
        };
        if own {
            state.in_flight = Some(InFlight {
                thread,
                exclusive: true,
            });
        }
        drop(state);
        let result = catch(section)
            .unwrap_or_else(|panic| Err(StoreError::other(format!("the known objects {panic}"))));
        if own {
            let mut state = self.state.lock();
            state.in_flight = None;
            self.landed.notify_all();
            self.changed.notify_all();
        }
        result
    }
}

fn look_up<T>(queue: &str, known: &dyn KnownObjects<T>, key: &str) -> Option<Arc<T>> {
    match known.lookup(key) {
        Ok(object) => object,
        Err(error) => {
            log::error!("{queue}: known object {key}: {error}");
            None
        }
    }
}

//! Lists and resyncs in `InOrder` mode: one delta for each object.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::{InFlight, RealFifo};
use crate::log;
use crate::object::{Deleted, Key, KeyError};
use crate::panic::catch;
use crate::queue::Delta;
use crate::store::{Gaps, KnownObjects, StoreError};
use crate::sync::thread;

impl<T> RealFifo<T> {
    /// Queues tombstones for the objects that are queued or known but not in the list, then the
    /// list (R5, R6).
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
        // Prepare the objects first: writers have to wait once `replace_prepared` begins. If an
        // object fails, the objects before it are still queued.
        let mut version_or_error = Ok(resource_version);
        let mut replaced = Vec::with_capacity(objects.len());
        for object in objects {
            match self.prepare(object) {
                Ok(prepared) => replaced.push(prepared),
                Err(error) => {
                    version_or_error = Err(error);
                    break;
                }
            }
        }
        self.replace_prepared(known, &listed, replaced, &Gaps::default(), version_or_error)
    }

    /// Queues a prepared list. `version_or_error` is its version, or the error of the object at
    /// which `replaced` ends. Objects that may be in one of the gaps get no tombstone.
    pub(super) fn replace_prepared(
        &self,
        known: &dyn KnownObjects<T>,
        listed: &HashSet<Key>,
        replaced: Vec<(Option<Key>, Arc<T>)>,
        gaps: &Gaps,
        version_or_error: Result<&str, StoreError>,
    ) -> Result<(), StoreError> {
        self.exclusively(|| {
            let mut gone = Vec::new();
            let queued = self.newest_of_each()?;
            let may_exist = |key: &Key| listed.contains(key) || gaps.cover(key);
            for (key, delta) in queued.iter().filter(|(key, _)| !may_exist(key)) {
                if !matches!(delta, Delta::Deleted(_)) {
                    gone.push((Arc::clone(key), delta.object().cloned()));
                }
            }
            let queued: HashSet<Key> = queued.into_iter().map(|(key, _)| key).collect();
            for key in known.list_keys() {
                if !may_exist(&key) && !queued.contains(&key) {
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
            let result = version_or_error.map(|version| {
                state.replaced();
                state.versions.record_list(version.into());
            });
            self.unlock(state);
            result
        })
    }

    /// Queues the known objects that have nothing queued (R9). The transform does not run, because
    /// the known objects have already been transformed.
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

    /// Returns the last change of each queued key, in the order of the first changes.
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
                    KeyError::new("the transform removed the key of a queued object").into(),
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

    /// Runs `section` while no other thread can write or pop. `section` calls `KnownObjects`, which
    /// is user code, so the lock is not held. A panic becomes an error.
    fn exclusively(
        &self,
        section: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let thread = thread::current().id();
        let mut state = self.state.lock();
        let own = loop {
            match &state.in_flight {
                None => break true,
                // A process callback made this call, so its pop is in flight and already excludes
                // others.
                Some(in_flight) if in_flight.thread == thread => break false,
                Some(_) => self.flight_ended.wait(&mut state),
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
            self.flight_ended.notify_all();
            self.changed.notify_all();
        }
        result
    }
}

fn look_up<T>(queue: &str, known: &dyn KnownObjects<T>, key: &str) -> Option<Arc<T>> {
    match known.lookup(key) {
        Ok(object) => object,
        Err(error) => {
            log::error!("{queue}: can't look up known object {key}: {error}");
            None
        }
    }
}

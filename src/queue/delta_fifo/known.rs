//! Determines which objects the consumer has: the known objects, corrected by the keys in flight.

use std::collections::HashSet;
use std::sync::Arc;

use super::Locked;
use crate::base::panic::catch;
use crate::log;
use crate::object::Key;
use crate::store::StoreError;

/// Whether the consumer has an object, and whether a deletion of the object is therefore delivered.
pub(super) enum Known {
    Yes,
    /// The consumer keeps the object only if the deletion in flight fails.
    BeingDeleted,
    No,
}

/// A copy of the known objects. Declare the variable before taking the lock, so that it is dropped
/// after the lock is released.
pub(super) struct KnownSnapshot<T> {
    /// The known objects as they will be when everything in flight has been processed. An object is
    /// `None` if its lookup failed.
    pub(super) objects: Vec<(Key, Option<Arc<T>>)>,
    /// Objects whose deletion is in flight. They remain only if that deletion fails.
    pub(super) being_deleted: Vec<(Key, Arc<T>)>,
    problems: Problems,
}

/// Errors of calls of `KnownObjects`, logged on drop. A logger is user code and must not run under
/// the lock.
struct Problems(Vec<String>);

impl Drop for Problems {
    fn drop(&mut self) {
        for problem in &self.0 {
            log::error!("{problem}");
        }
    }
}

// `derive` would require `T: Default`.
impl<T> Default for KnownSnapshot<T> {
    fn default() -> Self {
        Self {
            objects: Vec::new(),
            being_deleted: Vec::new(),
            problems: Problems(Vec::new()),
        }
    }
}

impl<T> Locked<'_, T> {
    /// Returns whether the consumer has this key. For a key in flight, its newest state decides. If
    /// the lookup fails, returns `Yes`, so that the deletion is delivered (D3). Fails if the lookup
    /// panics.
    pub(super) fn is_known(&mut self, key: &str) -> Result<Known, StoreError> {
        if self.waiting.items.contains_key(key) {
            return Ok(Known::Yes);
        }
        let Some(known) = &self.front.known_objects else {
            return Ok(Known::No);
        };
        let mut in_flight = self.waiting.in_flight.iter();
        Ok(match in_flight.find(|taken| &*taken.key == key) {
            Some(taken) if taken.newest.is_some() => Known::Yes,
            Some(_) => Known::BeingDeleted,
            None => match call_known(|| known.lookup(key))? {
                Ok(None) => Known::No,
                Ok(Some(object)) => {
                    self.dropped.push(object);
                    Known::Yes
                }
                Err(_) => Known::Yes,
            },
        })
    }

    /// Whether the known objects have this key, or can't be read. `false` without known objects.
    pub(super) fn may_have(&mut self, key: &str) -> bool {
        let Some(known) = &self.front.known_objects else {
            return false;
        };
        match call_known(|| known.lookup(key)) {
            Ok(Ok(None)) => false,
            Ok(Ok(Some(object))) => {
                self.dropped.push(object);
                true
            }
            Ok(Err(_)) | Err(_) => true,
        }
    }

    /// Whether any object is queued, in flight or known.
    pub(super) fn has_objects(&self) -> Result<bool, StoreError> {
        if !self.waiting.items.is_empty() || !self.is_idle() {
            return Ok(true);
        }
        self.front
            .known_objects
            .as_ref()
            .map_or(Ok(false), |known| {
                call_known(|| !known.list_keys().is_empty())
            })
    }

    /// Reads all known objects except those that `skip` selects. The objects in flight come last.
    /// If reading them panics, returns an error, and `snapshot` keeps the objects that were read
    /// before the panic.
    pub(super) fn known(
        &self,
        skip: impl Fn(&Key) -> bool,
        snapshot: &mut KnownSnapshot<T>,
    ) -> Result<(), StoreError> {
        let Some(known) = &self.front.known_objects else {
            return Ok(());
        };
        let in_flight = &self.waiting.in_flight;
        let taken: HashSet<&Key> = in_flight.iter().map(|taken| &taken.key).collect();
        let KnownSnapshot {
            objects,
            being_deleted,
            problems,
        } = snapshot;
        let mut look_up = |key: &Key| {
            known.lookup(key).unwrap_or_else(|error| {
                let problem = format!(
                    "{}: can't look up known object {key}: {error}",
                    self.front.timing.name
                );
                problems.0.push(problem);
                None
            })
        };
        call_known(|| {
            for key in known.list_keys() {
                if !skip(&key) && !taken.contains(&key) {
                    let object = look_up(&key);
                    objects.push((key, object));
                }
            }
            for taken in in_flight.iter().filter(|taken| !skip(&taken.key)) {
                let key = Key::clone(&taken.key);
                match &taken.newest {
                    Some(newest) => objects.push((key, Some(Arc::clone(newest)))),
                    None => being_deleted.extend(look_up(&key).map(|object| (key, object))),
                }
            }
        })
    }
}

/// Runs a call of `KnownObjects`, which is user code, and converts a panic to an error.
pub(super) fn call_known<R>(call: impl FnOnce() -> R) -> Result<R, StoreError> {
    catch(call).map_err(|panicked| StoreError::panicked("the known objects", panicked))
}

//! Reads by key, by index, and of the whole content.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::slots::Slot;
use super::super::{Entry, IndexError, IndexFunc};
use super::{CHUNK, State, ThreadSafeStore};
use crate::base::sync::RwLockReadGuard;
use crate::object::Key;

/// How often a list starts again because of a concurrent replace. After that, it holds the lock for
/// the whole list.
const RESTARTS: usize = 2;

impl<T> ThreadSafeStore<T> {
    /// Returns the object stored under `key`.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.state
            .read()
            .slots
            .get(key)
            .map(|slot| Arc::clone(&slot.entry.object))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.read().slots.len()
    }

    /// Whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects in no particular order. [`ThreadSafeStore`] documents what the list
    /// contains during writes.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.collect(|slot| Arc::clone(&slot.entry.object))
    }

    /// Returns all entries in no particular order.
    pub(crate) fn entries(&self) -> Vec<Entry<T>> {
        self.collect(|slot| slot.entry.clone())
    }

    /// Returns the entry stored under `key`.
    pub(crate) fn entry(&self, key: &str) -> Option<Entry<T>> {
        let state = self.state.read();
        state.slots.get(key).map(|slot| slot.entry.clone())
    }

    /// Returns all keys in no particular order. [`ThreadSafeStore`] documents what the list
    /// contains during writes.
    pub fn list_keys(&self) -> Vec<Key> {
        self.collect(|slot| Arc::clone(&slot.entry.key))
    }

    /// Returns all objects at one point in time, and the resource version at that time. Writers
    /// block meanwhile: tens of milliseconds for a million objects.
    pub fn snapshot(&self) -> (Vec<Arc<T>>, String) {
        let state = self.state.read();
        let mut objects = Vec::with_capacity(state.slots.len());
        objects.extend(
            state
                .slots
                .range(0, usize::MAX)
                .map(|slot| Arc::clone(&slot.entry.object)),
        );
        (objects, state.resource_version.to_string())
    }

    /// Returns the objects with this index value, in no particular order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.lookup(name, &[value], |slot| Arc::clone(&slot.entry.object))
    }

    /// Returns the sorted keys of the objects with this index value.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
        let mut keys = self.lookup(name, &[value], |slot| Arc::clone(&slot.entry.key))?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns the objects that share an index value with `object`, each once, in no particular
    /// order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`. [`IndexError::Function`] if the index
    /// function fails or panics for `object`.
    pub fn index(&self, name: &str, object: &T) -> Result<Vec<Arc<T>>, IndexError> {
        let function = self.index_func(name)?;
        let mut values = function
            .values(object)
            .map_err(|message| IndexError::Function {
                name: name.into(),
                message: message.into(),
            })?;
        values.sort_unstable();
        values.dedup();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.lookup(name, &values, |slot| Arc::clone(&slot.entry.object))
    }

    fn index_func(&self, name: &str) -> Result<IndexFunc<T>, IndexError> {
        let functions = Arc::clone(&self.state.read().functions);
        let registered = functions
            .iter()
            .find(|registered| registered.ready && &*registered.name == name);
        match registered {
            Some(registered) => Ok(registered.function.clone()),
            None => Err(IndexError::NoIndex { name: name.into() }),
        }
    }

    /// Returns all current values of an index in no particular order. If there are more than 4096
    /// values, they may be from several points in time.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`. client-go returns an empty list
    /// instead.
    pub fn list_index_func_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError> {
        let mut restarts = RESTARTS;
        'again: loop {
            let mut found: Vec<Arc<str>> = Vec::new();
            let mut part = 0;
            let mut state = self.state.read();
            let generation = state.generation;
            loop {
                let chunk = if restarts == 0 { usize::MAX } else { CHUNK };
                let end = found.len().saturating_add(chunk);
                let id = state.ready(name)?;
                let mut parts = state.slots.values(id).skip(part);
                let more = loop {
                    let Some(values) = parts.next() else {
                        break false;
                    };
                    found.extend(values.cloned());
                    part += 1;
                    if found.len() >= end {
                        break true;
                    }
                };
                drop(parts);
                if !more {
                    return Ok(found);
                }
                state = self.yield_lock(state, || found.reserve(4 * CHUNK));
                if state.generation != generation {
                    drop(state);
                    restarts -= 1;
                    continue 'again;
                }
            }
        }
    }

    /// Returns the sorted names of the indexes.
    pub fn get_indexers(&self) -> Vec<Arc<str>> {
        let functions = Arc::clone(&self.state.read().functions);
        let ready = functions.iter().filter(|registered| registered.ready);
        let mut names: Vec<Arc<str>> = ready
            .map(|registered| Arc::clone(&registered.name))
            .collect();
        names.sort_unstable();
        names
    }

    /// Applies `of` to every slot, one chunk per lock. It skips slots whose key was inserted after
    /// the first chunk began: otherwise a key that was removed and inserted again could be visited
    /// twice, in two slots. Slots do not move, so a slot that stays is visited once.
    fn collect<R>(&self, of: impl Fn(&Slot<T>) -> R) -> Vec<R> {
        let mut restarts = RESTARTS;
        loop {
            let mut found = Vec::with_capacity(self.len());
            let mut chunk = CHUNK;
            let mut from = 0;
            let mut state = self.state.read();
            let (generation, began) = (state.generation, state.slots.now());
            loop {
                if restarts == 0 {
                    chunk = usize::MAX;
                }
                let slots = state
                    .slots
                    .range(from, chunk)
                    .filter(|slot| slot.inserted_at <= began);
                found.extend(slots.map(&of));
                from = from.saturating_add(chunk);
                if from >= state.slots.extent() {
                    return found;
                }
                state = self.yield_lock(state, || found.reserve(CHUNK));
                if state.generation != generation {
                    break;
                }
            }
            drop(state);
            // Dropping the last reference to a replaced object runs its destructor. That must not
            // happen under the lock.
            drop(found);
            restarts -= 1;
        }
    }

    /// Applies `of` to every slot with one of these index values, in the same way as `collect`.
    fn lookup<R>(
        &self,
        name: &str,
        values: &[&str],
        of: impl Fn(&Slot<T>) -> R,
    ) -> Result<Vec<R>, IndexError> {
        let mut restarts = RESTARTS;
        'again: loop {
            let mut found = Vec::new();
            let mut seen = HashSet::new();
            let mut state = self.state.read();
            let (generation, began) = (state.generation, state.slots.now());
            for value in values {
                let mut from = Some(0);
                while let Some(next) = from {
                    let id = state.ready(name)?;
                    let chunk = if restarts == 0 { usize::MAX } else { CHUNK };
                    from = None;
                    if found.capacity() == 0 {
                        found.reserve(state.slots.indexed_len(id, value).min(chunk));
                    }
                    for (visited, (at, slot)) in state.slots.indexed(id, value, next).enumerate() {
                        if visited == chunk {
                            from = Some(at);
                            break;
                        }
                        if slot.inserted_at <= began && (values.len() == 1 || seen.insert(at)) {
                            found.push(of(slot));
                        }
                    }
                    if from.is_some() {
                        state = self.yield_lock(state, || found.reserve(CHUNK));
                        if state.generation != generation {
                            drop(state);
                            restarts -= 1;
                            continue 'again;
                        }
                    }
                }
            }
            return Ok(found);
        }
    }

    /// Releases the lock so that waiting writers can run, calls `meanwhile`, and takes the lock
    /// again.
    fn yield_lock<'a>(
        &'a self,
        state: RwLockReadGuard<'a, State<T>>,
        meanwhile: impl FnOnce(),
    ) -> RwLockReadGuard<'a, State<T>> {
        RwLockReadGuard::unlock_fair(state);
        meanwhile();
        self.state.read()
    }
}

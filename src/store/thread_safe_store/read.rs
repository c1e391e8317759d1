//! Reading: what is there, by key, by index, and all of it.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::slots::Slot;
use super::super::{IndexError, IndexFunc};
use super::{CHUNK, State, ThreadSafeStore};
use crate::object::Key;
use crate::sync::RwLockReadGuard;

/// How often a list starts again because everything was replaced under it, before it holds the lock for all
/// of it.
const RESTARTS: usize = 2;

impl<T> ThreadSafeStore<T> {
    /// The object with this key.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.state
            .read()
            .slots
            .get(key)
            .map(|slot| Arc::clone(&slot.object))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.state.read().slots.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All objects, in no order; see the type for what that means while others write.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.collect(|slot| Arc::clone(&slot.object))
    }

    /// All objects with their keys, in no order.
    pub(crate) fn entries(&self) -> Vec<(Key, Arc<T>)> {
        self.collect(|slot| (Arc::clone(&slot.key), Arc::clone(&slot.object)))
    }

    /// All keys, in no order; see the type for what that means while others write.
    pub fn list_keys(&self) -> Vec<Key> {
        self.collect(|slot| Arc::clone(&slot.key))
    }

    /// All objects at one point in time, and the resourceVersion of that moment. Writers wait meanwhile: tens
    /// of milliseconds with a million objects.
    pub fn snapshot(&self) -> (Vec<Arc<T>>, String) {
        let state = self.state.read();
        let mut objects = Vec::with_capacity(state.slots.len());
        objects.extend(
            state
                .slots
                .range(0, usize::MAX)
                .map(|slot| Arc::clone(&slot.object)),
        );
        (objects, state.resource_version.clone())
    }

    /// The objects that an index has under a value, in no order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`].
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.lookup(name, &[value], |slot| Arc::clone(&slot.object))
    }

    /// The keys that an index has under a value, sorted.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`].
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
        let mut keys = self.lookup(name, &[value], |slot| Arc::clone(&slot.key))?;
        keys.sort_unstable();
        Ok(keys)
    }

    /// The objects that share a value of an index with this one, each once, in no order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`]; [`IndexError::Function`] if the index function fails or panics on the object.
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
        self.lookup(name, &values, |slot| Arc::clone(&slot.object))
    }

    /// What an index has under a value, with the keys, in no order.
    pub(in crate::store) fn index_entries(
        &self,
        name: &str,
        value: &str,
    ) -> Result<Vec<(Key, Arc<T>)>, IndexError> {
        self.lookup(name, &[value], |slot| {
            (Arc::clone(&slot.key), Arc::clone(&slot.object))
        })
    }

    /// The function of an index.
    pub(in crate::store) fn index_func(&self, name: &str) -> Result<IndexFunc<T>, IndexError> {
        let functions = Arc::clone(&self.state.read().functions);
        let registered = functions
            .iter()
            .find(|registered| registered.ready && &*registered.name == name);
        match registered {
            Some(registered) => Ok(registered.function.clone()),
            None => Err(IndexError::NoIndex { name: name.into() }),
        }
    }

    /// All values that an index has, in no order; of more than 4096 not at one point in time, as with a list.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`]: client-go answers that there are none (X11).
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
                state = self.give_way(state, || found.reserve(4 * CHUNK));
                if state.generation != generation {
                    drop(state);
                    restarts -= 1;
                    continue 'again;
                }
            }
        }
    }

    /// The names of the indices, sorted.
    pub fn get_indexers(&self) -> Vec<Arc<str>> {
        let functions = Arc::clone(&self.state.read().functions);
        let ready = functions.iter().filter(|registered| registered.ready);
        let mut names: Vec<Arc<str>> = ready
            .map(|registered| Arc::clone(&registered.name))
            .collect();
        names.sort_unstable();
        names
    }

    /// `of` every slot, a chunk per hold of the lock. A slot whose key came after the first hold is left out,
    /// so that a key that left and came back into another slot isn't met twice; slots don't move, so one
    /// that stays is met once.
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
                    .filter(|slot| slot.born <= began);
                found.extend(slots.map(&of));
                from = from.saturating_add(chunk);
                if from >= state.slots.extent() {
                    return found;
                }
                state = self.give_way(state, || found.reserve(CHUNK));
                if state.generation != generation {
                    break;
                }
            }
            drop(state);
            // What was found belongs to content that is gone: dropping it may be the end of it, so not under
            // the lock.
            drop(found);
            restarts -= 1;
        }
    }

    /// `of` every slot that an index has under one of some values, in the manner of `collect`.
    fn lookup<R>(
        &self,
        name: &str,
        values: &[&str],
        of: impl Fn(&Slot<T>) -> R,
    ) -> Result<Vec<R>, IndexError> {
        let mut restarts = RESTARTS;
        'again: loop {
            let mut found = Vec::new();
            let mut met = HashSet::new();
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
                        if slot.born <= began && (values.len() == 1 || met.insert(at)) {
                            found.push(of(slot));
                        }
                    }
                    if from.is_some() {
                        state = self.give_way(state, || found.reserve(CHUNK));
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

    /// Lets writers in that wait, does something without the lock, and takes it again.
    fn give_way<'a>(
        &'a self,
        state: RwLockReadGuard<'a, State<T>>,
        meanwhile: impl FnOnce(),
    ) -> RwLockReadGuard<'a, State<T>> {
        RwLockReadGuard::unlock_fair(state);
        meanwhile();
        self.state.read()
    }
}

//! Reads by key, by index, and of the whole content.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::pages::Pages;
use super::super::slots::Slot;
use super::super::{IndexError, IndexFunc};
use super::{State, ThreadSafeStore};
use crate::base::sync::RwLockReadGuard;
use crate::entry::Entry;
use crate::object::Key;

/// A read of at most this many items holds the lock, for a few tens of microseconds. A longer one
/// shares the content with the store, and writes then copy what they change. In interleaving tests,
/// where stores are small, the number is two.
const MOST_UNDER_LOCK: usize = if cfg!(shuttle) { 2 } else { 4096 };

impl<T> ThreadSafeStore<T> {
    /// Returns the object stored under `key`.
    pub fn get(&self, key: &str) -> Option<Arc<T>> {
        self.state
            .read()
            .slots
            .get(key)
            .map(|slot| Arc::clone(&slot.object))
    }

    /// Returns the number of objects.
    pub fn len(&self) -> usize {
        self.state.read().slots.pages().len()
    }

    /// Whether the store has no objects.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all objects in no particular order.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.collect(|slot| Arc::clone(&slot.object))
    }

    /// Returns all entries in no particular order.
    pub(crate) fn entries(&self) -> Vec<Entry<T>> {
        self.collect(|slot| slot.entry())
    }

    /// Returns the entry stored under `key`.
    pub(crate) fn entry(&self, key: &str) -> Option<Entry<T>> {
        let state = self.state.read();
        state.slots.get(key).map(Slot::entry)
    }

    /// Returns all keys in no particular order.
    pub fn list_keys(&self) -> Vec<Key> {
        self.collect(|slot| Key::clone(&slot.key))
    }

    /// Returns the objects with this index value, in no particular order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn by_index(&self, name: &str, value: &str) -> Result<Vec<Arc<T>>, IndexError> {
        self.lookup(name, &[value], |slot| Arc::clone(&slot.object))
    }

    /// Returns the objects with this index value, like [`by_index`](Self::by_index), but only if no
    /// object is unindexed.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`. [`IndexError::Unindexed`] if its function
    /// failed for a stored object, which might belong to the result.
    pub(crate) fn by_complete_index(
        &self,
        name: &str,
        value: &str,
    ) -> Result<Vec<Arc<T>>, IndexError> {
        let state = self.state.read();
        let id = state.ready(name)?;
        if let Some((key, _)) = state.slots.unindexed(|failed| failed == id).next() {
            let (name, key) = (name.into(), Key::clone(key));
            return Err(IndexError::Unindexed { name, key });
        }
        Ok(Self::visit(state, id, &[value], |slot| {
            Arc::clone(&slot.object)
        }))
    }

    /// Returns the sorted keys of the objects for which the function of this index failed. See
    /// [`IndexFunc`](super::super::IndexFunc).
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub(crate) fn unindexed(&self, name: &str) -> Result<Vec<Key>, IndexError> {
        let state = self.state.read();
        let id = state.ready(name)?;
        let keys = state.slots.unindexed(|failed| failed == id);
        let mut keys: Vec<Key> = keys.map(|(key, _)| Key::clone(key)).collect();
        drop(state);
        keys.sort_unstable();
        Ok(keys)
    }

    /// Returns the number of objects that are unindexed in any index, of those whose keys `is_wanted`
    /// selects.
    pub(crate) fn count_unindexed(&self, is_wanted: impl Fn(&Key) -> bool) -> usize {
        let state = self.state.read();
        let unindexed = state.slots.unindexed(|id| state.is_ready(id));
        unindexed.filter(|(key, _)| is_wanted(key)).count()
    }

    /// Returns the sorted keys of the objects with this index value.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`.
    pub fn index_keys(&self, name: &str, value: &str) -> Result<Vec<Key>, IndexError> {
        let mut keys = self.lookup(name, &[value], |slot| Key::clone(&slot.key))?;
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
            .map_err(|error| IndexError::Function {
                name: name.into(),
                error,
            })?;
        values.sort_unstable();
        values.dedup();
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        self.lookup(name, &values, |slot| Arc::clone(&slot.object))
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

    /// Returns all current values of an index in no particular order.
    ///
    /// # Errors
    ///
    /// [`IndexError::NoIndex`] if there is no index `name`. client-go returns an empty list
    /// instead.
    #[doc(alias = "ListIndexFuncValues")]
    pub fn index_values(&self, name: &str) -> Result<Vec<Arc<str>>, IndexError> {
        let state = self.state.read();
        let Some(index) = state.slots.index(state.ready(name)?) else {
            return Ok(Vec::new());
        };
        let count = index.len();
        if count <= MOST_UNDER_LOCK {
            return Ok(index.keys().cloned().collect());
        }
        let index = index.clone();
        drop(state);
        let mut values = Vec::with_capacity(count);
        values.extend(index.keys().cloned());
        Ok(values)
    }

    /// Returns the sorted names of the indexes.
    #[doc(alias = "GetIndexers")]
    pub fn index_names(&self) -> Vec<Arc<str>> {
        let functions = Arc::clone(&self.state.read().functions);
        let ready = functions.iter().filter(|registered| registered.ready);
        let mut names: Vec<Arc<str>> = ready
            .map(|registered| Arc::clone(&registered.name))
            .collect();
        names.sort_unstable();
        names
    }

    fn collect<R>(&self, of: impl Fn(&Slot<T>) -> R) -> Vec<R> {
        let state = self.state.read();
        let count = state.slots.pages().len();
        Self::walk(state, count, |pages| {
            let mut found = Vec::with_capacity(count);
            found.extend(pages.iter().map(of));
            found
        })
    }

    /// Applies `of` once to every slot with one of these index values.
    fn lookup<R>(
        &self,
        name: &str,
        values: &[&str],
        of: impl Fn(&Slot<T>) -> R,
    ) -> Result<Vec<R>, IndexError> {
        let state = self.state.read();
        let id = state.ready(name)?;
        Ok(Self::visit(state, id, values, of))
    }

    /// Returns the objects with one of the values of an index: of these indexes, the one with the
    /// fewest such objects. Returns `None` if there is none of the indexes.
    pub(crate) fn by_fewest(&self, choices: &[(String, Vec<&str>)]) -> Option<Vec<Arc<T>>> {
        let state = self.state.read();
        let count = |id: u32, values: &[&str]| -> usize {
            let index = state.slots.index(id);
            let sets = values.iter().filter_map(|value| index?.get(value));
            sets.map(BTreeSet::len).sum()
        };
        let ready = choices
            .iter()
            .filter_map(|(name, values)| Some((state.ready(name).ok()?, values)))
            // An unindexed object might match, so such an index is no choice.
            .filter(|(id, _)| {
                state
                    .slots
                    .unindexed(|failed| failed == *id)
                    .next()
                    .is_none()
            });
        let (id, values) = ready.min_by_key(|(id, values)| count(*id, values))?;
        Some(Self::visit(state, id, values, |slot| {
            Arc::clone(&slot.object)
        }))
    }

    fn visit<R>(
        state: RwLockReadGuard<'_, State<T>>,
        id: u32,
        values: &[&str],
        of: impl Fn(&Slot<T>) -> R,
    ) -> Vec<R> {
        let index = state.slots.index(id);
        let sets = values.iter().filter_map(|value| index?.get(value));
        let sets: Vec<&BTreeSet<u32>> = sets.collect();
        let count = sets.iter().map(|set| set.len()).sum();
        let mut found = Vec::with_capacity(count);
        if let [set] = sets[..]
            && count <= MOST_UNDER_LOCK
        {
            let slots = set
                .iter()
                .filter_map(|&at| state.slots.pages().get(at as usize));
            found.extend(slots.map(of));
            return found;
        }
        let mut numbers: Vec<u32> = Vec::with_capacity(count);
        sets.iter().for_each(|set| numbers.extend(*set));
        Self::walk(state, count, |pages| {
            numbers.sort_unstable();
            numbers.dedup();
            let slots = numbers.iter().filter_map(|&at| pages.get(at as usize));
            found.extend(slots.map(of));
        });
        found
    }

    /// Calls `read` with the slots, of which it visits `count`: with the lock if these are few.
    /// Otherwise it releases the lock first and shares the pages.
    fn walk<R>(
        state: RwLockReadGuard<'_, State<T>>,
        count: usize,
        read: impl FnOnce(&Pages<Slot<T>>) -> R,
    ) -> R {
        if count <= MOST_UNDER_LOCK {
            return read(state.slots.pages());
        }
        let pages = state.slots.pages().clone();
        drop(state);
        read(&pages)
    }
}

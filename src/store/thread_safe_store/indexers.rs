//! Adds indexes to a filled store while other threads read and write.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::index::{Registered, compute};
use super::super::{AddIndexersError, Indexers, StoreError};
use super::{CHUNK, ThreadSafeStore};
use crate::base::sync::RwLockWriteGuard;
use crate::object::Key;

/// The number of objects indexed per write lock, which blocks readers for a few hundred
/// microseconds.
const INDEX_CHUNK: usize = 256;

impl<T> ThreadSafeStore<T> {
    /// Adds indexes and fills them from the objects that are already stored. You can read the
    /// indexes once this returns.
    ///
    /// Index functions run without a lock, as they do in writes. First the functions are
    /// registered, so that writers compute their values from then on. Next the existing objects are
    /// indexed, 256 at a time. Then the indexes become visible. While this runs, a write fails if
    /// one of the new functions fails for its object.
    ///
    /// # Errors
    ///
    /// [`AddIndexersError`] if an index with one of these names exists, or if a function fails for
    /// a stored object. Then none of the indexes has been added.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), AddIndexersError> {
        let new = self.register(indexers)?;
        let ids: Vec<u32> = new.iter().map(|registered| registered.id).collect();
        match self.index_all(&new, &ids) {
            Ok(()) => {
                self.change_functions(|registered| {
                    registered.ready |= ids.contains(&registered.id);
                    true
                });
                Ok(())
            }
            Err(error) => {
                self.change_functions(|registered| !ids.contains(&registered.id));
                self.unindex_all(&ids);
                Err(error)
            }
        }
    }

    fn register(&self, indexers: Indexers<T>) -> Result<Vec<Registered<T>>, AddIndexersError> {
        let functions = indexers.into_functions();
        let mut state = self.state.write();
        let taken: BTreeSet<&Arc<str>> = state
            .functions
            .iter()
            .map(|registered| &registered.name)
            .collect();
        let names: Vec<Arc<str>> = functions
            .keys()
            .filter(|name| taken.contains(name))
            .cloned()
            .collect();
        if !names.is_empty() {
            drop(state);
            return Err(AddIndexersError::Conflict { names });
        }
        let mut new = Vec::with_capacity(functions.len());
        for (name, function) in functions {
            let id = state.next_index;
            state.next_index += 1;
            state.slots.add_index(id);
            new.push(Registered {
                id,
                name,
                function,
                ready: false,
            });
        }
        state.functions = state.functions.iter().chain(&new).cloned().collect();
        Ok(new)
    }

    /// Indexes the existing objects. It stops at a concurrent replace, because new content is
    /// already indexed when it is written.
    fn index_all(&self, new: &[Registered<T>], ids: &[u32]) -> Result<(), AddIndexersError> {
        let mut from = 0;
        let generation = self.state.read().generation;
        loop {
            let chunk: Vec<(Key, Arc<T>)> = {
                let state = self.state.read();
                if state.generation != generation || from >= state.slots.extent() {
                    return Ok(());
                }
                let slots = state.slots.range(from, CHUNK);
                slots
                    .map(|slot| (Arc::clone(&slot.entry.key), Arc::clone(&slot.entry.object)))
                    .collect()
            };
            from += CHUNK;
            let mut computed = Vec::with_capacity(chunk.len());
            for (key, object) in &chunk {
                computed.push(compute(new, key, &**object).map_err(|error| failed(error, key))?);
            }
            let mut pending = chunk.iter().zip(computed);
            while pending.len() > 0 {
                let mut state = self.state.write();
                for ((key, object), computed) in pending.by_ref().take(INDEX_CHUNK) {
                    state.slots.index_object(key, object, ids, computed);
                }
                RwLockWriteGuard::unlock_fair(state);
            }
        }
    }

    fn unindex_all(&self, ids: &[u32]) {
        let mut from = 0;
        let removed: Vec<_> = loop {
            let mut state = self.state.write();
            if from >= state.slots.extent() {
                break ids.iter().map(|id| state.slots.remove_index(*id)).collect();
            }
            state.slots.unindex(from, INDEX_CHUNK, ids);
            from += INDEX_CHUNK;
            RwLockWriteGuard::unlock_fair(state);
        };
        drop(removed);
    }

    /// Updates the list of functions and removes those for which `keep` returns `false`.
    fn change_functions(&self, mut keep: impl FnMut(&mut Registered<T>) -> bool) {
        let outdated = {
            let mut state = self.state.write();
            let functions = state
                .functions
                .iter()
                .cloned()
                .filter_map(|mut registered| {
                    let keep = keep(&mut registered);
                    keep.then_some(registered)
                });
            let functions = functions.collect();
            std::mem::replace(&mut state.functions, functions)
        };
        drop(outdated);
    }
}

fn failed(error: StoreError, key: &Key) -> AddIndexersError {
    match error {
        StoreError::Index {
            index,
            key,
            message,
        } => AddIndexersError::Function {
            name: index,
            key,
            message,
        },
        other => AddIndexersError::Function {
            name: "".into(),
            key: Arc::clone(key),
            message: other.to_string().into(),
        },
    }
}

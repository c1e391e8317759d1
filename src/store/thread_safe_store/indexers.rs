//! Adds indexes to a filled store while other threads read and write.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::index::{Registered, compute};
use super::super::slots::Slot;
use super::super::{AddIndexersError, Indexers, StoreError};
use super::ThreadSafeStore;
use crate::base::sync::RwLockWriteGuard;
use crate::entry::Entry;
use crate::object::Key;

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
                let mut state = self.state.write();
                let removed: Vec<_> = ids.iter().map(|id| state.slots.remove_index(*id)).collect();
                drop((state, removed));
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

    /// Indexes the existing objects. Later writes compute the values of the new indexes themselves.
    fn index_all(&self, new: &[Registered<T>], ids: &[u32]) -> Result<(), AddIndexersError> {
        let pages = self.state.read().slots.pages().clone();
        for page in pages.into_pages() {
            let slots = page.iter().flatten();
            let entries: Vec<Entry<T>> = slots.map(Slot::entry).collect();
            // A write copies a shared page.
            drop(page);
            let mut computed = Vec::with_capacity(entries.len());
            for Entry { key, object, .. } in &entries {
                computed.push(compute(new, key, &**object).map_err(|error| failed(error, key))?);
            }
            let mut state = self.state.write();
            for (entry, computed) in entries.iter().zip(computed) {
                state.slots.index_object(entry, ids, computed);
            }
            RwLockWriteGuard::unlock_fair(state);
        }
        Ok(())
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

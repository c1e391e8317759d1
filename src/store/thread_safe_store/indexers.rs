//! Adds indexes to a filled store while other threads read and write.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::index::{Registered, compute};
use super::super::slots::Slot;
use super::super::{AddIndexersError, Indexers};
use super::ThreadSafeStore;
use crate::base::sync::RwLockWriteGuard;
use crate::entry::Entry;

impl<T> ThreadSafeStore<T> {
    /// Adds indexes and fills them from the objects that are already stored. You can read the
    /// indexes once this returns.
    ///
    /// Index functions run without a lock, as they do in writes. First the functions are
    /// registered, so that writers compute their values from then on. Next the existing objects are
    /// indexed, 256 at a time. Then the indexes become visible. While this runs, no write fails because
    /// of the new functions.
    ///
    /// # Errors
    ///
    /// [`AddIndexersError`] if an index with one of these names exists, or if a function fails for an
    /// object that is still stored when this returns. Then none of the indexes has been added.
    pub fn add_indexers(&self, indexers: Indexers<T>) -> Result<(), AddIndexersError> {
        let new = self.register(indexers)?;
        let ids: Vec<u32> = new.iter().map(|registered| registered.id).collect();
        self.index_all(&new, &ids);
        // Now the indexes become visible together, or none of them stays.
        let index_changes = self.index_changes.lock();
        let mut state = self.state.write();
        let unindexed = state.slots.unindexed(|id| ids.contains(&id)).next();
        let failed = unindexed.map(|(key, failed)| failed.add_error(key));
        let functions = state.functions.iter().cloned();
        let functions = functions.filter_map(|mut registered| {
            let is_new = ids.contains(&registered.id);
            registered.ready |= is_new;
            (!is_new || failed.is_none()).then_some(registered)
        });
        let functions = functions.collect();
        let outdated = std::mem::replace(&mut state.functions, functions);
        let mut removed = Vec::new();
        if failed.is_some() {
            removed.extend(ids.iter().map(|id| state.slots.remove_index(*id)));
        }
        drop(state);
        drop(index_changes);
        drop((outdated, removed));
        failed.map_or(Ok(()), Err)
    }

    fn register(&self, indexers: Indexers<T>) -> Result<Vec<Registered<T>>, AddIndexersError> {
        let functions = indexers.into_functions();
        let _index_changes = self.index_changes.lock();
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
    fn index_all(&self, new: &[Registered<T>], ids: &[u32]) {
        let pages = self.state.read().slots.pages().clone();
        for page in pages.into_pages() {
            let slots = page.iter().flatten();
            let entries: Vec<Entry<T>> = slots.map(Slot::entry).collect();
            // A write copies a shared page.
            drop(page);
            let computed = entries.iter().map(|entry| compute(new, &*entry.object));
            let computed: Vec<_> = computed.collect();
            let mut state = self.state.write();
            let mut outdated = Vec::new();
            for (entry, computed) in entries.iter().zip(computed) {
                outdated.extend(state.slots.index_object(entry, ids, computed));
            }
            RwLockWriteGuard::unlock_fair(state);
            drop(outdated);
        }
    }
}

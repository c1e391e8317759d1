use crate::object::{Accessor, Object};
use crate::store::{Door, Entry, EntryChange, Gaps, ReflectorStore, Staging, StoreError};

/// Lets a session write to a store that takes objects. Their keys are assumed to be
/// `namespace/name`.
pub(super) struct CustomStore<'r, T> {
    store: &'r dyn ReflectorStore<T>,
    door: Door<T>,
}

impl<'r, T: Object> CustomStore<'r, T> {
    pub(super) fn new(store: &'r dyn ReflectorStore<T>) -> Self {
        let door = Door::new(Accessor::object(), None);
        Self { store, door }
    }
}

impl<T: Object> Staging<T> for CustomStore<'_, T> {
    fn door(&self) -> &Door<T> {
        &self.door
    }

    fn known(&self, _: &str) -> Option<Entry<T>> {
        None
    }

    fn keeps_gaps(&self) -> bool {
        false
    }

    fn apply_entries(&self, changes: &mut Vec<EntryChange<T>>) -> Vec<StoreError> {
        let apply = |change| match change {
            EntryChange::Add(entry, _) => self.store.add(entry.object),
            EntryChange::Update(entry, _) => self.store.update(entry.object),
            EntryChange::Delete(_, gone, _) => self.store.delete(gone),
            EntryChange::Bookmark(version) => self.store.bookmark(&version),
        };
        let results = changes.drain(..).map(apply);
        results.filter_map(Result::err).collect()
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        _: Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let objects = entries.into_iter().map(|entry| entry.object);
        self.store.replace(objects.collect(), resource_version)
    }
}

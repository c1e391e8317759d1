use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::base::shrink::Shrink;
use crate::base::sync::Mutex;
use crate::entry::{Applied, Delta, Door, Entry, Gaps, Staging};
use crate::object::{Accessor, Deleted, Key, Object};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, ReflectorStore, StoreError};

/// Lets a feed write to a store that takes objects. Their keys are assumed to be `namespace/name`.
pub(super) struct CustomStore<T> {
    store: Arc<dyn ReflectorStore<T>>,
    door: Door<T>,
    /// The keys of the objects that the reflector has written, so that a list with gaps can become
    /// changes. A map without values, because it can [`Shrink`]. An innermost lock: the store is not
    /// called while it is held.
    written: Mutex<HashMap<Key, ()>>,
}

impl<T: Object> CustomStore<T> {
    pub(super) fn new(store: Arc<dyn ReflectorStore<T>>) -> Self {
        Self {
            store,
            door: Door::new(Accessor::object(), None),
            written: Mutex::default(),
        }
    }

    fn apply(&self, delta: Delta<T>) -> Result<(), StoreError> {
        match delta {
            Delta::Added(Entry { key, object, .. }) => {
                self.store.add(object)?;
                self.written.lock().insert(key, ());
            }
            Delta::Updated(Entry { key, object, .. }) => {
                self.store.update(object)?;
                self.written.lock().insert(key, ());
            }
            Delta::Deleted { key, gone, .. } => {
                self.store.delete(gone)?;
                let mut written = self.written.lock();
                written.remove(&key);
                written.shrink_after_peak();
            }
            Delta::Bookmark(version) => {
                self.store.bookmark(version)?;
            }
            Delta::Replaced(_) | Delta::Sync(_) | Delta::ReplacedAll(_) | Delta::SyncAll => {
                unreachable!("only a queue has deltas of lists and resyncs")
            }
        }
        Ok(())
    }

    /// Turns a list into the changes that lead to it from what has been written. Objects in the gaps
    /// are in none of them.
    fn changes(
        &self,
        entries: Vec<Entry<T>>,
        listed: &HashSet<Key>,
        gaps: &Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Vec<Change<T>> {
        let written = self.written.lock();
        let listed_changes =
            entries.into_iter().map(
                |Entry { key, object, .. }| match written.contains_key(&key) {
                    true => Change::Update(object),
                    false => Change::Add(object),
                },
            );
        let gone = written
            .keys()
            .filter(|key| !listed.contains(*key) && !gaps.cover(key));
        let deletions = gone.map(|key| {
            Change::Delete(Deleted::FinalStateUnknown {
                key: Key::clone(key),
                last_known: None,
            })
        });
        let bookmark = Change::Bookmark(resource_version);
        listed_changes.chain(deletions).chain([bookmark]).collect()
    }
}

impl<T: Object> Staging<T> for CustomStore<T> {
    fn door(&self) -> &Door<T> {
        &self.door
    }

    fn known(&self, _: &str) -> Option<Entry<T>> {
        None
    }

    fn has(&self, key: &str) -> bool {
        self.written.lock().contains_key(key)
    }

    fn apply_entries(&self, changes: &mut Vec<Delta<T>>) -> Applied {
        let results = changes.drain(..).map(|change| self.apply(change));
        Applied {
            rejected: results.filter_map(Result::err).collect(),
            unindexed: Vec::new(),
        }
    }

    fn replace_entries(
        &self,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<Applied, StoreError> {
        let keys = entries.iter().map(|entry| Key::clone(&entry.key));
        let listed: HashSet<Key> = keys.collect();
        let is_kept = |key: &Key| gaps.cover(key) && !listed.contains(key);
        let kept: Vec<Key> = {
            let written = self.written.lock();
            written.keys().filter(|key| is_kept(key)).cloned().collect()
        };
        // Without an object to keep, the list is the whole content, also if it has gaps.
        let replaced = if kept.is_empty() {
            let objects = entries.into_iter().map(|entry| entry.object);
            self.store.replace(objects.collect(), resource_version)
        } else {
            let changes = self.changes(entries, &listed, &gaps, resource_version);
            self.store.replace_partly(changes)
        };
        // A store that fails may have the old objects or the new ones.
        let mut written = self.written.lock();
        if replaced.is_ok() {
            *written = HashMap::with_capacity(listed.len() + kept.len());
        }
        written.extend(listed.into_iter().chain(kept).map(|key| (key, ())));
        replaced.map(|()| Applied::default())
    }
}

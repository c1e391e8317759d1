use std::sync::Arc;

use super::initial_objects::InitialObjects;
use super::undecodable::{UndecodableList, Undecoded};
use crate::base::digest::Digest;
use crate::error::Error;
use crate::object::{Key, Object, meta_namespace_key};
use crate::store::{Door, Entry, Gaps, StoreError};
use crate::wire::{Decoder, ListMeta, Unreadable};

/// Collects the objects of a list, or the initial events of a watch-list. Until they are complete,
/// the store keeps its previous objects (WL3, WL7).
pub(super) struct InitialList<T> {
    objects: InitialObjects<(Arc<T>, Digest)>,
    /// Items without a kind, with their positions in the list. They wait here because the `kind` of
    /// the page comes after its `items` in the JSON.
    without_kind: InitialObjects<(usize, T, Digest)>,
    /// The number of objects of other shards.
    other_shard: usize,
    /// The objects that could not be read.
    gaps: Gaps,
    /// The objects whose last state could not be read. `objects` or `without_kind` has an older
    /// state of them.
    outdated: Gaps,
    undecoded: Undecoded,
    /// The number of list items so far.
    items: usize,
    /// The number of list items that could not be read.
    unreadable_items: usize,
}

impl<T> Default for InitialList<T> {
    fn default() -> Self {
        Self {
            objects: InitialObjects::new(),
            without_kind: InitialObjects::new(),
            other_shard: 0,
            gaps: Gaps::default(),
            outdated: Gaps::default(),
            undecoded: Undecoded::default(),
            items: 0,
            unreadable_items: 0,
        }
    }
}

impl<T: Object> InitialList<T> {
    /// The number of readable objects so far, including the objects of other shards.
    pub(super) fn received(&self) -> usize {
        self.objects.len() + self.without_kind.len() + self.other_shard
    }

    /// The number of different objects so far, readable or not.
    pub(super) fn distinct_objects(&self) -> usize {
        self.received() + self.unreadable_items
    }

    /// Counts a list item and returns its position in the list, starting at 0.
    pub(super) fn next_item(&mut self) -> usize {
        self.items += 1;
        self.items - 1
    }

    /// Adds an object, or replaces its older state.
    pub(super) fn put(&mut self, entry: Entry<T>) {
        if self.without_kind.len() > 0 {
            self.without_kind
                .remove(&meta_namespace_key(&*entry.object));
        }
        self.close_gap(&entry.key);
        self.objects.put(entry.key, (entry.object, entry.digest));
    }

    /// Adds an item whose kind the page has not named yet.
    pub(super) fn put_without_kind(&mut self, item: usize, object: T, digest: Digest) {
        let key = meta_namespace_key(&object);
        self.close_gap(&key);
        self.without_kind.put(key, (item, object, digest));
    }

    pub(super) fn add_other_shard(&mut self) {
        self.other_shard += 1;
    }

    pub(super) fn has_other_shard(&self) -> bool {
        self.other_shard > 0
    }

    pub(super) fn remove(&mut self, key: &str) {
        self.close_gap(key);
        self.objects.remove(key);
    }

    fn close_gap(&mut self, key: &str) {
        self.gaps.close(key);
        self.outdated.close(key);
    }

    /// Records an object that could not be read. Its older state remains.
    pub(super) fn add_gap(&mut self, key: Option<Key>) {
        match &key {
            Some(known) if self.objects.contains(known) || self.without_kind.contains(known) => {
                self.outdated.add(key);
            }
            _ => self.gaps.add(key),
        }
    }

    /// Like [`add_gap`](Self::add_gap), but for a list item, which is also counted.
    pub(super) fn add_unreadable_item(&mut self, key: Option<Key>) {
        self.unreadable_items += 1;
        self.add_gap(key);
    }

    /// Records why an object could not be read.
    pub(super) fn add_error(&mut self, error: &Error) {
        self.undecoded.add(error);
    }

    /// Adds the items that waited for their kind, which `page` contains. Returns those that could
    /// not be keyed or transformed.
    pub(super) fn set_kinds(
        &mut self,
        page: &ListMeta,
        decoder: &Decoder<T>,
        door: &Door<T>,
    ) -> Vec<(usize, Unreadable)> {
        let mut unreadable = Vec::new();
        let without_kind = std::mem::replace(&mut self.without_kind, InitialObjects::new());
        for (_, (item, mut object, digest)) in without_kind.into_vec() {
            decoder.set_type_meta(&mut object, page);
            match entry(object, digest, door) {
                Ok(entry) => self.objects.put(entry.key, (entry.object, entry.digest)),
                Err(error) => unreadable.push((item, error)),
            }
        }
        unreadable
    }

    /// Whether every object was read in its last state.
    pub(super) fn is_complete(&self) -> bool {
        self.gaps.is_empty() && self.outdated.is_empty()
    }

    /// Returns the reason if no object could be decoded.
    pub(super) fn take_undecodable(&mut self) -> Option<UndecodableList> {
        let undecoded = std::mem::take(&mut self.undecoded);
        match self.objects.len() {
            0 => undecoded.into_list(std::any::type_name::<T>()),
            _ => None,
        }
    }

    /// Returns the readable objects, and the others.
    pub(super) fn into_parts(self) -> (Vec<Entry<T>>, Gaps) {
        let entry = |(key, (object, digest))| Entry {
            key,
            object,
            digest,
        };
        let objects = self.objects.into_vec();
        (objects.into_iter().map(entry).collect(), self.gaps)
    }
}

/// Passes an object through the door of the store.
pub(super) fn entry<T: Object>(
    object: T,
    digest: Digest,
    door: &Door<T>,
) -> Result<Entry<T>, Unreadable> {
    let object = Arc::new(object);
    let entry = door.entry(Arc::clone(&object), digest);
    entry.map_err(|error| unreadable_object(&*object, &error))
}

/// Returns the description of an object that the door refused.
pub(super) fn unreadable_object<T: Object>(object: &T, error: &StoreError) -> Unreadable {
    let mut unreadable = Unreadable::of(object, Error::other(error.to_string()));
    if let StoreError::Transform { key, .. } = error {
        unreadable.key = key.clone();
    }
    unreadable
}

/// Returns the key of an unreadable object in the store, if it is known.
pub(super) fn stored_key<T>(unreadable: &Unreadable, door: &Door<T>) -> Option<Key> {
    if unreadable.key.is_some() {
        return unreadable.key.clone();
    }
    let (namespace, name) = unreadable.identity()?;
    door.accessor().key_of_name(namespace, name)
}

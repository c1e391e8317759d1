use std::sync::Arc;

use super::initial_objects::{InitialObjects, Keyed};
use super::protocol::Completeness;
use crate::base::digest::Digest;
use crate::base::panic;
use crate::entry::{Door, Entry, Gaps};
use crate::error::Error;
use crate::object::{Key, Object, meta_namespace_key};
use crate::store::StoreError;
use crate::wire::{Decoder, ListMeta, Unreadable};

/// Collects the objects of a list, or the initial events of a watch-list. Until they are complete,
/// the store keeps its previous objects (WL3, WL7).
pub(super) struct InitialList<T> {
    objects: InitialObjects<Entry<T>>,
    /// Items without a kind. They wait here because the `kind` of the page comes after its `items` in
    /// the JSON.
    without_kind: InitialObjects<WithoutKind<T>>,
    /// The number of objects of other shards.
    pub(super) other_shard: usize,
    /// The objects that could not be read.
    gaps: Gaps,
    /// The objects whose last state could not be read. `objects` or `without_kind` has an older
    /// state of them.
    outdated: Gaps,
    /// The number of objects that could not be read, and the first error.
    unread: Option<(usize, Error)>,
    /// The number of list items so far.
    items: usize,
    /// The number of [records of missing objects](super::Missing::recorded) before this list.
    pub(super) recorded: u64,
}

impl<T> Keyed for Entry<T> {
    fn key(&self) -> &Key {
        &self.key
    }
}

/// A list item without a kind.
struct WithoutKind<T> {
    key: Key,
    object: T,
    digest: Digest,
    /// Its position in the list.
    item: usize,
}

impl<T> Keyed for WithoutKind<T> {
    fn key(&self) -> &Key {
        &self.key
    }
}

impl<T> Default for InitialList<T> {
    fn default() -> Self {
        Self::new(0)
    }
}

impl<T> InitialList<T> {
    pub(super) fn new(recorded: u64) -> Self {
        Self {
            objects: InitialObjects::new(),
            without_kind: InitialObjects::new(),
            other_shard: 0,
            gaps: Gaps::default(),
            outdated: Gaps::default(),
            unread: None,
            items: 0,
            recorded,
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
        self.received() + self.unread.as_ref().map_or(0, |(count, _)| *count)
    }

    /// Counts a list item and returns its position in the list, starting at 0.
    pub(super) fn next_item(&mut self) -> usize {
        self.items += 1;
        self.items - 1
    }

    /// Adds an object, or replaces its older state.
    pub(super) fn put(&mut self, entry: Entry<T>) {
        if self.without_kind.len() > 0 {
            // The transform may have changed the object, so that its accessors panic.
            let named = panic::catch(|| meta_namespace_key(&*entry.object));
            self.without_kind
                .remove(named.as_ref().unwrap_or(&entry.key));
        }
        self.close_gap(&entry.key);
        self.objects.put(entry);
    }

    /// Adds an item whose kind the page has not named yet.
    pub(super) fn put_without_kind(&mut self, item: usize, object: T, digest: Digest) {
        let key = meta_namespace_key(&object);
        self.close_gap(&key);
        self.without_kind.put(WithoutKind {
            key,
            object,
            digest,
            item,
        });
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
    pub(super) fn add_gap(&mut self, key: Option<Key>, error: &Error) {
        // A watch-list may send another state of the same object, which is not counted again.
        let is_counted = |key: &Key| self.gaps.has(key) || self.outdated.has(key);
        let is_counted = key.as_ref().is_some_and(is_counted);
        match &mut self.unread {
            None => self.unread = Some((1, error.clone())),
            Some(_) if is_counted => {}
            Some((count, _)) => *count += 1,
        }
        match &key {
            Some(known) if self.objects.contains(known) || self.without_kind.contains(known) => {
                self.outdated.add(key);
            }
            _ => self.gaps.add(key),
        }
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
        for without_kind in without_kind.into_vec() {
            let WithoutKind {
                mut object,
                digest,
                item,
                ..
            } = without_kind;
            let with_kind = decoder.set_type_meta(&mut object, page);
            let entry = match with_kind {
                Ok(()) => entry(object, digest, door),
                Err(error) => Err(Unreadable::of(&object, error)),
            };
            match entry {
                Ok(entry) => self.objects.put(entry),
                Err(error) => unreadable.push((item, error)),
            }
        }
        unreadable
    }

    /// Whether every object was read in its last state.
    pub(super) fn is_complete(&self) -> bool {
        matches!(self.completeness(), Completeness::Complete)
    }

    /// What the list says about the objects that it lacks.
    pub(super) fn completeness(&self) -> Completeness {
        if self.gaps.has_nameless() {
            Completeness::Nameless
        } else if self.gaps.is_empty() && self.outdated.is_empty() {
            Completeness::Complete
        } else {
            Completeness::Unreadable
        }
    }

    /// Returns the reason if no object could be decoded. A single object may itself be malformed.
    pub(super) fn undecodable(&self) -> Option<Error> {
        let (count, first) = self.unread.as_ref()?;
        if self.objects.len() > 0 || *count < 2 {
            return None;
        }
        let name = std::any::type_name::<T>();
        Some(first.clone().context(format!(
            "none of the {count} objects in the list could be decoded as {name}; the first error"
        )))
    }

    /// Returns the readable objects, and the others.
    pub(super) fn into_parts(self) -> (Vec<Entry<T>>, Gaps) {
        (self.objects.into_vec(), self.gaps)
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

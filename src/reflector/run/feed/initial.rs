//! The items of a list and the initial events of a watch-list, until they replace the content of the
//! store.

use std::sync::Arc;

use super::Feed;
use crate::base::digest::Digest;
use crate::entry::{Entry, Staging};
use crate::error::Error;
use crate::json::Peek;
use crate::object::{Key, Object};
use crate::reflector::initial_list::{entry, stored_key};
use crate::resource_version::ResourceVersion;
use crate::wire::{DecodedObject, EventKind, Unreadable};

impl<T: Object> Feed<T> {
    /// Handles a list item. `waits_for_kind` is whether the list sends the kind of the item later.
    pub(super) fn item(&mut self, decoded: DecodedObject<T>, waits_for_kind: bool) {
        let item = self.initial.next_item();
        let entry = match decoded {
            DecodedObject::Object(object, digest) if waits_for_kind => {
                return self.initial.put_without_kind(item, object, digest);
            }
            DecodedObject::Object(object, digest) => {
                entry(object, digest, self.reflector.staging().door())
            }
            DecodedObject::Unchanged(key, object, digest) => {
                Ok(self.unchanged_entry(key, object, digest))
            }
            DecodedObject::OtherShard { .. } => return self.initial.other_shard += 1,
            DecodedObject::Unreadable(unreadable) => Err(unreadable),
        };
        match entry {
            Ok(entry) => self.initial.put(entry),
            Err(unreadable) => self.unreadable_item(item, &unreadable),
        }
    }

    /// Returns the entry of an object that the store has already.
    fn unchanged_entry(&self, key: Key, object: Arc<T>, digest: Digest) -> Entry<T> {
        Entry {
            version: self.reflector.staging().door().version(&object),
            digest,
            ..Entry::new(key, object)
        }
    }

    pub(super) fn unreadable_item(&mut self, item: usize, unreadable: &Unreadable) {
        let error = unreadable.error_at(|| format!("item {item} of the list"));
        let key = stored_key(unreadable, self.reflector.staging().door());
        self.initial.add_gap(key, &error);
        self.protocol.missed(unreadable.namespaced_key(), error);
    }

    /// Handles an initial ADDED, MODIFIED or DELETED event of a watch-list.
    pub(super) fn initial_event(&mut self, kind: EventKind, decoded: DecodedObject<T>) {
        match decoded {
            DecodedObject::Object(object, digest) => {
                let version = ResourceVersion::new(object.resource_version());
                self.protocol.event(kind, version);
                match entry(object, digest, self.reflector.staging().door()) {
                    Ok(entry) if kind == EventKind::Deleted => self.initial.remove(&entry.key),
                    Ok(entry) => self.initial.put(entry),
                    Err(unreadable) => self.unreadable_initial_event(kind, &unreadable),
                }
            }
            DecodedObject::Unchanged(key, object, digest) => {
                let entry = self.unchanged_entry(key, object, digest);
                self.initial.put(entry);
                self.protocol.event(kind, None);
            }
            DecodedObject::OtherShard {
                resource_version,
                key,
            } => {
                self.other_shard(kind, &resource_version);
                self.initial.remove(&key);
                if kind == EventKind::Added {
                    self.initial.other_shard += 1;
                }
            }
            DecodedObject::Unreadable(unreadable) => {
                self.unreadable_initial_event(kind, &unreadable);
                if let Some(version) = &unreadable.resource_version {
                    self.protocol.event(kind, ResourceVersion::new(version));
                }
            }
        }
    }

    /// Handles an initial event whose object cannot be read. Its older state remains, unless the
    /// event is a deletion.
    pub(super) fn unreadable_initial_event(&mut self, kind: EventKind, unreadable: &Unreadable) {
        let error = unreadable.error_at(|| self.protocol.event_position());
        match stored_key(unreadable, self.reflector.staging().door()) {
            Some(key) if kind == EventKind::Deleted => self.initial.remove(&key),
            key => self.initial.add_gap(key, &error),
        }
        self.protocol.missed(unreadable.namespaced_key(), error);
    }

    /// Replaces the content of the store with the complete list.
    pub(super) fn replace(&mut self, version: Option<ResourceVersion>) {
        self.announce(version.as_ref());
        let initial = std::mem::take(&mut self.initial);
        let (completeness, complete) = (initial.completeness(), initial.is_complete());
        let recorded = initial.recorded;
        let (objects, gaps) = initial.into_parts();
        let core = &self.reflector.core;
        let obsolete = core.missing.obsolete_after(&objects, complete, recorded);
        let can_be_rejected = core.hooks.is_some() && !objects.is_empty();
        let store = self.reflector.staging();
        match store.replace_entries(objects, gaps, version) {
            Ok(applied) => self.unindexed(&applied),
            Err(error) => {
                let error = Error::other(format!("unable to sync list result: {error}"));
                return self.protocol.not_replaced(error);
            }
        }
        let core = &self.reflector.core;
        core.missing.remove_all(obsolete);
        if can_be_rejected {
            self.protocol.queued();
        }
        // Only now do waits see the list, because the store has it.
        if self.consistent_since.is_some() {
            core.catch_up.state.lock().listed = self.consistent_since;
        }
        self.protocol.replaced(completeness);
    }
}

/// Returns the known object with this identity if it was decoded from the same JSON.
pub(super) fn unchanged<T: Object>(
    identity: &Peek<'_>,
    digest: Digest,
    store: &dyn Staging<T>,
) -> Option<(Key, Arc<T>)> {
    let accessor = store.door().accessor();
    let known = store.known(&accessor.key_of_name(&identity.namespace, &identity.name)?)?;
    let is_same = known.digest.is_same(digest);
    is_same.then_some((known.key, known.object))
}

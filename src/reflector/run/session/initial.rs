//! The items of a list and the initial events of a watch-list, until they replace the content of the
//! store.

use std::sync::Arc;

use super::Session;
use crate::base::digest::Digest;
use crate::error::Error;
use crate::json::Peek;
use crate::object::{Key, Object};
use crate::reflector::initial_list::{entry, stored_key};
use crate::reflector::protocol::ReportKind;
use crate::store::{Entry, Staging};
use crate::wire::{Decoded, DecodedItem, EventKind, Unreadable};

impl<T: Object> Session<'_, T> {
    pub(super) fn item(&mut self, decoded: Result<DecodedItem<T>, Unreadable>) {
        let item = self.initial.next_item();
        let entry = match decoded {
            Ok(DecodedItem::Object(object, digest)) => entry(object, digest, self.store.door()),
            Ok(DecodedItem::Unchanged(key, object, digest)) => Ok(Entry {
                key,
                object,
                digest,
            }),
            Ok(DecodedItem::WithoutKind(object, digest)) => {
                return self.initial.put_without_kind(item, object, digest);
            }
            Ok(DecodedItem::OtherShard) => return self.initial.add_other_shard(),
            Err(unreadable) => Err(unreadable),
        };
        match entry {
            Ok(entry) => self.initial.put(entry),
            Err(unreadable) => self.unreadable_item(item, &unreadable),
        }
    }

    pub(super) fn unreadable_item(&mut self, item: usize, unreadable: &Unreadable) {
        let error = unreadable.error_at(|| format!("item {item} of the list"));
        self.initial
            .add_unreadable_item(stored_key(unreadable, self.store.door()));
        self.initial.add_error(&error);
        self.missed(unreadable.namespaced_key(), error);
    }

    /// Handles an initial event of a watch-list.
    pub(super) fn initial_event(&mut self, kind: EventKind, decoded: Decoded<T>) {
        match decoded {
            Decoded::Object(object, _) if object.name().is_empty() => {
                self.unreadable_initial_event(kind, &Unreadable::nameless(&object));
            }
            Decoded::Object(object, digest) => {
                let version = self.checked_version(object.resource_version());
                self.protocol.event(kind, version);
                match entry(object, digest, self.store.door()) {
                    Ok(entry) if kind == EventKind::Deleted => self.initial.remove(&entry.key),
                    Ok(entry) => self.initial.put(entry),
                    Err(unreadable) => self.unreadable_initial_event(kind, &unreadable),
                }
            }
            Decoded::Unchanged(key, object, digest) => {
                self.initial.put(Entry {
                    key,
                    object,
                    digest,
                });
                self.protocol.event(kind, "");
            }
            Decoded::OtherShard { resource_version } => {
                let version = self.checked_version(&resource_version);
                self.shard_applied = Some(false);
                self.protocol.event(kind, version);
                if kind == EventKind::Added {
                    self.initial.add_other_shard();
                }
            }
            Decoded::Bookmark {
                resource_version,
                initial_events_end,
            } => {
                let version = self.checked_version(&resource_version);
                self.protocol.bookmark(version, initial_events_end);
            }
            Decoded::Unreadable(unreadable) => {
                self.unreadable_initial_event(kind, &unreadable);
                let version = self.checked_version(&unreadable.resource_version);
                self.protocol.event(kind, version);
            }
            // An object of another kind counts as unreadable: if it were skipped, the cached object
            // would be deleted.
            Decoded::OtherKind(other) if self.store.keeps_gaps() && kind != EventKind::Bookmark => {
                self.unreadable_initial_event(EventKind::Modified, &other);
            }
            Decoded::OtherKind(other) => {
                let error = other.into_error(self.protocol.event_position());
                self.protocol.report(error, ReportKind::Other);
            }
            Decoded::Error(_) => {}
        }
    }

    /// Handles an initial event whose object cannot be read. Its older state remains, unless the
    /// event is a deletion.
    fn unreadable_initial_event(&mut self, kind: EventKind, unreadable: &Unreadable) {
        let error = unreadable.error_at(|| self.protocol.event_position());
        match stored_key(unreadable, self.store.door()) {
            Some(key) if kind == EventKind::Deleted => self.initial.remove(&key),
            key => self.initial.add_gap(key),
        }
        self.initial.add_error(&error);
        self.missed(unreadable.namespaced_key(), error);
    }

    /// Replaces the content of the store with the complete list.
    pub(super) fn replace(&mut self, version: &str) {
        let mut initial = std::mem::take(&mut self.initial);
        let (received, complete) = (initial.received(), initial.is_complete());
        let is_first = self.protocol.lists_replaced() == 0 || self.undecodable.is_some();
        let undecodable = initial.take_undecodable().filter(|_| is_first);
        if let Some(shard_confirmed) = self.protocol.list_shard_confirmed() {
            self.shard_applied = match initial.has_other_shard() {
                true => Some(false),
                false => shard_confirmed.then_some(true),
            };
        }
        let (objects, gaps) = initial.into_parts();
        let missing = &self.reflector.missing;
        let obsolete = missing.obsolete_after(&objects, complete, self.recorded);
        let is_empty = objects.is_empty();
        self.reflector
            .announce(self, version, received, complete, undecodable.as_ref());
        if !gaps.is_empty() && !self.store.keeps_gaps() {
            let what = "some objects in the list can't be read, and the store can't keep their cached copies";
            return self.protocol.not_replaced(Error::invalid(what));
        }
        let replaced = self.store.replace_entries(objects, gaps, version);
        if let Err(error) = replaced {
            let error = Error::other(format!("unable to sync list result: {error}"));
            return self.protocol.not_replaced(error);
        }
        self.undecodable = undecodable;
        self.received = received;
        self.complete = complete;
        missing.remove_all(obsolete);
        if self.reflector.has_consumer && !is_empty {
            self.protocol.queued();
        }
        self.protocol.replaced(complete);
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

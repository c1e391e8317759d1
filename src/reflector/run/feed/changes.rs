//! The events of a watch, which change the store one by one.

use std::sync::Arc;

use super::Feed;
use crate::base::digest::Digest;
use crate::entry::{Applied, Delta};
use crate::error::Error;
use crate::object::{Deleted, Key, Object, meta_namespace_key};
use crate::reflector::initial_list::{stored_key, unreadable_object};
use crate::resource_version::ResourceVersion;
use crate::store::StoreError;
use crate::wire::{DecodedObject, EventKind, Shard, Unreadable};

impl<T: Object> Feed<T> {
    /// Handles an ADDED, MODIFIED or DELETED event.
    pub(super) fn change(&mut self, kind: EventKind, decoded: DecodedObject<T>) {
        match decoded {
            DecodedObject::Object(object, digest) => {
                let version = ResourceVersion::new(object.resource_version());
                self.protocol.event(kind, version);
                self.object(kind, Arc::new(object), digest);
            }
            DecodedObject::OtherShard {
                resource_version,
                key,
            } => {
                self.other_shard(kind, &resource_version);
                let shard = self.reflector.core.options.shard.as_ref();
                if shard.is_some_and(Shard::is_by_controller) {
                    // The controller may have changed.
                    self.write_changes();
                    if self.reflector.staging().has(&key) {
                        self.delete(key);
                    }
                }
                let version = ResourceVersion::new(&resource_version);
                if self.protocol.tracks_versions() && version.is_some() {
                    // The object is not stored, so send only its version: the store is then
                    // complete up to this version.
                    self.changes.push(Delta::Bookmark(version));
                }
            }
            DecodedObject::Unreadable(unreadable) => {
                self.write_changes();
                if kind == EventKind::Deleted {
                    self.delete_unreadable(&unreadable);
                } else {
                    // The store keeps its copy.
                    let error = unreadable.error_at(|| self.protocol.event_position());
                    self.protocol.missed(unreadable.namespaced_key(), error);
                }
                if let Some(version) = &unreadable.resource_version {
                    self.protocol.event(kind, ResourceVersion::new(version));
                    self.skipped();
                }
            }
            DecodedObject::Unchanged(..) => {
                unreachable!("only the objects of a list are compared with the store")
            }
        }
    }

    fn object(&mut self, kind: EventKind, object: Arc<T>, digest: Digest) {
        let missing = &self.reflector.core.missing;
        let key = (!missing.is_empty()).then(|| meta_namespace_key(&*object));
        let missing = key.filter(|key| missing.contains(key));
        let unreadable = self.protocol.unreadable();
        let gone = (kind == EventKind::Deleted).then(|| Arc::clone(&object));
        // Key function and transform run here, at the door.
        let door = self.reflector.staging().door();
        let delta = match kind {
            EventKind::Added => door.entry(object, digest).map(Delta::Added),
            EventKind::Deleted => door.deletion(Deleted::Final(object)),
            _ => door.entry(object, digest).map(Delta::Updated),
        };
        match (delta, gone) {
            (Ok(delta), _) => self.changes.push(delta),
            (Err(error), gone) => {
                self.write_changes();
                match gone {
                    // If the door refuses the object of a deletion, the deletion still applies.
                    Some(gone) => self.delete_unreadable(&unreadable_object(&*gone, &error)),
                    None => self.rejected(&error),
                }
                self.skipped();
            }
        }
        // The object was missing. It is not any more, unless the door or the store has just rejected this
        // state as well, which counts as one more unreadable object.
        if let Some(key) = missing {
            self.write_changes();
            if self.protocol.unreadable() == unreadable {
                self.protocol.recovered(&key, kind == EventKind::Deleted);
            }
        }
    }

    /// Records that the store has all changes so far, except for those that were not applied.
    fn skipped(&mut self) {
        self.write_changes();
        if self.protocol.tracks_versions() {
            let version = self.protocol.version().cloned();
            self.reflector.staging().skipped(version);
        }
    }

    /// Deletes an object whose last state is unknown.
    fn delete(&mut self, key: Key) {
        let last_known = self
            .reflector
            .staging()
            .known(&key)
            .map(|known| known.object);
        self.changes.push(Delta::tombstone(key, last_known));
        self.write_changes();
    }

    /// Deletes an object that cannot be read, if its key is known.
    fn delete_unreadable(&mut self, unreadable: &Unreadable) {
        match stored_key(unreadable, self.reflector.staging().door()) {
            Some(key) => self.delete(key),
            None => self.protocol.lost_deletion(),
        }
        let key = unreadable.namespaced_key();
        let error = unreadable.error_at(|| "a deletion".to_owned());
        self.protocol.missed(key.clone(), error);
        // A deleted object is no longer missing.
        if let Some(key) = key {
            self.protocol.recovered(&key, true);
        }
    }

    /// Writes the changes to the store or queue.
    pub(super) fn write_changes(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        if self.reflector.core.hooks.is_some() {
            self.protocol.queued();
        }
        let applied = self.reflector.staging().apply_entries(&mut self.changes);
        for error in &applied.rejected {
            self.rejected(error);
        }
        self.unindexed(&applied);
    }

    /// Reports the objects that the store has without values in an index.
    pub(super) fn unindexed(&mut self, applied: &Applied) {
        for error in &applied.unindexed {
            self.protocol.unindexed(Error::other(error.to_string()));
        }
    }

    /// Reports an event that the store rejected. The watch continues (W8).
    fn rejected(&mut self, error: &StoreError) {
        let failed = Error::other(format!("the store rejected an event: {error}"));
        match error {
            StoreError::Transform { key, .. } => self.protocol.missed(key.clone(), failed),
            StoreError::Key(_) => self.protocol.missed(None, failed),
            _ => self.protocol.refused(failed),
        }
    }
}

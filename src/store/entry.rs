use std::sync::Arc;

use super::{Change, StoreError, Transform};
use crate::base::derive::clone_fields;
use crate::base::digest::Digest;
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;

/// An object as a queue or store keeps it: with its key, transformed.
pub struct Entry<T> {
    /// The key of the object before the transform.
    pub key: Key,
    /// The transformed object.
    pub object: Arc<T>,
    /// The digest of the object before the transform.
    pub(crate) digest: Digest,
}

impl<T> Entry<T> {
    /// Returns an entry of an object that was not decoded from JSON.
    pub fn of(key: Key, object: Arc<T>) -> Self {
        Self {
            key,
            object,
            digest: Digest::NONE,
        }
    }
}

clone_fields!(Entry<T>: key, object, digest);

/// A [`Change`] whose object is an entry. The versions are those of the objects before the
/// transform.
pub enum EntryChange<T> {
    /// The object was added.
    Add(Entry<T>, Option<ResourceVersion>),
    /// The object was modified.
    Update(Entry<T>, Option<ResourceVersion>),
    /// The object was deleted.
    Delete(Key, Deleted<T>, Option<ResourceVersion>),
    /// All changes up to this resource version have been delivered.
    Bookmark(String),
}

/// The entrance of a queue or store. It turns objects into entries: behind it, no key function and no
/// transform runs.
pub struct Door<T> {
    accessor: Accessor<T>,
    transform: Option<Transform<T>>,
}

impl<T> Door<T> {
    pub(crate) fn new(accessor: Accessor<T>, transform: Option<Transform<T>>) -> Self {
        Self {
            accessor,
            transform,
        }
    }

    pub(crate) fn accessor(&self) -> &Accessor<T> {
        &self.accessor
    }

    pub(crate) fn transform(&self) -> Option<&Transform<T>> {
        self.transform.as_ref()
    }

    pub(crate) fn set_transform(&mut self, transform: Transform<T>) {
        self.transform = Some(transform);
    }

    /// Computes the key, then runs the transform (K4).
    ///
    /// # Errors
    ///
    /// The object has no key, or the transform fails.
    pub(crate) fn entry(&self, object: Arc<T>, digest: Digest) -> Result<Entry<T>, StoreError> {
        let key = self.accessor.key(&object)?;
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        Ok(Entry {
            key,
            object,
            digest,
        })
    }

    /// Turns a change into one with an entry. Tombstones are not transformed.
    ///
    /// # Errors
    ///
    /// The same as for [`entry`](Self::entry).
    pub fn change(&self, change: Change<T>) -> Result<EntryChange<T>, StoreError> {
        self.change_of(change, Digest::NONE)
    }

    /// Like [`change`](Self::change), with the digest of the object.
    pub(crate) fn change_of(
        &self,
        change: Change<T>,
        digest: Digest,
    ) -> Result<EntryChange<T>, StoreError> {
        let version = |object: &Arc<T>| self.version(object);
        Ok(match change {
            Change::Add(object) => {
                let version = version(&object);
                EntryChange::Add(self.entry(object, digest)?, version)
            }
            Change::Update(object) => {
                let version = version(&object);
                EntryChange::Update(self.entry(object, digest)?, version)
            }
            Change::Delete(Deleted::Final(object)) => {
                let version = version(&object);
                let Entry { key, object, .. } = self.entry(object, digest)?;
                EntryChange::Delete(key, Deleted::Final(object), version)
            }
            Change::Delete(gone @ Deleted::FinalStateUnknown { .. }) => {
                // Its last known state is older than the deletion.
                EntryChange::Delete(self.accessor.key_of_deleted(&gone)?, gone, None)
            }
            Change::Bookmark(version) => EntryChange::Bookmark(version),
        })
    }

    /// Returns the version of an object before the transform. `None` if it has no metadata.
    pub(crate) fn version(&self, object: &T) -> Option<ResourceVersion> {
        self.accessor.resource_version(object).map(Into::into)
    }

    /// Returns the version of a deletion. A tombstone has none: its last known state is older.
    pub(crate) fn version_of_deleted(&self, gone: &Deleted<T>) -> Option<ResourceVersion> {
        match gone {
            Deleted::Final(object) => self.version(object),
            Deleted::FinalStateUnknown { .. } => None,
        }
    }
}

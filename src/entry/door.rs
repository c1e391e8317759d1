use std::sync::Arc;

use super::{Change, Delta, Entry};
use crate::base::digest::Digest;
use crate::object::{Accessor, Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::store::{StoreError, Transform};

/// The entrance of a queue or store. It turns objects into entries: behind it, no key function, no
/// version function and no transform runs.
pub struct Door<T> {
    accessor: Accessor<T>,
    transform: Option<Transform<T>>,
    keys: Keys,
}

/// The key of an object if its transform changes the key.
#[derive(Clone, Copy)]
enum Keys {
    /// The key before the transform (K4).
    Sent,
    /// The key after the transform (R3), if there is one.
    Transformed,
}

impl<T> Door<T> {
    pub(crate) fn new(accessor: Accessor<T>, transform: Option<Transform<T>>) -> Self {
        Self {
            accessor,
            transform,
            keys: Keys::Sent,
        }
    }

    /// Uses the keys of the transformed objects.
    pub(crate) fn with_transformed_keys(self) -> Self {
        let keys = Keys::Transformed;
        Self { keys, ..self }
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

    /// Reads key and version, then runs the transform.
    ///
    /// # Errors
    ///
    /// The object has no key, or the transform fails.
    pub(crate) fn entry(&self, object: Arc<T>, digest: Digest) -> Result<Entry<T>, StoreError> {
        let version = self.version(&object);
        Ok(Entry {
            version,
            digest,
            ..self.unversioned_entry(object)?
        })
    }

    /// Like [`entry`](Self::entry), for a store, which does not need the version before the transform.
    ///
    /// # Errors
    ///
    /// The same as for [`entry`](Self::entry).
    pub(crate) fn unversioned_entry(&self, object: Arc<T>) -> Result<Entry<T>, StoreError> {
        let key = self.accessor.key(&object)?;
        let object = Transform::run(self.transform.as_ref(), &key, object)?;
        let key = self.transformed_key(&object).unwrap_or(key);
        Ok(Entry::new(key, object))
    }

    /// Returns the key of a transformed object, if it has one and this door uses it.
    pub(crate) fn transformed_key(&self, object: &T) -> Option<Key> {
        match (self.keys, &self.transform) {
            (Keys::Transformed, Some(_)) => self.accessor.key(object).ok(),
            (Keys::Sent, _) | (Keys::Transformed, None) => None,
        }
    }

    /// Reads key and version of an object that has passed the door before, so it is not transformed
    /// again.
    ///
    /// # Errors
    ///
    /// The object has no key.
    pub(crate) fn known_entry(&self, object: &Arc<T>) -> Result<Entry<T>, StoreError> {
        Ok(Entry {
            key: self.accessor.key(object)?,
            version: self.version(object),
            object: Arc::clone(object),
            digest: Digest::NONE,
        })
    }

    /// Turns a deletion into a delta. Tombstones are not transformed.
    ///
    /// # Errors
    ///
    /// The same as for [`entry`](Self::entry).
    pub(crate) fn deletion(&self, gone: Deleted<T>) -> Result<Delta<T>, StoreError> {
        Ok(match gone {
            Deleted::Final(object) => {
                let Entry {
                    key,
                    version,
                    object,
                    ..
                } = self.entry(object, Digest::NONE)?;
                let gone = Deleted::Final(object);
                Delta::Deleted { key, version, gone }
            }
            Deleted::FinalStateUnknown { key, last_known } => Delta::tombstone(key, last_known),
        })
    }

    /// Turns a deletion into a delta, without a transform: the object is not stored.
    ///
    /// # Errors
    ///
    /// The object has no key.
    pub(crate) fn untransformed_deletion(&self, gone: Deleted<T>) -> Result<Delta<T>, StoreError> {
        let key = self.accessor.key_of_deleted(&gone)?;
        let version = match &gone {
            Deleted::Final(object) => self.version(object),
            Deleted::FinalStateUnknown { .. } => None,
        };
        Ok(Delta::Deleted { key, version, gone })
    }

    /// Turns a change into a delta.
    ///
    /// # Errors
    ///
    /// The same as for [`entry`](Self::entry).
    pub fn delta(&self, change: Change<T>) -> Result<Delta<T>, StoreError> {
        Ok(match change {
            Change::Add(object) => Delta::Added(self.entry(object, Digest::NONE)?),
            Change::Update(object) => Delta::Updated(self.entry(object, Digest::NONE)?),
            Change::Delete(gone) => self.deletion(gone)?,
            Change::Bookmark(version) => Delta::Bookmark(version),
        })
    }

    /// Returns the version of an object. `None` if it has no metadata.
    pub(crate) fn version(&self, object: &T) -> Option<ResourceVersion> {
        self.accessor
            .resource_version(object)
            .and_then(ResourceVersion::new)
    }
}

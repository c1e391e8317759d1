//! The writes of a store that is used alone.

use super::super::index::{Computed, Registered, accept, compute};
use crate::entry::Entry;
use crate::object::Key;
use crate::resource_version::ResourceVersion;
use crate::store::StoreError;

/// A change of one object, or a bookmark.
pub(in crate::store) struct Write<T> {
    pub(in crate::store) action: Action<T>,
    pub(in crate::store) version: NewVersion,
}

pub(in crate::store) enum Action<T> {
    Put(Entry<T>),
    /// Removes the object with this key, if there is one.
    Remove(Key),
    /// Changes only the resource version.
    Bookmark,
}

/// What a write does to the resource version of the store (X9).
pub(in crate::store) enum NewVersion {
    /// The write is a tombstone, or its object has no metadata (K8).
    Unchanged,
    /// The store gets the version of the object, also if the object has none.
    Set(Option<ResourceVersion>),
}

impl<T> Write<T> {
    pub(in crate::store) fn bookmark(version: Option<ResourceVersion>) -> Self {
        Self {
            action: Action::Bookmark,
            version: NewVersion::Set(version),
        }
    }
}

impl<T> Action<T> {
    /// Returns the index values of the object that is stored.
    ///
    /// # Errors
    ///
    /// [`StoreError::Index`] if an index function fails.
    pub(super) fn compute(&self, functions: &[Registered<T>]) -> Result<Computed, StoreError> {
        match self {
            Self::Put(new) => accept(&new.key, compute(functions, &*new.object)),
            Self::Remove(_) | Self::Bookmark => Ok(Computed::default()),
        }
    }
}

impl NewVersion {
    /// `version` is that of the object. `None` if the object has no metadata.
    pub(in crate::store) fn of(version: Option<&str>) -> Self {
        version.map_or(Self::Unchanged, |version| {
            Self::Set(ResourceVersion::new(version))
        })
    }
}

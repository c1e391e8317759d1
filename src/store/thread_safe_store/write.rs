//! The writes of a store that is used alone.

use crate::entry::Delta;
use crate::resource_version::ResourceVersion;

/// A change of one object, or a bookmark.
pub(in crate::store) struct Write<T> {
    pub(in crate::store) delta: Delta<T>,
    pub(in crate::store) version: NewVersion,
}

/// What a write does to the resource version of the store (X9).
pub(in crate::store) enum NewVersion {
    /// The write is a tombstone, or its object has no metadata (K8).
    Unchanged,
    /// The store gets the version of the object, also if the object has none.
    Set(Option<ResourceVersion>),
}

impl<T> Write<T> {
    pub(in crate::store) fn bookmark(version: &str) -> Self {
        Self {
            delta: Delta::Bookmark(None),
            version: NewVersion::Set(ResourceVersion::new(version)),
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

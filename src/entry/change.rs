use std::sync::Arc;

use crate::object::Deleted;
use crate::resource_version::ResourceVersion;

/// One change of a store, for [`Store::transaction`](crate::store::Store::transaction) and
/// [`ReflectorStore::replace_partly`](crate::store::ReflectorStore::replace_partly).
/// client-go's `Transaction`.
#[derive(Debug)]
// Exhaustive: a store has no other writes.
pub enum Change<T> {
    /// An object was added.
    Add(Arc<T>),
    /// An object was modified.
    Update(Arc<T>),
    /// An object was deleted.
    Delete(Deleted<T>),
    /// All changes up to this resource version have been delivered. `None` if the server sends no
    /// versions.
    Bookmark(Option<ResourceVersion>),
}

impl<T> Change<T> {
    /// Whether the change carries an object to store.
    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Self::Add(_) | Self::Update(_))
    }
}

impl<T> Clone for Change<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Add(object) => Self::Add(Arc::clone(object)),
            Self::Update(object) => Self::Update(Arc::clone(object)),
            Self::Delete(gone) => Self::Delete(gone.clone()),
            Self::Bookmark(version) => Self::Bookmark(version.clone()),
        }
    }
}

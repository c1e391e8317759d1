use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::object::Deleted;

/// One change of one object. client-go's `Delta` and `DeltaType` in one.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta<T> {
    /// It appeared.
    Added(Arc<T>),
    /// It changed.
    Updated(Arc<T>),
    /// It is gone.
    Deleted(Deleted<T>),
    /// It was in a list; whether it is new or changed, only the store can tell.
    Replaced(Arc<T>),
    /// Nothing changed: a resync tells about it once more.
    Sync(Arc<T>),
}

impl<T> Delta<T> {
    /// The object: of a tombstone the last that was known, if any.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Added(object) | Self::Updated(object) | Self::Replaced(object) | Self::Sync(object) => {
                Some(object)
            }
            Self::Deleted(deleted) => deleted.object(),
        }
    }
}

impl<T> Clone for Delta<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(Arc::clone(object)),
            Self::Updated(object) => Self::Updated(Arc::clone(object)),
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
            Self::Replaced(object) => Self::Replaced(Arc::clone(object)),
            Self::Sync(object) => Self::Sync(Arc::clone(object)),
        }
    }
}

/// The changes of one object that wait together, oldest first. client-go's `Deltas`.
#[derive(PartialEq)]
pub struct Deltas<T>(Vec<Delta<T>>);

impl<T> Deltas<T> {
    /// The first change.
    pub fn oldest(&self) -> Option<&Delta<T>> {
        self.0.first()
    }

    /// The last change.
    pub fn newest(&self) -> Option<&Delta<T>> {
        self.0.last()
    }
}

impl<T> From<Vec<Delta<T>>> for Deltas<T> {
    fn from(deltas: Vec<Delta<T>>) -> Self {
        Self(deltas)
    }
}

impl<T> Deref for Deltas<T> {
    type Target = [Delta<T>];

    fn deref(&self) -> &[Delta<T>] {
        &self.0
    }
}

impl<T> Clone for Deltas<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: fmt::Debug> fmt::Debug for Deltas<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

use std::sync::Arc;

use super::{Entry, Gaps};
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;

/// A change of one object or of all objects. client-go's `Delta` and `DeltaType`.
///
/// ```
/// use k8s_informer::queue::{Delta, Entry};
/// use std::sync::Arc;
///
/// let added = Delta::Added(Entry::new("default/web-0".into(), Arc::new("a pod")));
/// assert_eq!(added.key().map(|key| &**key), Some("default/web-0"));
/// assert_eq!(added.object().map(|object| **object), Some("a pod"));
/// ```
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta<T> {
    /// The object was added.
    Added(Entry<T>),
    /// The object was modified.
    Updated(Entry<T>),
    /// The object was deleted.
    Deleted {
        /// The key of the object.
        key: Key,
        /// The resource version of the deletion. A tombstone has none: its last known state is older
        /// than the deletion.
        version: Option<ResourceVersion>,
        /// The final state of the object, or a tombstone.
        gone: Deleted<T>,
    },
    /// The object was in a list. It may be new, changed or unchanged; compare it with the store to
    /// find out.
    Replaced(Entry<T>),
    /// A resync delivers this object again, although it has not changed. A
    /// [`DeltaFifo`](crate::queue::DeltaFifo) without `emit_replaced` also uses `Sync` for the objects
    /// of a list, which may have changed.
    Sync(Entry<T>),
    /// A complete list. Objects that are not in the list no longer exist, except those that
    /// [may exist](ReplacedAll::may_exist). Only a [`RealFifo`](crate::queue::RealFifo) delivers this
    /// delta.
    ReplacedAll(Arc<ReplacedAll<T>>),
    /// No object has changed. A resync delivers all objects again. Only a
    /// [`RealFifo`](crate::queue::RealFifo) delivers this delta.
    SyncAll,
    /// All changes up to this resource version have been delivered. `None` for a bookmark without a
    /// version. Only a [`RealFifo`](crate::queue::RealFifo) delivers this delta.
    Bookmark(Option<ResourceVersion>),
}

impl<T> Delta<T> {
    /// Returns a tombstone.
    pub(crate) fn tombstone(key: Key, last_known: Option<Arc<T>>) -> Self {
        Self::Deleted {
            key: Key::clone(&key),
            version: None,
            gone: Deleted::FinalStateUnknown { key, last_known },
        }
    }

    /// Returns the key of the object. Returns `None` for a delta that does not belong to a single
    /// object.
    pub fn key(&self) -> Option<&Key> {
        match self {
            Self::Deleted { key, .. } => Some(key),
            other => other.entry().map(|entry| &entry.key),
        }
    }

    /// Returns the object. For a tombstone, this is the last known state, if there is one. Returns
    /// `None` for a delta that does not belong to a single object.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Deleted { gone, .. } => gone.object(),
            other => other.entry().map(|entry| &entry.object),
        }
    }

    /// Returns the entry of an object that exists. Returns `None` for a deletion, and for a delta that
    /// does not belong to a single object.
    pub fn entry(&self) -> Option<&Entry<T>> {
        match self {
            Self::Added(entry)
            | Self::Updated(entry)
            | Self::Replaced(entry)
            | Self::Sync(entry) => Some(entry),
            Self::Deleted { .. } | Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// Returns the object, like [`object`](Self::object).
    pub(crate) fn into_object(self) -> Option<Arc<T>> {
        match self {
            Self::Added(entry)
            | Self::Updated(entry)
            | Self::Replaced(entry)
            | Self::Sync(entry) => Some(entry.object),
            Self::Deleted { gone, .. } => gone.into_object(),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }

    /// Whether the delta belongs to a single object.
    pub(crate) fn is_of_object(&self) -> bool {
        self.key().is_some()
    }

    /// Returns the resource version that the change leads to.
    pub(crate) fn version(&self) -> Option<&ResourceVersion> {
        match self {
            Self::Deleted { version, .. } => version.as_ref(),
            Self::Bookmark(version) => version.as_ref(),
            other => other.entry().and_then(|entry| entry.version.as_ref()),
        }
    }
}

impl<T> Clone for Delta<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(entry) => Self::Added(entry.clone()),
            Self::Updated(entry) => Self::Updated(entry.clone()),
            Self::Deleted { key, version, gone } => Self::Deleted {
                key: Key::clone(key),
                version: version.clone(),
                gone: gone.clone(),
            },
            Self::Replaced(entry) => Self::Replaced(entry.clone()),
            Self::Sync(entry) => Self::Sync(entry.clone()),
            Self::ReplacedAll(list) => Self::ReplacedAll(Arc::clone(list)),
            Self::SyncAll => Self::SyncAll,
            Self::Bookmark(version) => Self::Bookmark(version.clone()),
        }
    }
}

/// A list and its resource version. client-go's `ReplacedAllInfo`.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub struct ReplacedAll<T> {
    /// The resource version of the list. `None` if the server sends no versions.
    pub resource_version: Option<ResourceVersion>,
    /// The objects that have a key, in the order of the list.
    pub entries: Vec<Entry<T>>,
    /// The objects that have no key, with their positions in the list, in order.
    pub(crate) without_key: Vec<(usize, Arc<T>)>,
    /// The objects of the list that could not be read. They still exist.
    pub(crate) gaps: Gaps,
}

impl<T> ReplacedAll<T> {
    /// Returns the objects in the order of the list, also those without a key.
    pub fn objects(&self) -> impl Iterator<Item = &Arc<T>> {
        let mut entries = self.entries.iter();
        let mut without_key = self.without_key.iter().peekable();
        let total = self.entries.len() + self.without_key.len();
        (0..total).filter_map(move |position| {
            match without_key.next_if(|(at, _)| *at == position) {
                Some((_, object)) => Some(object),
                None => entries.next().map(|entry| &entry.object),
            }
        })
    }

    /// Whether the object with this key may be one that could not be read. It still exists,
    /// although `objects` does not have it: keep its stored state.
    pub fn may_exist(&self, key: &str) -> bool {
        self.gaps.cover(key)
    }
}

use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use crate::base::derive::clone_fields;
use crate::base::digest::Digest;
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::store::{Entry, EntryChange, Gaps};

/// A change of one object or of all objects. client-go's `Delta` and `DeltaType`.
#[derive(Debug, PartialEq)]
#[non_exhaustive]
pub enum Delta<T> {
    /// The object was added.
    Added(Arc<T>),
    /// The object was modified.
    Updated(Arc<T>),
    /// The object was deleted.
    Deleted(Deleted<T>),
    /// The object was in a list. It may be new, changed or unchanged; compare it with the store to
    /// find out.
    Replaced(Arc<T>),
    /// A resync delivers this object again, although it has not changed. A
    /// [`DeltaFifo`](super::DeltaFifo) without `emit_replaced` also uses `Sync` for the objects of
    /// a list, which may have changed.
    Sync(Arc<T>),
    /// A complete list. Objects that are not in the list no longer exist, except those that
    /// [may exist](ReplacedAll::may_exist). Only a [`RealFifo`](super::RealFifo) delivers this delta.
    ReplacedAll(Arc<ReplacedAll<T>>),
    /// No object has changed. A resync delivers all objects again. Only a
    /// [`RealFifo`](super::RealFifo) delivers this delta.
    SyncAll,
    /// All changes up to this resource version have been delivered. Only a
    /// [`RealFifo`](super::RealFifo) delivers this delta.
    Bookmark(Arc<str>),
}

/// A list and its resource version. client-go's `ReplacedAllInfo`.
#[derive(Debug, PartialEq)]
pub struct ReplacedAll<T> {
    /// The resource version of the list.
    pub resource_version: String,
    /// The objects in the order of the list, after the transform.
    pub objects: Vec<Arc<T>>,
    /// The keys and digests of the objects. A key is `None` if the object has none.
    pub(crate) marks: Vec<(Option<Key>, Digest)>,
    /// The objects of the list that could not be read. They still exist.
    pub(crate) gaps: Gaps,
}

impl<T> ReplacedAll<T> {
    /// Whether the object with this key may be one that could not be read. It still exists,
    /// although `objects` does not have it: keep its stored state.
    pub fn may_exist(&self, key: &str) -> bool {
        self.gaps.cover(key)
    }
}

impl<T> Delta<T> {
    /// Returns the object. For a tombstone, this is the last known state, if there is one. Returns
    /// `None` for a delta that does not belong to a single object.
    pub fn object(&self) -> Option<&Arc<T>> {
        match self {
            Self::Added(object)
            | Self::Updated(object)
            | Self::Replaced(object)
            | Self::Sync(object) => Some(object),
            Self::Deleted(deleted) => deleted.object(),
            Self::ReplacedAll(_) | Self::SyncAll | Self::Bookmark(_) => None,
        }
    }
}

/// The version and digest of an object before the transform, as far as they are known.
#[derive(Clone, Default)]
pub(crate) struct Origin {
    pub(crate) version: Option<ResourceVersion>,
    pub(crate) digest: Digest,
}

/// Returns the key, the delta and the origin of a change. A bookmark has no key.
pub(super) fn of_change<T>(change: EntryChange<T>) -> (Option<Key>, Delta<T>, Origin) {
    let (key, delta, version, digest) = match change {
        EntryChange::Add(new, version) => (new.key, Delta::Added(new.object), version, new.digest),
        EntryChange::Update(new, version) => {
            (new.key, Delta::Updated(new.object), version, new.digest)
        }
        EntryChange::Delete(key, gone, version) => {
            (key, Delta::Deleted(gone), version, Digest::NONE)
        }
        EntryChange::Bookmark(version) => {
            let origin = Origin {
                version: Some(version.as_str().into()),
                digest: Digest::NONE,
            };
            return (None, Delta::Bookmark(version.into()), origin);
        }
    };
    (Some(key), delta, Origin { version, digest })
}

impl<T> Clone for Delta<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Added(object) => Self::Added(Arc::clone(object)),
            Self::Updated(object) => Self::Updated(Arc::clone(object)),
            Self::Deleted(deleted) => Self::Deleted(deleted.clone()),
            Self::Replaced(object) => Self::Replaced(Arc::clone(object)),
            Self::Sync(object) => Self::Sync(Arc::clone(object)),
            Self::ReplacedAll(list) => Self::ReplacedAll(Arc::clone(list)),
            Self::SyncAll => Self::SyncAll,
            Self::Bookmark(resource_version) => Self::Bookmark(Arc::clone(resource_version)),
        }
    }
}

/// The waiting changes of one object, oldest first, and its key. client-go's `Deltas`.
///
/// ```
/// use k8s_informer::queue::{Delta, Deltas};
/// use std::sync::Arc;
///
/// let deltas = Deltas::new("a".into(), vec![Delta::Added(Arc::new(1)), Delta::Updated(Arc::new(2))]);
/// assert_eq!(deltas.oldest(), Some(&Delta::Added(Arc::new(1))));
/// assert_eq!(deltas.newest().and_then(Delta::object).map(|object| **object), Some(2));
/// assert_eq!((deltas.key().map(|key| &**key), deltas.len()), (Some("a"), 2));
/// ```
pub struct Deltas<T> {
    key: Option<Key>,
    changes: Changes<T>,
    /// The sequence number of the oldest change, in the queue that delivered it.
    pub(super) since: u64,
    /// The origin of the newest object.
    origin: Origin,
}

/// The changes of one object. Most objects have a single waiting change: `One` needs no allocation.
enum Changes<T> {
    One(Delta<T>),
    Many(Box<Several<T>>),
}

struct Several<T> {
    deltas: Vec<Delta<T>>,
    /// The origins of all deltas but the newest. Shorter if they are not known.
    older: Vec<Origin>,
}

clone_fields!(Several<T>: deltas, older);

impl<T> Deltas<T> {
    /// Creates the deltas of the object with this key, oldest first.
    pub fn new(key: Key, deltas: Vec<Delta<T>>) -> Self {
        Self {
            key: Some(key),
            ..deltas.into()
        }
    }

    pub(super) fn one(since: u64, key: Option<Key>, delta: Delta<T>, origin: Origin) -> Self {
        Self {
            key,
            changes: Changes::One(delta),
            since,
            origin,
        }
    }

    /// Returns the deltas as those that a queue received under this key.
    pub(super) fn queued_as(self, key: Key, since: u64) -> Self {
        Self {
            key: Some(key),
            since,
            ..self
        }
    }

    /// Returns the newest object as an entry.
    pub(super) fn entry(&self) -> Option<Entry<T>> {
        Some(Entry {
            key: Key::clone(self.key.as_ref()?),
            object: Arc::clone(self.newest()?.object()?),
            digest: self.origin.digest,
        })
    }

    /// Returns the key under which the deltas were queued. Returns `None` for a list, a resync of
    /// all objects, a bookmark, and deltas that were created without a key.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// Returns the origin of the object of the delta at this position.
    pub(crate) fn origin(&self, at: usize) -> Origin {
        match &self.changes {
            Changes::Many(several) if at + 1 < several.deltas.len() => {
                several.older.get(at).cloned().unwrap_or_default()
            }
            _ => self.origin.clone(),
        }
    }

    /// Returns the first change.
    pub fn oldest(&self) -> Option<&Delta<T>> {
        self.first()
    }

    /// Returns the last change.
    pub fn newest(&self) -> Option<&Delta<T>> {
        self.last()
    }

    fn push(&mut self, delta: Delta<T>, origin: Origin) {
        let older = std::mem::replace(&mut self.origin, origin);
        let several = match &mut self.changes {
            Changes::Many(several) => several,
            one @ Changes::One(_) => {
                let several = Several {
                    deltas: Vec::with_capacity(2),
                    older: Vec::with_capacity(1),
                };
                let first = std::mem::replace(one, Changes::Many(Box::new(several)));
                let (Changes::Many(several), Changes::One(first)) = (one, first) else {
                    unreachable!("`one` has just been replaced");
                };
                several.deltas.push(first);
                several
            }
        };
        several
            .older
            .resize_with(several.deltas.len() - 1, Origin::default);
        several.older.push(older);
        several.deltas.push(delta);
    }

    /// Returns all changes with their origins.
    pub(super) fn into_changes(self) -> impl Iterator<Item = (Delta<T>, Origin)> {
        let (deltas, mut origins) = match self.changes {
            Changes::One(delta) => (vec![delta], Vec::new()),
            Changes::Many(several) => (several.deltas, several.older),
        };
        origins.resize_with(deltas.len().saturating_sub(1), Origin::default);
        origins.push(self.origin);
        deltas.into_iter().zip(origins)
    }

    /// Appends a delta. [Merges](merge_deletions) two consecutive deletions and returns the object of
    /// the unused one. client-go's `dedupDeltas`.
    pub(super) fn push_and_merge(&mut self, delta: Delta<T>, origin: Origin) -> Option<Arc<T>> {
        let newest = match &mut self.changes {
            Changes::One(newest) => Some(newest),
            Changes::Many(several) => several.deltas.last_mut(),
        };
        match (newest, delta) {
            (Some(Delta::Deleted(older)), Delta::Deleted(newer)) => {
                if older.is_final_state_unknown() {
                    self.origin = origin;
                }
                merge_deletions(older, newer).into_object()
            }
            (_, delta) => {
                self.push(delta, origin);
                None
            }
        }
    }
}

/// Merges two deletions of one object into `older` and returns the unused one. `older` is kept
/// unless it is a tombstone (D4).
pub(super) fn merge_deletions<T>(older: &mut Deleted<T>, newer: Deleted<T>) -> Deleted<T> {
    if older.is_final_state_unknown() {
        std::mem::replace(older, newer)
    } else {
        newer
    }
}

impl<T> From<Vec<Delta<T>>> for Deltas<T> {
    fn from(deltas: Vec<Delta<T>>) -> Self {
        Self {
            key: None,
            changes: Changes::Many(Box::new(Several {
                deltas,
                older: Vec::new(),
            })),
            since: 0,
            origin: Origin::default(),
        }
    }
}

impl<T> Deref for Deltas<T> {
    type Target = [Delta<T>];

    fn deref(&self) -> &[Delta<T>] {
        match &self.changes {
            Changes::One(delta) => slice::from_ref(delta),
            Changes::Many(several) => &several.deltas,
        }
    }
}

/// Compares the changes and their order, but not the keys.
impl<T: PartialEq> PartialEq for Deltas<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T> Clone for Deltas<T> {
    fn clone(&self) -> Self {
        let changes = match &self.changes {
            Changes::One(delta) => Changes::One(delta.clone()),
            Changes::Many(several) => Changes::Many(several.clone()),
        };
        Self {
            key: self.key.clone(),
            changes,
            since: self.since,
            origin: self.origin.clone(),
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Deltas<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

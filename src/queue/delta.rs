use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use crate::object::{Deleted, Key};
use crate::store::Gaps;

/// One change. client-go's `Delta` and `DeltaType` in one.
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
    /// A whole list: what isn't in it is gone. Of an atomic [`RealFifo`](super::RealFifo) only.
    ReplacedAll(Arc<ReplacedAll<T>>),
    /// Nothing changed: a resync tells about everything once more. Of an atomic
    /// [`RealFifo`](super::RealFifo) only.
    SyncAll,
    /// Everything up to this resourceVersion has been told. Of a [`RealFifo`](super::RealFifo) only, and only
    /// if it is asked to.
    Bookmark(Arc<str>),
}

/// A list, with its resourceVersion. client-go's `ReplacedAllInfo`.
#[derive(Debug, PartialEq)]
pub struct ReplacedAll<T> {
    /// Of the list.
    pub resource_version: String,
    /// In the order of the list, transformed.
    pub objects: Vec<Arc<T>>,
    /// What of the list could not be read: it is there all the same.
    pub gaps: Gaps,
}

impl<T> Delta<T> {
    /// The object: of a tombstone the last that was known, if any; none of a delta that is about all of them.
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

/// The changes of one object that wait together, oldest first, and its key. client-go's `Deltas`.
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
    /// The sequence number of the oldest change, in the queue that they come from.
    pub(super) since: u64,
}

/// Most objects have one change waiting, which needs no allocation of its own.
enum Changes<T> {
    One(Delta<T>),
    Many(Vec<Delta<T>>),
}

impl<T> Deltas<T> {
    /// The changes of the object with this key, oldest first.
    pub fn new(key: Key, deltas: Vec<Delta<T>>) -> Self {
        Self {
            key: Some(key),
            changes: Changes::Many(deltas),
            since: 0,
        }
    }

    pub(super) fn one(since: u64, key: Option<Key>, delta: Delta<T>) -> Self {
        Self {
            key,
            changes: Changes::One(delta),
            since,
        }
    }

    /// The key by which the queue knew them. `None` where there is no such thing: of a list, a resync of
    /// everything, a bookmark, and of deltas that were put together without one.
    pub fn key(&self) -> Option<&Key> {
        self.key.as_ref()
    }

    /// The first change.
    pub fn oldest(&self) -> Option<&Delta<T>> {
        self.first()
    }

    /// The last change.
    pub fn newest(&self) -> Option<&Delta<T>> {
        self.last()
    }

    /// With this key, unless they have one.
    pub(super) fn keyed(mut self, key: &Key) -> Self {
        self.key.get_or_insert_with(|| Arc::clone(key));
        self
    }

    pub(super) fn push(&mut self, delta: Delta<T>) {
        match &mut self.changes {
            Changes::Many(deltas) => deltas.push(delta),
            one @ Changes::One(_) => {
                let older = std::mem::replace(one, Changes::Many(Vec::with_capacity(2)));
                if let (Changes::Many(deltas), Changes::One(older)) = (one, older) {
                    deltas.extend([older, delta]);
                }
            }
        }
    }

    pub(super) fn into_vec(self) -> Vec<Delta<T>> {
        match self.changes {
            Changes::One(delta) => vec![delta],
            Changes::Many(deltas) => deltas,
        }
    }

    /// Appends a delta. Two deletions in a row [become one](merge_deletions). `dropped` takes the object of the
    /// other. client-go's `dedupDeltas`.
    pub(super) fn push_and_merge(&mut self, delta: Delta<T>, dropped: &mut Vec<Arc<T>>) {
        let newest = match &mut self.changes {
            Changes::One(newest) => Some(newest),
            Changes::Many(deltas) => deltas.last_mut(),
        };
        let unused = match (newest, delta) {
            (Some(Delta::Deleted(older)), Delta::Deleted(newer)) => merge_deletions(older, newer),
            (_, delta) => return self.push(delta),
        };
        dropped.extend(unused.object().cloned());
    }
}

/// Merges two deletions of one object into `older`: it stays, unless it is a tombstone; then `newer` takes its place (D4).
/// Returns the other one.
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
            changes: Changes::Many(deltas),
            since: 0,
        }
    }
}

impl<T> Deref for Deltas<T> {
    type Target = [Delta<T>];

    fn deref(&self) -> &[Delta<T>] {
        match &self.changes {
            Changes::One(delta) => slice::from_ref(delta),
            Changes::Many(deltas) => deltas,
        }
    }
}

/// The same changes in the same order; by which key they are known does not matter.
impl<T: PartialEq> PartialEq for Deltas<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T> Clone for Deltas<T> {
    fn clone(&self) -> Self {
        let changes = match &self.changes {
            Changes::One(delta) => Changes::One(delta.clone()),
            Changes::Many(deltas) => Changes::Many(deltas.clone()),
        };
        Self {
            key: self.key.clone(),
            changes,
            since: self.since,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Deltas<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

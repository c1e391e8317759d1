use std::fmt;
use std::ops::Deref;
use std::slice;
use std::sync::Arc;

use crate::entry::{Delta, Entry};
use crate::object::Key;

/// The waiting changes of one object, oldest first. client-go's `Deltas`.
///
/// ```
/// use k8s_informer::queue::{Delta, Deltas, Entry};
/// use std::sync::Arc;
///
/// let entry = |number| Entry::new("a".into(), Arc::new(number));
/// let deltas = Deltas::from(vec![Delta::Added(entry(1)), Delta::Updated(entry(2))]);
/// assert_eq!(deltas.oldest(), Some(&Delta::Added(entry(1))));
/// assert_eq!(deltas.newest().and_then(Delta::object).map(|object| **object), Some(2));
/// assert_eq!((deltas.key().map(|key| &**key), deltas.len()), (Some("a"), 2));
/// ```
pub struct Deltas<T> {
    changes: Changes<T>,
    /// The sequence number of the oldest change, in the queue that delivered it.
    pub(super) since: u64,
    /// Whether the transformed object has no key. Only a [`RealFifo`](super::RealFifo) needs this
    /// (R16).
    pub(super) has_no_key: bool,
}

/// The changes of one object. Most objects have a single waiting change: `One` needs no allocation.
enum Changes<T> {
    One(Delta<T>),
    Many(Vec<Delta<T>>),
}

impl<T> Deltas<T> {
    pub(super) fn one(since: u64, delta: Delta<T>) -> Self {
        Self {
            changes: Changes::One(delta),
            since,
            has_no_key: false,
        }
    }

    /// Returns the newest object as an entry.
    pub(super) fn entry(&self) -> Option<Entry<T>> {
        match self.newest()? {
            Delta::Deleted { key, gone, .. } => {
                Some(Entry::new(Key::clone(key), Arc::clone(gone.object()?)))
            }
            newest => newest.entry().cloned(),
        }
    }

    /// Returns the key of the object. Returns `None` for a list, a resync of all objects and a
    /// bookmark.
    pub fn key(&self) -> Option<&Key> {
        self.newest()?.key()
    }

    /// Returns the first change.
    pub fn oldest(&self) -> Option<&Delta<T>> {
        self.first()
    }

    /// Returns the last change.
    pub fn newest(&self) -> Option<&Delta<T>> {
        self.last()
    }

    fn push(&mut self, delta: Delta<T>) {
        let changes = std::mem::replace(&mut self.changes, Changes::Many(Vec::new()));
        self.changes = match changes {
            Changes::One(first) => Changes::Many(vec![first, delta]),
            Changes::Many(mut deltas) => {
                deltas.push(delta);
                Changes::Many(deltas)
            }
        };
    }

    fn newest_mut(&mut self) -> Option<&mut Delta<T>> {
        match &mut self.changes {
            Changes::One(newest) => Some(newest),
            Changes::Many(deltas) => deltas.last_mut(),
        }
    }

    /// Returns all changes.
    pub(super) fn into_changes(self) -> Vec<Delta<T>> {
        match self.changes {
            Changes::One(delta) => vec![delta],
            Changes::Many(deltas) => deltas,
        }
    }

    /// Appends a delta. Merges two consecutive deletions: the older one is kept unless it is a
    /// tombstone (D4). Returns the object of the unused deletion. client-go's `dedupDeltas`.
    pub(super) fn push_and_merge(&mut self, mut delta: Delta<T>) -> Option<Arc<T>> {
        match (self.newest_mut(), &delta) {
            (Some(older @ Delta::Deleted { .. }), Delta::Deleted { .. }) => {
                if is_tombstone(older) {
                    std::mem::swap(older, &mut delta);
                }
                match delta {
                    Delta::Deleted { gone, .. } => gone.into_object(),
                    _ => unreachable!("both are deletions"),
                }
            }
            _ => {
                self.push(delta);
                None
            }
        }
    }
}

fn is_tombstone<T>(delta: &Delta<T>) -> bool {
    matches!(delta, Delta::Deleted { gone, .. } if gone.is_final_state_unknown())
}

impl<T> From<Vec<Delta<T>>> for Deltas<T> {
    fn from(deltas: Vec<Delta<T>>) -> Self {
        Self {
            changes: Changes::Many(deltas),
            since: 0,
            has_no_key: false,
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

/// Compares the changes and their order.
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
            changes,
            since: self.since,
            has_no_key: self.has_no_key,
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for Deltas<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

//! The waiting changes, and what the front of a `RealFifo` requests from them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::{Front, Locked};
use crate::base::shrink::Shrink;
use crate::entry::{Entry, Gaps, ReplacedAll};
use crate::object::{Deleted, Key};
use crate::queue::front::{Accumulator, DeltaAccumulator, Popped};
use crate::queue::{Delta, Deltas};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, StoreError};

/// The waiting changes.
pub(in crate::queue) struct InOrder<T> {
    /// Each has one delta.
    pub(super) items: VecDeque<Deltas<T>>,
}

/// A change that is ready to be queued.
pub(in crate::queue) struct Keyed<T> {
    delta: Delta<T>,
    /// Whether the transformed object has no key. The delta then has the key before the transform.
    has_no_key: bool,
}

impl<T> From<Delta<T>> for Keyed<T> {
    fn from(delta: Delta<T>) -> Self {
        Self {
            delta,
            has_no_key: false,
        }
    }
}

impl<T> Accumulator for InOrder<T> {
    fn len(&self) -> usize {
        self.items.len()
    }

    fn is_exclusive(&self) -> bool {
        self.items.len() >= 2 * Self::BATCH
    }
}

impl<T> DeltaAccumulator<T> for InOrder<T> {
    type Entered = Keyed<T>;

    /// Under shuttle, whose queues are short, a batch has two changes (R14).
    const BATCH: usize = if cfg!(shuttle) { 2 } else { 1000 };

    fn take_one(&mut self) -> Option<Deltas<T>> {
        let deltas = self.items.pop_front();
        self.items.shrink_after_peak();
        deltas
    }

    /// Removes the changes that form the next batch (R14–R16).
    fn take(&mut self, most: usize) -> Vec<Deltas<T>> {
        let mut batch: Vec<Deltas<T>> = Vec::new();
        let mut keys = HashSet::new();
        while batch.len() < most
            && let Some(next) = self.items.front()
        {
            let (is_alone, is_repeated) = match next.key() {
                // A list, a resync of all objects, or a bookmark.
                None => (true, false),
                Some(_) if next.has_no_key => (false, false),
                Some(key) => (false, !keys.insert(Key::clone(key))),
            };
            let ends_batch = is_alone || next.has_no_key;
            if (is_alone && !batch.is_empty()) || is_repeated {
                break;
            }
            batch.extend(self.items.pop_front());
            if ends_batch {
                break;
            }
        }
        self.items.shrink_after_peak();
        batch
    }

    /// The changes of one object are not together, so finding them takes too long.
    fn newest(&self, _: &str) -> Option<Entry<T>> {
        None
    }

    /// Every failed write counts (R2, R3).
    fn is_populated_without_key(_: &Change<T>) -> bool {
        true
    }

    fn enter(front: &Front<T>, change: Change<T>) -> Result<Keyed<T>, StoreError> {
        let delta = front.door.delta(change)?;
        let transformed = match &delta {
            Delta::Deleted {
                gone: Deleted::Final(object),
                ..
            } => Some(object),
            // Nothing else passes the transform.
            other => other.entry().map(|entry| &entry.object),
        };
        let has_no_key = front.door.transform().is_some()
            && transformed.is_some_and(|object| front.door.transformed_key(object).is_none());
        Ok(Keyed { delta, has_no_key })
    }

    fn put(queue: &mut Locked<'_, T>, keyed: Keyed<T>) -> Result<(), StoreError> {
        let Keyed { delta, has_no_key } = keyed;
        let (version, is_added) = (delta.version().cloned(), matches!(delta, Delta::Added(_)));
        queue.populated |= !matches!(delta, Delta::Bookmark(_));
        queue.push(delta, has_no_key);
        queue.versions.record_object(version, is_added);
        Ok(())
    }

    fn replace(
        front: &Front<T>,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let list = ReplacedAll {
            resource_version,
            entries,
            without_key: Vec::new(),
            gaps,
        };
        push_list(front, list);
        Ok(())
    }

    /// Puts requested changes back to the front, in their order.
    fn settle(queue: &mut Locked<'_, T>, popped: &Popped<'_, T>) {
        if popped.processed.is_requeued() {
            for deltas in popped.deltas.iter().rev() {
                queue.waiting.items.push_front(deltas.clone());
            }
            queue.returned_to_front(popped.deltas.len(), popped.flight);
        }
    }
}

/// Queues a list as one change (R7).
pub(super) fn push_list<T>(front: &Front<T>, list: ReplacedAll<T>) {
    let version = list.resource_version.clone();
    let mut queue = front.lock_for_write();
    queue.push(Delta::ReplacedAll(Arc::new(list)), false);
    queue.versions.record_list(version);
    queue.replaced();
    queue.unlock();
}

impl<T> Locked<'_, T> {
    pub(super) fn push(&mut self, delta: Delta<T>, has_no_key: bool) {
        let mut deltas = Deltas::one(self.versions.begin(), delta);
        deltas.has_no_key = has_no_key;
        self.waiting.items.push_back(deltas);
    }
}

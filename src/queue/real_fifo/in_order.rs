//! The waiting changes, and what the front of a `RealFifo` requests from them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use super::{Front, Locked};
use crate::base::shrink::Shrink;
use crate::object::{Deleted, Key};
use crate::queue::delta::{self, Origin};
use crate::queue::front::{Accumulator, DeltaAccumulator, Popped};
use crate::queue::{Delta, Deltas, ReplacedAll};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, Entry, EntryChange, Gaps, StoreError};

/// The waiting changes.
pub(in crate::queue) struct InOrder<T> {
    /// Entries with one delta each. The key is that of the transformed object, or `None` if the
    /// object has no key.
    pub(super) items: VecDeque<Deltas<T>>,
}

/// A change that is ready to be queued.
pub(in crate::queue) struct Keyed<T> {
    key: Option<Key>,
    delta: Delta<T>,
    origin: Origin,
}

impl<T> From<EntryChange<T>> for Keyed<T> {
    fn from(change: EntryChange<T>) -> Self {
        let (key, delta, origin) = delta::of_change(change);
        Self { key, delta, origin }
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
            let is_alone = matches!(
                next.newest(),
                None | Some(Delta::ReplacedAll(_) | Delta::SyncAll | Delta::Bookmark(_))
            );
            let ends_batch = is_alone || next.key().is_none();
            let is_repeated = next.key().is_some_and(|key| !keys.insert(Key::clone(key)));
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

    /// The key of the entry is that of the transformed object (R3).
    fn enter(front: &Front<T>, change: Change<T>) -> Result<Keyed<T>, StoreError> {
        let mut keyed = Keyed::from(front.door.change(change)?);
        let is_tombstone = matches!(
            keyed.delta,
            Delta::Deleted(Deleted::FinalStateUnknown { .. })
        );
        if front.door.transform().is_some() && !is_tombstone {
            let object = keyed.delta.object();
            keyed.key = object.and_then(|object| front.door.accessor().key(object).ok());
        }
        Ok(keyed)
    }

    fn put(queue: &mut Locked<'_, T>, keyed: Keyed<T>) -> Result<(), StoreError> {
        let Keyed { key, delta, origin } = keyed;
        let (version, is_added) = (origin.version.clone(), matches!(delta, Delta::Added(_)));
        queue.populated |= !matches!(delta, Delta::Bookmark(_));
        queue.push(key, delta, origin);
        queue.versions.record_object(version, is_added);
        Ok(())
    }

    fn replace(
        front: &Front<T>,
        entries: Vec<Entry<T>>,
        gaps: Gaps,
        resource_version: &str,
    ) -> Result<(), StoreError> {
        let (mut objects, mut marks) = (Vec::new(), Vec::new());
        for entry in entries {
            objects.push(entry.object);
            marks.push((Some(entry.key), entry.digest));
        }
        let list = ReplacedAll {
            resource_version: resource_version.to_owned(),
            objects,
            marks,
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
    let version = ResourceVersion::from(&*list.resource_version);
    let mut queue = front.lock_for_write();
    queue.push(None, Delta::ReplacedAll(Arc::new(list)), Origin::default());
    queue.versions.record_list(version);
    queue.replaced();
    queue.unlock();
}

impl<T> Locked<'_, T> {
    pub(super) fn push(&mut self, key: Option<Key>, delta: Delta<T>, origin: Origin) {
        let since = self.versions.begin();
        let deltas = Deltas::one(since, key, delta, origin);
        self.waiting.items.push_back(deltas);
    }
}

//! Which of what has been told has not been processed yet, though the order across keys is not that in which it
//! came.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::State;
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;

/// A mention of a key in the order in which keys are popped. Numbers never descend from one to the next.
pub(super) struct Place {
    pub(super) key: Key,
    pub(super) number: u64,
}

/// Where the oldest change of a key stands, and the last version that was told before it.
#[derive(Clone)]
pub(super) struct Since {
    pub(super) number: u64,
    pub(super) before: ResourceVersion,
}

/// Keys with a change that is older than their place in the order says: those that were put back. Each has an
/// entry more, however many changes others have meanwhile.
#[derive(Default)]
pub(super) struct Late {
    of: HashMap<Key, u64>,
    /// By number and key: the number of a place that is passed to a key may be another one's, too.
    before: BTreeMap<(u64, Key), ResourceVersion>,
}

impl Late {
    pub(super) fn put(&mut self, key: &Key, since: Since) {
        self.of.insert(Arc::clone(key), since.number);
        self.before.insert((since.number, Arc::clone(key)), since.before);
    }

    pub(super) fn take(&mut self, key: &Key) -> Option<Since> {
        if self.of.is_empty() {
            return None;
        }
        let number = self.of.remove(key)?;
        self.before.remove(&(number, Arc::clone(key))).map(|before| Since { number, before })
    }

    fn first(&self) -> Option<(u64, &ResourceVersion)> {
        self.before.first_key_value().map(|((number, _), before)| (*number, before))
    }
}

impl<T> State<T> {
    /// A place at the end, for a key that has none or another one.
    pub(super) fn queue(&mut self, key: &Key) {
        let number = self.told.place();
        self.order.push_back(Place { key: Arc::clone(key), number });
    }

    /// A change that stands here without a place in the order.
    fn stands(&mut self) -> Since {
        let before = self.told.latest().clone();
        Since { number: self.told.place(), before }
    }

    /// Remembers a deletion of the key in flight, which is being deleted. Answers one to drop without the lock.
    pub(super) fn miss(&mut self, gone: Deleted<T>) -> Option<Deleted<T>> {
        let since = self.stands();
        match &mut self.in_flight {
            Some(flight) => flight.miss(gone, since),
            None => Some(gone),
        }
    }

    /// The oldest change of what was popped from this place.
    pub(super) fn since(&mut self, place: &Place) -> Since {
        let Place { key, number } = place;
        self.late.take(key).unwrap_or_else(|| {
            self.told.pass(Some(*number));
            Since { number: *number, before: self.told.passed().clone() }
        })
    }

    /// The watermark is what came before the oldest change: that in flight, of a key that was put back, or the
    /// first in order. A place that a pop passes, since its key has no changes or more than one place, counts
    /// until it does. To be called when there are fewer changes, or more versions without one.
    pub(super) fn publish(&mut self) {
        let first = self.order.front().map(|place| place.number);
        self.told.pass(first);
        let flight = self.in_flight.as_ref().map(|flight| (flight.since.number, &flight.since.before));
        let early = [flight, self.late.first()].into_iter().flatten().min_by_key(|(number, _)| *number);
        let early = early.filter(|(number, _)| first.is_none_or(|first| *number < first));
        self.told.publish(early.map(|(_, before)| before));
    }

    /// Takes out of `order` what a pop would pass.
    pub(super) fn pass_over(&mut self) {
        let mut seen = HashSet::new();
        let Self { order, items, told, .. } = self;
        order.retain(|place| items.contains_key(&place.key) && seen.insert(Arc::clone(&place.key)));
        told.thin(order.iter().map(|place| place.number));
    }
}

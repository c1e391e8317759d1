//! Which of what has been told has not been processed yet, though the order across keys is not that in which
//! it came.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::{List, State};
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
        self.before
            .insert((since.number, Arc::clone(key)), since.before);
    }

    pub(super) fn take(&mut self, key: &Key) -> Option<Since> {
        if self.of.is_empty() {
            return None;
        }
        let number = self.of.remove(key)?;
        self.before
            .remove(&(number, Arc::clone(key)))
            .map(|before| Since { number, before })
    }

    fn first(&self) -> Option<(u64, &ResourceVersion)> {
        self.before
            .first_key_value()
            .map(|((number, _), before)| (*number, before))
    }
}

impl<T> State<T> {
    /// A place at the end, for a key that has none or another one.
    pub(super) fn queue(&mut self, key: &Key) {
        let number = self.told.place();
        self.order.push_back(Place {
            key: Arc::clone(key),
            number,
        });
    }

    /// A change that stands here without a place in the order.
    fn stands(&mut self) -> Since {
        let before = self.told.latest().clone();
        Since {
            number: self.told.place(),
            before,
        }
    }

    /// Remembers a deletion of the key in flight, which is being deleted. Answers one to drop without the
    /// lock.
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
            Since {
                number: *number,
                before: self.told.passed().clone(),
            }
        })
    }

    /// The watermark is what came before the oldest change: that in flight, of a key that was put back, or
    /// the first in order. A place that a pop passes, since its key has no changes or more than one place,
    /// counts until it does. To be called when there are fewer changes, or more versions without one.
    pub(super) fn publish(&mut self) {
        let first = self.first_in_order();
        self.told.pass(first);
        let flight = self
            .in_flight
            .as_ref()
            .map(|flight| (flight.since.number, &flight.since.before));
        let early = [flight, self.late.first()]
            .into_iter()
            .flatten()
            .min_by_key(|(number, _)| *number);
        let early = early.filter(|(number, _)| first.is_none_or(|first| *number < first));
        self.told.publish(early.map(|(_, before)| before));
    }

    fn first_in_order(&self) -> Option<u64> {
        let next = self.order.front().map(|place| place.number);
        self.list.as_ref().map(List::number).or(next)
    }

    /// Whether the last list has been processed: what is in flight or was put back has not been.
    pub(super) fn is_settled(&self) -> bool {
        let flight = self.in_flight.as_ref().map(|flight| flight.since.number);
        let late = self.late.first().map(|(number, _)| number);
        let first = [self.first_in_order(), flight, late]
            .into_iter()
            .flatten()
            .min();
        self.told.is_settled(first)
    }

    /// Takes out of `order` what a pop would pass.
    pub(super) fn pass_over(&mut self) {
        let mut seen = HashSet::new();
        let Self {
            order, items, told, ..
        } = self;
        order.retain(|place| items.contains_key(&place.key) && seen.insert(Arc::clone(&place.key)));
        told.thin(order.iter().map(|place| place.number));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{DeltaFifo, KEEP};
    use crate::object::{Accessor, KeyError};
    use crate::queue::{Queue, Requeue};
    use crate::store::ReflectorStore;
    use std::sync::Arc;

    type Fact = (&'static str, String);

    fn accessor() -> Accessor<Fact> {
        let accessor = Accessor::new(|fact: &Fact| Ok::<_, KeyError>(fact.0.into()));
        accessor.with_resource_version(|fact| Some(&fact.1))
    }

    fn write(queue: &DeltaFifo<Fact>, key: &'static str, version: usize) {
        queue.update(Arc::new((key, version.to_string()))).unwrap();
    }

    #[test]
    fn nothing_grows_while_a_key_is_put_back_for_ever() {
        let queue = DeltaFifo::new(accessor());
        write(&queue, "stuck", 1);
        let mut others = 0;
        for version in 2..10_000 {
            write(&queue, if version % 2 == 0 { "a" } else { "b" }, version);
            let popped = queue.pop(&mut |deltas, _| match deltas.key().map(|key| &**key) {
                Some("stuck") => Err(Requeue::new().into()),
                _ => {
                    others += 1;
                    Ok(())
                }
            });
            popped.unwrap();
            let state = queue.state.lock();
            assert!(
                state.told.kept() <= 3 && state.late.of.len() <= 1 && state.late.before.len() <= 1
            );
        }
        assert!(others > 3000, "{others}");
        assert_eq!(queue.processed().unwrap().current(), "");
    }

    #[test]
    fn nothing_grows_with_changes_of_keys_that_wait() {
        let queue = DeltaFifo::new(accessor());
        for version in 1..10_000 {
            write(&queue, ["a", "b", "c"][version % 3], version);
        }
        assert!(queue.state.lock().told.kept() <= 3);
    }

    #[test]
    fn nothing_grows_with_what_a_compressor_drops() {
        let queue = DeltaFifo::builder(accessor())
            .compressor(|deltas| {
                let drops = deltas.key().is_some_and(|key| &**key == "dropped");
                deltas.iter().filter(|_| !drops).cloned().collect()
            })
            .build();
        write(&queue, "kept", 1);
        for version in 2..10_000 {
            write(&queue, "dropped", version);
            let state = queue.state.lock();
            assert!(state.told.kept() <= state.order.len() && state.order.len() <= KEEP + 2);
        }
        queue.pop(&mut |_, _| Ok(())).unwrap();
        queue.close();
        assert!(queue.pop(&mut |_, _| Ok(())).is_err());
        assert_eq!(queue.processed().unwrap().current(), "9999");
        assert_eq!(queue.state.lock().told.kept(), 0);
    }
}

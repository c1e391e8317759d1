//! The model of a `DeltaFifo`: keys in order, each with its changes, and the known objects.

use std::collections::{BTreeMap, BTreeSet};

use arbitrary::Arbitrary;
use k8s_informer::Deleted;
use k8s_informer::queue::{Delta, Entry};

use super::item::{Held, Item, Numbering, Refusal, VersionTracker, few, name, tombstone};
use super::processing::End;

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Options {
    pub known_objects: bool,
    pub emit_replaced: bool,
    pub transform: bool,
}

#[derive(Arbitrary, Debug)]
pub enum Write {
    Add(Item),
    Update(Item),
    Delete(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
    Replace(#[arbitrary(with = few)] Vec<Item>),
    Resync,
    AddIfNotPresent(Given),
}

/// The deltas that are added if their key does not wait.
#[derive(Arbitrary, Debug)]
pub enum Given {
    LastPopped,
    /// Deltas without a key.
    Made(#[arbitrary(with = few)] Vec<Change>),
}

/// The result of looking up a listed key.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum Lookup {
    Found,
    Missing,
    Fails,
}

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
pub enum Change {
    Added(Item),
    Updated(Item),
    Replaced(Item),
    Sync(Item),
    Deleted(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
}

impl Change {
    /// Returns the change with an object that no other change has.
    pub fn numbered(self, numbering: &mut Numbering) -> Self {
        let mut number = |item| numbering.number(item);
        match self {
            Self::Added(item) => Self::Added(number(item)),
            Self::Updated(item) => Self::Updated(number(item)),
            Self::Replaced(item) => Self::Replaced(number(item)),
            Self::Sync(item) => Self::Sync(number(item)),
            Self::Deleted(item) => Self::Deleted(number(item)),
            Self::Tombstone(key, item) => Self::Tombstone(key, item.map(number)),
        }
    }

    pub fn delta(self) -> Delta<Held> {
        let entry = |item: Item| Entry::new(item.key().unwrap_or("").into(), item.held());
        let deletion = |key: &str, gone| Delta::Deleted {
            key: key.into(),
            version: None,
            gone,
        };
        match self {
            Self::Added(item) => Delta::Added(entry(item)),
            Self::Updated(item) => Delta::Updated(entry(item)),
            Self::Replaced(item) => Delta::Replaced(entry(item)),
            Self::Sync(item) => Delta::Sync(entry(item)),
            Self::Deleted(item) => deletion(item.key().unwrap_or(""), item.gone()),
            Self::Tombstone(key, item) => deletion(key, tombstone(key, item)),
        }
    }

    pub fn item(self) -> Option<Item> {
        match self {
            Self::Added(item)
            | Self::Updated(item)
            | Self::Replaced(item)
            | Self::Sync(item)
            | Self::Deleted(item) => Some(item),
            Self::Tombstone(_, item) => item,
        }
    }

    pub fn is_deletion(self) -> bool {
        matches!(self, Self::Deleted(_) | Self::Tombstone(..))
    }

    pub fn key(self) -> Result<&'static str, Refusal> {
        match (self, self.item()) {
            (Self::Tombstone(key, _), _) => Ok(key),
            (_, Some(item)) => item.key().map_err(|_| Refusal::Key),
            _ => Err(Refusal::Key),
        }
    }

    pub fn is(self, delta: &Delta<Held>) -> bool {
        match (self, delta) {
            (Self::Added(item), Delta::Added(entry))
            | (Self::Updated(item), Delta::Updated(entry))
            | (Self::Replaced(item), Delta::Replaced(entry))
            | (Self::Sync(item), Delta::Sync(entry)) => item == entry.object.0,
            (Self::Deleted(item), Delta::Deleted { gone, .. }) => {
                matches!(gone, Deleted::Final(held) if item == held.0)
            }
            (Self::Tombstone(name, item), Delta::Deleted { gone, .. }) => match gone {
                Deleted::FinalStateUnknown { key, last_known } => {
                    name == &**key && item == last_known.as_ref().map(|held| held.0)
                }
                Deleted::Final(_) => false,
            },
            _ => false,
        }
    }
}

/// Returns a version for a list, chosen by its length.
pub fn list_version(items: &[Item]) -> &'static str {
    ["7", "not a number", "", "0"][items.len() % 4]
}

/// Appends a change. Of two deletions in a row, the one with more information remains (D4).
fn append(changes: &mut Vec<Change>, change: Change) {
    match changes.last_mut() {
        Some(Change::Deleted(_)) if change.is_deletion() => {}
        Some(last @ Change::Tombstone(..)) if change.is_deletion() => *last = change,
        _ => changes.push(change),
    }
}

pub struct Model {
    pub options: Options,
    /// The waiting keys in the order of pops.
    slots: Vec<Slot>,
    changes: BTreeMap<&'static str, Vec<Change>>,
    /// The known objects, written by the consumer and by others.
    pub known: BTreeMap<&'static str, Item>,
    pub spoilt: (&'static str, Lookup),
    flight: Vec<Flight>,
    populated: bool,
    pub synced: bool,
    pub closed: bool,
    versions: VersionTracker,
}

struct Slot {
    key: &'static str,
    /// Whether the key belongs to the initial list.
    initial: bool,
    /// The time of the oldest change of the key.
    since: usize,
}

/// A key in processing. client-go processes under the lock of the queue, so other threads never see
/// the state between queue and store. Here a key in processing therefore counts as known in its
/// newest state.
#[derive(Clone)]
pub struct Flight {
    pub key: &'static str,
    pub changes: Vec<Change>,
    pub initial: bool,
    since: usize,
    /// The deletions that arrive while a deletion of the key is in processing. They are queued if
    /// the processing fails.
    missed: Vec<Change>,
    missed_since: usize,
}

impl Flight {
    pub fn newest(&self) -> Change {
        *self.changes.last().unwrap()
    }

    fn miss(&mut self, gone: Change, now: usize) {
        if self.missed.is_empty() {
            self.missed_since = now;
        }
        append(&mut self.missed, gone);
    }

    fn left(&self) -> Option<Item> {
        self.newest()
            .item()
            .filter(|_| !self.newest().is_deletion())
    }
}

impl Model {
    pub fn new(options: Options, spoilt: (&'static str, Lookup)) -> Self {
        Self {
            options,
            slots: Vec::new(),
            changes: BTreeMap::new(),
            known: BTreeMap::new(),
            spoilt,
            flight: Vec::new(),
            populated: false,
            synced: false,
            closed: false,
            versions: VersionTracker::default(),
        }
    }

    /// Returns the version up to which everything has been processed.
    pub fn processed(&self) -> &'static str {
        let slots = self.slots.iter().map(|slot| slot.since);
        let flight = self.flight.iter().map(|flight| flight.since);
        self.versions.before(slots.chain(flight).min())
    }

    /// Returns the waiting keys in order, with their changes.
    pub fn waiting(&self) -> Vec<(&'static str, &[Change])> {
        let keys = self.slots.iter().map(|slot| slot.key);
        keys.map(|key| (key, self.changes[key].as_slice()))
            .collect()
    }

    fn lookup(&self, key: &str) -> Result<Option<Item>, ()> {
        match self.spoilt {
            (spoilt, Lookup::Fails) if spoilt == key => Err(()),
            (spoilt, Lookup::Missing) if spoilt == key => Ok(None),
            _ => Ok(self.known.get(key).copied()),
        }
    }

    fn is_in_flight(&self, key: &str) -> bool {
        self.flight.iter().any(|flight| flight.key == key)
    }

    /// Returns all known objects, those in processing last.
    fn all_known(&self) -> Vec<(&'static str, Option<Item>)> {
        if !self.options.known_objects {
            return Vec::new();
        }
        let others = self.known.keys().filter(|key| !self.is_in_flight(key));
        let mut all: Vec<_> = others
            .map(|key| (*key, self.lookup(key).unwrap_or(None)))
            .collect();
        let initial_in_flight = self.flight.iter();
        all.extend(initial_in_flight.filter_map(|flight| Some((flight.key, Some(flight.left()?)))));
        all
    }

    fn push(&mut self, key: &'static str, change: Change) {
        match self.changes.get_mut(key) {
            Some(changes) => append(changes, change),
            None => {
                self.slots.push(Slot {
                    key,
                    initial: false,
                    since: self.versions.now,
                });
                self.changes.insert(key, vec![change]);
            }
        }
    }

    /// Queues changes before the newer changes of the key, which keep their position.
    fn put_back(&mut self, key: &'static str, changes: &[Change], since: usize) {
        let newer = self.changes.remove(key);
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.key == key) {
            slot.since = slot.since.min(since);
        } else {
            self.slots.push(Slot {
                key,
                initial: false,
                since,
            });
        }
        let mut all = changes.to_vec();
        newer
            .iter()
            .flatten()
            .for_each(|change| append(&mut all, *change));
        self.changes.insert(key, all);
    }

    fn prepare(&self, item: Item) -> Result<(&'static str, Item), Refusal> {
        let key = item.key().map_err(|_| Refusal::Key)?;
        let item = if self.options.transform {
            item.transform()
        } else {
            Ok(item)
        };
        item.map(|item| (key, item))
            .map_err(|_| Refusal::Transform(key.to_owned()))
    }

    fn upsert(&mut self, item: Item, change: fn(Item) -> Change) -> Result<(), Refusal> {
        self.populated = true;
        let (key, transformed) = self.prepare(item)?;
        let change = change(transformed);
        self.push(key, change);
        self.versions
            .object(&item, matches!(change, Change::Added(_)));
        Ok(())
    }

    /// Queues a deletion. If the key neither waits nor is known, the deletion is dropped and its
    /// object is not transformed (D3).
    fn delete(&mut self, key: &'static str, gone: Change) -> Result<(), Refusal> {
        self.populated = true;
        let known =
            self.options.known_objects && (self.is_in_flight(key) || self.lookup(key) != Ok(None));
        let versions = gone;
        let gone = match gone {
            _ if !self.changes.contains_key(key) && !known => None,
            Change::Deleted(item) => Some(Change::Deleted(self.prepare(item)?.1)),
            tombstone => Some(tombstone),
        };
        let mut flight = self.flight.iter_mut();
        let leaving = flight.find(|flight| flight.key == key && flight.left().is_none());
        match (leaving, gone) {
            (Some(flight), Some(gone)) if !self.changes.contains_key(key) => {
                flight.miss(gone, self.versions.now);
            }
            (_, gone) => gone.into_iter().for_each(|gone| self.push(key, gone)),
        }
        if let Change::Deleted(item) = versions {
            self.versions.object(&item, false);
        }
        Ok(())
    }

    /// Replaces the content (D6 to D8).
    fn replace(&mut self, items: &[Item]) -> Result<(), Refusal> {
        let mut keys = BTreeSet::new();
        for item in items {
            let (key, item) = self.prepare(*item)?;
            keys.insert(key);
            self.push(
                key,
                if self.options.emit_replaced {
                    Change::Replaced(item)
                } else {
                    Change::Sync(item)
                },
            );
        }
        let waiting = self
            .changes
            .iter()
            .map(|(key, changes)| (*key, changes.last().unwrap().item()));
        let mut gone: Vec<(&'static str, Option<Item>)> = waiting.collect();
        gone.extend(
            self.all_known()
                .into_iter()
                .filter(|(key, _)| !self.changes.contains_key(key)),
        );
        gone.retain(|(key, _)| !keys.contains(key));
        let leaving: Vec<_> = self
            .flight
            .iter()
            .filter(|flight| flight.left().is_none() && self.options.known_objects)
            .map(|flight| flight.key)
            .filter(|key| !self.changes.contains_key(key))
            .filter_map(|key| Some((key, self.lookup(key).unwrap_or(None)?)))
            .collect();
        for (key, item) in leaving {
            let mut flight = self.flight.iter_mut();
            let flight = flight.find(|flight| flight.key == key).unwrap();
            flight.miss(Change::Tombstone(key, Some(item)), self.versions.now);
        }
        for (key, item) in gone {
            self.push(key, Change::Tombstone(key, item));
        }
        if !self.populated {
            self.populated = true;
            self.slots.iter_mut().for_each(|slot| slot.initial = true);
        }
        self.versions.list(list_version(items));
        Ok(())
    }

    /// Queues the known objects that do not wait (D9).
    fn resync(&mut self) -> Result<(), Refusal> {
        for item in self.all_known().into_iter().filter_map(|(_, item)| item) {
            let key = item.key().map_err(|_| Refusal::Key)?;
            if !self.changes.contains_key(key) {
                self.push(key, Change::Sync(item));
            }
        }
        Ok(())
    }

    pub fn write(&mut self, write: &Write) -> Result<(), Refusal> {
        self.versions.now += 1;
        let result = match write {
            Write::Add(item) => self.upsert(*item, Change::Added),
            Write::Update(item) => self.upsert(*item, Change::Updated),
            Write::Delete(item) => item
                .key()
                .map_err(|_| Refusal::Key)
                .and_then(|key| self.delete(key, Change::Deleted(*item))),
            Write::Tombstone(key, item) => self.delete(key, Change::Tombstone(key, *item)),
            Write::Replace(items) => self.replace(items),
            Write::Resync | Write::AddIfNotPresent(_) => self.resync(),
        };
        self.settle();
        result
    }

    /// Records a bookmark and returns its version, which can exceed every integer type.
    pub fn bookmark(&mut self) -> &'static str {
        let version = ["", "11", "123456789012345678901234567890"][self.versions.now % 3];
        self.versions.now += 1;
        self.versions.bookmark(version);
        version
    }

    /// The queue is synced when the initial list has arrived and none of its keys waits or is in
    /// processing (D8, D10).
    fn settle(&mut self) {
        let initial = self.flight.iter().any(|flight| flight.initial);
        self.synced |= self.populated && !initial && self.slots.iter().all(|slot| !slot.initial);
    }

    /// Takes at most `limit` keys. Either all of them belong to the initial list, or none.
    pub fn take(&mut self, limit: usize) -> Vec<Flight> {
        while self.flight.len() < limit
            && let Some(next) = self.slots.first()
            && self
                .flight
                .first()
                .is_none_or(|first| first.initial == next.initial)
        {
            let Slot {
                key,
                initial,
                since,
            } = self.slots.remove(0);
            self.flight.push(Flight {
                key,
                changes: self.changes.remove(key).unwrap(),
                initial,
                since,
                missed: Vec::new(),
                missed_since: 0,
            });
        }
        self.settle();
        self.flight.clone()
    }

    /// Finishes the processing of each key.
    pub fn finish_pop(&mut self, end: End) {
        self.versions.now += 1;
        for flight in std::mem::take(&mut self.flight) {
            let newer = self.slots.iter_mut().find(|slot| slot.key == flight.key);
            // A resync of the same state is nothing newer.
            let resync = flight.left().map(|item| vec![Change::Sync(item)]);
            match newer {
                Some(same)
                    if end.requeues()
                        && resync.is_some()
                        && self.changes.get(flight.key) == resync.as_ref() =>
                {
                    same.since = same.since.min(flight.since);
                    self.changes.insert(flight.key, flight.changes);
                    continue;
                }
                // What is popped next has the version of both.
                Some(newer) if end.requeues() => newer.since = newer.since.min(flight.since),
                None if end.requeues() => {
                    let mut changes = flight.changes;
                    let missed = flight.missed.into_iter();
                    missed.for_each(|gone| append(&mut changes, gone));
                    self.put_back(flight.key, &changes, flight.since);
                    continue;
                }
                _ => {}
            }
            let known = self.lookup(flight.key) != Ok(None);
            if end != End::Succeeds && known && !flight.missed.is_empty() {
                self.put_back(flight.key, &flight.missed, flight.missed_since);
            }
        }
        self.settle();
    }

    /// Queues changes unless others of their key wait. Returns whether they are queued. A given key
    /// is that of popped changes.
    pub fn add_if_not_present(
        &mut self,
        key: Option<&'static str>,
        changes: &[Change],
    ) -> Result<bool, Refusal> {
        let newest = changes.last().ok_or(Refusal::Key)?;
        let key = match key {
            // What was popped is about one object, whatever the transform made of its key.
            Some(key) => key,
            None => {
                let key = newest.key()?;
                if changes.iter().any(|change| change.key() != Ok(key)) {
                    return Err(Refusal::Key);
                }
                key
            }
        };
        self.versions.now += 1;
        self.populated = true;
        let is_absent = !self.changes.contains_key(key);
        if is_absent {
            self.put_back(key, changes, self.versions.now);
        }
        self.settle();
        Ok(is_absent)
    }

    /// Applies a processed change to the known objects, as the consumer does.
    pub fn fill(&mut self, newest: Change) {
        match newest.key() {
            Ok(key) if newest.is_deletion() => drop(self.known.remove(key)),
            _ if newest.is_deletion() => {}
            _ => self.put(newest.item().unwrap()),
        }
    }

    pub fn put(&mut self, item: Item) {
        if let Ok(key) = item.key() {
            self.known.insert(key, item);
        }
    }
}

//! The model of a `RealFifo`: one list of entries, some of which belong to the initial list.

use std::collections::BTreeSet;

use arbitrary::Arbitrary;
use k8s_informer::queue::{Delta, Deltas};

use super::delta_fifo_model::Change;
use super::item::{Held, Item, Refusal, VersionTracker, few, name, version_of, version_text};
use super::processing::End;

#[derive(Arbitrary, Clone, Copy, Debug)]
pub struct Options {
    pub transform: bool,
}

#[derive(Arbitrary, Clone, Debug)]
pub enum Write {
    Add(Item),
    Update(Item),
    Delete(Item),
    Tombstone(#[arbitrary(with = name)] &'static str, Option<Item>),
    Replace(
        #[arbitrary(with = few)] Vec<Item>,
        #[arbitrary(with = version_text)] &'static str,
    ),
    Resync,
    Bookmark(#[arbitrary(with = version_text)] &'static str),
}

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    One(Change),
    All(&'static str, Vec<Item>),
    SyncAll,
    Bookmark(&'static str),
}

/// A waiting entry.
#[derive(Clone, Debug)]
pub struct Entry {
    pub event: Event,
    /// The key before the transform. An object whose transform removes its key keeps it.
    sent: Option<&'static str>,
    initial: bool,
    since: usize,
}

impl Entry {
    pub fn key(&self) -> Option<&'static str> {
        match &self.event {
            Event::One(change) => change.key().ok().or(self.sent),
            _ => None,
        }
    }

    fn has_no_key(&self) -> bool {
        matches!(&self.event, Event::One(change) if change.key().is_err())
    }

    pub fn is(&self, deltas: &Deltas<Held>) -> bool {
        let [delta] = &deltas[..] else { return false };
        let same = match (&self.event, delta) {
            (Event::One(change), delta) => change.is(delta),
            (Event::All(version, items), Delta::ReplacedAll(list)) => {
                version_of(list.resource_version.as_ref()) == *version
                    && list.objects().map(|held| held.0).eq(items.iter().copied())
            }
            (Event::Bookmark(version), Delta::Bookmark(bookmark)) => {
                version_of(bookmark.as_ref()) == *version
            }
            (event, delta) => *event == Event::SyncAll && matches!(delta, Delta::SyncAll),
        };
        same && deltas.key().map(|key| &**key) == self.key()
    }
}

pub struct Model {
    pub options: Options,
    pub items: Vec<Entry>,
    flight: Vec<Entry>,
    populated: bool,
    pub synced: bool,
    pub closed: bool,
    versions: VersionTracker,
}

impl Model {
    pub fn new(options: Options) -> Self {
        Self {
            options,
            items: Vec::new(),
            flight: Vec::new(),
            populated: false,
            synced: false,
            closed: false,
            versions: VersionTracker::default(),
        }
    }

    fn push(&mut self, event: Event) {
        self.items.push(Entry {
            event,
            sent: None,
            initial: false,
            since: self.versions.now,
        });
    }

    /// Returns the version up to which everything has been processed.
    pub fn processed(&self) -> &'static str {
        self.versions.before(
            self.items
                .iter()
                .chain(&self.flight)
                .map(|entry| entry.since)
                .min(),
        )
    }

    fn transform(&self, item: Item) -> Result<Item, Refusal> {
        let transformed = if self.options.transform {
            item.transform()
        } else {
            Ok(item)
        };
        transformed.map_err(|_| Refusal::Transform(item.name.to_owned()))
    }

    /// Queues a change of one object (R1 to R3).
    fn one(&mut self, item: Item, change: fn(Item) -> Change) -> Result<(), Refusal> {
        self.populated = true;
        let sent = item.key().map_err(|_| Refusal::Key)?;
        let change = change(self.transform(item)?);
        self.push(Event::One(change));
        self.items.last_mut().unwrap().sent = Some(sent);
        self.versions
            .object(&item, matches!(change, Change::Added(_)));
        Ok(())
    }

    /// Replaces the content (R7, R8).
    fn replace(&mut self, items: &[Item], version: &'static str) -> Result<(), Refusal> {
        let items: Result<Vec<_>, _> = items.iter().map(|item| self.transform(*item)).collect();
        self.push(Event::All(version, items?));
        self.versions.list(version);
        if !self.populated {
            self.populated = true;
            self.items.iter_mut().for_each(|entry| entry.initial = true);
        }
        Ok(())
    }

    pub fn write(&mut self, write: &Write) -> Result<(), Refusal> {
        self.versions.now += 1;
        let result = match write {
            Write::Add(item) => self.one(*item, Change::Added),
            Write::Update(item) => self.one(*item, Change::Updated),
            Write::Delete(item) => self.one(*item, Change::Deleted),
            Write::Tombstone(key, item) => {
                self.populated = true;
                self.push(Event::One(Change::Tombstone(key, *item)));
                Ok(())
            }
            Write::Replace(items, version) => self.replace(items, version),
            Write::Resync => {
                self.push(Event::SyncAll);
                Ok(())
            }
            Write::Bookmark(version) => {
                self.push(Event::Bookmark(version));
                self.versions.bookmark(version);
                Ok(())
            }
        };
        self.settle();
        result
    }

    /// The queue is synced when the initial list has arrived and none of its entries waits or is in
    /// processing (R8, R13).
    fn settle(&mut self) {
        self.synced |= self.populated
            && self
                .items
                .iter()
                .chain(&self.flight)
                .all(|entry| !entry.initial);
    }

    /// Takes the entries of one pop: one entry, or as many as a batch can combine (R14 to R18).
    pub fn take(&mut self, batch: bool) -> Vec<Entry> {
        let mut keys = BTreeSet::new();
        while let Some(next) = self.items.first() {
            let single = !matches!(next.event, Event::One(_));
            let other = self
                .flight
                .first()
                .is_some_and(|first| first.initial != next.initial);
            if !self.flight.is_empty()
                && (single || other || (!next.has_no_key() && keys.contains(&next.key())))
            {
                break;
            }
            let next = self.items.remove(0);
            let closes = single || next.has_no_key() || !batch;
            keys.insert(next.key());
            self.flight.push(next);
            if closes {
                break;
            }
        }
        self.flight.clone()
    }

    /// Ends a pop. Entries that the callback requests again go to the front. They belong to the
    /// initial list if entries behind them do.
    pub fn finish_pop(&mut self, end: End) {
        let mut flight = std::mem::take(&mut self.flight);
        if end.requeues() {
            let precedes = self.items.iter().any(|entry| entry.initial);
            flight
                .iter_mut()
                .for_each(|entry| entry.initial |= precedes);
            self.items.splice(0..0, flight);
        }
        self.settle();
    }
}

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::time::Duration;

use super::event::{Event, Key};

/// The time after which a series that was not seen again has ended, as in client-go (ER4).
pub(crate) const FINISH: Duration = Duration::from_secs(6 * 60);

/// The recent events. Equal events become one series. client-go's event cache, with a limit.
#[derive(Clone, Debug)]
pub struct SeriesCache {
    limit: usize,
    entries: HashMap<Key, Entry>,
}

/// An event, with the count that has been handed over to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    pub event: Event,
    /// The count in the last write, or 0 before the first one.
    pub written: u32,
    /// When the last occurrence was observed, in the time that durations are measured with. The
    /// times of the event are those of the wall clock.
    pub seen: Duration,
}

/// An event to be created or patched on the server.
#[derive(Clone, Debug, PartialEq)]
pub struct Write {
    pub event: Event,
    /// Whether the event was written before.
    pub is_repeat: bool,
    /// The number of occurrences that this write shows for the first time.
    pub occurrences: u32,
}

impl SeriesCache {
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            entries: HashMap::new(),
        }
    }

    /// Counts an occurrence (ER2). Returns the entry, and the entry that had to go because the
    /// cache is full.
    pub fn observe(&mut self, event: Event, now: Duration) -> (&mut Entry, Option<Entry>) {
        let key = event.key();
        let evicted = match self.entries.len() >= self.limit && !self.entries.contains_key(&key) {
            true => self.remove_oldest(),
            false => None,
        };
        let entry = match self.entries.entry(key) {
            Slot::Occupied(slot) => {
                let entry = slot.into_mut();
                entry.event.count = entry.event.count.saturating_add(1);
                entry.event.last = event.last;
                entry.seen = now;
                entry
            }
            Slot::Vacant(slot) => slot.insert(Entry {
                event,
                written: 0,
                seen: now,
            }),
        };
        (entry, evicted)
    }

    fn remove_oldest(&mut self) -> Option<Entry> {
        let oldest = self.entries.iter().min_by_key(|(_, entry)| entry.seen);
        let key = oldest?.0.clone();
        self.entries.remove(&key)
    }

    /// Removes the events and series that have ended: not seen for [`FINISH`] (ER4).
    pub fn finish(&mut self, now: Duration) -> Vec<Entry> {
        let ended = |_: &Key, entry: &mut Entry| now.saturating_sub(entry.seen) > FINISH;
        self.entries
            .extract_if(ended)
            .map(|(_, entry)| entry)
            .collect()
    }

    /// Returns all entries, in no order.
    pub fn entries_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.values_mut()
    }
}

impl Entry {
    /// Returns the event as a write of all occurrences that no write has shown, if there are any.
    pub fn take(&mut self) -> Option<Write> {
        let occurrences = self.event.count.saturating_sub(self.written);
        let is_repeat = self.written > 0;
        self.written = self.event.count;
        (occurrences > 0).then(|| Write {
            event: self.event.clone(),
            is_repeat,
            occurrences,
        })
    }
}

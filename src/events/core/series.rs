use std::time::Duration;

use super::event::{Event, Key};
use super::lru::Lru;

/// The time after which a series that was not seen again has ended, as in client-go (ER4).
pub(crate) const FINISH: Duration = Duration::from_secs(6 * 60);

/// The recent events of events.k8s.io/v1. Equal events become one series. client-go's event cache,
/// with a limit.
#[derive(Debug)]
pub(crate) struct SeriesCache {
    entries: Lru<Key, Entry>,
}

/// An event, with the count that has been handed over to be written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    /// The count in the last write, or 0 before the first one.
    pub(crate) written: u32,
    /// When the last occurrence was observed, in the time that durations are measured with. The
    /// times of the event are those of the wall clock.
    pub(crate) seen: Duration,
}

impl Entry {
    /// The number of occurrences that no write has shown.
    pub(crate) fn unwritten(&self) -> u32 {
        self.event.count.saturating_sub(self.written)
    }

    /// Returns the event as a write of all its occurrences.
    pub(crate) fn take(&mut self) -> Write {
        let write = Write {
            event: self.event.clone(),
            is_repeat: self.written > 0,
            occurrences: self.unwritten(),
        };
        self.written = self.event.count;
        write
    }
}

/// An event to be created or patched on the server.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Write {
    pub(crate) event: Event,
    /// Whether the event was written before.
    pub(crate) is_repeat: bool,
    /// The number of occurrences that this write shows for the first time.
    pub(crate) occurrences: u32,
}

impl SeriesCache {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            entries: Lru::new(limit),
        }
    }

    /// Whether the event is the first of its key.
    pub(crate) fn is_new(&mut self, key: &Key) -> bool {
        self.entries.get(key).is_none()
    }

    /// Counts an occurrence (ER2). Returns the entry, and the entry that had to go because the
    /// cache is full.
    pub(crate) fn observe(
        &mut self,
        key: Key,
        event: Event,
        now: Duration,
    ) -> (Option<&mut Entry>, Option<Entry>) {
        let mut evicted = None;
        match self.entries.get(&key) {
            Some(entry) => {
                entry.event.count = entry.event.count.saturating_add(1);
                entry.event.last = event.last;
                entry.seen = now;
            }
            None => {
                let entry = Entry {
                    event,
                    written: 0,
                    seen: now,
                };
                evicted = self.entries.put(key.clone(), entry);
            }
        }
        (self.entries.get(&key), evicted)
    }

    /// Returns the keys of the events and series that have ended: not seen for [`FINISH`] (ER4).
    pub(crate) fn ended(&self, now: Duration) -> Vec<Key> {
        let entries = self.entries.iter();
        let ended = entries.filter(|(_, entry)| now.saturating_sub(entry.seen) > FINISH);
        ended.map(|(key, _)| key.clone()).collect()
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Option<Entry> {
        self.entries.remove(key)
    }

    /// Returns all entries, in no order.
    #[allow(dead_code, reason = "the replay of client-go traces compares it")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter().map(|(_, entry)| entry)
    }

    /// Returns all entries, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Entry> {
        self.entries.iter_mut().map(|(_, entry)| entry)
    }
}

use std::collections::BTreeSet;
use std::time::Duration;

use super::event::Key;
use super::lru::Lru;

/// What the note of a combined event begins with.
pub(crate) const COMBINED: &str = "(combined from similar events): ";

/// Detects events that differ only in their notes, and are to be combined (EC2).
#[derive(Debug)]
pub(crate) struct Aggregator {
    max_events: usize,
    interval: Duration,
    records: Lru<Key, Record>,
}

#[derive(Debug, Default)]
struct Record {
    /// The distinct notes, at most `max_events - 1`.
    notes: BTreeSet<String>,
    last: Duration,
}

impl Aggregator {
    pub(crate) fn new(limit: usize, max_events: usize, interval: Duration) -> Self {
        Self {
            max_events,
            interval,
            records: Lru::new(limit),
        }
    }

    /// Whether the event with this key and note is to be combined with its predecessors.
    pub(crate) fn combines(&mut self, key: &Key, note: String, now: Duration) -> bool {
        if self.records.get(key).is_none() {
            self.records.put(key.clone(), Record::default());
        }
        let Some(record) = self.records.get(key) else {
            return false;
        };
        // The window is a rolling one (EC3).
        if now.saturating_sub(record.last) > self.interval {
            record.notes.clear();
        }
        record.last = now;
        let is_known = record.notes.contains(&note);
        if record.notes.len() + usize::from(!is_known) < self.max_events {
            record.notes.insert(note);
            return false;
        }
        // client-go adds the note and removes an arbitrary one (EC5). Without the new note, the set
        // keeps the first ones, which continue to be counted separately.
        true
    }
}

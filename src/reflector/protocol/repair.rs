use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::object::Key;
use crate::time::Backoff;

/// The number of relists for each missed object, if no further one is missed.
const RELISTS: u32 = 5;

/// The shortest wait before a relist, whatever the back-off.
const SHORTEST: Duration = Duration::from_secs(1);

/// The number of missed objects that are remembered. Any more do not trigger further relists.
const OBJECTS: usize = 1000;

/// Schedules relists while objects are missing because they could not be decoded or stored.
///
/// Their number is bounded: an object that stays broken must not cost a list again and again.
pub(super) struct Repair {
    /// The missed objects. All those without a key are one of them, under the empty key.
    missed: HashSet<Key>,
    relists_left: u32,
    due: Option<Instant>,
    /// The wait before the next relist.
    wait: Duration,
    backoff: Backoff,
}

impl Repair {
    pub(super) fn new(mut backoff: Backoff) -> Self {
        let wait = backoff.step().max(SHORTEST);
        Self {
            missed: HashSet::new(),
            relists_left: 0,
            due: None,
            wait,
            backoff,
        }
    }

    /// An object could not be decoded or stored.
    pub(super) fn missed(&mut self, key: Option<Key>, now: Instant) {
        if self.missed.len() < OBJECTS && self.missed.insert(key.unwrap_or_else(|| "".into())) {
            self.relists_left = RELISTS;
            self.schedule(now);
        }
    }

    /// Whether an object is missing.
    pub(super) fn has_missed(&self) -> bool {
        !self.missed.is_empty()
    }

    /// The state of this object is known again: the next list may be complete.
    pub(super) fn recovered(&mut self, key: &Key, now: Instant) {
        if self.missed.remove(key) {
            self.relists_left = self.relists_left.max(1);
            self.schedule(now);
        }
    }

    /// A list has reached the store.
    pub(super) fn listed(&mut self, complete: bool, now: Instant) {
        self.due = None;
        if complete {
            self.missed = HashSet::new();
            self.relists_left = 0;
            self.backoff.reset();
            self.wait = self.backoff.step().max(SHORTEST);
        }
        self.schedule(now);
    }

    /// Whether a relist is due. If so, it counts as done.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        if self.due.take_if(|due| *due <= now).is_none() {
            return false;
        }
        self.relists_left -= 1;
        self.wait = self.backoff.step().max(SHORTEST);
        true
    }

    /// The time until the next relist. Not zero, which is no time to wait for bytes.
    pub(super) fn time_left(&self, now: Instant) -> Option<Duration> {
        self.due.map(|due| {
            due.saturating_duration_since(now)
                .max(Duration::from_millis(1))
        })
    }

    fn schedule(&mut self, now: Instant) {
        if self.due.is_none() && self.relists_left > 0 {
            self.due = now.checked_add(self.wait);
        }
    }
}

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::object::Key;
use crate::time::Backoff;

/// The maximum number of relists after an object is missed. The count starts again when another
/// object is missed.
const MAX_RELISTS: u32 = 5;

/// The minimum wait before a relist, whatever the back-off.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of missed objects that are remembered. Objects beyond this number cause no
/// further relists.
const MAX_MISSED: usize = 1000;

/// Schedules relists while objects are missing because they could not be decoded or stored.
///
/// The number of relists is bounded, so that an object that stays broken does not cause relists
/// forever.
pub(super) struct Repair {
    /// The keys of the missed objects. All objects without a key share the empty key.
    missed: HashSet<Key>,
    relists_left: u32,
    due: Option<Instant>,
    /// The wait before the next relist.
    wait: Duration,
    backoff: Backoff,
}

impl Repair {
    pub(super) fn new(mut backoff: Backoff) -> Self {
        let wait = backoff.step().max(MIN_WAIT);
        Self {
            missed: HashSet::new(),
            relists_left: 0,
            due: None,
            wait,
            backoff,
        }
    }

    /// Records that an object could not be decoded or stored.
    pub(super) fn missed(&mut self, key: Option<Key>, now: Instant) {
        if self.missed.len() < MAX_MISSED && self.missed.insert(key.unwrap_or_else(|| "".into())) {
            self.relists_left = MAX_RELISTS;
            self.schedule(now);
        }
    }

    /// Whether an object is missing.
    pub(super) fn has_missed(&self) -> bool {
        !self.missed.is_empty()
    }

    /// Records that the state of this object is known again. The next list may be complete, so at
    /// least one relist follows.
    pub(super) fn recovered(&mut self, key: &Key, now: Instant) {
        if self.missed.remove(key) {
            self.relists_left = self.relists_left.max(1);
            self.schedule(now);
        }
    }

    /// Records that a list has reached the store.
    pub(super) fn listed(&mut self, complete: bool, now: Instant) {
        self.due = None;
        if complete {
            self.missed = HashSet::new();
            self.relists_left = 0;
            self.backoff.reset();
            self.wait = self.backoff.step().max(MIN_WAIT);
        }
        self.schedule(now);
    }

    /// Returns whether a relist is due. If so, the relist counts as done.
    pub(super) fn take_due(&mut self, now: Instant) -> bool {
        if self.due.take_if(|due| *due <= now).is_none() {
            return false;
        }
        self.relists_left -= 1;
        self.wait = self.backoff.step().max(MIN_WAIT);
        true
    }

    /// The time until the next relist. At least a millisecond, because zero is not a valid read
    /// timeout.
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

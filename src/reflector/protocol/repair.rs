use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::object::Key;
use crate::reflector::Missing;
use crate::time::Backoff;

/// The maximum number of relists after an object is missed. The count starts again when another
/// object is missed.
const MAX_RELISTS: u32 = 5;

/// The minimum wait before a relist, whatever the back-off.
const MIN_WAIT: Duration = Duration::from_secs(1);

/// Schedules relists while objects are missing because they could not be decoded, stored or
/// processed.
///
/// The number of relists is bounded, so that an object that stays broken does not cause relists
/// forever.
pub(super) struct Repair {
    missing: Arc<Missing>,
    /// Whether an object could not be read since the last complete list.
    is_unread: bool,
    /// Whether an object was rejected since nothing was missing.
    has_rejected: bool,
    relists_left: u32,
    due: Option<Instant>,
    /// The wait before the next relist.
    wait: Duration,
    backoff: Backoff,
}

impl Repair {
    pub(super) fn new(missing: Arc<Missing>, mut backoff: Backoff) -> Self {
        let wait = backoff.step().max(MIN_WAIT);
        Self {
            missing,
            is_unread: false,
            has_rejected: false,
            relists_left: 0,
            due: None,
            wait,
            backoff,
        }
    }

    /// Records that an object could not be decoded or stored.
    pub(super) fn missed(&mut self, key: Option<Key>, now: Instant) {
        self.is_unread = true;
        if self.missing.add_unreadable(key) {
            self.relists_left = MAX_RELISTS;
            self.schedule(now);
        }
    }

    /// Takes note of what the consumer of the store's queue has rejected and processed meanwhile.
    pub(super) fn update(&mut self, now: Instant) {
        if self.missing.take_new_rejections() {
            self.has_rejected = true;
            self.relists_left = MAX_RELISTS;
            self.schedule(now);
        } else if self.has_rejected && !self.is_unread && self.missing.is_empty() {
            self.reset();
        }
    }

    /// Records that the state of this object is known again. If the object was unreadable, the next
    /// list may be complete, so at least one relist follows.
    pub(super) fn recovered(&mut self, key: &Key, is_deleted: bool, now: Instant) {
        if self.missing.forget(key, is_deleted) {
            self.relists_left = self.relists_left.max(1);
            self.schedule(now);
        }
    }

    /// Records that a list has reached the store.
    pub(super) fn listed(&mut self, complete: bool, now: Instant) {
        self.due = None;
        self.is_unread = !complete;
        if complete && self.missing.is_empty() {
            self.reset();
        }
        self.schedule(now);
    }

    /// Records that nothing is missing.
    fn reset(&mut self) {
        self.has_rejected = false;
        self.relists_left = 0;
        self.due = None;
        self.backoff.reset();
        self.wait = self.backoff.step().max(MIN_WAIT);
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

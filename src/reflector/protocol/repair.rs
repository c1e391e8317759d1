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

/// How soon after the last change of a watch the reflector looks at what the consumer of the store's
/// queue has rejected.
const REJECTION_CHECK: Duration = Duration::from_secs(1);

/// Schedules relists while objects are missing because they could not be decoded, stored or
/// processed.
///
/// The number of relists is bounded, so that an object that stays broken does not cause relists
/// forever.
pub(super) struct Repair {
    missing: Arc<Missing>,
    /// Whether every object in the last list and in the events since then could be read. Some may
    /// have been rejected behind the store's queue.
    pub(super) is_complete: bool,
    /// The total number of objects that could not be read or stored.
    pub(super) unreadable: u64,
    /// Whether the consumer of the store's queue may still reject something.
    pub(super) is_unprocessed: bool,
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
        Self {
            wait: backoff.step().max(MIN_WAIT),
            missing,
            is_complete: false,
            unreadable: 0,
            is_unprocessed: false,
            has_rejected: false,
            relists_left: 0,
            due: None,
            backoff,
        }
    }

    /// Records that an object could not be decoded or stored.
    pub(super) fn missed(&mut self, key: Option<Key>, now: Instant) {
        self.refused();
        if self.missing.add_unreadable(key) {
            self.relists_left = MAX_RELISTS;
            self.schedule(now);
        }
    }

    /// Records that the store rejected a change. It lacks the change until the next list, for which
    /// no relist is scheduled: a store that rejects an object rejects a list with it as well.
    pub(super) fn refused(&mut self) {
        (self.is_complete, self.unreadable) = (false, self.unreadable + 1);
    }

    /// Takes note of what the consumer of the store's queue has rejected and processed meanwhile.
    pub(super) fn update(&mut self, now: Instant) {
        if self.missing.take_new_rejections() {
            self.has_rejected = true;
            self.relists_left = MAX_RELISTS;
            self.schedule(now);
        } else if self.has_rejected && self.is_complete && self.missing.is_empty() {
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
        self.is_complete = complete;
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

    /// The time until the next relist, or until it is time to look at what the consumer has
    /// rejected. At least a millisecond, because zero is not a valid read timeout.
    pub(super) fn time_left(&self, silence: Duration, now: Instant) -> Option<Duration> {
        let due = self.due.map(|due| {
            due.saturating_duration_since(now)
                .max(Duration::from_millis(1))
        });
        // The intervals of the checks grow, because a list may stay unprocessed for long.
        let check = self.is_unprocessed.then(|| silence.max(REJECTION_CHECK));
        due.into_iter().chain(check).min()
    }

    fn schedule(&mut self, now: Instant) {
        if self.due.is_none() && self.relists_left > 0 {
            self.due = now.checked_add(self.wait);
        }
    }
}

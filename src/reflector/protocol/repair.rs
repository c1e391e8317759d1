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

/// How many relists may follow one another, whatever causes them. After that, there is at most one
/// for each [`INTERVAL`].
const BURST: u32 = 10;
const INTERVAL: Duration = Duration::from_secs(600);

/// Schedules relists while objects are missing because they could not be decoded, stored or
/// processed, or while the store may have deleted objects.
///
/// The number of relists for an object is bounded, so that one that stays broken does not cause
/// relists forever. So is their rate, so that new broken objects can't keep the reflector listing.
/// They end only when nothing else is wrong: as long as the store may have deleted objects, they go
/// on at this rate.
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
    /// Whether the store may have objects that were deleted: the last list deleted nothing, or the
    /// key of a deletion could not be read.
    may_have_deleted: bool,
    allowance: Allowance,
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
            may_have_deleted: false,
            allowance: Allowance::default(),
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

    /// Records the deletion of an object whose key could not be read.
    pub(super) fn lost_deletion(&mut self, now: Instant) {
        self.may_have_deleted = true;
        self.schedule(now);
    }

    /// Records that a list has reached the store.
    pub(super) fn listed(&mut self, completeness: Completeness, now: Instant) {
        self.due = None;
        self.is_complete = matches!(completeness, Completeness::Complete);
        self.may_have_deleted = matches!(completeness, Completeness::Nameless);
        if self.is_complete && self.missing.is_empty() {
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
        self.relists_left = self.relists_left.saturating_sub(1);
        self.allowance.take(now);
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
        if self.due.is_none() && (self.relists_left > 0 || self.may_have_deleted) {
            let due = now.checked_add(self.wait);
            self.due = due.map(|due| due.max(self.allowance.next_at(now)));
        }
    }
}

/// What a list that has reached the store says about the objects that it lacks.
#[derive(Clone, Copy)]
pub(crate) enum Completeness {
    /// They were deleted.
    Complete,
    /// Some are unreadable, and known by their keys. The others were deleted.
    Unreadable,
    /// The key of an object could not be read. It may be any of them, so none counts as deleted.
    Nameless,
}

/// A token bucket for relists.
#[derive(Default)]
struct Allowance {
    /// When the bucket is full again. `None` if it is full.
    full_at: Option<Instant>,
}

impl Allowance {
    fn take(&mut self, now: Instant) {
        let from = self.full_at.map_or(now, |full_at| full_at.max(now));
        self.full_at = from.checked_add(INTERVAL);
    }

    /// When the next relist is allowed.
    fn next_at(&self, now: Instant) -> Instant {
        let until_full = self.full_at.map(|at| at.saturating_duration_since(now));
        now + until_full
            .unwrap_or_default()
            .saturating_sub(INTERVAL * (BURST - 1))
    }
}

use std::time::Duration;

use super::core::{Now, TermId};

/// A term of leadership: from the acquisition of the Lease until it is lost or given up.
#[derive(Clone, Debug)]
pub(crate) struct Term {
    pub(crate) id: TermId,
    /// When the last successful request began. The server cannot have handled it earlier, so no
    /// other candidate can have begun to wait for its expiry earlier.
    renewed: Now,
    renew_deadline: Duration,
    /// Whether an age beyond the deadline was seen since the last renewal. After that, only a
    /// renewal makes the term valid again, even if the wall clock is set back.
    is_expired: bool,
    has_ended: bool,
}

impl Term {
    /// Starts a term with the request that was sent at `renewed`.
    pub(crate) fn new(id: TermId, renewed: Now, renew_deadline: Duration) -> Self {
        Self {
            id,
            renewed,
            renew_deadline,
            is_expired: false,
            has_ended: false,
        }
    }

    /// Extends the validity after a successful request that was sent at `sent`.
    pub(crate) fn renew(&mut self, sent: Now) {
        self.renewed = sent;
        self.is_expired = false;
    }

    /// Ends the term for good.
    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    /// Whether no other candidate can hold the Lease at this time.
    pub(crate) fn is_valid(&mut self, now: Now) -> bool {
        self.is_expired |= now.since(self.renewed) >= self.renew_deadline;
        !self.has_ended && !self.is_expired
    }

    /// Whether the term has ended. It can also be invalid without that, until the next renewal.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// The time until the term is older than `limit` if it is not renewed. `None` if it has ended.
    pub(crate) fn left(&self, now: Now, limit: Duration) -> Option<Duration> {
        (!self.has_ended).then(|| limit.saturating_sub(self.age(now)))
    }

    /// The time since the last successful renewal began.
    pub(crate) fn age(&self, now: Now) -> Duration {
        now.since(self.renewed)
    }
}

//! The end of a wait.

use std::time::{Duration, Instant};

/// The end of a wait that has a timeout.
#[derive(Clone, Copy)]
pub(crate) struct Deadline {
    /// The whole time of the wait, for its error.
    pub(crate) timeout: Duration,
    pub(crate) at: Instant,
}

impl Deadline {
    /// Begins the wait now. Returns `None` if there is no timeout, or if the clock does not reach its
    /// end: the wait is unlimited.
    pub(crate) fn after(timeout: impl Into<Option<Duration>>) -> Option<Self> {
        let timeout = timeout.into()?;
        let at = Instant::now().checked_add(timeout)?;
        Some(Self { timeout, at })
    }

    /// Returns the rest of the time. Zero after the deadline.
    pub(crate) fn rest(self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }
}

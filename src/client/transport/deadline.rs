//! Time limits that ureq does not have.

use std::time::{Duration, Instant};

use ureq::unversioned::transport::{ConnectionDetails, time};

use crate::sync::Mutex;

/// The time until which reads of a response body may wait: a cell that the body shares with its connection.
///
/// A body's reader passes through ureq and TLS, whose `Read` has no such argument. ureq's own limit is fixed with
/// the request and restarts with each read of the socket, so a chunk head or a TLS record that drips in would
/// never reach it. This limit can differ for each read of the body, and covers all that the read does.
#[derive(Debug, Default)]
pub(in crate::client) struct ReadDeadline {
    /// Innermost; held for a copy. Only the thread that reads the body locks it.
    until: Mutex<Option<Instant>>,
}

impl ReadDeadline {
    /// Limits the reads that follow; `None` lets them wait forever.
    pub(in crate::client) fn set(&self, until: Option<Instant>) {
        *self.until.lock() = until;
    }

    /// The time left, if there is a limit: zero when it is over. Rounded up to whole milliseconds, so that most
    /// reads with the same limit need no system call to set it.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = (*self.until.lock())?.saturating_duration_since(Instant::now());
        Some(match left.subsec_nanos() % 1_000_000 {
            0 => left,
            over => left.saturating_add(Duration::from_nanos((1_000_000 - over).into())),
        })
    }
}

/// The time left to connect; an error when it is over.
pub(super) fn left_to_connect(
    details: &ConnectionDetails<'_>,
) -> Result<Option<Duration>, ureq::Error> {
    let time::Duration::Exact(limit) = details.timeout.after else {
        return Ok(None);
    };
    let (time::Instant::Exact(start), time::Instant::Exact(now)) =
        (details.now, (details.current_time)())
    else {
        return Ok(Some(limit));
    };
    match limit.saturating_sub(now.saturating_duration_since(start)) {
        Duration::ZERO => Err(ureq::Error::Timeout(details.timeout.reason)),
        left => Ok(Some(left)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn left_is_rounded_up_and_never_negative() {
        let deadline = ReadDeadline::default();
        assert_eq!(deadline.left(), None);
        let now = Instant::now();
        deadline.set(Some(now + Duration::from_secs(1000)));
        let left = deadline.left().unwrap();
        assert!(left <= Duration::from_secs(1000), "{left:?}");
        assert!(left.subsec_nanos().is_multiple_of(1_000_000), "{left:?}");
        deadline.set(Some(now));
        assert_eq!(deadline.left(), Some(Duration::ZERO));
        deadline.set(None);
        assert_eq!(deadline.left(), None);
    }
}

//! Time limits that ureq does not support.

use std::time::{Duration, Instant};

use ureq::unversioned::transport::{ConnectionDetails, time};

use crate::base::sync::Mutex;

/// The deadline for reads of a response body, shared by the body and its connection.
///
/// The reader of a body passes through ureq and TLS, and their `Read` has no argument for a
/// deadline. ureq's own limit is fixed for a request and restarts with each read of the socket. A
/// chunk head or a TLS record that arrives byte by byte would never reach that limit. This deadline
/// can differ for each read of the body, and it covers the whole read.
#[derive(Debug, Default)]
pub(in crate::client) struct ReadDeadline {
    /// Innermost lock, held only to copy the value. Only the thread that reads the body locks it.
    until: Mutex<Option<Instant>>,
}

impl ReadDeadline {
    /// Sets the deadline for the next reads. `None` means no limit.
    pub(in crate::client) fn set(&self, until: Option<Instant>) {
        *self.until.lock() = until;
    }

    /// The time left, zero if the deadline has passed, `None` if there is no deadline.
    ///
    /// It is rounded up to whole milliseconds. Most reads with the same limit then need no system
    /// call to set the timeout of the socket.
    pub(super) fn left(&self) -> Option<Duration> {
        let left = (*self.until.lock())?.saturating_duration_since(Instant::now());
        Some(match left.subsec_nanos() % 1_000_000 {
            0 => left,
            over => left.saturating_add(Duration::from_nanos((1_000_000 - over).into())),
        })
    }
}

/// The time left to connect. Returns an error if it has run out.
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
    fn remaining_time_is_in_whole_ms_and_zero_at_the_deadline() {
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

//! Until when a read of a body may wait. ureq's limits are given with the request, and its limit for a read
//! is one for each of the socket: a chunk head or a TLS record that drips in would never meet it. This one
//! can be another for every read, and is for all that the read does.

use std::cell::Cell;
use std::time::{Duration, Instant};

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static GLANCES: Cell<bool> = const { Cell::new(false) };
}

/// Runs `work`, whose reads of a socket don't wait at all: they time out where nothing is there. A short
/// deadline would be no such thing, as kernels round it up to a tick of some milliseconds.
pub(in crate::client) fn glance<R>(work: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            GLANCES.set(false);
        }
    }
    let _leave = Leave;
    GLANCES.set(true);
    work()
}

/// Whether a read is not to wait.
pub(in crate::client) fn is_glance() -> bool {
    GLANCES.get()
}

/// Runs `work`, whose reads may take no longer than `timeout` together; nor than what it runs in.
pub(in crate::client) fn within<R>(timeout: Option<Duration>, work: impl FnOnce() -> R) -> R {
    /// Puts back what was there, also when `work` panics.
    struct Leave(Option<Instant>);
    impl Drop for Leave {
        fn drop(&mut self) {
            DEADLINE.set(self.0);
        }
    }
    let outer = DEADLINE.get();
    // One that is too far away to be told is none.
    let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let _leave = Leave(outer);
    DEADLINE.set(match (outer, deadline) {
        (Some(outer), Some(deadline)) => Some(outer.min(deadline)),
        (outer, deadline) => outer.or(deadline),
    });
    work()
}

/// What is left of the time, if there is a limit: zero when it is over. In whole milliseconds, so that a
/// socket need not be told another time for every read.
pub(in crate::client) fn left() -> Option<Duration> {
    let left = DEADLINE.get()?.saturating_duration_since(Instant::now());
    Some(match left.subsec_nanos() % 1_000_000 {
        0 => left,
        over => left.saturating_add(Duration::from_nanos((1_000_000 - over).into())),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_deadline_counts_and_goes_with_its_work() {
        let (short, long) = (
            Some(Duration::from_secs(10)),
            Some(Duration::from_secs(1000)),
        );
        assert_eq!(left(), None);
        within(short, || {
            let rest = left().unwrap();
            assert!(
                rest <= short.unwrap() && rest.subsec_nanos().is_multiple_of(1_000_000),
                "{rest:?}"
            );
            within(long, || assert!(left() <= short));
            within(None, || assert!(left() <= short && left().is_some()));
        });
        within(long, || within(short, || assert!(left() <= short)));
        within(Some(Duration::ZERO), || {
            assert_eq!(left(), Some(Duration::ZERO))
        });
        within(Some(Duration::MAX), || assert_eq!(left(), None));
        assert_eq!(left(), None);
    }
}

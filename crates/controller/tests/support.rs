use std::thread;
use std::time::{Duration, Instant};

/// Polls until `condition` returns `true`, for conditions without a notification.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        thread::yield_now();
    }
}

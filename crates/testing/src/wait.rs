//! The result of a wait.

use std::time::Duration;

use k8s_informer::error::{WaitCause, WaitError};

/// Returns an error unless the wait has reached what it is for. `describe` returns what was awaited,
/// and the state that was seen last.
pub(crate) fn check(
    is_reached: bool,
    timeout: Duration,
    describe: impl FnOnce() -> (String, String),
) -> Result<(), WaitError> {
    if is_reached {
        return Ok(());
    }
    let (awaited, last_seen) = describe();
    let error = WaitError::new(
        WaitCause::TimedOut(timeout),
        format!("waiting for {awaited}"),
    );
    Err(error.seen(last_seen))
}

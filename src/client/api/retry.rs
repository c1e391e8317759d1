use std::time::Duration;

use crate::error::Error;
use crate::stop::Stop;
use crate::time::Backoff;

/// The number of attempts, as in client-go's `DefaultRetry`.
const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_millis(10);
const JITTER: f64 = 0.1;

/// Calls `attempt`, and calls it again after each [conflict](Error::is_conflict).
///
/// There are up to 5 attempts, with a delay of about 10 ms between them. Each attempt must read the
/// object again before changing it. For the most common case, use
/// [`Api::modify`](crate::client::api::Api::modify). The client-go counterpart is
/// `retry.RetryOnConflict` with `DefaultRetry`.
///
/// ```
/// use k8s_informer::{Error, Stop};
/// use k8s_informer::client::api::retry_on_conflict;
/// use k8s_informer::error::Status;
///
/// let mut tries = 0;
/// let result = retry_on_conflict(|| {
///     tries += 1;
///     let status = r#"{"status": "Failure", "reason": "Conflict", "code": 409}"#;
///     if tries < 3 { Err(Error::from_status(serde_json::from_str(status).unwrap())) } else { Ok("done") }
/// }, &Stop::never());
/// assert_eq!((result.unwrap(), tries), ("done", 3));
/// ```
///
/// # Errors
///
/// Returns the first error that is not a conflict, or the conflict of the last attempt. Returns an
/// [`is_stopped`](Error::is_stopped) error if `stop` is set during a delay.
#[doc(alias = "RetryOnConflict")]
pub fn retry_on_conflict<R>(
    mut attempt: impl FnMut() -> Result<R, Error>,
    stop: &Stop,
) -> Result<R, Error> {
    let mut backoff = Backoff::new(WAIT).jitter(JITTER);
    for _ in 1..TRIES {
        match attempt() {
            Err(error) if error.is_conflict() => {}
            done => return done,
        }
        if stop.wait_timeout(backoff.step()) {
            return Err(Error::stopped());
        }
    }
    attempt()
}

use std::time::Duration;

use crate::error::Error;
use crate::stop::Stop;
use crate::time::Backoff;

/// How often a conflict is met before it is the caller's: client-go's `DefaultRetry`.
const TRIES: u32 = 5;
const WAIT: Duration = Duration::from_millis(10);
const JITTER: f64 = 0.1;

/// Does it again as long as it ends in a [conflict](Error::is_conflict), up to 5 times, with about 10 ms in
/// between: client-go's `retry.RetryOnConflict` with `DefaultRetry`. Each time it has to begin with reading
/// what it changes; [`Api::modify`](crate::client::api::Api::modify) does, for the most common case.
///
/// ```
/// use k8s_informer::{Error, Stop};
/// use k8s_informer::client::api::retry_on_conflict;
/// use k8s_informer::error::Status;
///
/// let mut tries = 0;
/// let result = retry_on_conflict(&Stop::new(), || {
///     tries += 1;
///     let status = r#"{"status": "Failure", "reason": "Conflict", "code": 409}"#;
///     if tries < 3 { Err(Error::from_status(serde_json::from_str(status).unwrap())) } else { Ok("done") }
/// });
/// assert_eq!((result.unwrap(), tries), ("done", 3));
/// ```
///
/// # Errors
///
/// The first one that is no conflict, or the last conflict; [`is_stopped`](Error::is_stopped) if `stop` is
/// given in between.
#[doc(alias = "RetryOnConflict")]
pub fn retry_on_conflict<R>(
    stop: &Stop,
    mut attempt: impl FnMut() -> Result<R, Error>,
) -> Result<R, Error> {
    let mut backoff = Backoff::new(WAIT, 1.0, WAIT, JITTER);
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

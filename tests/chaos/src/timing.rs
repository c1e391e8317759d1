//! The durations of elections, and the clock that all processes share.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// As short as the elector permits.
pub(crate) const LEASE: Duration = Duration::from_secs(4);
pub(crate) const RENEW_DEADLINE: Duration = Duration::from_secs(2);
pub(crate) const RETRY: Duration = Duration::from_secs(1);

/// Microseconds since the Unix epoch. All processes have the same clock.
pub(crate) type Micros = i64;

pub(crate) fn now() -> Micros {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as Micros
}

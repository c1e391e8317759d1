//! The client-side rate limit. The client-go counterpart is `tryThrottleWithInfo` with a token
//! bucket.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::base::sync::Mutex;
use crate::client::credential_data::config_error;
use crate::error::Error;
use crate::log;
use crate::stop::Stop;
use crate::time::{Clock, RateLimit, TokenBucket};

/// Waits longer than this are logged at `debug`. The client-go counterpart is
/// `longThrottleLatency`.
const LONG: Duration = Duration::from_millis(50);

/// Waits longer than this are logged at `info`, at most one every `INFO_INTERVAL`. The client-go
/// counterpart is `extraLongThrottleLatency`.
const VERY_LONG: Duration = Duration::from_secs(1);

/// The minimum time between two `info` records, as in client-go's `globalThrottledLogger`.
const INFO_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Throttle {
    bucket: TokenBucket,
    clock: Arc<dyn Clock>,
    /// The time of the last `info` record. This is an innermost lock.
    logged: Mutex<Option<Instant>>,
}

impl Throttle {
    pub(super) fn new(limit: RateLimit, clock: Arc<dyn Clock>) -> Result<Self, Error> {
        // With these values, every request would wait forever.
        if limit.per_second.is_nan() || limit.per_second <= 0.0 || limit.burst == 0 {
            return Err(config_error(
                "the rate limit would block all requests: the rate and the burst must be above 0",
            ));
        }
        Ok(Self {
            bucket: TokenBucket::new(limit),
            clock,
            logged: Mutex::default(),
        })
    }

    /// Takes a token and waits until it is valid. Returns how long the call waited. A wait ended by
    /// `stop` still consumes the token.
    pub(super) fn wait(&self, context: &str, stop: &Stop) -> Result<Duration, Error> {
        let delay = self.bucket.reserve(&*self.clock);
        if delay.is_zero() {
            return Ok(delay);
        }
        let begun = self.clock.now();
        if !self.clock.wait(delay, stop) {
            return Err(Error::stopped());
        }
        let waited = self.clock.now().saturating_duration_since(begun);
        if waited > LONG {
            let level = if self.is_info_due(waited) {
                ::log::Level::Info
            } else {
                ::log::Level::Debug
            };
            log::log!(
                level,
                "{context}: waited {waited:?} for the client's own rate limit"
            );
        }
        Ok(waited)
    }

    fn is_info_due(&self, waited: Duration) -> bool {
        let now = self.clock.now();
        let mut logged = self.logged.lock();
        let due =
            logged.is_none_or(|logged| now.saturating_duration_since(logged) >= INFO_INTERVAL);
        if waited > VERY_LONG && due {
            *logged = Some(now);
            return true;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::RealClock;

    /// A clock that moves only when the test advances it.
    struct ManualClock(Mutex<Instant>);

    impl Clock for ManualClock {
        fn now(&self) -> Instant {
            *self.0.lock()
        }

        fn wait(&self, _: Duration, _: &Stop) -> bool {
            true
        }
    }

    #[test]
    fn long_throttling_logs_info_once_per_ten_seconds() {
        let clock = Arc::new(ManualClock(Mutex::new(Instant::now())));
        let advance = |time| *clock.0.lock() += time;
        let throttle = Throttle::new(RateLimit::per_second(1.0), clock.clone()).unwrap();
        let long = Duration::from_millis(1001);
        assert!(!throttle.is_info_due(Duration::from_secs(1)));
        assert!(throttle.is_info_due(long) && !throttle.is_info_due(long));
        advance(Duration::from_secs(9));
        assert!(!throttle.is_info_due(long));
        advance(Duration::from_secs(1));
        assert!(throttle.is_info_due(long));
    }

    #[test]
    fn rate_limit_that_blocks_all_requests_is_rejected() {
        for (rate, burst) in [
            (0.0, 1),
            (-1.0, 1),
            (f64::NAN, 1),
            (1.0, 0),
            (f64::INFINITY, 0),
        ] {
            let limit = RateLimit::per_second(rate).burst(burst);
            let error = Throttle::new(limit, Arc::new(RealClock)).err().unwrap();
            assert!(error.is_config(), "{error}");
        }
    }
}

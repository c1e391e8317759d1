//! What all waits for a state of the server share: retries, the deadline, and the conditions in the
//! status of an object.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::time::Duration;

use ::log::Level;
use serde_json::Value;

use super::Client;
use crate::error::{Error, WaitCause, WaitError};
use crate::log;
use crate::stop::Stop;
use crate::time::{Backoff, Clock, with_deadline};

/// The delay before the first retry. It doubles with each retry, up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);
const JITTER: f64 = 1.0;

/// The maximum number of different errors that one wait logs as warnings.
const MAX_LOGGED: usize = 32;

/// A wait in progress.
pub(super) struct Wait<'a> {
    client: &'a Client,
    /// The stop of the caller, also set by the deadline.
    pub(super) stop: &'a Stop,
    /// The state that was seen last, for messages.
    pub(super) last_seen: String,
    pub(super) last_error: Option<Error>,
    /// The errors that were logged as warnings.
    logged: BTreeSet<String>,
}

/// The reason why a wait ends early.
pub(super) enum Ended {
    /// An error that does not heal.
    Refused(Error),
    /// The stop of the wait is set.
    Stopped,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

impl<'a> Wait<'a> {
    /// Runs `work` until it ends, `timeout` has elapsed, or `stop` is set. Everything that `work`
    /// blocks in must end with the stop of the wait.
    pub(super) fn run<R>(
        client: &'a Client,
        doing: String,
        timeout: Option<Duration>,
        stop: &Stop,
        work: impl FnOnce(&mut Wait<'_>) -> Result<R, Ended>,
    ) -> Result<R, WaitError> {
        let limited = stop.child();
        let mut wait = Wait {
            client,
            stop: &limited,
            last_seen: String::new(),
            last_error: None,
            logged: BTreeSet::new(),
        };
        let result = with_deadline(wait.clock(), timeout, &limited, || work(&mut wait));
        let Wait {
            last_seen,
            last_error,
            ..
        } = wait;
        let no_thread = |error: io::Error| Err(Error::other(error.to_string()).into());
        let cause = match result.unwrap_or_else(no_thread) {
            Ok(done) => return Ok(done),
            Err(Ended::Refused(error)) => {
                let refused = WaitError::new(WaitCause::Refused, doing);
                return Err(refused.caused_by(error));
            }
            Err(Ended::Stopped) => match timeout {
                Some(timeout) if !stop.is_stopped() => WaitCause::TimedOut(timeout),
                _ => WaitCause::Stopped,
            },
        };
        let last_seen = Some(last_seen).filter(|seen| !seen.is_empty());
        let error = WaitError::new(cause, doing).seen(last_seen);
        Err(error.caused_by(last_error))
    }

    fn clock(&self) -> &'a dyn Clock {
        self.client.inner.policy.clock()
    }

    /// Calls `attempt` until it breaks with a result, with back-off between the calls. An error
    /// that can heal is kept as the last error.
    pub(super) fn retry<R>(
        &mut self,
        mut attempt: impl FnMut(&mut Self) -> Result<ControlFlow<R>, Ended>,
    ) -> Result<R, Ended> {
        let mut backoff = backoff();
        loop {
            let begun = self.clock().now();
            let error = match attempt(self) {
                Ok(ControlFlow::Break(done)) => return Ok(done),
                _ if self.stop.is_stopped() => return Err(Ended::Stopped),
                Ok(ControlFlow::Continue(())) => None,
                Err(Ended::Refused(error)) if can_heal(&error) => Some(error),
                Err(ended) => return Err(ended),
            };
            // A watch that was open for long was no failure.
            if self.clock().now().saturating_duration_since(begun) >= MAX_DELAY {
                backoff.reset();
            }
            let mut delay = backoff.step();
            if let Some(error) = error {
                delay = delay.max(error.pause());
                log::log!(self.level(&error), "{error}; retrying in {delay:?}");
                self.last_error = Some(error);
            }
            self.pause(delay)?;
        }
    }

    /// Returns the log level of an error: a repetition is no warning.
    fn level(&mut self, error: &Error) -> Level {
        let has_room = self.logged.len() < MAX_LOGGED;
        match has_room && self.logged.insert(error.to_string()) {
            true => Level::Warn,
            false => Level::Debug,
        }
    }

    /// Waits, unless the stop or the timeout ends it.
    pub(super) fn pause(&self, delay: Duration) -> Result<(), Ended> {
        match self.clock().wait(delay, self.stop) {
            true => Ok(()),
            false => Err(Ended::Stopped),
        }
    }
}

/// Returns the delays between attempts.
pub(super) fn backoff() -> Backoff {
    Backoff::new(FIRST_DELAY)
        .factor(2.0)
        .cap(MAX_DELAY)
        .jitter(JITTER)
}

/// Whether the same request can succeed later.
fn can_heal(error: &Error) -> bool {
    let may_heal =
        error.is_retryable() || error.is_gone() || error.is_decode() || error.is_credentials();
    may_heal && !error.is_permanent() && !error.is_too_large()
}

/// A condition in the status of an object. A field with an unexpected type counts as absent.
pub(super) struct Condition<'a> {
    pub(super) status: &'a str,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
    /// The generation for which the condition was determined, if the condition has one.
    pub(super) observed_generation: Option<i64>,
}

impl<'a> Condition<'a> {
    /// Returns the condition of this type, if the object has one.
    pub(super) fn of(object: &'a Value, type_: &str) -> Option<Self> {
        let conditions = object.pointer("/status/conditions")?.as_array()?;
        let condition = conditions.iter().find(|one| one["type"] == *type_)?;
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        Some(Self {
            status: text("status"),
            reason: text("reason"),
            message: text("message"),
            observed_generation: condition["observedGeneration"].as_i64(),
        })
    }
}

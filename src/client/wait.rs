//! What all waits for a state of the server share: retries, the deadline and the error.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use ::log::Level;

use super::Client;
use crate::error::{Error, ErrorKind, debug_as_display};
use crate::log;
use crate::stop::{Stop, StopOnDrop, Stopper};
use crate::time::{Backoff, Clock};

/// The delay before the first retry. It doubles with each retry, up to the maximum.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(10);
const JITTER: f64 = 1.0;

/// The maximum number of different errors that one wait logs as warnings.
const MAX_LOGGED: usize = 32;

/// The error of a wait for a state of the API server, such as a condition of an object.
///
/// The `Display` text contains what was awaited, the state that was seen last, and the last error.
/// Of the object, it contains at most the version, the types, statuses and reasons of conditions, and
/// finalizers. The error of `install_crds` also contains messages of conditions. See
/// [`Api::wait_for`](crate::client::api::Api::wait_for) for an example.
#[derive(Clone)]
#[non_exhaustive]
pub struct WaitError {
    /// The last error of a request. `None` if there was none since the last successful list.
    pub last_error: Option<Error>,
    /// What the wait did: `waiting for the deletion of pods "a"`.
    doing: String,
    /// The state that was seen last, or nothing.
    last_seen: String,
    end: WaitEnd,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum WaitEnd {
    Stopped,
    TimedOut(Duration),
    /// `last_error` does not heal.
    Refused,
}

impl WaitError {
    /// Whether the `stop` of the wait was set. In this case nothing is wrong: the program is about
    /// to end.
    pub fn is_stopped(&self) -> bool {
        self.end == WaitEnd::Stopped
    }

    /// Whether the timeout of the wait elapsed.
    pub fn timed_out(&self) -> bool {
        matches!(self.end, WaitEnd::TimedOut(_))
    }

    /// Whether the [`last_error`](Self::last_error) does not heal: the same request would get it
    /// again. Examples are 401, 403, 404 because the kind does not exist, and the name of a definition
    /// that another one has.
    pub fn is_refused(&self) -> bool {
        self.end == WaitEnd::Refused
    }
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.end {
            WaitEnd::Stopped => write!(f, "stopped {}", self.doing)?,
            WaitEnd::TimedOut(timeout) => write!(f, "timed out after {timeout:?} {}", self.doing)?,
            WaitEnd::Refused => write!(f, "failed {}", self.doing)?,
        }
        if self.end != WaitEnd::Refused {
            let last_seen = match &*self.last_seen {
                "" => "nothing",
                seen => seen,
            };
            write!(f, "; last seen: {last_seen}")?;
        }
        match &self.last_error {
            Some(error) if self.end == WaitEnd::Refused => write!(f, ": {error}"),
            Some(error) => write!(f, "; last error: {error}"),
            None => Ok(()),
        }
    }
}

debug_as_display!(WaitError);

impl std::error::Error for WaitError {}

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
            mut last_error,
            ..
        } = wait;
        let end = match result.unwrap_or_else(|error| Err(error.into())) {
            Ok(done) => return Ok(done),
            Err(Ended::Refused(error)) => {
                last_error = Some(error);
                WaitEnd::Refused
            }
            Err(Ended::Stopped) => match timeout {
                Some(timeout) if !stop.is_stopped() => WaitEnd::TimedOut(timeout),
                _ => WaitEnd::Stopped,
            },
        };
        Err(WaitError {
            last_error,
            doing,
            last_seen,
            end,
        })
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
    Backoff::new(FIRST_DELAY, 2.0, MAX_DELAY, JITTER)
}

/// Whether the same request can succeed later.
fn can_heal(error: &Error) -> bool {
    let may_heal =
        error.is_retryable() || error.is_gone() || error.is_decode() || error.is_credentials();
    may_heal && !error.is_permanent() && !error.is_too_large()
}

/// Runs `work`, and sets `stop` when `timeout` has elapsed. A thread waits for the deadline, because
/// `work` can block in requests, in reads and in back-offs.
fn with_deadline<R>(
    clock: &dyn Clock,
    timeout: Option<Duration>,
    stop: &Stopper,
    work: impl FnOnce() -> R,
) -> Result<R, Error> {
    let Some(timeout) = timeout else {
        return Ok(work());
    };
    // Ends the thread, also after a panic of `work`.
    let done = StopOnDrop(stop.child());
    let ended = done.0.clone();
    thread::scope(|scope| {
        let timer = thread::Builder::new().name("wait-deadline".to_owned());
        let timer = timer.spawn_scoped(scope, move || {
            if clock.wait(timeout, &ended) {
                stop.stop();
            }
        });
        timer.map_err(|error| {
            Error::new(ErrorKind::Other(format!(
                "the thread for the timeout could not be started: {error}"
            )))
        })?;
        let result = work();
        drop(done);
        Ok(result)
    })
}

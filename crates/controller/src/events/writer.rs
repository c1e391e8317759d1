//! The thread of a recorder, and what it shares with the callers.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use super::core::delivery::{Answer, Next, Verb, next};
use super::core::event::Event;
use super::state::{Outcome, Sending, State};
use super::{EventError, EventSink, EventStats};
use crate::log;
use k8s_informer::__private::sync::{Condvar, Mutex};
use k8s_informer::__private::{Owner, catch, named};
use k8s_informer::error::{Error, ShutdownError, WaitCause, WaitError};
use k8s_informer::stop::{DoneSetter, Stopper};
use k8s_informer::time::{Backoff, Clock};

/// The longest wait at the request of a server.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// The answers after which an event is given up, as in client-go (ER6). Connection errors and
/// overload do not count.
const TRIES: u32 = 12;

/// How long a shutdown waits for the end of the thread.
const GRACE: Duration = Duration::from_secs(1);

/// The first and the longest pause after a failed request. Jitter adds up to a half.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
const LONG_PAUSE: Duration = Duration::from_secs(30);

/// The minimum time between two log messages about dropped events.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// What the callers and the thread share.
pub(super) struct Shared {
    /// The name of the recorder in the log.
    name: String,
    /// Guards series and queue, and how the thread waits. While it is held, no other locks are
    /// taken than those of `Stop`, and no clock, sink or log is called.
    inner: Mutex<Inner>,
    /// Notified when an event was settled, and when the thread ends. Flushes wait on it.
    settled: Condvar,
    sink: Arc<dyn EventSink>,
    clock: Arc<dyn Clock>,
    stop: Stopper,
    /// The owner of the thread.
    owner: Owner,
    /// Set when the thread has ended.
    ended: DoneSetter,
}

struct Inner {
    state: State,
    /// Ends the wait of the thread, if there is one.
    wait: Option<Wait>,
    /// Ends the pause after a failed request, and starts the back-off again.
    kicked: bool,
    paused_until: Option<Instant>,
    backoff: Backoff,
    last_error: Option<Error>,
    /// The time of the last message about dropped events, and the number of events that had been
    /// dropped then.
    logged: (Option<Instant>, u64),
}

struct Wait {
    wake: Stopper,
    /// Whether the thread waits after a failed request, which new events must not shorten.
    is_pause: bool,
}

enum Step {
    Send(Box<Sending>),
    Wait {
        wake: Stopper,
        until: Option<Instant>,
    },
    End,
}

impl Shared {
    pub(super) fn new(
        controller: &str,
        state: State,
        sink: Arc<dyn EventSink>,
        clock: Arc<dyn Clock>,
        stop: Stopper,
    ) -> Self {
        Self {
            name: format!("event recorder {controller}"),
            inner: Mutex::new(Inner {
                state,
                wait: None,
                kicked: false,
                paused_until: None,
                backoff: Backoff::new(FIRST_PAUSE)
                    .factor(2.0)
                    .cap(LONG_PAUSE)
                    .jitter(0.5),
                last_error: None,
                logged: (None, 0),
            }),
            settled: Condvar::new(),
            sink,
            clock,
            stop,
            owner: Owner::new(),
            ended: DoneSetter::new("event recorder"),
        }
    }

    pub(super) fn record(&self, event: Result<Event, EventError>) -> Result<(), EventError> {
        let wall = self
            .clock
            .wall_clock()
            .duration_since(SystemTime::UNIX_EPOCH);
        let (wall, instant) = (wall.unwrap_or_default(), self.clock.now());
        let mut inner = self.inner.lock();
        let event = match event {
            Ok(event) if !inner.state.closed && !self.stop.is_stopped() => event,
            refused => {
                inner.state.refuse();
                return Err(refused.err().unwrap_or(EventError::Stopped));
            }
        };
        // An event that is only counted does not wake the thread.
        let needs_thread = inner.state.record(event, wall, instant);
        let wake = inner.wait.take_if(|wait| needs_thread && !wait.is_pause);
        let dropped = inner.newly_dropped(instant, LOG_INTERVAL);
        drop(inner);
        if let Some(wait) = wake {
            wait.wake.stop();
        }
        self.log_dropped(dropped);
        Ok(())
    }

    pub(super) fn flush(&self, timeout: Option<Duration>) -> Result<(), WaitError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        // Queue what has only been counted, and end the pause of the thread.
        let (target, wait) = {
            let mut inner = self.inner.lock();
            inner.state.queue_all();
            inner.kicked = true;
            (inner.state.stats().recorded, inner.wait.take())
        };
        if let Some(wait) = wait {
            wait.wake.stop();
        }
        let mut inner = self.inner.lock();
        while !inner.state.is_settled(target) {
            let pending = inner.state.stats().pending;
            let failed = |cause| WaitError::new(cause, format!("writing {}", counted(pending)));
            if self.ended.is_done() {
                return Err(failed(WaitCause::Stopped));
            }
            match deadline {
                None => self.settled.wait(&mut inner),
                Some(deadline) => {
                    let timed_out = self.settled.wait_until(&mut inner, deadline).timed_out();
                    // The last event may have been written at the deadline.
                    if timed_out && !inner.state.is_settled(target) {
                        return Err(failed(WaitCause::TimedOut(timeout.unwrap_or_default())));
                    }
                }
            }
        }
        Ok(())
    }

    pub(super) fn shut_down(&self, timeout: Option<Duration>) -> Result<(), ShutdownError> {
        let was_closed = std::mem::replace(&mut self.inner.lock().state.closed, true);
        // The sink runs on the thread that would write the events.
        let is_within = self.owner.is_current();
        let flushed = if is_within {
            Ok(())
        } else {
            self.flush(timeout)
        };
        self.stop.stop();
        if !is_within {
            self.ended.wait_timeout(GRACE);
        }
        let now = self.clock.now();
        let (pending, dropped) = {
            let mut inner = self.inner.lock();
            let dropped = inner.newly_dropped(now, Duration::ZERO);
            (inner.state.stats().pending, dropped)
        };
        self.log_dropped(dropped);
        if !was_closed && pending > 0 {
            log::warn!(
                "{}: events lost because they could not be written before the recorder ended: {pending}",
                self.name
            );
        }
        if is_within {
            return Err(ShutdownError::FromWithin);
        }
        let mut stuck = Vec::new();
        if pending > 0 {
            stuck.push(format!("{} unsent", counted(pending)));
        }
        if !self.ended.is_done() {
            stuck.push(self.name.clone());
        }
        match (stuck.is_empty(), flushed) {
            (true, _) => Ok(()),
            (false, Err(error)) if error.is_stopped() => Err(ShutdownError::Interrupted { stuck }),
            (false, _) => Err(ShutdownError::TimedOut {
                after: timeout.unwrap_or(GRACE),
                stuck,
            }),
        }
    }

    /// Whether the recorder has been shut down.
    pub(super) fn is_closed(&self) -> bool {
        self.inner.lock().state.closed
    }

    pub(super) fn stats(&self) -> EventStats {
        self.inner.lock().state.stats()
    }

    pub(super) fn last_error(&self) -> Option<Error> {
        self.inner.lock().last_error.clone()
    }

    fn log_dropped(&self, dropped: Option<u64>) {
        if let Some(dropped) = dropped {
            log::warn!(
                "{}: events dropped because too many wait to be written: {dropped}; the server is slow or \
                 unreachable",
                self.name
            );
        }
    }

    /// Decides what the thread does next.
    fn step(&self) -> Step {
        let now = self.clock.now();
        let mut inner = self.inner.lock();
        inner.wait = None;
        if self.stop.is_stopped() {
            return Step::End;
        }
        if std::mem::take(&mut inner.kicked) {
            inner.paused_until = None;
            inner.backoff.reset();
        }
        inner.state.queue_due(now);
        let pause = inner.paused_until.filter(|until| *until > now);
        if pause.is_none() {
            inner.paused_until = None;
            if let Some(sending) = inner.state.take() {
                return Step::Send(Box::new(sending));
            }
        }
        let wake = self.stop.child();
        inner.wait = Some(Wait {
            wake: wake.clone(),
            is_pause: pause.is_some(),
        });
        let until = pause.or(inner.state.due);
        Step::Wait { wake, until }
    }

    /// Sends an event: a patch, then a create if the event does not exist.
    fn send(&self, sending: &Sending) -> (Outcome, Option<Error>) {
        let Sending { event, .. } = sending;
        let mut attempt = sending.attempt;
        loop {
            let result = catch(|| match attempt.verb {
                Verb::Create => {
                    let body = event.create();
                    self.sink.create(&event.namespace, &body, &self.stop)
                }
                Verb::Patch => {
                    let patch = event.patch();
                    self.sink
                        .patch(&event.namespace, &event.name, &patch, &self.stop)
                }
            });
            let error = match result {
                Ok(result) => result.err(),
                Err(panic) => Some(Error::other(format!("the event sink {panic}"))),
            };
            let answer = error.as_ref().map_or(Answer::Accepted, answer);
            if answer == Answer::Later && attempt.verb == Verb::Create {
                attempt.in_doubt = true;
            }
            match next(attempt.verb, answer, event.count, attempt.in_doubt) {
                Next::Written => return (Outcome::Written, None),
                Next::Send(verb) => attempt.verb = verb,
                Next::Failed => return (Outcome::Failed, error),
                Next::Retry(verb) => {
                    attempt.verb = verb;
                    attempt.tries += u32::from(!error.as_ref().is_some_and(is_outage));
                    return match attempt.tries < TRIES || self.stop.is_stopped() {
                        true => (Outcome::Retry(attempt), error),
                        false => (Outcome::Failed, error),
                    };
                }
            }
        }
    }
}

impl Inner {
    /// Returns how many events were dropped since the last message, if that was at least `interval`
    /// ago.
    fn newly_dropped(&mut self, now: Instant, interval: Duration) -> Option<u64> {
        let dropped = self.state.stats().dropped;
        let (at, logged) = self.logged;
        let is_time = at.is_none_or(|at| now.saturating_duration_since(at) >= interval);
        (dropped > logged && is_time).then(|| {
            self.logged = (Some(now), dropped);
            dropped - logged
        })
    }
}

/// Starts the thread.
pub(super) fn spawn(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    named("event recorder".to_owned(), None)
        .spawn(move || shared.owner.adopt(|| run(&shared)))
        .map(drop)
}

fn run(shared: &Shared) {
    /// Reports the end, even after a panic of a custom clock.
    struct Ended<'a>(&'a Shared);
    impl Drop for Ended<'_> {
        fn drop(&mut self) {
            self.0.stop.stop();
            // Takes the lock, so that the wake-up cannot fall between a waiter's check and its
            // wait.
            let inner = self.0.inner.lock();
            self.0.ended.set();
            drop(inner);
            self.0.settled.notify_all();
        }
    }
    let _ended = Ended(shared);
    // The reason of the last message about a failure, so that a lasting problem is logged once.
    let mut problem: Option<String> = None;
    loop {
        match shared.step() {
            Step::End => return,
            Step::Wait { wake, until: None } => wake.wait(),
            Step::Wait {
                wake,
                until: Some(until),
            } => {
                let clock = &shared.clock;
                clock.wait(until.saturating_duration_since(clock.now()), &wake);
            }
            Step::Send(sending) => {
                let (outcome, error) = shared.send(&sending);
                let now = shared.clock.now();
                let is_stopped = shared.stop.is_stopped();
                if !is_stopped {
                    log_problem(&shared.name, &mut problem, error.as_ref(), &outcome);
                }
                let mut inner = shared.inner.lock();
                inner.state.settle(sending.id, &outcome);
                if let Outcome::Retry(_) = outcome {
                    let requested = error.as_ref().and_then(Error::retry_after);
                    let requested = requested.unwrap_or_default().min(MAX_RETRY_AFTER);
                    inner.paused_until = now.checked_add(inner.backoff.step().max(requested));
                } else {
                    inner.backoff.reset();
                }
                if error.is_some() && !is_stopped {
                    inner.last_error = error;
                }
                drop(inner);
                shared.settled.notify_all();
            }
        }
    }
}

/// Logs a failure, and its end. A failure like the last one is only logged at `debug`.
fn log_problem(name: &str, problem: &mut Option<String>, error: Option<&Error>, outcome: &Outcome) {
    let Some(error) = error else {
        if problem.take().is_some() {
            log::info!("{name}: events are written again");
        }
        return;
    };
    let class = match error.status() {
        Some(status) => format!("{} {}", status.code, status.reason),
        None => "no answer".to_owned(),
    };
    let level = match problem.replace(class.clone()) == Some(class) {
        true => ::log::Level::Debug,
        false => ::log::Level::Warn,
    };
    let effect = match outcome {
        Outcome::Retry(_) => "retrying with back-off",
        Outcome::Written | Outcome::Failed => "the event is lost",
    };
    log::log!(
        level,
        "{name}: an event could not be written; {effect}: {error}"
    );
}

fn answer(error: &Error) -> Answer {
    if error.is_not_found() {
        Answer::NotFound
    } else if error.is_already_exists() {
        Answer::AlreadyExists
    } else if error.is_retryable()
        || error.is_credentials()
        || error.is_unauthorized()
        || error.is_stopped()
        || error.is_decode()
    {
        Answer::Later
    } else {
        Answer::Refused
    }
}

/// Returns a number of events as text.
fn counted(events: u64) -> String {
    match events {
        1 => "1 event".to_owned(),
        _ => format!("{events} events"),
    }
}

/// Whether the server as a whole is unavailable, so that the event is not the cause.
fn is_outage(error: &Error) -> bool {
    let code = error.status().map_or(0, |status| status.code);
    error.is_stopped()
        || matches!(code, 429 | 502 | 503)
        || code == 0 && (error.is_connection() || error.is_timeout())
}

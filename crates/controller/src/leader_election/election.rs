//! When a candidate tries, waits, renews, and considers its term lost. This has no I/O, no clocks
//! and no threads, so a simulation can run it in virtual time.

use std::time::Duration;

use super::core::{Candidate, Core, Failure, Now, Outcome, Policy, Step};
use super::record::{Lease, Record};
use super::term::Term;

/// The three durations of an election.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) lease_duration: Duration,
    pub(crate) renew_deadline: Duration,
    pub(crate) retry_period: Duration,
}

/// What the caller must do next.
#[derive(Debug)]
pub(crate) enum Next<'a> {
    /// Wait this long, unless [`wake`](Election::wake) or [`release`](Election::release) is due.
    Wait(Duration),
    /// Send this request, and give up after this time.
    Send(Request<'a>, Duration),
    /// The term was not renewed in time, so it has ended. This is returned once. The election goes
    /// on renewing the Lease, to keep others from it until the work of the term has been joined.
    Lost,
    /// Nothing is left to do until [`release`](Election::release).
    Idle,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Request<'a> {
    Get,
    Create(&'a Record),
    Update(&'a Record, &'a Lease),
}

/// What a response has changed.
#[derive(Debug)]
pub(crate) enum Event {
    Nothing,
    /// A term has begun.
    Acquired(Term),
    /// The Lease was renewed by a request that was sent at this time.
    Renewed(Now),
    /// The term has ended: the Lease names another holder, or none.
    Lost,
    /// The release has ended, with or without success.
    Released,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// A candidate waits until this time.
    Waiting(Duration),
    Acquiring,
    /// A leader waits until this time.
    Holding(Duration),
    /// A leader renews, since this time.
    Renewing(Duration),
    /// The attempts to release that are left, and the start of the first one.
    Releasing(u32, Now),
    Idle,
}

/// The course of an election for one candidate.
pub(crate) struct Election {
    core: Core,
    times: Times,
    state: State,
    /// When the last successful request was sent.
    renewed: Now,
    is_lost: bool,
    /// Returns random numbers in [0, 1).
    random: Box<dyn FnMut() -> f64 + Send>,
}

/// How often a release is tried, for example after a conflict with a change of metadata.
const RELEASE_ATTEMPTS: u32 = 3;

/// The time for the release of a Lease that may have been acquired. It is short, because no work
/// has run, and a stop must not wait long for a server that does not respond.
const UNCONFIRMED_RELEASE: Duration = Duration::from_secs(1);

impl Election {
    pub(crate) fn new(
        identity: String,
        times: Times,
        policy: Policy,
        random: Box<dyn FnMut() -> f64 + Send>,
    ) -> Self {
        let candidate = Candidate {
            identity,
            lease_duration: times.lease_duration,
        };
        Self {
            core: Core::new(candidate, policy),
            times,
            state: State::Waiting(Duration::ZERO),
            renewed: Now {
                elapsed: Duration::ZERO,
                wall: 0,
            },
            is_lost: false,
            random,
        }
    }

    /// Returns what the caller must do next.
    pub(crate) fn next(&mut self, now: Now) -> Next<'_> {
        match self.state {
            State::Waiting(until) if now.elapsed < until => {
                return Next::Wait(until.saturating_sub(now.elapsed));
            }
            State::Waiting(_) => {
                self.core.begin(now);
                self.state = State::Acquiring;
            }
            State::Holding(_) | State::Renewing(_) if self.left(now).is_zero() => {
                self.is_lost = true;
                return Next::Lost;
            }
            State::Holding(until) if now.elapsed < until => {
                let wait = until.saturating_sub(now.elapsed);
                return Next::Wait(wait.min(self.left(now)));
            }
            State::Holding(_) => {
                self.core.begin(now);
                self.state = State::Renewing(now.elapsed);
            }
            State::Releasing(_, began) if self.left_to_release(now, began).is_zero() => {
                self.state = State::Idle;
            }
            State::Acquiring | State::Renewing(_) | State::Releasing(..) | State::Idle => {}
        }
        let limit = match self.state {
            State::Renewing(_) => self.left(now),
            State::Releasing(_, began) => self.left_to_release(now, began),
            _ => self.times.renew_deadline,
        };
        let request = match self.core.step() {
            _ if matches!(self.state, State::Idle) => return Next::Idle,
            Step::Get => Request::Get,
            Step::Create(record) => Request::Create(record),
            Step::Update(record, lease) => Request::Update(record, lease),
            Step::Done(_) => return Next::Idle,
        };
        Next::Send(request, limit.min(self.times.renew_deadline / 2))
    }

    /// Passes the response to the request that was sent at `sent`.
    pub(crate) fn answer(
        &mut self,
        sent: Now,
        now: Now,
        response: Result<Lease, Failure>,
    ) -> Event {
        self.core.answer(now, response);
        let Step::Done(outcome) = self.core.step() else {
            return Event::Nothing;
        };
        match (self.state, outcome) {
            (State::Acquiring, Outcome::Succeeded) => {
                self.hold(sent, now);
                let id = self.core.term().cloned();
                let term = id.map(|id| Term::new(id, sent, self.times.renew_deadline));
                term.map_or(Event::Nothing, Event::Acquired)
            }
            (State::Acquiring, _) => {
                self.wait(now);
                Event::Nothing
            }
            (State::Renewing(_), Outcome::Succeeded) => {
                self.hold(sent, now);
                Event::Renewed(sent)
            }
            (State::Renewing(began), Outcome::Failed) => {
                self.state = State::Holding(began.saturating_add(self.times.retry_period));
                Event::Nothing
            }
            (State::Renewing(_), Outcome::Lost) => {
                self.state = State::Idle;
                Event::Lost
            }
            (State::Releasing(left @ 2.., began), Outcome::Failed) => {
                self.core.begin_release(now);
                self.state = State::Releasing(left - 1, began);
                Event::Nothing
            }
            (State::Releasing(..), _) => {
                self.state = State::Idle;
                Event::Released
            }
            (State::Waiting(_) | State::Holding(_) | State::Idle, _) => Event::Nothing,
        }
    }

    /// Ends the wait of a candidate, because the Lease may be free.
    pub(crate) fn wake(&mut self) {
        if let State::Waiting(until) = &mut self.state {
            *until = Duration::ZERO;
        }
    }

    /// Starts to release the Lease, if this candidate may hold it. The caller has joined all work
    /// of the term.
    pub(crate) fn release(&mut self, now: Now) {
        self.state = State::Idle;
        if self.core.may_hold() {
            self.core.begin_release(now);
            self.state = State::Releasing(RELEASE_ATTEMPTS, now);
        }
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Returns the holder after an attempt, if it differs from the one that was returned before.
    pub(crate) fn new_leader(&mut self) -> Option<&str> {
        match self.state {
            State::Acquiring | State::Renewing(_) | State::Releasing(..) => None,
            State::Waiting(_) | State::Holding(_) | State::Idle => self.core.new_leader(),
        }
    }

    fn hold(&mut self, sent: Now, now: Now) {
        self.renewed = sent;
        self.state = State::Holding(now.elapsed.saturating_add(self.times.retry_period));
    }

    /// Waits for a random time (LE3), or until the observed record expires.
    fn wait(&mut self, now: Now) {
        let retry = self.times.retry_period;
        let wait = retry.saturating_add(retry.mul_f64(1.2 * (self.random)()));
        let until = now.elapsed.saturating_add(wait);
        let expiry = self.core.expiry().filter(|expiry| *expiry > now.elapsed);
        self.state = State::Waiting(expiry.map_or(until, |expiry| expiry.min(until)));
    }

    /// The time until the term is lost: a retry period and the renew deadline after the start of
    /// the last successful request. client-go counts the deadline from the start of the round,
    /// which is never earlier than a retry period after that request.
    fn left(&self, now: Now) -> Duration {
        if self.is_lost {
            return self.times.renew_deadline;
        }
        let limit = self
            .times
            .retry_period
            .saturating_add(self.times.renew_deadline);
        limit.saturating_sub(now.since(self.renewed))
    }

    fn left_to_release(&self, now: Now, began: Now) -> Duration {
        let limit = match self.core.term() {
            Some(_) => self.times.renew_deadline,
            None => UNCONFIRMED_RELEASE,
        };
        limit.saturating_sub(now.elapsed.saturating_sub(began.elapsed))
    }
}

//! The steps of a candidate: when it tries, renews and releases, with which request, what a
//! response means, and for how long its term is valid. Without I/O, clocks, locks and threads.
//!
//! The caller performs [`next`](Steps::next), and passes each response to
//! [`answer`](Steps::answer). A simulation runs them in virtual time, and the recorded traces of
//! client-go are replayed up to the listed differences.

use std::time::Duration;

use super::lease::{Lease, Record};
use k8s_informer::error::Error;

/// A point in time on the clocks of a candidate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The monotonic time since an arbitrary origin.
    pub elapsed: Duration,
    /// The wall-clock time in microseconds since the Unix epoch. It is written into records.
    pub wall: i64,
}

impl Now {
    /// Returns the time since `earlier`: the larger of the monotonic and the wall-clock time,
    /// because the monotonic clock does not advance while the machine is suspended.
    ///
    /// It is for the holder of a Lease, which must rather give up too early. Other candidates must
    /// rather wait too long, so they measure with the monotonic clock alone.
    fn since(self, earlier: Self) -> Duration {
        let wall = self.wall.saturating_sub(earlier.wall);
        let wall = Duration::from_micros(u64::try_from(wall).unwrap_or(0));
        self.elapsed.saturating_sub(earlier.elapsed).max(wall)
    }
}

/// The three durations of an election.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    pub lease_duration: Duration,
    pub renew_deadline: Duration,
    pub retry_period: Duration,
}

/// A Lease as a candidate knows it, and since when it has been unchanged.
#[derive(Clone, Debug)]
pub struct Observation {
    pub lease: Lease,
    /// When this version was read or written first, on the monotonic clock of the candidate. The
    /// times in the record are those of other clocks, so they do not matter (LE7).
    pub since: Duration,
}

impl Observation {
    /// Replaces the Lease with one that was read. Its age counts on if its version is the same.
    ///
    /// client-go compares the fields of the record instead, with times in whole seconds (EL5), so
    /// it misses renewals.
    pub fn update(&mut self, lease: Lease, now: Duration) {
        if !self.is_same(&lease) {
            self.since = now;
        }
        self.lease = lease;
    }

    /// Whether this is the same version of the same Lease.
    pub fn is_same(&self, lease: &Lease) -> bool {
        (&self.lease.uid, &self.lease.resource_version) == (&lease.uid, &lease.resource_version)
    }

    /// Whether it has been unchanged for the duration that its record states (EL4).
    pub fn is_expired(&self, now: Duration) -> bool {
        now >= self.expiry()
    }

    /// When it expires if it is not renewed.
    pub fn expiry(&self) -> Duration {
        let duration = u64::try_from(self.lease.record.lease_duration_seconds).unwrap_or(0);
        self.since.saturating_add(Duration::from_secs(duration))
    }
}

/// What the caller must do next.
#[derive(Debug)]
pub enum Next {
    /// Wait this long, unless [`wake`](Steps::wake) or [`release`](Steps::release) is due.
    Wait(Duration),
    /// Send this request, and give up after this time.
    Send(Box<Request>, Duration),
    /// Nothing is left to do until [`release`](Steps::release).
    Idle,
}

#[derive(Debug)]
pub enum Request {
    Get,
    Create(Record),
    /// Replace the record of this Lease, at its resource version.
    Update(Record, Lease),
}

/// What a response has changed.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// The attempt goes on with another request.
    Continued,
    /// A renewal goes on with another request, because it needed a GET.
    Slow,
    /// A term has begun.
    Acquired(TermId),
    Renewed,
    /// The attempt has failed. The next one may succeed.
    Failed,
    /// The term has ended: the Lease names another holder, or none, or it was not renewed in time.
    Lost,
    /// The last attempt to release has ended. This candidate does not hold the Lease, or could not
    /// release it.
    Released,
}

/// Whether there is a new leader.
#[derive(Debug, PartialEq, Eq)]
pub enum Report {
    Nothing,
    /// The candidate with this identity leads, or `None` if the Lease is free.
    Leader(Option<String>),
}

/// Identifies a term: no two terms of a Lease have the same values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TermId {
    pub uid: String,
    pub transitions: i32,
    pub acquire_time: Option<i64>,
}

impl TermId {
    fn of(lease: &Lease) -> Self {
        Self {
            uid: lease.uid.clone(),
            transitions: lease.record.transitions,
            acquire_time: lease.record.acquire_time,
        }
    }
}

/// A term of leadership, from the acquisition of the Lease on. It can be invalid until the next
/// renewal, and it ends for good.
#[derive(Debug)]
pub struct Term {
    pub id: TermId,
    times: Times,
    /// When the last successful request was sent. The server cannot have handled it earlier, so no
    /// other candidate can have begun to wait for its expiry earlier.
    renewed: Now,
    validity: Validity,
}

/// How far a term has come, as seen on the clocks of the candidate since the last renewal. It never
/// goes back on its own, even if the wall clock is set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Validity {
    Valid,
    /// The renew deadline has passed. A renewal makes the term valid again.
    Expired,
    /// The time after which the term is lost has passed. No renewal makes it valid again: other
    /// candidates need not write this Lease to take over the work, for example those of another
    /// division of shards, so a renewal that succeeds does not prove that none of them has.
    Over,
    /// The term has ended for good, and the caller knows it.
    Ended,
}

impl Term {
    /// Whether no other candidate can hold the Lease at this time.
    pub fn is_valid(&mut self, now: Now) -> bool {
        self.look(now);
        self.validity == Validity::Valid
    }

    /// The time since the last successful request was sent.
    pub fn age(&self, now: Now) -> Duration {
        now.since(self.renewed)
    }

    /// The time until the term is lost if it is not renewed: a retry period and the renew deadline
    /// after the last successful request. client-go counts the deadline from the start of the
    /// round, which is never earlier than a retry period after that request. `None` if the term has
    /// ended.
    pub fn left(&self, now: Now) -> Option<Duration> {
        match self.validity {
            Validity::Valid | Validity::Expired => Some(self.limit().saturating_sub(self.age(now))),
            Validity::Over => Some(Duration::ZERO),
            Validity::Ended => None,
        }
    }

    /// Ends the term if it was not renewed in time. Returns whether it has ended now.
    pub fn expire(&mut self, now: Now) -> bool {
        self.look(now);
        let is_over = self.validity == Validity::Over;
        is_over && self.end()
    }

    /// Ends the term. Returns whether it had not ended before.
    fn end(&mut self) -> bool {
        std::mem::replace(&mut self.validity, Validity::Ended) != Validity::Ended
    }

    /// Renews the term with a request that was sent at this time, unless it is over.
    fn renew(&mut self, sent: Now) {
        self.renewed = sent;
        if self.validity == Validity::Expired {
            self.validity = Validity::Valid;
        }
    }

    /// Remembers which limits have passed.
    fn look(&mut self, now: Now) {
        let age = self.age(now);
        let seen = if age >= self.limit() {
            Validity::Over
        } else if age >= self.times.renew_deadline {
            Validity::Expired
        } else {
            Validity::Valid
        };
        self.validity = self.validity.max(seen);
    }

    fn limit(&self) -> Duration {
        let times = self.times;
        times.retry_period.saturating_add(times.renew_deadline)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Waits until this time for the next attempt.
    Waiting(Duration),
    /// A renewal without a GET, at the last known version (EL2).
    FastUpdate,
    Get,
    Create,
    Update,
    ReleaseGet,
    ReleaseUpdate,
    Idle,
}

/// The state machine of a candidate.
pub struct Steps {
    identity: String,
    times: Times,
    /// Returns random numbers in [0, 1).
    random: Box<dyn FnMut() -> f64 + Send>,
    state: State,
    /// When the current attempt began.
    began: Now,
    /// The record that the current attempt writes.
    record: Record,
    /// The Lease that was read or written last. `None` at first, and without a Lease.
    observed: Option<Observation>,
    /// The version of this candidate's last write.
    written: Option<u64>,
    /// The records of failed writes that the server may have carried out: the last one, and one
    /// that was read before it.
    unconfirmed: Vec<Record>,
    term: Option<Term>,
    /// Whether the Lease has the term, as far as known. It is renewed even after the term has
    /// ended, to keep others from it until the work of the term has been joined.
    holds: bool,
    /// The attempts to release that are left, and the end of the last one.
    release: (u32, Duration),
    reported: Option<String>,
}

/// How often a release is tried, for example after a conflict with a change of metadata.
const RELEASE_ATTEMPTS: u32 = 3;

/// The time for the release of a Lease that may have been acquired. It is short, because no work
/// has run, and a stop must not wait long for a server that does not respond.
const UNCONFIRMED_RELEASE: Duration = Duration::from_secs(1);

impl Steps {
    /// Creates a candidate that knows nothing of the Lease. `random` returns numbers in [0, 1).
    pub fn new(identity: String, times: Times, random: Box<dyn FnMut() -> f64 + Send>) -> Self {
        Self {
            identity,
            times,
            random,
            state: State::Waiting(Duration::ZERO),
            began: Now::default(),
            record: Record::default(),
            observed: None,
            written: None,
            unconfirmed: Vec::new(),
            term: None,
            holds: false,
            release: (0, Duration::ZERO),
            reported: None,
        }
    }

    /// Adds what the caller has seen of the Lease before the first attempt, so that its age counts
    /// from then. The attempt reads it again.
    pub fn observe(&mut self, observation: Observation) {
        self.observed = Some(observation);
    }

    /// Returns what the caller must do next.
    pub fn next(&mut self, now: Now) -> Next {
        let left = self.term.as_ref().and_then(|term| term.left(now));
        let mut left = left.unwrap_or(Duration::MAX);
        match self.state {
            State::Waiting(until) if now.elapsed < until => {
                return Next::Wait(until.saturating_sub(now.elapsed).min(left));
            }
            State::Waiting(_) => self.begin(now),
            State::ReleaseGet | State::ReleaseUpdate => {
                left = self.release.1.saturating_sub(now.elapsed);
                if left.is_zero() {
                    self.state = State::Idle;
                }
            }
            _ => {}
        }
        let request = match (self.state, &self.observed) {
            (State::Get | State::ReleaseGet, _) => Request::Get,
            (State::Create, _) => Request::Create(self.record.clone()),
            (State::FastUpdate | State::Update | State::ReleaseUpdate, Some(observed)) => {
                Request::Update(self.record.clone(), observed.lease.clone())
            }
            _ => return Next::Idle,
        };
        let limit = left.min(self.times.renew_deadline / 2);
        Next::Send(Box::new(request), limit)
    }

    /// Starts an attempt to acquire or renew the Lease.
    pub fn begin(&mut self, now: Now) {
        self.began = now;
        let lease_duration = self.times.lease_duration.as_secs();
        self.record = Record {
            holder: Some(self.identity.clone()),
            lease_duration_seconds: i32::try_from(lease_duration).unwrap_or(i32::MAX),
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            ..Record::default()
        };
        // The holder of an unexpired Lease needs no GET (EL2).
        let own = self.observed.as_ref().filter(|_| self.holds);
        self.state = match own.filter(|own| !own.is_expired(now.elapsed)) {
            Some(own) => {
                keep_term(&mut self.record, &own.lease.record);
                State::FastUpdate
            }
            None => State::Get,
        };
    }

    /// Ends the wait of a candidate, because the Lease may be free.
    pub fn wake(&mut self) {
        if let State::Waiting(until) = &mut self.state {
            *until = Duration::ZERO;
        }
    }

    /// Ends the term for good. Returns whether there was one that had not ended.
    pub fn end_term(&mut self) -> bool {
        self.term.as_mut().is_some_and(Term::end)
    }

    /// Ends the term, and starts to release the Lease if this candidate may hold it. The caller has
    /// joined all work of the term.
    pub fn release(&mut self, now: Now) {
        self.end_term();
        let limit = match self.holds {
            true => self.times.renew_deadline,
            false => UNCONFIRMED_RELEASE,
        };
        self.release = (RELEASE_ATTEMPTS, now.elapsed.saturating_add(limit));
        self.state = match self.holds || !self.unconfirmed.is_empty() {
            true => State::ReleaseGet,
            false => State::Idle,
        };
    }

    /// Passes the response to a request that was sent at `sent`. `now` was read after the response
    /// had arrived, so the server has handled the request before.
    ///
    /// A term that was over before this response ends, whatever the response is: the process can
    /// have been paused from before the end of the term until now. The Lease is renewed all the
    /// same, until the work of the term has been joined.
    pub fn answer(&mut self, sent: Now, now: Now, response: Result<&Lease, &Error>) -> Event {
        // First, because a late renewal must not make a term valid again. client-go has no terms.
        let is_over = self.term.as_mut().is_some_and(|term| term.expire(now));
        let event = self.apply(sent, now, response);
        match is_over {
            true => Event::Lost,
            false => event,
        }
    }

    fn apply(&mut self, sent: Now, now: Now, response: Result<&Lease, &Error>) -> Event {
        if let (State::Create | State::Update, false, Err(_)) = (self.state, self.holds, response) {
            self.keep_unconfirmed();
        }
        match (self.state, response) {
            (State::Get, Ok(lease)) => self.got(now, lease),
            (State::Get, Err(error)) if error.is_not_found() && self.holds => {
                self.observed = None;
                self.lose()
            }
            (State::Get, Err(error)) if error.is_not_found() => {
                self.state = State::Create;
                Event::Continued
            }
            (State::FastUpdate, Err(_)) => {
                self.state = State::Get;
                Event::Continued
            }
            (State::FastUpdate | State::Create | State::Update, Ok(lease)) => {
                self.wrote(now, lease);
                self.state = State::Waiting(now.elapsed.saturating_add(self.times.retry_period));
                self.hold(sent, lease)
            }
            (State::Create, Err(_)) => {
                // The Lease that was seen is gone, so the age of the next one counts from its read.
                if let Some(observed) = &mut self.observed {
                    observed.lease.resource_version.clear();
                }
                self.fail(now)
            }
            (State::Get | State::Update, Err(_)) => self.fail(now),
            (State::ReleaseGet, Ok(lease)) => self.got_for_release(now, lease),
            (State::ReleaseUpdate, Ok(lease)) => {
                self.holds = false;
                self.wrote(now, lease);
                self.released()
            }
            (State::ReleaseGet | State::ReleaseUpdate, Err(_)) => self.fail_to_release(),
            (State::Waiting(_) | State::Idle, _) => Event::Continued,
        }
    }

    /// The last term, even if it has ended.
    pub fn term(&mut self) -> Option<&mut Term> {
        self.term.as_mut()
    }

    /// The Lease that was read or written last.
    pub fn observed(&self) -> Option<&Observation> {
        self.observed.as_ref()
    }

    /// The holder of this Lease.
    pub fn holder(&self) -> Option<&str> {
        self.observed.as_ref()?.lease.record.holder.as_deref()
    }

    /// Returns the holder after an attempt, if it differs from the one that was returned before
    /// (EL10).
    pub fn report(&mut self) -> Report {
        let is_settled = matches!(self.state, State::Waiting(_) | State::Idle);
        let holder = self.holder().map(str::to_owned);
        if !is_settled || self.reported == holder {
            return Report::Nothing;
        }
        self.reported.clone_from(&holder);
        Report::Leader(holder)
    }

    fn lose(&mut self) -> Event {
        self.end_term();
        self.holds = false;
        self.state = State::Idle;
        Event::Lost
    }

    /// Begins or renews the term with this Lease.
    fn hold(&mut self, sent: Now, lease: &Lease) -> Event {
        if let (true, Some(term)) = (self.holds, &mut self.term) {
            term.renew(sent);
            return Event::Renewed;
        }
        let id = TermId::of(lease);
        self.holds = true;
        self.term = Some(Term {
            id: id.clone(),
            times: self.times,
            renewed: sent,
            validity: Validity::Valid,
        });
        Event::Acquired(id)
    }

    /// Ends an attempt to acquire or renew. A candidate waits for a random time (LE3), or until the
    /// observed record of another holder expires.
    fn fail(&mut self, now: Now) -> Event {
        let retry = self.times.retry_period;
        self.state = State::Waiting(if self.holds {
            self.began.elapsed.saturating_add(retry)
        } else {
            let wait = retry.saturating_add(retry.mul_f64(1.2 * (self.random)()));
            let until = now.elapsed.saturating_add(wait);
            let expiry = self.held_by_another().map(Observation::expiry);
            let expiry = expiry.filter(|expiry| *expiry > now.elapsed);
            expiry.map_or(until, |expiry| expiry.min(until))
        });
        Event::Failed
    }

    fn fail_to_release(&mut self) -> Event {
        self.release.0 = self.release.0.saturating_sub(1);
        if self.release.0 == 0 {
            return self.released();
        }
        self.state = State::ReleaseGet;
        Event::Failed
    }

    fn released(&mut self) -> Event {
        self.state = State::Idle;
        Event::Released
    }

    /// Handles a Lease that was read to acquire or renew it.
    fn got(&mut self, now: Now, lease: &Lease) -> Event {
        if self.is_stale(lease) {
            return self.fail(now);
        }
        // Another holder, an emptied Lease or another term of the same identity (LE19).
        let is_foreign = self.holds && !self.is_own_term(lease);
        self.read(now, lease);
        if is_foreign {
            return self.lose();
        }
        // Compared with the time at which the attempt began (EL4).
        let other = self.held_by_another();
        if other.is_some_and(|other| !other.is_expired(self.began.elapsed)) {
            self.unconfirmed.clear();
            return self.fail(now);
        }
        self.state = State::Update;
        if self.holds {
            keep_term(&mut self.record, &lease.record);
            return Event::Slow;
        }
        // Each term has another number of transitions, also if the Lease has this identity (LE9).
        self.record.transitions = lease.record.transitions.saturating_add(1);
        Event::Continued
    }

    fn got_for_release(&mut self, now: Now, lease: &Lease) -> Event {
        if self.is_stale(lease) {
            return self.fail_to_release();
        }
        // The Lease of another holder or of another term must stay as it is (LE13).
        if !self.is_own_term(lease) && !self.unconfirmed.contains(&lease.record) {
            return self.released();
        }
        self.record = Record {
            lease_duration_seconds: 1,
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            transitions: lease.record.transitions,
            ..Record::default()
        };
        self.read(now, lease);
        self.state = State::ReleaseUpdate;
        Event::Continued
    }

    /// Remembers a Lease that was read.
    fn read(&mut self, now: Now, lease: &Lease) {
        let (lease, since) = (lease.clone(), now.elapsed);
        match &mut self.observed {
            Some(observed) => observed.update(lease, since),
            None => self.observed = Some(Observation { lease, since }),
        }
    }

    /// Remembers what this candidate has written.
    fn wrote(&mut self, now: Now, lease: &Lease) {
        // What was sent: a lock need not return the record.
        let record = self.record.clone();
        self.observed = Some(Observation {
            lease: Lease {
                record,
                ..lease.clone()
            },
            since: now.elapsed,
        });
        self.unconfirmed.clear();
        self.written = lease.resource_version.parse().ok();
    }

    /// Remembers the record of a failed write. No error proves that the Lease does not have it: a
    /// conflict, for example, can be that of a request which the client has sent twice.
    fn keep_unconfirmed(&mut self) {
        let read = self.observed.as_ref().map(|read| &read.lease.record);
        self.unconfirmed.retain(|record| Some(record) == read);
        self.unconfirmed.push(self.record.clone());
    }

    /// Whether a Lease that was read is older than this candidate's last write.
    fn is_stale(&self, lease: &Lease) -> bool {
        let version = lease.resource_version.parse::<u64>();
        version.is_ok_and(|version| Some(version) < self.written)
    }

    fn is_own_term(&self, lease: &Lease) -> bool {
        let id = self.term.as_ref().map(|term| &term.id);
        let names_self = lease.record.holder.as_deref() == Some(&*self.identity);
        self.holds && names_self && id == Some(&TermId::of(lease))
    }

    /// The Lease that was read or written last, if it has another holder.
    fn held_by_another(&self) -> Option<&Observation> {
        let holder = self.holder()?;
        self.observed.as_ref().filter(|_| holder != self.identity)
    }
}

/// Lets a record continue the term of the one that it replaces.
fn keep_term(record: &mut Record, replaced: &Record) {
    record.acquire_time = replaced.acquire_time;
    record.transitions = replaced.transitions;
}

//! The steps of a candidate: when it tries, renews and releases, with which request, what a
//! response means, and for how long its term is valid. Without I/O, clocks, locks and threads.
//!
//! The caller performs [`next`](Steps::next), and passes each response to
//! [`answer`](Steps::answer). The recorded traces of client-go are replayed with the policy of
//! client-go, and a simulation runs [`Policy::SAFE`] in virtual time.

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

/// Where the election differs from client-go, which does none of this.
#[derive(Clone, Copy, Debug)]
pub struct Policy {
    /// Whether a Lease has changed if its version has, and a read that is older than the
    /// candidate's last write is ignored. client-go compares the fields of the record with those of
    /// the last GET, with times in whole seconds (EL5).
    pub compares_versions: bool,
    /// Whether a term starts with a new transition, also if the Lease names this candidate already,
    /// and ends at once with another holder, an empty holder or a missing Lease.
    pub has_terms: bool,
    /// Whether a release first checks that the Lease still has the record of this term.
    pub checks_release: bool,
}

impl Policy {
    pub const SAFE: Self = Self {
        compares_versions: true,
        has_terms: true,
        checks_release: true,
    };
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
    policy: Policy,
    /// Returns random numbers in [0, 1).
    random: Box<dyn FnMut() -> f64 + Send>,
    state: State,
    /// When the current attempt began.
    began: Now,
    /// The record that the current attempt writes.
    record: Record,
    /// The record that was read or written last.
    observed: Record,
    /// When `observed` was read or written.
    observed_at: Option<Duration>,
    /// The record of the last GET, with times in seconds.
    last_read: Option<Record>,
    /// The Lease of the last response.
    lease: Option<Lease>,
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
    pub fn new(
        identity: String,
        times: Times,
        policy: Policy,
        random: Box<dyn FnMut() -> f64 + Send>,
    ) -> Self {
        Self {
            identity,
            times,
            policy,
            random,
            state: State::Waiting(Duration::ZERO),
            began: Now::default(),
            record: Record::default(),
            observed: Record::default(),
            observed_at: None,
            last_read: None,
            lease: None,
            written: None,
            unconfirmed: Vec::new(),
            term: None,
            holds: false,
            release: (0, Duration::ZERO),
            reported: None,
        }
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
        let request = match (self.state, &self.lease) {
            (State::Get | State::ReleaseGet, _) => Request::Get,
            (State::Create, _) => Request::Create(self.record.clone()),
            (State::FastUpdate | State::Update | State::ReleaseUpdate, Some(lease)) => {
                Request::Update(self.record.clone(), lease.clone())
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
        self.state = State::Get;
        if self.renews() && self.is_unexpired(now.elapsed) {
            self.keep_term(&self.observed.clone());
            if self.lease.is_some() {
                self.state = State::FastUpdate;
            }
        }
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
        let attempts = if self.policy.has_terms {
            RELEASE_ATTEMPTS
        } else {
            1
        };
        self.release = (attempts, now.elapsed.saturating_add(limit));
        self.state = match self.holds || !self.unconfirmed.is_empty() || !self.policy.has_terms {
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
        let is_over =
            self.policy.has_terms && self.term.as_mut().is_some_and(|term| term.expire(now));
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
            (State::Get, Err(error)) if error.is_not_found() && self.may_lose() => {
                self.observed = Record::default();
                self.lease = None;
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
                self.lease = None;
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

    /// Whether the last known record names this candidate. client-go's `IsLeader`.
    pub fn is_holder(&self) -> bool {
        self.names_self(&self.observed)
    }

    /// The last known record, and when it was read or written.
    pub fn observed(&self) -> (&Record, Option<Duration>) {
        (&self.observed, self.observed_at)
    }

    /// The Lease of the last response.
    pub fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Returns the holder after an attempt, if it differs from the one that was returned before
    /// (EL10).
    pub fn report(&mut self) -> Report {
        let is_settled = matches!(self.state, State::Waiting(_) | State::Idle);
        if !is_settled || self.reported == self.observed.holder {
            return Report::Nothing;
        }
        self.reported.clone_from(&self.observed.holder);
        Report::Leader(self.reported.clone())
    }

    /// Whether an attempt renews the Lease instead of acquiring it.
    fn renews(&self) -> bool {
        if self.policy.has_terms {
            self.holds
        } else {
            self.is_holder()
        }
    }

    fn may_lose(&self) -> bool {
        self.policy.has_terms && self.holds
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
            let expiry = self.expiry().filter(|_| self.is_held_by_another());
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
        let is_foreign = self.may_lose() && !self.is_own_term(lease);
        self.observe(now, lease);
        if is_foreign {
            return self.lose();
        }
        if self.is_held_by_another() && self.is_unexpired(self.began.elapsed) {
            self.unconfirmed.clear();
            return self.fail(now);
        }
        self.state = State::Update;
        if self.renews() {
            self.keep_term(&lease.record);
            return Event::Slow;
        }
        // As in client-go, a fast update that failed may have set the acquire time (EL3).
        self.record.transitions = lease.record.transitions.saturating_add(1);
        Event::Continued
    }

    fn got_for_release(&mut self, now: Now, lease: &Lease) -> Event {
        if self.is_stale(lease) {
            return self.fail_to_release();
        }
        let is_own = match self.policy.checks_release {
            true => self.is_own_term(lease) || self.unconfirmed.contains(&lease.record),
            false => self.is_holder(),
        };
        if !is_own {
            return self.released();
        }
        self.record = Record {
            lease_duration_seconds: 1,
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            transitions: lease.record.transitions,
            ..Record::default()
        };
        self.lease = Some(lease.clone());
        self.state = State::ReleaseUpdate;
        Event::Continued
    }

    /// Remembers a Lease that was read. Its age counts from now if it has changed.
    fn observe(&mut self, now: Now, lease: &Lease) {
        let has_changed = if self.policy.compares_versions {
            self.lease.as_ref().is_none_or(|last| {
                (&last.resource_version, &last.uid) != (&lease.resource_version, &lease.uid)
            })
        } else {
            let read = Some(in_seconds(&lease.record));
            std::mem::replace(&mut self.last_read, read.clone()) != read
        };
        if has_changed {
            self.observed = lease.record.clone();
            self.observed_at = Some(now.elapsed);
        }
        self.lease = Some(lease.clone());
    }

    /// Remembers what this candidate has written.
    fn wrote(&mut self, now: Now, lease: &Lease) {
        self.observed = self.record.clone();
        self.observed_at = Some(now.elapsed);
        self.unconfirmed.clear();
        self.written = lease.resource_version.parse().ok();
        self.lease = Some(lease.clone());
    }

    /// Remembers the record of a failed write. No error proves that the Lease does not have it: a
    /// conflict, for example, can be that of a request which the client has sent twice.
    fn keep_unconfirmed(&mut self) {
        let read = self.lease.as_ref().map(|lease| &lease.record);
        self.unconfirmed.retain(|record| Some(record) == read);
        self.unconfirmed.push(self.record.clone());
    }

    fn keep_term(&mut self, record: &Record) {
        self.record.acquire_time = record.acquire_time;
        self.record.transitions = record.transitions;
    }

    fn is_stale(&self, lease: &Lease) -> bool {
        let version = lease.resource_version.parse::<u64>();
        self.policy.compares_versions && version.is_ok_and(|version| Some(version) < self.written)
    }

    fn is_own_term(&self, lease: &Lease) -> bool {
        let id = self.term.as_ref().map(|term| &term.id);
        self.holds && self.names_self(&lease.record) && id == Some(&TermId::of(lease))
    }

    fn names_self(&self, record: &Record) -> bool {
        record.holder.as_deref() == Some(&*self.identity)
    }

    fn is_held_by_another(&self) -> bool {
        self.observed.holder.is_some() && !self.is_holder()
    }

    /// Whether the observed record is younger than the duration that it states (EL4).
    fn is_unexpired(&self, now: Duration) -> bool {
        self.expiry().is_some_and(|expiry| now < expiry)
    }

    fn expiry(&self) -> Option<Duration> {
        let duration = u64::try_from(self.observed.lease_duration_seconds).unwrap_or(0);
        Some(
            self.observed_at?
                .saturating_add(Duration::from_secs(duration)),
        )
    }
}

fn in_seconds(record: &Record) -> Record {
    let seconds = |time: Option<i64>| time.map(|time| time.div_euclid(1_000_000));
    Record {
        acquire_time: seconds(record.acquire_time),
        renew_time: seconds(record.renew_time),
        ..record.clone()
    }
}

//! The steps of a leader election on a Lease, without I/O and without clocks.
//!
//! [`Core`] decides which request is next and what a response means. The caller sends the requests
//! and passes the time. With [`Policy::CLIENT_GO`], it takes exactly the steps of client-go; the
//! recorded traces are replayed with it. [`Policy::SAFE`] is what the elector uses.

use std::time::Duration;

use super::record::{Lease, Micros, Record};

/// A point in time on the clocks of a candidate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The monotonic time since an arbitrary origin.
    pub(crate) elapsed: Duration,
    /// The wall-clock time. It is written into records.
    pub(crate) wall: Micros,
}

impl Now {
    /// Returns the time since `earlier`: the larger of the monotonic and the wall-clock time,
    /// because the monotonic clock does not advance while the machine is suspended.
    ///
    /// It is for the holder of a Lease, which must rather give up too early. Other candidates must
    /// rather wait too long, so they measure with the monotonic clock alone.
    pub(crate) fn since(self, earlier: Self) -> Duration {
        let wall = self.wall.saturating_sub(earlier.wall);
        let wall = Duration::from_micros(u64::try_from(wall).unwrap_or(0));
        self.elapsed.saturating_sub(earlier.elapsed).max(wall)
    }
}

/// The identity and the duration that a candidate writes into records.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) identity: String,
    pub(crate) lease_duration: Duration,
}

/// How a candidate notices that a record has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// By the fields of the record, with times in whole seconds, since the last GET (EL5).
    #[allow(
        dead_code,
        reason = "the recorded steps of client-go are replayed with it"
    )]
    Text,
    /// By the resource version, including that of the candidate's own writes.
    Version,
}

/// Where the election differs from client-go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) change: Change,
    /// Whether a response that is older than the candidate's own last write is ignored.
    pub(crate) ignore_stale_reads: bool,
    /// Whether another holder, an empty holder or a missing Lease ends the term at once.
    pub(crate) end_term_on_foreign_record: bool,
    /// Whether a term starts with a new transition even if the Lease names this candidate already.
    pub(crate) count_own_reacquisition: bool,
    /// Whether a release first checks that the Lease still has the record of this term.
    pub(crate) check_before_release: bool,
}

impl Policy {
    #[allow(
        dead_code,
        reason = "the recorded steps of client-go are replayed with it"
    )]
    pub(crate) const CLIENT_GO: Self = Self {
        change: Change::Text,
        ignore_stale_reads: false,
        end_term_on_foreign_record: false,
        count_own_reacquisition: false,
        check_before_release: false,
    };

    pub(crate) const SAFE: Self = Self {
        change: Change::Version,
        ignore_stale_reads: true,
        end_term_on_foreign_record: true,
        count_own_reacquisition: true,
        check_before_release: true,
    };
}

/// Identifies a term: no two terms of a Lease have the same values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TermId {
    pub(crate) uid: String,
    pub(crate) transitions: i32,
    acquire_time: Option<Micros>,
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

/// What the caller must do next.
#[derive(Debug)]
pub(crate) enum Step<'a> {
    Get,
    Create(&'a Record),
    /// Replace the record of this Lease, at its resource version.
    Update(&'a Record, &'a Lease),
    Done(Outcome),
}

/// The result of an attempt to acquire, renew or release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The request succeeded: this candidate holds the Lease, or has released it.
    Succeeded,
    /// It did not. For a renewal, the next attempt may succeed.
    Failed,
    /// The term has ended: the Lease names another holder, or none.
    Lost,
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    NotFound,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A renewal without a GET, at the last known version (EL2).
    FastUpdate,
    Get,
    Create,
    Update,
    ReleaseGet,
    ReleaseUpdate,
    Done(Outcome),
}

/// The fields that client-go compares (EL5).
type Text = (String, i32, Option<i64>, Option<i64>, i32, String, String);

/// The state of a candidate.
#[derive(Debug)]
pub(crate) struct Core {
    candidate: Candidate,
    policy: Policy,
    /// The record that was read or written last.
    observed: Record,
    /// When `observed` was read or written.
    observed_at: Option<Duration>,
    last_text: Option<Text>,
    /// The Lease of the last response.
    lease: Option<Lease>,
    /// The version of this candidate's last write.
    written: Option<u64>,
    /// The term of this candidate. Only [`Policy::SAFE`] has terms.
    term: Option<TermId>,
    /// The records of failed writes that the server may have carried out: the last one, and one
    /// that was read before it.
    unconfirmed: Vec<Record>,
    reported: String,
    phase: Phase,
    record: Record,
    began: Now,
    slow_renewals: u64,
}

impl Core {
    pub(crate) fn new(candidate: Candidate, policy: Policy) -> Self {
        Self {
            candidate,
            policy,
            observed: Record::default(),
            observed_at: None,
            last_text: None,
            lease: None,
            written: None,
            term: None,
            unconfirmed: Vec::new(),
            reported: String::new(),
            phase: Phase::Done(Outcome::Failed),
            record: Record::default(),
            began: Now {
                elapsed: Duration::ZERO,
                wall: 0,
            },
            slow_renewals: 0,
        }
    }

    /// Whether the last known record names this candidate. client-go's `IsLeader`.
    pub(crate) fn is_holder(&self) -> bool {
        self.observed.holder == self.candidate.identity
    }

    pub(crate) fn observed(&self) -> (&Record, Option<Duration>) {
        (&self.observed, self.observed_at)
    }

    /// Returns the holder if it differs from the one that was returned before (EL10).
    pub(crate) fn new_leader(&mut self) -> Option<&str> {
        if self.reported == self.observed.holder {
            return None;
        }
        self.reported.clone_from(&self.observed.holder);
        Some(&self.reported)
    }

    /// Whether this candidate is not the holder, or has renewed the Lease within its duration and
    /// `tolerance`. client-go's `Check`.
    #[allow(
        dead_code,
        reason = "the recorded steps of client-go are replayed with it"
    )]
    pub(crate) fn is_healthy(&self, now: Duration, tolerance: Duration) -> bool {
        let limit = self.candidate.lease_duration.saturating_add(tolerance);
        !self.is_holder()
            || self
                .observed_at
                .is_some_and(|at| now.saturating_sub(at) <= limit)
    }

    /// Starts an attempt to acquire or renew the Lease.
    pub(crate) fn begin(&mut self, now: Now) {
        self.began = now;
        self.record = Record {
            holder: self.candidate.identity.clone(),
            lease_duration_seconds: i32::try_from(self.candidate.lease_duration.as_secs())
                .unwrap_or(i32::MAX),
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            ..Record::default()
        };
        let renews = match self.policy.end_term_on_foreign_record {
            true => self.term.is_some(),
            false => self.is_holder(),
        };
        self.phase = Phase::Get;
        if renews && self.is_unexpired(now.elapsed) {
            self.keep_term(&self.observed.clone());
            if self.lease.is_some() {
                self.phase = Phase::FastUpdate;
            }
        }
    }

    /// Starts a release.
    pub(crate) fn begin_release(&mut self, now: Now) {
        self.began = now;
        self.phase = Phase::ReleaseGet;
    }

    /// Returns what the caller must do next.
    pub(crate) fn step(&self) -> Step<'_> {
        match (self.phase, &self.lease) {
            (Phase::Get | Phase::ReleaseGet, _) => Step::Get,
            (Phase::Create, _) => Step::Create(&self.record),
            (Phase::FastUpdate | Phase::Update | Phase::ReleaseUpdate, Some(lease)) => {
                Step::Update(&self.record, lease)
            }
            (Phase::FastUpdate | Phase::Update | Phase::ReleaseUpdate, None) => {
                Step::Done(Outcome::Failed)
            }
            (Phase::Done(outcome), _) => Step::Done(outcome),
        }
    }

    /// Passes the response to the request of [`step`](Self::step).
    pub(crate) fn answer(&mut self, now: Now, response: Result<Lease, Failure>) {
        if let (Phase::Create | Phase::Update, None, Err(_)) = (self.phase, &self.term, &response) {
            self.keep_unconfirmed();
        }
        self.phase = match (self.phase, response) {
            (Phase::Get, Ok(lease)) => self.got(now, lease),
            (Phase::Get, Err(Failure::NotFound)) if self.ends_term() => self.lose(),
            (Phase::Get, Err(Failure::NotFound)) => Phase::Create,
            (Phase::ReleaseGet, Ok(lease)) => self.got_for_release(now, lease),
            (Phase::FastUpdate, Err(_)) => Phase::Get,
            (Phase::FastUpdate | Phase::Create | Phase::Update, Ok(lease)) => {
                self.term = Some(TermId::of(&lease));
                self.wrote(now, lease);
                Phase::Done(Outcome::Succeeded)
            }
            (Phase::ReleaseUpdate, Ok(lease)) => {
                self.term = None;
                self.wrote(now, lease);
                Phase::Done(Outcome::Succeeded)
            }
            (Phase::Create, Err(_)) => {
                self.lease = None;
                Phase::Done(Outcome::Failed)
            }
            (Phase::Get | Phase::ReleaseGet | Phase::Update | Phase::ReleaseUpdate, Err(_)) => {
                Phase::Done(Outcome::Failed)
            }
            (done @ Phase::Done(_), _) => done,
        };
    }

    /// The number of renewals that needed a GET.
    pub(crate) fn slow_renewals(&self) -> u64 {
        self.slow_renewals
    }

    /// When the observed record of another holder expires.
    pub(crate) fn expiry(&self) -> Option<Duration> {
        let is_held = !self.observed.holder.is_empty() && !self.is_holder();
        self.observed_expiry().filter(|_| is_held)
    }

    /// The Lease of the last response.
    pub(crate) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// The term, unless it has ended.
    pub(crate) fn term(&self) -> Option<&TermId> {
        self.term.as_ref()
    }

    /// Whether the Lease has the term of this candidate, or may have been acquired by it.
    pub(crate) fn may_hold(&self) -> bool {
        self.term.is_some() || !self.unconfirmed.is_empty()
    }

    /// Remembers the record of a failed write. No error proves that the Lease does not have it: a
    /// conflict, for example, can be that of a request which the client has sent twice.
    fn keep_unconfirmed(&mut self) {
        let read = self.lease.as_ref().map(|lease| &lease.record);
        self.unconfirmed.retain(|record| Some(record) == read);
        self.unconfirmed.push(self.record.clone());
    }

    fn is_own_term(&self, lease: &Lease) -> bool {
        lease.record.holder == self.candidate.identity && self.term == Some(TermId::of(lease))
    }

    fn ends_term(&self) -> bool {
        self.policy.end_term_on_foreign_record && self.term.is_some()
    }

    fn lose(&mut self) -> Phase {
        self.term = None;
        self.observed = Record::default();
        self.lease = None;
        Phase::Done(Outcome::Lost)
    }

    /// Handles a Lease that was read to acquire or renew it.
    fn got(&mut self, now: Now, lease: Lease) -> Phase {
        if self.is_stale(&lease) {
            return Phase::Done(Outcome::Failed);
        }
        let is_foreign = self.ends_term() && !self.is_own_term(&lease);
        self.observe(now, lease);
        if is_foreign {
            self.term = None;
            return Phase::Done(Outcome::Lost);
        }
        let is_held = !self.observed.holder.is_empty() && !self.is_holder();
        if is_held && self.is_unexpired(self.began.elapsed) {
            self.unconfirmed.clear();
            return Phase::Done(Outcome::Failed);
        }
        let previous = self.lease.as_ref().map(|lease| lease.record.clone());
        let previous = previous.unwrap_or_default();
        let continues = match self.policy.count_own_reacquisition {
            true => self.term.is_some(),
            false => self.is_holder(),
        };
        if continues {
            self.slow_renewals += 1;
            self.keep_term(&previous);
        } else {
            // As in client-go, a fast update that failed may have set the acquire time (EL3).
            self.record.transitions = previous.transitions.saturating_add(1);
        }
        Phase::Update
    }

    fn got_for_release(&mut self, now: Now, lease: Lease) -> Phase {
        if self.is_stale(&lease) {
            return Phase::Done(Outcome::Failed);
        }
        let is_own = match self.policy.check_before_release {
            true => self.is_own_term(&lease) || self.unconfirmed.contains(&lease.record),
            false => self.is_holder(),
        };
        if !is_own {
            return Phase::Done(Outcome::Succeeded);
        }
        self.record = Record {
            lease_duration_seconds: 1,
            acquire_time: Some(now.wall),
            renew_time: Some(now.wall),
            transitions: lease.record.transitions,
            ..Record::default()
        };
        self.lease = Some(lease);
        Phase::ReleaseUpdate
    }

    /// Remembers a Lease that was read. Its age counts from now if it has changed.
    fn observe(&mut self, now: Now, lease: Lease) {
        let has_changed = match self.policy.change {
            Change::Text => {
                let text = Some(text(&lease.record));
                std::mem::replace(&mut self.last_text, text.clone()) != text
            }
            Change::Version => self.lease.as_ref().is_none_or(|last| {
                (&last.resource_version, &last.uid) != (&lease.resource_version, &lease.uid)
            }),
        };
        if has_changed {
            self.observed = lease.record.clone();
            self.observed_at = Some(now.elapsed);
        }
        self.lease = Some(lease);
    }

    /// Remembers what this candidate has written.
    fn wrote(&mut self, now: Now, lease: Lease) {
        self.observed = self.record.clone();
        self.observed_at = Some(now.elapsed);
        self.unconfirmed.clear();
        self.written = lease.resource_version.parse().ok();
        self.lease = Some(lease);
    }

    fn is_stale(&self, lease: &Lease) -> bool {
        self.policy.ignore_stale_reads
            && lease.resource_version.parse::<u64>().ok() < self.written
            && lease.resource_version.parse::<u64>().is_ok()
    }

    fn keep_term(&mut self, record: &Record) {
        self.record.acquire_time = record.acquire_time;
        self.record.transitions = record.transitions;
    }

    /// Whether the observed record is younger than the duration that it states (EL4).
    fn is_unexpired(&self, now: Duration) -> bool {
        self.observed_expiry().is_some_and(|expiry| now < expiry)
    }

    fn observed_expiry(&self) -> Option<Duration> {
        let duration = u64::try_from(self.observed.lease_duration_seconds).unwrap_or(0);
        Some(
            self.observed_at?
                .saturating_add(Duration::from_secs(duration)),
        )
    }
}

fn text(record: &Record) -> Text {
    let seconds = |time: Option<Micros>| time.map(|time| time.div_euclid(1_000_000));
    (
        record.holder.clone(),
        record.lease_duration_seconds,
        seconds(record.acquire_time),
        seconds(record.renew_time),
        record.transitions,
        record.strategy.clone(),
        record.preferred_holder.clone(),
    )
}

/// An option that client-go rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Invalid {
    LeaseNotOverRenew,
    RenewNotOverRetry,
    Lease,
    Renew,
    Retry,
    Identity,
}

/// Checks the options of a candidate as client-go does (EL1). The times are in nanoseconds. The
/// elector checks more.
pub(crate) fn check(lease: i128, renew: i128, retry: i128, identity: &str) -> Result<(), Invalid> {
    match () {
        () if lease <= renew => Err(Invalid::LeaseNotOverRenew),
        () if renew <= retry * 6 / 5 => Err(Invalid::RenewNotOverRetry),
        () if lease < 1 => Err(Invalid::Lease),
        () if renew < 1 => Err(Invalid::Renew),
        () if retry < 1 => Err(Invalid::Retry),
        () if identity.is_empty() => Err(Invalid::Identity),
        () => Ok(()),
    }
}

//! Whether the kind of an optional source exists.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use k8s_informer::client::discovery::Discovery;
use k8s_informer::error::Error;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorStatus;
use k8s_informer::stop::{Stop, Stopper};

/// How long discovery must lack a kind, in each answer, until the kind is missing. Several API
/// servers behind one address learn of a new definition at different times.
pub(super) const SETTLE: Duration = Duration::from_secs(5);

/// How long the lists of a kind must fail, although discovery answers, until the first call does not
/// wait for it any longer.
pub(super) const UNLISTABLE: Duration = Duration::from_secs(20);

/// The time between two checks while the result may change soon.
pub(super) const CHECK: Duration = Duration::from_secs(1);

/// Whether the kind of an optional source exists.
#[derive(Default)]
pub(crate) struct Presence {
    /// Whether the stage is [`Stage::Exists`].
    exists: AtomicBool,
    /// No other lock is taken and no user code runs while this one is held.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    stage: Stage,
    /// What speaks against the kind.
    doubts: Doubts,
    /// Ends a wait of the start for the cache of this kind.
    awaited: Option<Stopper>,
    /// When a probe for readiness first found the lists failing, although the kind exists.
    unready_since: Option<Instant>,
}

/// What a controller knows about a kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    /// The first call waits until this is decided.
    #[default]
    Undecided,
    Exists,
    Missing {
        reason: Reason,
        /// Whether a list had reached the cache before. Later lists have no signal.
        was_listed: bool,
        rejoin: Rejoin,
    },
}

/// Why a kind is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// Discovery lacks it.
    Absent,
    /// Its lists fail.
    Unlistable,
}

/// The way of a missing kind back to existence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejoin {
    /// It has no complete list yet.
    NotListed,
    /// It has a list. A thread waits until the list and the watch have what was committed before the
    /// term.
    CatchingUp,
    /// The cache has what was committed before the term.
    Current,
}

impl Presence {
    /// Forgets what an earlier term has found out: the start of the next one decides again.
    pub(super) fn begin_term(&self) {
        let earlier = {
            let mut state = self.state.lock();
            self.exists.store(false, Ordering::Release);
            // A replica that was ready although it can't list the kind stays ready.
            let is_excused = matches!(
                state.stage,
                Stage::Missing {
                    reason: Reason::Unlistable,
                    ..
                }
            );
            let long_ago = Instant::now()
                .checked_sub(UNLISTABLE)
                .filter(|_| is_excused);
            let unready_since = long_ago.or(state.unready_since);
            let next = State {
                unready_since,
                ..State::default()
            };
            std::mem::replace(&mut *state, next)
        };
        // After the unlock: the destructor of a signal takes the lock of its parent.
        drop(earlier);
    }

    /// Whether calls see the kind.
    pub(super) fn exists(&self) -> bool {
        self.exists.load(Ordering::Acquire)
    }

    pub(super) fn stage(&self) -> Stage {
        self.state.lock().stage
    }

    pub(super) fn is_missing(&self) -> bool {
        matches!(self.stage(), Stage::Missing { .. })
    }

    /// Whether the last check did not find the kind.
    pub(super) fn is_doubted(&self) -> bool {
        self.state.lock().doubts.is_absent()
    }

    /// Adds what a check has found. Returns why the kind is missing, if it is.
    ///
    /// `settle` is how long discovery must lack the kind.
    pub(super) fn add_finding(
        &self,
        found: Finding,
        now: Instant,
        settle: Duration,
    ) -> Option<Reason> {
        self.state.lock().doubts.add(found, now, settle)
    }

    /// Ends the wait of the start: the kind exists unless it has turned out to be missing.
    pub(super) fn end_start(&self) {
        let awaited = {
            let mut state = self.state.lock();
            // The start has its own time, and the checks that follow have another one.
            state.doubts = Doubts::default();
            if state.stage == Stage::Undecided {
                state.stage = Stage::Exists;
                self.exists.store(true, Ordering::Release);
            }
            state.awaited.take()
        };
        // After the unlock: the destructor takes the lock of the parent.
        drop(awaited);
    }

    pub(super) fn set_exists(&self) {
        let mut state = self.state.lock();
        (state.stage, state.doubts) = (Stage::Exists, Doubts::default());
        self.exists.store(true, Ordering::Release);
    }

    /// The kind counts as missing from now on, and the start does not wait for it any longer.
    pub(super) fn set_missing(&self, reason: Reason, was_listed: bool) {
        let awaited = {
            let mut state = self.state.lock();
            state.stage = Stage::Missing {
                reason,
                was_listed,
                rejoin: Rejoin::NotListed,
            };
            state.doubts = Doubts::default();
            self.exists.store(false, Ordering::Release);
            state.awaited.take()
        };
        // After the unlock: a stop calls callbacks.
        awaited.inspect(Stopper::stop);
    }

    /// Changes how far a missing kind is on its way back.
    pub(super) fn set_rejoin(&self, to: Rejoin) {
        if let Stage::Missing { rejoin, .. } = &mut self.state.lock().stage {
            *rejoin = to;
        }
    }

    /// Returns a signal for a wait of the start: it is set with `stop`, and when the kind turns out
    /// to be missing. `None` if the kind is missing already.
    pub(super) fn awaits(&self, stop: &Stop) -> Option<Stop> {
        // Outside of the lock: a child registers with its parent.
        let awaited = stop.child();
        let (is_undecided, earlier) = {
            let mut state = self.state.lock();
            let is_undecided = state.stage == Stage::Undecided;
            let new = is_undecided.then(|| awaited.clone());
            (is_undecided, std::mem::replace(&mut state.awaited, new))
        };
        drop(earlier);
        is_undecided.then(|| awaited.signal())
    }

    /// Whether the status of a replica shows the kind as missing. Before the start, the informer's
    /// own failures decide.
    pub(super) fn shows_missing(&self, status: &ReflectorStatus) -> bool {
        match self.stage() {
            Stage::Exists => false,
            Stage::Missing { .. } => true,
            Stage::Undecided => status.failures > 0 && fails_with_404(status),
        }
    }

    /// Whether a replica can be ready although the cache has not synced: the kind is missing, or it
    /// has not been listable for `UNLISTABLE`. A standby has no other check.
    pub(super) fn excuses(&self, status: &ReflectorStatus, now: Instant) -> bool {
        let mut state = self.state.lock();
        let is_known = matches!(
            state.stage,
            Stage::Missing {
                reason: Reason::Unlistable,
                ..
            }
        );
        if is_known || fails_with_404(status) {
            state.unready_since = None;
            return true;
        }
        if status.last_error.is_none() {
            return false;
        }
        let since = *state.unready_since.get_or_insert(now);
        now.saturating_duration_since(since) >= UNLISTABLE
    }
}

/// Whether the last error is that the server lacks the kind.
fn fails_with_404(status: &ReflectorStatus) -> bool {
    let last_error = status.last_error.as_ref();
    last_error.is_some_and(Error::is_not_found)
}

/// What speaks against a kind, and since when.
#[derive(Debug, Default)]
struct Doubts {
    /// When discovery began to lack the kind.
    absent_since: Option<Instant>,
    failing: Option<Failing>,
}

/// Lists that fail, as seen by the checks.
#[derive(Clone, Copy, Debug)]
struct Failing {
    since: Instant,
    /// The number of failures in the first check and in the last one.
    first: u64,
    last: u64,
}

/// What a check has found about a kind that the controller waits for or uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finding {
    /// The answer of discovery.
    pub(super) served: Served,
    /// Whether the cache has a complete list, and the informer watches.
    pub(super) is_listed: bool,
    /// The number of failed lists and reads, if the first call waits for one of them. It counts up
    /// until one succeeds.
    pub(super) failures: Option<u64>,
}

impl Doubts {
    /// Adds what a check has found. Returns why the kind is missing, if it is.
    ///
    /// `settle` is how long discovery must lack the kind.
    fn add(&mut self, found: Finding, now: Instant, settle: Duration) -> Option<Reason> {
        // A kind that is watched exists, whatever one of the API servers says. Each other answer
        // than its absence begins the time again.
        let is_absent = found.served == Served::No && !found.is_listed;
        self.absent_since = is_absent.then(|| self.absent_since.unwrap_or(now));
        // If discovery has no answer, the server is down. Then all lists fail, and this says nothing
        // about the kind.
        let failures = found.failures.filter(|_| found.served != Served::Unknown);
        self.failing = failures.map(|last| match self.failing {
            Some(failing) if failing.last <= last => Failing { last, ..failing },
            // The informer has worked in the meantime if it counts from the beginning.
            _ => Failing {
                since: now,
                first: last,
                last,
            },
        });
        let has_passed = |since, time| now.saturating_duration_since(since) >= time;
        if self
            .absent_since
            .is_some_and(|since| has_passed(since, settle))
        {
            return Some(Reason::Absent);
        }
        // After an outage, the informer waits for long. Its old failure does not count.
        let is_unlistable = self.failing.is_some_and(|failing| {
            has_passed(failing.since, UNLISTABLE) && failing.last > failing.first
        });
        is_unlistable.then_some(Reason::Unlistable)
    }

    /// Whether discovery has begun to lack the kind, so that the next check must follow soon.
    fn is_absent(&self) -> bool {
        self.absent_since.is_some()
    }
}

/// What discovery says about a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Yes,
    No,
    /// Discovery could not read the group of the resource, for example because its aggregated API
    /// server is down.
    Unclear,
    /// There is no usable answer.
    Unknown,
}

impl Served {
    /// Reads an answer of discovery.
    pub(super) fn of(
        answer: &Result<Arc<Discovery>, Error>,
        resource: &GroupVersionResource,
    ) -> Self {
        let Ok(found) = answer else {
            return Self::Unknown;
        };
        if found.by_resource(resource).is_some() {
            return Self::Yes;
        }
        // The core group and the others have separate documents. A proxy can answer 404 to each.
        let is_core = |resource: &GroupVersionResource| resource.group.is_empty();
        let mut others = found.resources().iter();
        if !others.any(|other| is_core(&other.resource) == is_core(resource)) {
            return Self::Unknown;
        }
        // The group of a failure is empty if it is unknown.
        let concerns = |group: &str| group.is_empty() || group == resource.group;
        let mut failures = found.failures().iter();
        match failures.any(|failure| concerns(&failure.group)) {
            true => Self::Unclear,
            false => Self::No,
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests;

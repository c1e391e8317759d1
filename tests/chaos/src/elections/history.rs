//! What the server and the candidates have seen of an election, and the rules for it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::protocol::{Event, LEASE, Micros, Outcome, RENEW_DEADLINE, Write};

/// How much the wall clock, in which processes report times, can differ from the time that the
/// elector measures.
const CLOCK_TOLERANCE: Duration = Duration::from_millis(20);

/// A state of the Lease on the server.
#[derive(Clone, Debug)]
pub(crate) struct LeaseState {
    pub(crate) uid: String,
    pub(crate) holder: String,
    pub(crate) term: i32,
    /// When the holder began to acquire the Lease, by its clock.
    pub(crate) acquired: Option<Micros>,
}

/// The history of a Lease and of its guarded object.
#[derive(Default)]
pub(crate) struct History {
    /// By version.
    leases: BTreeMap<u64, LeaseState>,
    /// The accepted writes, by version.
    writes: BTreeMap<u64, Write>,
    terms: BTreeMap<i32, TermFacts>,
    violations: Vec<String>,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
    /// Writes of a process that was stopped between `ensure` and the write.
    pub(crate) planted: Planted,
    /// Changes that gates have let out, and refused.
    pub(crate) gated: Gated,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Gated {
    pub(crate) sent: u64,
    pub(crate) refused: u64,
}

#[derive(Clone, Copy, Default)]
pub(crate) struct Planted {
    pub(crate) accepted: usize,
    pub(crate) refused: usize,
    pub(crate) unknown: usize,
}

/// What the candidate reports of its term.
#[derive(Default)]
struct TermFacts {
    lease_uid: String,
    /// When `ensure` succeeded for the first and last time.
    ensured: Option<(Micros, Micros)>,
    /// When the work started, and when it was about to return.
    started: Option<Micros>,
    joined: Option<Micros>,
}

impl History {
    pub(crate) fn observe_lease(&mut self, version: u64, state: LeaseState) {
        self.leases.insert(version, state);
    }

    pub(crate) fn observe_write(&mut self, version: u64, write: Write) {
        self.writes.insert(version, write);
    }

    pub(crate) fn report(&mut self, candidate: &str, event: &Event) {
        match event {
            Event::Leading {
                term,
                lease_uid,
                at,
            } => {
                let facts = TermFacts {
                    lease_uid: lease_uid.clone(),
                    started: Some(*at),
                    ..TermFacts::default()
                };
                if self.terms.insert(*term, facts).is_some() {
                    self.violations.push(format!(
                        "{candidate} got term {term}, which was used before"
                    ));
                }
            }
            Event::Ensured { term, first, last } => {
                let facts = self.terms.entry(*term).or_default();
                let (first, _) = facts.ensured.unwrap_or((*first, 0));
                facts.ensured = Some((first, *last));
            }
            Event::Write {
                write,
                planted,
                outcome,
            } => {
                let counts = &mut self.planted;
                let (count, of_planted) = match outcome {
                    Outcome::Accepted(version) => {
                        self.writes.insert(*version, write.clone());
                        (&mut 0, &mut counts.accepted)
                    }
                    Outcome::Refused => (&mut self.refused, &mut counts.refused),
                    Outcome::Unknown => (&mut self.unknown, &mut counts.unknown),
                };
                *count += 1;
                *of_planted += usize::from(*planted);
            }
            Event::Violation(text) => self.violations.push(format!("{candidate}: {text}")),
            Event::Joined { term, at } => {
                self.terms.entry(*term).or_default().joined = Some(*at);
            }
            Event::Gated { changes, refused } => {
                self.gated.sent += changes;
                self.gated.refused += refused;
            }
            Event::Expired { .. } | Event::Planted { .. } | Event::Ended(_) | Event::Log(_) => {}
        }
    }

    pub(crate) fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.writes.len()
    }

    /// The number of writes that neither the watch nor a candidate has seen.
    pub(crate) fn unseen(&self) -> usize {
        let versions = self.writes.keys();
        let next = self.writes.values().skip(1);
        versions
            .zip(next)
            .filter(|(version, next)| **version != next.replaced)
            .count()
    }

    /// The time from the last success of `ensure` in each term to the next acquisition. Leaves out
    /// terms that ended with a release, or with the restart of a process under its old identity:
    /// such a process does not wait for the expiry.
    pub(crate) fn margins(&self) -> impl Iterator<Item = Micros> {
        self.last_successes().map(|(_, last, next)| next - last)
    }

    /// The terms of [`margins`](Self::margins), with both times.
    fn last_successes(&self) -> impl Iterator<Item = (i32, Micros, Micros)> {
        let held = self
            .leases
            .values()
            .filter(|lease| !lease.holder.is_empty());
        let by_term: BTreeMap<i32, &LeaseState> = held.map(|lease| (lease.term, lease)).collect();
        let released = self.released();
        self.terms.iter().filter_map(move |(term, facts)| {
            let (_, last) = facts.ensured.filter(|_| !released.contains(term))?;
            let (_, next) = by_term.range(term + 1..).next()?;
            let is_same = by_term
                .get(term)
                .is_some_and(|lease| lease.holder == next.holder);
            Some((*term, last, next.acquired?)).filter(|_| !is_same)
        })
    }

    fn released(&self) -> BTreeSet<i32> {
        let free = self.leases.values().filter(|lease| lease.holder.is_empty());
        free.map(|lease| lease.term).collect()
    }

    /// Returns all violations of the rules.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut found = self.violations.clone();
        self.check_writes(&mut found);
        self.check_leases(&mut found);
        self.check_validity(&mut found);
        self.check_joins(&mut found);
        found
    }

    /// No write of an older term is accepted after a newer term's first.
    fn check_writes(&self, found: &mut Vec<String>) {
        let mut newest = 0;
        for (version, write) in &self.writes {
            let before = newest.max(write.replaced_term);
            if write.term < before {
                found.push(format!(
                    "version {version}, a write of term {}, was accepted after one of term {before}: {write:?}",
                    write.term
                ));
            }
            newest = before.max(write.term);
        }
    }

    /// The transitions of the Lease increase with each acquisition.
    fn check_leases(&self, found: &mut Vec<String>) {
        let mut last: Option<&LeaseState> = None;
        for (version, lease) in self
            .leases
            .iter()
            .filter(|(_, lease)| !lease.holder.is_empty())
        {
            if let Some(last) = last {
                let is_same = (&last.holder, last.acquired) == (&lease.holder, lease.acquired);
                let ascends = match is_same {
                    true => last.term == lease.term,
                    false => last.term < lease.term,
                };
                if !ascends || last.uid != lease.uid {
                    found.push(format!(
                        "the Lease changes at version {version} from {last:?} to {lease:?}"
                    ));
                }
            }
            last = Some(lease);
        }
        let uids = self.leases.values().map(|lease| &lease.uid).next();
        for (term, facts) in &self.terms {
            if uids.is_some_and(|uid| *uid != facts.lease_uid) {
                found.push(format!(
                    "term {term} has another Lease, {}",
                    facts.lease_uid
                ));
            }
        }
    }

    /// At no time does `ensure` succeed for two terms. The last success comes before the next
    /// acquisition, by the lease duration minus the renew deadline.
    fn check_validity(&self, found: &mut Vec<String>) {
        let mut last: Option<(i32, Micros)> = None;
        for (term, facts) in &self.terms {
            let Some((first, until)) = facts.ensured else {
                continue;
            };
            if let Some((older, last)) = last.filter(|(_, last)| *last >= first) {
                found.push(format!(
                    "ensure of term {older} succeeded {} ms after the first success of term {term}",
                    (last - first) / 1000
                ));
            }
            if last.is_none_or(|(_, last)| last < until) {
                last = Some((*term, until));
            }
        }
        for (term, last, next) in self.last_successes() {
            let joined = self.terms[&term].joined;
            let least = match joined.is_some_and(|joined| joined <= next) {
                // It can have been released while the watch was interrupted.
                true => Duration::ZERO,
                false => LEASE - RENEW_DEADLINE - CLOCK_TOLERANCE,
            };
            if next - last < least.as_micros() as Micros {
                found.push(format!(
                    "ensure of term {term} succeeded {} ms before the next acquisition, at least {least:?} are due",
                    (next - last) / 1000
                ));
            }
        }
    }

    /// Work is joined before the Lease is released.
    fn check_joins(&self, found: &mut Vec<String>) {
        for term in self.released() {
            let joined = self.terms.get(&term).and_then(|facts| facts.joined);
            let next = self.terms.range(term + 1..).next();
            let started = next.and_then(|(_, facts)| facts.started);
            if let (Some(joined), Some(started)) = (joined, started)
                && started < joined
            {
                found.push(format!(
                    "the Lease was released {} ms before the end of the work of term {term}",
                    (joined - started) / 1000
                ));
            }
        }
    }
}

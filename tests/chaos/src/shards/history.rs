//! What the replicas and the writers have seen, and the rules for it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use jiff::Timestamp;
use k8s_informer::reflector::Shard;
use k8s_informer_controller::ShardBy;

use super::protocol::{Caches, Event, Listed, Outcome, Revisions};
use crate::timing::{LEASE, Micros, RETRY};

/// The maximum time until another replica continues, except for a list and the time in the queue.
pub(crate) const BOUND: Micros =
    LEASE.as_micros() as Micros + RETRY.as_micros() as Micros * 22 / 10 + 3_000_000;

#[derive(Default)]
pub(crate) struct History {
    /// By the number of the process.
    holds: BTreeMap<HoldId, Hold>,
    /// By the UID of the reconciled object.
    accounts: HashMap<String, Account>,
    /// The UIDs of the changes that no call has seen, by time and revision.
    pending: BTreeMap<(Micros, u64), String>,
    /// What calls saw later than after [`BOUND`], from the change to the begin of the call, without
    /// the time in the queue.
    slow: Vec<(String, Span)>,
    /// When the replicas could not do their work.
    outages: Vec<(Micros, Micros)>,
    /// Numbers of shards, and when all their shards must have a holder.
    divisions: Vec<(u32, Micros, Micros)>,
    /// The time of the first lists of each process.
    lists: BTreeMap<usize, Micros>,
    /// When each process had no watch after its first lists.
    unwatched: BTreeMap<usize, Vec<(Micros, Micros)>>,
    /// The processes with a fault, and the terms that were lost.
    faulty: BTreeSet<usize>,
    lost: BTreeSet<HoldId>,
    violations: Vec<String>,
    pub(crate) calls: usize,
    /// The times from a change to the begin of a call that has seen it.
    pub(crate) delays: Vec<Micros>,
    /// The maximum time in the queue.
    pub(crate) queued: Micros,
    /// Changes that gates have let out, and refused.
    pub(crate) gated: (u64, u64),
    /// How often a process has led again after a loss.
    pub(crate) led_again: usize,
}

/// A process, and the begin of one of its terms.
type HoldId = (usize, Micros);

/// The time during which a process certainly had a shard.
#[derive(Clone, Copy, Debug)]
struct Hold {
    count: u32,
    shard: u32,
    first: Micros,
    last: Micros,
}

#[derive(Default)]
struct Account {
    /// The newest revision that a call has seen.
    seen: u64,
    /// The newest process with a call.
    process: usize,
    /// The parts of calls during which `ensure` succeeds.
    calls: Vec<Span>,
    /// The changes that no call has seen.
    pending: BTreeMap<u64, Micros>,
    creates: Vec<Create>,
}

/// The create of a child.
#[derive(Clone, Copy, Debug)]
struct Create {
    process: usize,
    at: Micros,
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug)]
struct Span {
    process: usize,
    from: Micros,
    until: Micros,
}

impl History {
    pub(crate) fn violation(&mut self, problem: String) {
        self.violations.push(problem);
    }

    /// Records a change of a reconciled object that the server has confirmed.
    pub(crate) fn change(&mut self, uid: &str, revision: u64, at: Micros) {
        let account = self.accounts.entry(uid.to_owned()).or_default();
        if revision <= account.seen {
            return self.delays.push(0);
        }
        account.pending.insert(revision, at);
        self.pending.insert((at, revision), uid.to_owned());
    }

    /// Records that no replica could work, or not all.
    pub(crate) fn outage(&mut self, from: Micros, until: Micros) {
        self.outages.push((from, until));
    }

    /// Records a fault of a process.
    pub(crate) fn fault(&mut self, process: usize) {
        self.faulty.insert(process);
    }

    /// Records that a process has lost its shard, and ends because another one has it.
    pub(crate) fn lost(&mut self, process: usize) {
        self.lost.extend(self.last_hold(process).map(|(id, _)| id));
    }

    /// Returns the last term of a process.
    fn last_hold(&self, process: usize) -> Option<(HoldId, Hold)> {
        let terms = self
            .holds
            .range((process, Micros::MIN)..=(process, Micros::MAX));
        terms.last().map(|(id, hold)| (*id, *hold))
    }

    pub(crate) fn division(&mut self, count: u32, from: Micros, until: Micros) {
        self.divisions.push((count, from, until));
    }

    /// Returns the time of the oldest change that no call has seen.
    pub(crate) fn oldest_pending(&self) -> Option<Micros> {
        self.pending.keys().next().map(|(at, _)| *at)
    }

    /// Whether these or newer processes have reconciled each object.
    pub(crate) fn all_called_by(&self, process: usize) -> bool {
        let mut accounts = self.accounts.values();
        accounts.all(|account| account.process >= process)
    }

    /// Returns the shard that a process has had at this time or later.
    pub(crate) fn shard_of(&self, process: usize, since: Micros) -> Option<u32> {
        let (_, hold) = self.last_hold(process)?;
        (hold.last >= since).then_some(hold.shard)
    }

    /// Returns the number of shards that a process has had at this time or later.
    pub(crate) fn held(&self, count: u32, since: Micros) -> usize {
        let holds = self.holds.values();
        let holds = holds.filter(|hold| hold.count == count && hold.last >= since);
        holds.map(|hold| hold.shard).collect::<BTreeSet<_>>().len()
    }

    /// Records what a process reports. `count` is its number of shards.
    pub(crate) fn report(&mut self, process: usize, count: u32, event: Event) {
        match event {
            Event::Held { shard, first, last } => {
                let hold = Hold {
                    count,
                    shard,
                    first,
                    last,
                };
                if let Some((last, _)) = self.last_hold(process)
                    && last.1 != first
                {
                    self.lost.insert(last);
                    self.led_again += 1;
                }
                self.holds.insert((process, first), hold);
            }
            Event::Synced(time) => {
                self.lists.insert(process, time);
            }
            Event::Unwatched { from, until } => {
                let spans = self.unwatched.entry(process).or_default();
                match spans.last_mut() {
                    Some((_, end)) if *end == from => *end = until,
                    _ => spans.push((from, until)),
                }
            }
            Event::Began {
                uid,
                revision,
                at,
                waited,
                ensured,
            } => {
                self.calls += 1;
                if ensured {
                    self.queued = self.queued.max(waited);
                    self.seen(process, uid, revision, at, waited);
                }
            }
            Event::Ended { uid, from, until } => {
                if let Some(until) = until {
                    let span = Span {
                        process,
                        from,
                        until,
                    };
                    self.called(uid, span);
                }
            }
            Event::Creating { uid, at } => {
                let account = self.accounts.entry(uid).or_default();
                account.creates.push(Create {
                    process,
                    at,
                    outcome: Outcome::Missing,
                });
            }
            Event::Created { uid, outcome } => self.created(process, uid, outcome),
            Event::Gated { changes, refused } => {
                self.gated.0 += changes;
                self.gated.1 += refused;
            }
            Event::Violation(text) => self.violations.push(format!("process {process}: {text}")),
            Event::Caches(_) => {}
        }
    }

    /// A call of a holder has begun.
    fn seen(&mut self, process: usize, uid: String, revision: u64, at: Micros, waited: Micros) {
        let account = self.accounts.entry(uid.clone()).or_default();
        account.process = account.process.max(process);
        account.seen = account.seen.max(revision);
        let newer = account.pending.split_off(&(revision + 1));
        for (revision, from) in std::mem::replace(&mut account.pending, newer) {
            self.pending.remove(&(from, revision));
            self.delays.push((at - from).max(0));
            let until = at - waited;
            if until - from > BOUND {
                let span = Span {
                    process,
                    from,
                    until,
                };
                self.slow
                    .push((format!("revision {revision} of {uid}"), span));
            }
        }
    }

    /// No two calls for one object overlap while `ensure` succeeds in both.
    fn called(&mut self, uid: String, span: Span) {
        let account = self.accounts.entry(uid.clone()).or_default();
        let mut calls = account.calls.iter();
        if let Some(other) = calls.find(|call| call.from < span.until && span.from < call.until) {
            self.violations.push(format!(
                "two calls for {uid} overlap: process {}: {other:?}, process {}: {span:?}",
                other.process, span.process
            ));
        }
        account.calls.push(span);
    }

    /// No child is created if the process of an earlier one has certainly got the response while it
    /// had the shard.
    fn created(&mut self, process: usize, uid: String, outcome: Outcome) {
        let account = self.accounts.entry(uid.clone()).or_default();
        let mut creates = account.creates.iter();
        let first = creates.find(|create| create.outcome == Outcome::Known);
        if let (Some(Create { process: first, .. }), Outcome::Known) = (first, outcome) {
            self.violations.push(format!(
                "process {process} has created a second child of {uid} after process {first}"
            ));
        }
        let is_missing =
            |create: &&mut Create| (create.process, create.outcome) == (process, Outcome::Missing);
        if let Some(create) = account.creates.iter_mut().rev().find(is_missing) {
            create.outcome = outcome;
        }
    }

    /// Returns all violations of the rules, without those of the final state.
    pub(crate) fn violations(&self) -> Vec<String> {
        let mut found = self.violations.clone();
        self.check_changes(&mut found);
        self.check_holds(&mut found);
        for (count, shard, from, until) in self.gaps() {
            if self.without_outages(from, until) > BOUND {
                let time = (until - from) / 1000;
                found.push(format!(
                    "shard {shard} of {count} has no holder for {time} ms from {from} on"
                ));
            }
        }
        found
    }

    /// A call begins soon after each change.
    fn check_changes(&self, found: &mut Vec<String>) {
        for (what, span) in &self.slow {
            let process = span.process;
            let spans = self.unwatched.get(&process).into_iter().flatten();
            let spans = spans.chain(&self.outages).copied();
            let time = without(spans, self.since(span), span.until);
            let list = self.lists.get(&process).copied().unwrap_or_default();
            if time > BOUND + list {
                found.push(format!(
                    "process {process} has seen {what} too late, {} ms after the change at {}",
                    time / 1000,
                    span.from
                ));
            }
        }
        for ((at, revision), uid) in &self.pending {
            found.push(format!(
                "no call has seen revision {revision} of {uid}, a change at {at}"
            ));
        }
    }

    /// Returns the terms that were lost without a fault of their process, on a busy machine.
    fn lost_without_fault(&self) -> impl Iterator<Item = &Hold> {
        let lost = self.lost.iter();
        let lost = lost.filter(|(process, _)| !self.faulty.contains(process));
        let holds = lost.filter_map(|id| self.holds.get(id));
        holds.filter(|hold| {
            let mut outages = self.outages.iter();
            !outages.any(|(from, until)| (*from..*until).contains(&hold.last))
        })
    }

    /// The number of terms that were lost on a busy machine.
    pub(crate) fn losses_without_fault(&self) -> usize {
        self.lost_without_fault().count()
    }

    /// Returns from when on a change is waiting. It is later than the change if a process has lost
    /// the shard without a fault.
    fn since(&self, span: &Span) -> Micros {
        let own = self.last_hold(span.process);
        let own = own.map(|(_, hold)| (hold.count, hold.shard));
        let lost = self.lost_without_fault();
        let lost = lost.filter(|hold| Some((hold.count, hold.shard)) == own);
        let ends = lost.map(|hold| hold.last);
        let ends = ends.filter(|end| (span.from..span.until).contains(end));
        ends.max().unwrap_or(span.from)
    }

    /// No two processes have a shard with the same objects at one time.
    fn check_holds(&self, found: &mut Vec<String>) {
        for (id @ (process, _), hold) in &self.holds {
            for ((other, _), older) in self.holds.range(..id) {
                if other == process {
                    continue;
                }
                let is_same = hold.count != older.count || hold.shard == older.shard;
                if is_same && hold.first < older.last && older.first < hold.last {
                    found.push(format!(
                        "process {other} and process {process} have the same objects: {older:?}, {hold:?}"
                    ));
                }
            }
        }
    }

    /// Returns the times without a certain holder: the number of shards, the shard, begin and end.
    fn gaps(&self) -> Vec<(u32, u32, Micros, Micros)> {
        let mut gaps = Vec::new();
        for &(count, begin, until) in &self.divisions {
            for shard in 0..count {
                let holds = self.holds.values();
                let is_of = |hold: &&Hold| (hold.count, hold.shard) == (count, shard);
                let mut holds: Vec<_> = holds.filter(is_of).collect();
                holds.sort_by_key(|hold| hold.first);
                let mut from = begin;
                for hold in holds {
                    if hold.first > from {
                        gaps.push((count, shard, from, hold.first.min(until)));
                    }
                    from = from.max(hold.last);
                }
                if until > from {
                    gaps.push((count, shard, from, until));
                }
            }
        }
        gaps
    }

    /// Returns the longest time of the first lists of a replica.
    pub(crate) fn longest_list(&self) -> Micros {
        self.lists.values().copied().max().unwrap_or_default()
    }

    /// Returns the longest time without a certain holder, outages excepted.
    pub(crate) fn longest_gap(&self) -> Micros {
        let gaps = self.gaps().into_iter();
        let times = gaps.map(|(_, _, from, until)| self.without_outages(from, until));
        times.max().unwrap_or_default()
    }

    /// Returns the time of all outages.
    pub(crate) fn outages(&self) -> Micros {
        self.outages.iter().map(|(from, until)| until - from).sum()
    }

    /// Returns the longest time without a watch, outages excepted.
    pub(crate) fn longest_unwatched(&self) -> Micros {
        let spans = self.unwatched.values().flatten();
        let times = spans.map(|(from, until)| self.without_outages(*from, *until));
        times.max().unwrap_or_default()
    }

    fn without_outages(&self, from: Micros, until: Micros) -> Micros {
        without(self.outages.iter().copied(), from, until)
    }

    /// Returns the number of creates for each outcome.
    pub(crate) fn outcomes(&self) -> BTreeMap<Outcome, usize> {
        let mut counts = BTreeMap::new();
        let creates = self.accounts.values().flat_map(|account| &account.creates);
        creates.for_each(|create| *counts.entry(create.outcome).or_default() += 1);
        counts
    }

    /// Each object has one child, and at most one more for each create with an unknown outcome.
    /// Returns the violations, and the objects with several children.
    pub(crate) fn check_children(
        &self,
        primaries: &[Listed],
        children: &[Listed],
    ) -> (Vec<String>, Vec<String>) {
        let mut by_owner: BTreeMap<&str, Vec<&Listed>> = BTreeMap::new();
        for child in children {
            by_owner.entry(&child.owner).or_default().push(child);
        }
        let (mut found, mut excused) = (Vec::new(), Vec::new());
        for Listed { uid, .. } in primaries {
            let creates = self.accounts.get(uid).map(|account| &*account.creates);
            let creates = creates.unwrap_or_default().iter();
            let creates = creates.filter(|create| create.outcome != Outcome::Refused);
            let creates: Vec<_> = creates.map(Create::to_string).collect();
            let children = by_owner.remove(&**uid).unwrap_or_default();
            let times: Vec<_> = children.iter().flat_map(|of| &of.created).collect();
            let line = format!(
                "{uid} has {} children of {times:?} after these creates: {creates:?}",
                children.len()
            );
            match children.len() {
                1 => {}
                // Each further create with a known outcome is a violation of its own.
                count if count == 0 || count > creates.len() => found.push(line),
                _ => excused.push(line),
            }
        }
        let strange = by_owner.into_keys();
        found.extend(strange.map(|uid| format!("{uid} has children and is no object")));
        (found, excused)
    }
}

/// Returns the time from `from` to `until` outside these spans.
fn without(
    spans: impl Iterator<Item = (Micros, Micros)>,
    mut from: Micros,
    until: Micros,
) -> Micros {
    let mut spans: Vec<_> = spans.collect();
    spans.sort_unstable();
    let mut time = 0;
    for (begin, end) in spans {
        time += (until.min(begin) - from).max(0);
        from = from.max(end);
    }
    time + (until - from).max(0)
}

impl fmt::Display for Create {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            process,
            at,
            outcome,
        } = self;
        let at = Timestamp::from_microsecond(*at).unwrap_or_default();
        write!(f, "process {process} at {at}: {outcome:?}")
    }
}

/// The caches of a process are the server's list for its shard.
pub(crate) fn check_caches(
    (count, by): (u32, ShardBy),
    primaries: &[Listed],
    children: &[Listed],
    caches: &Caches,
) -> Vec<String> {
    let shard = caches.shard.map(|shard| {
        let shard = Shard::new(shard, count).expect("a shard");
        match by {
            ShardBy::Namespace => shard.by_namespace(),
            ShardBy::Uid => shard,
        }
    });
    let expected = |objects: &[Listed]| -> Revisions {
        let objects = objects.iter();
        let own = objects.filter(|object| shard.as_ref().is_some_and(|of| object.is_in(of, by)));
        own.map(|object| (object.uid.clone(), object.revision))
            .collect()
    };
    let kinds = [
        ("objects", expected(primaries), &caches.primaries),
        ("children", expected(children), &caches.children),
    ];
    let mut found = Vec::new();
    for (kind, expected, cached) in kinds {
        let differs = |(uid, revision): &(&String, &u64)| cached.get(*uid) != Some(*revision);
        let missing = expected.iter().filter(differs).count();
        let strange = cached.keys().filter(|uid| !expected.contains_key(*uid));
        let strange = strange.count();
        if missing + strange > 0 {
            found.push(format!(
                "the cache of shard {:?} lacks {missing} {kind} and has {strange} of other shards",
                caches.shard
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Micros = 1_000_000;

    fn began(uid: &str, revision: u64, at: Micros) -> Event {
        Event::Began {
            uid: uid.to_owned(),
            revision,
            at,
            waited: 0,
            ensured: true,
        }
    }

    fn ended(uid: &str, from: Micros, until: Micros) -> Event {
        Event::Ended {
            uid: uid.to_owned(),
            from,
            until: Some(until),
        }
    }

    fn created(uid: &str, outcome: Outcome) -> [Event; 2] {
        let uid = uid.to_owned();
        [
            Event::Creating {
                uid: uid.clone(),
                at: 0,
            },
            Event::Created { uid, outcome },
        ]
    }

    fn held(shard: u32, first: Micros, last: Micros) -> Event {
        Event::Held { shard, first, last }
    }

    fn listed(uid: &str, owner: &str) -> Listed {
        Listed {
            uid: uid.to_owned(),
            revision: 7,
            namespace: "namespace".to_owned(),
            created: None,
            owner: owner.to_owned(),
        }
    }

    /// Process 1 has both shards in turn with process 2. Object "a" was changed at 1 s and 30 s.
    fn clean() -> History {
        let mut history = History::default();
        history.report(1, 2, held(0, SECOND, 20 * SECOND));
        history.report(2, 2, held(1, SECOND, 60 * SECOND));
        history.report(3, 2, held(0, 26 * SECOND, 60 * SECOND));
        history.division(2, 0, 60 * SECOND);
        history.change("a", 1, SECOND);
        history.report(1, 2, began("a", 1, 2 * SECOND));
        for event in created("a", Outcome::Known) {
            history.report(1, 2, event);
        }
        history.report(1, 2, ended("a", 2 * SECOND, 3 * SECOND));
        history.change("a", 5, 21 * SECOND);
        history.report(3, 2, began("a", 6, 27 * SECOND));
        history.report(3, 2, ended("a", 27 * SECOND, 28 * SECOND));
        history
    }

    /// The only violation contains this text.
    fn assert_found(found: &[String], text: &str) {
        assert!(
            matches!(found, [found] if found.contains(text)),
            "{found:?}"
        );
    }

    #[test]
    fn clean_history_has_no_violations() {
        let history = clean();
        assert_eq!(history.violations(), [""; 0]);
        let children = history.check_children(&[listed("a", "a")], &[listed("c", "a")]);
        assert_eq!(children, (Vec::new(), Vec::new()));
        assert_eq!(history.delays, [SECOND, 6 * SECOND]);
        assert_eq!(history.longest_gap(), 6 * SECOND);
    }

    #[test]
    fn overlapping_calls_are_found() {
        let mut history = clean();
        history.report(2, 2, ended("b", 2 * SECOND, 3 * SECOND));
        assert_eq!(history.violations(), [""; 0]);
        history.report(2, 2, ended("a", 27 * SECOND + 1, 27 * SECOND + 2));
        assert_found(&history.violations(), "two calls for a overlap");
    }

    #[test]
    fn second_child_is_found() {
        let mut history = clean();
        for event in created("a", Outcome::Known) {
            history.report(3, 2, event);
        }
        assert_found(
            &history.violations(),
            "process 3 has created a second child of a",
        );
    }

    #[test]
    fn only_unknown_creates_excuse_children() {
        let (primaries, children) = ([listed("a", "a")], ["c", "d"].map(|uid| listed(uid, "a")));
        let mut history = clean();
        let (found, _) = history.check_children(&primaries, &children);
        assert_found(&found, "a has 2 children");
        for event in created("a", Outcome::Refused) {
            history.report(1, 2, event);
        }
        let (found, _) = history.check_children(&primaries, &children);
        assert_found(&found, "a has 2 children");
        for outcome in [Outcome::Unknown, Outcome::Late, Outcome::Missing] {
            let mut history = clean();
            let [creating, ended] = created("a", outcome);
            history.report(3, 2, creating);
            if outcome != Outcome::Missing {
                history.report(3, 2, ended);
            }
            assert_eq!(history.violations(), [""; 0]);
            let (found, excused) = history.check_children(&primaries, &children);
            assert_eq!(found, [""; 0]);
            assert_found(&excused, &format!("{outcome:?}"));
        }
    }

    #[test]
    fn missing_and_strange_children_are_found() {
        let history = clean();
        let (found, _) = history.check_children(&[listed("a", "a")], &[]);
        assert_found(&found, "a has 0 children");
        let children = [listed("c", "a"), listed("d", "b")];
        let (found, _) = history.check_children(&[listed("a", "a")], &children);
        assert_found(&found, "b has children");
    }

    #[test]
    fn late_change_is_found() {
        let late = |waited: Micros, ensured: bool| {
            let mut history = clean();
            history.change("a", 10, 30 * SECOND);
            let mut event = began("a", 10, 30 * SECOND + BOUND + SECOND);
            if let Event::Began {
                waited: of,
                ensured: is,
                ..
            } = &mut event
            {
                (*of, *is) = (waited, ensured);
            }
            history.report(3, 2, event);
            history
        };
        let mut history = late(SECOND / 2, true);
        assert_found(&history.violations(), "has seen revision 10 of a too late");
        history.outage(29 * SECOND, 31 * SECOND);
        assert_eq!(history.violations(), [""; 0]);
        let mut history = late(0, true);
        history.report(3, 2, Event::Synced(SECOND - 1));
        assert_found(&history.violations(), "has seen revision 10 of a too late");
        history.report(3, 2, Event::Synced(SECOND));
        assert_eq!(history.violations(), [""; 0]);
        let mut history = late(0, true);
        history.report(1, 2, held(0, SECOND, 31 * SECOND));
        history.report(3, 2, held(0, 32 * SECOND, 60 * SECOND));
        history.lost(1);
        assert_eq!(history.violations(), [""; 0]);
        history.fault(1);
        assert_found(&history.violations(), "has seen revision 10 of a too late");
        assert_eq!(late(SECOND, true).violations(), [""; 0]);
        let history = late(SECOND, false);
        assert_found(&history.violations(), "no call has seen revision 10 of a");
        assert_eq!(history.oldest_pending(), Some(30 * SECOND));
    }

    #[test]
    fn time_without_a_watch_is_excepted_once() {
        let mut history = clean();
        history.change("a", 10, 30 * SECOND);
        history.report(3, 2, began("a", 10, 34 * SECOND + BOUND));
        let unwatched = |process, from, until| {
            let (from, until) = (from * SECOND, until * SECOND);
            (process, Event::Unwatched { from, until })
        };
        let spans = [
            unwatched(3, 29, 31),
            unwatched(3, 31, 33),
            unwatched(1, 33, 34),
            unwatched(3, 34, 35),
        ];
        for (process, event) in spans {
            assert_found(&history.violations(), "has seen revision 10 of a too late");
            history.report(process, 2, event);
        }
        assert_eq!(history.violations(), [""; 0]);
        assert_eq!(history.longest_unwatched(), 4 * SECOND);
        // An outage at the same time excuses nothing more.
        let mut history = clean();
        history.change("a", 10, 30 * SECOND);
        history.report(3, 2, began("a", 10, 33 * SECOND + BOUND));
        history.outage(31 * SECOND, 32 * SECOND);
        for (from, until) in [(30, 32), (32, 33)] {
            assert_found(&history.violations(), "has seen revision 10 of a too late");
            let (process, event) = unwatched(3, from, until);
            history.report(process, 2, event);
        }
        assert_eq!(history.violations(), [""; 0]);
    }

    #[test]
    fn old_revision_does_not_reconcile_change() {
        let mut history = clean();
        history.change("a", 10, 30 * SECOND);
        history.report(3, 2, began("a", 9, 31 * SECOND));
        assert_found(&history.violations(), "no call has seen revision 10 of a");
        history.report(3, 2, began("a", 10, 32 * SECOND));
        assert_eq!(history.violations(), [""; 0]);
    }

    #[test]
    fn two_holders_are_found() {
        let mut history = clean();
        history.report(4, 2, held(0, 19 * SECOND, 21 * SECOND));
        let text = "process 1 and process 4 have the same objects";
        assert_found(&history.violations(), text);
        let mut history = clean();
        history.report(4, 3, held(2, 59 * SECOND, 61 * SECOND));
        let found = history.violations();
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn shard_without_holder_is_found() {
        let mut history = clean();
        history.report(3, 2, held(0, 20 * SECOND + BOUND + 1, 60 * SECOND));
        assert_found(&history.violations(), "shard 0 of 2 has no holder");
        history.outage(22 * SECOND, 23 * SECOND);
        assert_eq!(history.violations(), [""; 0]);
        let mut history = clean();
        history.report(3, 2, held(0, 26 * SECOND, 50 * SECOND));
        assert_found(&history.violations(), "shard 0 of 2 has no holder");
        let mut history = clean();
        history.division(3, 60 * SECOND, 60 * SECOND + BOUND + 1);
        assert_eq!(history.violations().len(), 3);
    }

    #[test]
    fn wrong_caches_are_found() {
        let (primaries, children) = ([listed("a", "a")], [listed("c", "a")]);
        let by = ShardBy::Uid;
        let shards = (0..2).map(|index| Shard::new(index, 2).expect("a shard"));
        let own = shards.into_iter().position(|shard| shard.contains("a"));
        let own = own.map(|index| index as u32);
        let check = |caches: &Caches| check_caches((2, by), &primaries, &children, caches);
        let revisions = |uid: &str, revision| Revisions::from([(uid.to_owned(), revision)]);
        let right = Caches {
            shard: own,
            primaries: revisions("a", 7),
            children: revisions("c", 7),
        };
        assert_eq!(check(&right), [""; 0]);
        let mut wrong = right.clone();
        wrong.primaries = revisions("a", 6);
        assert_found(&check(&wrong), "lacks 1 objects and has 0");
        wrong = right.clone();
        wrong.children.clear();
        assert_found(&check(&wrong), "lacks 1 children and has 0");
        for shard in [None, own.map(|index| 1 - index)] {
            wrong = right.clone();
            wrong.shard = shard;
            assert_eq!(check(&wrong).len(), 2);
            (wrong.primaries, wrong.children) = Default::default();
            assert_eq!(check(&wrong), [""; 0]);
        }
    }
}

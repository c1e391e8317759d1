//! What a replica has seen of the Leases of all shards, and what it does about another division.
//! Without I/O, clocks and locks.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::leader_election::{Lease, Observation};
use k8s_informer::error::Error;

/// The Leases that the holders of a set of shards read each second, all together. Up to 273 shards,
/// each one reads all Leases twice in a lease duration of 15 s.
const LEASES_PER_SECOND: f64 = 10_000.0;

/// How often in a row a holder finds an earlier term of another division before it ends its own. It
/// is more often than a Lease that is written late, and never again, is found.
const SIGHTINGS: u32 = 4;

/// The Leases of a set of shards, also those of other numbers of shards and of other kinds of
/// division.
pub(super) struct Seen {
    identity: String,
    /// The shards of this division, by the names of their Leases.
    own: BTreeMap<String, u32>,
    leases: BTreeMap<String, SeenLease>,
    /// On the clock of the replica, like the observations.
    listed_at: Option<Duration>,
}

struct SeenLease {
    observation: Observation,
    source: Source,
}

/// How a Lease was seen.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    List,
    /// No list has it, because it has lost its label, but an attempt to take it has read it.
    Attempt,
}

/// The order of terms of different divisions. It is the same for all replicas, whatever their
/// clocks show, because it depends only on what is in the Leases.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::controller) struct TermOrder {
    /// In microseconds since the Unix epoch, on the clock of the holder.
    acquired: i64,
    /// Two terms can have begun at the same time.
    pub(in crate::controller) lease: String,
}

/// The state of the Leases when they were listed last.
#[derive(Clone, Debug, Default)]
pub(in crate::controller) struct View {
    /// The shards that can be taken.
    pub(super) free: Vec<u32>,
    /// The number of shards with a holder.
    pub(in crate::controller) held: usize,
    /// The number of all Leases.
    listed: usize,
    /// The latest term of another division.
    pub(in crate::controller) other: Option<TermOrder>,
    pub(in crate::controller) last_error: Option<Error>,
}

impl Seen {
    pub(super) fn new(identity: &str, own: BTreeMap<String, u32>) -> Self {
        Self {
            identity: identity.to_owned(),
            own,
            leases: BTreeMap::new(),
            listed_at: None,
        }
    }

    /// Adds a list of all Leases with the label.
    pub(super) fn list(&mut self, leases: BTreeMap<String, Lease>, now: Duration) {
        let mut before = std::mem::take(&mut self.leases);
        for (name, lease) in leases {
            // The age of a Lease counts on if it has not changed.
            let observation = match before.remove(&name) {
                Some(mut seen) => {
                    seen.observation.update(lease, now);
                    seen.observation
                }
                None => Observation { lease, since: now },
            };
            let seen = SeenLease {
                observation,
                source: Source::List,
            };
            self.leases.insert(name, seen);
        }
        // A listed Lease that is missing now was deleted, or has lost its label. The first attempt to
        // take it shows which. One without a label stays, so that its age counts on.
        before.retain(|_, lease| lease.source == Source::Attempt);
        self.leases.append(&mut before);
        self.listed_at = Some(now);
    }

    /// Returns what was seen of a Lease.
    pub(super) fn observation(&self, name: &str) -> Option<&Observation> {
        self.leases.get(name).map(|lease| &lease.observation)
    }

    /// Adds what an attempt has seen of a Lease of this division that it could not take. One that no
    /// list has can be taken when it has expired, like any other.
    pub(super) fn add(&mut self, name: String, observation: Observation) {
        let holder = observation.lease.record.holder.as_deref();
        if holder.is_none_or(|holder| holder == self.identity) {
            return;
        }
        match self.leases.get(&name) {
            // The next list has the version that was read, or a later one.
            Some(seen) if seen.source == Source::List => {}
            _ => {
                let seen = SeenLease {
                    observation,
                    source: Source::Attempt,
                };
                self.leases.insert(name, seen);
            }
        }
    }

    /// Returns the state of the Leases at the time of the last list, because later ones can be far
    /// apart.
    pub(super) fn view(&self) -> View {
        let mut view = View::default();
        let Some(listed_at) = self.listed_at else {
            return view;
        };
        view.listed = self.leases.len();
        let held = self
            .leases
            .iter()
            .filter(|(_, lease)| lease.is_held(listed_at));
        let others = held.filter(|(name, _)| !self.own.contains_key(*name));
        view.other = others.map(|(name, lease)| lease.term(name)).max();
        for (name, shard) in &self.own {
            let lease = self
                .leases
                .get(name)
                .filter(|lease| lease.is_held(listed_at));
            view.held += usize::from(lease.is_some());
            if lease.is_none_or(|lease| lease.holder() == Some(&*self.identity)) {
                view.free.push(*shard);
            }
        }
        view
    }
}

impl SeenLease {
    fn holder(&self) -> Option<&str> {
        self.observation.lease.record.holder.as_deref()
    }

    fn is_held(&self, now: Duration) -> bool {
        self.holder().is_some() && !self.observation.is_expired(now)
    }

    fn term(&self, name: &str) -> TermOrder {
        TermOrder::new(self.observation.lease.record.acquire_time, name)
    }
}

impl TermOrder {
    /// A term without a time was not begun by this crate. It counts as a later one than any other.
    pub(super) fn new(acquired: Option<i64>, lease: &str) -> Self {
        Self {
            acquired: acquired.unwrap_or(i64::MAX),
            lease: lease.to_owned(),
        }
    }
}

impl View {
    /// Returns how long a holder waits until it lists the Leases again. If there are many, it waits
    /// longer: each of up to `count` holders reads all of them.
    pub(super) fn period(&self, count: u32, lease_duration: Duration) -> Duration {
        let reads = f64::from(count) * self.listed as f64;
        let period = Duration::from_secs_f64(reads / LEASES_PER_SECOND);
        period.max(lease_duration / 2)
    }
}

/// Decides whether the term of a holder goes on beside a holder of another division.
///
/// A term begins only after a list without a holder of another division. So of two such terms, the
/// earlier one had lapsed when the later one began, and was continued later, for example because
/// the machine and its clocks were paused. The earlier one ends. If a clock is wrong, the wrong one
/// ends, but never both.
pub(super) struct Rivalry {
    own: TermOrder,
    /// How often in a row an earlier term was found.
    sightings: u32,
}

impl Rivalry {
    pub(super) fn new(own: TermOrder) -> Self {
        Self { own, sightings: 0 }
    }

    /// Returns the term of another division because of which the own one must end.
    pub(super) fn yields_to<'a>(&mut self, view: &'a View) -> Option<&'a TermOrder> {
        let Some(other) = &view.other else {
            self.sightings = 0;
            return None;
        };
        // The holder of an earlier term ends it when it lists the Leases. If it can't, or does not
        // know this rule, this term ends instead: later is better than never.
        self.sightings += 1;
        (*other > self.own || self.sightings >= SIGHTINGS).then_some(other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::leader_election::Record;

    const LEASE: Duration = Duration::from_secs(15);

    fn lease(version: u32, holder: &str, acquired: i64) -> Lease {
        let record = Record {
            holder: Some(holder)
                .filter(|holder| !holder.is_empty())
                .map(str::to_owned),
            lease_duration_seconds: 15,
            acquire_time: Some(acquired),
            ..Record::default()
        };
        Lease {
            resource_version: version.to_string(),
            record,
            ..Lease::default()
        }
    }

    fn seen() -> Seen {
        let own = [("own-0", 0), ("own-1", 1)].map(|(name, shard)| (name.to_owned(), shard));
        Seen::new("a", own.into())
    }

    fn list<const N: usize>(seen: &mut Seen, leases: [(&str, Lease); N], now: Duration) -> View {
        let leases = leases.map(|(name, lease)| (name.to_owned(), lease));
        seen.list(leases.into(), now);
        seen.view()
    }

    /// What an attempt has read for the first time now.
    fn add(seen: &mut Seen, name: &str, lease: Lease, now: Duration) {
        seen.add(name.to_owned(), Observation { lease, since: now });
    }

    #[test]
    fn lease_without_a_label_expires_like_any_other() {
        let (mut seen, now) = (seen(), LEASE);
        assert_eq!(list(&mut seen, [], now).free, [0, 1]);
        let other = lease(7, "b", 1);
        add(&mut seen, "own-0", other.clone(), now);
        // Lists do not have it, and its age counts on.
        let almost = now + LEASE - Duration::from_millis(1);
        let view = list(&mut seen, [], almost);
        assert_eq!((view.free, view.held), (vec![1], 1));
        let view = list(&mut seen, [], now + LEASE);
        assert_eq!((view.free, view.held), (vec![0, 1], 0));
        // It was renewed, so its age begins again.
        let renewed = lease(8, "b", 1);
        add(&mut seen, "own-0", renewed.clone(), now + LEASE);
        assert_eq!(list(&mut seen, [], now + LEASE).free, [1]);
        let view = list(&mut seen, [], now + 2 * LEASE);
        assert_eq!(view.free, [0, 1]);
        // The next attempt gets the age.
        let observation = seen.observation("own-0").unwrap();
        assert!(observation.is_same(&renewed) && observation.is_expired(now + 2 * LEASE));
        // It has its label again, in the version that was read or in a later one.
        let view = list(&mut seen, [("own-0", renewed)], now + 2 * LEASE);
        assert_eq!(view.free, [0, 1]);
        let view = list(&mut seen, [("own-0", lease(9, "b", 1))], now + 2 * LEASE);
        assert_eq!(view.free, [1]);
    }

    #[test]
    fn listed_lease_that_is_missing_later_is_free() {
        let (mut seen, now) = (seen(), LEASE);
        let view = list(&mut seen, [("own-0", lease(7, "b", 1))], now);
        assert_eq!(view.free, [1]);
        // An attempt has read a later version before the Lease was deleted.
        add(&mut seen, "own-0", lease(8, "b", 1), now);
        assert_eq!(list(&mut seen, [], now).free, [0, 1]);
    }

    #[test]
    fn own_and_free_leases_can_be_taken() {
        let (mut seen, now) = (seen(), LEASE);
        list(&mut seen, [("own-1", lease(7, "a", 1))], now);
        // Attempts that have failed for another reason.
        add(&mut seen, "own-0", lease(8, "", 1), now);
        add(&mut seen, "own-1", lease(9, "a", 1), now);
        let view = seen.view();
        assert_eq!((view.free, view.held), (vec![0, 1], 1));
    }

    #[test]
    fn view_is_that_of_the_last_list_however_old_it_is() {
        let (mut seen, now) = (seen(), LEASE);
        assert_eq!((seen.view().free.len(), seen.view().held), (0, 0));
        list(
            &mut seen,
            [("own-0", lease(7, "b", 1)), ("other", lease(7, "c", 1))],
            now,
        );
        // A list after more than a lease duration: what was not renewed has expired.
        let view = list(
            &mut seen,
            [("own-0", lease(8, "b", 1)), ("other", lease(7, "c", 1))],
            now + 10 * LEASE,
        );
        assert_eq!((view.held, view.other), (1, None));
    }

    #[test]
    fn later_term_of_two_divisions_goes_on() {
        let view = |acquired: Option<i64>| View {
            other: acquired.map(|acquired| TermOrder::new(Some(acquired), "m")),
            ..View::default()
        };
        let rivalry = |acquired, lease| Rivalry::new(TermOrder::new(Some(acquired), lease));
        for (acquired, lease, yields) in [
            (1, "z", true),
            (2, "a", true),
            (2, "z", false),
            (3, "a", false),
        ] {
            let mut rivalry = rivalry(acquired, lease);
            let found = rivalry.yields_to(&view(Some(2))).is_some();
            assert_eq!(found, yields, "{acquired} {lease}");
        }
        // A Lease whose term was not begun by the rules.
        let mut other = view(Some(0));
        other.other = Some(TermOrder::new(None, "m"));
        assert!(rivalry(2, "z").yields_to(&other).is_some());
        // Only sightings in a row count.
        let mut later = rivalry(3, "a");
        for acquired in [Some(2), Some(2), Some(2), None, Some(1), Some(2), Some(1)] {
            assert!(later.yields_to(&view(acquired)).is_none());
        }
        assert!(later.yields_to(&view(Some(2))).is_some());
    }

    #[test]
    fn holders_read_a_limited_number_of_leases_each_second() {
        for (count, seconds) in [(2, 7.5), (50, 7.5), (273, 7.5), (500, 25.0), (1000, 100.0)] {
            let view = View {
                listed: count as usize,
                ..View::default()
            };
            let period = view.period(count, LEASE).as_secs_f64();
            assert_eq!(period, seconds, "{count}");
            let reads = f64::from(count) * f64::from(count) / period;
            assert!(reads <= LEASES_PER_SECOND, "{count}: {reads}");
        }
    }
}

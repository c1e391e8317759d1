//! The watermark of each queue against what it means: the last version that was told before everything that
//! has not been processed. What that is, is seen from outside: by what the queue lists, and what pops hand
//! out.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use k8s_informer::{Deleted, Delta, Deltas, Indexer, ProcessError, Requeue};

use super::watermark::{Fact, Kind, each_kind, fact};

const KEYS: [&str; 4] = ["a", "b", "c", "d"];

/// The same numbers for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % below
    }

    fn key(&mut self) -> &'static str {
        KEYS[self.below(KEYS.len())]
    }
}

/// When what has not been processed was told first.
enum Pending {
    /// Of each key.
    Keys(BTreeMap<String, usize>),
    /// Of each item.
    Items(VecDeque<usize>),
}

struct Flight {
    key: Option<String>,
    since: Vec<usize>,
    is_deletion: bool,
    /// When a deletion came that is of no interest unless the one in flight fails.
    missed: Option<usize>,
}

struct Harness<'a> {
    kind: &'a Kind,
    store: &'a Indexer<Fact>,
    random: Random,
    next_version: usize,
    now: usize,
    /// When each version was told.
    told: Vec<(usize, String)>,
    pending: Pending,
    flight: Option<Flight>,
    /// A key has two places in the order of a `DeltaFifo`: one was put back into the initial list that had
    /// changed meanwhile. The later place then holds the version back until it has been passed.
    is_behind: bool,
}

impl Harness<'_> {
    /// What is new in the queue has come now.
    fn look(&mut self) {
        match (self.kind, &mut self.pending) {
            (Kind::Delta(queue), Pending::Keys(pending)) => {
                for key in queue.list_keys() {
                    pending.entry(key.to_string()).or_insert(self.now);
                }
            }
            (Kind::Real(queue), Pending::Items(pending)) => pending.resize(queue.len(), self.now),
            _ => unreachable!(),
        }
    }

    fn check(&self) {
        let oldest = match &self.pending {
            Pending::Keys(pending) => pending.values().min(),
            Pending::Items(pending) => pending.iter().min(),
        };
        let flight = self.flight.iter().flat_map(|flight| &flight.since).min();
        let oldest = oldest
            .into_iter()
            .chain(flight)
            .min()
            .copied()
            .unwrap_or(usize::MAX);
        let mut before = self
            .told
            .iter()
            .rev()
            .filter(|(at, _)| *at < oldest)
            .map(|(_, version)| &**version);
        let current = self.kind.queue().processed().unwrap().current();
        if self.is_behind {
            assert!(current.is_empty() || before.any(|version| version == current));
        } else {
            assert_eq!(current, before.next().unwrap_or_default());
        }
    }

    fn tell(&mut self, version: String) {
        if !version.is_empty() {
            self.told.push((self.now, version));
        }
    }

    /// Mostly the next one.
    fn version(&mut self) -> String {
        self.next_version += 1;
        match self.random.below(12) {
            0 => String::new(),
            1 => "not a number".to_owned(),
            2 => "123456789012345678901234567890".to_owned(),
            _ => self.next_version.to_string(),
        }
    }

    fn write(&mut self) {
        self.now += 1;
        let (queue, key, version) = (self.kind.queue(), self.random.key(), self.version());
        let mut deleted = None;
        match self.random.below(10) {
            0 | 1 => {
                queue.add(fact(key, &version)).unwrap();
                let last = self.told.last().map_or("", |(_, version)| version);
                if !matches!(last, "" | "0") {
                    self.tell(version);
                }
            }
            2 | 3 => {
                queue.update(fact(key, &version)).unwrap();
                self.tell(version);
            }
            4 | 5 => {
                queue.delete(Deleted::Final(fact(key, &version))).unwrap();
                self.tell(version);
                deleted = Some(key);
            }
            6 => {
                let last_known = Some(fact(key, &version));
                queue
                    .delete(Deleted::FinalStateUnknown {
                        key: key.into(),
                        last_known,
                    })
                    .unwrap();
                deleted = Some(key);
            }
            7 => {
                let version = match self.random.below(4) {
                    // Without one, or as of an etcd that was restored.
                    0 => ["", "0", "1"][self.random.below(3)].to_owned(),
                    _ => version,
                };
                let listed: Vec<_> = KEYS
                    .into_iter()
                    .filter(|_| self.random.below(2) == 0)
                    .collect();
                let leaves = self
                    .flight
                    .as_ref()
                    .and_then(|flight| flight.key.as_deref());
                let leaves = leaves.filter(|key| self.store.get_by_key(key).is_some());
                deleted = KEYS
                    .into_iter()
                    .find(|key| leaves == Some(*key) && !listed.contains(key));
                let objects = listed.iter().map(|key| fact(key, "3")).collect();
                queue.replace(objects, &version).unwrap();
                self.told.push((self.now, version));
            }
            8 => queue.resync().unwrap(),
            _ => {
                queue.bookmark(&version).unwrap();
                self.tell(version);
            }
        }
        if let (Some(flight), Kind::Delta(queue)) = (&mut self.flight, self.kind)
            && flight.is_deletion
            && flight.key.as_deref() == deleted
            && deleted.is_some_and(|key| queue.get_by_key(key).is_none())
        {
            flight.missed.get_or_insert(self.now);
        }
        self.look();
        self.check();
    }

    fn process(&mut self, popped: &[Deltas<Fact>]) -> Result<(), ProcessError> {
        let newest = popped[0].newest();
        let key = popped[0].key().map(ToString::to_string);
        let since = match &mut self.pending {
            Pending::Keys(pending) => pending.remove(key.as_ref().unwrap()).into_iter().collect(),
            Pending::Items(pending) => pending.drain(..popped.len()).collect(),
        };
        let is_deletion = matches!(newest, Some(Delta::Deleted(_)));
        self.flight = Some(Flight {
            key,
            since,
            is_deletion,
            missed: None,
        });
        self.check();
        let (before, after) = (self.random.below(3), self.random.below(3));
        (0..before).for_each(|_| self.write());
        if self.random.below(3) > 0 {
            popped
                .iter()
                .filter_map(Deltas::newest)
                .for_each(|delta| match delta {
                    Delta::Deleted(gone) => self.store.delete(gone).unwrap(),
                    delta => drop(
                        delta
                            .object()
                            .map(|object| self.store.add(Arc::clone(object))),
                    ),
                });
        }
        (0..after).for_each(|_| self.write());
        match self.random.below(4) {
            0 => Err(Requeue::new().into()),
            1 => Err("not today".into()),
            _ => Ok(()),
        }
    }

    /// Does nothing with a queue that has nothing.
    fn pop(&mut self) {
        let (waits, kind) = match self.kind {
            Kind::Delta(queue) => (!queue.is_empty(), self.kind),
            Kind::Real(queue) => (!queue.is_empty(), self.kind),
        };
        if !waits {
            return;
        }
        let batch = self.random.below(2) == 0;
        let again = {
            let state = RefCell::new((&mut *self, false));
            let process = |popped: &[Deltas<Fact>]| {
                let (this, again) = &mut *state.borrow_mut();
                let result = this.process(popped);
                *again = result.as_ref().is_err_and(|error| error.is::<Requeue>());
                result
            };
            let mut one = |deltas: &Deltas<Fact>, _| process(std::slice::from_ref(deltas));
            // How it ends is known.
            if batch {
                drop(
                    kind.queue()
                        .pop_batch(&mut |several, _| process(several), &mut one),
                );
            } else {
                drop(kind.queue().pop(&mut one));
            }
            state.into_inner().1
        };
        let Some(flight) = self.flight.take() else {
            panic!("nothing was processed")
        };
        if again {
            match &mut self.pending {
                Pending::Keys(pending) => {
                    let since = flight.since[0];
                    let changed = flight
                        .key
                        .as_deref()
                        .is_some_and(|key| pending.contains_key(key));
                    self.is_behind |= changed && !self.kind.queue().has_synced();
                    pending.extend(flight.key.clone().map(|key| (key, since)));
                }
                Pending::Items(pending) => {
                    flight
                        .since
                        .into_iter()
                        .rev()
                        .for_each(|since| pending.push_front(since));
                }
            }
        }
        if let (Some(missed), Some(key), Kind::Delta(queue), Pending::Keys(pending)) =
            (flight.missed, flight.key, self.kind, &mut self.pending)
            && let Some(Delta::Deleted(_)) =
                queue.get_by_key(&key).as_deref().and_then(<[_]>::first)
        {
            // Nothing else begins with a deletion: of what does not wait, they are missed.
            pending
                .entry(key)
                .and_modify(|since| *since = missed.min(*since))
                .or_insert(missed);
        }
        self.look();
        self.check();
    }
}

#[test]
fn the_watermark_is_the_last_version_before_everything_that_has_not_been_processed() {
    let mut exact = 0;
    for seed in 1..=60_u64 {
        for (kind, store) in &each_kind() {
            let mut harness = Harness {
                kind,
                store,
                random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
                next_version: 10,
                now: 0,
                told: Vec::new(),
                pending: match kind {
                    Kind::Delta(_) => Pending::Keys(BTreeMap::new()),
                    Kind::Real(_) => Pending::Items(VecDeque::new()),
                },
                flight: None,
                is_behind: false,
            };
            for _ in 0..150 {
                if harness.random.below(5) < 2 {
                    harness.write()
                } else {
                    harness.pop()
                }
            }
            exact += usize::from(!harness.is_behind);
        }
    }
    assert!(exact > 210, "of 240 only {exact} were compared to the end");
}

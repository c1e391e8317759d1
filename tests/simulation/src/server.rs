//! The servers: one history of versions, from which several API servers answer.

use std::collections::BTreeMap;

use crate::plan::Rng;

/// What is wrong with an object. The times are those from which it no longer fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    None,
    Unreadable,
    Transform(u64),
    /// The cache takes the object, unindexed.
    Index(u64),
}

impl Flaw {
    /// Whether it keeps the object from the cache, at least for a time.
    pub fn hides(self) -> bool {
        matches!(self, Self::Unreadable | Self::Transform(_))
    }
}

/// One state of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    /// The number of the write that made it, which its JSON contains. Unique in the run.
    pub write: u64,
    pub key: usize,
    pub uid: u64,
    pub version: u64,
    pub flaw: Flaw,
}

impl State {
    /// Whether the cache can take this state now.
    pub fn is_acceptable(&self, now: u64) -> bool {
        match self.flaw {
            Flaw::None | Flaw::Index(_) => true,
            Flaw::Unreadable => false,
            Flaw::Transform(until) => now >= until,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Change {
    Added(State),
    Modified(State),
    /// The last state.
    Deleted(State),
    /// A write to another resource.
    Other,
}

impl Change {
    pub fn state(&self) -> Option<&State> {
        match self {
            Self::Added(state) | Self::Modified(state) | Self::Deleted(state) => Some(state),
            Self::Other => None,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub version: u64,
    pub at: u64,
    pub change: Change,
}

/// What is known about a write, also after a restore has undone it.
pub struct Written {
    pub state: State,
    /// Whether some copy of it could not be read or transformed, so that observers may miss it.
    pub is_hidden: bool,
}

#[derive(Default)]
pub struct Server {
    /// The history since the beginning. A restore cuts its end off.
    pub timeline: Vec<Entry>,
    pub version: u64,
    /// Watches from older versions fail.
    pub compacted: u64,
    /// The number of restores.
    pub epoch: u32,
    /// Changes when all connections break.
    pub generation: u32,
    pub writes: Vec<Written>,
    /// The number of writes before each restore.
    pub restores: Vec<u64>,
    /// Whether the object with this UID has not existed at some time after its creation.
    pub was_absent: Vec<bool>,
    current: BTreeMap<usize, State>,
}

impl Server {
    pub fn new() -> Self {
        Self {
            version: 100,
            compacted: 100,
            ..Self::default()
        }
    }

    pub fn current(&self) -> &BTreeMap<usize, State> {
        &self.current
    }

    /// Returns the objects after the first entries of the history.
    pub fn state_at(&self, entries: usize) -> BTreeMap<usize, State> {
        let mut objects = BTreeMap::new();
        for entry in &self.timeline[..entries] {
            apply(&mut objects, &entry.change);
        }
        objects
    }

    /// Returns the version after the first entries of the history.
    pub fn version_at(&self, entries: usize) -> u64 {
        match entries {
            all if all == self.timeline.len() => self.version,
            0 => 100,
            some => self.timeline[some - 1].version,
        }
    }

    /// Returns the number of entries that an API server has that lags behind.
    pub fn visible(&self, now: u64, lag: u64) -> usize {
        self.timeline
            .partition_point(|entry| entry.at.saturating_add(lag) <= now)
    }

    fn push(&mut self, at: u64, change: Change) {
        self.version += 1;
        apply(&mut self.current, &change);
        self.timeline.push(Entry {
            version: self.version,
            at,
            change,
        });
    }

    /// Writes an object.
    pub fn put(&mut self, at: u64, key: usize, flaw: Flaw) {
        let old = self.current.get(&key);
        let uid = match old {
            Some(old) => old.uid,
            None => {
                self.was_absent.push(false);
                self.was_absent.len() as u64 - 1
            }
        };
        let state = State {
            write: self.writes.len() as u64,
            key,
            uid,
            version: self.version + 1,
            flaw,
        };
        self.writes.push(Written {
            state: state.clone(),
            is_hidden: flaw.hides(),
        });
        let change = match old {
            Some(_) => Change::Modified(state),
            None => Change::Added(state),
        };
        self.push(at, change);
    }

    pub fn delete(&mut self, at: u64, key: usize) {
        if let Some(old) = self.current.get(&key).cloned() {
            self.was_absent[old.uid as usize] = true;
            self.push(at, Change::Deleted(old));
        }
    }

    pub fn write_elsewhere(&mut self, at: u64) {
        self.push(at, Change::Other);
    }

    pub fn compact(&mut self, rng: &mut Rng) {
        let entries = self.timeline.len();
        let keep = rng.below(entries.min(12) + 1);
        self.compacted = self.compacted.max(self.version_at(entries - keep));
    }

    /// Restores an earlier state. With `ahead`, versions continue far above all earlier ones, as
    /// `etcdutl snapshot restore --bump-revision --mark-compacted` does.
    pub fn restore(&mut self, rng: &mut Rng, ahead: bool) {
        let entries = self.timeline.len();
        let undone = 1 + rng.below(entries.min(12));
        let kept = entries.saturating_sub(undone);
        let version = self.version_at(kept);
        self.timeline.truncate(kept);
        let restored = self.state_at(kept);
        for state in self.current.values() {
            if restored
                .get(&state.key)
                .is_none_or(|it| it.uid != state.uid)
            {
                self.was_absent[state.uid as usize] = true;
            }
        }
        self.restores.push(self.writes.len() as u64);
        self.current = restored;
        self.epoch += 1;
        self.generation += 1;
        if ahead {
            self.version += 1000;
            self.compacted = self.version;
        } else {
            self.version = version;
            self.compacted = self.compacted.min(version);
        }
    }

    /// Whether a restore happened after this write.
    pub fn was_restored_since(&self, write: u64) -> bool {
        self.restores.last().is_some_and(|writes| *writes > write)
    }

    /// Returns the position of the entry that made this write, in the present history.
    pub fn position(&self, write: u64) -> Option<usize> {
        self.timeline.iter().position(|entry| {
            !matches!(entry.change, Change::Deleted(_))
                && entry
                    .change
                    .state()
                    .is_some_and(|state| state.write == write)
        })
    }
}

fn apply(objects: &mut BTreeMap<usize, State>, change: &Change) {
    match change {
        Change::Added(state) | Change::Modified(state) => {
            objects.insert(state.key, state.clone());
        }
        Change::Deleted(state) => {
            objects.remove(&state.key);
        }
        Change::Other => {}
    }
}

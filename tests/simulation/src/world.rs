//! The world of a run: the servers, what happens in them, and the faults.

use crate::observer::SharedView;
use crate::plan::{Fault, Plan, Rng};
use crate::run::Wait;
use crate::server::{Flaw, Server};
use crate::thing::{KEYS, Spoiled, Unreadable};

const SECOND: u64 = 1_000_000;

/// How long a wait until the cache is current may last if there are no faults: a short watch ends
/// after three seconds, and the one that began before it as well.
pub const CURRENT_WITHIN: u64 = 10 * SECOND;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Active,
    /// There are no faults any more.
    Settling,
    /// The cache was right. This many more waits follow, faster than they end.
    Waits(u32),
    /// The cache was right. This many more writes follow.
    Epilogue(u32),
    Done,
}

pub struct World {
    pub rng: Rng,
    /// For user code that panics, which must change nothing else: so `rng` is not for it.
    pub user_rng: Rng,
    pub plan: Plan,
    pub server: Server,
    pub phase: Phase,
    /// The time at which the phase began.
    pub phase_since: u64,
    pub next_tick: u64,
    pub ticks_left: usize,
    pub steps: u64,
    pub failure: Option<String>,
    pub digest: std::hash::DefaultHasher,
    pub faults: Vec<u32>,
    /// The requested lists and watches.
    pub requests: (u64, u64),
    pub connections: u64,
    /// The number of lists that the informer has received to their end.
    pub lists_delivered: u64,
    pub views: Vec<SharedView>,
    /// Whether an object without a readable name was sent.
    pub has_nameless: bool,
    /// The number of callbacks of handlers that are running.
    pub in_callback: u32,
    /// After a restore: the version of the cache or of the reflector, if it has seen states of the
    /// abandoned history.
    pub abandoned: Option<u64>,
    /// Whether the informer waits in a read that another thread can interrupt.
    pub can_wait_current: bool,
    /// The waits of other threads.
    pub waits: Vec<Wait>,
}

/// What happens to the informer itself.
pub enum Action {
    None,
    Add,
    Remove,
    Wait,
    WaitCurrent,
    EndWaits,
}

impl World {
    pub fn new(mut rng: Rng, plan: Plan) -> Self {
        let mut server = Server::new();
        for key in 0..rng.below(plan.keys + 1) {
            server.put(0, key, Flaw::None);
        }
        Self {
            user_rng: rng.clone(),
            rng,
            ticks_left: plan.ticks,
            plan,
            server,
            phase: Phase::Active,
            phase_since: 0,
            next_tick: 10_000,
            steps: 0,
            failure: None,
            digest: std::hash::DefaultHasher::new(),
            faults: vec![0; Fault::ALL.len()],
            requests: (0, 0),
            connections: 0,
            lists_delivered: 0,
            views: Vec::new(),
            has_nameless: false,
            in_callback: 0,
            abandoned: None,
            can_wait_current: false,
            waits: Vec::new(),
        }
    }

    pub fn has_faults(&self) -> bool {
        self.phase == Phase::Active
    }

    pub fn count(&mut self, fault: Fault) {
        self.faults[fault as usize] += 1;
    }

    fn fault(&mut self, fault: Fault, permille: u64, factor: u64) -> bool {
        let occurs = self.has_faults() && self.rng.permille(permille * factor / 1000);
        if occurs {
            self.count(fault);
        }
        occurs
    }

    pub fn connection_fault(&mut self, fault: Fault, permille: u64) -> bool {
        self.fault(fault, permille, self.plan.connection_faults)
    }

    pub fn object_fault(&mut self, fault: Fault, permille: u64) -> bool {
        self.fault(fault, permille, self.plan.object_faults)
    }

    pub fn handler_fault(&mut self, fault: Fault, permille: u64) -> bool {
        self.fault(fault, permille, self.plan.handler_faults)
    }

    pub fn user_fault(&mut self, fault: Fault, permille: u64) -> bool {
        let permille = permille * self.plan.handler_faults / 1000;
        let occurs = self.has_faults() && self.user_rng.permille(permille);
        if occurs {
            self.count(fault);
        }
        occurs
    }

    /// Decides how a copy of this write is spoiled, and notes that observers may miss it.
    pub fn spoil(&mut self, write: u64, now: u64) -> Spoiled {
        let was_flawed = self.was_flawed(self.server.writes[write as usize].state.key);
        let spoiled = match () {
            () if self.object_fault(Fault::UnreadableOnce, 10) && !was_flawed => Spoiled::Value,
            () if self.object_fault(Fault::NoName, 5) => {
                self.has_nameless = true;
                Spoiled::Name
            }
            () => Spoiled::No,
        };
        let is_acceptable = self.server.writes[write as usize].state.is_acceptable(now);
        if spoiled != Spoiled::No || !is_acceptable {
            self.hide(write);
        }
        spoiled
    }

    pub fn hide(&mut self, write: u64) {
        self.server.writes[write as usize].is_hidden = true;
    }

    /// Whether the object was missing before. Then its relists may be used up, and a state that can
    /// be read later may be missing until the next event.
    fn was_flawed(&self, key: usize) -> bool {
        let mut states = self.server.writes.iter().map(|write| &write.state);
        states.any(|state| state.key == key && state.flaw.hides())
    }

    /// Returns the flaw of the next state.
    fn flaw(&mut self, now: u64) -> Flaw {
        let until = now + self.rng.between(SECOND / 2, 8 * SECOND);
        match () {
            () if self.object_fault(Fault::Unreadable, 15) => {
                match Unreadable::of(self.server.writes.len() as u64) {
                    Unreadable::WrongType => {}
                    Unreadable::AccessorPanics => self.count(Fault::AccessorPanics),
                    Unreadable::TooLarge => self.count(Fault::LargeObject),
                }
                Flaw::Unreadable
            }
            () if self.object_fault(Fault::TransformRejects, 15) => Flaw::Transform(until),
            () if self.object_fault(Fault::TransformRejectsForever, 10) => {
                Flaw::Transform(u64::MAX)
            }
            () if self.object_fault(Fault::IndexFails, 15) => Flaw::Index(until),
            () if self.object_fault(Fault::IndexFailsForever, 10) => Flaw::Index(u64::MAX),
            () => Flaw::None,
        }
    }

    fn write(&mut self, now: u64) -> String {
        let key = self.rng.below(self.plan.keys);
        let exists = self.server.current().contains_key(&key);
        if exists && self.rng.permille(300) {
            self.server.delete(now, key);
            self.count(Fault::Delete);
            if self.rng.permille(800) {
                return format!("deletes {}", KEYS[key]);
            }
            self.count(Fault::Recreation);
        }
        let mut flaw = self.flaw(now);
        if let Flaw::Transform(until) = flaw
            && until < u64::MAX
            && self.was_flawed(key)
        {
            flaw = Flaw::None;
        }
        self.server.put(now, key, flaw);
        let write = self.server.writes.len() - 1;
        format!("writes {} {flaw:?} #{write}", KEYS[key])
    }

    /// The time until the next event of the world.
    fn pause(&mut self) -> u64 {
        let most = match self.rng.below(20) {
            0..10 => 50_000,
            10..15 => 2 * SECOND,
            15..19 => 60 * SECOND,
            _ => 900 * SECOND,
        };
        self.rng.between(1, most)
    }

    /// Returns what happens next: to the world, and to the informer. `versions` are those
    /// of the cache and of the reflector.
    pub fn tick(&mut self, now: u64, versions: &[u64], in_read: bool) -> (String, Action) {
        if let Some(old) = self.abandoned
            && self.server.compacted <= old
            && self.server.version + 2 >= old
        {
            // The cache has states of a history that does not exist any more. No client can notice
            // it if the new history reaches the same versions before.
            self.next_tick = now + 30 * SECOND;
            return ("waits for a list".to_owned(), Action::None);
        }
        self.ticks_left -= 1;
        self.next_tick = now + self.pause();
        let factor = self.plan.server_faults;
        let draw = self.rng.below(1000) as u64;
        match draw {
            0..12 if factor > 0 && self.can_restore() => {
                let ahead = self.rng.permille(400);
                let fault = if ahead {
                    Fault::RestoreAhead
                } else {
                    Fault::Restore
                };
                self.count(fault);
                self.server.restore(&mut self.rng, ahead);
                let kept = self
                    .server
                    .timeline
                    .last()
                    .map_or(100, |entry| entry.version);
                self.abandoned = versions.iter().copied().find(|version| *version > kept);
                let version = self.server.version;
                (
                    format!("restores version {version} (ahead: {ahead})"),
                    Action::None,
                )
            }
            12..35 if factor > 0 => {
                self.count(Fault::Restart);
                self.server.generation += 1;
                ("restarts".to_owned(), Action::None)
            }
            35..75 if factor > 0 => {
                self.count(Fault::Compaction);
                self.server.compact(&mut self.rng);
                (
                    format!("compacts to {}", self.server.compacted),
                    Action::None,
                )
            }
            75..130 => {
                self.server.write_elsewhere(now);
                ("writes elsewhere".to_owned(), Action::None)
            }
            130..160 => ("adds a handler".to_owned(), Action::Add),
            160..175 => ("removes a handler".to_owned(), Action::Remove),
            175..215 => ("waits".to_owned(), Action::Wait),
            215..225 if in_read && self.can_wait_current && !self.plan.has_namespaces => {
                ("waits until current".to_owned(), Action::WaitCurrent)
            }
            _ => (self.write(now), Action::None),
        }
    }

    /// Whether a client can notice a restore. It cannot if it has received deletions whose version it
    /// does not know, and its version is unknown while a callback runs.
    fn can_restore(&self) -> bool {
        let has_one_version = !self.plan.has_namespaces;
        let is_known = self.in_callback == 0 && self.abandoned.is_none();
        is_known && has_one_version && !self.plan.old_version_of_deletion
    }

    /// The next of the waits that follow one another. Each time, the server has a newer version.
    pub fn next_wait(&mut self, now: u64) -> (String, Action) {
        match self.phase {
            Phase::Waits(left @ 1..) => {
                self.phase = Phase::Waits(left - 1);
                self.next_tick = now
                    + match left {
                        1 => CURRENT_WITHIN,
                        _ => self.rng.between(SECOND / 5, SECOND * 7 / 10),
                    };
                self.server.write_elsewhere(now);
                ("waits until current again".to_owned(), Action::WaitCurrent)
            }
            _ => ("all waits must have ended".to_owned(), Action::EndWaits),
        }
    }

    /// Begins the waits that follow one another.
    pub fn begin_waits(&mut self, now: u64) {
        self.count(Fault::Waits);
        self.phase = Phase::Waits(self.plan.waits);
        self.next_tick = now + SECOND;
    }

    /// The writes after the cache was right: all objects become acceptable.
    pub fn epilogue(&mut self, now: u64) -> String {
        let Phase::Epilogue(left) = self.phase else {
            return String::new();
        };
        (self.phase, self.phase_since) = (Phase::Epilogue(left - 1), now);
        self.next_tick = if left > 1 { now + SECOND } else { u64::MAX };
        let flawed = self
            .server
            .current()
            .values()
            .find(|it| !it.is_acceptable(now));
        let key = match flawed {
            Some(flawed) => flawed.key,
            None => self.rng.below(self.plan.keys),
        };
        match self.server.current().contains_key(&key) && self.rng.permille(400) {
            true => self.server.delete(now, key),
            false => self.server.put(now, key, Flaw::None),
        }
        format!("writes {} at last", KEYS[key])
    }

    /// Begins the writes that follow the settled state.
    pub fn begin_epilogue(&mut self, now: u64) {
        let flawed = self
            .server
            .current()
            .values()
            .filter(|it| !it.is_acceptable(now))
            .count();
        self.phase = Phase::Epilogue(flawed as u32 + 3);
        self.next_tick = now + SECOND;
    }
}

//! Five candidates for one Lease, and the faults of a leader.

use std::path::PathBuf;
use std::process;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::history::History;
use super::protocol::{Command, Event, Micros, Outcome, now};
use crate::child::ChildProcess;
use crate::counts::Counts;
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::TOKEN;

const CANDIDATES: usize = 5;

/// The maximum time until something must happen. It includes that the machine is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// How far a wall clock is set forward or back, in milliseconds: longer than a Lease.
const CLOCK_STEP: i64 = 10_000;

/// What happens to a leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// `kill -9`. A new process starts after the election.
    Kill,
    /// `kill -9`. A new process with the same identity starts at once.
    Restart,
    /// The process is stopped, and continued after the election.
    Pause,
    /// The process stops itself between `ensure` and a write, and is continued after the election.
    PauseInWrite,
    /// The same at the first write of a term, which no other write of the term has preceded.
    PauseInFirstWrite,
    /// The proxy closes and refuses connections.
    Partition,
    /// The proxy drops all bytes.
    Silence,
    /// The proxy forwards requests but no responses.
    LostResponses,
    ServerRestart,
    /// The elector is stopped, and the work ignores that.
    IgnoredStop,
    /// The candidate is partitioned, and the work ignores its stop.
    IgnoredStopPartitioned,
    /// The candidate is partitioned, and its logger blocks at the failed renewal.
    BlockedLogger,
    /// A renewal blocks, whatever its stop.
    BlockedLock,
    /// The wall clock is set forward.
    ClockForward,
    /// The wall clock is set back, and the proxy drops all bytes.
    ClockBack,
    /// The credential expires, and the plugin takes longer than a request may. The leader is to
    /// keep the Lease.
    SlowPlugin,
}

impl Fault {
    /// The faults of rounds in which each group has a fault of its own.
    pub(crate) const SHORT: [Self; 13] = [
        Self::Kill,
        Self::PauseInWrite,
        Self::Silence,
        Self::Pause,
        Self::PauseInFirstWrite,
        Self::Partition,
        Self::Restart,
        Self::LostResponses,
        Self::BlockedLogger,
        Self::ClockForward,
        Self::BlockedLock,
        Self::SlowPlugin,
        Self::ClockBack,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill -9",
            Self::Restart => "kill -9, restart",
            Self::Pause => "pause",
            Self::PauseInWrite => "pause in write",
            Self::PauseInFirstWrite => "pause in first write",
            Self::Partition => "partition",
            Self::Silence => "silence",
            Self::LostResponses => "lost responses",
            Self::ServerRestart => "server restart",
            Self::IgnoredStop => "ignored stop",
            Self::IgnoredStopPartitioned => "ignored stop, partition",
            Self::BlockedLogger => "blocked logger",
            Self::BlockedLock => "blocked lock",
            Self::ClockForward => "clock set forward",
            Self::ClockBack => "clock set back",
            Self::SlowPlugin => "slow plugin",
        }
    }
}

/// What the candidates of a group have reported.
#[derive(Default)]
pub(crate) struct Feed {
    state: Mutex<Reports>,
    /// Notified of each report.
    changed: Condvar,
}

#[derive(Default)]
pub(crate) struct Reports {
    pub(crate) events: Vec<(usize, Event)>,
    pub(crate) history: History,
}

impl Feed {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Reports> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn len(&self) -> usize {
        self.lock().events.len()
    }

    fn push(&self, candidate: usize, event: Event) {
        let mut state = self.lock();
        state
            .history
            .report(&format!("candidate {candidate}"), &event);
        state.events.push((candidate, event));
        self.changed.notify_all();
    }

    /// Waits until `find` returns something for the events from a position on.
    fn wait<R>(
        &self,
        from: usize,
        what: &str,
        mut find: impl FnMut(&[(usize, Event)]) -> Option<R>,
    ) -> Result<R, String> {
        let deadline = Instant::now() + PATIENCE;
        let mut state = self.lock();
        loop {
            if let Some(found) = find(&state.events[from..]) {
                return Ok(found);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(format!("{what}: nothing within {PATIENCE:?}"));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Waits until `find` returns something for an event from a position on.
    fn wait_for<R>(
        &self,
        from: usize,
        what: &str,
        find: impl Fn(usize, &Event) -> Option<R>,
    ) -> Result<R, String> {
        self.wait(from, what, |events| {
            events
                .iter()
                .find_map(|(candidate, event)| find(*candidate, event))
        })
    }
}

/// How candidates start.
pub(crate) struct Setting {
    /// The port of the server.
    pub(crate) port: u16,
    pub(crate) certificates: String,
    pub(crate) mutant: String,
}

pub(crate) struct Group {
    pub(crate) name: String,
    pub(crate) feed: Arc<Feed>,
    setting: Arc<Setting>,
    random: Random,
    candidates: Vec<Candidate>,
    /// How often the work of a partitioned candidate was still running when the next one led.
    pub(crate) outlived: usize,
    /// How often a leader has kept and lost its Lease while its credential plugin was slow.
    pub(crate) kept: usize,
    pub(crate) lost: usize,
}

struct Candidate {
    number: usize,
    /// The number of its identities.
    identities: usize,
    proxy: Proxy,
    process: Option<ChildProcess>,
}

/// A leader and its term. All events of the term follow this position, except its start.
#[derive(Clone, Copy)]
pub(crate) struct Leader {
    candidate: usize,
    term: i32,
    from: usize,
}

impl Group {
    pub(crate) fn start(number: usize, setting: &Arc<Setting>, random: &Random) -> Self {
        let counts = Arc::new(Counts::default());
        let candidate = |number| Candidate {
            number,
            identities: 0,
            proxy: Proxy::start(setting.port, None, random.fork(), Arc::clone(&counts)),
            process: None,
        };
        let mut group = Self {
            name: format!("group-{number}"),
            feed: Arc::default(),
            setting: Arc::clone(setting),
            random: random.fork(),
            candidates: (0..CANDIDATES).map(candidate).collect(),
            outlived: 0,
            kept: 0,
            lost: 0,
        };
        (0..CANDIDATES).for_each(|candidate| group.launch(candidate));
        group
    }

    /// Waits for a leader that writes.
    pub(crate) fn leader(&self) -> Result<Leader, String> {
        let from = self.feed.len();
        let (candidate, term) = self.feed.wait_for(from, "a leader", |candidate, event| {
            accepted(event).map(|term| (candidate, term))
        })?;
        let leader = Leader {
            candidate,
            term,
            from,
        };
        Ok(leader)
    }

    /// Runs a fault. Returns the time until the next leader, or `None` if the leader was lost
    /// without the fault.
    pub(crate) fn round(&mut self, fault: Fault) -> Result<Option<Duration>, String> {
        // A planted stop that came too late for its round can have left a process stopped.
        self.candidates
            .iter()
            .for_each(|candidate| candidate.signal("-CONT"));
        let mut leader = self.leader()?;
        thread::sleep(Duration::from_millis(self.random.below(1500) as u64));
        let bystander = self.random.one_in(3).then(|| {
            let number = leader.candidate + 1 + self.random.below(CANDIDATES - 1);
            number % CANDIDATES
        });
        if let Some(bystander) = bystander {
            self.candidates[bystander].signal("-STOP");
        }
        let mut time = None;
        if let Some(began) = self.begin(fault, &mut leader)? {
            time = Some(self.successor(leader, began)?);
            self.end(fault, leader)?;
        }
        if let Some(bystander) = bystander {
            self.candidates[bystander].signal("-CONT");
        }
        Ok(time)
    }

    /// Waits until the leader has survived a restart of the server, or has a successor. Then it
    /// returns the time since the start of the restart.
    pub(crate) fn after_restart(
        &self,
        leader: Leader,
        began: Micros,
    ) -> Result<Option<Duration>, String> {
        let ready = self.feed.len();
        let survived = self
            .feed
            .wait(leader.from, "a leader after a restart", |events| {
                let mut events = events.iter().enumerate();
                events.find_map(|(at, (_, event))| match event {
                    Event::Leading { term, .. } if *term > leader.term => Some(false),
                    event if leader.from + at >= ready => {
                        (accepted(event)? == leader.term).then_some(true)
                    }
                    _ => None,
                })
            })?;
        match survived {
            true => Ok(None),
            false => Ok(Some(self.successor(leader, began)?)),
        }
    }

    /// Starts a fault of the leader, and returns since when there is no leader. `leader` becomes
    /// the last leader before the election, which can differ.
    fn begin(&mut self, fault: Fault, leader: &mut Leader) -> Result<Option<Micros>, String> {
        let Leader {
            candidate,
            term,
            from,
        } = *leader;
        let began = now();
        let others = (0..CANDIDATES).filter(|other| *other != candidate);
        match fault {
            Fault::Kill => self.candidates[candidate].kill(),
            Fault::Restart => {
                self.candidates[candidate].kill();
                self.launch(candidate);
            }
            Fault::Pause => self.candidates[candidate].signal("-STOP"),
            Fault::PauseInWrite => {
                self.candidates[candidate].command(Command::Plant);
                let planted = self.planted(from, term)?;
                self.candidates[candidate].command(Command::Unplant);
                return Ok(planted.map(|(at, planted)| {
                    *leader = planted;
                    at
                }));
            }
            Fault::PauseInFirstWrite => {
                for other in others {
                    self.candidates[other].command(Command::Plant);
                }
                self.candidates[candidate].kill();
                let planted = self.planted(from, term + 1)?;
                self.candidates[candidate].identities += 1;
                self.launch(candidate);
                for candidate in &mut self.candidates {
                    candidate.command(Command::Unplant);
                }
                return Ok(planted.map(|(at, planted)| {
                    *leader = planted;
                    at
                }));
            }
            Fault::Partition => self.candidates[candidate].proxy.set_down(true),
            Fault::Silence => self.candidates[candidate].proxy.silence(),
            Fault::LostResponses => self.candidates[candidate].proxy.deafen(),
            Fault::IgnoredStop => {
                self.candidates[candidate].command(Command::IgnoreStop);
                self.candidates[candidate].command(Command::Resign);
                return self.held_until_joined(*leader);
            }
            Fault::IgnoredStopPartitioned => {
                self.candidates[candidate].command(Command::IgnoreStop);
                match self.random.below(3) {
                    0 => self.candidates[candidate].proxy.set_down(true),
                    1 => self.candidates[candidate].proxy.silence(),
                    _ => self.candidates[candidate].proxy.deafen(),
                }
            }
            Fault::BlockedLogger => {
                self.candidates[candidate].command(Command::BlockLog);
                self.candidates[candidate].proxy.set_down(true);
            }
            Fault::BlockedLock => self.candidates[candidate].command(Command::BlockLock),
            Fault::ClockForward => {
                self.candidates[candidate].command(Command::SetClock(CLOCK_STEP));
            }
            Fault::ClockBack => {
                self.candidates[candidate].command(Command::SetClock(-CLOCK_STEP));
                self.candidates[candidate].proxy.silence();
            }
            Fault::SlowPlugin => {
                self.slow_plugin(*leader)?;
                return Ok(None);
            }
            Fault::ServerRestart => return Err("not a fault of one leader".to_owned()),
        }
        Ok(Some(began))
    }

    /// Ends a fault after the election.
    fn end(&mut self, fault: Fault, leader: Leader) -> Result<(), String> {
        let candidate = &mut self.candidates[leader.candidate];
        let pause = Duration::from_millis(self.random.below(2000) as u64);
        match fault {
            Fault::Kill => {
                candidate.identities += 1;
                self.launch(leader.candidate);
            }
            Fault::Pause => {
                thread::sleep(pause);
                candidate.signal("-CONT");
            }
            Fault::PauseInWrite | Fault::PauseInFirstWrite => {
                candidate.signal("-CONT");
                self.feed
                    .wait_for(leader.from, "a continued write", |_, event| {
                        let is_planted = matches!(event, Event::Write { write, planted: true, .. }
                        if write.term == leader.term);
                        is_planted.then_some(())
                    })?;
            }
            Fault::Partition | Fault::Silence | Fault::LostResponses => {
                thread::sleep(pause);
                candidate.proxy.heal();
            }
            Fault::IgnoredStopPartitioned => {
                let joined = self.joined(leader)?;
                let (_, next) = self.next(leader)?;
                self.outlived += usize::from(next < joined);
                self.candidates[leader.candidate].proxy.heal();
            }
            Fault::BlockedLogger | Fault::BlockedLock => {
                // Nothing that blocks keeps the work running.
                self.joined(leader)?;
                let candidate = &mut self.candidates[leader.candidate];
                candidate.command(Command::Unblock);
                candidate.proxy.heal();
            }
            Fault::ClockForward | Fault::ClockBack => {
                thread::sleep(pause);
                candidate.command(Command::SetClock(0));
                candidate.proxy.heal();
            }
            Fault::Restart | Fault::ServerRestart | Fault::IgnoredStop | Fault::SlowPlugin => {}
        }
        Ok(())
    }

    /// Waits until a candidate stops itself in a term from `first` on. Returns when it did. Returns
    /// `None` if a later term has begun instead.
    fn planted(&self, from: usize, first: i32) -> Result<Option<(Micros, Leader)>, String> {
        self.feed
            .wait_for(from, "a planted stop", |candidate, event| match event {
                Event::Planted { term, at } if *term >= first => {
                    let term = *term;
                    let leader = Leader {
                        candidate,
                        term,
                        from,
                    };
                    Some(Some((*at, leader)))
                }
                Event::Leading { term, .. } if *term > first => Some(None),
                _ => None,
            })
    }

    /// Makes the credential plugin of a leader slow until it has run.
    fn slow_plugin(&mut self, leader: Leader) -> Result<(), String> {
        let slow = slow_file(&self.candidates[leader.candidate], &self.name);
        std::fs::write(&slow, "").expect("a file in the folder for temporary files");
        let deadline = Instant::now() + PATIENCE;
        while std::fs::read(&slow).is_ok_and(|lines| lines.is_empty()) {
            if Instant::now() > deadline {
                return Err(format!("the plugin did not run within {PATIENCE:?}"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        let _ = std::fs::remove_file(&slow);
        // The leader writes again with the new credential, or has a successor.
        let from = self.feed.len();
        let term = self
            .feed
            .wait_for(from, "a write after a slow plugin", |_, event| {
                accepted(event)
            })?;
        match term == leader.term {
            true => self.kept += 1,
            false => self.lost += 1,
        }
        Ok(())
    }

    fn joined(&self, leader: Leader) -> Result<Micros, String> {
        self.feed
            .wait_for(leader.from, "the end of the work", |_, event| match event {
                Event::Joined { term, at } if *term == leader.term => Some(*at),
                _ => None,
            })
    }

    /// Waits for the end of work that ignores its stop, and returns the time. Returns `None` if the
    /// Lease was not renewed in time meanwhile, on a busy machine.
    fn held_until_joined(&self, leader: Leader) -> Result<Option<Micros>, String> {
        let joined = self.joined(leader)?;
        let state = self.feed.lock();
        let events = || state.events[leader.from..].iter().map(|(_, event)| event);
        let expired =
            |event: &Event| matches!(event, Event::Expired { term, .. } if *term == leader.term);
        let early = |event: &Event| matches!(event, Event::Leading { term, at, .. } if *term > leader.term && *at < joined);
        match (events().any(early), events().any(expired)) {
            (_, true) => Ok(None),
            (true, false) => Err("another candidate leads before the work was joined".to_owned()),
            (false, false) => Ok(Some(joined)),
        }
    }

    /// Waits for the next leader. Returns its term, and when its work started.
    fn next(&self, leader: Leader) -> Result<(i32, Micros), String> {
        self.feed
            .wait_for(leader.from, "another leader", |_, event| match event {
                Event::Leading { term, at, .. } if *term > leader.term => Some((*term, *at)),
                _ => None,
            })
    }

    /// Waits for a write of the next leader. Returns the time from `began` until its work started.
    fn successor(&self, leader: Leader, began: Micros) -> Result<Duration, String> {
        let (next, at) = self.next(leader)?;
        self.feed
            .wait_for(leader.from, "a write of another leader", |_, event| {
                accepted(event).filter(|term| *term >= next)
            })?;
        Ok(Duration::from_micros(
            u64::try_from(at - began).unwrap_or(0),
        ))
    }
}

impl Group {
    /// Starts a process with the current identity of a candidate.
    fn launch(&mut self, candidate: usize) {
        let setting = &self.setting;
        let slow = slow_file(&self.candidates[candidate], &self.name);
        let candidate = &mut self.candidates[candidate];
        let (number, identities) = (candidate.number, candidate.identities);
        let arguments = [
            "candidate".to_owned(),
            candidate.proxy.url(),
            setting.certificates.clone(),
            TOKEN.to_owned(),
            self.name.clone(),
            format!("{}-{number}-{identities}", self.name),
            self.random.next().to_string(),
            setting.mutant.clone(),
            slow.display().to_string(),
        ];
        let feed = Arc::clone(&self.feed);
        candidate.process = Some(ChildProcess::start(arguments, move |line| {
            // The last line of a killed process can be incomplete.
            if let Ok(event) = serde_json::from_str(&line) {
                feed.push(number, event);
            }
        }));
    }
}

impl Candidate {
    fn command(&mut self, command: Command) {
        if let Some(process) = &mut self.process {
            process.send(&serde_json::to_string(&command).expect("a command"));
        }
    }

    fn signal(&self, signal: &str) {
        if let Some(process) = &self.process {
            process.signal(signal);
        }
    }

    fn kill(&mut self) {
        self.process = None;
    }
}

/// The file that makes the credential plugin of a candidate slow.
fn slow_file(candidate: &Candidate, group: &str) -> PathBuf {
    let name = format!("chaos-slow-{}-{group}-{}", process::id(), candidate.number);
    std::env::temp_dir().join(name)
}

/// Returns the term of an accepted write.
fn accepted(event: &Event) -> Option<i32> {
    match event {
        Event::Write {
            write,
            outcome: Outcome::Accepted(_),
            ..
        } => Some(write.term),
        _ => None,
    }
}

//! Candidates with clocks of their own, a server with one Lease, and a network between them.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::time::Duration;

use k8s_informer::Error;
use k8s_informer::error::Status;
use k8s_informer_controller::__private::steps::{Event, Next, Now, Request, Steps, Times};
use k8s_informer_controller::leader_election::{Lease, Record};

/// True time, in microseconds. No candidate sees it.
type Micros = u64;

const SECOND: Micros = 1_000_000;

/// What goes wrong in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Faults {
    /// Delays, rare losses and clocks of different offset and rate. Leadership should last.
    Mild,
    /// Also partitions, pauses, suspended machines, stepping clocks, crashes, slow work, and writes
    /// by others that keep the protocol.
    Severe,
    /// Also others that delete or empty the Lease, against which no candidate can guard.
    Destructive,
    /// User code blocks the threads of elections, beside other severe faults. All clocks have the
    /// same rate and none is suspended, so the work itself must not overlap.
    Blocked,
    /// As severe ones, but all clocks of a paused machine stand still, so that its candidate can't
    /// notice the pause. Its term can be valid beside another one for a renew deadline.
    Frozen,
}

/// A fault that is planted between the steps and their caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mutant {
    None,
    ValidFromAnswer,
    ValidForWholeLease,
    /// A renewal within the same second is not seen, as in client-go.
    TextComparison,
    /// A release takes any Lease for that of its term.
    ReleaseWithoutComparison,
    /// Only the thread of the election ends terms.
    NoWatchdog,
    /// Work starts although its term is over.
    StartWithoutCheck,
    /// A response counts from the time of its request, also if the term was over when it arrived.
    LateAnswer,
}

/// The result of a run.
pub(super) struct Run {
    /// Two candidates whose terms were valid at one time, or whose work ran at one time.
    pub(super) overlap: Option<String>,
    /// A term that is valid again after it was over on the clocks of its candidate.
    pub(super) revived: Option<String>,
    /// A token that two terms had.
    pub(super) repeated_token: Option<String>,
    /// The share of the time in which a candidate had a valid term.
    pub(super) led: f64,
}

pub(super) fn run(seed: u64, faults: Faults, mutant: Mutant) -> Run {
    World::new(seed, faults, mutant).run()
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn up_to(&mut self, limit: Micros) -> Micros {
        self.next() % (limit + 1)
    }

    fn chance(&mut self, of: f64) -> bool {
        self.unit() < of
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// The candidate does what is next, unless its plans have changed since.
    Tick {
        candidate: usize,
        plan: u64,
    },
    Arrives {
        candidate: usize,
        request: u64,
    },
    Answered {
        candidate: usize,
        request: u64,
    },
    TimesOut {
        candidate: usize,
        request: u64,
    },
    /// The program asks the candidate to stop.
    Stops {
        candidate: usize,
    },
    /// The work of the term has ended, after its stop.
    Joined {
        candidate: usize,
        life: u64,
    },
    /// The watchdog of a term looks at the clock.
    Watches {
        candidate: usize,
        life: u64,
    },
    /// A paused process runs again.
    Resumes {
        candidate: usize,
    },
    /// Something goes wrong.
    Fault,
}

struct Flight {
    request: u64,
    sent: Now,
    what: Box<Request>,
    answer: Option<Result<Lease, Error>>,
}

fn refused(code: u16) -> Error {
    let mut status = Status::default();
    status.code = code;
    Error::from_status(status)
}

struct Program {
    identity: String,
    steps: Steps,
    /// The record of the last read, with times in seconds, and the version that was shown for it.
    last_read: Option<(Record, String)>,
    /// The version that is shown in place of a later one, and the later one.
    hidden: Option<(String, String)>,
    /// Whether the work of the term has started.
    works: bool,
    /// Whether the work of the term has been told to stop.
    drains: bool,
    releases: bool,
    life: u64,
    plan: u64,
    flight: Option<Flight>,
    clock: LocalClock,
    /// The process does not run until then.
    paused_until: Micros,
    /// User code blocks the thread of the election until then.
    blocked_until: Micros,
    partitioned_until: Micros,
    /// Until when the candidate can't have noticed that its clocks stood still.
    unaware_until: Micros,
    /// The server refuses its requests until then.
    refused_until: Micros,
    /// The process is paused for this time when the server has handled its next request.
    pause_at_response: Option<Micros>,
}

impl Program {
    /// Shows the version of the last read if only parts of a second have changed since.
    fn overlook_renewal(&mut self, lease: &mut Lease) {
        let seconds = |time: Option<i64>| time.map(|time| time.div_euclid(1_000_000));
        let mut text = lease.record.clone();
        text.acquire_time = seconds(text.acquire_time);
        text.renew_time = seconds(text.renew_time);
        match &self.last_read {
            Some((last, shown)) if *last == text => {
                self.hidden = Some((shown.clone(), lease.resource_version.clone()));
                lease.resource_version.clone_from(shown);
            }
            _ => self.last_read = Some((text, lease.resource_version.clone())),
        }
    }

    /// Shows the record of the own term.
    fn claim(&mut self, lease: &mut Lease) {
        if let Some(term) = self.steps.term() {
            lease.record.holder = Some(self.identity.clone());
            lease.record.acquire_time = term.id.acquire_time;
            lease.record.transitions = term.id.transitions;
        }
    }

    /// The version of a Lease on the server.
    fn real_version<'a>(&'a self, lease: &'a Lease) -> &'a String {
        match &self.hidden {
            Some((shown, real)) if *shown == lease.resource_version => real,
            _ => &lease.resource_version,
        }
    }
}

/// Some restarted programs keep their identity.
fn identity(candidate: usize, life: u64) -> String {
    format!("{candidate}-{}", life / 2)
}

/// The clocks of a machine.
struct LocalClock {
    offset: Micros,
    rate: f64,
    /// The time for which the monotonic clock stood still.
    suspended: Micros,
    /// The time for which both clocks stood still.
    frozen: Micros,
    wall_step: i64,
    /// Whether the machine is one that is suspended at times. The wall clock of such a machine is
    /// never set back: if both happen in one term, no clock shows the true time.
    is_laptop: bool,
}

impl LocalClock {
    fn now(&self, time: Micros) -> Now {
        let elapsed = |time: Micros| (time as f64 * self.rate) as Micros;
        let time = time.saturating_sub(self.frozen);
        let wall = self.offset + elapsed(time);
        Now {
            elapsed: Duration::from_micros(elapsed(time.saturating_sub(self.suspended))),
            wall: i64::try_from(wall).unwrap() + self.wall_step,
        }
    }
}

struct World {
    random: Random,
    faults: Faults,
    mutant: Mutant,
    times: Times,
    end: Micros,
    /// The longest delay of a message.
    delay: Micros,
    loss: f64,
    now: Micros,
    happenings: BinaryHeap<Reverse<(Micros, u64, Happening)>>,
    next: u64,
    programs: Vec<Program>,
    lease: Option<Lease>,
    version: u64,
    tokens: BTreeSet<(String, i32)>,
    result: Run,
    led: Micros,
}

impl World {
    fn new(seed: u64, faults: Faults, mutant: Mutant) -> Self {
        let mut random = Random(seed);
        let choices = [(15, 10, 2), (4, 2, 1), (6, 4, 1), (10, 7, 2), (3, 1, 1)];
        let (lease, renew, retry) = choices[random.up_to(4) as usize];
        let times = Times {
            lease_duration: Duration::from_secs(lease),
            renew_deadline: Duration::from_millis(renew * 1_000 + 300 + random.up_to(600)),
            retry_period: Duration::from_secs(retry),
        };
        let mild = faults == Faults::Mild;
        let mut world = Self {
            faults,
            mutant,
            times,
            end: if mild { 600 * SECOND } else { 120 * SECOND },
            delay: if mild {
                50_000
            } else {
                1 + random.up_to(2 * SECOND)
            },
            loss: if mild { 0.01 } else { random.unit() * 0.3 },
            random,
            now: 0,
            happenings: BinaryHeap::new(),
            next: 0,
            programs: Vec::new(),
            lease: None,
            version: 0,
            tokens: BTreeSet::new(),
            result: Run {
                overlap: None,
                revived: None,
                repeated_token: None,
                led: 0.0,
            },
            led: 0,
        };
        let candidates = if world.random.chance(0.5) { 3 } else { 5 };
        for candidate in 0..candidates {
            let program = world.program(candidate);
            world.programs.push(program);
            let wait = world.random.up_to(SECOND);
            world.tick(candidate, wait);
        }
        world.at(SECOND, Happening::Fault);
        world
    }

    fn run(mut self) -> Run {
        while let Some(Reverse((time, _, happening))) = self.happenings.pop() {
            if time > self.end || self.result.overlap.is_some() {
                break;
            }
            let passed = time - self.now;
            self.now = time;
            if self.leaders().next().is_some() {
                self.led += passed;
            }
            self.handle(happening);
        }
        self.result.led = self.led as f64 / self.end as f64;
        self.result
    }

    /// The candidates that run and have a valid term.
    fn leaders(&mut self) -> impl Iterator<Item = usize> {
        let now = self.now;
        let (mutant, times) = (self.mutant, self.times);
        let running = self.programs.iter_mut().enumerate();
        let running = running.filter(move |(_, program)| program.paused_until <= now);
        running.filter_map(move |(at, program)| {
            let local = program.clock.now(now);
            let term = program.steps.term()?;
            let is_valid = match mutant {
                Mutant::ValidForWholeLease => {
                    term.left(local).is_some() && term.age(local) < times.lease_duration
                }
                // A term remembers that it was seen when it was over.
                Mutant::LateAnswer => {
                    term.left(local).is_some() && term.age(local) < times.renew_deadline
                }
                _ => term.is_valid(local),
            };
            is_valid.then_some(at)
        })
    }

    /// A program that has just started, on a machine of its own.
    fn program(&mut self, candidate: usize) -> Program {
        // The clock of a candidate may be faster by a factor of just less than lease duration /
        // renew deadline.
        let bound =
            self.times.lease_duration.as_secs_f64() / self.times.renew_deadline.as_secs_f64();
        let rate = match self.random.up_to(3) {
            _ if self.faults == Faults::Blocked => 1.0,
            0 => 1.0,
            1 => 1.0 + (bound - 1.0) * 0.999,
            _ => 1.0 + (bound - 1.0) * 0.999 * self.random.unit(),
        };
        let clock = LocalClock {
            offset: self.random.up_to(1_000 * SECOND) + 1_000 * SECOND,
            rate,
            suspended: 0,
            frozen: 0,
            wall_step: 0,
            is_laptop: self.random.chance(0.5) && self.faults != Faults::Blocked,
        };
        let identity = identity(candidate, 0);
        Program {
            steps: self.steps(&identity),
            identity,
            last_read: None,
            hidden: None,
            works: false,
            drains: false,
            releases: false,
            life: 0,
            plan: 0,
            flight: None,
            clock,
            paused_until: 0,
            blocked_until: 0,
            partitioned_until: 0,
            unaware_until: 0,
            refused_until: 0,
            pause_at_response: None,
        }
    }

    fn steps(&mut self, identity: &str) -> Steps {
        let mut random = Random(self.random.next());
        let random = Box::new(move || random.unit());
        Steps::new(identity.to_owned(), self.times, random)
    }

    fn at(&mut self, after: Micros, happening: Happening) {
        self.next += 1;
        self.happenings
            .push(Reverse((self.now + after, self.next, happening)));
    }

    /// Lets the candidate continue after this time on its clock.
    fn tick(&mut self, candidate: usize, after: Micros) {
        let program = &mut self.programs[candidate];
        program.plan += 1;
        let plan = program.plan;
        self.at(after, Happening::Tick { candidate, plan });
    }

    /// Until when a candidate can't handle something.
    fn held_until(&self, happening: &Happening) -> Micros {
        match *happening {
            Happening::Tick { candidate, .. }
            | Happening::Answered { candidate, .. }
            | Happening::TimesOut { candidate, .. }
            | Happening::Stops { candidate }
            | Happening::Joined { candidate, .. } => {
                let program = &self.programs[candidate];
                program.paused_until.max(program.blocked_until)
            }
            Happening::Watches { candidate, .. } => self.programs[candidate].paused_until,
            Happening::Arrives { .. } | Happening::Resumes { .. } | Happening::Fault => 0,
        }
    }

    fn handle(&mut self, happening: Happening) {
        let held_until = self.held_until(&happening);
        if held_until > self.now {
            return self.at(held_until - self.now, happening);
        }
        match happening {
            Happening::Fault => self.fault(),
            Happening::Resumes { candidate } => self.compare(candidate),
            Happening::Arrives { candidate, request } => self.arrives(candidate, request),
            Happening::Watches { candidate, life } => self.watches(candidate, life),
            Happening::Tick { candidate, plan } => {
                if self.programs[candidate].plan == plan {
                    self.proceed(candidate);
                }
            }
            Happening::Answered { candidate, request } => self.answered(candidate, request, false),
            Happening::TimesOut { candidate, request } => self.answered(candidate, request, true),
            Happening::Stops { candidate } => self.stops(candidate),
            Happening::Joined { candidate, life } => {
                let local = self.programs[candidate].clock.now(self.now);
                let program = &mut self.programs[candidate];
                if program.life == life && program.drains && !program.releases {
                    program.releases = true;
                    program.flight = None;
                    program.steps.release(local);
                    self.proceed(candidate);
                }
            }
        }
    }

    /// Does what is next for a candidate.
    fn proceed(&mut self, candidate: usize) {
        let program = &mut self.programs[candidate];
        if program.flight.is_some() {
            return;
        }
        let now = program.clock.now(self.now);
        if program.steps.term().is_some_and(|term| term.expire(now)) {
            self.drain(candidate);
        }
        let program = &mut self.programs[candidate];
        match program.steps.next(now) {
            Next::Wait(wait) => {
                let wait = (wait.as_micros() as f64 / program.clock.rate) as Micros + 1;
                self.tick(candidate, wait);
            }
            Next::Send(what, limit) => {
                let limit = (limit.as_micros() as f64 / program.clock.rate) as Micros + 1;
                self.next += 1;
                let request = self.next;
                let is_refused = program.refused_until > self.now;
                program.flight = Some(Flight {
                    request,
                    sent: now,
                    what,
                    answer: is_refused.then(|| Err(refused(503))),
                });
                let cut = program.partitioned_until > self.now || self.random.chance(self.loss);
                let delay = self.random.up_to(self.delay);
                if is_refused {
                    self.at(delay, Happening::Answered { candidate, request });
                } else if !cut {
                    self.at(delay, Happening::Arrives { candidate, request });
                }
                self.at(limit, Happening::TimesOut { candidate, request });
            }
            Next::Idle if program.releases => self.restart(candidate),
            Next::Idle => {}
        }
    }

    /// The server handles a request, even if the candidate has given up on it.
    fn arrives(&mut self, candidate: usize, request: u64) {
        let Some(flight) = self.programs[candidate]
            .flight
            .as_ref()
            .filter(|flight| flight.request == request)
        else {
            return;
        };
        let answer = match (&*flight.what, &self.lease) {
            (Request::Get, Some(lease)) => Ok(lease.clone()),
            (Request::Get | Request::Update(..), None) => Err(refused(404)),
            (Request::Create(_), Some(_)) => Err(refused(409)),
            (Request::Update(_, sent), Some(lease))
                if (&sent.uid, self.programs[candidate].real_version(sent))
                    != (&lease.uid, &lease.resource_version) =>
            {
                Err(refused(409))
            }
            (Request::Create(record), None) => {
                let record = record.clone();
                Ok(self.write(None, record))
            }
            (Request::Update(record, _), Some(lease)) => {
                let (uid, record) = (lease.uid.clone(), record.clone());
                Ok(self.write(Some(uid), record))
            }
        };
        let program = &mut self.programs[candidate];
        let cut = program.partitioned_until > self.now;
        program.flight.as_mut().unwrap().answer = Some(answer);
        let pause = program.pause_at_response.take_if(|_| !cut);
        if let Some(pause) = pause.filter(|_| program.paused_until <= self.now) {
            program.paused_until = self.now + pause;
            self.at(pause, Happening::Resumes { candidate });
        }
        if !cut && !self.random.chance(self.loss) {
            let delay = self.random.up_to(self.delay);
            self.at(delay, Happening::Answered { candidate, request });
        }
    }

    fn write(&mut self, uid: Option<String>, record: Record) -> Lease {
        self.version += 1;
        let mut lease = Lease::default();
        lease.uid = uid.unwrap_or_else(|| format!("uid-{}", self.version));
        lease.resource_version = self.version.to_string();
        lease.record = record;
        self.lease = Some(lease.clone());
        lease
    }

    fn answered(&mut self, candidate: usize, request: u64, timed_out: bool) {
        let program = &mut self.programs[candidate];
        let Some(flight) = program.flight.take_if(|flight| flight.request == request) else {
            return;
        };
        let mut answer = flight
            .answer
            .filter(|_| !timed_out)
            .unwrap_or_else(|| Err(refused(500)));
        if let (Request::Get, Ok(lease)) = (&*flight.what, &mut answer) {
            match self.mutant {
                Mutant::TextComparison => program.overlook_renewal(lease),
                Mutant::ReleaseWithoutComparison if program.releases => program.claim(lease),
                _ => {}
            }
        }
        let now = program.clock.now(self.now);
        let sent = if self.mutant == Mutant::ValidFromAnswer {
            now
        } else {
            flight.sent
        };
        let applied = match self.mutant {
            Mutant::LateAnswer => flight.sent,
            _ => now,
        };
        // The response can have arrived during a pause, and be handled before the watchdog has run.
        let mut term = program.steps.term();
        let was_over = term.as_mut().is_some_and(|term| {
            let left = term.left(now);
            left.is_none_or(|left| left.is_zero())
        });
        let event = program.steps.answer(sent, applied, answer.as_ref());
        let is_valid = program.steps.term().is_some_and(|term| term.is_valid(now));
        if was_over && is_valid && event == Event::Renewed {
            let revived = format!("{candidate} at {} µs", self.now);
            self.result.revived.get_or_insert(revived);
        }
        match event {
            Event::Acquired(id) => {
                self.began(&id.uid, id.transitions);
                let is_valid = self.leaders().any(|leader| leader == candidate);
                let program = &mut self.programs[candidate];
                if !is_valid && self.mutant != Mutant::StartWithoutCheck {
                    program.releases = true;
                    program.steps.release(now);
                    return self.proceed(candidate);
                }
                program.works = true;
                self.compare(candidate);
                self.compare_work(candidate);
                let life = self.programs[candidate].life;
                if self.mutant != Mutant::NoWatchdog {
                    self.at(0, Happening::Watches { candidate, life });
                }
                // Some programs stop on their own.
                let after = self.random.up_to(4 * self.end);
                self.at(after, Happening::Stops { candidate });
            }
            Event::Renewed => self.compare(candidate),
            Event::Lost => self.drain(candidate),
            Event::Continued | Event::Slow | Event::Failed | Event::Released => {}
        }
        self.proceed(candidate);
    }

    /// Checks the token of a new term.
    fn began(&mut self, uid: &str, transitions: i32) {
        let token = (uid.to_owned(), transitions);
        if !self.tokens.insert(token.clone()) {
            self.result
                .repeated_token
                .get_or_insert(format!("{token:?}"));
        }
    }

    /// Checks that no other candidate has a valid term, after one has become valid.
    fn compare(&mut self, candidate: usize) {
        let mut leaders: Vec<usize> = self.leaders().collect();
        leaders.retain(|leader| self.programs[*leader].unaware_until <= self.now);
        if leaders.len() > 1 && leaders.contains(&candidate) {
            let overlap = format!("{leaders:?} at {} µs", self.now);
            self.result.overlap.get_or_insert(overlap);
        }
    }

    /// Checks that no other candidate works, when one starts to work. Stopped work does not count,
    /// because it can take any time.
    fn compare_work(&mut self, candidate: usize) {
        let now = self.now;
        let works =
            |program: &Program| program.works && !program.drains && program.paused_until <= now;
        let mut others = self.programs.iter().enumerate();
        let other = others.find(|(at, program)| *at != candidate && works(program));
        if let (Some((other, _)), Faults::Blocked) = (other, self.faults) {
            let overlap = format!("{candidate} starts beside {other} at {now} µs");
            self.result.overlap.get_or_insert(overlap);
        }
    }

    /// Ends a term that was not renewed in time.
    fn watches(&mut self, candidate: usize, life: u64) {
        let program = &mut self.programs[candidate];
        let local = program.clock.now(self.now);
        let Some(term) = program.steps.term().filter(|_| program.life == life) else {
            return;
        };
        if term.expire(local) {
            return self.drain(candidate);
        }
        let Some(left) = term.left(local) else {
            return;
        };
        let wait = left.min(2 * self.times.retry_period).as_micros() as f64 / program.clock.rate;
        self.at(wait as Micros + 1, Happening::Watches { candidate, life });
    }

    fn stops(&mut self, candidate: usize) {
        let program = &mut self.programs[candidate];
        if program.works {
            return self.drain(candidate);
        }
        if std::mem::replace(&mut program.releases, true) {
            return;
        }
        let local = program.clock.now(self.now);
        if let Some(flight) = program.flight.take() {
            // The stop ends the request, which the server may have carried out.
            let stopped = Err(&refused(500));
            program.steps.answer(flight.sent, local, stopped);
        }
        program.steps.release(local);
        self.proceed(candidate);
    }

    /// Tells the work to stop. Renewing continues meanwhile.
    fn drain(&mut self, candidate: usize) {
        let program = &mut self.programs[candidate];
        if std::mem::replace(&mut program.drains, true) {
            return;
        }
        let life = program.life;
        let slow = self.faults != Faults::Mild && self.random.chance(0.2);
        let work = self
            .random
            .up_to(if slow { 40 * SECOND } else { SECOND / 2 });
        self.at(work, Happening::Joined { candidate, life });
    }

    /// Starts the program again on the same machine.
    fn restart(&mut self, candidate: usize) {
        let life = self.programs[candidate].life + 1;
        let identity = identity(candidate, life);
        let steps = self.steps(&identity);
        let program = &mut self.programs[candidate];
        program.steps = steps;
        program.identity = identity;
        program.last_read = None;
        program.hidden = None;
        program.life = life;
        program.works = false;
        program.flight = None;
        program.drains = false;
        program.releases = false;
        let wait = self.random.up_to(SECOND);
        self.tick(candidate, wait);
    }

    fn fault(&mut self) {
        let again = self.random.up_to(10 * SECOND);
        self.at(again, Happening::Fault);
        if self.faults == Faults::Mild {
            return;
        }
        let candidate = self.random.up_to(self.programs.len() as u64 - 1) as usize;
        let duration = self.random.up_to(25 * SECOND);
        let now = self.now;
        let program = &mut self.programs[candidate];
        if self.faults == Faults::Blocked && self.random.chance(0.5) {
            program.blocked_until = now + duration;
            return;
        }
        let most = match self.faults {
            Faults::Destructive => 10,
            _ => 8,
        };
        match self.random.up_to(most) {
            0 => program.partitioned_until = now + duration,
            1 if program.paused_until <= now => {
                program.paused_until = now + duration;
                if self.faults == Faults::Frozen {
                    program.clock.frozen += duration;
                    // The server has not handled a later request of this term, and its clocks are
                    // at least as fast as true time.
                    let unaware = self.times.renew_deadline.as_micros() as Micros;
                    program.unaware_until = program.paused_until + unaware;
                    self.at(duration + unaware, Happening::Resumes { candidate });
                } else if program.clock.is_laptop && duration.is_multiple_of(2) {
                    program.clock.suspended += duration;
                }
                self.at(duration, Happening::Resumes { candidate });
            }
            2 => program.clock.wall_step += i64::try_from(duration % 4_000_000).unwrap(),
            3 if !program.clock.is_laptop => {
                program.clock.wall_step -= i64::try_from(duration % 4_000_000).unwrap();
            }
            1 | 3 => {}
            4 if duration.is_multiple_of(2) => self.at(0, Happening::Stops { candidate }),
            4 => self.restart(candidate),
            5 => {
                for program in &mut self.programs {
                    program.partitioned_until = now + duration / 2;
                }
            }
            6 => {
                // The metadata of the Lease change.
                if let Some(lease) = self.lease.take() {
                    self.write(Some(lease.uid), lease.record);
                }
            }
            7 => {
                // A candidate of another kind takes the Lease, for a full duration.
                if let Some(lease) = self.lease.take() {
                    let mut record = lease.record;
                    record.holder = Some("foreign".to_owned());
                    record.transitions += 1;
                    record.lease_duration_seconds = self.times.lease_duration.as_secs() as i32;
                    self.write(Some(lease.uid), record);
                }
            }
            8 => {
                // Requests fail until about the end of the term. The response to the first one that
                // succeeds arrives during a pause.
                let term = self.times.retry_period + self.times.renew_deadline;
                let outage = self.random.up_to(term.as_micros() as Micros);
                program.refused_until = now + outage;
                program.pause_at_response = Some(duration);
            }
            9 => self.lease = None,
            _ => {
                if let Some(lease) = self.lease.take() {
                    let mut record = lease.record;
                    record.holder = None;
                    self.write(Some(lease.uid), record);
                }
            }
        }
    }
}

//! Replicas of two divisions in virtual time: the steps of elections, what replicas have seen, and a
//! server with a Lease for each shard. The rest of a replica is modelled after [`super::Shards`]. A
//! seed determines everything; `SEEDS` sets another number of seeds.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::mem;
use std::time::Duration;

use super::seen::{Rivalry, Seen, TermOrder, View};
use crate::leader_election::steps::{Event, Next, Now, Request, Steps, Times};
use crate::leader_election::{Lease, Record};
use k8s_informer::error::{Error, Status};

/// True time, in microseconds. No replica sees it.
type Micros = u64;

const SECOND: Micros = 1_000_000;

/// When the last fault happens, and when the run ends.
const FAULTS_END: Micros = 300 * SECOND;
const END: Micros = FAULTS_END + 150 * SECOND;

/// The time until a list fails.
const LIST_TIMEOUT: Micros = 10 * SECOND;

/// The requests of a replica in one second of its clock.
const MOST_REQUESTS: u32 = 20;

/// The numbers of shards of the two divisions.
const COUNTS: [u32; 2] = [2, 3];
const REPLICAS: usize = 4;

/// What goes wrong in a run, besides lost and late messages, requests that the server handles much
/// later, partitions, kills, restarts, clocks of different offset and rate, and Leases of killed
/// replicas that lose their label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pauses {
    /// Processes are paused, and machines are suspended, so that their monotonic clock stands still.
    /// No two divisions may work at one time.
    Process,
    /// The wall clocks of paused machines stand still as well, so that the replicas can't notice it.
    /// If two divisions work, one of them must end soon.
    Clocks,
}

/// A fault that is planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mutant {
    None,
    /// A term counts as valid when the request was sent, not when its response is there.
    LateAnswer,
    /// A holder ignores other divisions.
    NoRivalry,
    /// A Lease without a label that an attempt has read is not remembered.
    ForgetsReads,
    /// A replica that has lost its shard takes it again whatever other divisions do.
    LeadsAgainUnchecked,
    /// A replica that has lost its shard takes any shard.
    LeadsAgainElsewhere,
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

    fn index(&mut self, length: usize) -> usize {
        self.up_to(length as u64 - 1) as usize
    }
}

/// The two threads of a replica that send requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Thread {
    /// Looks for a free shard, and lists the Leases while the work runs.
    Main,
    /// Acquires, renews and releases the Lease of the shard.
    Election,
}

#[derive(Clone, Debug)]
enum Sent {
    List,
    Get(String),
    Create(String, Record),
    Update(String, Record, Lease),
}

#[derive(Clone, Debug)]
enum Response {
    List(BTreeMap<String, Lease>),
    Lease(Lease),
}

/// Something that happens to a process, unless it has ended.
#[derive(Clone, Debug)]
enum Local {
    /// A wait of a thread is over, unless it has another plan.
    Continues(Thread, u64),
    Answered(Thread, u64, Result<Response, Error>),
    TimesOut(Thread, u64),
    /// The watchdog looks at the clock.
    Watches,
    /// The work has ended, after its stop.
    Joined,
    /// The process is stopped by a rollout.
    Stops,
}

#[derive(Clone, Debug)]
enum Happening {
    Local(usize, u64, Local),
    /// The server handles a request, whether or not the replica still waits for it.
    Arrives(usize, u64, Thread, u64, Sent),
    Starts(usize),
    /// The renewals of a replica fail until about the end of its term. Then the server hangs at the
    /// next one, and the process is paused.
    Outage(usize),
    Resumes,
    Fault,
}

/// What a replica is doing.
enum Phase {
    /// It pauses or lists, until a shard is free.
    Looking,
    /// It tries once to take a shard.
    Claiming,
    /// It has a Lease, and lists to find other divisions.
    Checking,
    Working(Rivalry),
    /// The work has been stopped.
    Draining,
    Releasing(AfterRelease),
}

#[derive(Clone, Copy)]
enum AfterRelease {
    /// Pause with this jitter, and look again.
    Look(f64),
    /// Look at once whether the lost shard can be taken again.
    LeadAgain,
    /// The process ends.
    Exit,
}

struct Flight {
    number: u64,
    sent: Now,
}

/// The clocks of a machine.
struct LocalClock {
    offset: Micros,
    rate: f64,
    /// The time for which each clock stood still.
    monotonic_lag: Micros,
    wall_lag: Micros,
}

impl LocalClock {
    fn now(&self, time: Micros) -> Now {
        let elapsed = |lag: Micros| (time.saturating_sub(lag) as f64 * self.rate) as Micros;
        Now {
            elapsed: Duration::from_micros(elapsed(self.monotonic_lag)),
            wall: i64::try_from(self.offset + elapsed(self.wall_lag)).unwrap(),
        }
    }
}

struct Replica {
    life: u64,
    identity: String,
    division: usize,
    clock: LocalClock,
    paused_until: Micros,
    partitioned_until: Micros,
    /// Whether the clocks stood still in this life.
    was_frozen: bool,
    seen: Seen,
    view: View,
    /// The names of the Leases in the last list.
    listed: BTreeSet<String>,
    phase: Phase,
    shard: u32,
    /// The shard whose objects the caches have, from the first term on.
    cached: Option<u32>,
    /// Whether the process ends when its work has ended.
    is_stopped: bool,
    steps: Steps,
    plans: [u64; 2],
    flights: [Option<Flight>; 2],
    /// The server refuses the requests of the election until then.
    refused_until: Micros,
    /// The server hangs at the next renewal after that, and the process is paused until the response.
    hangs_next: bool,
    /// The second on its clock, and the requests in it.
    requests: (u64, u32),
}

impl Replica {
    fn summary(&self) -> String {
        let phase = match self.phase {
            Phase::Looking => "looks",
            Phase::Claiming => "claims",
            Phase::Checking => "checks",
            Phase::Working(_) => "works",
            Phase::Draining => "drains",
            Phase::Releasing(_) => "releases",
        };
        let Self {
            identity,
            division,
            shard,
            view,
            ..
        } = self;
        format!("{identity} of division {division} {phase}, shard {shard}, view {view:?}")
    }
}

struct World {
    random: Random,
    pauses: Pauses,
    mutant: Mutant,
    times: Times,
    /// The longest delay of a message, and the share of lost ones.
    delay: Micros,
    loss: f64,
    now: Micros,
    next: u64,
    happenings: BTreeMap<u64, Happening>,
    /// Time, a random number and the number of what happens then: the order of what happens at the
    /// same time, for example after a pause, is random.
    order: BinaryHeap<Reverse<(Micros, u64, u64)>>,
    replicas: Vec<Replica>,
    /// The division of processes that start.
    target: usize,
    /// The Leases, and whether they have their label.
    leases: BTreeMap<String, (Lease, bool)>,
    version: u64,
    /// Since when two replicas work that must not, if one had been frozen.
    together: BTreeMap<(usize, usize), Micros>,
    problem: Option<String>,
}

fn refused(code: u16) -> Error {
    let mut status = Status::default();
    status.code = code;
    Error::from_status(status)
}

fn lease_name(division: usize, shard: u32) -> String {
    format!("team-{shard}-of-{}-by-uid", COUNTS[division])
}

/// Returns what is wrong with a run.
fn problem(seed: u64, pauses: Pauses, mutant: Mutant) -> Option<String> {
    let mut world = World::new(seed, pauses, mutant);
    while let Some(Reverse((time, _, number))) = world.order.pop() {
        if time > END || world.problem.is_some() {
            break;
        }
        world.now = time;
        let happening = world.happenings.remove(&number).unwrap();
        world.handle(happening);
        world.compare();
    }
    world.now = END;
    world.check_end();
    world.problem
}

impl World {
    fn new(seed: u64, pauses: Pauses, mutant: Mutant) -> Self {
        let mut random = Random(seed);
        let choices = [(15, 10, 2), (6, 4, 1), (10, 7, 2)];
        let (lease, renew, retry) = choices[random.index(choices.len())];
        let mut world = Self {
            pauses,
            mutant,
            times: Times {
                lease_duration: Duration::from_secs(lease),
                renew_deadline: Duration::from_secs(renew),
                retry_period: Duration::from_secs(retry),
            },
            delay: 1 + random.up_to(SECOND / 4),
            loss: random.unit() * 0.2,
            random,
            now: 0,
            next: 0,
            happenings: BTreeMap::new(),
            order: BinaryHeap::new(),
            replicas: Vec::new(),
            target: 0,
            leases: BTreeMap::new(),
            version: 0,
            together: BTreeMap::new(),
            problem: None,
        };
        for at in 0..REPLICAS {
            // Between divisions there is no common Lease, so the clocks may differ less than in an
            // election.
            let limit = (retry + renew) as f64;
            let bound = lease as f64 / limit;
            let rate = match world.random.up_to(2) {
                0 => 1.0,
                1 => 1.0 + (bound - 1.0) * 0.99,
                _ => 1.0 + (bound - 1.0) * 0.99 * world.random.unit(),
            };
            let clock = LocalClock {
                offset: world.random.up_to(1_000 * SECOND) + 1_000 * SECOND,
                rate,
                monotonic_lag: 0,
                wall_lag: 0,
            };
            let replica = world.process(at, 0, clock);
            world.replicas.push(replica);
            let wait = world.random.up_to(SECOND);
            world.wait(at, Thread::Main, wait);
        }
        world.at(SECOND, Happening::Fault);
        world
    }

    /// A process that has just started.
    fn process(&mut self, at: usize, life: u64, clock: LocalClock) -> Replica {
        let identity = format!("{at}-{life}");
        let division = self.target;
        let own = (0..COUNTS[division]).map(|shard| (lease_name(division, shard), shard));
        Replica {
            life,
            seen: Seen::new(&identity, own.collect()),
            view: View::default(),
            listed: BTreeSet::new(),
            division,
            clock,
            paused_until: 0,
            partitioned_until: 0,
            was_frozen: false,
            phase: Phase::Looking,
            shard: 0,
            cached: None,
            is_stopped: false,
            steps: self.steps(&identity),
            identity,
            plans: [0; 2],
            flights: [None, None],
            refused_until: 0,
            hangs_next: false,
            requests: (0, 0),
        }
    }

    fn steps(&mut self, identity: &str) -> Steps {
        let mut random = Random(self.random.next());
        let random = Box::new(move || random.unit());
        Steps::new(identity.to_owned(), self.times, random)
    }

    fn at(&mut self, after: Micros, happening: Happening) {
        self.next += 1;
        self.happenings.insert(self.next, happening);
        let tie = self.random.next();
        self.order.push(Reverse((self.now + after, tie, self.next)));
    }

    fn at_local(&mut self, at: usize, after: Micros, local: Local) {
        let life = self.replicas[at].life;
        self.at(after, Happening::Local(at, life, local));
    }

    /// Lets a thread continue after this time.
    fn wait(&mut self, at: usize, thread: Thread, after: Micros) {
        let plan = &mut self.replicas[at].plans[thread as usize];
        *plan += 1;
        let plan = *plan;
        self.at_local(at, after, Local::Continues(thread, plan));
    }

    /// The true time of a time on the clock of a replica.
    fn true_time(&self, at: usize, time: Duration) -> Micros {
        (time.as_micros() as f64 / self.replicas[at].clock.rate) as Micros + 1
    }

    fn wait_local(&mut self, at: usize, thread: Thread, time: Duration) {
        let time = self.true_time(at, time);
        self.wait(at, thread, time);
    }

    fn pause(&mut self, at: usize, jitter: f64) {
        let jitter = jitter * self.random.unit();
        let retry = self.times.retry_period;
        self.wait_local(at, Thread::Main, retry + retry.mul_f64(jitter));
    }

    fn local_now(&self, at: usize) -> Now {
        self.replicas[at].clock.now(self.now)
    }

    fn handle(&mut self, happening: Happening) {
        match happening {
            Happening::Fault => self.fault(),
            Happening::Resumes => {}
            Happening::Outage(at) => {
                let term = self.times.retry_period + self.times.renew_deadline;
                let outage = self.random.up_to(term.as_micros() as Micros);
                let replica = &mut self.replicas[at];
                replica.refused_until = self.now + outage;
                replica.hangs_next = true;
            }
            Happening::Arrives(at, life, thread, number, sent) => {
                self.arrives(at, life, thread, number, &sent);
            }
            Happening::Starts(at) => {
                let paused_until = self.replicas[at].paused_until;
                if paused_until > self.now {
                    return self.at(paused_until - self.now, Happening::Starts(at));
                }
                self.start(at);
            }
            Happening::Local(at, life, local) => {
                let replica = &self.replicas[at];
                if replica.life != life {
                    return;
                }
                if replica.paused_until > self.now {
                    let wait = replica.paused_until - self.now;
                    return self.at(wait, Happening::Local(at, life, local));
                }
                self.handle_local(at, local);
            }
        }
    }

    fn handle_local(&mut self, at: usize, local: Local) {
        match local {
            Local::Continues(thread, plan) => {
                if self.replicas[at].plans[thread as usize] != plan {
                    return;
                }
                match thread {
                    Thread::Main => self.send(at, thread, Sent::List, LIST_TIMEOUT),
                    Thread::Election => self.proceed(at),
                }
            }
            Local::Answered(thread, number, response) => {
                self.answered(at, thread, number, response);
            }
            Local::TimesOut(thread, number) => {
                self.answered(at, thread, number, Err(refused(500)));
            }
            Local::Watches => self.watch(at),
            Local::Joined => {
                let replica = &self.replicas[at];
                let then = match replica.is_stopped {
                    true => AfterRelease::Exit,
                    false => AfterRelease::LeadAgain,
                };
                if matches!(replica.phase, Phase::Draining) {
                    self.release(at, then);
                }
            }
            Local::Stops => self.stop(at),
        }
    }

    /// Starts a process again on the same machine.
    fn start(&mut self, at: usize) {
        let life = self.replicas[at].life + 1;
        let machine = LocalClock {
            ..self.replicas[at].clock
        };
        let mut replica = self.process(at, life, machine);
        replica.partitioned_until = self.replicas[at].partitioned_until;
        self.replicas[at] = replica;
        let wait = self.random.up_to(SECOND);
        self.wait(at, Thread::Main, wait);
    }

    /// Ends a process. Another one starts soon.
    fn exit(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        replica.life += 1;
        replica.phase = Phase::Looking;
        replica.flights = [None, None];
        let wait = self.random.up_to(2 * SECOND);
        self.at(wait, Happening::Starts(at));
    }

    fn send(&mut self, at: usize, thread: Thread, sent: Sent, timeout: Micros) {
        let now = self.local_now(at);
        self.next += 1;
        let number = self.next;
        let replica = &mut self.replicas[at];
        if replica.flights[thread as usize].is_some() {
            return;
        }
        replica.flights[thread as usize] = Some(Flight { number, sent: now });
        let second = now.elapsed.as_secs();
        replica.requests = match replica.requests {
            (last, count) if last == second => (second, count + 1),
            _ => (second, 1),
        };
        if replica.requests.1 > MOST_REQUESTS {
            let problem = format!(
                "a flood of requests of {} at {} µs",
                replica.identity, self.now
            );
            self.problem.get_or_insert(problem);
        }
        let (life, cut) = (replica.life, replica.partitioned_until > self.now);
        let is_election = thread == Thread::Election;
        let is_refused = is_election && replica.refused_until > self.now;
        let hangs = is_election && !cut && !is_refused && mem::take(&mut replica.hangs_next);
        if is_refused {
            let delay = self.random.up_to(self.delay);
            let answered = Local::Answered(thread, number, Err(refused(503)));
            self.at_local(at, delay, answered);
        } else if hangs {
            let renew = self.times.renew_deadline.as_micros() as Micros;
            let delay = self.random.up_to(renew);
            self.at(delay, Happening::Arrives(at, life, thread, number, sent));
            self.pause_process(at, delay + self.delay + 1);
        } else if !cut && !self.random.chance(self.loss) {
            // One of several servers hangs.
            let is_late = self.now < FAULTS_END && self.random.chance(0.03);
            let longest = match is_late {
                true => 20 * SECOND,
                false => self.delay,
            };
            let delay = self.random.up_to(longest);
            self.at(delay, Happening::Arrives(at, life, thread, number, sent));
        }
        self.at_local(at, timeout, Local::TimesOut(thread, number));
    }

    fn arrives(&mut self, at: usize, life: u64, thread: Thread, number: u64, sent: &Sent) {
        let current = |world: &Self, name: &str| world.leases.get(name).map(|of| of.0.clone());
        let response = match sent {
            Sent::List => {
                let labelled = self.leases.iter().filter(|(_, (_, labelled))| *labelled);
                let leases = labelled.map(|(name, (lease, _))| (name.clone(), lease.clone()));
                Ok(Response::List(leases.collect()))
            }
            Sent::Get(name) => match current(self, name) {
                Some(lease) => Ok(Response::Lease(lease)),
                None => Err(refused(404)),
            },
            Sent::Create(name, record) => match current(self, name) {
                Some(_) => Err(refused(409)),
                None => Ok(Response::Lease(self.write(name, record.clone(), true))),
            },
            Sent::Update(name, record, last) => match current(self, name) {
                Some(lease) if lease.resource_version == last.resource_version => {
                    Ok(Response::Lease(self.write(name, record.clone(), true)))
                }
                Some(_) => Err(refused(409)),
                None => Err(refused(404)),
            },
        };
        let cut = self.replicas[at].partitioned_until > self.now;
        if !cut && !self.random.chance(self.loss) {
            let delay = self.random.up_to(self.delay);
            let answered = Local::Answered(thread, number, response);
            self.at(delay, Happening::Local(at, life, answered));
        }
    }

    fn write(&mut self, name: &str, record: Record, labelled: bool) -> Lease {
        self.version += 1;
        let lease = Lease {
            uid: name.to_owned(),
            resource_version: self.version.to_string(),
            record,
            object: String::new(),
        };
        self.leases
            .insert(name.to_owned(), (lease.clone(), labelled));
        lease
    }

    fn answered(
        &mut self,
        at: usize,
        thread: Thread,
        number: u64,
        response: Result<Response, Error>,
    ) {
        let flight = &mut self.replicas[at].flights[thread as usize];
        let Some(flight) = flight.take_if(|flight| flight.number == number) else {
            return;
        };
        match (thread, response) {
            (Thread::Main, Ok(Response::List(leases))) => self.listed(at, leases),
            (Thread::Main, _) => self.not_listed(at),
            (Thread::Election, Ok(Response::Lease(lease))) => {
                self.election_answered(at, &flight, Ok(lease));
            }
            (Thread::Election, Ok(Response::List(_))) => unreachable!("the election lists nothing"),
            (Thread::Election, Err(error)) => self.election_answered(at, &flight, Err(error)),
        }
    }

    fn listed(&mut self, at: usize, leases: BTreeMap<String, Lease>) {
        let now = self.local_now(at).elapsed;
        let random = self.random.next();
        let replica = &mut self.replicas[at];
        replica.listed = leases.keys().cloned().collect();
        replica.seen.list(leases, now);
        replica.view = replica.seen.view();
        let is_unchecked = self.mutant == Mutant::LeadsAgainUnchecked && replica.cached.is_some();
        let is_alone = replica.view.other.is_none() || is_unchecked;
        let cached = replica
            .cached
            .filter(|_| self.mutant != Mutant::LeadsAgainElsewhere);
        match &mut replica.phase {
            // Another replica has the shard of the caches.
            Phase::Looking if cached.is_some_and(|own| !replica.view.free.contains(&own)) => {
                self.exit(at);
            }
            Phase::Looking if is_alone && !replica.view.free.is_empty() => {
                let free = &replica.view.free;
                let any = free[random as usize % free.len()];
                replica.shard = cached.unwrap_or(any);
                replica.phase = Phase::Claiming;
                let name = lease_name(replica.division, replica.shard);
                let observation = replica.seen.observation(&name).cloned();
                let identity = replica.identity.clone();
                let mut steps = self.steps(&identity);
                if let Some(observation) = observation {
                    steps.observe(observation);
                }
                self.replicas[at].steps = steps;
                self.proceed(at);
            }
            Phase::Looking => self.pause(at, 0.2),
            Phase::Checking if is_alone => {
                let lease = lease_name(replica.division, replica.shard);
                let acquired = replica.steps.term().unwrap().id.acquire_time;
                let own = TermOrder::new(acquired, &lease);
                replica.phase = Phase::Working(Rivalry::new(own));
                let cached = *replica.cached.get_or_insert(replica.shard);
                if cached != replica.shard {
                    let problem = format!("{} has the caches of shard {cached}", replica.summary());
                    self.problem.get_or_insert(problem);
                }
                self.observe_later(at);
            }
            Phase::Checking => self.release(at, AfterRelease::Look(2.0)),
            Phase::Working(rivalry) => {
                let yields = rivalry.yields_to(&replica.view).is_some();
                if yields && self.mutant != Mutant::NoRivalry {
                    replica.steps.end_term();
                    self.drain(at);
                } else {
                    self.observe_later(at);
                }
            }
            Phase::Claiming | Phase::Draining | Phase::Releasing(_) => {}
        }
    }

    fn not_listed(&mut self, at: usize) {
        match self.replicas[at].phase {
            Phase::Looking | Phase::Checking => self.pause(at, 0.2),
            Phase::Working(_) => self.observe_later(at),
            Phase::Claiming | Phase::Draining | Phase::Releasing(_) => {}
        }
    }

    fn observe_later(&mut self, at: usize) {
        let replica = &self.replicas[at];
        let lease_duration = self.times.lease_duration;
        let period = replica
            .view
            .period(COUNTS[replica.division], lease_duration);
        let period = period.mul_f64(1.0 + 0.2 * self.random.unit());
        self.wait_local(at, Thread::Main, period);
    }

    /// Does what is next in the election.
    fn proceed(&mut self, at: usize) {
        let now = self.local_now(at);
        let replica = &mut self.replicas[at];
        if replica.flights[Thread::Election as usize].is_some() {
            return;
        }
        if replica.steps.term().is_some_and(|term| term.expire(now)) {
            self.drain(at);
        }
        let replica = &mut self.replicas[at];
        let lease = lease_name(replica.division, replica.shard);
        match (replica.steps.next(now), &replica.phase) {
            (Next::Wait(wait), _) => self.wait_local(at, Thread::Election, wait),
            (Next::Send(request, limit), _) => {
                let sent = match *request {
                    Request::Get => Sent::Get(lease),
                    Request::Create(record) => Sent::Create(lease, record),
                    Request::Update(record, last) => Sent::Update(lease, record, last),
                };
                let limit = self.true_time(at, limit);
                self.send(at, Thread::Election, sent, limit);
            }
            (Next::Idle, Phase::Releasing(AfterRelease::Exit)) => self.exit(at),
            (Next::Idle, Phase::Releasing(AfterRelease::Look(jitter))) => {
                let jitter = *jitter;
                replica.phase = Phase::Looking;
                self.pause(at, jitter);
            }
            (Next::Idle, Phase::Releasing(AfterRelease::LeadAgain)) => {
                replica.phase = Phase::Looking;
                self.wait(at, Thread::Main, 0);
            }
            (Next::Idle, _) => {}
        }
    }

    fn election_answered(&mut self, at: usize, flight: &Flight, response: Result<Lease, Error>) {
        let now = self.local_now(at);
        let applied = match self.mutant {
            Mutant::LateAnswer => flight.sent,
            _ => now,
        };
        let replica = &mut self.replicas[at];
        let event = replica
            .steps
            .answer(flight.sent, applied, response.as_ref());
        let is_valid = replica.steps.term().is_some_and(|term| term.is_valid(now));
        match (event, &replica.phase) {
            (Event::Acquired(_), Phase::Claiming) if is_valid => {
                replica.phase = Phase::Checking;
                self.wait(at, Thread::Main, 0);
                self.at_local(at, 0, Local::Watches);
            }
            (Event::Acquired(_), _) => self.release(at, AfterRelease::Look(2.0)),
            (Event::Lost, _) => self.drain(at),
            (Event::Failed, Phase::Claiming) => {
                self.not_free(at);
                self.release(at, AfterRelease::Look(0.2));
            }
            _ => {}
        }
        self.proceed(at);
    }

    /// Remembers the Lease that a replica could not take.
    fn not_free(&mut self, at: usize) {
        let replica = &mut self.replicas[at];
        let name = lease_name(replica.division, replica.shard);
        let is_forgotten = self.mutant == Mutant::ForgetsReads && !replica.listed.contains(&name);
        if let Some(observation) = replica.steps.observed().filter(|_| !is_forgotten) {
            replica.seen.add(name, observation.clone());
        }
    }

    /// Stops the work of a term that has ended.
    fn drain(&mut self, at: usize) {
        match self.replicas[at].phase {
            Phase::Checking => self.release(at, AfterRelease::Look(2.0)),
            Phase::Working(_) => {
                self.replicas[at].phase = Phase::Draining;
                let longest = match self.random.chance(0.2) {
                    true => 20 * SECOND,
                    false => SECOND / 2,
                };
                let work = self.random.up_to(longest);
                self.at_local(at, work, Local::Joined);
            }
            Phase::Looking | Phase::Claiming | Phase::Draining | Phase::Releasing(_) => {}
        }
    }

    fn release(&mut self, at: usize, then: AfterRelease) {
        let now = self.local_now(at);
        let replica = &mut self.replicas[at];
        // The end of the work ends a request, which the server may carry out.
        if let Some(flight) = replica.flights[Thread::Election as usize].take() {
            let ended = refused(500);
            replica.steps.answer(flight.sent, now, Err(&ended));
        }
        replica.flights[Thread::Main as usize] = None;
        replica.plans[Thread::Main as usize] += 1;
        replica.phase = Phase::Releasing(then);
        replica.steps.release(now);
        self.proceed(at);
    }

    fn watch(&mut self, at: usize) {
        let now = self.local_now(at);
        let replica = &mut self.replicas[at];
        let Some(term) = replica.steps.term() else {
            return;
        };
        if term.expire(now) {
            return self.drain(at);
        }
        if let Some(left) = term.left(now) {
            let wait = self.true_time(at, left.min(2 * self.times.retry_period));
            self.at_local(at, wait, Local::Watches);
        }
    }

    fn stop(&mut self, at: usize) {
        self.replicas[at].is_stopped = true;
        match self.replicas[at].phase {
            Phase::Looking => self.exit(at),
            Phase::Claiming | Phase::Checking => self.release(at, AfterRelease::Exit),
            Phase::Working(_) => self.drain(at),
            Phase::Draining => {}
            Phase::Releasing(_) => self.replicas[at].phase = Phase::Releasing(AfterRelease::Exit),
        }
    }

    /// Returns the replicas that work while they are certain of their shard.
    fn working(&mut self) -> Vec<usize> {
        let now = self.now;
        let works = |(_, replica): &mut (usize, &mut Replica)| {
            let local = replica.clock.now(now);
            matches!(replica.phase, Phase::Working(_) | Phase::Draining)
                && replica.paused_until <= now
                && replica
                    .steps
                    .term()
                    .is_some_and(|term| term.is_valid(local))
        };
        let replicas = self.replicas.iter_mut().enumerate();
        replicas
            .filter_map(|mut of| works(&mut of).then_some(of.0))
            .collect()
    }

    /// Checks that no two replicas have the same objects.
    fn compare(&mut self) {
        let working = self.working();
        let before = mem::take(&mut self.together);
        for (index, first) in working.iter().enumerate() {
            for second in &working[index + 1..] {
                let [a, b] = [*first, *second].map(|at| &self.replicas[at]);
                if a.division == b.division && a.shard != b.shard {
                    continue;
                }
                let since = *before.get(&(*first, *second)).unwrap_or(&self.now);
                self.together.insert((*first, *second), since);
                let lease = self.times.lease_duration.as_micros() as Micros;
                let limit = match a.was_frozen || b.was_frozen {
                    true => 2 * lease + 3 * LIST_TIMEOUT,
                    false => 0,
                };
                if self.now - since >= limit {
                    let problem = format!(
                        "{} and {} work since {since} µs, at {} µs",
                        a.identity, b.identity, self.now
                    );
                    self.problem.get_or_insert(problem);
                }
            }
        }
    }

    /// Checks that a long time without faults has given each shard a holder.
    fn check_end(&mut self) {
        let working = self.working();
        for shard in 0..COUNTS[self.target] {
            let has_shard = |at: &usize| {
                let replica = &self.replicas[*at];
                (replica.division, replica.shard) == (self.target, shard)
            };
            if !working.iter().any(has_shard) {
                let phases = self.replicas.iter().map(Replica::summary);
                let phases = phases.collect::<Vec<_>>().join(", ");
                let problem = format!("shard {shard} has no holder: {phases}");
                self.problem.get_or_insert(problem);
            }
        }
    }

    fn fault(&mut self) {
        if self.now > FAULTS_END {
            // The last rollout has reached all. Nothing fails from now on.
            for at in 0..REPLICAS {
                self.replicas[at].hangs_next = false;
                if self.replicas[at].division != self.target {
                    self.at_local(at, 0, Local::Stops);
                }
            }
            self.loss = 0.0;
            return;
        }
        let fault = self.random.up_to(6);
        // A rollout with a fault takes some time.
        let again = match fault {
            4 | 5 => 30 * SECOND + self.random.up_to(30 * SECOND),
            _ => self.random.up_to(12 * SECOND),
        };
        self.at(again, Happening::Fault);
        let at = self.random.index(REPLICAS);
        let duration = self.random.up_to(25 * SECOND);
        match fault {
            0 => self.replicas[at].partitioned_until = self.now + duration,
            1 => self.pause_process(at, duration),
            2 => self.exit(at),
            3 => self.roll_out(None),
            // A replica is paused for longer than its Lease is valid, while others are replaced.
            4 => {
                let lease = self.times.lease_duration.as_micros() as Micros;
                self.pause_process(at, lease + duration);
                self.roll_out(Some(at));
            }
            // The other division waits for this replica when its renewals fail.
            5 => {
                self.roll_out(Some(at));
                self.at(duration, Happening::Outage(at));
            }
            _ => self.strip_label(),
        }
    }

    fn pause_process(&mut self, at: usize, duration: Micros) {
        let is_suspended = self.random.chance(0.5);
        let replica = &mut self.replicas[at];
        if replica.paused_until > self.now {
            return;
        }
        replica.paused_until = self.now + duration;
        match self.pauses {
            Pauses::Clocks => {
                replica.clock.wall_lag += duration;
                replica.clock.monotonic_lag += duration;
                replica.was_frozen = true;
            }
            Pauses::Process if is_suspended => replica.clock.monotonic_lag += duration,
            Pauses::Process => {}
        }
        self.at(duration, Happening::Resumes);
    }

    /// Replaces the replicas by those of the other division, except for one, whose node hangs.
    fn roll_out(&mut self, except: Option<usize>) {
        self.target = 1 - self.target;
        for at in (0..REPLICAS).filter(|at| Some(*at) != except) {
            let after = self.random.up_to(8 * SECOND);
            self.at_local(at, after, Local::Stops);
        }
    }

    /// The Lease of a killed replica loses its label.
    fn strip_label(&mut self) {
        let is_alive = |holder: &str| self.replicas.iter().any(|of| of.identity == holder);
        let dead = self.leases.iter().find(|(_, (lease, labelled))| {
            let holder = lease.record.holder.as_deref();
            *labelled && holder.is_some_and(|holder| !is_alive(holder))
        });
        if let Some((name, (lease, _))) = dead {
            let (name, record) = (name.clone(), lease.record.clone());
            self.write(&name, record, false);
        }
    }
}

fn first_problem(pauses: Pauses, mutant: Mutant, seeds: u64) -> Option<(u64, String)> {
    (0..seeds).find_map(|seed| problem(seed, pauses, mutant).map(|problem| (seed, problem)))
}

fn seeds() -> u64 {
    let seeds = std::env::var("SEEDS");
    seeds.map_or(200, |seeds| seeds.parse().unwrap())
}

#[test]
fn no_two_divisions_work_at_one_time() {
    assert_eq!(first_problem(Pauses::Process, Mutant::None, seeds()), None);
}

#[test]
fn paused_clocks_leave_one_division_at_work() {
    assert_eq!(first_problem(Pauses::Clocks, Mutant::None, seeds()), None);
}

/// The simulation is strong enough to find the faults that were there.
#[test]
fn planted_faults_are_found_in_shards() {
    for (pauses, mutant, within) in [
        (Pauses::Process, Mutant::LateAnswer, 500),
        (Pauses::Clocks, Mutant::NoRivalry, 500),
        (Pauses::Process, Mutant::ForgetsReads, 200),
        (Pauses::Process, Mutant::LeadsAgainUnchecked, 500),
        (Pauses::Process, Mutant::LeadsAgainElsewhere, 200),
    ] {
        let found = first_problem(pauses, mutant, within);
        assert!(
            found.is_some(),
            "{mutant:?} was not found in {within} seeds"
        );
    }
}

//! Replicas that divide the objects, on a real API server while everything breaks.
//!
//! The program starts etcd, kube-apiserver and six replicas, each a process with a proxy of its
//! own. The replicas divide ConfigMaps of twenty namespaces into four shards. Each reconcile call
//! creates a Secret with a generated name, the *child*, unless the cache has one. Writers without a
//! proxy change ConfigMaps, and create others before each fault. In each round, one or two replicas
//! are killed, paused for longer than a lease, partitioned, or restarted, or the API server is
//! killed. In the middle, all replicas are replaced one by one by replicas that divide the objects
//! into five shards. From then on, one replica has a fault at a time, because there is only one
//! spare one.
//!
//! The replicas report calls, caches, and when they certainly have a shard. At the end, these rules
//! are checked:
//!
//! - No two calls for one object overlap while `ensure` succeeds in both. No two replicas have a
//!   shard with the same objects at one time, even if they divide them in different ways.
//! - Each object has exactly one child, and at most one more for each create with an unknown
//!   outcome: the process was killed, the response was lost, or the replica had lost its shard
//!   before it got the response.
//! - A call of a holder sees each change within the lease duration, 2.2 retry periods, 3 seconds,
//!   the time of the first lists of the holder, and the time in the queue. While the API server is
//!   down, while the holder has no watch because it lists again, and while replicas of one division
//!   are too few and wait for the end of the other, the time stands still. It starts again if a
//!   replica loses its shard without a fault, on a busy machine.
//! - No shard has no holder for longer than the lease duration, 2.2 retry periods and 3 seconds.
//! - The caches of each replica are the server's lists for its shard, and those of a spare one are
//!   empty. Each of the five Leases has a holder.
//! - By namespace and from 10,000 objects on, the memory of the largest of four new replicas is at
//!   most 1.3 quarters of that of one process with all objects, plus 5 MB. Mapped files do not count.
//!
//! ```sh
//! export KUBEBUILDER_ASSETS=… # the folder with etcd and kube-apiserver
//! cargo run --release -p chaos -- shards --gate on --seconds 900 --objects 20000
//! ```
//!
//! | option | default | |
//! |---|---|---|
//! | `--objects N` | 1000 | ConfigMaps; half of them are created before the first fault |
//! | `--seconds N` | 60 | the time of faults, divided by the number of runs; each run goes on until each fault has happened |
//! | `--gate NAME` | `both` | the feature gate `ShardedListAndWatch` of the API server: `on`, `off`, or a run for each |
//! | `--by NAME` | `uid` with the gate, `namespace` without | how the objects are divided |
//! | `--seed N` | random | seeds writes and faults; processes and threads still race |
//!
//! The program prints a line for each round, and figures at the end. It exits with 1 if a rule is
//! violated. Without the binaries it prints a line and exits with 0.

mod fleet;
mod history;
mod process;
mod protocol;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer_controller::ShardBy;

use self::fleet::{Feed, Fleet};
use self::history::check_caches;
pub(crate) use self::process::main as replica;
use self::protocol::{Caches, Child, NAME, NAMESPACE, Primary};
use self::world::World;
use crate::options::{Argument, check_objects, random_seed};
use crate::random::Random;
use crate::server::{Server, send};
use crate::timing::{LEASE, Micros, now};

const REPLICAS: usize = 6;

/// The numbers of shards before and after the change.
const COUNTS: [u32; 2] = [4, 5];

/// The maximum time until something must happen. It includes that the machine is busy.
const PATIENCE: Duration = Duration::from_secs(180);

/// A change is old if no call has seen it for so many microseconds.
const OLD: Micros = 500_000;

/// A shard has a holder if it was reported within so many microseconds.
const RECENT: Micros = 500_000;

/// The maximum time until the caches are current while nothing is written.
const CACHES: Duration = Duration::from_secs(60);

/// The memory of fewer objects is too small to be compared.
const COMPARABLE: usize = 10_000;

/// The memory of a replica without objects, in kilobytes.
const BASE: u64 = 5 << 10;

struct Options {
    objects: usize,
    seconds: u64,
    gate: Option<bool>,
    by: Option<ShardBy>,
    seed: u64,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            objects: 1000,
            seconds: 60,
            gate: None,
            by: None,
            seed: random_seed(),
        };
        for argument in Argument::all(arguments)? {
            match (argument.name, argument.value) {
                ("--objects", _) => options.objects = argument.number()?,
                ("--seconds", _) => options.seconds = argument.number()?,
                ("--seed", _) => options.seed = argument.number()?,
                ("--gate", "both") => options.gate = None,
                ("--gate", "on") => options.gate = Some(true),
                ("--gate", "off") => options.gate = Some(false),
                ("--by", "uid") => options.by = Some(ShardBy::Uid),
                ("--by", "namespace") => options.by = Some(ShardBy::Namespace),
                _ => return argument.unknown(),
            }
        }
        check_objects(options.objects)?;
        Ok(options)
    }
}

/// Returns whether no rule was violated.
pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let gates = options.gate.map_or(vec![true, false], |gate| vec![gate]);
    let time = Duration::from_secs(options.seconds) / gates.len() as u32;
    let mut has_failed = false;
    for gate in gates {
        let by = options.by.unwrap_or(match gate {
            true => ShardBy::Uid,
            false => ShardBy::Namespace,
        });
        let gates = format!("ShardedListAndWatch={gate}");
        let Some(server) = Server::start_with(gate.then_some(&gates)) else {
            continue;
        };
        let (seed, at) = (options.seed, jiff::Timestamp::now());
        println!("chaos shards: seed {seed}, {gates}, by {by:?}, {at}");
        let mut shards = Shards::start(server, by, options.objects, options.seed);
        shards.run(time);
        has_failed |= !shards.finish();
    }
    Ok(!has_failed)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    Kill,
    Pause,
    /// The proxy closes connections, drops all bytes, or drops those of the server.
    Partition,
    Restart,
    ServerDown,
}

impl Fault {
    const ALL: [Self; 5] = [
        Self::Kill,
        Self::Pause,
        Self::Partition,
        Self::Restart,
        Self::ServerDown,
    ];
}

struct Shards {
    // Dropped before the server.
    fleet: Fleet,
    world: Arc<World>,
    feed: Arc<Feed>,
    server: Server,
    by: ShardBy,
    objects: usize,
    random: Random,
    began: Instant,
    /// The present number of shards.
    count: u32,
    /// The faults that are next.
    bag: Vec<Fault>,
    faults: BTreeMap<Fault, usize>,
    /// The violations of the final state.
    found: Vec<String>,
}

impl Shards {
    fn start(server: Server, by: ShardBy, objects: usize, seed: u64) -> Self {
        let random = Random::new(seed);
        let feed = Arc::<Feed>::default();
        let world = World::new(server.client(), random.fork(), &feed);
        Self {
            fleet: Fleet::new(&server, by, REPLICAS, &random, &feed),
            world: Arc::new(world),
            feed,
            server,
            by,
            objects,
            random,
            began: Instant::now(),
            count: COUNTS[0],
            bag: Vec::new(),
            faults: BTreeMap::new(),
            found: Vec::new(),
        }
    }

    fn log(&self, what: &str) {
        println!("{:8.1} {what}", self.began.elapsed().as_secs_f64());
    }

    fn run(&mut self, time: Duration) {
        let started = now();
        (0..REPLICAS).for_each(|at| self.fleet.launch(at, self.count));
        self.world.grow(self.objects / 2);
        let writers = self.world.start();
        self.settle("the start");
        let began = Instant::now();
        let [first, second] = COUNTS;
        for round in 0.. {
            if began.elapsed() >= time / 2 && round >= 2 {
                break;
            }
            self.round(began.elapsed().as_secs_f64() / time.as_secs_f64(), 2);
        }
        let (from, until) = self.change_count(second);
        self.feed.lock().history.division(first, started, from);
        self.settle("the change of the number of shards");
        while began.elapsed() < time || self.faults.len() < Fault::ALL.len() {
            self.round(began.elapsed().as_secs_f64() / time.as_secs_f64(), 1);
        }
        self.world.grow(self.objects);
        self.settle("the last objects");
        self.world.end();
        for writer in writers {
            writer.join().expect("a writer");
        }
        self.settle("the last changes");
        self.feed.lock().history.division(second, until, now());
        self.check_end();
        self.compare_memory();
    }

    /// Waits, and starts processes in place of those that have ended.
    fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.fleet.tend();
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn wait_random(&mut self, milliseconds: usize) {
        let time = self.random.below(milliseconds) as u64;
        self.wait(Duration::from_millis(time));
    }

    /// Waits for a condition. Returns whether it is met in time.
    fn wait_until(&mut self, what: &str, condition: impl Fn(&Self) -> bool) -> bool {
        let began = Instant::now();
        while !condition(self) {
            if began.elapsed() > PATIENCE {
                self.found.push(format!("not within {PATIENCE:?}: {what}"));
                return false;
            }
            self.wait(Duration::from_millis(50));
        }
        true
    }

    /// Waits until all shards have a holder, all objects exist, and no change is old.
    fn settle(&mut self, what: &str) {
        let (began, since) = (Instant::now(), now());
        self.wait_until(what, |shards| {
            let history = &shards.feed.lock().history;
            let pending = history.oldest_pending();
            history.held(shards.count, since) == shards.count as usize
                && pending.is_none_or(|at| at > now() - OLD)
                && shards.world.is_complete()
        });
        self.log(&format!("{what}: settled after {:.1?}", began.elapsed()));
    }

    /// Runs one fault, or two at once, and waits until everything is in order. `progress` is the
    /// part of the time that is over.
    fn round(&mut self, progress: f64, faults: usize) {
        let objects = self.objects as f64 * (0.55 + progress / 2.0);
        self.world.grow(self.objects.min(objects as usize));
        self.wait_random(500);
        let (mut victims, mut began) = (Vec::new(), Vec::new());
        while victims.len() < faults {
            if self.bag.is_empty() {
                self.bag = Fault::ALL.to_vec();
            }
            let fault = self.bag.swap_remove(self.random.below(self.bag.len()));
            *self.faults.entry(fault).or_default() += 1;
            if fault == Fault::ServerDown {
                self.server_down();
                began.push("ServerDown".to_owned());
                break;
            }
            let at = self.victim(&victims);
            self.begin(fault, at);
            let at_time = self.began.elapsed().as_secs_f64();
            began.push(format!(
                "{fault:?} of process {} at {at_time:.1}",
                self.fleet.number(at)
            ));
            victims.push((at, fault));
            self.wait_random(500);
        }
        let longer = |(_, fault): &(usize, Fault)| matches!(fault, Fault::Pause | Fault::Partition);
        if victims.iter().any(longer) {
            self.wait(LEASE);
            self.wait_random(3000);
        }
        for (at, fault) in &victims {
            match fault {
                Fault::Kill | Fault::Restart => self.fleet.launch(*at, self.count),
                Fault::Pause => self.fleet.signal(*at, "-CONT"),
                _ => self.fleet.proxy(*at).heal(),
            }
        }
        self.settle(&began.join(", "));
    }

    /// Selects a replica, more often one with a shard.
    fn victim(&self, others: &[(usize, Fault)]) -> usize {
        loop {
            let at = self.random.below(REPLICAS);
            let number = self.fleet.number(at);
            let shard = self.feed.lock().history.shard_of(number, now() - RECENT);
            let is_other = others.iter().all(|(other, _)| *other != at);
            if is_other && (shard.is_some() || self.random.one_in(4)) {
                return at;
            }
        }
    }

    fn begin(&mut self, fault: Fault, at: usize) {
        self.feed.lock().history.fault(self.fleet.number(at));
        match fault {
            Fault::Kill => self.fleet.kill(at),
            Fault::Restart => self.fleet.stop(at),
            Fault::Pause => self.fleet.signal(at, "-STOP"),
            Fault::Partition => match self.random.below(3) {
                0 => self.fleet.proxy(at).set_down(true),
                1 => self.fleet.proxy(at).silence(),
                _ => self.fleet.proxy(at).deafen(),
            },
            Fault::ServerDown => {}
        }
    }

    fn server_down(&mut self) {
        let from = now();
        self.server.kill_api();
        self.wait_random(3000);
        // The server works before it is ready.
        let mut until = None;
        thread::scope(|scope| {
            let up = scope.spawn(|| self.server.up());
            while !up.is_finished() {
                self.fleet.tend();
                if until.is_none() && self.world.is_up() {
                    until = Some(now());
                }
                thread::sleep(Duration::from_millis(20));
            }
        });
        self.feed
            .lock()
            .history
            .outage(from, until.unwrap_or_else(now));
    }

    /// Replaces the replicas one by one. Returns from when on the old ones were too few, and when
    /// the last one has ended.
    fn change_count(&mut self, count: u32) -> (Micros, Micros) {
        let mut from = now();
        for at in 0..REPLICAS {
            if REPLICAS - at == self.count as usize {
                from = now();
            }
            self.fleet.stop(at);
            if at + 1 < REPLICAS {
                self.fleet.launch(at, count);
                self.wait_random(1000);
            }
        }
        let until = now();
        self.fleet.launch(REPLICAS - 1, count);
        self.feed.lock().history.outage(from, until);
        self.count = count;
        (from, until)
    }

    /// Compares the final state with the server.
    fn check_end(&mut self) {
        let (Some(primaries), Some(children)) = (
            self.world.list::<Primary>(true),
            self.world.list::<Child>(false),
        ) else {
            return self.found.push("the server does not respond".to_owned());
        };
        let reports = self.feed.lock();
        let (found, excused) = reports.history.check_children(&primaries, &children);
        drop(reports);
        self.log(&format!(
            "{} objects, {} children",
            primaries.len(),
            children.len()
        ));
        excused.iter().for_each(|line| println!("  {line}"));
        self.found.extend(found);
        let began = Instant::now();
        let found = loop {
            let caches = self.fleet.caches();
            let mut found = self.check_holders(&caches);
            for (number, caches) in caches {
                let of = check_caches((self.count, self.by), &primaries, &children, &caches);
                found.extend(of.into_iter().map(|of| format!("process {number}: {of}")));
            }
            if found.is_empty() || began.elapsed() > CACHES {
                break found;
            }
            self.wait(Duration::from_secs(1));
        };
        self.found.extend(found);
    }

    /// Each Lease has the holder that has the shard.
    fn check_holders(&self, caches: &BTreeMap<usize, Caches>) -> Vec<String> {
        let mut found = Vec::new();
        if caches.len() != REPLICAS {
            found.push(format!("only {} processes report caches", caches.len()));
        }
        let by = match self.by {
            ShardBy::Namespace => "namespace",
            ShardBy::Uid => "uid",
        };
        for shard in 0..self.count {
            let name = format!("{NAME}-{shard}-of-{}-by-{by}", self.count);
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{name}");
            let lease = send(&self.server.client(), &Request::get(path)).unwrap_or_default();
            let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default();
            let processes = caches
                .iter()
                .filter(|(_, caches)| caches.shard == Some(shard));
            let processes: Vec<_> = processes.map(|(of, _)| process::identity(*of)).collect();
            if processes != [holder] {
                found.push(format!(
                    "{name} has the holder {holder:?}, not {processes:?}"
                ));
            }
        }
        found
    }

    /// Compares the memory of four new replicas with that of one process with all objects.
    fn compare_memory(&mut self) {
        let replicas = self.memory_of(COUNTS[0], COUNTS[0] as usize);
        let single = self.memory_of(0, 1);
        let limit = (single / 4) * 13 / 10 + BASE;
        self.log(&format!(
            "memory: {replicas} kB at most for one of 4 replicas, {single} kB for one process with all objects: the \
             limit is {limit} kB"
        ));
        let is_comparable = self.by == ShardBy::Namespace && self.objects >= COMPARABLE;
        if is_comparable && replicas > limit {
            self.found
                .push(format!("a replica uses {replicas} kB of memory"));
        }
    }

    /// Returns the maximum memory of new processes that have reconciled all objects, in kilobytes.
    fn memory_of(&mut self, count: u32, processes: usize) -> u64 {
        (0..REPLICAS).for_each(|at| self.fleet.stop(at));
        let first = self.fleet.launched() + 1;
        (0..processes).for_each(|at| self.fleet.launch(at, count));
        self.wait_until("calls for all objects", |shards| {
            shards.feed.lock().history.all_called_by(first)
        });
        self.fleet.memory().into_iter().max().unwrap_or_default()
    }

    /// Prints the figures. Returns whether there are no violations.
    fn finish(mut self) -> bool {
        let mut reports = self.feed.lock();
        let history = &mut reports.history;
        history.delays.sort_unstable();
        let last = history.delays.len().saturating_sub(1);
        let delay = |percent: usize| history.delays.get(last * percent / 100).map(milliseconds);
        println!(
            "faults: {:?}, 1 change of the number of shards",
            self.faults
        );
        println!(
            "{} calls; {} changes; from a change to the call: median {:?} ms, 99 % {:?} ms, max {:?} ms",
            history.calls,
            history.delays.len(),
            delay(50).unwrap_or_default(),
            delay(99).unwrap_or_default(),
            delay(100).unwrap_or_default()
        );
        println!(
            "longest time in the queue {} ms, of the first lists of a replica {} ms, without a watch {} ms, without a \
             certain holder {} ms; outages in total {} ms",
            milliseconds(&history.queued),
            milliseconds(&history.longest_list()),
            milliseconds(&history.longest_unwatched()),
            milliseconds(&history.longest_gap()),
            milliseconds(&history.outages())
        );
        println!("creates by outcome: {:?}", history.outcomes());
        let (lost, again) = (history.losses_without_fault(), history.led_again);
        println!(
            "shards lost without a fault, on a busy machine: {lost}; taken again by their process: {again}"
        );
        let (sent, kept) = history.gated;
        println!(
            "changes of threads that ignore each stop: {sent} sent by holders, {kept} refused by gates"
        );
        self.found.extend(history.violations());
        drop(reports);
        for problem in self.found.iter().take(10) {
            println!("VIOLATION: {problem}");
            for part in problem.split("process ").skip(1) {
                let digits = part.split(|of: char| !of.is_ascii_digit()).next();
                let number = digits.and_then(|digits| digits.parse().ok());
                for line in self.feed.log(number.unwrap_or_default(), 30) {
                    println!("    {line}");
                }
            }
        }
        println!("{} violations", self.found.len());
        self.found.is_empty()
    }
}

fn milliseconds(time: &Micros) -> Micros {
    time / 1000
}

//! A controller on a real API server while everything breaks.
//!
//! The program starts etcd, kube-apiserver, and a controller in a process of its own, behind a
//! proxy that reads the requests. A primary object, a `Site`, wants one or two ConfigMaps with
//! generated names, which are its children. The controller has a finalizer, causes an effect in a
//! *cloud* that this program simulates, creates and deletes children, and writes a status. It does
//! not resync. Every tenth site also wants a Namespace named after its colour. No program finishes
//! the deletion of Namespaces, so the old ones stay in the phase `Terminating`; the site must get
//! its status all the same. The cache rejects some of the Namespaces. Meanwhile:
//!
//! - Writers without a proxy change sites, delete them, create them again under the same names, and
//!   delete children.
//! - The proxy loses requests and responses of writes, responds with an error to executed writes,
//!   and cuts all connections.
//! - The controller is killed after the server has added the finalizer, created a child or removed
//!   the finalizer, and after the cloud has executed the effect or the cleanup, before the
//!   controller gets the response. Often, the interrupted site is deleted before the next start.
//! - The API server is killed with `kill -9` and started again.
//! - The watch of the children of one namespace stalls, while sites of this namespace change. Sites
//!   of another namespace must still get their status.
//!
//! At the end, the program waits until every object has the desired state, and then checks:
//!
//! - Every site has its children, its status, its effect and its Namespace.
//! - Every deleted site is gone, the cloud has cleaned up, and no children are left. No garbage
//!   collector runs. A child from a create with an unknown outcome may be left. Half of the deletions
//!   let the server lose a finalizer that is added at that moment; only if the controller was killed
//!   after such a deletion, something may be left.
//! - No site has more creates than it wanted, except for children that the writers deleted and for
//!   creates with an unknown outcome. A create before a kill has a known outcome: the next process
//!   must find it. The proxy counts the creates by the UID of the owner.
//! - Each create names the children that the call has seen. They include all children from earlier
//!   creates with a known outcome, except those whose deletion was requested.
//! - After a create, the next call for the same site comes within a second, although the informers
//!   also have a namespace in which nothing changes.
//!
//! ```sh
//! export KUBEBUILDER_ASSETS=… # the folder with etcd and kube-apiserver
//! cargo run --release -p chaos -- controllers --objects 10000 --seconds 300
//! ```
//!
//! | option | default | |
//! |---|---|---|
//! | `--objects N` | 300 | sites |
//! | `--seconds N` | 10 | goes on until `N` seconds have passed and each disturbance has happened |
//! | `--settle N` | 120 | seconds until every object has the desired state |
//! | `--workers N` | 8 | workers of the controller |
//! | `--seed N` | random | seeds writes and faults; processes and threads still race |
//! | `--mutant NAME` | `none` | breaks the controller, so the program must fail: `own-writes` does not record the writes of children, `finalizer` adds the finalizer after the effect |
//!
//! The program prints a line for each disturbance, and figures at the end. It exits with 1 if a
//! rule is violated. Without the binaries it prints a line and exits with 0.

mod check;
mod cloud;
mod ledger;
mod process;
mod relay;
mod site;
mod supervisor;
mod world;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use self::check::{Found, Violation};
use self::ledger::Ledger;
pub(crate) use self::process::main as controller;
use self::relay::Relay;
use self::site::{NAMESPACES, Point};
use self::supervisor::Supervisor;
use self::world::World;
use crate::options::{Argument, check_objects, random_seed};
use crate::random::Random;
use crate::server::Server;

/// The maximum time until a call reaches a point where the controller is to be killed.
const TRAP: Duration = Duration::from_secs(30);

/// The maximum time until a new process has worked through its queue.
const BACKLOG: Duration = Duration::from_secs(300);

/// The maximum time until a site gets its status while the watch of another namespace stalls.
const PROGRESS: Duration = Duration::from_secs(60);

/// The minimum length of a stall. It is longer than the controller waits after an unknown outcome.
const STALL: Duration = Duration::from_secs(4);

/// The maximum time from the response of a create to the next call, in the middle of all times.
const DELAY: Duration = Duration::from_secs(1);

/// The maximum time of a stop.
const STOP: Duration = Duration::from_secs(20);

/// The number of sites that are changed while the watch of their children stalls.
const STALLED: usize = 10;

/// The number of times from a create to the next call that are measured without disturbances.
const PROBES: usize = 30;

struct Options {
    objects: usize,
    seconds: u64,
    settle: Duration,
    workers: usize,
    seed: u64,
    mutant: String,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            objects: 300,
            seconds: 10,
            settle: Duration::from_secs(120),
            workers: 8,
            seed: random_seed(),
            mutant: "none".to_owned(),
        };
        for argument in Argument::all(arguments)? {
            match argument.name {
                "--objects" => options.objects = argument.number()?,
                "--seconds" => options.seconds = argument.number()?,
                "--settle" => options.settle = Duration::from_secs(argument.number()?),
                "--workers" => options.workers = argument.number()?,
                "--seed" => options.seed = argument.number()?,
                "--mutant" => {
                    options.mutant = argument.one_of(&["none", "own-writes", "finalizer"])?;
                }
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
    let Some(server) = Server::start() else {
        return Ok(true);
    };
    println!("chaos controllers: seed {}", options.seed);
    let mut controllers = Controllers::start(options, server);
    controllers.run();
    Ok(controllers.finish())
}

#[derive(Clone, Copy)]
enum Disturbance {
    Kill(Point),
    ServerRestart,
    Stall,
    Cut,
}

struct Controllers {
    // Dropped before the server.
    supervisor: Arc<Supervisor>,
    relay: Relay,
    ledger: Arc<Ledger>,
    world: Arc<World>,
    server: Server,
    random: Random,
    options: Options,
    began: Instant,
    /// The arguments of the controller's process.
    arguments: Vec<String>,
    /// How often the controller was killed at each point.
    kills: BTreeMap<Point, usize>,
    missed_traps: usize,
    server_restarts: usize,
    /// The times until a site got its status during a stall.
    progress: Vec<Duration>,
    violations: Vec<Violation>,
}

impl Controllers {
    fn start(options: Options, server: Server) -> Self {
        let random = Random::new(options.seed);
        let ledger = Arc::new(Ledger::new());
        let supervisor = Arc::new(Supervisor::default());
        let tls = Arc::new(crate::tls(&server));
        let relay = Relay::start(server.port(), tls, random.fork(), &ledger, &supervisor);
        let cloud = cloud::start(&ledger, &supervisor);
        let world = World::new(server.client(), random.fork(), &ledger, options.objects);
        let arguments = vec![
            relay.url(),
            cloud.to_string(),
            options.workers.to_string(),
            options.mutant.clone(),
        ];
        supervisor.launch(&arguments);
        Self {
            supervisor,
            relay,
            ledger,
            world: Arc::new(world),
            server,
            random,
            options,
            began: Instant::now(),
            arguments,
            kills: BTreeMap::new(),
            missed_traps: 0,
            server_restarts: 0,
            progress: Vec::new(),
            violations: Vec::new(),
        }
    }

    fn log(&self, what: &str) {
        println!("{:8.1} {what}", self.began.elapsed().as_secs_f64());
    }

    /// Runs disturbances, waits until nothing changes any more, and checks.
    fn run(&mut self) {
        let writers = self.world.start();
        while self.world.counts.total() < (self.options.objects as u64 / 2).min(2000) {
            thread::sleep(Duration::from_millis(100));
        }
        let end = Duration::from_secs(self.options.seconds);
        loop {
            self.relay.disturb(self.random.pick(&[5, 20, 50]));
            let kills = Point::ALL.map(Disturbance::Kill);
            let mut all: Vec<_> = kills.into_iter().collect();
            all.extend([
                Disturbance::ServerRestart,
                Disturbance::Stall,
                Disturbance::Cut,
            ]);
            while !all.is_empty() {
                let next = all.swap_remove(self.random.below(all.len()));
                self.disturb(next);
            }
            if self.began.elapsed() >= end {
                break;
            }
        }
        self.world.end();
        for writer in writers {
            writer.join().expect("a writer");
        }
        self.relay.disturb(0);
        self.settle();
        if self.violations.is_empty() {
            self.probe();
        }
        if self.supervisor.has_ended() {
            self.violate("the controller has ended".to_owned());
        } else if !self.supervisor.stop(STOP) {
            self.violate(format!("the controller has not stopped within {STOP:?}"));
        }
    }

    fn violate(&mut self, problem: String) {
        self.violations.push((String::new(), problem));
    }

    fn disturb(&mut self, disturbance: Disturbance) {
        if self.supervisor.has_ended() {
            self.violate("the controller has ended".to_owned());
            self.supervisor.launch(&self.arguments);
        }
        match disturbance {
            Disturbance::Kill(point) => self.kill(point),
            Disturbance::ServerRestart => {
                self.server.kill_api();
                self.pause(2000);
                self.server.up();
                self.server_restarts += 1;
                self.log("the API server was restarted");
            }
            Disturbance::Stall => self.stall(),
            Disturbance::Cut => {
                self.relay.cut();
                self.log("all connections were cut");
            }
        }
        self.pause(500);
    }

    fn pause(&self, milliseconds: usize) {
        let pause = self.random.below(milliseconds);
        thread::sleep(Duration::from_millis(pause as u64));
    }

    /// Kills the controller and starts it again.
    fn kill(&mut self, point: Point) {
        let key = match point {
            Point::Any => {
                self.pause(1000);
                self.supervisor.kill();
                None
            }
            _ => match self.supervisor.trap(point, TRAP) {
                Some(key) => Some(key),
                None => {
                    self.missed_traps += 1;
                    return self.log(&format!("no call has reached the point {point}"));
                }
            },
        };
        self.relay.cut();
        let slot = key.as_deref().and_then(|key| self.world.slot_of(key));
        let is_deleted = self.random.one_in(2);
        if let Some(mut slot) = slot.filter(|_| is_deleted) {
            self.world.delete(&mut slot);
        }
        self.pause(500);
        // The objects that vanish from now on are seen by the next process.
        self.ledger.restarted(&self.world.uids());
        self.supervisor.launch(&self.arguments);
        *self.kills.entry(point).or_default() += 1;
        let key = key.unwrap_or_default();
        self.log(&format!("the controller was killed {point} {key}"));
    }

    /// Stalls the watch of the children of a namespace.
    fn stall(&mut self) {
        let busy = &NAMESPACES[..NAMESPACES.len() - 1];
        let stalled = self.random.pick(busy);
        // After a start, all sites are in the queue, these at random positions.
        for number in self.sites(8, |_| true) {
            if let Err(violation) = self.wait_for_status(number, BACKLOG, "the backlog") {
                return self.violations.push(violation);
            }
        }
        let began = Instant::now();
        self.relay.stall(Some(stalled));
        let numbers = self.sites(STALLED, |namespace| namespace == stalled);
        for number in &numbers {
            self.world.change_children(&mut self.world.slot(*number));
        }
        let others = self.sites(4, |namespace| namespace != stalled);
        for other in others {
            // More calls for keys that must wait.
            for number in &numbers {
                self.world.change_team(&mut self.world.slot(*number));
            }
            let cause = format!("the stall of {stalled}");
            match self.wait_for_status(other, PROGRESS, &cause) {
                Ok(time) => self.progress.push(time),
                Err(violation) => self.violations.push(violation),
            }
        }
        thread::sleep(STALL.saturating_sub(began.elapsed()));
        let is_cut = self.random.one_in(2);
        if is_cut {
            self.relay.cut();
        }
        self.relay.stall(None);
        self.log(&format!(
            "the watch of {stalled} has stalled for {:.1?}{}",
            began.elapsed(),
            if is_cut { " and was cut" } else { "" }
        ));
    }

    /// Returns the numbers of existing sites in namespaces.
    fn sites(&self, count: usize, namespace: impl Fn(&str) -> bool) -> Vec<usize> {
        let numbers = (0..self.world.len() * 10).map(|_| self.random.below(self.world.len()));
        let is_site = |number: &usize| {
            let slot = self.world.slot(*number);
            slot.site.is_some() && namespace(slot.namespace)
        };
        numbers.filter(is_site).take(count).collect()
    }

    /// Changes a site and returns the time until its status follows.
    fn wait_for_status(
        &self,
        number: usize,
        patience: Duration,
        cause: &str,
    ) -> Result<Duration, Violation> {
        let began = Instant::now();
        // The lock keeps the writers off.
        let mut slot = self.world.slot(number);
        self.world.change_team(&mut slot);
        let Some(site) = &slot.site else {
            return Ok(Duration::ZERO);
        };
        while self.world.status(&slot)["team"] != site.team {
            if began.elapsed() > patience {
                let problem = format!("{cause} delays {} by more than {patience:?}", slot.key());
                return Err((site.uid.clone(), problem));
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(began.elapsed())
    }

    /// Waits until every object has the desired state, and checks the creates.
    fn settle(&mut self) {
        let began = Instant::now();
        let mut rounds_without_differences = 0;
        loop {
            let found = Found::list(&self.world).expect("a list");
            let differences = found.differences(&self.world, &self.ledger);
            rounds_without_differences += 1;
            if !differences.is_empty() {
                rounds_without_differences = 0;
            }
            let is_late = began.elapsed() > self.options.settle;
            if rounds_without_differences == 2 || is_late {
                let (spaces, deleted) = found.spaces();
                self.log(&format!(
                    "{:.1?} to settle: {} sites, {} children, {} children of deleted sites, {spaces} Namespaces, \
                     {deleted} of them deleted",
                    began.elapsed(),
                    found.sites(),
                    found.children(),
                    found.orphans()
                ));
                self.violations.extend(differences);
                self.violations.extend(found.excess(&self.ledger));
                return;
            }
            thread::sleep(Duration::from_secs(1));
        }
    }

    /// Measures the time from a create to the next call, while nothing else happens.
    fn probe(&mut self) {
        self.ledger.delays().clear();
        let world = Arc::clone(&self.world);
        for number in self.sites(PROBES, |_| true) {
            let mut slot = world.slot(number);
            for _ in 0..2 {
                world.change_children(&mut slot);
                let began = Instant::now();
                let wanted = slot.site.as_ref().map_or(0, |site| site.spec.children);
                let names = || world.status(&slot)["names"].as_array().map_or(0, Vec::len);
                while names() != wanted && began.elapsed() < PROGRESS {
                    thread::sleep(Duration::from_millis(10));
                }
            }
        }
        let (count, median, max) = summary(&self.ledger.delays());
        self.log(&format!(
            "from a create to the next call, beside a quiet namespace: {count} times, median {median:.1?}, max {max:.1?}"
        ));
        if count < PROBES || median > DELAY {
            self.violate("calls after a create are missing or late".to_owned());
        }
        let found = Found::list(&self.world).expect("a list");
        self.violations
            .extend(found.differences(&self.world, &self.ledger));
        self.violations.extend(found.excess(&self.ledger));
    }

    /// Prints the figures. Returns whether there are no violations.
    fn finish(self) -> bool {
        for (point, kills) in &self.kills {
            println!("killed {point}: {kills} times");
        }
        println!(
            "{} server restarts; {} points not reached; writers: {}",
            self.server_restarts, self.missed_traps, self.world.counts
        );
        println!("writes and faults: {}", self.relay.counts());
        let (count, median, max) = summary(&self.progress);
        println!(
            "status during a stall elsewhere: {count} times, median {median:.1?}, max {max:.1?}"
        );
        let owners = self.ledger.owners();
        let sum = |of: fn(&ledger::Owner) -> usize| owners.values().map(of).sum::<usize>();
        println!(
            "{} sites in total: {} creates, {} allowed, {} with an unknown outcome; {} creates more than allowed; {} effects",
            owners.len(),
            sum(|owner| owner.children.len()),
            sum(|owner| owner.wanted),
            sum(|owner| owner.unknown),
            sum(ledger::Owner::duplicates),
            sum(|owner| owner.effects)
        );
        println!(
            "of the creates, {} are more than wanted, after an unknown outcome",
            sum(|owner| owner
                .children
                .len()
                .saturating_sub(owner.wanted)
                .min(owner.unknown))
        );
        for (uid, problem) in self.violations.iter().take(10) {
            println!("VIOLATION: {problem}");
            let Some(owner) = owners.get(uid) else {
                continue;
            };
            for (at, line) in &owner.trace[owner.trace.len().saturating_sub(40)..] {
                println!("  {at:8.3} {line}");
            }
            for line in self.supervisor.log(&format!("\"{}\"", owner.key), 40) {
                println!("    {line}");
            }
        }
        println!("{} violations", self.violations.len());
        if !self.violations.is_empty() {
            for line in self.supervisor.log("ERROR", 20) {
                println!("    {line}");
            }
        }
        self.violations.is_empty()
    }
}

/// Returns the number, the median and the maximum.
fn summary(times: &[Duration]) -> (usize, Duration, Duration) {
    let mut times = times.to_vec();
    times.sort();
    let median = times.get(times.len() / 2).copied().unwrap_or_default();
    (
        times.len(),
        median,
        times.last().copied().unwrap_or_default(),
    )
}

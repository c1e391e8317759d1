//! Runs informers of every configuration against a real API server while everything breaks.
//!
//! The program starts etcd and kube-apiserver from `$KUBEBUILDER_ASSETS`, a dozen informers behind
//! fault proxies, and writers without a proxy. It works in rounds. During a round:
//!
//! - The writers create, update, delete and recreate ConfigMaps and objects of a CustomResource.
//! - The proxies cut, reset, stall, half-close, delay and garble connections.
//! - Requests are answered with 410, 429, 500 and 503.
//! - Handlers are added and removed.
//! - The server has an accident: `kill -9` of the API server or of etcd, a compaction, or a restore
//!   of etcd's data from a backup.
//!
//! After the round, the faults end. Every cache, every index and the view of every handler are
//! compared with a fresh LIST. Then some informers are replaced by informers with a new
//! configuration.
//!
//! A handler builds its view from its events alone and checks each event against it:
//!
//! - An add is delivered only for an object that the handler does not hold.
//! - An update or a delete is delivered only for an object that the handler holds.
//! - The old object of an update is the object that was delivered last.
//! - The versions of an object ascend, except after a restore.
//!
//! An informer notices a restore only if the server does not have the informer's version. So there
//! are two kinds of restores. In a *seen* restore, the writers wait until every informer has listed
//! the older state. In an *unseen* restore, the proxies let no connection through until the server
//! has passed all lost versions and has restarted. It then answers 410 to the informers' watches.
//!
//! For half of the informers, time passes forty times faster. These informers also run the code
//! paths that need minutes of silence.
//!
//! ```sh
//! export KUBEBUILDER_ASSETS=… # the folder with etcd and kube-apiserver
//! cargo run --release -p chaos -- --writes 100000 --round 4000
//! ```
//!
//! | option | default | |
//! |---|---|---|
//! | `--seed N` | random | seeds configurations, writes and faults; threads still race, so a run does not repeat exactly |
//! | `--writes N` | 2400 | ends after `N` confirmed writes |
//! | `--round N` | 800 | writes per round |
//! | `--seconds N` | none | ends after the round in which `N` seconds have passed |
//! | `--informers N` | 12 | informers that run at the same time |
//! | `--settle N` | 60 | seconds until the informers must match the server after a round |
//! | `--only KIND` | all in turn | one kind of accident: `none`, `kill-api`, `kill-etcd`, `compaction`, `restore-seen`, `restore-unseen` |
//! | `--without KIND` | | all other kinds of accidents |
//!
//! The program prints its seed and a line for each round. For each difference it prints the events
//! and the last log lines of the informer. At the end it prints counts of writes and faults by
//! kind. It exits with 1 if anything differed. Without the binaries it prints a line and exits with
//! 0.
//!
//! `chaos elections` tests leader election instead; see `elections/mod.rs`. `chaos controllers` tests
//! a controller; see `controllers/mod.rs`. `chaos shards` tests replicas that divide the objects; see
//! `shards/mod.rs`.

mod child;
mod controllers;
mod counts;
mod elections;
mod follower;
mod gated;
mod hurried;
mod logs;
mod options;
mod proxy;
mod random;
mod server;
mod shards;
mod subject;
mod timing;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_informer::Client;
use k8s_informer::reflector::{ReflectorState, ReflectorStatus};
use k8s_informer::time::Clock;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::counts::Counts;
use crate::options::{Argument, random_seed};
use crate::proxy::Proxy;
use crate::random::Random;
use crate::server::Server;
use crate::subject::{Difference, Setting, Subject};
use crate::world::World;

/// The maximum time until all informers notice that etcd was restored, while nothing is written.
const NOTICE: Duration = Duration::from_secs(90);

/// The minimum number of revisions that a restore loses. It is so large that the server's own
/// writes alone do not pass the lost revisions.
const LOST: u64 = 100;

/// The maximum time without a confirmed write.
const STUCK: Duration = Duration::from_secs(120);

/// The maximum time of a stop.
const STOP: Duration = Duration::from_secs(3);

const WRITERS: usize = 6;

/// An accident of the server during a round.
#[derive(Clone, Copy, Debug)]
enum Accident {
    None,
    ApiServerKilled,
    EtcdKilled,
    /// Etcd drops its history, and the API server is killed so that it loses its watch cache.
    Compaction,
    /// Etcd is restored, and the informers see the older state.
    RestoreSeen,
    /// Etcd is restored, and the informers see the server only after it has passed the lost
    /// versions.
    RestoreUnseen,
}

impl Accident {
    const ALL: [Self; 6] = [
        Self::RestoreUnseen,
        Self::ApiServerKilled,
        Self::RestoreSeen,
        Self::Compaction,
        Self::EtcdKilled,
        Self::None,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::ApiServerKilled => "kill-api",
            Self::EtcdKilled => "kill-etcd",
            Self::Compaction => "compaction",
            Self::RestoreSeen => "restore-seen",
            Self::RestoreUnseen => "restore-unseen",
        }
    }
}

struct Options {
    seed: u64,
    writes: u64,
    round: u64,
    seconds: Option<u64>,
    informers: usize,
    settle: Duration,
    accidents: Vec<Accident>,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            seed: random_seed(),
            writes: 2400,
            round: 800,
            seconds: None,
            informers: 12,
            settle: Duration::from_secs(60),
            accidents: Accident::ALL.to_vec(),
        };
        for argument in Argument::all(arguments)? {
            match argument.name {
                "--seed" => options.seed = argument.number()?,
                "--writes" => options.writes = argument.number()?,
                "--round" => options.round = argument.number()?,
                "--seconds" => options.seconds = Some(argument.number()?),
                "--settle" => options.settle = Duration::from_secs(argument.number()?),
                "--informers" => options.informers = argument.number()?,
                "--only" | "--without" => {
                    let name = argument.one_of(&Accident::ALL.map(Accident::name))?;
                    let is_only = argument.name == "--only";
                    let accidents = &mut options.accidents;
                    accidents.retain(|accident| (accident.name() == name) == is_only);
                }
                _ => return argument.unknown(),
            }
        }
        Ok(options)
    }
}

fn main() -> ExitCode {
    let all: Vec<String> = std::env::args().skip(1).collect();
    let (mode, arguments) = match all.split_first() {
        Some((mode, arguments)) if !mode.starts_with('-') => (mode.as_str(), arguments),
        _ => ("", &all[..]),
    };
    options::exit_code(match mode {
        "candidate" => return elections::candidate(arguments),
        "controller" => return controllers::controller(arguments),
        "replica" => return shards::replica(arguments),
        "elections" => elections::main(arguments),
        "controllers" => controllers::main(arguments),
        "shards" => shards::main(arguments),
        "" => run(arguments),
        _ => Err(format!("unknown mode {mode}")),
    })
}

/// Returns whether nothing differed.
fn run(arguments: &[String]) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let start = Instant::now();
    logs::install(start);
    let Some(server) = Server::start() else {
        return Ok(true);
    };
    println!("chaos: seed {}", options.seed);
    let mut chaos = Chaos::new(options, server, start);
    chaos.run();
    Ok(chaos.finish())
}

struct Chaos {
    options: Options,
    random: Random,
    server: Server,
    world: World,
    tls: Arc<ClientConfig>,
    setting: Arc<Setting>,
    subjects: Vec<Arc<dyn Subject>>,
    /// The number of informers started so far.
    numbers: usize,
    faults: Arc<Counts>,
    events: u64,
    /// One line for each informer that failed a check.
    findings: Vec<String>,
}

impl Chaos {
    fn new(options: Options, server: Server, start: Instant) -> Self {
        let random = Random::new(options.seed);
        let world = World::create(server.client());
        world.start_writers(WRITERS, &random);
        let setting = Arc::new(Setting {
            start,
            restored: Arc::new(AtomicBool::new(false)),
        });
        let tls = Arc::new(tls(&server));
        let (faults, subjects) = (Arc::default(), Vec::new());
        let mut chaos = Self {
            options,
            random,
            server,
            world,
            tls,
            setting,
            subjects,
            numbers: 0,
            faults,
            events: 0,
            findings: Vec::new(),
        };
        for _ in 0..chaos.options.informers {
            let subject = chaos.subject();
            chaos.subjects.push(subject);
        }
        chaos.log("started");
        chaos
    }

    fn log(&self, what: &str) {
        println!("{:8.1} {what}", self.setting.start.elapsed().as_secs_f64());
    }

    /// Starts another informer.
    fn subject(&mut self) -> Arc<dyn Subject> {
        let Self {
            random,
            server,
            tls,
            setting,
            faults,
            numbers,
            ..
        } = self;
        let number = *numbers;
        *numbers += 1;
        let proxy = |http: bool| {
            let tls = http.then(|| Arc::clone(tls));
            Proxy::start(server.port(), tls, random.fork(), Arc::clone(faults))
        };
        let client = |proxy: &Proxy, clock: Option<Arc<dyn Clock>>| {
            let config = server
                .config(proxy.url())
                .response_timeout(Duration::from_secs(4));
            let config = clock
                .into_iter()
                .fold(config, |config, clock| config.clock(clock));
            Client::new(config).expect("a client")
        };
        subject::start(number, random, setting, proxy, client).into()
    }

    fn run(&mut self) {
        let mut accidents = Vec::new();
        for round in 1.. {
            let late = self
                .options
                .seconds
                .is_some_and(|limit| self.setting.start.elapsed().as_secs() >= limit);
            if self.world.written() >= self.options.writes || late {
                return;
            }
            // Each accident runs once in random order before any repeats.
            if accidents.is_empty() {
                accidents.clone_from(&self.options.accidents);
            }
            let accident = accidents.swap_remove(self.random.below(accidents.len()));
            self.round(round, accident);
        }
    }

    fn round(&mut self, round: usize, accident: Accident) {
        let (written, began) = (self.world.written(), Instant::now());
        let level = self.random.pick(&[0, 50, 150, 300]);
        self.faults.add(accident.name());
        let mut disturber = Disturber::start(&self.subjects, level, self.random.fork());
        self.world.gate(false);
        let writes = self.options.round;
        let mut found = BTreeSet::new();
        match accident {
            Accident::RestoreSeen | Accident::RestoreUnseen => {
                self.write_until(written + writes / 4);
                let backup = self.server.backup();
                self.write_until(written + writes / 4 * 3);
                while self.server.revision() < backup + LOST {
                    self.write_until(self.world.written() + 1);
                }
                drop(disturber);
                self.wait_until_past(backup + LOST / 2);
                self.restore(accident);
                // Compare now, before any further write, because later writes could hide
                // differences.
                found = self.settle(round, accident);
                self.subjects
                    .iter()
                    .for_each(|subject| subject.forget_versions());
                self.setting.restored.store(false, SeqCst);
                disturber = Disturber::start(&self.subjects, level, self.random.fork());
                self.world.gate(false);
            }
            _ => {
                self.write_until(written + writes / 2);
                self.strike(accident);
            }
        }
        self.write_until(written + writes);
        drop(disturber);
        self.world.gate(true);
        let wrote = began.elapsed();
        let settle = Instant::now();
        found.extend(self.settle(round, accident));
        self.log(&format!(
            "round {round}: accident: {}, faults at {level}/1000, {} writes in total, {} objects, {wrote:.1?} of writes, {:.1?} to settle{}",
            accident.name(),
            self.world.written(),
            self.world.truth().len(),
            settle.elapsed(),
            if found.is_empty() { "" } else { ", DIFFERENCES" }
        ));
        self.replace(&found);
    }

    fn write_until(&self, written: u64) {
        let (mut last, mut since) = (self.world.written(), Instant::now());
        while last < written {
            thread::sleep(Duration::from_millis(10));
            let now = self.world.written();
            if now != last {
                (last, since) = (now, Instant::now());
            }
            assert!(since.elapsed() < STUCK, "the server accepts no more writes");
        }
    }

    /// Runs an accident while the writers continue.
    fn strike(&mut self, accident: Accident) {
        let pause = Duration::from_millis(self.random.size(10) as u64);
        match accident {
            Accident::ApiServerKilled => self.server.kill_api(),
            Accident::EtcdKilled => self.server.kill_etcd(),
            Accident::Compaction => {
                let revision = self.server.revision();
                self.server
                    .compact(revision.saturating_sub(self.random.size(6) as u64));
                self.server.kill_api();
            }
            _ => return,
        }
        thread::sleep(pause);
        self.server.up();
    }

    /// Waits until no informer is as far behind as the restored server will be. Such an informer could
    /// not notice: while the server starts, it writes versions of its own.
    fn wait_until_past(&self, version: u64) {
        let began = Instant::now();
        let is_past = |subject: &Arc<dyn Subject>| {
            let statuses = subject.statuses();
            statuses.iter().all(|status| version_of(status) >= version)
        };
        while !self.subjects.iter().all(is_past) && began.elapsed() < NOTICE {
            thread::sleep(Duration::from_millis(100));
        }
    }

    fn restore(&mut self, accident: Accident) {
        if !self.random.one_in(4) {
            self.world.quiet(true);
            self.write_until(self.world.written() + 50);
        }
        self.world.gate(true);
        self.setting.restored.store(true, SeqCst);
        let lost = self.server.revision();
        let unseen = matches!(accident, Accident::RestoreUnseen);
        for subject in &self.subjects {
            subject.proxy().set_down(true);
        }
        self.server.restore();
        if unseen {
            // Write past the lost versions, then restart the API server, so that it has no watch
            // history from which an informer could continue.
            self.world.gate(false);
            while self.server.revision() + 20 < lost {
                self.write_until(self.world.written() + 1);
            }
            self.world.gate(true);
            while self.server.revision() <= lost {
                self.world.beat(&self.random);
            }
            self.server.kill_api();
            self.server.up();
        }
        for subject in &self.subjects {
            subject.proxy().heal();
        }
        if !unseen {
            self.wait_until_noticed(lost);
        }
        self.world.quiet(false);
    }

    /// Waits until no informer is at a version that the server does not have.
    ///
    /// Informers on the faster clock must notice the silent server on their own. The watches of the
    /// other informers are cut soon after they open, because an informer also notices if its watch
    /// ends at once.
    fn wait_until_noticed(&mut self, lost: u64) {
        let began = Instant::now();
        loop {
            let now = self.server.revision();
            let ahead: Vec<_> = self
                .subjects
                .iter()
                .filter(|subject| is_ahead(&***subject, now))
                .collect();
            if ahead.is_empty() {
                return;
            }
            if began.elapsed() > NOTICE {
                for subject in ahead {
                    let text = format!(
                        "{} did not notice within {NOTICE:?} that etcd was restored from {lost} to {now}: {}",
                        subject.name(),
                        subject.plan()
                    );
                    println!("  {text}");
                    self.findings.push(text);
                    report(&**subject, &[], &[]);
                }
                return;
            }
            for subject in ahead
                .into_iter()
                .filter(|subject| !subject.notices_silence())
            {
                let watches = |status: &ReflectorStatus| status.state == ReflectorState::Watching;
                // Do not cut a list: the server takes three seconds for a list at a version that it
                // does not have. If another namespace has noticed, it may list: while its back-off
                // passes, the watch of this one would last for more than a second.
                if of_namespaces_ahead(&**subject, now).iter().all(watches) {
                    subject.proxy().cut();
                }
            }
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Ends the faults and compares until all informers match the server or the time is up. Reports
    /// the differences and returns the informers that differ.
    fn settle(&mut self, round: usize, accident: Accident) -> BTreeSet<usize> {
        for subject in &self.subjects {
            subject.proxy().heal();
        }
        let began = Instant::now();
        let mut pending: BTreeSet<usize> = (0..self.subjects.len()).collect();
        let mut last: BTreeMap<usize, Vec<Difference>> = BTreeMap::new();
        while !pending.is_empty() && began.elapsed() < self.options.settle {
            // Markers keep every watch busy. A silent watch would lead to a relist, which would
            // repair errors and hide them.
            self.world.mark();
            thread::sleep(Duration::from_millis(200));
            let truth = self.world.truth();
            for at in pending.clone() {
                let differences = self.subjects[at].differences(&truth);
                if differences.is_empty() {
                    pending.remove(&at);
                }
                last.insert(at, differences);
            }
        }
        let mut found = BTreeSet::new();
        for (at, subject) in self.subjects.iter().enumerate() {
            let broken = subject.broken();
            let differences = if pending.contains(&at) {
                last.remove(&at).unwrap_or_default()
            } else {
                Vec::new()
            };
            if broken.is_empty() && differences.is_empty() {
                continue;
            }
            found.insert(at);
            let complete = subject.statuses().iter().all(|status| status.complete);
            let what: Vec<&str> = differences
                .iter()
                .map(|difference| difference.what.as_str())
                .collect();
            let finding = format!(
                "round {round} ({}): {}, complete: {complete}, differing: {what:?}, broken invariants: {}; {}",
                accident.name(),
                subject.name(),
                broken.len(),
                subject.plan()
            );
            println!("  {finding}");
            self.findings.push(finding);
            report(&**subject, &differences, &broken);
        }
        found
    }

    /// Replaces the informers that differ, and some others, with new ones.
    fn replace(&mut self, found: &BTreeSet<usize>) {
        for at in 0..self.subjects.len() {
            if !found.contains(&at) && !self.random.one_in(4) {
                continue;
            }
            let new = self.subject();
            let old = std::mem::replace(&mut self.subjects[at], new);
            self.end(&*old);
        }
    }

    fn end(&mut self, subject: &dyn Subject) {
        let took = subject.stop();
        if took > STOP {
            let finding = format!(
                "{} took {took:?} to stop; {}",
                subject.name(),
                subject.plan()
            );
            println!("  {finding}");
            self.findings.push(finding);
        }
        self.events += subject.events();
        logs::forget(subject.name());
    }

    /// Prints the figures. Returns whether nothing differed.
    fn finish(mut self) -> bool {
        self.world.end();
        for subject in std::mem::take(&mut self.subjects) {
            self.end(&*subject);
        }
        println!(
            "seed {}, {:.0?}",
            self.options.seed,
            self.setting.start.elapsed()
        );
        println!("{} writes: {}", self.world.written(), self.world.counts());
        println!("{} faults: {}", self.faults.total(), *self.faults);
        println!(
            "{} informers, {} events delivered to handlers",
            self.numbers, self.events
        );
        if self.findings.is_empty() {
            println!("no differences");
            return true;
        }
        println!("{} findings:", self.findings.len());
        for finding in &self.findings {
            println!("  {finding}");
        }
        false
    }
}

/// Whether one of the informer's reflectors is at a version that the server does not have yet.
fn is_ahead(subject: &dyn Subject, now: u64) -> bool {
    !of_namespaces_ahead(subject, now).is_empty()
}

/// Returns the status of each namespace that is at a later version than `now`.
fn of_namespaces_ahead(subject: &dyn Subject, now: u64) -> Vec<ReflectorStatus> {
    let mut statuses = subject.statuses();
    statuses.retain(|status| version_of(status) > now);
    statuses
}

/// Returns the version of a reflector, or 0 if it has none.
fn version_of(status: &ReflectorStatus) -> u64 {
    let version = status.resource_version.as_ref();
    version
        .and_then(|version| version.to_string().parse().ok())
        .unwrap_or(0)
}

/// Disturbs connections, and adds and removes handlers, until it is dropped.
struct Disturber {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Disturber {
    /// Disturbs `level` of 1000 new connections.
    fn start(subjects: &[Arc<dyn Subject>], level: usize, random: Random) -> Self {
        for subject in subjects {
            subject.proxy().disturb(level);
        }
        let over = Arc::new(AtomicBool::new(false));
        let (subjects, until) = (subjects.to_vec(), Arc::clone(&over));
        let disturb = move || {
            while !until.load(SeqCst) {
                thread::sleep(Duration::from_millis(100));
                let subject = &subjects[random.below(subjects.len())];
                match random.below(10) {
                    0..3 => subject.proxy().disturb_open_connections(),
                    3 => subject.change_handlers(&random),
                    _ => {}
                }
            }
        };
        Self {
            over,
            thread: Some(thread::spawn(disturb)),
        }
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        self.over.store(true, SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn report(subject: &dyn Subject, differences: &[Difference], broken: &[String]) {
    for status in subject.statuses() {
        let error = status
            .last_error
            .as_ref()
            .map_or("none".to_owned(), ToString::to_string);
        println!(
            "    {:?} at {}, {} lists, {} watches, {} relists, complete: {}, last error: {error}",
            status.state,
            (status.resource_version.as_ref()).map_or_else(String::new, ToString::to_string),
            status.lists,
            status.watches,
            status.relists,
            status.complete
        );
    }
    for difference in differences {
        println!("    {} differs:", difference.what);
        difference
            .lines
            .iter()
            .for_each(|line| println!("      {line}"));
    }
    if !broken.is_empty() {
        println!("    broken invariants:");
        broken
            .iter()
            .take(10)
            .for_each(|line| println!("      {line}"));
    }
    println!("    log:");
    logs::of(subject.name())
        .iter()
        .for_each(|line| println!("      {line}"));
}

/// Returns a TLS configuration that trusts the server's CA.
pub(crate) fn tls(server: &Server) -> ClientConfig {
    let mut roots = RootCertStore::empty();
    let certificates =
        CertificateDer::pem_file_iter(server.certificates()).expect("the server's certificates");
    roots.add_parsable_certificates(certificates.flatten());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    config
        .expect("supported TLS versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

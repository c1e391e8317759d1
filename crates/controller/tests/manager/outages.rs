//! Managers in virtual time, on real threads: each process has its own clock, and a server that fails,
//! hangs and loses responses for 5 to 120 seconds at a time. `OUTAGES` sets another number of them.
//!
//! No process ends, no informer lists again, no call sees a cache older than its term, and nothing that
//! changes something arrives from a process whose term is over by its own clock.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::time::Clock;
use k8s_informer_controller::ShardBy;
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::metrics::LeaderElectionMetrics;
use k8s_informer_testing::FakeClock;

use super::*;

/// The time that passes between two looks at the world.
const STEP: Duration = Duration::from_millis(250);
/// The real times for what follows from a step. On a busy machine, the first ones can be too short for the
/// threads of a process: a world in which something went wrong is repeated more slowly.
const SETTLES: [Duration; 3] = [
    Duration::from_millis(3),
    Duration::from_millis(15),
    Duration::from_millis(60),
];
/// A world with more of them takes too long to repeat.
const OUTAGES_OF_A_WORLD: u64 = 40;
/// With the default durations of an election.
const RENEW_DEADLINE: Duration = Duration::from_secs(10);
/// A request is observed at the server, some steps after its first byte has left, and a renewal after
/// its response.
const LATENCY: Duration = Duration::from_secs(3);
/// The longest wait of a candidate, two requests of up to 5 s that hung before, and the steps that pass
/// meanwhile.
const RECOVERY: Duration = Duration::from_secs(20);

/// What the server does with the requests of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trouble {
    None,
    Refuses,
    Closes,
    Hangs,
    /// It executes the request, and the response is lost.
    LosesResponse,
}

const TROUBLES: [Trouble; 4] = [
    Trouble::Refuses,
    Trouble::Closes,
    Trouble::Hangs,
    Trouble::LosesResponse,
];

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

    fn up_to(&mut self, limit: u64) -> u64 {
        self.next() % (limit + 1)
    }

    fn seconds(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(1000 * from + self.up_to(1000 * (to - from)))
    }
}

/// What is known about a process at the server, and in the process.
struct Process {
    name: &'static str,
    clock: FakeClock,
    start: std::time::Instant,
    trouble: Mutex<Trouble>,
    /// When a change arrived that is no write of the Lease, on the clock of the process.
    changes: Mutex<Vec<Duration>>,
    /// The lists of its informer, with their times.
    lists: Mutex<Vec<(Duration, String)>>,
    /// The version of the object `epoch` when the last term began.
    epoch: AtomicU64,
    calls: AtomicU64,
    old_caches: AtomicU64,
    terms: AtomicU64,
}

impl Process {
    fn new(name: &'static str) -> Arc<Self> {
        let clock = FakeClock::new();
        Arc::new(Self {
            name,
            start: clock.now(),
            clock,
            trouble: Mutex::new(Trouble::None),
            changes: Mutex::default(),
            lists: Mutex::default(),
            epoch: AtomicU64::new(0),
            calls: AtomicU64::new(0),
            old_caches: AtomicU64::new(0),
            terms: AtomicU64::new(0),
        })
    }

    fn now(&self) -> Duration {
        self.clock.now() - self.start
    }

    /// Records a request of the process that has arrived.
    fn record(&self, request: &RequestRecord) {
        let of_maps = request.resource() == Some("configmaps");
        let streams = request.param("sendInitialEvents") == Some("true");
        let lists = request.verb() == Verb::List && request.param("limit") != Some("1");
        if of_maps && (lists || streams) {
            let params = [
                "watch",
                "limit",
                "resourceVersion",
                "continue",
                "timeoutSeconds",
            ]
            .map(|name| format!("{name}={:?}", request.param(name)));
            let list = (self.now(), params.join(" "));
            self.lists.lock().unwrap().push(list);
        }
        let is_election = request.resource() == Some("leases");
        if request.method() != "GET" && !is_election {
            self.changes.lock().unwrap().push(self.now());
        }
    }
}

/// Reports the begin of each term, before its work begins.
struct Terms(Arc<Process>, Arc<ApiServer>);

impl LeaderElectionMetrics for Terms {
    fn is_leader(&self, is_leader: bool) {
        if is_leader {
            let epoch = version(&self.1.get(&format!("{MAPS}/epoch")).unwrap());
            self.0.epoch.store(epoch, Ordering::SeqCst);
            self.0.terms.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn version(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str().unwrap();
    version.parse().unwrap()
}

/// A process with a manager, and a thread that is no part of its controllers.
struct Replica {
    process: Arc<Process>,
    running: Running,
    stop: Arc<AtomicBool>,
    helper: JoinHandle<()>,
    lease: String,
    /// The version of the Lease that this process wrote last, and when that was seen.
    renewed: (u64, Duration),
    /// The lists until the cache was complete.
    first_lists: usize,
}

impl Replica {
    fn start(
        server: &Arc<ApiServer>,
        name: &'static str,
        shards: Option<u32>,
        settle: Duration,
    ) -> Self {
        let process = Process::new(name);
        let clock: Arc<dyn Clock> = Arc::new(process.clock.clone());
        // Requests end in real time, in which 30 seconds are this much.
        let config = Config::new(server.url())
            .user_agent(name)
            .response_timeout(120 * settle);
        let client = Client::new(config.clock(Arc::clone(&clock))).unwrap();
        let terms = Terms(Arc::clone(&process), Arc::clone(server));
        let options = LeaderElectionOptions::new()
            .clock(Arc::clone(&clock))
            .metrics(Arc::new(terms));
        let reflector = ReflectorOptions::new().clock(Arc::clone(&clock));
        let mut builder = Manager::builder(client.clone())
            .identity(name)
            .leader_election_options(options)
            .informers(FactoryOptions::new().reflector(reflector));
        builder = match shards {
            Some(count) => builder.one_shard_of("default", "team", count, ShardBy::Namespace),
            None => builder.leader_election("default", "team"),
        };
        let manager = builder.build().unwrap();
        let of_calls = Arc::clone(&process);
        manager
            .reconcile::<ConfigMap>("maps")
            .clock(Arc::clone(&clock))
            .workers(2)
            .by(move |cx, map| {
                of_calls.calls.fetch_add(1, Ordering::Relaxed);
                if let Some(epoch) = cx.lister::<ConfigMap>().get("default", "epoch")
                    && epoch.resource_version().parse::<u64>().unwrap()
                        < of_calls.epoch.load(Ordering::SeqCst)
                {
                    of_calls.old_caches.fetch_add(1, Ordering::Relaxed);
                }
                // A rude call: it ignores its stop, and goes on for a while.
                let secrets = cx.client().api::<Secret>(Some("default"));
                for attempt in 0..3 {
                    let name = format!("{}-{attempt}", map.name());
                    let secret = json!({"metadata": {"name": name}});
                    let _ = secrets.create(&secret, &Stop::never());
                    cx.clock().wait(Duration::from_millis(300), &Stop::never());
                }
                Err(Failure::new("again"))
            })
            .unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let helper = {
            let gated = manager.gate(&client).api::<Secret>(Some("default"));
            let (ended, clock) = (Arc::clone(&stop), Arc::clone(&clock));
            thread::spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    let secret = json!({"metadata": {"name": "helper"}});
                    let _ = gated.create(&secret, &Stop::never());
                    clock.wait(Duration::from_secs(1), &Stop::never());
                }
            })
        };
        Self {
            process,
            running: Running::start(manager),
            stop,
            helper,
            lease: String::new(),
            renewed: (0, Duration::ZERO),
            first_lists: usize::MAX,
        }
    }

    fn leads(&self) -> bool {
        let elector = self.running.manager.elector();
        elector.is_some_and(|elector| elector.is_leader())
    }

    /// Looks which Lease names the process, and compares what has arrived since the last look.
    fn look(&mut self, leases: &BTreeMap<String, Value>) -> Vec<String> {
        let name = self.process.name;
        let is_own = |lease: &&Value| lease["spec"]["holderIdentity"] == name;
        let now = self.process.now();
        if let Some(lease) = leases.values().find(is_own) {
            let version = version(lease);
            if version != self.renewed.0 {
                self.renewed = (version, now);
            }
            self.lease = lease["metadata"]["name"].as_str().unwrap().to_owned();
        }
        let mut problems = Vec::new();
        let limit = self.renewed.1 + RENEW_DEADLINE + LATENCY;
        for at in std::mem::take(&mut *self.process.changes.lock().unwrap()) {
            if at > limit {
                problems.push(format!(
                    "{name}: a change arrives at {at:?}, and the last renewal was seen at {:?}",
                    self.renewed.1
                ));
            }
        }
        if self.running.thread.is_finished() {
            problems.push(format!("{name}: the process ends"));
        }
        let lists = self.process.lists.lock().unwrap();
        if lists.len() > self.first_lists {
            let status = self
                .running
                .manager
                .factory()
                .informer::<ConfigMap>()
                .status();
            problems.push(format!(
                "{name}: an informer lists again: {lists:#?} {status}"
            ));
        }
        if self.process.old_caches.load(Ordering::Relaxed) > 0 {
            problems.push(format!(
                "{name}: a call sees a cache that is older than the term"
            ));
        }
        problems
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.running.stop.stop();
        until("the process ends", || {
            self.process.clock.advance(STEP);
            thread::sleep(Duration::from_millis(1));
            self.running.thread.is_finished() && self.helper.is_finished()
        });
        self.running.thread.join().unwrap().unwrap();
    }
}

struct World {
    server: Arc<ApiServer>,
    random: Random,
    settle: Duration,
    replicas: Vec<Replica>,
    steps: u64,
    epochs: u64,
    problems: Vec<String>,
}

impl World {
    fn new(seed: u64, shards: Option<u32>, settle: Duration) -> Self {
        // The server is in real time, in which the two seconds of an API server are eight steps. The
        // informer waits for three, and a thread that gets no CPU for a while must not lead to a list.
        let builder = ApiServer::builder().bookmark_interval(settle);
        let server = Arc::new(builder.start().unwrap());
        for name in ["a", "b", "epoch"] {
            create_map(&server, name);
        }
        let names = ["first", "second"];
        let replicas: Vec<_> = names
            .into_iter()
            .map(|name| Replica::start(&server, name, shards, settle))
            .collect();
        let processes: Vec<_> = replicas.iter().map(|of| Arc::clone(&of.process)).collect();
        // The first condition sees each request once.
        let seen = processes.clone();
        server.fail_next(
            Fault::status(500)
                .when(move |request| {
                    let agent = request.header("user-agent");
                    let of = seen.iter().find(|process| Some(process.name) == agent);
                    of.inspect(|process| process.record(request));
                    false
                })
                .always(),
        );
        let trouble_of = move |request: &RequestRecord| {
            let agent = request.header("user-agent");
            let of = processes.iter().find(|process| Some(process.name) == agent);
            of.map_or(Trouble::None, |process| *process.trouble.lock().unwrap())
        };
        // By client-go's rule W3, a watch that can't be opened leads to a list, unless the connection is
        // refused or the server is too busy. A list for that reason is no matter of the term.
        let of_informer = |request: &RequestRecord| request.resource() == Some("configmaps");
        let is_refused = trouble_of.clone();
        server.fail_next(
            Fault::status(429)
                .when(move |request| of_informer(request) && is_refused(request) != Trouble::None)
                .always(),
        );
        for (trouble, fault) in [
            (Trouble::Refuses, Fault::status(503)),
            (Trouble::Closes, Fault::reset()),
            (Trouble::Hangs, Fault::stall()),
            (Trouble::LosesResponse, Fault::close().after_bytes(0)),
        ] {
            let trouble_of = trouble_of.clone();
            let strikes = move |request: &RequestRecord| trouble_of(request) == trouble;
            server.fail_next(fault.when(strikes).always());
        }
        Self {
            server,
            random: Random(seed),
            settle,
            replicas,
            steps: 0,
            epochs: 0,
            problems: Vec::new(),
        }
    }

    /// Lets time pass for all processes.
    fn step(&mut self) {
        self.steps += 1;
        // Something that a cache can miss.
        if self.steps.is_multiple_of(4) {
            self.epochs += 1;
            let patch = json!({"data": {"epoch": self.epochs.to_string()}});
            self.server.patch(&format!("{MAPS}/epoch"), patch).unwrap();
        }
        for replica in &self.replicas {
            replica.process.clock.advance(STEP);
        }
        thread::sleep(self.settle);
        let leases = self
            .server
            .list("/apis/coordination.k8s.io/v1/namespaces/default/leases");
        let leases = leases.unwrap()["items"].as_array().unwrap().clone();
        let named = |lease: Value| {
            (
                lease["metadata"]["name"].as_str().unwrap().to_owned(),
                lease,
            )
        };
        let leases: BTreeMap<_, _> = leases.into_iter().map(named).collect();
        for replica in &mut self.replicas {
            self.problems.extend(replica.look(&leases));
        }
    }

    fn pass(&mut self, time: Duration) {
        for _ in 0..time.as_millis() / STEP.as_millis() {
            self.step();
        }
    }

    /// Lets time pass until each shard has its holder, or one replica leads. Returns the time.
    fn recover(&mut self, holders: usize) -> Duration {
        let mut took = Duration::ZERO;
        while self
            .replicas
            .iter()
            .filter(|replica| replica.leads())
            .count()
            < holders
        {
            self.step();
            took += STEP;
            if took > 30 * RECOVERY || !self.problems.is_empty() {
                break;
            }
        }
        took
    }

    /// An outage of one process, or of both, whose clocks may jump. Returns its kind, for messages.
    fn outage(&mut self) -> String {
        let both = self.random.up_to(2) > 0;
        let first = self.random.up_to(1) as usize;
        let trouble = TROUBLES[self.random.up_to(3) as usize];
        let duration = self.random.seconds(5, 120);
        for at in [first, 1 - first].into_iter().take(1 + usize::from(both)) {
            *self.replicas[at].process.trouble.lock().unwrap() = trouble;
        }
        let watches = match self.random.up_to(3) {
            // Watches end with the outage, or go on.
            0 => {
                self.server.close_watches();
                "end"
            }
            1 => {
                self.server.cut_watches();
                "are cut"
            }
            _ => "go on",
        };
        // What the server does meanwhile is in the sockets of a process before it runs again.
        thread::sleep(self.settle);
        let jump = self.random.seconds(0, 30);
        let clock = &self.replicas[first].process.clock;
        let jumped = match self.random.up_to(5) {
            // The process is not scheduled for a while.
            0 => {
                clock.advance(jump);
                "pauses"
            }
            // The machine is suspended.
            1 => {
                clock.suspend(jump);
                "is suspended"
            }
            _ => "runs",
        };
        let name = self.replicas[first].process.name;
        let kind = format!(
            "{trouble:?} for {duration:?}, of both: {both}; watches {watches}; {name} {jumped} for {jump:?}"
        );
        self.pass(duration);
        for replica in &self.replicas {
            *replica.process.trouble.lock().unwrap() = Trouble::None;
        }
        kind
    }
}

/// Returns what went wrong.
fn problem(seed: u64, shards: Option<u32>, outages: u64, settle: Duration) -> Option<String> {
    let mut world = World::new(seed, shards, settle);
    let holders = shards.map_or(1, |count| count as usize);
    world.recover(holders);
    world.pass(Duration::from_secs(10));
    for replica in &mut world.replicas {
        replica.first_lists = replica.process.lists.lock().unwrap().len();
    }
    let mut longest = Duration::ZERO;
    for number in 0..outages {
        let kind = world.outage();
        let took = world.recover(holders);
        longest = longest.max(took);
        // By client-go's rule W5, a watch that ends within its first second leads to a list.
        let pause = world.random.seconds(2, 20);
        world.pass(pause);
        if let Some(problem) = world.problems.first() {
            return Some(format!("outage {number} ({kind}): {problem}"));
        }
    }
    let sum = |count: fn(&Process) -> &AtomicU64| -> u64 {
        let replicas = world.replicas.iter();
        let counts = replicas.map(|of| count(&of.process).load(Ordering::Relaxed));
        counts.sum()
    };
    let (calls, terms) = (sum(|of| &of.calls), sum(|of| &of.terms));
    println!(
        "{outages} outages, {} s, {terms} terms, {calls} calls, led again after {longest:?} at most",
        world.steps / 4
    );
    if calls <= outages || terms <= outages / 2 {
        return Some(format!("{calls} calls in {terms} terms"));
    }
    if longest > RECOVERY {
        return Some(format!("led again after {longest:?}"));
    }
    for replica in world.replicas {
        replica.end();
    }
    None
}

#[track_caller]
fn assert_survives(seed: u64, shards: Option<u32>) {
    let outages = std::env::var("OUTAGES");
    let mut left = outages.map_or(6, |outages| outages.parse().unwrap());
    for seed in seed.. {
        let of_world = left.min(OUTAGES_OF_A_WORLD);
        let mut found = Vec::new();
        let survived = SETTLES.into_iter().any(|settle| {
            let problem = problem(seed, shards, of_world, settle);
            if let Some(problem) = &problem {
                println!("world {seed} is repeated: {problem}");
                found.push(problem.clone());
            }
            problem.is_none()
        });
        assert!(survived, "world {seed}: {found:#?}");
        left -= of_world;
        if left == 0 {
            break;
        }
    }
}

#[test]
fn leaders_survive_outages_in_virtual_time() {
    assert_survives(1, None);
}

#[test]
fn shards_survive_outages_in_virtual_time() {
    assert_survives(2, Some(2));
}

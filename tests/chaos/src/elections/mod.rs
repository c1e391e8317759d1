//! Leader election on a real API server while everything breaks.
//!
//! The program starts etcd, kube-apiserver, and groups of five candidates. Each candidate is a
//! process with a proxy of its own. The candidates of a group compete for a Lease. The leader
//! writes a ConfigMap, the *guarded object*, several times a second:
//!
//! - It reads the object at the start of its term, calls `ensure`, and writes the token of the term
//!   at the version that it has read.
//! - Each further write carries the version of the last one. After a conflict or an unknown result
//!   the leader reads the object again, and then calls `ensure`.
//!
//! In each round, every group has a fault that costs the leader its Lease, unless the leader is to
//! keep it: see `Fault` in `group.rs`. A third of the rounds also stop another candidate. A round
//! ends when the next leader has written.
//!
//! After each round, the histories of the Leases and of the guarded objects are checked. They come
//! from a watch, and from the candidates, which report accepted writes:
//!
//! - No write of an older term is accepted after a newer term's first. Each write also names the
//!   term that it replaces, so this holds for most writes that the watch and the reports have missed.
//! - With each acquisition of a Lease the transitions increase. No two terms have the same.
//! - `ensure` never succeeds for two terms at one time. It succeeds for the last time two seconds
//!   before the next candidate begins to acquire the Lease, unless the Lease was released. All
//!   processes have the same clock.
//! - No candidate leads after a release before the work of the last term has ended.
//! - While work ignores its stop for three leases, no other candidate leads, if the server is
//!   healthy.
//! - A logger or a lock that blocks does not keep lost work running.
//! - Another thread of each candidate changes an object all the time through a gated client, and
//!   ignores each stop. No such request begins later than 50 ms after the candidate has seen the
//!   end of its term. A relay in the process of the candidate observes them, see `gated.rs`.
//! - Most leaders keep the Lease when their credential expires and the plugin takes longer than one
//!   request may.
//!
//! ```sh
//! export KUBEBUILDER_ASSETS=… # the folder with etcd and kube-apiserver
//! cargo run --release -p chaos -- elections --elections 300
//! ```
//!
//! | option | default | |
//! |---|---|---|
//! | `--elections N` | 50 | ends after the round in which the faults have caused `N` elections |
//! | `--groups N` | 10 | groups that run side by side |
//! | `--seed N` | random | seeds faults and pauses; processes still race |
//! | `--mutant NAME` | `none` | breaks the candidates, so the program must fail: `ensure` ignores its result, `version` reads the version immediately before a write, `gate` uses clients without a gate |
//!
//! The program prints a line for each round, and figures at the end. It exits with 1 if a rule is
//! violated or if a group has no leader for a minute. Without the binaries it prints a line and
//! exits with 0.

mod candidate;
mod group;
mod history;
mod observer;
mod protocol;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::{Client, Stop};
use serde_json::{Value, json};

pub(crate) use self::candidate::main as candidate;
use self::group::{Fault, Group, Leader, Setting};
use self::protocol::NAMESPACE;
use crate::options::{Argument, random_seed};
use crate::random::Random;
use crate::server::Server;

struct Options {
    elections: usize,
    groups: usize,
    seed: u64,
    mutant: String,
}

impl Options {
    fn read(arguments: &[String]) -> Result<Self, String> {
        let mut options = Self {
            elections: 50,
            groups: 10,
            seed: random_seed(),
            mutant: "none".to_owned(),
        };
        for argument in Argument::all(arguments)? {
            match argument.name {
                "--elections" => options.elections = argument.number()?,
                "--groups" => options.groups = argument.number()?,
                "--seed" => options.seed = argument.number()?,
                "--mutant" => {
                    options.mutant = argument.one_of(&["none", "ensure", "version", "gate"])?;
                }
                _ => return argument.unknown(),
            }
        }
        Ok(options)
    }
}

/// Returns whether no rule was violated.
pub(crate) fn main(arguments: &[String]) -> Result<bool, String> {
    let options = Options::read(arguments)?;
    let Some(server) = Server::start() else {
        return Ok(true);
    };
    println!("chaos elections: seed {}", options.seed);
    let mut elections = Elections::start(&options, server);
    let failed = elections.run(options.elections);
    elections.print_figures();
    Ok(!failed)
}

struct Elections {
    // Dropped before the server, so that no candidate outlives it.
    groups: Vec<Group>,
    server: Server,
    random: Random,
    began: Instant,
    /// The times without a leader, for each fault.
    times: BTreeMap<Fault, Vec<Duration>>,
    /// Rounds whose leader was lost without the fault, or survived a restart of the server.
    not_counted: usize,
}

impl Elections {
    fn start(options: &Options, server: Server) -> Self {
        let random = Random::new(options.seed);
        let client = server.client();
        create(&client, "/api/v1/namespaces", NAMESPACE);
        for number in 0..options.groups {
            let collection = format!("/api/v1/namespaces/{NAMESPACE}/configmaps");
            create(&client, &collection, &format!("group-{number}"));
            create(&client, &collection, &format!("group-{number}-rude"));
        }
        let setting = Arc::new(Setting {
            port: server.port(),
            certificates: server.certificates().display().to_string(),
            mutant: options.mutant.clone(),
        });
        let start = |number| Group::start(number, &setting, &random);
        let groups: Vec<Group> = (0..options.groups).map(start).collect();
        let feeds = groups
            .iter()
            .map(|group| (group.name.clone(), Arc::clone(&group.feed)));
        observer::start(&client, &feeds.collect());
        Self {
            groups,
            server,
            random,
            began: Instant::now(),
            times: BTreeMap::new(),
            not_counted: 0,
        }
    }

    /// Runs rounds until there were so many elections. Returns whether a check failed.
    fn run(&mut self, elections: usize) -> bool {
        for round in 0.. {
            let began = Instant::now();
            // In a round of each kind, all groups take about as long.
            let (what, results) = match round % 5 {
                1 => ("server restart", self.restart_server()),
                3 => (
                    "ignored stops",
                    self.each(|at| match at % 2 {
                        0 => Fault::IgnoredStop,
                        _ => Fault::IgnoredStopPartitioned,
                    }),
                ),
                _ => {
                    let first = self.random.below(Fault::SHORT.len());
                    let fault = |at| Fault::SHORT[(first + at) % Fault::SHORT.len()];
                    ("faults of leaders", self.each(fault))
                }
            };
            let mut failed = false;
            for (group, (fault, result)) in self.groups.iter().zip(results) {
                let mut found = group.feed.lock().history.violations();
                match result {
                    Ok(Some(time)) => self.times.entry(fault).or_default().push(time),
                    Ok(None) => self.not_counted += 1,
                    Err(error) => found.push(error),
                }
                if !found.is_empty() {
                    failed = true;
                    report(group, fault, &found);
                }
            }
            let counted: usize = self.times.values().map(Vec::len).sum();
            println!(
                "{:8.1} round {}: {what}, {:.1?}, {counted} elections in total",
                self.began.elapsed().as_secs_f64(),
                round + 1,
                began.elapsed()
            );
            if failed || counted >= elections {
                return failed || self.loses_by_plugin();
            }
        }
        false
    }

    /// Runs a fault in each group.
    fn each(&mut self, fault: impl Fn(usize) -> Fault + Sync) -> Vec<Outcome> {
        let run = |(at, group): (usize, &mut Group)| (fault(at), group.round(fault(at)));
        let run = &run;
        thread::scope(|scope| {
            let groups = self.groups.iter_mut().enumerate();
            let rounds: Vec<_> = groups
                .map(|group| scope.spawn(move || run(group)))
                .collect();
            let ended = rounds.into_iter();
            ended.map(|round| round.join().expect("a round")).collect()
        })
    }

    fn restart_server(&mut self) -> Vec<Outcome> {
        let leaders: Vec<Result<Leader, String>> = self.groups.iter().map(Group::leader).collect();
        let began = protocol::now();
        self.server.kill_api();
        thread::sleep(Duration::from_millis(self.random.below(3000) as u64));
        self.server.up();
        let groups = self.groups.iter().zip(leaders);
        let outcome = |(group, leader): (&Group, Result<Leader, String>)| {
            (
                Fault::ServerRestart,
                leader.and_then(|leader| group.after_restart(leader, began)),
            )
        };
        groups.map(outcome).collect()
    }

    /// Whether slow credential plugins cost most leaders the Lease.
    fn loses_by_plugin(&self) -> bool {
        let sum = |count: fn(&Group) -> usize| self.groups.iter().map(count).sum::<usize>();
        let (kept, lost) = (sum(|group| group.kept), sum(|group| group.lost));
        println!("slow plugins: {kept} leaders kept the Lease, {lost} lost it");
        lost > kept
    }

    fn print_figures(&mut self) {
        println!("time without a leader, by fault:");
        for (fault, times) in &mut self.times {
            times.sort();
            println!(
                "  {:24} {:4} elections, median {:.1?}, max {:.1?}",
                fault.name(),
                times.len(),
                times[times.len() / 2],
                times[times.len() - 1]
            );
        }
        let [mut accepted, mut refused, mut unknown, mut unseen] = [0; 4];
        let [
            mut planted_accepted,
            mut planted_refused,
            mut planted_unknown,
        ] = [0; 3];
        let mut margins = Vec::new();
        let mut outlived = 0;
        let [mut sent, mut kept] = [0; 2];
        for group in &self.groups {
            let history = &group.feed.lock().history;
            accepted += history.accepted();
            unseen += history.unseen();
            refused += history.refused;
            unknown += history.unknown;
            planted_accepted += history.planted.accepted;
            planted_refused += history.planted.refused;
            planted_unknown += history.planted.unknown;
            outlived += group.outlived;
            sent += history.gated.sent;
            kept += history.gated.refused;
            margins.extend(history.margins());
        }
        let counted: usize = self.times.values().map(Vec::len).sum();
        println!(
            "{counted} elections; {} times the leader survived the restart or was lost without the fault",
            self.not_counted
        );
        println!(
            "writes: {accepted} accepted, of them {unseen} not seen; {refused} refused, {unknown} without a response"
        );
        println!(
            "writes after a stop behind ensure: {planted_refused} refused, {planted_accepted} accepted before \
             the next leader's first, {planted_unknown} without a response"
        );
        println!(
            "work that ignored its stop and outlived the start of the next: {outlived} times, partitioned"
        );
        println!(
            "changes of threads that ignore each stop: {sent} sent by leaders, {kept} refused by gates"
        );
        margins.sort_unstable();
        if let (Some(least), Some(median)) = (margins.first(), margins.get(margins.len() / 2)) {
            println!(
                "from the last success of ensure to the next acquisition: least {} ms, median {} ms",
                least / 1000,
                median / 1000
            );
        }
    }
}

/// The fault of a group, and the time without a leader if the fault caused an election.
type Outcome = (Fault, Result<Option<Duration>, String>);

fn create(client: &Client, collection: &str, name: &str) {
    let body = json!({ "metadata": { "name": name } });
    let request = Request::post(collection).json(&body).expect("a request");
    let response = client.request(&request, &Stop::never());
    let created = response.and_then(|response| response.json::<Value>());
    created.expect("a new object");
}

fn report(group: &Group, fault: Fault, found: &[String]) {
    println!("{}, {}:", group.name, fault.name());
    found.iter().for_each(|violation| println!("  {violation}"));
    let state = group.feed.lock();
    let events = &state.events;
    for (candidate, event) in &events[events.len().saturating_sub(80)..] {
        println!("    {candidate} {event:?}");
    }
}

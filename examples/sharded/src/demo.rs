//! Runs three replicas for two shards, as threads. One of them ends without a release of its Lease,
//! and the spare one takes over.

use std::collections::BTreeSet;
use std::error::Error;
use std::sync::mpsc::{self, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_informer::reflector::Shard;
use k8s_informer::{Client, Config, Stopper};
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::{ControllerError, Manager};
use k8s_informer_testing::ApiServer;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::operator::{self, LABEL};

/// A replica has reconciled a task, and perhaps created its Job.
type Report = (&'static str, String, bool);

/// Two of them are in each shard.
pub(crate) const NAMESPACES: [&str; 4] = ["black", "blue", "green", "red"];

pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::start()?;
    let config = Config::new(server.url());
    play(&Client::new(config.clone())?, &config)
}

/// Runs the demo with replicas that have the rights of `config`.
pub(crate) fn play(admin: &Client, config: &Config) -> Result<(), Box<dyn Error>> {
    let stop = Stopper::new();
    let maps = NAMESPACES.map(|of| admin.api::<ConfigMap>(Some(of)));
    let create_tasks = |name| {
        let task = json!({"metadata": {"name": name, "labels": {(LABEL): ""}}});
        let mut maps = maps.iter();
        maps.try_for_each(|maps| maps.create(&task, &stop).map(drop))
    };
    let (sender, reports) = mpsc::channel::<Report>();
    let (mut seen, mut created) = (BTreeSet::new(), Vec::new());
    // Waits until these replicas have seen so many tasks with a Job.
    let mut wait_for = |replicas: &[&str], count| -> Result<(), mpsc::RecvTimeoutError> {
        while seen.iter().filter(|(by, _)| replicas.contains(by)).count() < count {
            let (by, task, is_new) = reports.recv_timeout(Duration::from_secs(30))?;
            if is_new {
                created.push(format!("{task} by {by}"));
            }
            seen.insert((by, task));
        }
        Ok(())
    };

    println!("Start the replicas a, b and c for two shards of four namespaces:");
    create_tasks("first")?;
    let start = |name| Replica::start(name, config, sender.clone());
    let mut replicas = [start("a")?, start("b")?, start("c")?];
    wait_for(&["a", "b", "c"], 4)?;
    replicas.sort_by_key(|replica| replica.manager.shard());
    let [spare, first, second] = replicas;
    println!("  {} has shard 0, {} has shard 1", first.name, second.name);

    println!("End {} as if it was killed:", first.name);
    let (killed, start) = (first.end()?, Instant::now());
    let leases = admin.api::<Lease>(Some("default"));
    let lease = leases.get("sharded-example-0-of-2-by-namespace", &stop)?;
    let holder = json!(*lease)["spec"]["holderIdentity"].take();
    if holder == "" {
        return Err("the Lease was released".into());
    }
    println!("  its Lease still has the holder {holder}");
    create_tasks("second")?;
    wait_for(&[spare.name], 4)?;
    let seconds = start.elapsed().as_secs_f64();
    println!("  {} has shard 0 after {seconds:.1} s", spare.name);
    wait_for(&[second.name], 4)?;
    let (spare, second) = (spare.end()?, second.end()?);

    created.sort();
    println!("Each task has one Job: {created:#?}");
    let shard = Shard::new(0, 2)?.by_namespace();
    let expected = NAMESPACES.map(|of| {
        let (first, second) = match shard.contains(of) {
            true => (killed, spare),
            false => (second, second),
        };
        [("first", first), ("second", second)].map(|(name, by)| format!("{of}/{name} by {by}"))
    });
    let jobs = admin.api::<Job>(None);
    let jobs = jobs.list(&Default::default(), &stop)?.items;
    match created == expected.concat() && jobs.len() == created.len() {
        true => Ok(()),
        false => Err(format!("{} Jobs; expected {expected:?}", jobs.len()).into()),
    }
}

struct Replica {
    name: &'static str,
    manager: Manager,
    stop: Stopper,
    thread: JoinHandle<Result<(), ControllerError>>,
}

impl Replica {
    fn start(
        name: &'static str,
        config: &Config,
        to: Sender<Report>,
    ) -> Result<Self, Box<dyn Error>> {
        let builder = Manager::builder(Client::new(config.clone())?).identity(name);
        // The shortest times. Without a release, a stop is a crash to the other replicas.
        let options = LeaderElectionOptions::new()
            .lease_duration(Duration::from_secs(3))
            .renew_deadline(Duration::from_millis(1500))
            .retry_period(Duration::from_secs(1))
            .release(false);
        let builder = builder.leader_election_options(options);
        // The receiver is dropped if the demo fails.
        let report = move |task, is_new| drop(to.send((name, task, is_new)));
        let manager = operator::build(builder, "default", 2, report)?;
        let stop = Stopper::new();
        let (of, until) = (manager.clone(), stop.signal());
        let thread = thread::spawn(move || of.run(&until));
        Ok(Self {
            name,
            manager,
            stop,
            thread,
        })
    }

    /// Ends the replica, and returns its name.
    fn end(self) -> Result<&'static str, Box<dyn Error>> {
        self.stop.stop();
        self.thread.join().map_err(|_| "a replica panicked")??;
        Ok(self.name)
    }
}

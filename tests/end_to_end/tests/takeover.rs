//! A new leader does not act on an old cache: two replicas with leader election, and children with
//! generated names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::{SharedInformerFactory, Stop, Stopper};
use k8s_informer_controller::leader_election::{LeaderElectionOptions, LeaderElector, LeaseLock};
use k8s_informer_controller::{Controller, Next};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use crate::cluster::{Cluster, Namespace, on_every_cluster};
use crate::interceptor::{Interceptor, RequestKind};
use crate::leases::{leases, post};
use crate::support::{PATIENCE, wait_until};
use crate::verbs::ONCE;

/// How the watch of the children is behind.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lag {
    None = 0,
    /// It is silent until it is opened again.
    UntilReopened = 1,
    /// Each watch is silent until the objects are listed.
    Always = 2,
}

/// A controller that creates a child for each ConfigMap with a label, on a thread that waits until
/// this replica leads.
struct Replica {
    lag: Arc<AtomicU8>,
    factory: SharedInformerFactory,
    /// The number of children that each call has seen.
    calls: Receiver<usize>,
    stop: Stopper,
    thread: JoinHandle<()>,
}

impl Replica {
    fn start(cluster: &Cluster, namespace: &Namespace<'_>, identity: &str, releases: bool) -> Self {
        let lag = Arc::new(AtomicU8::new(Lag::None as u8));
        let of = Arc::clone(&lag);
        let source = Interceptor::new(cluster.client(), move |kind, line, text| {
            if !text.contains(r#""kind":"Secret""#) {
                return text;
            }
            let lag = of.load(Ordering::Relaxed);
            let ends = match kind {
                RequestKind::WatchList => line == 0,
                _ => line == 0 && lag == Lag::UntilReopened as u8,
            };
            if lag == Lag::None as u8 || ends {
                of.store(Lag::None as u8, Ordering::Relaxed);
                return text;
            }
            String::new()
        });
        let scope = InformerScope::all().namespace(&namespace.name);
        let factory =
            SharedInformerFactory::with_options(source, cluster.factory_options().scope(scope));
        let (sender, calls) = channel();
        let controller = Controller::builder(&cluster.client(), Source::of::<ConfigMap>(), "maps")
            .factory(&factory)
            .owns(Source::of::<Secret>())
            .by(move |cx, map: &Arc<ConfigMap>| {
                if map.metadata.labels.is_none() {
                    return Ok(Next::Done);
                }
                let children = cx.children::<Secret>()?.len();
                if children == 0 {
                    let child = cx.owned(json!({"metadata": {"generateName": "child-"}}))?;
                    cx.api::<Secret>(Some(cx.namespace()))
                        .create(&child, cx.stop())?;
                }
                sender.send(children)?;
                Ok(Next::Done)
            })
            .unwrap();
        let stop = Stopper::new();
        factory.start(&Stop::never()).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        let lock = LeaseLock::new(&cluster.client(), &namespace.name, "maps").identity(identity);
        let elector = LeaderElector::new(
            lock,
            LeaderElectionOptions::new()
                .retry_period(Duration::from_secs(1))
                .renew_deadline(Duration::from_secs(2))
                .lease_duration(Duration::from_secs(4))
                .release(releases),
        )
        .unwrap();
        let until = stop.clone();
        let thread = thread::spawn(move || {
            let ended = elector.run(move |leading| controller.run_as_leader(&leading), &until);
            println!("  {ended:?}");
        });
        Self {
            lag,
            factory,
            calls,
            stop,
            thread,
        }
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap();
        self.factory.shut_down(None).unwrap();
    }
}

/// Lets the leader create a child and end, while the watch of the other replica is behind. Returns
/// how many children the next leader sees in its first call.
fn take_over(cluster: &Cluster, lag: Lag, releases: bool) {
    let namespace = cluster.namespace("takeover");
    let leader = Replica::start(cluster, &namespace, "a", releases);
    wait_until("a leads", || {
        let path = format!("{}/maps", leases(&namespace));
        cluster.try_send(Request::get(path)).ok()
    });
    let standby = Replica::start(cluster, &namespace, "b", true);
    // The first line of the present watch is not that of one that is opened again.
    let seed = json!({"metadata": {"name": "seed"}});
    cluster.send(post(&namespace.path("secrets"), &seed));
    let secrets = standby.factory.informer::<Secret>();
    wait_until("the standby has the Secret", || {
        secrets.lister().get(&namespace.name, "seed")
    });
    standby.lag.store(lag as u8, Ordering::Relaxed);
    let map = json!({"metadata": {"name": "m", "labels": {"a": "b"}}});
    cluster.send(post(&namespace.path("configmaps"), &map));
    assert_eq!(leader.calls.recv_timeout(PATIENCE).unwrap(), 0);
    leader.end();
    let released = Instant::now();
    let seen = standby.calls.recv_timeout(PATIENCE).unwrap();
    println!(
        "  {lag:?}, released {releases}: first call after {:?}",
        released.elapsed()
    );
    assert_eq!(seen, 1, "{lag:?}, released {releases}");
    let secrets = cluster.send(Request::get(namespace.path("secrets")));
    let secrets = secrets["items"].as_array().unwrap().iter();
    let children = secrets.filter(|secret| secret["metadata"]["name"] != "seed");
    assert_eq!(children.count(), 1);
    standby.end();
}

#[test]
fn next_leader_sees_the_children_of_one_that_has_stopped() {
    on_every_cluster(ONCE, |cluster| {
        for lag in [Lag::UntilReopened, Lag::None, Lag::Always] {
            take_over(cluster, lag, true);
        }
    });
}

#[test]
fn next_leader_sees_the_children_of_one_that_was_killed() {
    on_every_cluster(ONCE, |cluster| {
        for lag in [Lag::UntilReopened, Lag::Always] {
            take_over(cluster, lag, false);
        }
    });
}

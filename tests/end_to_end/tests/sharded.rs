//! Managers with one shard each: at any time, one replica works on an object.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_informer::client::Request;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::reflector::Shard;
use k8s_informer::{Object, Stopper};
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::{Failure, Manager, Next, ShardBy};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::cluster::{
    BOTH, Cluster, Namespace, merge_patch, on_every_cluster_with_and_without_shards, versions,
};
use crate::leases::post;
use crate::support::{cached, wait_until};

/// The calls of all replicas.
#[derive(Default)]
struct Calls {
    running: HashSet<String>,
    overlaps: Vec<String>,
    /// The version that the last call for each object has seen.
    seen: BTreeMap<String, String>,
}

impl Calls {
    fn begin(&mut self, uid: &str) {
        if !self.running.insert(uid.to_owned()) {
            self.overlaps.push(uid.to_owned());
        }
    }
}

/// Objects in some namespaces, which replicas divide.
struct Objects<'a> {
    cluster: &'a Cluster,
    namespaces: Vec<Namespace<'a>>,
    by: ShardBy,
    created: usize,
    calls: Arc<Mutex<Calls>>,
}

struct Replica {
    manager: Manager,
    count: u32,
    stop: Stopper,
    thread: JoinHandle<()>,
}

impl<'a> Objects<'a> {
    fn new(cluster: &'a Cluster, by: ShardBy) -> Self {
        let namespaces = (0..6).map(|n| cluster.namespace(&format!("sharded-{n}")));
        let mut objects = Self {
            cluster,
            namespaces: namespaces.collect(),
            by,
            created: 0,
            calls: Arc::default(),
        };
        objects.create(24);
        objects
    }

    /// The value of the label of all objects. An existing cluster may have others.
    fn run(&self) -> &str {
        &self.namespaces[0].name
    }

    fn create(&mut self, count: usize) {
        for n in self.created..self.created + count {
            let namespace = &self.namespaces[n % self.namespaces.len()];
            let map = json!({
                "metadata": {"name": format!("map-{n}"), "labels": {"run": self.run()}},
            });
            self.cluster.send(post(&namespace.path("configmaps"), &map));
        }
        self.created += count;
    }

    fn change(&self, n: usize, value: usize) {
        let namespace = &self.namespaces[n % self.namespaces.len()];
        let path = format!("{}/map-{n}", namespace.path("configmaps"));
        let patch = json!({"data": {"round": value.to_string()}});
        self.cluster.send(merge_patch(&path, &patch));
    }

    fn list(&self, resource: &str) -> Vec<Value> {
        let path = format!("/api/v1/{resource}?labelSelector=run%3D{}", self.run());
        let mut list = self.cluster.send(Request::get(path));
        serde_json::from_value(list["items"].take()).unwrap()
    }

    /// Starts a replica. One that does not release its Lease seems to be killed at its stop.
    fn start(&self, count: u32, releases: bool) -> Replica {
        let run = self.run().to_owned();
        let scope = InformerScope::all().label_selector(format!("run={run}").parse().unwrap());
        let manager = Manager::builder(self.cluster.client())
            .one_shard_of(&run, "maps", count, self.by)
            .leader_election_options(
                LeaderElectionOptions::new()
                    .retry_period(Duration::from_secs(1))
                    // A term must outlast a server that stalls, because other tests load it.
                    .renew_deadline(Duration::from_secs(6))
                    .lease_duration(Duration::from_secs(8))
                    .release(releases),
            )
            .informers(self.cluster.factory_options().scope(scope))
            .build()
            .unwrap();
        let calls = Arc::clone(&self.calls);
        let maps = manager.reconcile::<ConfigMap>("maps").workers(2);
        let maps = maps.owns(Source::of::<Secret>()).by(move |cx, map| {
            let uid = map.uid().to_owned();
            calls.lock().begin(&uid);
            let create = || -> Result<(), Failure> {
                if cx.children::<Secret>()?.is_empty() {
                    let labels = json!({"run": run});
                    let child = json!({"metadata": {"generateName": "child-", "labels": labels}});
                    let secrets = cx.api::<Secret>(Some(cx.namespace()));
                    secrets.create(&cx.owned(child)?, cx.stop())?;
                }
                Ok(())
            };
            let created = create();
            let calls = &mut *calls.lock();
            calls.running.remove(&uid);
            created?;
            calls.seen.insert(uid, map.resource_version().to_owned());
            Ok(Next::Done)
        });
        maps.unwrap();
        let stop = Stopper::new();
        let thread = thread::spawn({
            let (manager, stop) = (manager.clone(), stop.clone());
            move || manager.run(&stop).unwrap()
        });
        Replica {
            manager,
            count,
            stop,
            thread,
        }
    }

    /// Starts a replica that gets a shard.
    fn start_with_shard(&self, count: u32, releases: bool) -> Replica {
        let replica = self.start(count, releases);
        replica.until_shard();
        replica
    }

    /// Waits until all replicas have what the server has, and have reconciled it.
    #[track_caller]
    fn check(&self, replicas: &[&Replica]) {
        let (maps, text) = (self.list("configmaps"), |value: &Value| {
            value.as_str().unwrap_or_default().to_owned()
        });
        let current: BTreeMap<_, _> = maps
            .iter()
            .map(|map| &map["metadata"])
            .map(|metadata| (text(&metadata["uid"]), text(&metadata["resourceVersion"])))
            .collect();
        wait_until("the last version of each object is reconciled", || {
            (self.calls.lock().seen == current).then_some(())
        });
        let secrets = self.list("secrets");
        let owner = |secret: &Value| text(&secret["metadata"]["ownerReferences"][0]["uid"]);
        let mut owners: Vec<_> = secrets.iter().map(owner).collect();
        owners.sort();
        assert!(
            owners.iter().eq(current.keys()),
            "one child for each object"
        );
        assert_eq!(self.calls.lock().overlaps, [""; 0]);

        let mut shards: Vec<_> = replicas.iter().map(|of| of.until_shard()).collect();
        shards.sort_unstable();
        assert!(shards.into_iter().eq(0..replicas[0].count));
        for replica in replicas {
            let shard = Shard::new(replica.until_shard(), replica.count).unwrap();
            let shard = match self.by {
                ShardBy::Namespace => shard.by_namespace(),
                ShardBy::Uid => shard,
            };
            let own = |all: &[Value], uid: &dyn Fn(&Value) -> String| {
                let items = all.iter().filter(|object| match self.by {
                    ShardBy::Namespace => shard.contains(&text(&object["metadata"]["namespace"])),
                    ShardBy::Uid => shard.contains(&uid(object)),
                });
                versions(&json!({"items": items.collect::<Vec<_>>()}))
            };
            let factory = replica.manager.factory();
            let uid = |map: &Value| text(&map["metadata"]["uid"]);
            let own = (own(&maps, &uid), own(&secrets, &owner));
            wait_until("the caches have the objects of the shard", || {
                let maps = cached(&factory.informer::<ConfigMap>());
                (own == (maps, cached(&factory.informer::<Secret>()))).then_some(())
            });
        }
    }
}

impl Replica {
    #[track_caller]
    fn until_shard(&self) -> u32 {
        wait_until("the replica has a shard", || self.manager.shard())
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap();
    }
}

/// A spare replica takes over after an orderly stop, and another one after a kill.
fn fail_over(cluster: &Cluster, by: ShardBy) {
    let mut objects = Objects::new(cluster, by);
    let stopped = objects.start_with_shard(2, true);
    let killed = objects.start_with_shard(2, false);
    objects.check(&[&stopped, &killed]);
    let spares = [objects.start(2, true), objects.start(2, true)];
    let mut free = stopped.until_shard();
    let mut working = vec![&killed];
    stopped.end();
    for n in 0..12 {
        objects.change(n, 1);
    }
    objects.create(6);
    let first = wait_until("a spare takes over", || {
        let has_shard = |spare: &&Replica| spare.manager.shard() == Some(free);
        spares.iter().find(has_shard)
    });
    working.push(first);
    objects.check(&working);
    free = killed.until_shard();
    killed.end();
    for n in 6..18 {
        objects.change(n, 2);
    }
    objects.create(6);
    wait_until("the other spare takes over", || {
        let mut shards = spares.iter().map(|spare| spare.manager.shard());
        shards.any(|shard| shard == Some(free)).then_some(())
    });
    objects.check(&[&spares[0], &spares[1]]);
    spares.into_iter().for_each(Replica::end);
}

/// Two replicas of the old number of shards end one after the other while objects change.
fn change_count(cluster: &Cluster, by: ShardBy) {
    let mut objects = Objects::new(cluster, by);
    let [stopped, killed] = [true, false].map(|releases| objects.start_with_shard(2, releases));
    let replicas = [(); 3].map(|()| objects.start(3, true));
    for n in 0..objects.created {
        objects.change(n, 1);
    }
    objects.check(&[&stopped, &killed]);
    stopped.end();
    let mut changes = objects.created;
    let mut change = |objects: &Objects<'_>| {
        changes += 1;
        objects.change(changes % objects.created, changes);
    };
    (0..50).for_each(|_| change(&objects));
    assert!(replicas.iter().all(|of| of.manager.shard().is_none()));
    killed.end();
    wait_until("the new replicas start", || {
        change(&objects);
        let mut shards = replicas.iter().map(|of| of.manager.shard());
        shards.all(|shard| shard.is_some()).then_some(())
    });
    objects.create(6);
    objects.check(&replicas.each_ref());
    replicas.into_iter().for_each(Replica::end);
}

#[test]
fn spares_take_over_shards_by_namespace() {
    on_every_cluster_with_and_without_shards(BOTH, |of| fail_over(of, ShardBy::Namespace));
}

#[test]
fn spares_take_over_shards_by_uid() {
    on_every_cluster_with_and_without_shards(BOTH, |of| fail_over(of, ShardBy::Uid));
}

#[test]
fn count_of_shards_by_namespace_changes_while_objects_change() {
    on_every_cluster_with_and_without_shards(BOTH, |of| change_count(of, ShardBy::Namespace));
}

#[test]
fn count_of_shards_by_uid_changes_while_objects_change() {
    on_every_cluster_with_and_without_shards(BOTH, |of| change_count(of, ShardBy::Uid));
}

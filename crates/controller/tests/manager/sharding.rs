//! One shard for each replica. Each replica has its own clock, which only the tests advance: a
//! holder does not renew its Lease meanwhile, as if it was suspended.

use std::cell::Cell;
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, OnceLock};

use k8s_informer::object::{Key, Scope, meta_namespace_key};
use k8s_informer::reflector::Shard;
use k8s_informer::time::Clock;
use k8s_informer::{Resource, SharedIndexInformer};
use k8s_informer_controller::leader_election::{LeaderElectionOptions, LeaderElector};
use k8s_informer_controller::{Context, Controller, ControllerBuilder, ManagerBuilder, ShardBy};
use k8s_informer_testing::FakeClock;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use serde::de::DeserializeOwned;

use super::*;

const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// Of two shards, `green` is in the first, and the others are in the second.
const NAMESPACES: [&str; 4] = ["blue", "green", "red", "white"];
const SECOND: Duration = Duration::from_secs(1);
const LEASE_DURATION: Duration = Duration::from_secs(60);
/// The longest pause of a replica that waits.
const PAUSE: Duration = Duration::from_millis(1200);

type Division = (u32, ShardBy);

fn builder(server: &ApiServer, identity: &str, (count, by): Division) -> ManagerBuilder {
    Manager::builder(client(server))
        .one_shard_of("default", "team", count, by)
        .identity(identity)
}

struct Replica {
    clock: FakeClock,
    maps: Controller<ConfigMap>,
    running: Running,
    /// What the calls have sent.
    calls: Receiver<String>,
    /// The number of pauses that the test has ended.
    ended_pauses: Cell<usize>,
}

impl Replica {
    /// Starts a replica with a controller of ConfigMaps. The calls send their keys.
    fn start(server: &ApiServer, identity: &'static str, division: Division) -> Self {
        Self::start_with(server, identity, division, |maps, sender| {
            maps.by(send_keys(sender))
        })
    }

    /// Starts a replica with this controller of ConfigMaps. One with the identity `killed` does not
    /// release its Lease.
    fn start_with(
        server: &ApiServer,
        identity: &'static str,
        division: Division,
        build: impl FnOnce(
            ControllerBuilder<ConfigMap>,
            Sender<String>,
        ) -> Result<Controller<ConfigMap>, ControllerError>,
    ) -> Self {
        let clock = FakeClock::new();
        let manager = builder(server, identity, division)
            .leader_election_options(
                LeaderElectionOptions::new()
                    .clock(Arc::new(clock.clone()))
                    .release(identity != "killed")
                    .lease_duration(LEASE_DURATION)
                    .renew_deadline(40 * SECOND)
                    .retry_period(SECOND),
            )
            .health(":0")
            .build()
            .unwrap();
        let (sender, calls) = mpsc::channel();
        Self {
            clock,
            maps: build(manager.reconcile("maps"), sender).unwrap(),
            running: Running::start(manager),
            calls,
            ended_pauses: Cell::new(0),
        }
    }

    fn shard(&self) -> Option<u32> {
        self.running.manager.shard()
    }

    /// Returns the pauses so far. They are random. All other waits are shorter, longer, or a whole
    /// number of seconds.
    fn pauses(&self) -> Vec<Duration> {
        let waits = self.clock.waits().into_iter();
        let is_pause =
            |wait: &Duration| (SECOND..3 * SECOND).contains(wait) && wait.subsec_nanos() != 0;
        waits.filter(is_pause).collect()
    }

    fn until_pause(&self, number: usize) {
        until("the replica pauses or has a shard", || {
            self.shard().is_some() || self.pauses().len() > number
        });
    }

    /// Ends the pause of the replica, and waits for the next one or for a shard.
    fn look(&self) {
        let number = self.ended_pauses.get();
        self.until_pause(number);
        if let Some(pause) = self.pauses().get(number) {
            self.clock.advance(*pause);
            self.ended_pauses.set(number + 1);
            self.until_pause(number + 1);
        }
    }

    /// Ends pauses until the replica has a shard. Returns the time on its clock.
    #[track_caller]
    fn take(&self) -> Duration {
        let began = self.clock.now();
        for _ in 0..100 {
            self.look();
            if self.shard().is_some() {
                return self.clock.now() - began;
            }
        }
        panic!("the replica takes no shard: {:?}", self.shards_status());
    }

    /// Ends pauses until the replica has the shard again that it had.
    #[track_caller]
    fn lead_again(&self) {
        for _ in 0..100 {
            let number = self.ended_pauses.get();
            until("the replica pauses or leads", || {
                self.is_leader() || self.pauses().len() > number
            });
            if self.is_leader() {
                return;
            }
            self.clock.advance(self.pauses()[number]);
            self.ended_pauses.set(number + 1);
        }
        panic!(
            "the replica does not lead again: {:?}",
            self.shards_status()
        );
    }

    #[track_caller]
    fn assert_takes_after_expiry(&self, tolerance: Duration) {
        let took = self.take();
        let expected = LEASE_DURATION..LEASE_DURATION + tolerance;
        assert!(expected.contains(&took), "{took:?}");
    }

    /// Lets a second pass on the clock of a holder, which renews its Lease in it.
    fn pass_second(&self) {
        let waits = || {
            let waits = self.clock.waits();
            waits.iter().filter(|wait| **wait == SECOND).count()
        };
        let before = waits();
        self.clock.advance(SECOND);
        until("the holder renews or does not lead any more", || {
            waits() > before || !self.is_leader()
        });
    }

    /// Lets a second pass, and some real time for what follows from that.
    fn step(&self) {
        let before = self.clock.waits().len();
        self.clock.advance(SECOND);
        // Not each second ends a wait.
        drop(self.clock.wait_for_waits(before + 1, SECOND / 5));
    }

    /// Whether this replica has a term. Its manager can go on without one, as a candidate.
    fn is_leader(&self) -> bool {
        let elector = self.running.manager.elector();
        elector.is_some_and(LeaderElector::is_leader)
    }

    /// Returns the number of lists of Leases that this holder has waited for.
    fn observations(&self) -> usize {
        let is_observation = |wait: &&Duration| **wait >= LEASE_DURATION / 2;
        self.clock.waits().iter().filter(is_observation).count()
    }

    /// Lets time pass until the holder lists the Leases again, or ends.
    fn observe(&self) {
        // The wait for the first list must not count as the one that follows a list.
        until("the holder waits for a list", || {
            self.observations() > 0 || !self.is_leader()
        });
        let before = self.observations();
        for _ in 0..36 {
            self.pass_second();
            if self.observations() > before || !self.is_leader() {
                return;
            }
        }
        // The last list can still be running.
        until("the holder lists the Leases", || {
            self.observations() > before || !self.is_leader()
        });
    }

    /// Receives the keys of calls until each of these was called.
    #[track_caller]
    fn expect_calls(&self, keys: &BTreeSet<String>) {
        let mut left = keys.clone();
        while !left.is_empty() {
            let key = self.calls.recv_timeout(PATIENCE).unwrap();
            assert!(keys.contains(&key), "{key} is in another shard");
            left.remove(&key);
        }
    }

    fn get(&self, path: &str) -> String {
        get(self.running.manager.health_address().unwrap(), path)
    }

    fn shards_status(&self) -> Value {
        let status = self.get("/status");
        let (_, body) = status.split_once("\r\n\r\n").unwrap();
        serde_json::from_str::<Value>(body).unwrap()["shards"].take()
    }

    fn informer<T: Resource + DeserializeOwned>(&self) -> SharedIndexInformer<T> {
        self.running.manager.factory().informer::<T>()
    }

    fn cached<T: Resource + DeserializeOwned>(&self) -> BTreeSet<String> {
        let keys = self.informer::<T>().lister().list_keys();
        keys.iter().map(ToString::to_string).collect()
    }

    /// Waits until no key is left. Returns what the calls have sent.
    fn until_idle(&self) -> BTreeSet<String> {
        until("the controller is idle", || {
            let status = self.maps.status();
            status.queued + status.postponed + status.running.len() == 0
        });
        self.calls.try_iter().collect()
    }

    fn end(self) {
        self.running.end().unwrap();
    }
}

fn send_keys(
    sender: Sender<String>,
) -> impl Fn(&Context, &Arc<ConfigMap>) -> Result<Next, Failure> {
    move |cx, _| {
        sender.send(cx.key().to_string())?;
        Ok(Next::Done)
    }
}

fn set(keys: impl IntoIterator<Item = impl Into<String>>) -> BTreeSet<String> {
    keys.into_iter().map(Into::into).collect()
}

fn holder(server: &ApiServer, lease: &str) -> Value {
    let lease = server.get(&format!("{LEASES}/{lease}"));
    lease.map_or(Value::Null, |lease| lease["spec"]["holderIdentity"].clone())
}

fn create_lease(server: &ApiServer, name: &str, spec: Value) {
    let metadata = json!({"name": name, "labels": {"k8s-informer/shards-of": "team"}});
    let lease = json!({"metadata": metadata, "spec": spec});
    server.create(LEASES, lease).unwrap();
}

/// Creates the Lease of another process, which renews it only with [`renew`].
fn hold(server: &ApiServer, lease: &str) {
    let spec =
        json!({"holderIdentity": "other", "leaseDurationSeconds": 60, "leaseTransitions": 3});
    create_lease(server, lease, spec);
}

fn renew(server: &ApiServer, lease: &str) {
    let spec = json!({"spec": {"renewTime": "2026-01-02T03:04:05.000000Z"}});
    server.patch(&format!("{LEASES}/{lease}"), spec).unwrap();
}

fn requests_for(server: &ApiServer, resource: &str) -> usize {
    let is_of = |request: &RequestRecord| request.resource() == Some(resource);
    server.requests().iter().filter(|of| is_of(of)).count()
}

/// Runs a test with a server that selects shards and with one that does not.
fn on_both_servers(test: impl Fn(&ApiServer)) {
    for selects in [true, false] {
        let server = ApiServer::builder().sharded_list_and_watch(selects);
        test(&server.start().unwrap());
    }
}

fn shard_of(namespace: &str) -> u32 {
    let is_in = |index: &u32| {
        let shard = Shard::new(*index, 2).unwrap().by_namespace();
        shard.contains(namespace)
    };
    (0..2).find(is_in).unwrap()
}

/// Returns names, which are also UIDs, of the objects of a shard of two.
fn uids(index: u32) -> Vec<String> {
    let shard = Shard::new(index, 2).unwrap();
    let all = (0..).map(|number| format!("{number}-uid"));
    all.filter(|uid| shard.contains(uid)).take(3).collect()
}

fn create_map_with_uid(server: &ApiServer, namespace: &str, uid: &str) {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    let map = json!({"metadata": {"name": uid, "uid": uid}});
    server.create(&path, map).unwrap();
}

fn reference(uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": uid, "uid": uid, "controller": true}])
}

#[test]
fn each_namespace_is_with_one_replica_and_a_spare_waits() {
    on_both_servers(|server| {
        for namespace in NAMESPACES {
            let path = format!("/api/v1/namespaces/{namespace}");
            let object = |name: &str| json!({"metadata": {"name": name}});
            server
                .create("/api/v1/namespaces", object(namespace))
                .unwrap();
            for resource in ["configmaps", "secrets"] {
                let path = format!("{path}/{resource}");
                server.create(&path, object("a")).unwrap();
            }
        }
        let start = |identity| {
            let division = (2, ShardBy::Namespace);
            Replica::start_with(server, identity, division, |maps, sender| {
                maps.owns(Source::of::<Secret>())
                    .watches(Source::of::<Namespace>(), |_| None)
                    .by(send_keys(sender))
            })
        };
        let assert_works = |replica: &Replica| {
            let shard = replica.shard().unwrap();
            let own = NAMESPACES.iter().filter(|of| shard_of(of) == shard);
            let own = set(own.map(|namespace| format!("{namespace}/a")));
            replica.expect_calls(&own);
            assert_eq!(replica.cached::<ConfigMap>(), own);
            assert_eq!(replica.cached::<Secret>(), own);
            assert!(replica.cached::<Namespace>().is_superset(&set(NAMESPACES)));
            shard
        };
        let [first, second] = ["first", "second"].map(|identity| {
            let replica = start(identity);
            replica.take();
            replica
        });
        let shard = assert_works(&first);
        assert_eq!(assert_works(&second), 1 - shard);
        let lease = format!("team-{shard}-of-2-by-namespace");
        assert_eq!(holder(server, &lease), "first");
        let label = &server.get(&format!("{LEASES}/{lease}")).unwrap()["metadata"]["labels"];
        assert_eq!(label, &json!({"k8s-informer/shards-of": "team"}));
        server.wait_for_watches(6, PATIENCE).unwrap();

        server.clear_requests();
        let spare = start("spare");
        spare.look();
        assert_eq!(spare.shard(), None);
        assert!(spare.running.manager.elector().is_none());
        for path in ["/readyz", "/healthz"] {
            assert!(spare.get(path).starts_with("HTTP/1.1 200"));
        }
        let expected = json!({
            "shard": null, "count": 2, "withHolder": 2, "otherDivision": null, "lastError": null,
        });
        assert_eq!(spare.shards_status(), expected);
        let metrics = spare.running.manager.metrics().render();
        for metric in ["shards", "shards_with_holder"] {
            let line = format!("\ncontroller_runtime_{metric}{{name=\"team\"}} 2\n");
            assert!(metrics.contains(&line), "{metrics}");
        }
        assert_eq!(server.requests().len(), requests_for(server, "leases"));
        assert!(spare.cached::<ConfigMap>().is_empty());

        first.end();
        assert_eq!(holder(server, &lease), "");
        assert!(spare.take() <= PAUSE, "the Lease has no holder");
        assert_eq!(spare.shard(), Some(shard));
        assert_eq!(assert_works(&spare), shard);
        assert_eq!(spare.shards_status()["shard"], shard);
        assert!(spare.get("/readyz").starts_with("HTTP/1.1 200"));
        assert!(second.calls.try_recv().is_err());
        second.end();
        spare.end();
    });
}

#[test]
fn shards_by_uid_have_their_objects_and_children() {
    on_both_servers(|server| {
        let all = [uids(0), uids(1)];
        for uid in all.iter().flatten() {
            create_map_with_uid(server, "default", uid);
            let child = json!({
                "metadata": {"name": format!("of-{uid}"), "ownerReferences": reference(uid)},
            });
            server.create(SECRETS, child).unwrap();
        }
        let orphan = json!({"metadata": {"name": "orphan"}});
        server.create(SECRETS, orphan).unwrap();
        let pods = "/api/v1/namespaces/default/pods";
        let pod = json!({"metadata": {"name": "pod"}, "spec": {"containers": []}});
        server.create(pods, pod).unwrap();

        let keys = |shard: u32| {
            let uids = uids(shard).into_iter();
            set(uids.map(|uid| format!("default/{uid}")))
        };
        let (sender_of_gone, gone) = mpsc::channel();
        let replicas = ["a", "b"].map(|identity| {
            let mapped: Vec<Key> = (0..2).flat_map(&keys).map(Key::from).collect();
            let gone = sender_of_gone.clone();
            let division = (2, ShardBy::Uid);
            let replica = Replica::start_with(server, identity, division, |maps, sender| {
                let keys = move |_: &Pod| mapped.clone();
                maps.owns(Source::of::<Secret>())
                    .watches(Source::of::<Pod>(), keys)
                    .on_gone(move |key| gone.send((identity, key.to_string())).unwrap())
                    .by(send_keys(sender))
            });
            replica.take();
            replica
        });
        for replica in &replicas {
            let shard = replica.shard().unwrap();
            replica.expect_calls(&keys(shard));
            assert_eq!(replica.cached::<ConfigMap>(), keys(shard));
            let children = uids(shard).into_iter();
            let children = set(children.map(|uid| format!("default/of-{uid}")));
            assert_eq!(replica.cached::<Secret>(), children);
            assert_eq!(replica.cached::<Pod>(), set(["default/pod"]));
            replica.until_idle();
        }
        // A watched object concerns the keys of all shards.
        let touch = json!({"metadata": {"labels": {"touched": "true"}}});
        server.patch(&format!("{pods}/pod"), touch).unwrap();
        for replica in &replicas {
            let shard = replica.shard().unwrap();
            replica.expect_calls(&keys(shard));
            assert!(replica.until_idle().is_subset(&keys(shard)));
        }

        // A child moves to the owner of another shard.
        let is_first = |replica: &&Replica| replica.shard() == Some(0);
        let from = replicas.iter().find(is_first).unwrap();
        let to = replicas.iter().find(|of| !is_first(of)).unwrap();
        let (first, second) = (&all[0][0], &all[1][0]);
        let moved = json!({"metadata": {"ownerReferences": reference(second)}});
        let child = format!("of-{first}");
        server.patch(&format!("{SECRETS}/{child}"), moved).unwrap();
        from.expect_calls(&set([format!("default/{first}")]));
        to.expect_calls(&set([format!("default/{second}")]));
        let key = format!("default/{child}");
        let has_child = |replica: &Replica| replica.cached::<Secret>().contains(&key);
        until("the child has moved", || !has_child(from) && has_child(to));

        let deleted = &all[0][1];
        server.delete(&format!("{MAPS}/{deleted}")).unwrap();
        let of = from.running.manager.elector().unwrap().identity();
        let expected = (of, format!("default/{deleted}"));
        assert_eq!(gone.recv_timeout(PATIENCE).unwrap(), expected);
        for replica in &replicas {
            replica.until_idle();
        }
        assert!(
            gone.try_iter().all(|of| of == expected),
            "no other key is gone"
        );
        replicas.into_iter().for_each(Replica::end);
    });
}

#[test]
fn spare_takes_a_shard_after_the_lease_of_a_killed_holder() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let division = (1, ShardBy::Uid);
    let killed = Replica::start(&server, "killed", division);
    killed.take();
    killed.expect_calls(&set(["default/a"]));
    killed.end();
    assert_eq!(holder(&server, "team-0-of-1-by-uid"), "killed");
    let spare = Replica::start(&server, "spare", division);
    spare.assert_takes_after_expiry(PAUSE);
    spare.expect_calls(&set(["default/a"]));
    assert_eq!(holder(&server, "team-0-of-1-by-uid"), "spare");
    spare.end();
}

#[test]
fn replica_waits_until_another_division_is_released() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    for (old, new) in [
        ((2, ShardBy::Namespace), (3, ShardBy::Namespace)),
        ((3, ShardBy::Uid), (2, ShardBy::Uid)),
        ((2, ShardBy::Uid), (2, ShardBy::Namespace)),
        ((1, ShardBy::Namespace), (1, ShardBy::Uid)),
    ] {
        let old = Replica::start(&server, "old", old);
        old.take();
        let new = Replica::start(&server, "new", new);
        // Less than the lease, because the clock of the other replica does not advance.
        (0..4).for_each(|_| new.look());
        assert_eq!(new.shard(), None);
        let status = new.shards_status();
        let lease = status["otherDivision"].as_str().unwrap();
        assert_eq!(holder(&server, lease), "old");
        assert_eq!(status["withHolder"], 0);
        assert!(new.get("/readyz").starts_with("HTTP/1.1 200"));
        old.end();
        assert!(new.take() <= PAUSE);
        assert_eq!(new.shards_status()["otherDivision"], Value::Null);
        new.end();
    }
}

#[test]
fn lease_of_another_process_is_awaited_until_it_expires() {
    for (lease, division) in [
        ("team-0-of-1-by-namespace", (1, ShardBy::Namespace)),
        ("team-1-of-2-by-uid", (3, ShardBy::Uid)),
        ("team-0-of-3-by-namespace", (3, ShardBy::Uid)),
        ("team-9-of-3-by-uid", (3, ShardBy::Uid)),
    ] {
        let server = ApiServer::start().unwrap();
        hold(&server, lease);
        let replica = Replica::start(&server, "a", division);
        (0..3).for_each(|_| replica.look());
        let other = Some(lease).filter(|_| division.0 == 3);
        assert_eq!(replica.shards_status()["otherDivision"], json!(other));
        renew(&server, lease);
        replica.assert_takes_after_expiry(2 * PAUSE);
        replica.end();
    }
}

/// Another division took its Lease after this replica had seen no holder.
#[test]
fn replica_releases_its_lease_if_it_is_not_alone() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let fault = Fault::status(403).on(Verb::List).resource("leases");
    server.fail_next(fault.skip(1));
    let replica = Replica::start(&server, "a", (1, ShardBy::Uid));
    replica.until_pause(0);
    let own = "team-0-of-1-by-uid";
    assert_eq!(holder(&server, own), "a");
    let error = replica.shards_status()["lastError"].to_string();
    assert!(error.contains("403"), "{error}");
    let other = "team-1-of-2-by-uid";
    hold(&server, other);
    replica.look();
    assert_eq!(replica.shard(), None);
    assert_eq!(holder(&server, own), "");
    assert_eq!(replica.shards_status()["otherDivision"], other);
    assert_eq!(requests_for(&server, "configmaps"), 0);
    server.delete(&format!("{LEASES}/{other}")).unwrap();
    replica.take();
    replica.expect_calls(&set(["default/a"]));
    replica.end();
}

/// A paused machine, whose clocks stood still, can't notice that its Lease has expired. Its renewal
/// succeeds, because the other division has other Leases.
#[test]
fn earlier_of_two_divisions_at_work_gives_up() {
    let server = ApiServer::start().unwrap();
    for (old, new) in [
        ((1, ShardBy::Uid), (2, ShardBy::Uid)),
        ((2, ShardBy::Uid), (1, ShardBy::Uid)),
        ((1, ShardBy::Uid), (1, ShardBy::Namespace)),
    ] {
        let old = Replica::start(&server, "old", old);
        old.take();
        let new = Replica::start(&server, "new", new);
        new.assert_takes_after_expiry(2 * PAUSE);
        for replica in [&old, &new] {
            assert!(replica.running.manager.elector().unwrap().is_leader());
        }
        // The later one sees that the earlier one has renewed its Lease, and goes on.
        old.pass_second();
        new.observe();
        assert!(!new.running.thread.is_finished());
        assert!(new.shards_status()["otherDivision"].is_string());
        old.observe();
        until("the earlier one gives up", || !old.is_leader());
        new.observe();
        assert_eq!(new.shards_status()["otherDivision"], Value::Null);
        assert!(new.is_leader());
        // It is a candidate for the same shard, while no other division is at work.
        let shard = old.shard();
        let gated = old.running.manager.gate(&client(&server));
        assert!(refuses(&gated));
        until("the earlier one waits", || {
            old.shards_status()["otherDivision"].is_string()
        });
        assert!(!old.running.thread.is_finished() && !old.is_leader());
        new.end();
        old.lead_again();
        assert_eq!(old.shard(), shard);
        until("the gate opens", || !refuses(&gated));
        old.end();
    }
}

/// Whether a gated client may change nothing.
fn refuses(gated: &Client) -> bool {
    let maps = gated.api::<ConfigMap>(Some("default"));
    let deleted = maps.delete("no-such-map", &DeleteOptions::new(), &Stop::never());
    deleted.unwrap_err().is_not_leading()
}

/// For example, it is one of a program that does not know the rule.
#[test]
fn later_division_gives_up_if_the_earlier_one_does_not() {
    let server = ApiServer::start().unwrap();
    let replica = Replica::start(&server, "a", (1, ShardBy::Uid));
    replica.take();
    let other = "team-1-of-2-by-uid";
    hold(&server, other);
    let earlier = json!({"spec": {"acquireTime": "2020-01-02T03:04:05.000000Z"}});
    server.patch(&format!("{LEASES}/{other}"), earlier).unwrap();
    for renewals in 1..=3 {
        replica.observe();
        assert!(!replica.running.thread.is_finished());
        assert_eq!(replica.shards_status()["otherDivision"], other);
        let time = format!("2020-01-02T03:04:0{renewals}.000000Z");
        let renewal = json!({"spec": {"renewTime": time}});
        server.patch(&format!("{LEASES}/{other}"), renewal).unwrap();
    }
    replica.observe();
    let own = "team-0-of-1-by-uid";
    until("the shard is given up", || holder(&server, own) == "");
    assert_eq!(holder(&server, other), "other");
    assert!(!replica.is_leader());
    replica.end();
}

/// A server that carried out a request late has written it, but its sender is gone.
#[test]
fn holder_goes_on_beside_an_earlier_lease_that_expires() {
    let server = ApiServer::start().unwrap();
    let replica = Replica::start(&server, "a", (1, ShardBy::Uid));
    replica.take();
    let other = "team-1-of-2-by-uid";
    hold(&server, other);
    let earlier = json!({"spec": {"acquireTime": "2020-01-02T03:04:05.000000Z"}});
    server.patch(&format!("{LEASES}/{other}"), earlier).unwrap();
    for _ in 0..5 {
        replica.observe();
        assert!(!replica.running.thread.is_finished());
    }
    assert_eq!(replica.shards_status()["otherDivision"], Value::Null);
    replica.end();
}

/// All holders together read a limited number of Leases each second.
#[test]
fn holder_of_one_of_1000_shards_lists_rarely() {
    let server = ApiServer::start().unwrap();
    let others: Vec<_> = (1..1000).collect();
    for shard in &others {
        create_lease(&server, &format!("team-{shard}-of-1000-by-uid"), json!({}));
    }
    let replica = Replica::start(&server, "a", (1000, ShardBy::Uid));
    replica.take();
    until("the holder waits for its next list", || {
        replica.observations() == 1
    });
    let waits = replica.clock.waits();
    let period = waits.iter().find(|wait| **wait >= LEASE_DURATION / 2);
    let expected = 99 * SECOND..120 * SECOND;
    assert!(expected.contains(period.unwrap()), "{period:?}");
    replica.end();
}

/// It was edited, or restored from a backup without labels. Lists do not have it.
#[test]
fn lease_without_its_label_is_taken_after_it_expires() {
    for by in [ShardBy::Namespace, ShardBy::Uid] {
        let server = ApiServer::start().unwrap();
        create_map(&server, "a");
        let lease = format!("team-0-of-1-by-{}", name_of(by));
        hold(&server, &lease);
        let path = format!("{LEASES}/{lease}");
        let label =
            |value: Value| json!({"metadata": {"labels": {"k8s-informer/shards-of": value}}});
        server.patch(&path, label(Value::Null)).unwrap();
        server.clear_requests();
        let replica = Replica::start(&server, "a", (1, by));
        replica.assert_takes_after_expiry(2 * PAUSE);
        assert!(server.requests().len() < 200, "a flood of requests");
        let labels = &server.get(&path).unwrap()["metadata"]["labels"];
        assert_eq!(labels, &json!({"k8s-informer/shards-of": "team"}));
        replica.expect_calls(&set(["default/a"]));
        replica.end();
    }
}

fn name_of(by: ShardBy) -> &'static str {
    match by {
        ShardBy::Namespace => "namespace",
        ShardBy::Uid => "uid",
    }
}

/// The label can also get lost while replicas wait.
#[test]
fn lease_that_loses_its_label_is_taken_after_it_expires() {
    let server = ApiServer::start().unwrap();
    let lease = "team-0-of-1-by-uid";
    hold(&server, lease);
    let replica = Replica::start(&server, "a", (1, ShardBy::Uid));
    (0..3).for_each(|_| replica.look());
    let removed = json!({"metadata": {"labels": null}});
    server.patch(&format!("{LEASES}/{lease}"), removed).unwrap();
    server.clear_requests();
    replica.assert_takes_after_expiry(4 * PAUSE);
    assert!(server.requests().len() < 200, "a flood of requests");
    replica.end();
}

/// Starts replicas of two divisions at the same time. Stops those that start.
fn race() {
    let server = ApiServer::start().unwrap();
    for uid in (0..2).flat_map(uids) {
        create_map_with_uid(&server, "default", &uid);
    }
    let (sender, calls) = mpsc::channel();
    let managers = [(1, "a"), (2, "b"), (2, "c")].map(|(count, identity)| {
        let manager = builder(&server, identity, (count, ShardBy::Uid));
        let manager = manager.leader_election_options(
            LeaderElectionOptions::new()
                .lease_duration(4 * SECOND)
                .renew_deadline(2 * SECOND)
                .retry_period(SECOND),
        );
        let (manager, sender) = (manager.build().unwrap(), sender.clone());
        let maps = manager.reconcile::<ConfigMap>("maps").by(move |cx, map| {
            sender.send((true, map.uid().to_owned()))?;
            cx.stop().wait_timeout(Duration::from_millis(5));
            sender.send((false, map.uid().to_owned()))?;
            Ok(Next::After(Duration::from_millis(1)))
        });
        maps.unwrap();
        manager
    });
    let mut waiting = Vec::from(managers.map(Running::start));
    let mut running = HashSet::new();
    let mut check = |(begins, uid): (bool, String)| match begins {
        true => assert!(running.insert(uid), "two calls for one object"),
        false => assert!(running.remove(&uid)),
    };
    while !waiting.is_empty() {
        let works = |running: &Running| running.manager.shard().is_some();
        until("a replica works", || waiting.iter().any(works));
        (0..40).for_each(|_| check(calls.recv_timeout(PATIENCE).unwrap()));
        let (working, others) = waiting.into_iter().partition::<Vec<_>, _>(works);
        for running in working {
            running.end().unwrap();
        }
        waiting = others;
    }
    calls.try_iter().for_each(check);
}

#[test]
fn divisions_that_start_together_never_work_together() {
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(race);
        }
    });
}

/// A replica without a shard may change nothing, and one that has a Lease only if no other division has.
#[test]
fn le27_gate_of_a_shard_opens_with_its_work() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let other = "team-1-of-2-by-uid";
    hold(&server, other);
    let replica = Replica::start(&server, "a", (1, ShardBy::Namespace));
    let gated = replica.running.manager.gate(&client(&server));
    replica.look();
    assert!(refuses(&gated));
    server.delete(&format!("{LEASES}/{other}")).unwrap();
    replica.take();
    replica.expect_calls(&set(["default/a"]));
    assert!(!refuses(&gated));

    // The next term has its Lease, and can't list the others.
    let own = "team-0-of-1-by-namespace";
    let unlisted = Fault::status(403).on(Verb::List).resource("leases");
    server.fail_next(unlisted.skip(1));
    server.delete(&format!("{LEASES}/{own}")).unwrap();
    until("the Lease is taken again", || {
        replica.step();
        server.pending_faults() == 0
    });
    assert_eq!(holder(&server, own), "a");
    assert!(refuses(&gated));
    until("the gate opens", || {
        replica.step();
        !refuses(&gated)
    });
    replica.expect_calls(&set(["default/a"]));
    replica.end();
    assert!(refuses(&gated));
}

#[test]
fn shards_that_cannot_be_right_are_refused() {
    let server = ApiServer::start().unwrap();
    let (uid, namespace) = ((2, ShardBy::Uid), (2, ShardBy::Namespace));
    let refused = |builder: ManagerBuilder| builder.build().unwrap_err().to_string();
    let shards = |count, name: &str| {
        Manager::builder(client(&server)).one_shard_of("default", name, count, ShardBy::Uid)
    };
    assert!(refused(shards(0, "team")).contains("the number of shards must be 1 to"));
    assert!(refused(shards(2, "my team")).contains("the name of the shards: "));
    let both = shards(2, "team").leader_election("default", "team");
    assert!(refused(both).contains("call one of them"));

    let manager = |division| builder(&server, "a", division).build().unwrap();
    let nodes = |of: &Manager| done(of.reconcile::<Node>("nodes"));
    let maps = |of: &Manager| done(of.reconcile::<ConfigMap>("maps"));
    let dynamic = |of: &Manager| of.reconcile_source(widgets::source(), "widgets");
    let owners = |of: &Manager, children: Source<ConfigMap>| {
        done(of.reconcile::<Secret>("owners").owns(children))
    };
    let divided = |of: &Manager| {
        let scope = InformerScope::all().shard(Shard::new(0, 2).unwrap());
        done(of.reconcile_source(Source::of::<ConfigMap>().scope(scope), "maps"))
    };
    let twice = |of: &Manager| {
        let keys = |map: &ConfigMap| Some(meta_namespace_key(map));
        done(
            of.reconcile::<ConfigMap>("maps")
                .watches(Source::of(), keys),
        )
    };
    let [children_first, parents_first] = [manager(uid), manager(uid)];
    maps(&children_first).unwrap();
    owners(&parents_first, Source::of()).unwrap();
    for (result, problem) in [
        (
            nodes(&manager(namespace)),
            "nodes.v1 are cluster-scoped and can't be divided by namespace",
        ),
        (
            done(dynamic(&manager(namespace))),
            "are namespaced is unknown",
        ),
        (divided(&manager(uid)), "configmaps.v1 has a shard already"),
        (
            divided(&manager(namespace)),
            "configmaps.v1 has a shard already",
        ),
        (
            owners(&children_first, Source::of()),
            "configmaps.v1 are used in two ways",
        ),
        (maps(&parents_first), "configmaps.v1 are used in two ways"),
        (twice(&manager(uid)), "configmaps.v1 are used in two ways"),
    ] {
        let error = result.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
    }
    nodes(&manager(uid)).unwrap();
    done(dynamic(&manager(namespace)).kind("Widget", Scope::Namespaced)).unwrap();
    // Another scope has its own informer.
    let scope = InformerScope::all().label_selector("!a".parse::<Selector>().unwrap());
    owners(&children_first, Source::of().scope(scope)).unwrap();
    // Namespaces divide both alike.
    let of = manager(namespace);
    maps(&of).unwrap();
    owners(&of, Source::of()).unwrap();
}

/// Builds a controller. Returns the result without its type.
fn done<T: Object + DeserializeOwned>(
    builder: ControllerBuilder<T>,
) -> Result<(), ControllerError> {
    builder.by(|_, _| Ok(Next::Done)).map(drop)
}

/// Its caches have only the objects of this shard.
#[test]
fn lost_shard_is_taken_again_by_its_replica() {
    let server = ApiServer::start().unwrap();
    let own = set(["blue", "red", "white"].map(|namespace| format!("{namespace}/a")));
    for namespace in NAMESPACES {
        let path = format!("/api/v1/namespaces/{namespace}/configmaps");
        let map = json!({"metadata": {"name": "a"}});
        server.create(&path, map).unwrap();
    }
    // The other shard is free as well when this replica looks again.
    hold(&server, "team-0-of-2-by-namespace");
    let replica = Replica::start(&server, "a", (2, ShardBy::Namespace));
    replica.take();
    replica.expect_calls(&own);
    let lease = format!("{LEASES}/team-1-of-2-by-namespace");
    for lease in [
        lease.as_str(),
        &format!("{LEASES}/team-0-of-2-by-namespace"),
    ] {
        server.delete(lease).unwrap();
    }
    server.clear_requests();
    replica.pass_second();
    replica.lead_again();
    assert_eq!(replica.shard(), Some(1));
    replica.expect_calls(&own);
    assert_eq!(holder(&server, "team-0-of-2-by-namespace"), Value::Null);
    // The consistent read, and no list.
    let requests = server.requests().into_iter();
    let lists = requests
        .filter(|request| request.resource() == Some("configmaps") && request.verb() == Verb::List);
    let limits: Vec<_> = lists
        .map(|list| list.param("limit").map(str::to_owned))
        .collect();
    assert_eq!(limits, [Some("1".to_owned())]);
    replica.end();
}

/// A server that hangs must not keep a replica from its shard for longer than in an election.
#[test]
fn list_of_leases_ends_after_half_the_renew_deadline() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let stalled = Fault::stall().on(Verb::List).resource("leases");
    server.fail_next(stalled.times(1));
    let replica = Replica::start(&server, "a", (1, ShardBy::Namespace));
    let limit = 20 * SECOND;
    // If the list ended before it has reached the server, the next one would be stalled.
    until("the list hangs", || {
        replica.clock.waits().contains(&limit) && server.pending_faults() == 0
    });
    replica.clock.advance(limit);
    until("the list has ended", || {
        let error = replica.shards_status()["lastError"].to_string();
        error.contains("no list of the Leases within 20s")
    });
    replica.take();
    replica.expect_calls(&set(["default/a"]));
    replica.end();
}

/// It can be that of another replica for a moment, but not now: requests have failed.
#[test]
fn replica_that_lost_its_shard_goes_on_while_requests_fail() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::start(&server, "a", (1, ShardBy::Namespace));
    replica.take();
    replica.expect_calls(&set(["default/a"]));
    server.fail_next(Fault::status(503).resource("leases").always());
    until("the shard is lost", || {
        replica.step();
        !replica.is_leader()
    });
    until("the replica has tried often", || {
        replica.step();
        replica.shards_status()["lastError"]
            .to_string()
            .contains("503")
    });
    assert!(!replica.running.thread.is_finished());
    server.clear_faults();
    until("the replica leads again", || {
        replica.step();
        replica.is_leader()
    });
    replica.expect_calls(&set(["default/a"]));
    replica.end();
}

#[test]
fn lost_lease_of_a_shard_ends_the_manager() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::start(&server, "a", (1, ShardBy::Namespace));
    replica.take();
    replica.expect_calls(&set(["default/a"]));
    let other = json!({"spec": {"holderIdentity": "other", "leaseTransitions": 7}});
    let lease = format!("{LEASES}/team-0-of-1-by-namespace");
    server.patch(&lease, other).unwrap();
    replica.clock.advance(SECOND);
    let error = replica.running.thread.join().unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::LeadershipLost { .. }),
        "{error}"
    );
    assert_eq!(holder(&server, "team-0-of-1-by-namespace"), "other");
}

/// A Lease whose acquisition has no response is not held for nothing.
#[test]
fn lost_response_of_an_acquisition_holds_no_lease() {
    for (verb, can_release) in [
        (Verb::Create, true),
        (Verb::Update, true),
        (Verb::Create, false),
        (Verb::Update, false),
    ] {
        let server = ApiServer::start().unwrap();
        create_map(&server, "a");
        let division = (2, ShardBy::Namespace);
        if verb == Verb::Update {
            for lease in ["team-0-of-2-by-namespace", "team-1-of-2-by-namespace"] {
                hold(&server, lease);
                let free = json!({"spec": {"holderIdentity": ""}});
                server.patch(&format!("{LEASES}/{lease}"), free).unwrap();
            }
        }
        let lost = Fault::close().after_bytes(0).resource("leases");
        server.fail_next(lost.on(verb));
        if !can_release {
            // After the read of the attempt, those of the release.
            let unread = Fault::status(500).on(Verb::Get).resource("leases");
            server.fail_next(unread.skip(1).times(3));
        }
        let lease_of =
            |replica: &Replica| format!("team-{}-of-2-by-namespace", replica.shard().unwrap());
        let first = Replica::start(&server, "first", division);
        first.take();
        assert_eq!(server.pending_faults(), 0);
        let second = Replica::start(&server, "second", division);
        if !can_release {
            (0..3).for_each(|_| second.look());
            renew(&server, &lease_of(&first));
        }
        let took = second.take();
        assert!(took < LEASE_DURATION + 2 * PAUSE, "{took:?}");
        assert!(!can_release || took.is_zero(), "{took:?}");
        assert_ne!(first.shard(), second.shard());
        for replica in [&first, &second] {
            let identity = replica.running.manager.elector().unwrap().identity();
            assert_eq!(holder(&server, &lease_of(replica)), identity);
        }
        first.end();
        second.end();
    }
}

/// Otherwise a missing permission would cause requests without a limit.
#[test]
fn failed_acquisition_is_followed_by_a_pause() {
    for verb in [Verb::Get, Verb::Create] {
        let server = ApiServer::start().unwrap();
        let fault = Fault::status(403).on(verb).resource("leases");
        server.fail_next(fault.always());
        let replica = Replica::start(&server, "a", (3, ShardBy::Namespace));
        for pauses in 1..4 {
            server.clear_requests();
            until("a pause or many requests", || {
                replica.pauses().len() >= pauses || server.requests().len() > 100
            });
            assert!(replica.pauses().len() >= pauses, "{verb:?}");
            replica.clock.advance(replica.pauses()[pauses - 1]);
        }
        replica.end();
    }
}

#[test]
fn replica_tries_another_shard_after_a_failure() {
    for verb in [Verb::Get, Verb::Update] {
        let server = ApiServer::start().unwrap();
        for shard in 0..2 {
            create_lease(&server, &format!("team-{shard}-of-2-by-uid"), json!({}));
        }
        // The requests for the Lease that the replica tries first always fail.
        let first = Arc::new(OnceLock::new());
        let refused = Arc::clone(&first);
        let fault = Fault::status(403)
            .on(verb)
            .resource("leases")
            .when(move |request| {
                refused.get_or_init(|| request.path().to_owned()) == request.path()
            });
        server.fail_next(fault.always());
        let replica = Replica::start(&server, "a", (2, ShardBy::Uid));
        replica.take();
        let own = format!("team-{}-of-2-by-uid", replica.shard().unwrap());
        assert_ne!(first.get(), Some(&format!("{LEASES}/{own}")), "{verb:?}");
        replica.end();
    }
}

#[test]
fn failed_renewal_does_not_end_the_term() {
    let server = ApiServer::start().unwrap();
    let replica = Replica::start(&server, "a", (1, ShardBy::Uid));
    replica.take();
    let updates = || {
        let requests = server.requests();
        let is_update = |request: &&RequestRecord| request.verb() == Verb::Update;
        requests.iter().filter(is_update).count()
    };
    let before = updates();
    let fault = Fault::status(500).on(Verb::Update).resource("leases");
    server.fail_next(fault.times(2));
    for renewal in 1..=3 {
        until("the holder waits", || {
            let waits = replica.clock.waits();
            waits.iter().filter(|wait| **wait == SECOND).count() >= renewal
        });
        replica.clock.advance(SECOND);
        until("it renews its Lease", || updates() >= before + renewal);
    }
    assert_eq!(server.pending_faults(), 0);
    assert_eq!(replica.shard(), Some(0));
    assert!(replica.running.manager.elector().unwrap().is_leader());
    replica.end();
}

fn stall_secrets(server: &ApiServer, replica: &Replica) {
    let secrets = replica.informer::<Secret>();
    assert!(secrets.synced().wait_timeout(PATIENCE));
    let stall = Fault::stall().resource("secrets");
    until("the watch stalls", || server.fail_watches(&stall) == 1);
}

/// By UID, an object without a controller is in no shard. Only its version arrives, and a timed check
/// notices that.
#[test]
fn own_write_in_another_shard_does_not_block_the_key() {
    for by in [ShardBy::Namespace, ShardBy::Uid] {
        let server = ApiServer::start().unwrap();
        let replica = Replica::start_with(&server, "a", (2, by), |maps, sender| {
            let maps = maps.owns(Source::of::<Secret>());
            let maps = maps.own_writes_timeout(match by {
                ShardBy::Namespace => Duration::from_secs(3600),
                ShardBy::Uid => SECOND,
            });
            maps.by(move |cx, _| {
                let is_other = |other: &&&str| shard_of(other) != shard_of(cx.namespace());
                let other = NAMESPACES.iter().find(is_other).unwrap();
                let secrets = cx.api::<Secret>(Some(other));
                match secrets.create(&json!({"metadata": {"name": "s"}}), cx.stop()) {
                    Ok(_) => return Ok(Next::After(Duration::from_millis(1))),
                    Err(error) if error.is_already_exists() => {}
                    Err(error) => return Err(error.into()),
                }
                sender.send(String::new())?;
                Ok(Next::Done)
            })
        });
        replica.take();
        stall_secrets(&server, &replica);
        for (namespace, shard) in [("green", 0), ("blue", 1)] {
            create_map_with_uid(&server, namespace, &uids(shard)[0]);
        }
        let goes_on = Cell::new(false);
        until("the key waits or goes on", || {
            goes_on.set(goes_on.get() || replica.calls.try_recv().is_ok());
            goes_on.get() || replica.maps.status().postponed == 1
        });
        if !goes_on.get() {
            assert_eq!(by, ShardBy::Uid);
            server.pause();
            server.resume().unwrap();
            replica.calls.recv_timeout(PATIENCE).unwrap();
        }
        replica.end();
    }
}

#[test]
fn child_by_uid_is_created_once_if_the_watch_lags() {
    let server = ApiServer::start().unwrap();
    let division = (2, ShardBy::Uid);
    let start = |identity| {
        let replica = Replica::start_with(&server, identity, division, |maps, sender| {
            maps.owns(Source::of::<Secret>()).by(move |cx, _| {
                let children = cx.children::<Secret>()?.len();
                if children == 0 {
                    let child = cx.owned(json!({"metadata": {"generateName": "child-"}}))?;
                    let secrets = cx.api::<Secret>(Some("default"));
                    secrets.create(&child, cx.stop())?;
                }
                sender.send(children.to_string())?;
                Ok(Next::Done)
            })
        });
        replica.take();
        replica
    };
    let next = |replica: &Replica| replica.calls.recv_timeout(PATIENCE).unwrap();
    let children = || {
        server.list(SECRETS).unwrap()["items"]
            .as_array()
            .unwrap()
            .len()
    };
    let first = start("first");
    stall_secrets(&server, &first);
    let shard = first.shard().unwrap();
    let uid = &uids(shard)[0];
    create_map_with_uid(&server, "default", uid);
    assert_eq!(next(&first), "0");
    let touch = json!({"metadata": {"labels": {"touched": "true"}}});
    server.patch(&format!("{MAPS}/{uid}"), touch).unwrap();
    until("the key waits", || first.maps.status().postponed == 1);
    assert!(first.calls.try_recv().is_err());
    server.pause();
    server.resume().unwrap();
    assert_eq!(next(&first), "1");
    assert_eq!(children(), 1);
    first.end();

    // The next replica can take the other shard, which has no holder either.
    hold(&server, &format!("team-{}-of-2-by-uid", 1 - shard));
    let second = start("second");
    assert_eq!(second.shard(), Some(shard));
    assert_eq!(next(&second), "1");
    assert_eq!(children(), 1);
    second.end();
}

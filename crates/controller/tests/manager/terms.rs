//! A manager that has lost its Lease leads again: with a new term, the same informers, and nothing of
//! the lost term.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

use k8s_informer::time::Clock;
use k8s_informer::workqueue::ItemExponentialFailureRateLimiter;
use k8s_informer_controller::events::EventType;
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::{Controller, ManagerBuilder};
use k8s_informer_testing::FakeClock;

use super::*;

const SECOND: Duration = Duration::from_secs(1);
/// With the default durations, a term is lost after this time without a renewal.
const TERM: u32 = 12;

/// A manager whose election has its own clock, which only the test advances.
struct Replica {
    clock: FakeClock,
    manager: Manager,
}

impl Replica {
    fn new(server: &ApiServer, configure: impl FnOnce(ManagerBuilder) -> ManagerBuilder) -> Self {
        let clock = FakeClock::new();
        let builder = Manager::builder(client(server))
            .leader_election("default", "team")
            .identity("first")
            .leader_election_options(LeaderElectionOptions::new().clock(Arc::new(clock.clone())))
            .health(":0");
        Self {
            clock,
            manager: configure(builder).build().unwrap(),
        }
    }

    fn is_leader(&self) -> bool {
        self.manager.elector().unwrap().is_leader()
    }

    #[track_caller]
    fn until_it_leads(&self) {
        until("the replica leads", || self.is_leader());
    }

    /// The number of waits of the election and its watchdog.
    fn waits(&self) -> usize {
        self.clock.waits().len()
    }

    /// Lets a second pass, and waits until the election and its watchdog have noticed.
    fn pass_second(&self) {
        let before = self.waits();
        self.clock.advance(SECOND);
        let noticed = self.clock.wait_for_waits(before + 1, SECOND / 5);
        // Not each second ends a wait.
        drop(noticed);
    }

    /// Lets the Lease be lost, because its renewals fail. Returns when the replica is a candidate
    /// again.
    fn lose(&self, server: &ApiServer) {
        let lost = self.lost_terms();
        server.fail_next(Fault::status(503).resource("leases").always());
        for _ in 0..TERM {
            self.pass_second();
        }
        // Until the calls have been joined.
        until("the term is lost", || {
            self.pass_second();
            self.lost_terms() > lost
        });
        assert!(!self.is_leader());
    }

    /// Lets requests for the Lease succeed, until the replica leads again.
    fn recover(&self, server: &ApiServer) {
        server.clear_faults();
        self.pass_time_until_it_leads();
    }

    fn pass_time_until_it_leads(&self) {
        until("the replica leads again", || {
            self.pass_second();
            self.is_leader()
        });
    }

    fn lost_terms(&self) -> u64 {
        let metrics = self.manager.metrics().render();
        let name = "leader_election_lost_terms_total{name=\"team\"} ";
        let value = metrics.lines().find_map(|line| line.strip_prefix(name));
        value.unwrap().parse().unwrap()
    }
}

fn lists_of(server: &ApiServer, resource: &str) -> Vec<RequestRecord> {
    let requests = server.requests().into_iter();
    let lists = requests
        .filter(|request| request.verb() == Verb::List && request.resource() == Some(resource));
    lists.collect()
}

fn transitions(server: &ApiServer) -> i64 {
    let lease = server.get(LEASE).unwrap();
    lease["spec"]["leaseTransitions"].as_i64().unwrap_or(0)
}

#[test]
fn cr12_manager_leads_again_after_an_outage() {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b"] {
        create_map(&server, name);
    }
    let replica = Replica::new(&server, |builder| builder);
    let names = send_names(&replica.manager);
    let address = replica.manager.health_address().unwrap();
    let running = Running::start(replica.manager.clone());
    replica.until_it_leads();
    let mut called: Vec<_> = (0..2)
        .map(|_| names.recv_timeout(PATIENCE).unwrap())
        .collect();
    called.sort();
    assert_eq!(called, ["a", "b"]);

    for term in 1..=3 {
        server.clear_requests();
        let before = transitions(&server);
        replica.lose(&server);
        // It is alive and ready, and does not lead.
        assert!(get(address, "/healthz?verbose").contains("[+]leaderElection ok"));
        assert!(get(address, "/readyz").ends_with("ok"));
        assert!(get(address, "/status").contains(r#""isLeader": false"#));
        assert_eq!(replica.lost_terms(), term);
        // Its cache goes on.
        create_map(&server, &format!("c{term}"));
        let maps = replica.manager.factory().informer::<ConfigMap>().lister();
        until("the standby sees the change", || {
            maps.len() == 2 + usize::try_from(term).unwrap()
        });
        assert!(names.try_recv().is_err());

        replica.recover(&server);
        let mut again = BTreeMap::new();
        for _ in 0..2 + term {
            *again
                .entry(names.recv_timeout(PATIENCE).unwrap())
                .or_insert(0) += 1;
        }
        // Each key once, also if it is as before.
        assert!(again.values().all(|calls| *calls == 1), "{again:?}");
        assert!(names.try_recv().is_err());
        assert_eq!(transitions(&server), before + 1);
        // The consistent read of the term, and no relist.
        let lists = lists_of(&server, "configmaps");
        let limits: Vec<_> = lists.iter().map(|list| list.param("limit")).collect();
        assert_eq!(limits, [Some("1")]);
    }
    running.end().unwrap();
    assert_eq!(server.get(LEASE).unwrap()["spec"]["holderIdentity"], "");
}

/// A Lease that nobody has taken still has the identity of this candidate.
#[test]
fn cr12_lease_that_is_still_its_own_is_a_new_term() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, tokens) = mpsc::channel();
    let elector = replica.manager.elector().unwrap().clone();
    replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .by(move |cx, _| {
            cx.ensure()?;
            sender.send(elector.is_leader())?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    assert!(tokens.recv_timeout(PATIENCE).unwrap());
    replica.lose(&server);
    let spec = server.get(LEASE).unwrap()["spec"].take();
    assert_eq!(spec["holderIdentity"], "first");
    replica.recover(&server);
    assert!(tokens.recv_timeout(PATIENCE).unwrap());
    let again = server.get(LEASE).unwrap()["spec"].take();
    assert_eq!(again["holderIdentity"], "first");
    assert_eq!(transitions(&server), 1);
    assert_ne!(again["acquireTime"], spec["acquireTime"]);
    running.end().unwrap();
}

#[test]
fn cr12_end_at_loss_ends_the_manager() {
    let server = ApiServer::start().unwrap();
    let replica = Replica::new(&server, ManagerBuilder::end_at_loss);
    let _names = send_names(&replica.manager);
    let running = Running::start(replica.manager.clone());
    replica.until_it_leads();
    replica.lose(&server);
    let error = running.thread.join().unwrap().unwrap_err();
    let ControllerErrorKind::LeadershipLost { last_error } = error.kind() else {
        panic!("{error}")
    };
    assert!(last_error.as_ref().unwrap().to_string().contains("503"));
}

/// A stop while the manager is a candidate again is an ordinary end.
#[test]
fn cr12_stop_between_two_terms_is_no_error() {
    let server = ApiServer::start().unwrap();
    let replica = Replica::new(&server, |builder| builder);
    let _names = send_names(&replica.manager);
    let running = Running::start(replica.manager.clone());
    replica.until_it_leads();
    replica.lose(&server);
    running.end().unwrap();
}

/// The next term does not begin before the calls of the lost one have returned.
#[test]
fn cr12_calls_are_joined_before_the_next_term() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, started) = mpsc::channel();
    let go_on = Stopper::new();
    let signal = go_on.clone();
    replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .by(move |cx, _| {
            sender.send(cx.stop().clone())?;
            signal.wait();
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    let of_call = started.recv_timeout(PATIENCE).unwrap();
    let other = json!({"spec": {"holderIdentity": "", "leaseTransitions": 7}});
    server.patch(LEASE, other).unwrap();
    until("the call is stopped", || {
        replica.pass_second();
        of_call.is_stopped()
    });
    // The Lease is free, but the call runs.
    assert_eq!(replica.lost_terms(), 0);
    assert_eq!(server.get(LEASE).unwrap()["spec"]["holderIdentity"], "");
    assert!(started.try_recv().is_err());
    go_on.stop();
    let of_next = started.recv_timeout(PATIENCE).unwrap();
    assert!(!of_next.is_stopped());
    assert_eq!((replica.lost_terms(), transitions(&server)), (1, 8));
    running.end().unwrap();
}

/// Back-off, delays, failures, the queue, the answers of applies and waits for own writes.
#[test]
fn cr13_nothing_of_a_lost_term_reaches_the_next_one() {
    let server = ApiServer::start().unwrap();
    for name in ["applies", "delayed", "fails", "waits"] {
        create_map(&server, name);
    }
    let replica = Replica::new(&server, |builder| builder);
    let (sender, calls) = mpsc::channel();
    let controller: Controller<ConfigMap> = replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .owns(Source::of::<Secret>())
        // Only a new term shortens this back-off.
        .rate_limiter(ItemExponentialFailureRateLimiter::new(
            Duration::from_micros(100)..=Duration::from_secs(1000),
        ))
        .by(move |cx, map| {
            let name = map.name().to_owned();
            sender.send((name.clone(), cx.attempt()))?;
            match &*name {
                "applies" => {
                    let secret = json!({"metadata": {"name": "a"}});
                    cx.apply::<Secret>(secret)?;
                }
                "delayed" => return Ok(Next::After(Duration::from_secs(3600))),
                "fails" => return Err(Failure::new("not yet")),
                _ => {}
            }
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    let mut attempts = BTreeMap::new();
    until("all keys were called", || {
        attempts.extend(calls.try_iter());
        attempts.len() == 4 && attempts["fails"] >= 11
    });
    // The child exists, and the key was called again because of it.
    until("the cache has the child", || {
        controller.status().queued == 0 && controller.status().postponed == 0
    });
    let applies = |server: &ApiServer| {
        let requests = server.requests();
        let is_apply = |request: &&RequestRecord| request.method() == "PATCH";
        requests.iter().filter(is_apply).count()
    };
    assert_eq!(applies(&server), 1);
    assert_eq!(controller.failures().len(), 1);
    assert!(controller.status().delayed > 0);

    replica.lose(&server);
    let of_lost_term: Vec<_> = calls.try_iter().collect();
    assert!(of_lost_term.iter().all(|(name, _)| name == "fails"));
    // The work of the next term is ready, and empty.
    until("the replica is a candidate", || {
        controller.failures().is_empty()
    });
    let status = controller.status();
    assert_eq!((status.queued, status.delayed, status.failing), (0, 0, 0));
    assert!(status.running.is_empty());
    let metrics = replica.manager.metrics().render();
    assert!(metrics.contains("workqueue_depth{name=\"maps\",controller=\"maps\"} 0\n"));
    // A key that the program queues now is one of the next term.
    controller.enqueue("default/gone");
    assert_eq!(controller.status().queued, 1);

    replica.recover(&server);
    let mut first = BTreeMap::new();
    until("all keys are called again", || {
        for (name, attempt) in calls.try_iter() {
            first.entry(name).or_insert(attempt);
        }
        first.len() == 4
    });
    assert!(first.values().all(|attempt| *attempt == 1), "{first:?}");
    // What the last term has applied is applied once more: it may have been changed meanwhile.
    until("the child is applied again", || applies(&server) == 2);
    // That takes minutes with the back-off of the last term.
    until("the back-off begins again", || {
        calls
            .try_iter()
            .any(|(name, attempt)| name == "fails" && attempt >= 11)
    });
    running.end().unwrap();
}

/// The cache has been current in the lost term. That proves nothing for the next one.
#[test]
fn cr13_each_term_reads_all_sources_before_its_first_call() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, names) = mpsc::channel();
    let controller = replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .watches(Source::of::<Secret>(), |_| None)
        .by(move |_, map| {
            sender.send(map.name().to_owned())?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    assert_eq!(names.recv_timeout(PATIENCE).unwrap(), "a");
    replica.lose(&server);
    server.clear_faults();
    server.fail_next(
        Fault::status(403)
            .on(Verb::List)
            .resource("secrets")
            .always(),
    );
    replica.pass_time_until_it_leads();
    until("the source is named", || {
        let waits = controller.status().old_caches;
        waits.len() == 1 && waits[0].informer == "secrets" && waits[0].reason.contains("403")
    });
    assert!(names.try_recv().is_err());
    server.clear_faults();
    assert_eq!(names.recv_timeout(PATIENCE).unwrap(), "a");
    running.end().unwrap();
}

/// A kind that was missing in the lost term, and is there when the next one begins.
#[test]
fn cr13_each_term_decides_again_which_optional_kinds_exist() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, found) = mpsc::channel();
    replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .watches_optional(widgets::source(), |_| None)
        .by(move |cx, _| {
            let widgets = cx.optional::<DynamicObject>();
            sender.send(widgets.map(|widgets| widgets.len()))?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    assert_eq!(found.recv_timeout(PATIENCE).unwrap(), None);
    replica.lose(&server);
    widgets::install(&server);
    widgets::create(&server, "w");
    let informer = replica.manager.factory().informer_for(widgets::source());
    assert!(informer.synced().wait_timeout(NEXT_LIST));
    replica.recover(&server);
    assert_eq!(found.recv_timeout(PATIENCE).unwrap(), Some(1));

    replica.lose(&server);
    widgets::uninstall(&server);
    until("the informer has noticed", || {
        informer.status().failures > 0
    });
    replica.recover(&server);
    until("the kind is missing again", || {
        found.try_iter().any(|found| found.is_none())
    });
    running.end().unwrap();
}

/// A thread that the program has started in a call, and that outlives it.
#[test]
fn le27_client_of_a_call_changes_nothing_in_later_terms() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, clients) = mpsc::channel();
    replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .by(move |cx, _| {
            sender.send(cx.client().clone())?;
            Ok(Next::Done)
        })
        .unwrap();
    let of_manager = replica.manager.gate(&client(&server));
    let create = |client: &Client, name: &str| {
        let maps = client.api::<Secret>(Some("default"));
        let created = maps.create(&json!({"metadata": {"name": name}}), &Stop::never());
        created.map(drop)
    };
    assert!(create(&of_manager, "early").unwrap_err().is_not_leading());
    let running = Running::start(replica.manager.clone());
    let of_first = clients.recv_timeout(PATIENCE).unwrap();
    create(&of_first, "first").unwrap();
    create(&of_manager, "first-of-manager").unwrap();
    replica.lose(&server);
    for client in [&of_first, &of_manager] {
        let error = create(client, "between").unwrap_err();
        assert!(
            error.is_not_leading() && !error.is_outcome_unknown(),
            "{error:?}"
        );
    }
    replica.recover(&server);
    let of_second = clients.recv_timeout(PATIENCE).unwrap();
    create(&of_second, "second").unwrap();
    create(&of_manager, "second-of-manager").unwrap();
    let error = create(&of_first, "late").unwrap_err();
    assert!(error.is_not_leading(), "{error:?}");
    assert!(
        of_first
            .api::<Secret>(Some("default"))
            .get("first", &Stop::never())
            .is_ok()
    );
    running.end().unwrap();
    assert!(create(&of_second, "end").unwrap_err().is_not_leading());
    let secrets = server.list("/api/v1/namespaces/default/secrets").unwrap();
    assert_eq!(secrets["items"].as_array().unwrap().len(), 4);
}

/// All that a context sends: applies, finalizers and other writes.
#[test]
fn le27_calls_change_nothing_while_the_term_is_in_doubt() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, results) = mpsc::channel();
    let (go_on, waits) = mpsc::channel::<()>();
    let waits = std::sync::Mutex::new(waits);
    let controller = replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .owns(Source::of::<Secret>())
        .finalizer("example.com/maps", |_| true, |_, _| Ok(Next::Done))
        .by(move |cx, _| {
            waits.lock().unwrap().recv()?;
            let child = json!({"metadata": {"name": "a"}});
            let failures = [
                cx.apply::<Secret>(child.clone()).err(),
                cx.api::<Secret>(Some("default"))
                    .create(&child, cx.stop())
                    .err()
                    .map(Failure::new),
                cx.ensure().err(),
            ];
            sender.send(failures.map(|failure| failure.map(|failure| failure.to_string())))?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    replica.until_it_leads();
    until("the call runs", || controller.status().running.len() == 1);
    server.fail_next(Fault::status(503).resource("leases").always());
    // Not lost yet.
    for _ in 0..11 {
        replica.pass_second();
    }
    server.clear_requests();
    go_on.send(()).unwrap();
    let failures = results.recv_timeout(PATIENCE).unwrap();
    for failure in &failures[..2] {
        let failure = failure.as_ref().unwrap();
        assert!(
            failure.contains("not leading, so the request was not sent"),
            "{failure}"
        );
    }
    assert!(
        failures[2]
            .as_ref()
            .unwrap()
            .contains("not certainly the leader")
    );
    let requests = server.requests();
    let changes = |request: &&RequestRecord| {
        request.method() != "GET" && request.resource() != Some("leases")
    };
    assert_eq!(requests.iter().filter(changes).count(), 0);
    // A write that was not sent is not awaited.
    assert_eq!(controller.status().postponed, 0);
    // Further calls wait for nothing.
    drop(go_on);
    running.end().unwrap();
}

/// The events of the lost term are about what has happened in it.
#[test]
fn le27_events_pass_after_the_end_of_the_term() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let replica = Replica::new(&server, |builder| builder);
    let (sender, ended) = mpsc::channel();
    let controller = replica
        .manager
        .reconcile::<ConfigMap>("maps")
        .by(move |cx, map| {
            cx.stop().wait();
            let events = cx.events()?;
            events.event(&**map, EventType::Warning, "Lost", "the term has ended")?;
            sender.send(cx.ensure().is_err())?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(replica.manager.clone());
    until("the call runs", || controller.status().running.len() == 1);
    replica.lose(&server);
    assert!(ended.recv_timeout(PATIENCE).unwrap());
    let is_event = |requests: &[RequestRecord]| {
        let is_event = |request: &RequestRecord| {
            request.method() == "POST" && request.resource() == Some("events")
        };
        requests.iter().any(is_event)
    };
    server.wait_for_requests(is_event, PATIENCE).unwrap();
    running.end().unwrap();
}

/// A clock that panics when a controller waits for its calls.
struct PanickingClock(FakeClock);

const GRACE: Duration = Duration::from_secs(7);

impl Clock for PanickingClock {
    fn now(&self) -> Instant {
        self.0.now()
    }

    fn wall_clock(&self) -> SystemTime {
        self.0.wall_clock()
    }

    fn wait(&self, time: Duration, stop: &Stop) -> bool {
        assert_ne!(time, GRACE, "the clock is broken");
        self.0.wait(time, stop)
    }
}

/// Calls may still run, so the next term must not begin, and the Lease is not released.
#[test]
fn cr12_panic_of_user_code_ends_the_manager_and_keeps_the_lease() {
    for is_lost in [true, false] {
        let server = ApiServer::start().unwrap();
        create_map(&server, "a");
        let replica = Replica::new(&server, |builder| builder);
        let (sender, started) = mpsc::channel();
        let go_on = Stopper::new();
        let signal = go_on.clone();
        replica
            .manager
            .reconcile::<ConfigMap>("maps")
            .clock(Arc::new(PanickingClock(FakeClock::new())))
            .grace_period(GRACE)
            .by(move |_, _| {
                sender.send(())?;
                signal.wait();
                Ok(Next::Done)
            })
            .unwrap();
        let running = Running::start(replica.manager.clone());
        started.recv_timeout(PATIENCE).unwrap();
        match is_lost {
            true => {
                let other = json!({"spec": {"leaseTransitions": 7}});
                server.patch(LEASE, other).unwrap();
            }
            false => running.stop.stop(),
        }
        until("the manager ends", || {
            replica.pass_second();
            running.thread.is_finished()
        });
        let error = running.thread.join().unwrap().unwrap_err();
        assert!(
            matches!(error.kind(), ControllerErrorKind::Panicked(_)),
            "{error}"
        );
        assert!(error.to_string().contains("the clock is broken"), "{error}");
        assert_eq!(
            server.get(LEASE).unwrap()["spec"]["holderIdentity"],
            "first"
        );
        assert!(started.try_recv().is_err());
        go_on.stop();
    }
}

/// A controller that runs on its own in the same program is not run again.
#[test]
fn controller_that_has_run_is_refused_by_its_manager() {
    let server = ApiServer::start().unwrap();
    let manager = Manager::builder(client(&server)).build().unwrap();
    let controller = manager
        .reconcile::<ConfigMap>("maps")
        .by(|_, _| Ok(Next::Done))
        .unwrap();
    let stop = Stopper::new();
    stop.stop();
    controller.run(&stop).unwrap();
    let error = manager.run(&Stop::never()).unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::AlreadyRan),
        "{error}"
    );
}

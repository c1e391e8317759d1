//! Objects that the server removes although the finalizer is on them.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use k8s_informer::client::Request;
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::{Manager, MetricsRegistry, Predicate};
use k8s_informer_testing::{RequestRecord, Verb};

use super::*;
use crate::log_capture;

const NAME: &str = "example.com/test";
const FORMER: &str = "example.com/former";

/// What the functions of the controller have got, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Got {
    Reconciled(String),
    /// The UID of the object, and whether it has vanished.
    CleanedUp(String, bool),
    Gone,
}

struct Subject {
    cluster: Cluster,
    running: Running<ConfigMap>,
    metrics: MetricsRegistry,
    got: Receiver<Got>,
}

impl Subject {
    fn new() -> Self {
        Self::with(|_| Ok(Next::Done))
    }

    /// `cleanup` is the result of the cleanup of each object that has vanished, by its attempt.
    fn with(cleanup: impl Fn(usize) -> Result<Next, Failure> + Send + Sync + 'static) -> Self {
        let cluster = Cluster::new();
        let metrics = MetricsRegistry::new();
        let (sender, got) = unbounded();
        let [reconciled, cleaned, gone] = [(); 3].map(|()| sender.clone());
        let controller = cluster
            .controller::<ConfigMap>("vanishing")
            .factory(&cluster.factory)
            .metrics(Arc::new(metrics.clone()))
            .finalizer(
                NAME,
                |map| map.label("plain").is_none(),
                move |cx, map| {
                    let uid = map.uid().to_owned();
                    cleaned.send(Got::CleanedUp(uid, cx.has_vanished()))?;
                    match cx.has_vanished() {
                        true => cleanup(cx.attempt()),
                        false => Ok(Next::Done),
                    }
                },
            )
            .former_finalizers([FORMER])
            .on_gone(move |_| gone.send(Got::Gone).unwrap())
            .by(move |_, map| {
                reconciled.send(Got::Reconciled(map.uid().to_owned()))?;
                Ok(Next::Done)
            })
            .unwrap();
        let running = Running::new(controller);
        until("the cache has synced", || {
            running.controller.informer().has_synced()
        });
        cluster.server.wait_for_watches(1, LIMIT).unwrap();
        Self {
            cluster,
            running,
            metrics,
            got,
        }
    }

    fn server(&self) -> &ApiServer {
        &self.cluster.server
    }

    /// Creates an object, and waits until the cache has it with its finalizer. Returns its UID.
    fn create(&self, name: &str) -> String {
        let object = self.cluster.create(MAPS, name);
        let has_finalizer = || {
            let map = self.running.controller.lister().get("default", name);
            let finalizers = map.and_then(|map| map.metadata.finalizers.clone());
            finalizers.is_some_and(|finalizers| finalizers == [NAME])
        };
        until("the cache has the finalizer", has_finalizer);
        self.running.until_idle();
        self.got.try_iter().for_each(drop);
        object["metadata"]["uid"].as_str().unwrap().to_owned()
    }

    /// Lets things happen that no watch delivers: the informer lists again.
    fn unseen(&self, happens: impl FnOnce(&ApiServer)) {
        self.server().pause();
        happens(self.server());
        self.server().compact();
        self.server().resume().unwrap();
    }

    #[track_caller]
    fn next(&self) -> Got {
        self.got.recv_timeout(LIMIT).unwrap()
    }

    #[track_caller]
    fn assert_vanished(&self, uid: &str, last_state: &str) {
        let next = loop {
            match self.next() {
                // The last call for the living object.
                Got::Reconciled(last) if last == uid => {}
                next => break next,
            }
        };
        assert_eq!(next, Got::CleanedUp(uid.to_owned(), true));
        assert_eq!(self.counted(last_state), 1);
    }

    fn counted(&self, last_state: &str) -> u64 {
        let name = format!(
            "controller_runtime_vanished_objects_total{{controller=\"vanishing\",last_state=\"{last_state}\"}} "
        );
        let text = self.metrics.render();
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.unwrap().parse().unwrap()
    }

    fn end(self) {
        self.running.end(self.got);
    }
}

fn path(name: &str) -> String {
    format!("{MAPS}/{name}")
}

#[test]
fn cr14_object_that_vanished_is_cleaned_up() {
    log_capture::start();
    let subject = Subject::new();
    let uid = subject.create("a");
    subject.server().vanish(&path("a")).unwrap();
    subject.assert_vanished(&uid, "final");
    assert_eq!(subject.next(), Got::Gone);
    subject.running.until_idle();
    assert!(subject.got.try_recv().is_err());
    let line = log_capture::wait_for(&[&uid, "although the finalizer was on it"]);
    assert!(line.contains("its cleanup runs now"), "{line}");
    // The read before the cleanup is not one of the cache.
    let requests = subject.server().requests();
    let gets = requests
        .iter()
        .filter(|request| request.verb() == Verb::Get);
    let versions: Vec<_> = gets.map(|get| get.param("resourceVersion")).collect();
    assert_eq!(versions, [None]);
    subject.end();
}

#[test]
fn cr14_former_finalizer_counts() {
    let subject = Subject::new();
    // It gets no finalizer of its own, but it is renamed.
    let former =
        json!({"metadata": {"name": "a", "finalizers": [FORMER], "labels": {"plain": ""}}});
    subject.cluster.create_with(MAPS, former);
    until("the finalizer has its new name", || {
        subject.server().get(&path("a")).unwrap()["metadata"]["finalizers"] == json!([NAME])
    });
    subject.running.until_idle();
    subject.got.try_iter().for_each(drop);
    // By another program of the former version.
    let former = json!({"metadata": {"finalizers": [FORMER]}});
    let renamed = subject.server().patch(&path("a"), former).unwrap();
    subject.server().vanish(&path("a")).unwrap();
    let uid = renamed["metadata"]["uid"].as_str().unwrap();
    until("the cleanup is called", || {
        subject
            .got
            .try_iter()
            .any(|got| got == Got::CleanedUp(uid.to_owned(), true))
    });
    subject.end();
}

#[test]
fn cr14_missed_deletion_is_that_of_the_last_known_state() {
    let subject = Subject::new();
    let uid = subject.create("a");
    subject.unseen(|server| drop(server.vanish(&path("a")).unwrap()));
    subject.assert_vanished(&uid, "tombstone");
    assert_eq!(subject.next(), Got::Gone);
    subject.end();
}

#[test]
fn cr14_new_object_of_the_name_is_reconciled_after_the_cleanup() {
    for is_seen in [true, false] {
        let subject = Subject::new();
        let uid = subject.create("a");
        let recreate = |server: &ApiServer| {
            server.vanish(&path("a")).unwrap();
            server
                .create(MAPS, json!({"metadata": {"name": "a"}}))
                .unwrap();
        };
        match is_seen {
            true => recreate(subject.server()),
            false => subject.unseen(recreate),
        }
        subject.assert_vanished(&uid, if is_seen { "final" } else { "tombstone" });
        // The cleanup can end before the cache has the new object.
        let next = loop {
            match subject.next() {
                Got::Gone => {}
                next => break next,
            }
        };
        assert!(
            matches!(&next, Got::Reconciled(other) if *other != uid),
            "{next:?}"
        );
        subject.end();
    }
}

/// The watch has delivered only the state without the finalizer.
#[test]
fn cr14_response_to_the_own_patch_counts_if_it_is_newer() {
    let subject = Subject::new();
    subject.create("b");
    // Only the next event passes.
    let fault = Fault::stall().resource("configmaps").after_events(1);
    until("a watch is open", || {
        subject.server().fail_watches(&fault) > 0
    });
    let created = subject.cluster.create(MAPS, "a");
    let uid = created["metadata"]["uid"].as_str().unwrap();
    assert_eq!(subject.next(), Got::Reconciled(uid.to_owned()));
    let cached = subject
        .running
        .controller
        .lister()
        .get("default", "a")
        .unwrap();
    assert_eq!(cached.metadata.finalizers, None);
    subject.unseen(|server| drop(server.vanish(&path("a")).unwrap()));
    until("the cleanup is called", || {
        subject
            .got
            .try_iter()
            .any(|got| got == Got::CleanedUp(uid.to_owned(), true))
    });
    assert_eq!(subject.counted("tombstone"), 1);
    subject.end();
}

#[test]
fn cr14_object_that_still_exists_has_not_vanished() {
    let subject = Subject::new();
    let uid = subject.create("a");
    // As if a restored server had it again.
    let same = json!({"metadata": {"name": "a", "namespace": "default", "uid": uid, "resourceVersion": "1"}});
    let found = Fault::response(200, "application/json", same.to_string());
    subject
        .server()
        .fail_next(found.on(Verb::Get).resource("configmaps"));
    subject.server().vanish(&path("a")).unwrap();
    assert_eq!(subject.next(), Got::Gone);
    subject.running.until_idle();
    assert!(subject.got.try_recv().is_err());
    assert_eq!(subject.counted("final"), 0);
    subject.end();
}

#[test]
fn cr14_cleanup_waits_for_the_read() {
    let subject = Subject::new();
    let uid = subject.create("a");
    subject.server().fail_next(
        Fault::status(500)
            .on(Verb::Get)
            .resource("configmaps")
            .times(2),
    );
    subject.server().vanish(&path("a")).unwrap();
    let gets = || {
        let requests = subject.server().requests();
        let gets = requests
            .iter()
            .filter(|request| request.verb() == Verb::Get);
        gets.count()
    };
    until("the read succeeds", || {
        subject.cluster.clock.advance(SECOND);
        gets() == 3
    });
    subject.assert_vanished(&uid, "final");
    subject.end();
}

#[test]
fn cr14_failed_cleanup_is_retried() {
    let subject = Subject::with(|attempt| match attempt {
        1 => Err(Failure::new("the bucket is locked")),
        2 => Ok(Next::After(10 * SECOND)),
        _ => Ok(Next::Done),
    });
    let uid = subject.create("a");
    subject.server().vanish(&path("a")).unwrap();
    subject.assert_vanished(&uid, "final");
    let cleaned = Got::CleanedUp(uid, true);
    for _ in 0..2 {
        let next = RefCell::new(None);
        until("the next attempt", || {
            subject.cluster.advance(&subject.running, SECOND);
            *next.borrow_mut() = subject.got.try_recv().ok();
            next.borrow().is_some()
        });
        // The attempts count from 1 after `Next::After`, which is a success.
        assert_eq!(next.into_inner().unwrap(), cleaned);
    }
    subject.end();
}

#[test]
fn cr14_terminal_failure_ends_the_cleanup() {
    let subject = Subject::with(|_| Err(Failure::terminal("the bucket is foreign")));
    let uid = subject.create("a");
    subject.server().vanish(&path("a")).unwrap();
    subject.assert_vanished(&uid, "final");
    assert_eq!(subject.next(), Got::Gone);
    subject.running.until_idle();
    let last = subject
        .running
        .controller
        .last_failure("default/a")
        .unwrap();
    assert_eq!(last.failure.to_string(), "the bucket is foreign");
    subject.running.enqueue("default/a");
    assert_eq!(subject.next(), Got::Gone);

    // The next object of the name does not wait for anything.
    let first = subject.create("b");
    subject.server().vanish(&path("b")).unwrap();
    subject.cluster.create(MAPS, "b");
    assert_eq!(subject.next(), Got::CleanedUp(first, true));
    until("the new object is reconciled", || {
        subject
            .got
            .try_iter()
            .any(|got| matches!(got, Got::Reconciled(_)))
    });
    subject.end();
}

#[test]
fn cr14_unfinished_cleanups_are_named_at_the_end() {
    log_capture::start();
    let subject = Subject::with(|_| Ok(Next::After(3600 * SECOND)));
    let uid = subject.create("a");
    subject.server().vanish(&path("a")).unwrap();
    subject.assert_vanished(&uid, "final");
    subject.end();
    let line = log_capture::wait_for(&[&uid, "the term ends before the cleanup"]);
    assert!(line.contains("\"default/a\""), "{line}");
}

/// The cache is ahead of the handler: a call could find the next object, or none.
#[test]
fn cr14_key_waits_until_the_handler_has_caught_up() {
    for has_next in [true, false] {
        let cluster = Cluster::new();
        let (sender, got) = unbounded();
        let [reconciled, cleaned, gone] = [(); 3].map(|()| sender.clone());
        // The handler blocks in this predicate.
        let (entered, blocked) = bounded(1);
        let go_on = Stopper::new();
        let signal = go_on.clone();
        let blocks = Predicate::new(move |_: &ConfigMap, new: &ConfigMap| {
            if new.label("blocks").is_some() {
                let _ = entered.send(());
                signal.wait();
            }
            true
        });
        let controller = cluster
            .controller::<ConfigMap>("vanishing")
            .factory(&cluster.factory)
            .when(blocks)
            .finalizer(
                NAME,
                |_| true,
                move |cx, map| {
                    cleaned.send(Got::CleanedUp(map.uid().to_owned(), cx.has_vanished()))?;
                    Ok(Next::Done)
                },
            )
            .on_gone(move |_| gone.send(Got::Gone).unwrap())
            .by(move |_, map| {
                reconciled.send(Got::Reconciled(map.uid().to_owned()))?;
                Ok(Next::Done)
            })
            .unwrap();
        let running = Running::new(controller);
        let uid = cluster.create(MAPS, "a")["metadata"]["uid"]
            .as_str()
            .unwrap()
            .to_owned();
        let cached = || running.controller.lister().get("default", "a");
        until("the cache has the finalizer", || {
            cached().is_some_and(|map| map.metadata.finalizers.is_some())
        });
        running.until_idle();
        let labelled = json!({"metadata": {"labels": {"blocks": "yes"}}});
        cluster.server.patch(&path("a"), labelled).unwrap();
        blocked.recv_timeout(LIMIT).unwrap();
        got.try_iter().for_each(drop);
        cluster.server.vanish(&path("a")).unwrap();
        if has_next {
            cluster.create(MAPS, "a");
        }
        until("the cache is ahead", || {
            cached().is_some_and(|map| map.uid() != uid) || !has_next && cached().is_none()
        });
        running.enqueue("default/a");
        running.until_idle();
        assert_eq!(got.try_recv().ok(), None);
        go_on.stop();
        let next = || got.recv_timeout(LIMIT).unwrap();
        assert_eq!(next(), Got::CleanedUp(uid.clone(), true));
        match (has_next, next()) {
            (true, Got::Reconciled(next)) => assert_ne!(next, uid),
            (false, Got::Gone) => {}
            (_, other) => panic!("{other:?}"),
        }
        running.end(got);
    }
}

/// The first list comes from a server that is behind. Its objects are no states of this process.
#[test]
fn cr14_states_before_the_barrier_prove_nothing() {
    let cluster = Cluster::with_factory(ApiServer::start().unwrap(), |options| {
        let mut reflector = ReflectorOptions::new().watch_list(false);
        reflector.backoff = Backoff::new(Duration::from_millis(20));
        options.reflector(reflector)
    });
    let held = json!({"metadata": {"name": "a", "finalizers": [NAME]}});
    cluster.create_with(MAPS, held);
    let old = cluster.server.list("/api/v1/configmaps").unwrap();
    // A process before this one has cleaned up.
    cluster.server.delete(&path("a")).unwrap();
    let none = json!({"metadata": {"finalizers": null}});
    cluster.server.patch(&path("a"), none).unwrap();
    cluster.server.compact();
    let stale = Fault::response(200, "application/json", old.to_string());
    cluster
        .server
        .fail_next(stale.on(Verb::List).resource("configmaps").times(1));
    let (sender, got) = unbounded();
    let cleaned = sender.clone();
    let controller = cluster
        .controller::<ConfigMap>("vanishing")
        .factory(&cluster.factory)
        .finalizer(
            NAME,
            |_| true,
            move |_, map| {
                cleaned.send(Got::CleanedUp(map.uid().to_owned(), true))?;
                Ok(Next::Done)
            },
        )
        .by(move |_, map| {
            sender.send(Got::Reconciled(map.name().to_owned()))?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::new(controller);
    cluster.create(MAPS, "b");
    assert_eq!(
        got.recv_timeout(LIMIT).unwrap(),
        Got::Reconciled("b".to_owned())
    );
    running.until_idle();
    assert!(
        got.try_iter()
            .all(|got| got == Got::Reconciled("b".to_owned()))
    );
    running.end(got);
}

/// A replica of the test with normal deletions.
struct Replica {
    stop: Stopper,
    thread: JoinHandle<Result<(), ControllerError>>,
}

impl Replica {
    /// Two controllers with a finalizer each. They count cleanups by object, and those of vanished ones.
    fn start(cluster: &Cluster, counts: &Arc<Counts>) -> Self {
        let backoff = Backoff::new(Duration::from_millis(10));
        let mut reflector = ReflectorOptions::default();
        reflector.backoff = backoff;
        let options = LeaderElectionOptions::new().retry_period(SECOND);
        let manager = Manager::builder(cluster.client.clone())
            .leader_election("default", "vanishing")
            .leader_election_options(options)
            .informers(FactoryOptions::new().reflector(reflector))
            .build()
            .unwrap();
        for name in ["first", "second"] {
            let counts = Arc::clone(counts);
            manager
                .reconcile::<ConfigMap>(name)
                .workers(8)
                .finalizer(
                    format!("example.com/{name}"),
                    |_| true,
                    move |cx, map| {
                        if cx.has_vanished() {
                            counts.vanished.fetch_add(1, Ordering::SeqCst);
                        }
                        let mut cleaned = counts.cleaned.lock().unwrap();
                        *cleaned.entry((name, map.uid().to_owned())).or_default() += 1;
                        Ok(Next::Done)
                    },
                )
                .by(|_, _| Ok(Next::Done))
                .unwrap();
        }
        let stop = Stopper::new();
        let of_thread = stop.clone();
        let thread = std::thread::spawn(move || manager.run(&of_thread));
        Self { stop, thread }
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap().unwrap();
    }
}

#[derive(Default)]
struct Counts {
    cleaned: Mutex<BTreeMap<(&'static str, String), usize>>,
    vanished: AtomicUsize,
}

fn deletions() -> usize {
    let deletions = std::env::var("DELETIONS");
    deletions.map_or(600, |deletions| deletions.parse().unwrap())
}

/// Two controllers, other finalizers, removals by hand, each propagation, lost responses, relists
/// behind a compaction, and takeovers: none of this is an object that has vanished. `DELETIONS` sets
/// their number.
#[test]
fn cr14_no_normal_deletion_counts() {
    const ROUND: usize = 50;
    // The garbage collector ends foreground deletions.
    let server = ApiServer::builder().garbage_collection(true).start();
    let cluster = Cluster::with_server(server.unwrap());
    let counts = Arc::<Counts>::default();
    let lost = AtomicUsize::new(0);
    // The server executes each fifth patch, and its response is lost.
    let is_lost = move |_: &RequestRecord| lost.fetch_add(1, Ordering::Relaxed) % 5 == 4;
    let fault = Fault::close().after_bytes(0).on(Verb::Patch).when(is_lost);
    cluster
        .server
        .fail_next(fault.resource("configmaps").always());
    let mut replica = Replica::start(&cluster, &counts);
    let mut standby = Replica::start(&cluster, &counts);
    let mut expected = Vec::new();
    for round in 0..deletions() / ROUND {
        let names: Vec<_> = (0..ROUND)
            .map(|number| format!("map-{round}-{number}"))
            .collect();
        let mut uids = BTreeMap::new();
        for (number, name) in names.iter().enumerate() {
            let other: &[&str] = if number % 3 == 0 {
                &["example.com/other"]
            } else {
                &[]
            };
            let created = cluster.create_with(
                MAPS,
                json!({"metadata": {"name": name, "finalizers": other}}),
            );
            uids.insert(
                name,
                created["metadata"]["uid"].as_str().unwrap().to_owned(),
            );
        }
        let finalizers = |name: &str| {
            let map = cluster.server.get(&path(name)).ok()?;
            let finalizers = map["metadata"]["finalizers"].as_array()?.clone();
            Some(
                finalizers
                    .iter()
                    .filter_map(|of| of.as_str().map(str::to_owned))
                    .collect::<Vec<_>>(),
            )
        };
        let has_both = |name: &String| {
            let both = ["example.com/first", "example.com/second"];
            let found = finalizers(name).unwrap_or_default();
            both.iter()
                .all(|wanted| found.iter().any(|name| name == wanted))
        };
        until("all objects have both finalizers", || {
            names.iter().all(has_both)
        });
        // Only where the watch delivers each state, a removal by hand can be told apart.
        let is_quiet = round % 2 == 0;
        for (number, name) in names.iter().enumerate() {
            if is_quiet && number % 7 == 0 {
                let left = json!({"metadata": {"finalizers": ["example.com/other"]}});
                cluster.server.patch(&path(name), left).unwrap();
                let bare = json!({"metadata": {"finalizers": null}});
                cluster.server.delete(&path(name)).unwrap();
                let _ = cluster.server.patch(&path(name), bare);
                continue;
            }
            for controller in ["first", "second"] {
                expected.push((controller, uids[name].clone()));
            }
            let policy = ["Background", "Foreground", "Orphan"][number % 3];
            let request = Request::delete(path(name)).query("propagationPolicy", policy);
            cluster.client.request(&request, &Stop::never()).unwrap();
        }
        if !is_quiet {
            cluster.server.pause();
            cluster.server.compact();
            cluster.server.resume().unwrap();
        }
        if round % 3 == 1 {
            // The standby takes over while cleanups run.
            let next = Replica::start(&cluster, &counts);
            std::mem::replace(&mut replica, std::mem::replace(&mut standby, next)).end();
        }
        until("all objects are gone", || {
            for name in &names {
                // What only the other finalizer holds.
                if finalizers(name).is_some_and(|left| left == ["example.com/other"]) {
                    let bare = json!({"metadata": {"finalizers": null}});
                    let _ = cluster.server.patch(&path(name), bare);
                }
            }
            names
                .iter()
                .all(|name| cluster.server.get(&path(name)).is_err())
        });
    }
    replica.end();
    standby.end();
    let cleaned = counts.cleaned.lock().unwrap();
    for object in &expected {
        assert!(
            cleaned.contains_key(object),
            "{object:?} was not cleaned up"
        );
    }
    println!("{} deletions, {} cleanups", deletions(), cleaned.len());
    assert_eq!(counts.vanished.load(Ordering::SeqCst), 0);
}

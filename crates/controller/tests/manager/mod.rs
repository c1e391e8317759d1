//! Tests of the manager: order, leader election and endpoints.

mod outages;
mod sharding;
mod takeover;
mod terms;

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_informer::client::api::DeleteOptions;
use k8s_informer::informer::FactoryOptions;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::selector::Selector;
use k8s_informer::time::Backoff;
use k8s_informer::{Client, Config, DynamicObject, Object, SharedInformerFactory, Stop, Stopper};
use k8s_informer_controller::leader_election::LeaderElectionOptions;
use k8s_informer_controller::{ControllerError, ControllerErrorKind, Failure, Manager, Next};
use k8s_informer_testing::{ApiServer, Fault, RequestRecord, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::{Value, json};

use crate::log_capture;
use crate::support::{until, widgets};

const PATIENCE: Duration = Duration::from_secs(20);
/// A list that has failed several times is repeated within a minute.
const NEXT_LIST: Duration = Duration::from_secs(90);
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases/team";

fn client(server: &ApiServer) -> Client {
    Client::new(Config::new(server.url())).unwrap()
}

/// A manager that runs on a thread.
struct Running {
    manager: Manager,
    stop: Stopper,
    thread: JoinHandle<Result<(), ControllerError>>,
}

impl Running {
    fn start(manager: Manager) -> Self {
        let stop = Stopper::new();
        let thread = {
            let (manager, stop) = (manager.clone(), stop.clone());
            thread::spawn(move || manager.run(&stop))
        };
        Self {
            manager,
            stop,
            thread,
        }
    }

    fn end(self) -> Result<(), ControllerError> {
        self.stop.stop();
        self.thread.join().unwrap()
    }
}

/// Adds a controller that sends the name of each reconciled ConfigMap.
fn send_names(manager: &Manager) -> Receiver<String> {
    let (sender, names) = mpsc::channel();
    manager
        .reconcile::<ConfigMap>("maps")
        .by(move |_, map| {
            let _ = sender.send(map.name().to_owned());
            Ok(Next::Done)
        })
        .unwrap();
    names
}

fn create_map(server: &ApiServer, name: &str) {
    let map = json!({"metadata": {"name": name}});
    server.create(MAPS, map).unwrap();
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut connection = TcpStream::connect(address).unwrap();
    write!(connection, "GET {path} HTTP/1.1\r\n\r\n").unwrap();
    let mut response = String::new();
    connection.read_to_string(&mut response).unwrap();
    response
}

#[test]
fn manager_runs_all_controllers_until_the_stop() {
    let server = ApiServer::start().unwrap();
    let manager = Manager::builder(client(&server)).build().unwrap();
    let maps = send_names(&manager);
    let (sender, secrets) = mpsc::channel();
    manager
        .reconcile::<Secret>("secrets")
        .by(move |_, secret| {
            let _ = sender.send(secret.name().to_owned());
            Ok(Next::Done)
        })
        .unwrap();
    create_map(&server, "a");
    let secret = json!({"metadata": {"name": "b"}});
    server
        .create("/api/v1/namespaces/default/secrets", secret)
        .unwrap();
    let running = Running::start(manager);
    assert_eq!(maps.recv_timeout(PATIENCE).unwrap(), "a");
    assert_eq!(secrets.recv_timeout(PATIENCE).unwrap(), "b");
    running.end().unwrap();
}

#[test]
fn manager_with_an_old_name_or_after_the_start_is_rejected() {
    let server = ApiServer::start().unwrap();
    let manager = Manager::builder(client(&server)).build().unwrap();
    let maps = send_names(&manager);
    let build = || {
        manager
            .reconcile::<ConfigMap>("maps")
            .by(|_, _| Ok(Next::Done))
    };
    let error = build().unwrap_err().to_string();
    assert!(
        error.contains("another controller of the manager has this name"),
        "{error}"
    );
    create_map(&server, "a");
    let running = Running::start(manager.clone());
    maps.recv_timeout(PATIENCE).unwrap();
    let late = manager
        .reconcile::<Secret>("late")
        .by(|_, _| Ok(Next::Done));
    let error = late.unwrap_err().to_string();
    assert!(error.contains("the manager runs already"), "{error}");
    running.end().unwrap();
    let error = manager.run(&Stop::never()).unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::AlreadyRan),
        "{error}"
    );
}

/// Otherwise the election would end before the stuck calls are named.
#[test]
fn grace_period_longer_than_that_of_the_election_is_rejected() {
    let server = ApiServer::start().unwrap();
    let minutes = |minutes: u64| Duration::from_secs(60 * minutes);
    let build = |manager: &Manager| {
        let maps = manager.reconcile::<ConfigMap>("maps");
        maps.grace_period(minutes(2)).by(|_, _| Ok(Next::Done))
    };
    let manager = || Manager::builder(client(&server)).leader_election("default", "team");
    let error = build(&manager().build().unwrap()).unwrap_err().to_string();
    let expected =
        "controller \"maps\": a stop can take 240s, but the leader election gives up before";
    assert!(error.starts_with(expected), "{error}");
    let with_grace = |grace: Duration| {
        let options = LeaderElectionOptions::new().grace_period(grace);
        let manager = manager().leader_election_options(options);
        build(&manager.build().unwrap())
    };
    with_grace(minutes(4)).unwrap_err();
    with_grace(minutes(4) + Duration::from_secs(1)).unwrap();
    let alone = Manager::builder(client(&server)).build().unwrap();
    build(&alone).unwrap();
}

fn replica(server: &ApiServer, identity: &str) -> Manager {
    Manager::builder(client(server))
        .leader_election("default", "team")
        .identity(identity)
        .health(":0")
        .build()
        .unwrap()
}

#[test]
fn le26_standby_is_alive_and_ready() {
    let server = ApiServer::start().unwrap();
    let first = Running::start(replica(&server, "first"));
    let elector = first.manager.elector().unwrap();
    elector.wait_for_leadership(PATIENCE, &first.stop).unwrap();
    let second = replica(&server, "second");
    let _names = send_names(&second);
    let second = Running::start(second);
    let address = second.manager.health_address().unwrap();
    until("the standby is ready", || {
        get(address, "/readyz").ends_with("ok")
    });
    assert!(get(address, "/healthz").ends_with("ok"));
    assert!(!second.manager.elector().unwrap().is_leader());
    second.end().unwrap();
    first.end().unwrap();
}

/// A standby has complete caches, and reconciles as soon as the leader has released the Lease.
#[test]
fn cr9_standby_syncs_and_takes_over_at_the_release() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let first = replica(&server, "first");
    let of_first = send_names(&first);
    let first = Running::start(first);
    assert_eq!(of_first.recv_timeout(PATIENCE).unwrap(), "a");

    let second = replica(&server, "second");
    let of_second = send_names(&second);
    let second = Running::start(second);
    let informer = second.manager.factory().informer::<ConfigMap>();
    assert!(informer.synced().wait_timeout(PATIENCE));
    assert!(!second.manager.elector().unwrap().is_leader());
    let address = second.manager.health_address().unwrap();
    assert!(get(address, "/readyz/informers").ends_with("ok"));
    assert!(of_second.try_recv().is_err());
    // Nothing would take keys from the queue of a standby.
    assert!(get(address, "/status").contains(r#""queueDepth": 0"#));

    server.clear_requests();
    first.end().unwrap();
    assert_eq!(of_second.recv_timeout(PATIENCE).unwrap(), "a");
    let lists_maps = |request: &&RequestRecord| {
        request.verb() == Verb::List && request.resource() == Some("configmaps")
    };
    // Only the version is read.
    let requests = server.requests();
    let lists: Vec<_> = requests.iter().filter(lists_maps).collect();
    assert!(matches!(lists[..], [list] if list.param("limit") == Some("1")));
    second.end().unwrap();
}

/// Adds a controller whose calls announce themselves and then wait for a signal.
fn block(manager: &Manager, started: Sender<()>) -> Stopper {
    let go_on = Stopper::new();
    let signal = go_on.clone();
    manager
        .reconcile::<ConfigMap>("maps")
        .by(move |_, _| {
            started.send(())?;
            signal.wait();
            Ok(Next::Done)
        })
        .unwrap();
    go_on
}

#[test]
fn cr10_lease_is_released_after_the_last_call() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let manager = replica(&server, "first");
    let (sender, started) = mpsc::channel();
    let go_on = block(&manager, sender);
    let running = Running::start(manager);
    started.recv_timeout(PATIENCE).unwrap();
    running.stop.stop();
    let holder = || server.get(LEASE).unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder(), "first");
    go_on.stop();
    running.end().unwrap();
    assert_eq!(holder(), "");
}

/// Adds a controller whose calls ignore all signals but the returned one.
fn get_stuck(manager: &Manager) -> (Receiver<()>, Stopper) {
    let (sender, started) = mpsc::channel();
    let go_on = Stopper::new();
    let signal = go_on.clone();
    manager
        .reconcile::<ConfigMap>("maps")
        .grace_period(Duration::ZERO)
        .by(move |_, _| {
            sender.send(())?;
            signal.wait();
            Ok(Next::Done)
        })
        .unwrap();
    (started, go_on)
}

#[track_caller]
fn assert_stuck(result: Result<(), ControllerError>) {
    let error = result.unwrap_err();
    let ControllerErrorKind::Stuck { keys, .. } = error.kind() else {
        panic!("{error}")
    };
    assert_eq!(keys, &["default/a"]);
}

#[test]
fn cr10_lease_is_kept_while_a_call_is_stuck() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let manager = replica(&server, "first");
    let (started, go_on) = get_stuck(&manager);
    let running = Running::start(manager.clone());
    started.recv_timeout(PATIENCE).unwrap();
    assert_stuck(running.end());
    let holder = server.get(LEASE).unwrap()["spec"]["holderIdentity"].clone();
    assert_eq!(holder, "first");
    let elector = manager.elector().unwrap();
    let error = elector.health(PATIENCE).unwrap_err();
    assert!(error.is_stuck(), "{error}");
    assert!(!elector.is_leader());
    go_on.stop();
}

#[test]
fn stuck_call_after_a_lost_leadership_is_named() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let manager = replica(&server, "first");
    let (started, go_on) = get_stuck(&manager);
    let running = Running::start(manager);
    started.recv_timeout(PATIENCE).unwrap();
    let other = json!({"spec": {"holderIdentity": "second", "leaseTransitions": 7}});
    server.patch(LEASE, other).unwrap();
    assert_stuck(running.thread.join().unwrap());
    go_on.stop();
}

#[test]
fn lost_leadership_ends_calls_and_is_an_error() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let manager = Manager::builder(client(&server))
        .leader_election("default", "team")
        .end_at_loss()
        .build()
        .unwrap();
    let (sender, started) = mpsc::channel();
    let (result, ended) = mpsc::channel();
    manager
        .reconcile::<ConfigMap>("maps")
        .by(move |cx, _| {
            sender.send(())?;
            cx.stop().wait();
            result.send(cx.ensure().is_err())?;
            Ok(Next::Done)
        })
        .unwrap();
    let running = Running::start(manager);
    started.recv_timeout(PATIENCE).unwrap();
    let other = json!({"spec": {"holderIdentity": "second", "leaseTransitions": 7}});
    server.patch(LEASE, other).unwrap();
    assert!(
        ended.recv_timeout(PATIENCE).unwrap(),
        "`ensure` fails after the loss"
    );
    let error = running.thread.join().unwrap().unwrap_err();
    assert!(
        matches!(error.kind(), ControllerErrorKind::LeadershipLost { .. }),
        "{error}"
    );
}

#[test]
fn failed_sync_of_one_controller_ends_the_manager() {
    let server = ApiServer::start().unwrap();
    server.fail_next(Fault::status(403).resource("secrets").always());
    let factory = SharedInformerFactory::new(client(&server));
    let secrets = factory.informer::<Secret>();
    factory.start(&Stop::never()).unwrap();
    until("the list is refused", || {
        secrets.status().last_error.is_some()
    });
    let manager = Manager::builder(client(&server)).build().unwrap();
    let _maps = send_names(&manager);
    manager
        .reconcile::<Secret>("secrets")
        .factory(&factory)
        .sync_timeout(Duration::from_millis(50))
        .by(|_, _| Ok(Next::Done))
        .unwrap();
    let error = manager.run(&Stop::never()).unwrap_err().to_string();
    assert!(
        error.contains("controller \"secrets\"") && error.contains("403"),
        "{error}"
    );
}

#[test]
fn cr11_endpoints_report_checks_metrics_and_status() {
    let server = ApiServer::start().unwrap();
    server.fail_next(
        Fault::status(500)
            .resource("configmaps")
            .on(Verb::List)
            .times(1),
    );
    create_map(&server, "a");
    let manager = Manager::builder(client(&server))
        .leader_election("default", "team")
        .identity("first")
        .health(":0")
        .ready_check("license", || Err("expired".to_owned()))
        .build()
        .unwrap();
    let (sender, calls) = mpsc::channel();
    let controller = manager
        .reconcile::<ConfigMap>("maps")
        .by(move |cx, _| {
            sender.send(cx.attempt())?;
            Err("the bucket is locked".parse::<u32>().unwrap_err().into())
        })
        .unwrap();
    let address = manager.health_address().unwrap();
    assert!(address.ip().is_loopback());
    assert!(get(address, "/healthz").ends_with("ok"));
    assert!(get(address, "/readyz/informers").contains("not synced: configmaps"));

    let running = Running::start(manager);
    assert_eq!(calls.recv_timeout(PATIENCE).unwrap(), 1);
    assert_eq!(calls.recv_timeout(PATIENCE).unwrap(), 2);
    assert!(get(address, "/readyz/informers").ends_with("ok"));
    assert!(get(address, "/healthz?verbose").contains("[+]leaderElection ok"));
    let ready = get(address, "/readyz?verbose");
    assert!(
        ready.contains("[-]license failed") && !ready.contains("expired"),
        "{ready}"
    );
    let metrics = get(address, "/metrics");
    assert!(
        metrics.contains("leader_election_master_status{name=\"team\"} 1\n"),
        "{metrics}"
    );
    assert!(
        metrics.contains("workqueue_depth{name=\"maps\",controller=\"maps\"}"),
        "{metrics}"
    );
    let status = get(address, "/status");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: DynamicObject = serde_json::from_str(body).unwrap();
    let text = |pointer: &str| status.read::<String>(pointer).unwrap().unwrap();
    assert_eq!(text("/informers/0/name"), "configmaps");
    assert_eq!(text("/controllers/0/lastErrors/0/key"), "default/a");
    assert_eq!(text("/leader/identity"), "first");
    let failure = controller.last_failure("default/a").unwrap();
    assert_eq!(
        failure.failure.to_string(),
        text("/controllers/0/lastErrors/0/error")
    );
    running.end().unwrap();
    assert!(TcpStream::connect(address).is_err(), "the port is closed");
}

#[test]
fn status_shows_each_informer_once_and_the_first_errors() {
    let server = ApiServer::start().unwrap();
    (0..30).for_each(|number| create_map(&server, &format!("map-{number:02}")));
    let manager = Manager::builder(client(&server)).health(":0");
    let manager = manager.build().unwrap();
    let build = |name: &str, labels: &str, result: fn() -> Result<Next, Failure>| {
        let scope = InformerScope::all().label_selector(labels.parse::<Selector>().unwrap());
        let source = Source::of::<ConfigMap>().scope(scope);
        let controller = manager.reconcile_source(source, name);
        controller.by(move |_, _| result()).unwrap()
    };
    build("one", "!a", || Ok(Next::Done));
    build("two", "!b", || Ok(Next::Done));
    let failing = build("three", "!a", || Err(Failure::terminal("refused")));
    let address = manager.health_address().unwrap();
    let running = Running::start(manager);
    until("all calls have failed", || failing.status().failing == 30);
    let status = get(address, "/status");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: Value = serde_json::from_str(body).unwrap();
    let names = |list: &Value, name: &str| -> Vec<String> {
        let items = list.as_array().unwrap().iter();
        items
            .map(|item| item[name].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(names(&status["informers"], "name"), ["configmaps"; 2]);
    let errors = names(&status["controllers"][2]["lastErrors"], "key");
    assert_eq!(
        (errors.len(), &*errors[0], &*errors[19]),
        (20, "default/map-00", "default/map-19")
    );
    assert_eq!(status["controllers"][2]["failing"], 30);
    running.end().unwrap();
}

#[test]
fn status_shows_the_writes_that_keys_wait_for() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    // The server says that the object is gone, but it remains.
    let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Success"});
    let lie = Fault::response(200, "application/json", status.to_string());
    server.fail_next(lie.on(Verb::Delete).always());
    let manager = Manager::builder(client(&server)).health(":0");
    let manager = manager.build().unwrap();
    let maps = manager.reconcile::<ConfigMap>("maps").by(|cx, _| {
        let maps = cx.api::<ConfigMap>(Some(cx.namespace()));
        maps.delete(cx.name(), &DeleteOptions::default(), cx.stop())?;
        // The next call.
        Ok(Next::After(Duration::from_millis(1)))
    });
    let maps = maps.unwrap();
    let address = manager.health_address().unwrap();
    let running = Running::start(manager);
    until("the key waits", || maps.status().postponed == 1);
    let status = get(address, "/status");
    let (_, body) = status.split_once("\r\n\r\n").unwrap();
    let status: Value = serde_json::from_str(body).unwrap();
    let mut awaited = status["controllers"][0]["awaitedWrites"].clone();
    assert!(awaited[0]["seconds"].take().is_u64(), "{awaited}");
    assert_eq!(
        awaited,
        json!([{
            "key": "default/a", "informer": "configmaps", "object": "default/a",
            "change": "its deletion", "seconds": null,
        }])
    );
    running.end().unwrap();
}

#[test]
fn check_with_the_name_of_a_built_in_one_is_rejected() {
    let server = ApiServer::start().unwrap();
    let manager = || Manager::builder(client(&server));
    for (manager, name) in [
        (
            manager().ready_check("informers", || Ok::<_, Infallible>(())),
            "informers",
        ),
        (
            manager().health_check("leaderElection", || Ok::<_, Infallible>(())),
            "leaderElection",
        ),
    ] {
        let error = manager.build().unwrap_err().to_string();
        assert!(
            error.contains(&format!("a check {name:?} itself")),
            "{error}"
        );
    }
    manager()
        .health_check("informers", || Ok::<_, Infallible>(()))
        .build()
        .unwrap();
}

#[test]
fn address_in_use_is_an_error_of_the_build() {
    let server = ApiServer::start().unwrap();
    let address = server.address().to_string();
    let error = Manager::builder(client(&server))
        .health(&*address)
        .build()
        .unwrap_err();
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("manager: can't serve HTTP on {address:?}: ")),
        "{message}"
    );
}

fn send_widgets(manager: &Manager, name: &str) -> Receiver<Option<usize>> {
    let (sender, seen) = mpsc::channel();
    manager
        .reconcile::<ConfigMap>(name)
        .watches_optional(widgets::source(), |_| None)
        .by(move |cx, _| {
            let widgets = cx.optional::<DynamicObject>();
            let _ = sender.send(widgets.map(|widgets| widgets.list().len()));
            Ok(Next::Done)
        })
        .unwrap();
    seen
}

/// That its lists are repeated is no failure, and an earlier list means nothing.
#[test]
fn status_shows_that_an_optional_kind_is_missing() {
    log_capture::start();
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let manager = Manager::builder(client(&server)).health(":0");
    let manager = manager.build().unwrap();
    let (sender, seen) = mpsc::channel();
    let gadgets = GroupVersionResource::new("silent.example.com", "v1", "gadgets");
    manager
        .reconcile::<ConfigMap>("shown")
        .watches_optional(Source::dynamic(gadgets), |_| None)
        .by(move |cx, _| {
            sender.send(cx.optional::<DynamicObject>().is_some())?;
            Ok(Next::Done)
        })
        .unwrap();
    let address = manager.health_address().unwrap();
    let running = Running::start(manager);
    let informer = || -> Value {
        let response = get(address, "/status");
        let (_, json) = response.split_once("\r\n\r\n").unwrap();
        let status: Value = serde_json::from_str(json).unwrap();
        let mut informers = status["informers"].as_array().unwrap().iter();
        let is_gadgets = |informer: &&Value| informer["name"].as_str().unwrap().contains("gadgets");
        informers.find(is_gadgets).unwrap().clone()
    };
    let assert_missing = || {
        let shown = informer();
        assert_eq!(
            (&shown["state"], &shown["synced"]),
            (&json!("optional, missing"), &json!(false))
        );
        assert!(
            shown["lastError"].as_str().unwrap().contains("404"),
            "{shown}"
        );
    };
    assert!(!seen.recv_timeout(PATIENCE).unwrap());
    assert_missing();

    let definition = widgets::definition("silent.example.com", "gadgets", "Gadget");
    server.create(widgets::DEFINITIONS, definition).unwrap();
    assert!(seen.recv_timeout(PATIENCE).unwrap());
    until("it is watched", || informer()["state"] == "watching");
    assert_eq!(informer()["synced"], true);
    let definition = format!("{}/gadgets.silent.example.com", widgets::DEFINITIONS);
    server.delete(&definition).unwrap();
    assert!(!seen.recv_timeout(PATIENCE).unwrap());
    assert_missing();
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
    running.end().unwrap();
    assert_eq!(
        log_capture::lines_with(&["WARN", "gadgets", "404"]),
        [""; 0]
    );
}

/// A conversion webhook is broken, for example. The replicas start, and say why.
#[test]
fn optional_kind_that_cannot_be_listed_is_reported() {
    log_capture::start();
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let definition = widgets::definition("broken.example.com", "gears", "Gear");
    server.create(widgets::DEFINITIONS, definition).unwrap();
    server.fail_next(Fault::status(500).resource("gears").always());
    let manager = |identity: &str| {
        let pause = Duration::from_millis(100);
        let backoff = Backoff::new(pause);
        let options = ReflectorOptions::new().backoff(backoff);
        let manager = Manager::builder(client(&server))
            .leader_election("default", "team")
            .identity(identity)
            .health(":0")
            .informers(FactoryOptions::new().reflector(options))
            .build()
            .unwrap();
        let gears = GroupVersionResource::new("broken.example.com", "v1", "gears");
        let (sender, seen) = mpsc::channel();
        manager
            .reconcile::<ConfigMap>("reported")
            .watches_optional(Source::dynamic(gears), |_| None)
            .by(move |cx, _| {
                sender.send(cx.optional::<DynamicObject>().is_some())?;
                Ok(Next::Done)
            })
            .unwrap();
        (Running::start(manager), seen)
    };
    let (leader, seen) = manager("one");
    let elector = leader.manager.elector().unwrap();
    elector.wait_for_leadership(PATIENCE, &leader.stop).unwrap();
    let (standby, _none) = manager("other");
    let address = |running: &Running| running.manager.health_address().unwrap();
    let standby_is_ready = || get(address(&standby), "/readyz").starts_with("HTTP/1.1 200");
    assert!(!standby_is_ready());
    assert!(!seen.recv_timeout(2 * PATIENCE).unwrap());
    let status = get(address(&leader), "/status");
    assert!(status.contains("\"optional, missing\""), "{status}");
    assert!(
        status.contains("gears") && status.contains("500"),
        "{status}"
    );
    assert!(get(address(&leader), "/readyz").starts_with("HTTP/1.1 200"));
    let warnings =
        log_capture::lines_with(&["WARN", "starts without the optional kind gears", "500"]);
    assert_eq!(warnings.len(), 1);
    // A rollout must not wait for the kind, either.
    until("the standby is ready", standby_is_ready);
    server.clear_faults();
    assert!(seen.recv_timeout(NEXT_LIST).unwrap());
    standby.end().unwrap();
    leader.end().unwrap();
}

#[test]
fn controllers_share_the_informer_of_an_optional_kind() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    let builder = Manager::builder(client(&server)).leader_election("kube-system", "team");
    let manager = builder.health(":0").build().unwrap();
    let seen = ["one", "other"].map(|name| send_widgets(&manager, name));
    let address = manager.health_address().unwrap();
    let running = Running::start(manager);
    for seen in &seen {
        assert_eq!(seen.recv_timeout(PATIENCE).unwrap(), None);
    }
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
    // Not ready while the kind has no complete list.
    for verb in [Verb::List, Verb::Watch] {
        let fault = Fault::status(403).on(verb).resource("widgets").always();
        server.fail_next(fault);
    }
    widgets::install(&server);
    until("not ready", || {
        get(address, "/readyz").starts_with("HTTP/1.1 500")
    });
    let response = get(address, "/readyz/informers");
    assert!(response.contains("not synced: widgets"), "{response}");
    server.clear_faults();
    for seen in &seen {
        assert_eq!(seen.recv_timeout(NEXT_LIST).unwrap(), Some(0));
    }
    server.wait_for_watches(2, PATIENCE).unwrap();
    let watches_widgets = |request: &RequestRecord| {
        request.verb() == Verb::Watch && request.resource() == Some("widgets")
    };
    assert!(get(address, "/readyz").starts_with("HTTP/1.1 200"));
    until("a watch", || server.requests().iter().any(watches_widgets));
    assert_eq!(server.open_watches(), 2);
    running.end().unwrap();
}

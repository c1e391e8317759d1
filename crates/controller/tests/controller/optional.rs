//! Kinds that may not exist: the waits of calls, starts and stops.

use std::time::Instant;

use k8s_informer::DynamicObject;
use k8s_informer::client::api::Patch;
use k8s_informer::object::meta_namespace_key;
use k8s_informer_testing::{RequestRecord, Verb};

use super::*;
use crate::support::widgets;

/// Distinguishes the requests of the controller from those of the informers.
const AGENT: &str = "controller";

fn watching(cluster: &Cluster) -> ControllerBuilder<ConfigMap> {
    let config = Config::new(cluster.server.url()).user_agent(AGENT);
    let client = Client::new(config).unwrap();
    Controller::builder(&client, Source::of::<ConfigMap>(), "optional")
        .clock(Arc::new(cluster.clock.clone()))
        .factory(&cluster.factory)
        .watches_optional(widgets::source(), |widget| Some(meta_namespace_key(widget)))
}

/// Waits until the controller has requested discovery this number of times, and all requests before
/// the last one were processed.
fn until_checks(cluster: &Cluster, count: usize) {
    let is_check = |request: &&RequestRecord| {
        request.path() == "/apis" && request.header("user-agent") == Some(AGENT)
    };
    let checks = |requests: &[RequestRecord]| requests.iter().filter(is_check).count() >= count;
    assert!(cluster.server.wait_for_requests(checks, LIMIT));
}

/// Runs a controller of ConfigMaps that watches widgets. The ConfigMap `a` exists.
fn start(cluster: &Cluster) -> (Running<ConfigMap>, Calls) {
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered();
    (
        Running::new(watching(cluster).by(reconcile).unwrap()),
        calls,
    )
}

/// The same with the widget `a`, which the first call has seen.
fn start_installed(cluster: &Cluster) -> (Running<ConfigMap>, Calls) {
    widgets::install(&cluster.server);
    widgets::create(&cluster.server, "a");
    let (running, calls) = start(cluster);
    assert_eq!(answer(calls.next()), Some(1));
    running.drain(&calls);
    (running, calls)
}

/// Answers a call, and returns the number of widgets that it sees.
fn answer(call: Call) -> Option<usize> {
    let (sender, seen) = bounded(1);
    call.run(move |cx| {
        let widgets = cx.optional::<DynamicObject>();
        sender.send(widgets.map(|widgets| widgets.list().len()))?;
        Ok(Next::Done)
    });
    seen.recv_timeout(LIMIT).unwrap()
}

/// Lets all lists and watches of widgets fail as if the kind were missing.
fn fail_lists(cluster: &Cluster) {
    let fault = Fault::status(404).resource("widgets").always();
    cluster.server.fail_next(fault);
    cluster.reconnect();
}

/// Waits until a further check of discovery has ended.
fn until_checked(cluster: &Cluster) {
    cluster.server.clear_requests();
    until_checks(cluster, 3);
}

fn stall_lists(cluster: &Cluster) {
    for verb in [Verb::List, Verb::Watch] {
        let fault = Fault::stall().on(verb).resource("widgets").always();
        cluster.server.fail_next(fault);
    }
}

#[test]
fn new_kind_is_seen_with_its_complete_first_list() {
    let cluster = Cluster::new();
    let (running, calls) = start(&cluster);
    assert_eq!(answer(calls.next()), None);
    running.until_idle();

    stall_lists(&cluster);
    widgets::install(&cluster.server);
    widgets::create(&cluster.server, "a");
    widgets::create(&cluster.server, "b");
    let is_list = |request: &RequestRecord| {
        request.resource() == Some("widgets") && request.method() == "GET"
    };
    let lists = |requests: &[RequestRecord]| requests.iter().any(is_list);
    assert!(cluster.server.wait_for_requests(lists, LIMIT));
    running.enqueue("default/a");
    assert_eq!(answer(calls.next()), None);

    cluster.server.clear_faults();
    cluster.reconnect();
    // Every call sees nothing or all, and the last one sees all.
    while answer(calls.next()) != Some(2) {}
    running.drain(&calls);
    running.end(calls);
}

#[test]
fn stop_during_the_first_list_is_immediate() {
    let cluster = Cluster::new();
    stall_lists(&cluster);
    widgets::install(&cluster.server);
    let (running, calls) = start(&cluster);
    until_checks(&cluster, 1);
    let began = Instant::now();
    running.end(calls);
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

#[test]
fn stop_is_immediate_while_discovery_hangs() {
    let cluster = Cluster::new();
    cluster.server.fail_next(widgets::discovery(Fault::stall()));
    let (running, calls) = start(&cluster);
    let requested =
        |requests: &[RequestRecord]| requests.iter().any(|request| request.path() == "/apis");
    assert!(cluster.server.wait_for_requests(requested, LIMIT));
    let began = Instant::now();
    running.end(calls);
    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
}

#[test]
fn start_waits_until_it_is_known_whether_the_kind_exists() {
    let cluster = Cluster::new();
    cluster
        .server
        .fail_next(widgets::discovery(Fault::status(403)));
    let (running, calls) = start(&cluster);
    until_checks(&cluster, 2);
    calls.assert_none();
    widgets::install(&cluster.server);
    cluster.server.clear_faults();
    assert_eq!(answer(calls.next()), Some(0));
    running.end(calls);
}

#[test]
fn kind_that_cannot_be_listed_fails_the_start() {
    let cluster = Cluster::new();
    widgets::install(&cluster.server);
    let fault = Fault::status(403).resource("widgets").always();
    cluster.server.fail_next(fault);
    let (reconcile, _calls) = answered();
    let controller = watching(&cluster).sync_timeout(Duration::from_millis(300));
    let running = Running::new(controller.by(reconcile).unwrap());
    let error = running.join().unwrap_err().to_string();
    assert!(
        error.contains("not synced: widgets") && error.contains("403"),
        "{error}"
    );
}

/// Without the kind, the write can never arrive.
#[test]
fn own_writes_are_not_awaited_when_the_kind_is_gone() {
    let cluster = Cluster::new();
    let (running, calls) = start_installed(&cluster);
    cluster.stall("widgets");
    running.enqueue("default/a");
    calls.next().run(|cx| {
        let widgets = cx.dynamic_api(&widgets::resource(), Some("default"));
        let patch = Patch::merge(json!({"spec": {"size": 1}}));
        widgets.patch("a", &patch, cx.stop())?;
        Ok(Next::Done)
    });
    running.enqueue("default/a");
    running.until("the key waits", |status| status.postponed == 1);

    cluster
        .server
        .fail_next(widgets::discovery_without_widgets());
    fail_lists(&cluster);
    until_checked(&cluster);
    while answer(cluster.advance_until_call(&running, &calls)).is_some() {}
    running.drain(&calls);

    // Nothing is awaited that is written while the kind is absent.
    running.enqueue("default/a");
    cluster.server.clear_faults();
    cluster
        .server
        .fail_next(widgets::discovery_without_widgets());
    calls.next().run(|cx| {
        let widgets = cx.dynamic_api(&widgets::resource(), Some("default"));
        let patch = Patch::merge(json!({"spec": {"size": 2}}));
        widgets.patch("a", &patch, cx.stop())?;
        Ok(Next::Done)
    });
    running.enqueue("default/a");
    assert_eq!(answer(calls.next()), None);
    running.end(calls);
}

#[test]
fn answers_other_than_absence_change_nothing() {
    let cluster = Cluster::new();
    let (running, calls) = start_installed(&cluster);
    let answers = [
        Fault::status(403),
        Fault::status(404),
        Fault::status(503),
        Fault::close(),
        Fault::response(200, "application/json", "<html>"),
        Fault::response(200, "application/json", "{}"),
    ];
    for unknown in answers {
        let what = format!("{unknown:?}");
        cluster.server.fail_next(widgets::discovery(unknown));
        fail_lists(&cluster);
        for _ in 0..3 {
            until_checked(&cluster);
            cluster.advance(&running, 10 * SECOND);
        }
        running.enqueue("default/a");
        assert_eq!(answer(calls.next()), Some(1), "{what}");
        cluster.server.clear_faults();
        running.drain(&calls);
    }
    running.end(calls);
}

#[test]
fn only_absence_during_the_whole_settle_time_counts() {
    let cluster = Cluster::new();
    let (running, calls) = start_installed(&cluster);
    for _ in 0..3 {
        cluster
            .server
            .fail_next(widgets::discovery_without_widgets());
        fail_lists(&cluster);
        until_checked(&cluster);
        cluster.advance(&running, 4 * SECOND);
        until_checked(&cluster);
        // Another API server behind the address has the kind.
        cluster.server.clear_faults();
        fail_lists(&cluster);
        until_checked(&cluster);
    }
    cluster
        .server
        .fail_next(widgets::discovery_without_widgets());
    until_checked(&cluster);
    cluster.advance(&running, 4 * SECOND);
    until_checked(&cluster);
    running.enqueue("default/a");
    assert_eq!(answer(calls.next()), Some(1));
    running.drain(&calls);
    cluster.advance(&running, SECOND);
    while answer(calls.next()).is_some() {}
    running.until_idle();
    // No deletion is invented: the widget is seen again with the next list.
    cluster.server.clear_faults();
    while answer(cluster.advance_until_call(&running, &calls)) != Some(1) {}
    running.end(calls);
}

/// Without its definition, the objects of a kind do not exist, whatever the cache still has.
#[test]
fn children_of_a_gone_kind_are_hidden() {
    let cluster = Cluster::new();
    let map = cluster.create(MAPS, "a");
    widgets::install(&cluster.server);
    let owner = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "controller": true,
        "name": "a", "uid": map["metadata"]["uid"],
    });
    let widget = json!({"metadata": {"name": "a", "ownerReferences": [owner]}});
    cluster.create_with(widgets::WIDGETS, widget);
    let (reconcile, calls) = answered();
    let builder = cluster.controller::<ConfigMap>("children");
    let builder = builder
        .factory(&cluster.factory)
        .owns_optional(widgets::source());
    let running = Running::new(builder.by(reconcile).unwrap());
    let children = |call: Call| {
        let (sender, seen) = bounded(1);
        call.run(move |cx| {
            sender.send(cx.children::<DynamicObject>().len())?;
            Ok(Next::Done)
        });
        seen.recv_timeout(LIMIT).unwrap()
    };
    assert_eq!(children(calls.next()), 1);
    running.drain(&calls);
    cluster
        .server
        .fail_next(widgets::discovery_without_widgets());
    fail_lists(&cluster);
    while children(cluster.advance_until_call(&running, &calls)) != 0 {}
    running.end(calls);
}

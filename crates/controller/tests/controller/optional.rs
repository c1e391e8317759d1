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
    cluster.server.wait_for_requests(checks, LIMIT).unwrap();
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
    cluster.server.wait_for_requests(lists, LIMIT).unwrap();
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
    cluster.server.wait_for_requests(requested, LIMIT).unwrap();
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
            sender.send(cx.children::<DynamicObject>()?.len())?;
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

/// Lets the first discovery document that the controller gets have the widgets, whether they exist
/// or not.
fn discovery_with_widgets() -> Fault {
    let version = json!({"version": "v1", "freshness": "Current", "resources": [
        {"resource": "widgets", "responseKind": {"group": "", "version": "", "kind": "Widget"},
         "scope": "Namespaced", "singularResource": "widget", "verbs": ["list", "watch"]},
    ]});
    let document = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
        "items": [{"metadata": {"name": "optional.example.com"}, "versions": [version]}],
    });
    let content_type = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    let fault = Fault::response(200, content_type, document.to_string());
    fault.when(|request| request.path() == "/apis" && request.header("user-agent") == Some(AGENT))
}

/// The first lists hang while the definition is removed.
#[test]
fn kind_that_goes_during_the_first_list_is_missing() {
    let cluster = Cluster::new();
    stall_lists(&cluster);
    cluster.server.fail_next(discovery_with_widgets());
    widgets::install(&cluster.server);
    let (running, calls) = start(&cluster);
    until_checks(&cluster, 1);
    calls.assert_none();
    widgets::uninstall(&cluster.server);
    cluster.server.clear_faults();
    cluster.reconnect();
    assert_eq!(answer(calls.next()), None);
    running.end(calls);
}

/// One of several API servers still has a definition that was removed.
#[test]
fn kind_that_only_an_old_discovery_has_is_missing() {
    let cluster = Cluster::new();
    cluster.server.fail_next(discovery_with_widgets());
    let (running, calls) = start(&cluster);
    assert_eq!(answer(calls.next()), None);
    running.end(calls);
}

/// Whether it is missing takes longer than a list may take.
#[test]
fn short_sync_timeout_does_not_end_a_start_without_the_kind() {
    let cluster = Cluster::new();
    cluster.create(MAPS, "a");
    let (reconcile, calls) = answered();
    let controller = watching(&cluster).sync_timeout(SECOND);
    let running = Running::new(controller.by(reconcile).unwrap());
    assert_eq!(answer(calls.next()), None);
    running.end(calls);
}

/// One of several API servers does not have a new definition yet.
#[test]
fn kind_that_one_discovery_lacks_is_awaited() {
    let cluster = Cluster::new();
    widgets::install(&cluster.server);
    widgets::create(&cluster.server, "a");
    stall_lists(&cluster);
    cluster
        .server
        .fail_next(widgets::discovery_without_widgets());
    let (running, calls) = start(&cluster);
    until_checks(&cluster, 2);
    cluster.server.clear_faults();
    cluster.reconnect();
    assert_eq!(answer(calls.next()), Some(1));
    running.end(calls);
}

/// Starts the informer of widgets, which syncs with the widget `a`, before there is a controller: as
/// that of a standby.
fn sync_before_the_start(cluster: &Cluster) {
    widgets::install(&cluster.server);
    widgets::create(&cluster.server, "a");
    let informer = cluster.factory.informer_for(widgets::source());
    cluster.factory.start(&Stop::never()).unwrap();
    assert!(informer.synced().wait_timeout(LIMIT));
}

/// The consistent read of the start has succeeded, so only the watch or a list can end the wait.
#[test]
fn kind_that_goes_while_its_cache_is_behind_is_missing() {
    let cluster = Cluster::new();
    sync_before_the_start(&cluster);
    cluster.stall("widgets");
    let hang = |verb| Fault::stall().on(verb).resource("widgets");
    cluster.server.fail_next(hang(Verb::Watch).always());
    cluster.server.fail_next(hang(Verb::List).skip(1).always());
    widgets::create(&cluster.server, "b");
    cluster.server.clear_requests();
    let (running, calls) = start(&cluster);
    let is_read = |request: &RequestRecord| {
        request.resource() == Some("widgets") && request.param("limit") == Some("1")
    };
    let was_read = |requests: &[RequestRecord]| requests.iter().any(is_read);
    cluster.server.wait_for_requests(was_read, LIMIT).unwrap();
    running.until("the cache is old", |status| !status.old_caches.is_empty());
    calls.assert_none();
    widgets::uninstall(&cluster.server);
    cluster.server.clear_faults();
    cluster.reconnect();
    assert_eq!(answer(calls.next()), None);
    assert!(running.controller.status().old_caches.is_empty());
    running.end(calls);
}

/// A standby has listed the kind, which is removed before the standby leads.
#[test]
fn kind_that_went_before_the_start_is_missing() {
    let cluster = Cluster::new();
    sync_before_the_start(&cluster);
    widgets::uninstall(&cluster.server);
    cluster.reconnect();
    let (running, calls) = start(&cluster);
    assert_eq!(answer(calls.next()), None);
    // It is back.
    widgets::install(&cluster.server);
    while answer(cluster.advance_until_call(&running, &calls)) != Some(0) {}
    running.end(calls);
}

/// A kind that exists must not keep the controller from starting, whatever prevents its list: a
/// missing permission, a conversion webhook, an API server that does not know it yet.
#[test]
fn kind_that_cannot_be_listed_is_missing_until_it_can() {
    let start_broken = |status: u16, is_standby: bool| {
        let cluster = Cluster::new();
        match is_standby {
            true => sync_before_the_start(&cluster),
            false => {
                widgets::install(&cluster.server);
                widgets::create(&cluster.server, "a");
            }
        }
        let fault = Fault::status(status).resource("widgets").always();
        cluster.server.fail_next(fault);
        cluster.reconnect();
        let (running, calls) = start(&cluster);
        (cluster, running, calls)
    };
    let cases = [(403, false), (500, false), (404, false), (403, true)];
    let clusters = cases.map(|(status, is_standby)| start_broken(status, is_standby));
    for (cluster, running, calls) in clusters {
        assert_eq!(answer(calls.next()), None);
        running.drain(&calls);
        cluster.server.clear_faults();
        while answer(cluster.advance_until_call(&running, &calls)) != Some(1) {}
        running.end(calls);
    }
}

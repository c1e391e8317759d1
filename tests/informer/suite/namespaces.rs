//! One informer over several namespaces: they do not affect each other.

use std::sync::Arc;
use std::time::Duration;

use k8s_informer::informer::{FactoryOptions, InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorState;
use k8s_informer::{Client, Config, Object, SharedIndexInformer, SharedInformerFactory, Stop};
use k8s_informer_testing::{ApiServer, FakeClock, Fault, Verb};
use serde_json::{Value, json};

use super::{informer_options, one_thread, queue_kind};
use crate::informer::support::{
    Events, Feed, Informer, SECOND, SOON, options, record, run, soon, status, until, version,
};

fn object(namespace: &str, name: &str, version: &str) -> Value {
    json!({ "metadata": { "namespace": namespace, "name": name, "resourceVersion": version } })
}

struct TwoNamespaces {
    blue: Feed,
    green: Feed,
    informer: Informer,
    clock: FakeClock,
}

impl TwoNamespaces {
    fn new(resync: bool) -> Self {
        let clock = FakeClock::new();
        let blue = Feed::on_clock("blue things", &clock);
        let green = Feed::on_clock("green things", &clock);
        let mut options = options(&clock);
        if resync {
            options.resync_period = SECOND;
        }
        let sources = [("blue", &blue), ("green", &green), ("blue", &green)];
        let sources =
            sources.map(|(namespace, feed)| (namespace.to_owned(), Arc::new(feed.clone()) as _));
        let informer = SharedIndexInformer::for_namespaces(sources, informer_options(options));
        Self {
            blue,
            green,
            informer,
            clock,
        }
    }

    fn list(&self) {
        self.blue
            .list_of("10", &[object("blue", "a", "1"), object("blue", "b", "1")]);
        self.green.list_of("100", &[object("green", "a", "2")]);
    }

    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<_> = self
            .informer
            .lister()
            .list_keys()
            .iter()
            .map(ToString::to_string)
            .collect();
        keys.sort();
        keys
    }
}

fn sorted(events: &Events, count: usize) -> Vec<String> {
    let mut received = events.take(count);
    received.sort();
    received
}

#[test]
fn relist_deletes_only_in_its_own_namespace() {
    let two = TwoNamespaces::new(false);
    two.list();
    let (_handler, events) = record(&two.informer);
    let running = run(&two.informer);
    assert!(two.informer.synced().wait_timeout(SOON));
    assert_eq!(
        sorted(&events, 3),
        ["add a@1 initial", "add a@2 initial", "add b@1 initial"]
    );
    two.blue.expire();
    two.blue.list_of("20", &[object("blue", "c", "15")]);
    assert_eq!(
        sorted(&events, 3),
        ["add c@15", "gone blue/a@1", "gone blue/b@1"]
    );
    assert_eq!(two.keys(), ["blue/c", "green/a"]);
    two.blue.expire();
    two.blue.list_of("30", &[]);
    assert_eq!(events.next(), "gone blue/c@15");
    two.green.event_of("MODIFIED", object("green", "a", "101"));
    assert_eq!(events.next(), "update a@2-101");
    // The version of the informer is the lowest version of its namespaces.
    until("lowest version updated", || {
        two.informer.last_sync_resource_version() == Some(version("30"))
    });
    until("status updated", || {
        two.informer.statuses()[1].1.resource_version == Some(version("101"))
    });
    let statuses = two.informer.statuses();
    let versions = statuses.iter().map(|(namespace, status)| {
        (
            namespace.as_deref().unwrap(),
            status.resource_version.clone(),
            status.lists,
        )
    });
    assert_eq!(
        versions.collect::<Vec<_>>(),
        [
            ("blue", Some(version("30")), 3),
            ("green", Some(version("101")), 1)
        ]
    );
    assert_eq!(two.informer.name(), "blue things, green things");
    running.end().unwrap();
}

#[test]
fn informer_and_handlers_sync_after_all_namespaces() {
    let two = TwoNamespaces::new(false);
    let (handler, events) = record(&two.informer);
    let running = run(&two.informer);
    two.blue.list_of("10", &[object("blue", "a", "1")]);
    assert_eq!(events.next(), "add a@1 initial");
    let (late, late_events) = record(&two.informer);
    assert_eq!(late_events.next(), "add a@1 initial");
    until("watching", || {
        two.informer.statuses()[0].1.state == ReflectorState::Watching
    });
    until("listing", || {
        two.informer.statuses()[1].1.state == ReflectorState::Listing
    });
    assert!(!two.informer.has_synced() && !handler.has_synced() && !late.has_synced());
    let status = two.informer.status();
    assert!(
        !status.listed && status.state == ReflectorState::Listing,
        "{status:?}"
    );
    assert_eq!(two.informer.last_sync_resource_version(), None);
    // `b` is not part of an initial list, because the list of its namespace is complete.
    two.blue.event_of("ADDED", object("blue", "b", "11"));
    assert_eq!(
        [events.next(), late_events.next()],
        ["add b@11", "add b@11"]
    );
    two.green.list_of("100", &[object("green", "c", "2")]);
    for done in [two.informer.synced(), handler.synced(), late.synced()] {
        assert!(done.wait_timeout(SOON));
    }
    assert_eq!(
        [events.next(), late_events.next()],
        ["add c@2 initial", "add c@2 initial"]
    );
    running.end().unwrap();
}

#[test]
fn failing_namespace_does_not_stop_updates_of_others() {
    let two = TwoNamespaces::new(false);
    let (_handler, events) = record(&two.informer);
    let running = run(&two.informer);
    two.green
        .fail_list(status(403, "Forbidden", "not the green ones"));
    two.blue.list_of("10", &[object("blue", "a", "1")]);
    assert_eq!(events.next(), "add a@1 initial");
    two.blue.event_of("MODIFIED", object("blue", "a", "11"));
    assert_eq!(events.next(), "update a@1-11");
    until("failed", || {
        two.informer.statuses()[1].1.last_error.is_some()
    });
    let status = two.informer.status();
    assert!(
        status
            .last_error
            .unwrap()
            .to_string()
            .contains("not the green ones")
    );
    assert!(!two.informer.has_synced() && two.informer.statuses()[0].1.last_error.is_none());
    let error = two
        .informer
        .wait_for_sync(Duration::from_millis(1), &Stop::never())
        .unwrap_err();
    let [unsynced] = error.unsynced() else {
        panic!("{error}")
    };
    assert!(
        unsynced.name.contains("green") && error.to_string().contains("not the green ones"),
        "{error}"
    );
    two.green.list_of("100", &[object("green", "a", "2")]);
    assert!(two.informer.synced().wait_timeout(SOON));
    assert_eq!(events.next(), "add a@2 initial");
    let status = two.informer.status();
    assert_eq!(
        (status.received, status.lists),
        (2, 3),
        "sums over both namespaces: {status:?}"
    );
    running.end().unwrap();
}

#[test]
fn sp2_late_handler_and_resync_cover_all_namespaces_once() {
    let two = TwoNamespaces::new(true);
    two.list();
    let running = run(&two.informer);
    assert!(two.informer.synced().wait_timeout(SOON));
    let (late, events) = record(&two.informer);
    assert!(late.synced().wait_timeout(SOON));
    assert_eq!(
        sorted(&events, 3),
        ["add a@1 initial", "add a@2 initial", "add b@1 initial"]
    );
    // The namespaces resync separately, but a handler sees each object only once per period.
    for tick in 1..=3 {
        two.clock.wait_for_waits(2 * tick, SOON).unwrap();
        two.clock.advance(SECOND);
        assert_eq!(
            sorted(&events, 3),
            ["update a@1-1", "update a@2-2", "update b@1-1"],
            "tick {tick}"
        );
    }
    running.end().unwrap();
}

#[test]
fn informer_of_no_namespaces_syncs_at_once() {
    let informer: Informer =
        SharedIndexInformer::for_namespaces([], informer_options(options(&FakeClock::new())));
    let (handler, _events) = record(&informer);
    let running = run(&informer);
    assert!(informer.synced().wait_timeout(SOON) && handler.synced().wait_timeout(SOON));
    assert!(informer.statuses().is_empty() && informer.status().state == ReflectorState::Created);
    running.end().unwrap();
}

#[test]
fn scope_of_two_namespaces_needs_no_cluster_wide_rights() {
    let server = ApiServer::start().unwrap();
    let maps = |namespace: &str| format!("/api/v1/namespaces/{namespace}/configmaps");
    for namespace in ["blue", "green", "red"] {
        server
            .create(&maps(namespace), json!({ "metadata": { "name": "a" } }))
            .unwrap();
    }
    // Requests for all namespaces are forbidden.
    let all = |fault: Fault| fault.when(|request| request.path() == "/api/v1/configmaps");
    server.fail_next(all(Fault::status(403)).always());
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new()
            .queue(queue_kind())
            .one_thread(one_thread())
            .reflector(options(&FakeClock::new()))
            .namespace("green")
            .namespace("blue"),
    );
    let informer = factory.informer_for(Source::dynamic(GroupVersionResource::new(
        "",
        "v1",
        "configmaps",
    )));
    let same = factory.informer_for(
        Source::dynamic(GroupVersionResource::new("", "v1", "configmaps")).scope(
            InformerScope::all()
                .namespace("blue")
                .namespace("green")
                .namespace("blue"),
        ),
    );
    assert!(informer.is_same(&same));
    let (_handler, events) = record(&informer);
    factory.start(&Stop::never()).unwrap();
    factory.wait_for_cache_sync(SOON, &Stop::never()).unwrap();
    assert_eq!(sorted(&events, 2).len(), 2);
    let mut namespaces: Vec<_> = informer
        .lister()
        .list()
        .iter()
        .map(|map| map.namespace().to_owned())
        .collect();
    namespaces.sort();
    assert_eq!(namespaces, ["blue", "green"]);

    // Both watches expire, and requests for `blue` are forbidden at first.
    server.fail_next(
        Fault::status(403)
            .on(Verb::Watch)
            .when(|request| request.path().contains("/blue/"))
            .times(3),
    );
    server.fail_next(
        Fault::status(403)
            .on(Verb::List)
            .when(|request| request.path().contains("/blue/"))
            .times(3),
    );
    server.delete(&format!("{}/a", maps("green"))).unwrap();
    assert!(events.next().contains("a@"));
    server
        .create(&maps("green"), json!({ "metadata": { "name": "b" } }))
        .unwrap();
    assert!(events.next().starts_with("add b@"));
    server.compact();
    server.close_watches();
    server
        .create(&maps("green"), json!({ "metadata": { "name": "c" } }))
        .unwrap();
    while !events.next().starts_with("add c@") {}
    server
        .create(&maps("blue"), json!({ "metadata": { "name": "d" } }))
        .unwrap();
    while !events.next().starts_with("add d@") {}
    assert_eq!(
        informer.lister().len(),
        4,
        "{:?}",
        informer.lister().list_keys()
    );
    soon("shutdown", move || factory.shut_down(None)).unwrap();
}

#[test]
fn object_of_foreign_namespace_is_reported_and_skipped() {
    let two = TwoNamespaces::new(false);
    let blue = [
        object("blue", "a", "1"),
        object("green", "b", "1"),
        json!({ "metadata": { "name": "c" } }),
    ];
    two.blue.list_of("10", &blue);
    two.green.list_of("100", &[object("green", "a", "2")]);
    let (_handler, events) = record(&two.informer);
    let running = run(&two.informer);
    assert!(two.informer.synced().wait_timeout(SOON));
    assert_eq!(sorted(&events, 2), ["add a@1 initial", "add a@2 initial"]);
    let blue = || two.informer.statuses().remove(0).1;
    until("reported", || blue().unreadable == 2);
    assert!(!blue().complete);
    let error = blue().last_error.unwrap().to_string();
    assert!(error.contains("not in the namespace blue"), "{error}");

    // Events with objects of another namespace, including one that cannot be decoded.
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        two.blue.event_of(kind, object("green", "a", "11"));
    }
    let unreadable = json!({ "metadata": { "namespace": "green", "name": "a", "labels": 7 } });
    two.blue.event_of("DELETED", unreadable);
    two.blue.event_of("MODIFIED", object("blue", "a", "12"));
    assert_eq!(events.next(), "update a@1-12");
    assert_eq!(two.keys(), ["blue/a", "green/a"]);

    // A relist delivers no object of another namespace, and repeats nothing.
    two.blue.expire();
    two.blue.list_of(
        "20",
        &[object("blue", "a", "15"), object("green", "b", "1")],
    );
    assert_eq!(events.next(), "update a@12-15");
    two.blue.event_of("ADDED", object("blue", "d", "21"));
    assert_eq!(events.next(), "add d@21");
    assert_eq!(two.keys(), ["blue/a", "blue/d", "green/a"]);
    running.end().unwrap();
}

#[test]
fn empty_namespace_name_means_all_namespaces() {
    let (all, blue) = (Feed::new("all things"), Feed::new("blue things"));
    let sources = [("blue", &blue), ("", &all)];
    let sources =
        sources.map(|(namespace, feed)| (namespace.to_owned(), Arc::new(feed.clone()) as _));
    let informer: Informer =
        SharedIndexInformer::for_namespaces(sources, informer_options(options(&FakeClock::new())));
    let (_handler, events) = record(&informer);
    let running = run(&informer);
    all.list_of(
        "10",
        &[
            object("blue", "a", "1"),
            object("green", "b", "1"),
            object("", "c", "1"),
        ],
    );
    assert!(informer.synced().wait_timeout(SOON));
    assert_eq!(
        sorted(&events, 3),
        ["add a@1 initial", "add b@1 initial", "add c@1 initial"]
    );
    assert_eq!((informer.name(), blue.requests().len()), ("all things", 0));
    running.end().unwrap();

    let scope = InformerScope::all().namespace("blue").namespace("");
    assert_eq!(scope, InformerScope::all());
}

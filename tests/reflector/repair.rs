//! Relists that fetch objects which could not be decoded.

use std::sync::Arc;
use std::thread;

use k8s_informer::reflector::{Reflector, ReflectorOptions, ReflectorStatus};
use k8s_informer::time::Backoff;
use k8s_informer::{Indexer, Stop};
use k8s_informer_testing::Answer;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::reflector::support::{SECOND, SILENCE, Server, TICK, describe};

fn map(name: &str, version: &str, data: &Value) -> Value {
    let metadata = json!({"namespace": "n", "name": name, "uid": name, "resourceVersion": version});
    json!({ "metadata": metadata, "data": data })
}

fn good(name: &str, version: &str) -> Value {
    map(name, version, &json!({}))
}

fn broken(name: &str, version: &str) -> Value {
    map(name, version, &json!(7))
}

fn list(version: &str, items: &[Value]) -> Answer {
    let list = json!({"kind": "List", "metadata": {"resourceVersion": version}, "items": items});
    Answer::body(list.to_string())
}

fn event(kind: &str, object: &Value) -> String {
    json!({"type": kind, "object": object}).to_string() + "\n"
}

/// The bookmark that ends the initial events of a watch-list.
fn end(version: &str) -> String {
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    event(
        "BOOKMARK",
        &json!({"metadata": {"resourceVersion": version, "annotations": annotations}}),
    )
}

/// Runs a reflector of config maps until it has sent `requests` requests. Returns the requests, the
/// read timeouts below a minute in seconds, and the status.
fn run(server: &Server, requests: usize) -> (Vec<String>, Vec<u64>, ReflectorStatus) {
    /// Stops the reflector even if the test panics.
    struct StopOnDrop(Stop);
    impl Drop for StopOnDrop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(server.clock.clone());
    options.backoff = Backoff::new(SECOND, 2.0, 30 * SECOND, 0.0);
    let store = Arc::new(Indexer::<ConfigMap>::for_objects());
    let reflector = Reflector::new(Arc::new(server.clone()), store, options);
    let stop = Stop::new();
    let sent = thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        let _stop_on_drop = StopOnDrop(stop.clone());
        server.options(requests)
    });
    assert_eq!(
        server.request_count(),
        requests,
        "an unexpected request followed"
    );
    let waits = server
        .read_timeouts()
        .into_iter()
        .flatten()
        .map(|wait| wait.as_secs());
    (
        sent.iter().map(describe).collect(),
        waits.filter(|wait| *wait < 60).collect(),
        reflector.status(),
    )
}

/// Scripts a list with a broken object, five relists with the same broken object, and then
/// `watches`. Each list is followed by a silent watch.
fn after_five_relists(watches: impl IntoIterator<Item = Answer>) -> Server {
    let lists = (10..16).flat_map(|version| {
        [
            list(&version.to_string(), &[broken("a", "1"), good("b", "1")]),
            Answer::open(SILENCE),
        ]
    });
    Server::new(lists.chain(watches))
}

const FIVE_RELISTS: [&str; 12] = [
    "list 0 limit 500",
    "watch 10",
    "list 10",
    "watch 11",
    "list 11",
    "watch 12",
    "list 12",
    "watch 13",
    "list 13",
    "watch 14",
    "list 14",
    "watch 15",
];

#[test]
fn w15_missed_object_triggers_five_relists() {
    let server = after_five_relists([
        // An event of the same broken object triggers no relist. An event of another broken object
        // triggers one.
        Answer::open(event("MODIFIED", &broken("a", "20")) + SILENCE),
        Answer::open(event("ADDED", &broken("c", "30")) + SILENCE),
        list("40", &[good("a", "40"), good("b", "1"), good("c", "40")]),
        Answer::open(""),
    ]);
    let (requests, waits, status) = run(&server, 16);
    assert_eq!(requests[..12], FIVE_RELISTS);
    assert_eq!(
        requests[12..],
        ["watch 15", "watch 20", "list 30", "watch 40"]
    );
    assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
    assert_eq!(
        (status.complete, status.relists, status.unreadable),
        (true, 6, 8)
    );
}

#[test]
fn w15_event_of_missed_object_triggers_a_relist() {
    for (kind, object) in [
        ("MODIFIED", good("a", "20")),
        ("DELETED", good("a", "20")),
        ("DELETED", broken("a", "20")),
    ] {
        let server = after_five_relists([
            Answer::open(event(kind, &object) + SILENCE),
            list("21", &[good("b", "1")]),
            Answer::open(""),
        ]);
        let (requests, waits, status) = run(&server, 15);
        assert_eq!(
            requests[12..],
            ["watch 15", "list 20", "watch 21"],
            "{kind}"
        );
        assert_eq!(waits, [1, 2, 4, 8, 16, 30]);
        assert!(status.complete);
    }
}

#[test]
fn w15_missed_object_triggers_a_relist_between_events() {
    let events = event("ADDED", &broken("a", "11")) + TICK + &event("ADDED", &good("b", "12"));
    let server = Server::new([
        list("10", &[]),
        Answer::open(events),
        list("12", &[good("a", "12"), good("b", "12")]),
        Answer::open(""),
    ]);
    let (requests, _, status) = run(&server.without_read_timeouts(), 4);
    assert_eq!(requests[1..], ["watch 10", "list 12", "watch 12"]);
    assert!(status.complete);
}

#[test]
fn w15_missed_object_triggers_a_watch_list() {
    let first = event("ADDED", &broken("a", "1")) + &end("10") + SILENCE;
    let second =
        event("ADDED", &good("a", "11")) + &end("11") + &event("MODIFIED", &broken("a", "12"));
    let third = event("ADDED", &good("a", "13")) + &end("13");
    let answers = [first, second + SILENCE, third].map(Answer::open);
    let (requests, waits, _) = run(&Server::new(answers).with_watch_list(), 3);
    assert_eq!(requests, ["watch-list ", "watch-list 10", "watch-list 12"]);
    assert_eq!(
        waits.iter().filter(|wait| **wait == 1).count(),
        2,
        "the waits start again after a complete list: {waits:?}"
    );
}

//! `FakeControllerSource` (FS), and informers that use it.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;

use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher};
use k8s_informer::{Error, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{FakeClock, FakeControllerSource};
use serde_json::{Value, json};

use super::informer_options;
use crate::informer::support::{Informer, SOON, options, record, run, run_synced, until};

fn thing(name: &str) -> Value {
    json!({ "metadata": { "name": name } })
}

fn after(version: &str) -> ListOptions {
    let mut options = ListOptions::default();
    options.resource_version = ResourceVersion::new(version);
    options
}

/// Returns the next `count` events of a watch, formatted as `ADDED a@3`.
fn events(watch: Result<Body, Error>, count: usize) -> Vec<String> {
    let lines = BufReader::new(watch.unwrap()).lines().take(count);
    lines
        .map(|line| {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            let text = |pointer: &str| event.pointer(pointer).unwrap().as_str().unwrap().to_owned();
            format!(
                "{} {}@{}",
                text("/type"),
                text("/object/metadata/name"),
                text("/object/metadata/resourceVersion")
            )
        })
        .collect()
}

fn listed(source: &FakeControllerSource) -> Value {
    let body = source
        .list(&ListOptions::default(), &Stop::never())
        .unwrap();
    serde_json::from_str(&std::io::read_to_string(body).unwrap()).unwrap()
}

fn informer(source: &FakeControllerSource) -> Informer {
    SharedIndexInformer::new(
        Arc::new(source.clone()),
        informer_options(options(&FakeClock::new())),
    )
}

#[test]
fn fs1_each_change_gets_next_version_and_is_recorded() {
    let source = FakeControllerSource::new();
    assert_eq!(source.add(thing("a"))["metadata"]["resourceVersion"], "1");
    assert_eq!(
        source.modify(thing("a"))["metadata"]["resourceVersion"],
        "2"
    );
    assert_eq!(
        source.delete(thing("a"))["metadata"]["resourceVersion"],
        "3"
    );
    // Adding a value that is not an object does not panic. It only increases the version.
    source.add(json!(7));
    assert_eq!(source.resource_version(), 4);
    let received = events(source.watch(&after("0"), &Stop::never()), 3);
    assert_eq!(received, ["ADDED a@1", "MODIFIED a@2", "DELETED a@3"]);
}

#[test]
fn fs2_watch_resumes_from_a_recorded_version() {
    let source = FakeControllerSource::new();
    source.add(thing("a"));
    source.add(thing("b"));
    let stop = Stopper::new();
    let watch = source.watch(&after("1"), &stop);
    source.add(thing("c"));
    assert_eq!(events(watch, 2), ["ADDED b@2", "ADDED c@3"]);
    for version in ["", "x", "4", "-1"] {
        let error = source.watch(&after(version), &stop).unwrap_err();
        assert!(!error.is_gone(), "{version}: {error}");
    }
    source.reset_watch();
    assert!(source.watch(&after("2"), &stop).unwrap_err().is_gone());
    assert!(
        source.watch(&after("3"), &stop).is_ok(),
        "nothing was missed"
    );
    // A stop ends an idle watch.
    let mut watch = source.watch(&after("3"), &stop).unwrap();
    stop.stop();
    assert!(watch.read(&mut [0; 8]).is_err());
}

#[test]
fn fs3_dropped_change_skips_open_watches_but_reaches_later_ones() {
    let source = FakeControllerSource::new();
    let stop = Stopper::new();
    let open = source.watch(&after("0"), &stop);
    source.add_drop_watch(thing("a"));
    source.modify_drop_watch(thing("a"));
    source.add(thing("b"));
    source.delete_drop_watch(thing("a"));
    source.modify(thing("b"));
    assert_eq!(events(open, 2), ["ADDED b@3", "MODIFIED b@5"]);
    let later = events(source.watch(&after("1"), &stop), 4);
    assert_eq!(
        later,
        ["MODIFIED a@2", "ADDED b@3", "DELETED a@4", "MODIFIED b@5"]
    );
}

#[test]
fn fs4_reset_ends_watches_and_list_error_fails_lists() {
    let source = FakeControllerSource::new();
    source.add(thing("a"));
    source.add(thing("b"));
    let mut watch = source.watch(&after("2"), &Stop::never()).unwrap();
    source.reset_watch();
    assert_eq!(watch.read(&mut [0; 8]).unwrap(), 0);
    let list = listed(&source);
    assert_eq!(
        (
            list["metadata"]["resourceVersion"].as_str(),
            list["items"].as_array().unwrap().len()
        ),
        (Some("2"), 2)
    );
    source.set_list_error(Some(Error::other("no list today")));
    let error = source
        .list(&ListOptions::default(), &Stop::never())
        .unwrap_err();
    assert!(error.to_string().contains("no list today"));
    source.set_list_error(None);
    assert_eq!(listed(&source)["items"].as_array().unwrap().len(), 2);
}

#[test]
fn fs5_objects_differ_by_uid_and_watch_lists_are_unsupported() {
    let source = FakeControllerSource::new();
    for (namespace, uid) in [("x", "1"), ("y", "1"), ("x", "2")] {
        source.add(json!({ "metadata": { "namespace": namespace, "name": "a", "uid": uid } }));
    }
    source.delete(json!({ "metadata": { "namespace": "x", "name": "a", "uid": "1" } }));
    assert_eq!(listed(&source)["items"].as_array().unwrap().len(), 2);
    assert!(!source.supports_watch_list());
}

#[test]
fn p8_fs4_relist_after_reset_delivers_missed_changes() {
    let source = FakeControllerSource::new();
    source.add(thing("a"));
    source.add(thing("b"));
    let informer = informer(&source);
    let (_handler, notifications) = record(&informer);
    let running = run_synced(&informer);
    assert_eq!(
        notifications.take(2),
        ["add a@1 initial", "add b@2 initial"]
    );
    // This update comes from the watch, so the watch is open.
    source.modify(thing("a"));
    assert_eq!(notifications.next(), "update a@1-3");
    source.modify_drop_watch(thing("a"));
    source.add_drop_watch(thing("c"));
    source.delete_drop_watch(thing("b"));
    source.reset_watch();
    let mut events = notifications.take(3);
    events.sort();
    assert_eq!(events, ["add c@5", "gone b@2", "update a@3-4"]);
    source.delete(thing("c"));
    assert_eq!(notifications.next(), "delete c@7");
    running.end().unwrap();
}

#[test]
fn fs4_informer_syncs_after_list_error_is_cleared() {
    let source = FakeControllerSource::new();
    source.add(thing("a"));
    source.set_list_error(Some(Error::other("not now")));
    let informer = informer(&source);
    let running = run(&informer);
    until("failed", || informer.status().last_error.is_some());
    assert!(!informer.has_synced());
    source.set_list_error(None);
    assert!(informer.synced().wait_timeout(SOON));
    running.end().unwrap();
}

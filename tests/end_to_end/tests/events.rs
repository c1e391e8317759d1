//! Events in both APIs, which share their objects: conversion, and what the server refuses.

use std::io::{BufRead, BufReader};

use k8s_informer::Stop;
use k8s_informer::client::Request;
use k8s_informer::informer::InformerScope;
use k8s_openapi::api::core::v1::Event as CoreEvent;
use k8s_openapi::api::events::v1::Event;
use serde_json::{Value, json};

use crate::cluster::{BOTH, Cluster, Namespace, merge_patch, on_every_cluster};
use crate::leases::{bad_request, invalid, post, put, refused, strategic_patch, stripped};
use crate::support::{names, shut_down, synced};
use crate::verbs::ONCE;

const SECOND: &str = "2024-01-02T03:04:05Z";
const MICROS: &str = "2024-01-02T03:04:05.123456Z";

/// The paths of the events of a namespace.
struct Paths {
    core: String,
    new: String,
}

impl Paths {
    fn of(namespace: &Namespace<'_>) -> Self {
        Self::in_namespace(&namespace.name)
    }

    fn in_namespace(name: &str) -> Self {
        Self {
            core: format!("/api/v1/namespaces/{name}/events"),
            new: format!("/apis/events.k8s.io/v1/namespaces/{name}/events"),
        }
    }
}

/// Returns a reference to a pod.
fn pod(namespace: &str, name: &str) -> Value {
    json!({ "kind": "Pod", "namespace": namespace, "name": name })
}

/// Returns an event for `events.k8s.io/v1` that a server accepts.
fn event(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "name": name }, "eventTime": MICROS, "type": "Warning",
        "reportingController": "example.com/team-controller", "reportingInstance": "team-controller-1",
        "action": "Mount", "reason": "FailedMount", "note": "no such volume",
        "regarding": pod(namespace, "web-0"),
    })
}

/// Returns an event for core `v1` that a server accepts.
fn core_event(namespace: &str, name: &str) -> Value {
    json!({
        "metadata": { "name": name }, "type": "Normal", "reason": "Started", "message": "started",
        "involvedObject": pod(namespace, "web-1"), "source": { "component": "kubelet", "host": "n1" },
        "count": 1, "firstTimestamp": SECOND, "lastTimestamp": SECOND,
    })
}

/// Returns `object` with other fields. Null removes a field.
fn with(mut object: Value, changes: &Value) -> Value {
    for (field, value) in changes.as_object().unwrap() {
        match value {
            Value::Null => drop(object.as_object_mut().unwrap().remove(field)),
            value => object[field] = value.clone(),
        }
    }
    object
}

/// Returns the names of a list with a field selector.
#[track_caller]
fn selected(cluster: &Cluster, path: &str, selector: &str) -> Vec<String> {
    let list = cluster.send(Request::get(path).query("fieldSelector", selector));
    let items = list["items"].as_array().unwrap();
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap().to_owned();
    items.iter().map(name).collect()
}

/// Asserts that an object has these fields. A field that is null may be absent.
#[track_caller]
fn assert_has(object: &Value, fields: &Value) {
    for (field, value) in fields.as_object().unwrap() {
        assert_eq!(&object[field], value, "{field} of {object}");
    }
}

#[test]
fn new_events_are_converted_for_the_core_api() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let series = json!({ "count": 2, "lastObservedTime": MICROS });
        let related = json!({ "kind": "Node", "name": "n1" });
        let full = with(
            event(name, "a"),
            &json!({ "series": series, "related": related }),
        );
        let made = stripped(cluster.send(post(&paths.new, &full)));
        assert_has(&made, &full);
        let core = stripped(cluster.send(Request::get(format!("{}/a", paths.core))));
        assert_has(
            &core,
            &json!({
                "kind": "Event", "apiVersion": "v1", "metadata": { "name": "a" },
                "involvedObject": full["regarding"], "reason": "FailedMount", "message": "no such volume",
                "firstTimestamp": null, "lastTimestamp": null, "type": "Warning",
                "eventTime": MICROS, "series": series, "action": "Mount", "related": related,
                "reportingComponent": "example.com/team-controller", "reportingInstance": "team-controller-1",
                "regarding": null, "note": null, "reportingController": null,
            }),
        );
    });
}

#[test]
fn core_events_are_converted_for_the_new_api() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let made = cluster.send(post(&paths.core, &core_event(name, "a")));
        assert_has(&stripped(made), &core_event(name, "a"));
        let list = cluster.send(Request::get(&paths.new));
        assert_eq!(list["apiVersion"], "events.k8s.io/v1");
        assert_has(
            &stripped(list["items"][0].clone()),
            &json!({
                "metadata": { "name": "a" },
                "eventTime": null, "reason": "Started", "note": "started", "type": "Normal",
                "regarding": pod(name, "web-1"), "deprecatedCount": 1,
                "deprecatedSource": { "component": "kubelet", "host": "n1" },
                "deprecatedFirstTimestamp": SECOND, "deprecatedLastTimestamp": SECOND,
                "involvedObject": null, "message": null, "source": null, "count": null,
            }),
        );
    });
}

#[test]
fn new_events_with_missing_or_long_fields_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let (long, longer) = ("x".repeat(129), "ü".repeat(513));
        for change in [
            json!({ "eventTime": null }),
            json!({ "action": null }),
            json!({ "reason": "" }),
            json!({ "reportingInstance": null }),
            json!({ "type": null }),
            json!({ "type": "Odd" }),
            json!({ "action": long }),
            json!({ "reason": long }),
            json!({ "reportingInstance": long }),
            // The limit is in bytes.
            json!({ "note": longer }),
            json!({ "reportingController": null }),
            json!({ "reportingController": "a b" }),
            json!({ "reportingController": "/c" }),
            json!({ "reportingController": "x".repeat(64) }),
            json!({ "reportingController": "a/b/c" }),
            json!({ "series": { "count": 1 } }),
            json!({ "deprecatedCount": 1 }),
            json!({ "deprecatedSource": { "host": "h" } }),
            json!({ "deprecatedFirstTimestamp": SECOND }),
            json!({ "deprecatedLastTimestamp": SECOND }),
        ] {
            let event = with(event(name, "a"), &change);
            assert_eq!(
                refused(cluster, post(&paths.new, &event)),
                invalid(),
                "{change}"
            );
        }
        assert!(selected(cluster, &paths.core, "").is_empty());
        // All other texts may be empty, and the limits are inclusive.
        let limits = json!({
            "reason": "x".repeat(128), "action": "x".repeat(128), "note": "x".repeat(1024), "type": "Normal",
        });
        cluster.send(post(&paths.new, &with(event(name, "b"), &limits)));
        cluster.send(post(
            &paths.new,
            &with(event(name, "c"), &json!({ "note": null })),
        ));
    });
}

#[test]
fn events_in_another_namespace_than_their_object_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let other = json!({ "involvedObject": pod("other", "web-0") });
        let node = json!({ "involvedObject": { "kind": "Node", "name": "n1" } });
        let core = |change| with(core_event(name, name), change);
        assert_eq!(
            refused(cluster, post(&paths.core, &core(&other))),
            invalid()
        );
        assert_eq!(refused(cluster, post(&paths.core, &core(&node))), invalid());
        let new_node = json!({ "regarding": node["involvedObject"] });
        let new = with(event(name, name), &new_node);
        assert_eq!(refused(cluster, post(&paths.new, &new)), invalid());
        // An event with a time may regard an object of another namespace.
        let new_other = json!({ "regarding": pod("other", "web-0") });
        cluster.send(post(&paths.new, &with(event(name, "b"), &new_other)));

        // Events of cluster-scoped objects are in `default`, new ones also in `kube-system`.
        let dry = |request: Request| request.query("dryRun", "All");
        let (default, system) = (
            Paths::in_namespace("default"),
            Paths::in_namespace("kube-system"),
        );
        cluster.send(dry(post(&default.core, &core(&node))));
        cluster.send(dry(post(&default.new, &new)));
        cluster.send(dry(post(&system.new, &new)));
        assert_eq!(
            refused(cluster, dry(post(&system.core, &core(&node)))),
            invalid()
        );
        let unlike = with(
            core(&json!({})),
            &json!({ "metadata": { "name": name, "namespace": "x" } }),
        );
        assert_eq!(refused(cluster, post(&paths.core, &unlike)), bad_request());
    });
}

#[test]
fn core_events_with_a_time_need_the_new_fields() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let timed = with(core_event(name, "a"), &json!({ "eventTime": MICROS }));
        assert_eq!(refused(cluster, post(&paths.core, &timed)), invalid());
        // The core API does not check types and series, names only for slashes, and notes only of
        // events with a time.
        let new = json!({
            "eventTime": MICROS, "reportingComponent": "c", "reportingInstance": "c-1", "action": "A",
            "type": "Odd", "series": { "count": 1 },
        });
        let made = cluster.send(post(&paths.core, &with(core_event(name, "a"), &new)));
        assert_eq!(made["series"]["count"], 1);
        let long = json!({ "message": "x".repeat(2000), "reason": "x".repeat(2000) });
        cluster.send(post(&paths.core, &with(core_event(name, "Long:1"), &long)));
        for request in [
            post(&paths.core, &core_event(name, "a/b")),
            post(&paths.new, &event(name, "Long:1")),
        ] {
            assert_eq!(refused(cluster, request), invalid());
        }
        let exists = (409, "AlreadyExists".to_owned());
        assert_eq!(
            refused(cluster, post(&paths.new, &event(name, "a"))),
            exists
        );
    });
}

#[test]
fn event_fields_of_a_wrong_type_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        for change in [
            json!({ "eventTime": SECOND }),
            json!({ "series": { "count": 2, "lastObservedTime": SECOND } }),
            json!({ "series": { "count": "2", "lastObservedTime": MICROS } }),
            json!({ "kind": "Event", "apiVersion": "v1" }),
        ] {
            let event = with(event(name, "a"), &change);
            assert_eq!(
                refused(cluster, post(&paths.new, &event)),
                bad_request(),
                "{change}"
            );
        }
    });
}

#[test]
fn new_api_changes_only_series_and_metadata_of_events() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let made = cluster.send(post(&paths.new, &event(name, "a")));
        let path = format!("{}/a", paths.new);
        let later = "2024-01-02T03:04:06.000000Z";
        for change in [
            json!({ "eventTime": later }),
            json!({ "eventTime": null }),
            json!({ "reportingController": "c" }),
            json!({ "reportingInstance": "i" }),
            json!({ "action": "x" }),
            json!({ "reason": "x" }),
            json!({ "type": "Normal" }),
            json!({ "note": "x" }),
            json!({ "note": null }),
            json!({ "regarding": { "name": "web-1" } }),
            json!({ "related": { "kind": "Node", "name": "n1" } }),
            json!({ "deprecatedCount": 3 }),
            json!({ "deprecatedSource": { "host": "h" } }),
            json!({ "deprecatedLastTimestamp": SECOND }),
        ] {
            assert_eq!(
                refused(cluster, merge_patch(&path, &change)),
                invalid(),
                "{change}"
            );
        }
        let one = json!({ "series": { "count": 1, "lastObservedTime": MICROS } });
        assert_eq!(refused(cluster, strategic_patch(&path, &one)), invalid());

        let series = json!({ "count": 2, "lastObservedTime": later });
        let labels = json!({ "metadata": { "labels": { "a": "b" } }, "series": series });
        let patched = cluster.send(strategic_patch(&path, &labels));
        assert_eq!(patched["series"], series);
        let count = json!({ "series": { "count": 3 } });
        let patched = cluster.send(merge_patch(&path, &count));
        assert_eq!(
            patched["series"],
            json!({ "count": 3, "lastObservedTime": later })
        );
        // An update needs no version.
        let mut without = patched;
        without["series"] = Value::Null;
        without["metadata"]["resourceVersion"] = Value::Null;
        let updated = cluster.send(put(&path, &without));
        assert!(updated["series"].is_null() && updated["metadata"]["labels"]["a"] == "b");
        assert_eq!(refused(cluster, put(&path, &made)).0, 409);
    });
}

#[test]
fn events_are_patched_and_deleted_by_either_api() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        cluster.send(post(&paths.new, &event(name, "a")));
        cluster.send(post(&paths.core, &core_event(name, "b")));
        let (core, new) = (
            |name| format!("{}/{name}", paths.core),
            |name| format!("{}/{name}", paths.new),
        );
        // The patch of client-go for a repeated event.
        let again =
            json!({ "count": 2, "lastTimestamp": "2024-01-02T03:04:06Z", "message": "again" });
        cluster.send(strategic_patch(&core("b"), &again));
        let seen = cluster.send(Request::get(new("b")));
        assert_eq!(
            (&seen["deprecatedCount"], &seen["note"]),
            (&json!(2), &json!("again"))
        );
        // The core API changes even an event of the other one.
        cluster.send(merge_patch(&core("a"), &json!({ "message": "changed" })));
        assert_eq!(cluster.send(Request::get(new("a")))["note"], "changed");
        assert_eq!(
            refused(cluster, merge_patch(&core("a"), &json!({ "reason": null }))),
            invalid()
        );
        let series = json!({ "series": { "count": 2, "lastObservedTime": MICROS } });
        cluster.send(merge_patch(&new("b"), &series));
        assert_eq!(
            cluster.send(Request::get(core("b")))["series"],
            series["series"]
        );

        // Server-side apply also works on the converted form.
        let apply = |event: &Value| {
            let kind = json!({ "apiVersion": "events.k8s.io/v1", "kind": "Event" });
            let request = merge_patch(&new("d"), &with(event.clone(), &kind));
            request
                .content_type("application/apply-patch+yaml")
                .query("fieldManager", "me")
        };
        let applied = with(event(name, "d"), &series);
        cluster.send(apply(&event(name, "d")));
        cluster.send(apply(&applied));
        let seen = cluster.send(Request::get(core("d")));
        assert_eq!(
            (&seen["series"], &seen["message"]),
            (&series["series"], &json!("no such volume"))
        );
        assert_eq!(
            refused(cluster, apply(&with(applied, &json!({ "note": "x" })))),
            invalid()
        );

        let deleted = cluster.send(Request::delete(core("a")));
        assert_eq!(deleted["details"]["kind"], "events");
        assert_eq!(refused(cluster, Request::get(new("a"))).0, 404);
        cluster.send(Request::delete(new("b")));
        assert_eq!(refused(cluster, Request::get(core("b"))).0, 404);
        cluster.send(post(&paths.new, &event(name, "c")));
        cluster.send(Request::delete(&paths.new));
        assert!(selected(cluster, &paths.core, "").is_empty());
    });
}

#[test]
fn events_are_listed_by_the_fields_of_their_api() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        cluster.send(post(&paths.new, &event(name, "a")));
        cluster.send(post(&paths.core, &core_event(name, "b")));
        for (core, new, wanted) in [
            ("involvedObject.name=web-0", "regarding.name=web-0", "a"),
            ("involvedObject.name!=web-0", "regarding.name!=web-0", "b"),
            (
                "involvedObject.kind=Pod,reason=Started",
                "regarding.kind=Pod,reason=Started",
                "b",
            ),
            (
                "reportingComponent=example.com/team-controller",
                "reportingController=example.com/team-controller",
                "a",
            ),
            ("type=Normal", "type=Normal", "b"),
            ("metadata.name=a", "metadata.name=a", "a"),
        ] {
            assert_eq!(selected(cluster, &paths.core, core), [wanted], "{core}");
            assert_eq!(selected(cluster, &paths.new, new), [wanted], "{new}");
        }
        // The source of an event without a component is its controller.
        let source = |source: &str| selected(cluster, &paths.core, &format!("source={source}"));
        assert_eq!(source("kubelet"), ["b"]);
        assert_eq!(source("example.com/team-controller"), ["a"]);
        for (path, field) in [
            (&paths.core, "regarding.name"),
            (&paths.core, "reportingController"),
            (&paths.core, "action"),
            (&paths.new, "involvedObject.name"),
            (&paths.new, "reportingComponent"),
            (&paths.new, "source"),
        ] {
            let request = Request::get(path).query("fieldSelector", &format!("{field}=x"));
            assert_eq!(refused(cluster, request), bad_request());
        }
    });
}

#[test]
fn watch_of_each_api_shows_writes_of_the_other() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        let start = cluster.send(Request::get(&paths.new))["metadata"]["resourceVersion"].take();
        cluster.send(post(&paths.new, &event(name, "a")));
        cluster.send(post(&paths.core, &core_event(name, "b")));
        let changed = json!({ "message": "changed" });
        cluster.send(merge_patch(&format!("{}/a", paths.core), &changed));
        cluster.send(Request::delete(format!("{}/b", paths.new)));
        for (path, object, text, version) in [
            (&paths.core, "involvedObject", "message", "v1"),
            (&paths.new, "regarding", "note", "events.k8s.io/v1"),
        ] {
            let watch = Request::get(path)
                .query("watch", "true")
                .query("resourceVersion", start.as_str().unwrap())
                .query("timeoutSeconds", "60");
            let response = cluster.client().request(&watch, &Stop::never()).unwrap();
            let lines = BufReader::new(response.into_body()).lines().take(4);
            let events: Vec<Value> = lines
                .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
                .collect();
            let shown = events.iter().map(|event| {
                let seen = &event["object"];
                assert_eq!(seen["apiVersion"], version);
                (
                    event["type"].as_str().unwrap(),
                    seen[object]["name"].as_str().unwrap(),
                    seen[text].as_str().unwrap(),
                )
            });
            assert_eq!(
                shown.collect::<Vec<_>>(),
                [
                    ("ADDED", "web-0", "no such volume"),
                    ("ADDED", "web-1", "started"),
                    ("MODIFIED", "web-0", "changed"),
                    ("DELETED", "web-1", "started"),
                ]
            );
        }
    });
}

#[test]
fn informers_of_both_apis_follow_the_same_events() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("events");
        let (paths, name) = (Paths::of(&namespace), &namespace.name);
        cluster.send(post(&paths.new, &event(name, "a")));
        let factory = cluster.factory_with(|options| options.namespace(name));
        let core = factory.informer::<CoreEvent>();
        let regarding = cluster.factory_with(|options| {
            options.scope(
                InformerScope::all()
                    .namespace(name)
                    .field_selector("regarding.name=web-1"),
            )
        });
        let new = regarding.informer::<Event>();
        let (all, some) = (synced(&factory, &core), synced(&regarding, &new));
        cluster.send(post(&paths.core, &core_event(name, "b")));
        cluster.send(merge_patch(
            &format!("{}/b", paths.core),
            &json!({ "count": 2 }),
        ));
        all.wait_for_events(&["+a", "+b", "~b"]);
        some.wait_for_events(&["+b", "~b"]);
        let b = new.lister().list().remove(0);
        assert_eq!(
            (b.deprecated_count, &b.note),
            (Some(2), &Some("started".to_owned()))
        );
        assert_eq!(names(&core), ["a", "b"]);
        shut_down(&factory, "of core events");
        shut_down(&regarding, "of new events");
    });
}

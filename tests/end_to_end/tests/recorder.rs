//! The event recorder, on the embedded server and on a real one.

use std::time::Duration;

use k8s_informer::object::{GroupVersionResource, Object, ObjectReference};
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, DynamicObject, Error, Stop};
use k8s_informer_controller::events::{EventRecorder, EventType};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace as CoreNamespace};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, on_every_cluster};
use crate::support::PATIENCE;
use crate::verbs::ONCE;

/// Returns the events about an object, as `kubectl describe` lists them.
fn events_about(client: &Client, namespace: &str, object: &impl Object) -> Vec<Value> {
    let events = GroupVersionResource::new("", "v1", "events");
    let api = client.dynamic_api(&events, Some(namespace));
    let options = ListOptions::new().field_selector(format!(
        "involvedObject.name={},involvedObject.uid={}",
        object.name(),
        object.uid()
    ));
    let list = api.list(&options, &Stop::never()).unwrap();
    let json = |event: &DynamicObject| serde_json::from_str(event.json()).unwrap();
    list.items.iter().map(json).collect()
}

fn recorder(client: &Client) -> EventRecorder {
    let builder = EventRecorder::builder(client, "example.com/ctl").instance("ctl-0");
    builder.build().unwrap()
}

fn map(client: &Client, namespace: &Namespace<'_>, name: &str) -> ConfigMap {
    let maps = client.api::<ConfigMap>(Some(&namespace.name));
    let map = json!({"metadata": {"name": name}});
    maps.create(&map, &Stop::never()).unwrap().into_inner()
}

#[test]
fn events_are_listed_by_involved_object() {
    on_every_cluster(ONCE, |cluster| {
        let client = cluster.client();
        let namespace = cluster.namespace("events");
        let recorder = recorder(&client);
        let settings = map(&client, &namespace, "settings");
        let other = map(&client, &namespace, "other");
        for _ in 0..5 {
            recorder
                .event(&settings, EventType::Warning, "Broken", "does not parse")
                .unwrap();
        }
        recorder
            .new_event(&other, EventType::Normal, "Read", "reads well")
            .action("Reading")
            .related(&settings)
            .annotation("example.com/key", "value")
            .send()
            .unwrap();
        // A second write is a patch.
        recorder.flush(PATIENCE).unwrap();
        recorder
            .event(&settings, EventType::Warning, "Broken", "does not parse")
            .unwrap();
        recorder.shut_down(PATIENCE).unwrap();
        let stats = recorder.stats();
        assert_eq!((stats.pending, stats.failed), (0, 0), "{stats:?}");

        let events = events_about(&client, &namespace.name, &settings);
        assert_eq!(events.len(), 1, "{events:?}");
        let event = &events[0];
        assert_eq!(
            (&event["reason"], &event["type"]),
            (&"Broken".into(), &"Warning".into())
        );
        assert_eq!(event["message"], "does not parse");
        assert_eq!(event["series"]["count"], 6, "{event}");
        let events = events_about(&client, &namespace.name, &other);
        assert_eq!(events.len(), 1, "{events:?}");
        assert_eq!(events[0]["related"]["name"], "settings");
        assert_eq!(
            events[0]["metadata"]["annotations"]["example.com/key"],
            "value"
        );
    });
}

#[test]
fn event_of_cluster_scoped_object_is_in_default() {
    on_every_cluster(ONCE, |cluster| {
        let client = cluster.client();
        let namespace = cluster.namespace("scoped");
        let api = client.api::<CoreNamespace>(None);
        let object = api.get(&namespace.name, &Stop::never()).unwrap();
        let recorder = recorder(&client);
        recorder
            .event(
                &*object,
                EventType::Normal,
                "Seen",
                "the namespace was seen",
            )
            .unwrap();
        recorder.shut_down(PATIENCE).unwrap();
        assert_eq!(recorder.stats().written, 1, "{:?}", recorder.last_error());
        assert_eq!(events_about(&client, "default", &*object).len(), 1);
    });
}

#[test]
fn ev20_texts_at_their_limits_are_accepted() {
    on_every_cluster(ONCE, |cluster| {
        let client = cluster.client();
        let namespace = cluster.namespace("limits");
        let object = map(&client, &namespace, "settings");
        let recorder = recorder(&client);
        let long = "ü".repeat(64);
        for number in 0..12 {
            let note = format!("{number:02}{}", "x".repeat(2000));
            let draft = recorder.new_event(&object, EventType::Normal, &*long, note);
            draft.action(&*long).send().unwrap();
        }
        recorder.shut_down(PATIENCE).unwrap();
        assert_eq!(recorder.stats().failed, 0, "{:?}", recorder.last_error());
        assert_eq!(events_about(&client, &namespace.name, &object).len(), 1);
    });
}

#[test]
fn expired_event_is_created_again_with_its_series() {
    on_every_cluster(ONCE, |cluster| {
        let client = cluster.client();
        let namespace = cluster.namespace("expired");
        let object = map(&client, &namespace, "settings");
        let recorder = recorder(&client);
        let emit = || {
            let kind = EventType::Normal;
            recorder.event(&object, kind, "Seen", "seen").unwrap();
            recorder.flush(PATIENCE).unwrap();
        };
        emit();
        delete(
            cluster,
            &namespace,
            &events_about(&client, &namespace.name, &object)[0],
        );
        emit();
        let stats = recorder.stats();
        assert_eq!(
            (stats.written, stats.failed),
            (2, 0),
            "{:?}",
            recorder.last_error()
        );
        assert_eq!(events_about(&client, &namespace.name, &object).len(), 1);
    });
}

#[test]
fn er6_counts_are_exact_after_a_network_that_hung() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("outage");
        let proxy = cluster.proxy();
        let recorder = EventRecorder::builder(&cluster.client_through(&proxy), "example.com/ctl")
            .request_timeout(Duration::from_millis(500))
            .build()
            .unwrap();
        let mut pod = ObjectReference::default();
        pod.api_version = "v1".to_owned();
        pod.kind = "Pod".to_owned();
        pod.namespace.clone_from(&namespace.name);
        let mut emit = |name: String| {
            pod.name.clone_from(&name);
            recorder
                .event(&pod, EventType::Warning, "Failed", name)
                .unwrap();
        };
        emit("first".to_owned());
        recorder.flush(PATIENCE).unwrap();
        proxy.stall();
        for _ in 0..60 {
            for number in 0..50 {
                emit(format!("pod-{number}"));
            }
        }
        recorder.flush(PATIENCE).unwrap();
        assert!(recorder.last_error().is_some(), "nothing hung");
        let stats = recorder.stats();
        assert_eq!(
            (stats.written + stats.merged, stats.pending),
            (3001, 0),
            "{stats:?}"
        );

        let events = GroupVersionResource::new("", "v1", "events");
        let api = cluster.client().dynamic_api(&events, Some(&namespace.name));
        let list = api.list(&ListOptions::default(), &Stop::never()).unwrap();
        assert_eq!(list.items.len(), 51);
        for event in &list.items {
            let event: Value = serde_json::from_str(event.json()).unwrap();
            if event["message"] != "first" {
                assert_eq!(event["series"]["count"], 60, "{event}");
            }
        }
    });
}

fn delete(cluster: &Cluster, namespace: &Namespace<'_>, event: &Value) {
    let events = GroupVersionResource::new("", "v1", "events");
    let api = cluster.client().dynamic_api(&events, Some(&namespace.name));
    let name = event["metadata"]["name"].as_str().unwrap();
    let deleted: Result<_, Error> = api.delete(name, &Default::default(), &Stop::never());
    deleted.unwrap();
}

//! Fields that are not decoded.

use k8s_informer::informer::InformerQueue;
use k8s_informer::reflector::FieldPaths;
use k8s_informer::{DynamicObject, ObjectMeta, impl_object};
use k8s_openapi::api::core::v1::Pod;
use serde::Deserialize;

use crate::hostile::objects::with;
use crate::hostile::support::{DELIVERIES, State, TestInformer, event};

fn big(name: &str, version: &str) -> Vec<u8> {
    let metadata = r#","managedFields":[{"manager":"kubectl","fieldsV1":{"f:a":{}}}],"annotations":{"keep":"1","kubectl.kubernetes.io/last-applied-configuration":"{\"a\":[\"}]"}"#;
    let beside = r#","spec":{"containers":[{"name":"x","env":[{"name":"A","value":"1"}]},{"env":[],"name":"y"}]},"size":7"#;
    with(name, version, metadata, beside)
}

fn paths() -> FieldPaths {
    FieldPaths::new([
        "/metadata/managedFields",
        "/metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration",
        "/spec/containers/*/env",
    ])
    .unwrap()
}

/// Objects of a list and of events.
fn states() -> ([State; 1], Vec<u8>) {
    let events = [
        event("ADDED", &big("b", "5")),
        event("MODIFIED", &big("c", "6")),
    ]
    .concat();
    ([("4", vec![big("a", "1"), big("c", "2")])], events)
}

#[test]
fn skipped_paths_are_absent_from_pods() {
    let (states, events) = states();
    for delivery in DELIVERIES {
        for skip in [FieldPaths::default(), paths()] {
            let skips = format!("{skip:?}") != "[]";
            let script = delivery.script(&states, &events);
            let informer = TestInformer::<Pod>::run(script, InformerQueue::DeltaFifo, |options| {
                options.skip = skip;
            });
            assert_eq!(informer.cache(), ["ns/a@1", "ns/b@5", "ns/c@6"]);
            for key in ["ns/a", "ns/b", "ns/c"] {
                let pod = informer.informer.lister().get_by_key(key).unwrap();
                assert_eq!(
                    pod.metadata.managed_fields.is_none(),
                    skips,
                    "{key} by {delivery:?}"
                );
                assert_eq!(
                    pod.metadata.annotations.as_ref().unwrap().len(),
                    if skips { 1 } else { 2 }
                );
                let containers = &pod.spec.as_ref().unwrap().containers;
                assert_eq!((containers.len(), &*containers[1].name), (2, "y"));
                assert!(
                    containers
                        .iter()
                        .all(|container| container.env.is_none() == skips)
                );
            }
        }
    }
}

#[test]
fn skipped_paths_are_absent_from_dynamic_objects() {
    let (states, events) = states();
    for delivery in DELIVERIES {
        let script = delivery.script(&states, &events);
        let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |o| {
            o.skip = paths();
        });
        assert_eq!(informer.cache(), ["ns/a@1", "ns/b@5", "ns/c@6"]);
        for key in ["ns/a", "ns/b", "ns/c"] {
            let object = informer.informer.lister().get_by_key(key).unwrap();
            let object = object.to_map().unwrap();
            assert_eq!(
                object["spec"],
                serde_json::json!({"containers": [{"name": "x"}, {"name": "y"}]})
            );
            let metadata = &object["metadata"];
            assert_eq!(metadata.get("managedFields"), None);
            assert_eq!(metadata["annotations"], serde_json::json!({"keep": "1"}));
        }
    }
}

/// A type with a required size.
#[derive(Debug, Deserialize)]
struct Sized {
    metadata: ObjectMeta,
    size: u32,
    spec: Option<serde_json::Value>,
}

impl_object!(Sized, "v1", "Sized", "sizeds", Namespaced);

#[test]
fn object_requiring_a_skipped_field_is_decoded_in_full() {
    let (states, events) = states();
    for delivery in DELIVERIES {
        let script = delivery.script(&states, &events);
        let informer = TestInformer::<Sized>::run(script, InformerQueue::RealFifo, |options| {
            options.skip = FieldPaths::new(["/size", "/spec"]).unwrap();
        });
        let status = informer.status();
        assert_eq!(
            informer.cache(),
            ["ns/a@1", "ns/b@5", "ns/c@6"],
            "{status:?}"
        );
        assert_eq!((status.complete, status.unreadable), (true, 0));
        let object = informer.informer.lister().get_by_key("ns/a").unwrap();
        assert_eq!((object.size, object.spec.is_some()), (7, true));
    }
}

#[test]
fn errors_in_skipped_fields_are_ignored() {
    let broken = with(
        "b",
        "5",
        r#","managedFields":{"a":[1,2,"x]"]}"#,
        r#","spec":{"containers":[{"name":"x","env":7}]}"#,
    );
    for delivery in DELIVERIES {
        let script = delivery.script(&[("4", vec![broken.clone()])], &event("MODIFIED", &broken));
        let informer = TestInformer::<Pod>::run(script, InformerQueue::DeltaFifo, |options| {
            options.skip = paths();
        });
        assert_eq!(informer.cache(), ["ns/b@5"]);
        assert!(informer.status().complete);
    }
}

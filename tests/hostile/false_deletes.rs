//! Unreadable objects are not taken for deleted.

use std::any::type_name;

use k8s_informer::informer::InformerQueue;
use k8s_informer::{DynamicObject, Object};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;

use crate::hostile::objects::{
    Broken, Case, Small, broken_for_any_type, broken_for_pods, broken_for_typed, object,
};
use crate::hostile::support::{DELIVERIES, Delivery, QUEUES, TestInformer};

/// Sends a relist with a broken "b", without "c" and with a new "d", and then a valid relist.
fn assert_broken_object_is_not_deleted<T: Object + DeserializeOwned>(cases: &[Case]) {
    let mut wrong = Vec::new();
    for (broken, case, bytes) in cases {
        for delivery in DELIVERIES {
            let is_object =
                bytes.starts_with(b"{") && !matches!(broken, Broken::Json | Broken::Text);
            if delivery == Delivery::WatchList && !is_object {
                continue; // This ends the stream.
            }
            for queue in QUEUES {
                let name = format!(
                    "{case} in a {} by {delivery:?} over {queue:?}",
                    type_name::<T>()
                );
                let states = [
                    (
                        "4",
                        vec![object("a", "1"), object("b", "2"), object("c", "3")],
                    ),
                    ("6", vec![object("a", "1"), bytes.clone(), object("d", "6")]),
                    (
                        "8",
                        vec![object("a", "1"), object("b", "7"), object("d", "6")],
                    ),
                ];
                let c_is_deleted = matches!(broken, Broken::Form | Broken::Text);
                let mut expected: &[&str] = match c_is_deleted {
                    true => &["+ns/a@1", "+ns/b@2", "+ns/c@3", "+ns/d@6", "-ns/c@?3"],
                    false => &["+ns/a@1", "+ns/b@2", "+ns/c@3", "+ns/d@6"],
                };
                let informer =
                    TestInformer::<T>::run(delivery.script(&states[..2], b""), queue, |_| {});
                let (notifications, status) = (sorted(informer.notifications()), informer.status());
                let error = status
                    .last_error
                    .map(|error| error.to_string())
                    .unwrap_or_default();
                if notifications != expected || (status.complete, status.unreadable) != (false, 1) {
                    wrong.push(format!("{name}: {notifications:?} {error}"));
                    continue;
                }
                if c_is_deleted && !error.contains("scripted objects: ns/b: ") {
                    wrong.push(format!("{name}: {error}"));
                }

                let informer = TestInformer::<T>::run(delivery.script(&states, b""), queue, |_| {});
                let (notifications, status) = (sorted(informer.notifications()), informer.status());
                expected = &[
                    "+ns/a@1", "+ns/b@2", "+ns/c@3", "+ns/d@6", "-ns/c@?3", "ns/b@2>7",
                ];
                if notifications != expected || (status.complete, status.unreadable) != (true, 1) {
                    wrong.push(format!(
                        "{name}, then a valid relist: {notifications:?} {status:?}"
                    ));
                }
                if informer.cache() != ["ns/a@1", "ns/b@7", "ns/d@6"] {
                    wrong.push(format!(
                        "{name}, then a valid relist: {:?}",
                        informer.cache()
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn sorted(mut words: Vec<String>) -> Vec<String> {
    words.sort();
    words
}

#[test]
fn broken_pod_is_not_deleted() {
    let cases = [broken_for_any_type(), broken_for_typed(), broken_for_pods()].concat();
    // Skip the deep cases, because `Pod` does not decode unknown fields, however deep they are.
    let cases: Vec<_> = cases
        .into_iter()
        .filter(|(_, case, _)| !case.contains("deep"))
        .collect();
    assert_broken_object_is_not_deleted::<Pod>(&cases);
}

#[test]
fn broken_object_of_a_custom_type_is_not_deleted() {
    let cases = [broken_for_any_type(), broken_for_typed()].concat();
    let cases: Vec<_> = cases
        .into_iter()
        .filter(|(_, case, _)| !case.contains("deep"))
        .collect();
    assert_broken_object_is_not_deleted::<Small>(&cases);
}

#[test]
fn broken_dynamic_object_is_not_deleted() {
    assert_broken_object_is_not_deleted::<DynamicObject>(&broken_for_any_type());
}

#[test]
fn w9_nameless_list_item_is_reported_and_skipped() {
    for delivery in DELIVERIES {
        for nameless in [
            r#"{"metadata":{"namespace":"ns"}}"#,
            r#"{"metadata":{"name":""}}"#,
            "{}",
        ] {
            let states = [(
                "4",
                vec![object("a", "1"), nameless.into(), object("b", "2")],
            )];
            let script = delivery.script(&states, b"");
            let informer = TestInformer::<Pod>::run(script, InformerQueue::RealFifo, |_| {});
            assert_eq!(informer.cache(), ["ns/a@1", "ns/b@2"]);
            let status = informer.status();
            assert_eq!(
                (status.listed, status.complete, status.unreadable),
                (true, false, 1)
            );
            let error = status.last_error.unwrap().to_string();
            assert!(
                error.ends_with(": unexpected response: the object has no name"),
                "{error}"
            );
            let place = if delivery == Delivery::WatchList {
                "event 2 (no version yet)"
            } else {
                "item 1 of the list"
            };
            assert!(error.contains(place), "{error}");
        }
    }
}

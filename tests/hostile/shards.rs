//! Informers of one shard. Broken objects of other shards have no effect. An object whose shard is
//! unreadable is not taken for an object of another shard.

use std::sync::Arc;

use k8s_informer::informer::InformerQueue;
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{ReflectorOptions, Shard};
use k8s_informer::{DynamicObject, Indexer, Object};
use k8s_informer_testing::Answer;
use serde::de::DeserializeOwned;

use crate::hostile::objects::Small;
use crate::hostile::support::{DELIVERIES, Delivery, QUEUES, TestInformer, event};
use crate::hostile::user_code::reflect_with;

/// One of two shards. It contains objects without a UID, such as the last event of the scripts.
fn own_shard() -> Shard {
    Shard::new(1, 2).unwrap()
}

fn set(options: &mut ReflectorOptions) {
    options.shard = Some(own_shard());
}

/// A UID in this shard or in the other one.
fn uid(name: &str, in_own_shard: bool) -> String {
    let mut uids = (0..).map(|number| format!("{name}-{number}"));
    uids.find(|uid| own_shard().contains(uid) == in_own_shard)
        .unwrap()
}

fn object(name: &str, version: &str, in_own_shard: bool) -> Vec<u8> {
    with(name, version, in_own_shard, "", "")
}

/// Like [`object`], but with more fields in the metadata and beside it. Each text begins with a
/// comma.
fn with(name: &str, version: &str, in_own_shard: bool, metadata: &str, beside: &str) -> Vec<u8> {
    let uid = uid(name, in_own_shard);
    format!(
        r#"{{"metadata":{{"name":"{name}","namespace":"ns","uid":"{uid}","resourceVersion":"{version}"{metadata}}}{beside}}}"#
    )
    .into_bytes()
}

/// The object "other" of the other shard, broken in ways that `Small` cannot decode.
fn broken(version: &str) -> Vec<Vec<u8>> {
    let deep = format!(r#","x":{}{}"#, "[".repeat(200), "]".repeat(200));
    vec![
        with("other", version, false, "", r#","spec":7"#),
        with("other", version, false, r#","labels":[1,"two"]"#, ""),
        with("other", version, false, "", &deep),
        with("other", version, false, r#","name":"other""#, ""),
    ]
}

#[test]
fn broken_object_of_other_shard_is_ignored() {
    for delivery in DELIVERIES {
        for queue in QUEUES {
            let mut items = vec![object("a", "1", true)];
            items.extend(broken("2"));
            let mut events = event("ADDED", &object("b", "5", true));
            for kind in ["ADDED", "MODIFIED", "DELETED"] {
                events.extend(broken("6").iter().flat_map(|broken| event(kind, broken)));
            }
            events.extend(event("MODIFIED", &object("a", "7", true)));
            let states = [("3", items.clone()), ("4", items)];
            let informer =
                TestInformer::<Small>::run(delivery.script(&states, &events), queue, set);
            assert_eq!(
                informer.cache(),
                ["ns/a@7", "ns/b@5"],
                "{delivery:?} {queue:?}"
            );
            let mut notifications = informer.notifications();
            notifications.sort();
            assert_eq!(
                notifications,
                ["+ns/a@1", "+ns/b@5", "ns/a@1>7"],
                "{delivery:?} {queue:?}"
            );
            let status = informer.status();
            assert_eq!(
                (status.complete, status.unreadable),
                (true, 0),
                "{delivery:?} {queue:?}"
            );
            assert_eq!(status.shard_applied, Some(false));
        }
    }
}

/// Sends a relist without "c" in which the UID or the namespace of "b" is unreadable. Asserts that
/// "b" stays in the cache.
fn assert_kept_in_shard<T: Object + DeserializeOwned>(shard: &Shard, garbled: &[u8]) {
    for delivery in DELIVERIES {
        for queue in QUEUES {
            let garbled_text = String::from_utf8_lossy(garbled);
            let states = [
                (
                    "4",
                    vec![
                        object("a", "1", true),
                        object("b", "2", true),
                        object("c", "3", true),
                    ],
                ),
                ("6", vec![object("a", "1", true), garbled.to_vec()]),
            ];
            let informer =
                TestInformer::<T>::run(delivery.script(&states, b""), queue, |options| {
                    options.shard = Some(shard.clone());
                });
            assert!(
                !informer.deleted_keys().contains(&"ns/b".to_owned()),
                "{garbled_text} by {delivery:?}"
            );
            assert!(
                informer.cache().contains(&"ns/b@2".to_owned()),
                "{garbled_text} by {delivery:?}"
            );
            let status = informer.status();
            assert_eq!(
                (status.complete, status.unreadable),
                (false, 1),
                "{garbled_text} by {delivery:?}"
            );
        }
    }
}

#[test]
fn object_of_unknown_shard_is_not_deleted() {
    for odd in ["7", "true", r#"["b-0"]"#, r#"{"b":0}"#] {
        let uid = format!(
            r#"{{"metadata":{{"name":"b","namespace":"ns","uid":{odd},"resourceVersion":"5"}}}}"#
        );
        assert_kept_in_shard::<DynamicObject>(&own_shard(), uid.as_bytes());
        assert_kept_in_shard::<Small>(&own_shard(), uid.as_bytes());
        let by_namespace = Shard::new(0, 1).unwrap().by_namespace();
        let namespace = format!(
            r#"{{"metadata":{{"name":"b","namespace":{odd},"uid":"u","resourceVersion":"5"}}}}"#
        );
        assert_kept_in_shard::<DynamicObject>(&by_namespace, namespace.as_bytes());
    }
}

#[test]
fn non_text_uid_is_reported_and_its_delete_still_deletes() {
    let odd = br#"{"metadata":{"name":"b","namespace":"ns","uid":7,"resourceVersion":"5"}}"#;
    let states = [("4", vec![object("b", "2", true)])];
    for kind in ["MODIFIED", "DELETED"] {
        let script = Delivery::List.script(&states, &event(kind, odd));
        let informer =
            TestInformer::<DynamicObject>::run_paced(script, InformerQueue::DeltaFifo, 1, set);
        let notifications: &[&str] = if kind == "DELETED" {
            &["+ns/b@2", "-ns/b@?2"]
        } else {
            &["+ns/b@2"]
        };
        assert_eq!(informer.notifications(), notifications);
        let error = informer.status().last_error.unwrap().to_string();
        assert!(
            error.ends_with(
                "ns/b: unexpected response: the shard can't be determined from the metadata"
            ),
            "{error}"
        );
    }
}

#[test]
fn own_event_after_event_of_other_shard_is_delivered() {
    let other = String::from_utf8(event("MODIFIED", &object("other", "5", false))).unwrap();
    let own_event = String::from_utf8(event("ADDED", &object("a", "6", true))).unwrap();
    let cases = [
        // One watch delivers everything: two events on one line, and events with an extra field.
        (other.trim_end().to_owned() + &own_event, 1),
        (
            other.replacen(r#"{"type""#, r#"{"x":[1],"type""#, 1) + &own_event,
            1,
        ),
        (
            other.replacen("}}\n", r#"},"x":{}}"#, 1) + "\n" + &own_event,
            1,
        ),
        // An invalid frame ends the watch. The next watch continues from the last version.
        (other.replacen("}}\n", "}", 1) + "\n" + &own_event, 2),
        (other.replacen("}}\n", r#"}x}"#, 1) + "\n" + &own_event, 2),
    ];
    for (events, watches) in cases {
        let states = [("4", vec![])];
        let script = if watches == 1 {
            Delivery::List.script(&states, events.as_bytes())
        } else {
            let last = [
                own_event.as_bytes(),
                crate::hostile::support::LAST.as_bytes(),
            ]
            .concat();
            let list = crate::hostile::support::list("4", "", &[]);
            k8s_informer_testing::ScriptedListerWatcher::new([
                Answer::body(list),
                Answer::body(events.as_bytes()),
                Answer::open(last),
            ])
        };
        let informer = TestInformer::<Small>::run(script, InformerQueue::DeltaFifo, set);
        assert_eq!(informer.notifications(), ["+ns/a@6"], "{events}");
        assert_eq!(informer.status().watches, watches, "{events}");
        let resumed = informer
            .script
            .requests()
            .last()
            .unwrap()
            .options()
            .resource_version
            .clone();
        assert_eq!(resumed, ResourceVersion::new("4"), "{events}");
    }
}

#[test]
fn object_that_leaves_the_shard_is_deleted_whatever_the_order_of_its_fields() {
    let shard = own_shard().by_controller();
    for identity in [
        r#""name":"b","namespace":"ns","uid":"u","resourceVersion":"5""#,
        r#""name":"b","uid":"u","resourceVersion":"5","namespace":"ns""#,
        r#""uid":"u","resourceVersion":"5","namespace":"ns","name":"b""#,
    ] {
        let object = |in_own_shard: bool| {
            let owner = uid("owner", in_own_shard);
            let owner = format!(
                r#"{{"apiVersion":"v1","kind":"K","name":"o","uid":"{owner}","controller":true}}"#
            );
            let metadata = format!(r#"{identity},"ownerReferences":[{owner}]"#);
            format!(r#"{{"metadata":{{{metadata}}}}}"#).into_bytes()
        };
        for delivery in DELIVERIES {
            let script = |events: &[u8]| delivery.script(&[("4", vec![object(true)])], events);
            let cached = |events: &[u8]| {
                let store = Arc::new(Indexer::<DynamicObject>::for_objects());
                reflect_with(&script(events), store.clone(), |options| {
                    options.shard = Some(shard.clone());
                });
                store.list_keys()
            };
            assert_eq!(cached(b""), ["ns/b"], "{identity} {delivery:?}");
            let leaves = event("MODIFIED", &object(false));
            assert!(cached(&leaves).is_empty(), "{identity} {delivery:?}");
        }
    }
}

#[test]
fn large_object_of_other_shard_is_ignored() {
    let text = "x".repeat(3000);
    let large = |name: &str, version: &str, in_own_shard: bool, in_metadata: bool| {
        let (labels, beside) = match in_metadata {
            true => (format!(r#","labels":{{"a":"{text}"}}"#), String::new()),
            false => (String::new(), format!(r#","spec":"{text}""#)),
        };
        with(name, version, in_own_shard, &labels, &beside)
    };
    for in_metadata in [true, false] {
        for delivery in DELIVERIES {
            for queue in QUEUES {
                let items = vec![
                    object("a", "1", true),
                    large("other", "2", false, in_metadata),
                ];
                let states = [("3", items.clone()), ("4", items)];
                let mut events = event("MODIFIED", &large("other", "6", false, in_metadata));
                events.extend(event("MODIFIED", &object("a", "7", true)));
                let script = delivery.script(&states, &events);
                let informer = TestInformer::<Small>::run(script, queue, |options| {
                    set(options);
                    options.limits.object_bytes = 2000;
                });
                assert_eq!(informer.cache(), ["ns/a@7"], "{delivery:?} {queue:?}");
                let status = informer.status();
                assert_eq!((status.complete, status.unreadable), (true, 0));
            }
        }
    }
}

//! A relist keeps the objects that are already in the cache and does not decode them again.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_informer::informer::InformerQueue;
use k8s_informer::object::Accessor;
use k8s_informer::reflector::FieldPaths;
use k8s_informer::store::Transform;
use k8s_informer::{DynamicObject, Indexer, Object, ObjectMeta, impl_object};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer};

use crate::hostile::objects::object;
use crate::hostile::support::{
    Change, DELIVERIES, Delivery, FORBIDDEN, LAST, QUEUES, State, TestInformer, event, list,
};
use crate::hostile::user_code::{build, consume, reflect};

/// The number of decoded objects in each namespace.
static DECODED: Mutex<BTreeMap<String, usize>> = Mutex::new(BTreeMap::new());

struct Counted {
    metadata: ObjectMeta,
}

impl_object!(Counted, "v1", "Counted", "counteds", Namespaced);

impl<'de> Deserialize<'de> for Counted {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Plain {
            metadata: ObjectMeta,
        }
        let Plain { metadata } = Plain::deserialize(deserializer)?;
        *DECODED
            .lock()
            .entry(metadata.namespace.clone())
            .or_default() += 1;
        Ok(Self { metadata })
    }
}

fn namespace(test: &str, delivery: Delivery, queue: InformerQueue) -> String {
    format!("{test}-{delivery:?}-{queue:?}")
}

fn meta(namespace: &str, name: &str, rest: &str) -> Vec<u8> {
    format!(r#"{{"metadata":{{"name":"{name}","namespace":"{namespace}"{rest}}}}}"#).into_bytes()
}

fn identified(namespace: &str, name: &str, uid: &str, version: &str) -> Vec<u8> {
    meta(
        namespace,
        name,
        &format!(r#","uid":"{uid}","resourceVersion":"{version}""#),
    )
}

/// What happened to the objects of a script: which ones a relist kept without decoding, how many
/// were decoded, and which ones got an update notification.
#[derive(Debug, PartialEq)]
struct Outcome {
    kept: BTreeSet<String>,
    decoded: usize,
    updated: BTreeSet<String>,
}

fn outcome(namespace: &str, informer: &TestInformer<Counted>) -> Outcome {
    informer.changes(|changes| {
        let mut first = BTreeMap::new();
        let (mut kept, mut updated) = (BTreeSet::new(), BTreeSet::new());
        for change in changes {
            match change {
                Change::Add(object) => {
                    first.insert(object.name().to_owned(), Arc::clone(object));
                }
                Change::Update(old, new) => {
                    assert!(Arc::ptr_eq(old, &first[old.name()]));
                    let cached = informer.informer.lister();
                    let cached = cached.get(new.namespace(), new.name()).unwrap();
                    assert!(Arc::ptr_eq(new, &cached));
                    if Arc::ptr_eq(old, new) {
                        kept.insert(new.name().to_owned());
                    }
                    updated.insert(new.name().to_owned());
                }
                Change::Delete(gone) => panic!("{} was deleted", gone.name()),
            }
        }
        let decoded = DECODED.lock().get(namespace).copied().unwrap_or_default();
        Outcome {
            kept,
            decoded,
            updated,
        }
    })
}

fn names(names: &str) -> BTreeSet<String> {
    names.split_whitespace().map(str::to_owned).collect()
}

fn two_states(namespace: &str, second: &'static str) -> [State; 2] {
    let same = || {
        [
            identified(namespace, "same", "u1", "1"),
            identified(namespace, "changed", "u2", "2"),
            identified(namespace, "recreated", "u3", "3"),
            meta(namespace, "no-uid", r#","resourceVersion":"3""#),
            meta(namespace, "no-version", r#","uid":"u5""#),
            meta(
                namespace,
                "no-numbers",
                r#","uid":"u6","resourceVersion":"x""#,
            ),
        ]
    };
    let mut later = same();
    later[1] = identified(namespace, "changed", "u2", "5");
    later[2] = identified(namespace, "recreated", "u9", "3");
    [("4", same().to_vec()), (second, later.to_vec())]
}

#[test]
fn i16_unchanged_objects_are_redelivered_without_decoding() {
    for delivery in DELIVERIES {
        for queue in QUEUES {
            // A restored server can send an older version, and any text.
            for second in ["4", "6", "2", "07", "x7"] {
                let namespace = namespace(&format!("same{second}"), delivery, queue);
                let script =
                    delivery.script_between(FORBIDDEN, &two_states(&namespace, second), b"");
                let informer = TestInformer::<Counted>::run_paced(script, queue, 6, |_| {});
                let expected = Outcome {
                    kept: names("same no-uid no-version no-numbers"),
                    decoded: 6 + 2,
                    updated: names("same changed recreated no-uid no-version no-numbers"),
                };
                assert_eq!(outcome(&namespace, &informer), expected, "{namespace}");
            }
        }
    }
}

#[test]
fn objects_that_differ_in_skipped_fields_are_kept() {
    let managed = r#","managedFields":[{"manager":"m\"},{","fieldsV1":{"f:a":{"}":[]}}}]"#;
    for delivery in DELIVERIES {
        for queue in QUEUES {
            for (case, first, second) in [("gone", managed, ""), ("new", "", managed)] {
                let namespace = namespace(case, delivery, queue);
                // The fields are at the end of the metadata, and between others.
                let states = |fields: &str| {
                    let identity = r#","uid":"u","resourceVersion":"1""#;
                    vec![
                        meta(&namespace, "end", &format!("{identity}{fields}")),
                        meta(&namespace, "between", &format!("{fields}{identity}")),
                    ]
                };
                let states = [("4", states(first)), ("6", states(second))];
                let script = delivery.script_between(FORBIDDEN, &states, b"");
                let informer = TestInformer::<Counted>::run_paced(script, queue, 2, |options| {
                    options.skip = FieldPaths::managed_fields();
                });
                let Outcome { kept, decoded, .. } = outcome(&namespace, &informer);
                assert_eq!((kept, decoded), (names("between end"), 2), "{namespace}");
            }
        }
    }
}

#[test]
fn list_with_version_after_items_keeps_unchanged_objects() {
    let namespace = "behind";
    let [(_, first), (_, second)] = two_states(namespace, "6");
    let items = second.join(&b","[..]);
    let behind = [
        br#"{"kind":"List","items":["#,
        &items[..],
        br#"],"metadata":{"resourceVersion":"6"}}"#,
    ];
    let script = ScriptedListerWatcher::new([
        Answer::body(list("4", "", &first)),
        Answer::body(FORBIDDEN),
        Answer::body(behind.concat()),
        Answer::open(LAST),
    ]);
    let informer = TestInformer::<Counted>::run(script, InformerQueue::DeltaFifo, |_| {});
    let Outcome { kept, decoded, .. } = outcome(namespace, &informer);
    let unchanged = names("same no-uid no-version no-numbers");
    assert_eq!((kept, decoded), (unchanged, 6 + 2));
}

#[test]
fn objects_from_events_are_not_decoded_again_on_relist() {
    for queue in QUEUES {
        let namespace = namespace("events", Delivery::List, queue);
        let object = identified(&namespace, "new", "u", "5");
        let script = ScriptedListerWatcher::new([
            Answer::body(list("4", "", &[])),
            Answer::body([event("ADDED", &object), FORBIDDEN.into()].concat()),
            Answer::body(list("6", "", &[object])),
            Answer::open(LAST),
        ]);
        let informer = TestInformer::<Counted>::run(script, queue, |_| {});
        let cached = informer.informer.lister();
        informer.until_last();
        assert_eq!(
            cached
                .get_by_key(&format!("{namespace}/new"))
                .unwrap()
                .resource_version(),
            "5"
        );
        // A `RealFifo` reuses only objects from the cache. If the object or the first list is still
        // in its queue, the object is decoded again.
        let decoded = DECODED.lock()[&namespace];
        assert!(
            decoded == 1 || queue != InformerQueue::DeltaFifo,
            "{decoded}"
        );
    }
}

fn counts(object: &DynamicObject) -> u64 {
    object.read("/count").unwrap().unwrap_or_default()
}

#[test]
fn kept_objects_are_not_transformed_again() {
    let transform = |remove: &'static [&'static str]| {
        Transform::try_in_place(move |object: &mut DynamicObject| {
            let count = counts(object) + 1;
            object.edit(|fields| {
                fields.insert("count".to_owned(), count.into());
                if let Some(serde_json::Value::Object(metadata)) = fields.get_mut("metadata") {
                    remove.iter().for_each(|field| {
                        metadata.remove(*field);
                    });
                }
            })
        })
    };
    let states = || [("4", vec![object("a", "1")]), ("6", vec![object("a", "1")])];
    for delivery in DELIVERIES {
        let mut first = None;
        for remove in [&[][..], &["uid"], &["resourceVersion"]] {
            let store = Arc::new(Indexer::for_objects().with_transform(transform(remove)));
            reflect(
                &delivery.script_between(FORBIDDEN, &states(), b""),
                store.clone(),
            );
            let kept = store.get_by_key("ns/a").unwrap();
            assert_eq!(counts(&kept), 1, "{remove:?}");
            first.get_or_insert(kept);
            for queue in QUEUES {
                let store = Arc::new(Indexer::new(Accessor::object(), Default::default()));
                let queue = build(queue, &store, transform(remove));
                reflect(
                    &delivery.script_between(FORBIDDEN, &states(), b""),
                    queue.clone(),
                );
                assert!(consume(&*queue, &store).is_empty());
                assert_eq!(counts(&store.get_by_key("ns/a").unwrap()), 1);
            }
        }
    }
}

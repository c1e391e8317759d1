//! JSON that Go reads differently: duplicate keys.

use k8s_informer::{DynamicObject, Object};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;

use crate::hostile::objects::{Small, object, with};
use crate::hostile::support::{DELIVERIES, Delivery, QUEUES, TestInformer, event};

const TWICE: &str = r#","spec":{"replicas":1,"nodeName":"one","containers":[]},"spec":{"replicas":2,"containers":[]}"#;

fn twice() -> Vec<u8> {
    with("b", "5", "", TWICE)
}

fn objects() -> Vec<Vec<u8>> {
    vec![object("a", "1"), object("b", "2")]
}

#[test]
fn json_duplicate_field_of_derived_type_is_unreadable() {
    for (delivery, queue) in DELIVERIES.into_iter().zip(QUEUES) {
        // If the unreadable object is in a list or a change, the cached copy stays. If it is in a
        // deletion, the object is deleted anyway.
        let listed = delivery.script(&[("6", vec![object("a", "1"), twice()])], b"");
        let relisted = delivery.script(
            &[("4", objects()), ("6", vec![object("a", "1"), twice()])],
            b"",
        );
        let modified = delivery.script(&[("4", objects())], &event("MODIFIED", &twice()));
        let deleted = delivery.script(&[("4", objects())], &event("DELETED", &twice()));
        for (script, cache) in [
            (listed, &["ns/a@1"][..]),
            (relisted, &["ns/a@1", "ns/b@2"]),
            (modified, &["ns/a@1", "ns/b@2"]),
            (deleted, &["ns/a@1"]),
        ] {
            let informer = TestInformer::<Small>::run(script, queue, |_| {});
            assert_eq!(informer.cache(), cache, "{delivery:?}");
            let status = informer.status();
            assert_eq!(
                (status.complete, status.unreadable),
                (false, 1),
                "{delivery:?}"
            );
            let error = status.last_error.unwrap();
            assert!(
                error.is_decode() && error.to_string().contains("duplicate field `spec`"),
                "{error}"
            );
        }
    }
}

/// Asserts that the last of two keys counts, in a list and in an event. `of` reads the fields.
fn assert_last_duplicate_wins<T: Object + DeserializeOwned>(
    of: impl Fn(&T) -> (Option<u64>, Option<String>),
) {
    for queue in QUEUES {
        for script in [
            Delivery::List.script(&[("6", vec![object("a", "1"), twice()])], b""),
            Delivery::List.script(&[("4", objects())], &event("MODIFIED", &twice())),
        ] {
            let informer = TestInformer::<T>::run(script, queue, |_| {});
            assert_eq!(
                informer.cache(),
                ["ns/a@1", "ns/b@5"],
                "{:?}",
                informer.status()
            );
            assert!(informer.status().complete);
            let object = informer.informer.lister().get("ns", "b").unwrap();
            // client-go would merge the two values and keep "one".
            let (replicas, node) = of(&object);
            assert!(
                replicas.is_none_or(|replicas| replicas == 2) && node.is_none(),
                "{replicas:?} {node:?}"
            );
        }
    }
}

#[test]
fn json_last_duplicate_field_wins_for_pods_and_dynamic_objects() {
    assert_last_duplicate_wins::<Pod>(|pod| (None, pod.spec.as_ref().unwrap().node_name.clone()));
    assert_last_duplicate_wins::<DynamicObject>(|object| {
        (
            object.read("/spec/replicas").unwrap(),
            object.read("/spec/nodeName").unwrap(),
        )
    });
}

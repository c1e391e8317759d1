//! Keys, tombstones and transforms in stores and queues (rules K1–K8).

use std::sync::{Arc, Mutex};

use k8s_informer::object::{Accessor, KeyError, ResourceVersion};
use k8s_informer::queue::{Delta, DeltaFifo, DeltaFifoOptions, Entry, Queue};
use k8s_informer::store::{
    IndexError, IndexFunc, Indexers, ReflectorStore, StoreError, ThreadSafeStore, Transform,
};
use k8s_informer::{Deleted, DynamicObject, Indexer, Lister, Object};

/// A key, a version and a value. The accessor cannot read the version if it is `None`.
#[derive(Clone, Debug, PartialEq)]
struct Thing(&'static str, Option<&'static str>, &'static str);

fn thing(key: &'static str, value: &'static str) -> Arc<Thing> {
    Arc::new(Thing(key, Some("7"), value))
}

fn version(text: &str) -> ResourceVersion {
    ResourceVersion::new(text).unwrap()
}

fn accessor() -> Accessor<Thing> {
    Accessor::new(|thing: &Thing| match thing.0 {
        "unkeyable" => Err(KeyError::new("no key")),
        key => Ok(key.into()),
    })
    .with_resource_version(|thing| thing.1)
}

fn indexer() -> Indexer<Thing> {
    Indexer::new(accessor(), Indexers::new())
}

/// A transform that records the values, and fails on `bad`.
fn recording() -> (Transform<Thing>, Arc<Mutex<Vec<&'static str>>>) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let transform = Transform::new(move |thing: Arc<Thing>| {
        sink.lock().unwrap().push(thing.2);
        match thing.2 {
            "bad" => Err("a bad value"),
            _ => Ok(thing),
        }
    });
    (transform, seen)
}

fn deletion(key: &str, version: Option<&str>, gone: Deleted<Thing>) -> Delta<Thing> {
    Delta::Deleted {
        key: key.into(),
        version: version.and_then(ResourceVersion::new),
        gone,
    }
}

fn drain(queue: &DeltaFifo<Thing>) -> Vec<Delta<Thing>> {
    let mut all = Vec::new();
    while !queue.is_empty() {
        all.extend(queue.pop(&mut |_, _| Ok(())).unwrap().iter().cloned());
    }
    all
}

#[test]
fn k1_key_function_result_is_used_even_if_empty() {
    let store = indexer();
    for key in ["", "a", "ns/", "a/b/c"] {
        store.add(thing(key, "x")).unwrap();
        assert_eq!(store.get_by_key(key), Some(thing(key, "x")));
    }
    assert_eq!(store.len(), 4);
}

/// Covers the stores. `tests/queues/bad_input.rs` covers the queues.
#[test]
fn k1_empty_and_huge_keys_names_and_index_values_are_usable() {
    let huge: &'static str = "k".repeat(1 << 20).leak();
    let by_key =
        || Indexers::new().with("", IndexFunc::new(|thing: &Thing| vec![thing.0.to_owned()]));
    let indexer = Indexer::new(accessor(), by_key());
    let raw = ThreadSafeStore::new(by_key());
    for key in ["", huge] {
        indexer.add(thing(key, "x")).unwrap();
        raw.add(key.into(), thing(key, "x")).unwrap();
        assert_eq!(indexer.by_index("", key).unwrap(), [thing(key, "x")]);
        assert_eq!(raw.index_keys("", key).unwrap(), [key]);
        assert!(matches!(
            indexer.by_index(huge, key),
            Err(IndexError::NoIndex { .. })
        ));
        raw.delete(key);
        assert_eq!(raw.get(key), None);
    }
    assert_eq!((indexer.len(), raw.len()), (2, 0));
    assert!(raw.index_values("").unwrap().is_empty());
}

/// No object has an empty name. An empty namespace means cluster-scoped in `get`, and all
/// namespaces in `namespace`.
#[test]
fn k1_listers_find_nothing_under_an_empty_name() {
    let indexer = Arc::new(Indexer::<DynamicObject>::for_objects());
    let object = |json| serde_json::from_str(json).map(Arc::new).unwrap();
    indexer
        .add(object(r#"{"metadata": {"namespace": "ns", "name": "a"}}"#))
        .unwrap();
    indexer
        .add(object(r#"{"metadata": {"name": "a"}}"#))
        .unwrap();
    let lister = Lister::new(indexer);
    assert!(lister.get("", "").is_none() && lister.get("ns", "").is_none());
    assert!(lister.namespace("ns").get("").is_none() && lister.namespace("").get("a").is_none());
    assert_eq!(lister.get("", "a").unwrap().namespace(), "");
    assert_eq!(
        (
            lister.namespace("").list().len(),
            lister.namespace("ns").list().len()
        ),
        (2, 1)
    );
    assert!(lister.namespace("nowhere").list().is_empty());
}

#[test]
fn k2_tombstone_key_overrides_key_of_its_object() {
    let tombstone = |key: &str| Deleted::FinalStateUnknown {
        key: key.into(),
        last_known: Some(thing("b", "x")),
    };
    let store = indexer();
    store
        .replace(vec![thing("a", "x"), thing("b", "x")], Some(version("1")))
        .unwrap();
    store.delete(tombstone("a")).unwrap();
    assert_eq!(
        store.list_keys(),
        ["b"],
        "the key of the tombstone counts, not that of its object"
    );
    let queue = DeltaFifo::new(accessor());
    queue.add(thing("a", "x")).unwrap();
    queue.delete(tombstone("a")).unwrap();
    let [delta, _] = &drain(&queue)[..] else {
        panic!("one delta for the object, one for the tombstone")
    };
    assert_eq!(delta.key().map(|key| &**key), Some("a"));
}

#[test]
fn k3_list_creates_tombstones_and_delete_event_does_not() {
    let store = Arc::new(indexer());
    store.add(thing("listed", "old")).unwrap();
    store.add(thing("watched", "old")).unwrap();
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new()
            .known_objects(store)
            .emit_replaced(true),
    );
    queue
        .delete(Deleted::Final(thing("watched", "last")))
        .unwrap();
    assert_eq!(
        drain(&queue),
        [deletion(
            "watched",
            Some("7"),
            Deleted::Final(thing("watched", "last"))
        )]
    );
    queue
        .replace(vec![thing("watched", "new")], Some(version("2")))
        .unwrap();
    let mut replaced = Entry::new("watched".into(), thing("watched", "new"));
    replaced.version = Some(version("7"));
    let missed = Deleted::FinalStateUnknown {
        key: "listed".into(),
        last_known: Some(thing("listed", "old")),
    };
    assert_eq!(
        drain(&queue),
        [Delta::Replaced(replaced), deletion("listed", None, missed)]
    );
}

#[test]
fn k4_key_is_computed_before_the_transform() {
    let rename = || Transform::in_place(|thing: &mut Thing| thing.0 = "other");
    let store = indexer().with_transform(rename());
    store.add(thing("a", "x")).unwrap();
    assert_eq!(
        (store.get_by_key("a"), store.get_by_key("other")),
        (Some(thing("other", "x")), None)
    );
    store
        .replace(vec![thing("a", "x"), thing("b", "x")], Some(version("1")))
        .unwrap();
    assert_eq!(
        store.len(),
        2,
        "both objects remain, although the transform gave them one name"
    );
    let failing = Transform::new(|_: Arc<Thing>| -> Result<_, String> {
        panic!("the transform was called without a key")
    });
    assert!(matches!(
        indexer()
            .with_transform(failing)
            .add(thing("unkeyable", "x")),
        Err(StoreError::Key(_))
    ));
    let queue = DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().transform(rename()));
    queue.add(thing("a", "x")).unwrap();
    queue.add(thing("b", "x")).unwrap();
    assert_eq!(drain(&queue).len(), 2);
}

#[test]
fn k5_transforms_see_objects_not_tombstones_or_resyncs() {
    let (transform, seen) = recording();
    let store = Arc::new(indexer());
    store
        .replace(
            vec![thing("a", "known"), thing("b", "known")],
            Some(version("1")),
        )
        .unwrap();
    let queue = DeltaFifo::with_options(
        accessor(),
        DeltaFifoOptions::new()
            .known_objects(store)
            .transform(transform),
    );
    queue.resync().unwrap();
    assert_eq!(drain(&queue).len(), 2);
    queue.delete(Deleted::Final(thing("a", "deleted"))).unwrap();
    queue
        .delete(Deleted::FinalStateUnknown {
            key: "b".into(),
            last_known: Some(thing("b", "missed")),
        })
        .unwrap();
    queue
        .replace(vec![thing("a", "listed")], Some(version("2")))
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), ["deleted", "listed"]);
}

#[test]
fn k6_queue_and_store_each_apply_their_transform() {
    let (transform, seen) = recording();
    let store = indexer().with_transform(transform.clone());
    let queue = DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().transform(transform));
    queue.add(thing("a", "x")).unwrap();
    for delta in drain(&queue) {
        store.add(Arc::clone(delta.object().unwrap())).unwrap();
    }
    assert_eq!(
        *seen.lock().unwrap(),
        ["x", "x"],
        "a transform runs twice, so it must be idempotent"
    );
}

#[test]
fn k7_failed_transform_stores_and_queues_nothing() {
    let store = indexer().with_transform(recording().0);
    store.add(thing("a", "old")).unwrap();
    assert!(matches!(
        store.update(thing("a", "bad")),
        Err(StoreError::Transform { key: Some(_), .. })
    ));
    assert!(
        store
            .replace(vec![thing("b", "x"), thing("a", "bad")], Some(version("9")))
            .is_err()
    );
    assert_eq!(store.list(), [thing("a", "old")]);
    assert_eq!(store.resource_version(), ResourceVersion::new("7"));
    let queue =
        DeltaFifo::with_options(accessor(), DeltaFifoOptions::new().transform(recording().0));
    assert!(matches!(
        queue.add(thing("a", "bad")),
        Err(StoreError::Transform { key: Some(_), .. })
    ));
    assert!(
        queue
            .replace(vec![thing("a", "bad")], Some(version("9")))
            .is_err()
    );
    assert!(queue.is_empty());
}

#[test]
fn k8_transform_removing_metadata_keeps_the_version() {
    let store = indexer().with_transform(Transform::in_place(|thing: &mut Thing| thing.1 = None));
    store
        .replace(vec![thing("a", "x")], Some(version("1")))
        .unwrap();
    store.update(thing("a", "y")).unwrap();
    assert_eq!(store.resource_version(), Some(version("1")));
    assert_eq!(store.len(), 1);
    store.bookmark(Some(version("2"))).unwrap();
    assert_eq!(store.resource_version(), Some(version("2")));
}

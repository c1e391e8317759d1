//! Key, transform, index and version functions that panic in each operation of `Indexer` and
//! `ThreadSafeStore`. The operation fails, and the store is unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_informer::object::{Accessor, Key};
use k8s_informer::store::{
    AddIndexersError, Change, FunctionError, IndexError, IndexFunc, Indexers, StoreError,
    ThreadSafeStore, Transform,
};
use k8s_informer::{Deleted, Indexer};

use super::things::version;

/// A key, and the name of the function that panics on this object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Thing(u32, &'static str);

fn thing(key: u32) -> Arc<Thing> {
    Arc::new(Thing(key, ""))
}

fn panicking(key: u32, panics: &'static str) -> Arc<Thing> {
    Arc::new(Thing(key, panics))
}

fn panic_if(thing: &Thing, function: &str) {
    assert!(thing.1 != function, "{function} panics on {}", thing.0);
}

fn index(function: &'static str) -> IndexFunc<Thing> {
    IndexFunc::new(move |thing: &Thing| {
        panic_if(thing, function);
        vec![(thing.0 % 3).to_string(), thing.1.to_owned()]
    })
}

fn indexers() -> Indexers<Thing> {
    Indexers::new()
        .with("first", index("first"))
        .with("second", index("second"))
}

fn indexer() -> Indexer<Thing> {
    let accessor = Accessor::new(|thing: &Thing| {
        panic_if(thing, "key");
        Ok(thing.0.to_string().into())
    });
    let store =
        Indexer::new(accessor, indexers()).with_transform(Transform::new(|thing: Arc<Thing>| {
            panic_if(&thing, "transform");
            Ok::<_, String>(thing)
        }));
    store
        .replace(vec![thing(1), thing(2)], Some(version("7")))
        .unwrap();
    store
}

fn thread_safe_store() -> ThreadSafeStore<Thing> {
    let store = ThreadSafeStore::new(indexers()).with_resource_version(|thing: &Thing| {
        panic_if(thing, "version");
        None
    });
    store
        .replace(
            vec![("1".into(), thing(1)), ("2".into(), thing(2))],
            Some(version("7")),
        )
        .unwrap();
    store
}

/// Checks the contents of an `Indexer` or a `ThreadSafeStore`.
macro_rules! check {
    ($store:expr, $keys:expr, $version:expr) => {{
        let store = &$store;
        let expected: BTreeSet<Key> = $keys
            .iter()
            .map(|key: &u32| Key::from(key.to_string()))
            .collect();
        assert_eq!(
            store.list_keys().into_iter().collect::<BTreeSet<_>>(),
            expected
        );
        assert_eq!(
            (store.list().len(), store.len()),
            (expected.len(), expected.len())
        );
        assert_eq!(store.resource_version(), $version);
        for name in store.index_names() {
            let mut model: BTreeMap<String, BTreeSet<Thing>> = BTreeMap::new();
            for thing in store.list() {
                for value in [(thing.0 % 3).to_string(), thing.1.to_owned()] {
                    model.entry(value).or_default().insert((*thing).clone());
                }
            }
            let mut values = store.index_values(&name).unwrap();
            values.sort();
            assert!(
                values.iter().map(|value| &**value).eq(model.keys()),
                "{name}"
            );
            for (value, things) in model {
                let found = store.by_index(&name, &value).unwrap();
                assert_eq!(
                    found
                        .iter()
                        .map(|thing| (**thing).clone())
                        .collect::<BTreeSet<_>>(),
                    things
                );
            }
        }
    }};
}

/// The functions that run on each object written to an indexer.
const WRITE_FUNCTIONS: [&str; 4] = ["key", "transform", "first", "second"];

#[test]
fn panicking_functions_leave_indexer_unchanged() {
    let store = indexer();
    for panics in WRITE_FUNCTIONS {
        for key in [1, 9] {
            let bad = || panicking(key, panics);
            for result in [store.add(bad()), store.update(bad())] {
                match (panics, result.unwrap_err()) {
                    ("key", StoreError::Key(_))
                    | ("transform", StoreError::Transform { .. })
                    | ("first" | "second", StoreError::Index { .. }) => {}
                    (_, other) => panic!("{panics}: {other}"),
                }
            }
            check!(store, [1, 2], Some(version("7")));
            assert!(
                store
                    .replace(vec![thing(3), bad(), thing(4)], Some(version("8")))
                    .is_err()
            );
            check!(store, [1, 2], Some(version("7")));
        }
    }
    assert!(store.delete(Deleted::Final(panicking(1, "key"))).is_err());
    assert!(store.get(&panicking(1, "key")).is_err());
    check!(store, [1, 2], Some(version("7")));
    store.delete(Deleted::Final(panicking(1, "first"))).unwrap();
    check!(store, [2], Some(version("7")));
    store.add(thing(5)).unwrap();
    check!(store, [2, 5], Some(version("7")));
}

#[test]
fn transaction_skips_changes_that_panic() {
    for panics in WRITE_FUNCTIONS {
        let store = indexer();
        let changes = vec![
            Change::Add(thing(3)),
            Change::Update(panicking(1, panics)),
            Change::Add(panicking(9, panics)),
            Change::Delete(Deleted::Final(thing(2))),
            Change::Delete(Deleted::Final(panicking(1, "key"))),
        ];
        let error = store.transaction(changes).unwrap_err();
        assert_eq!(
            (error.successful, error.total, error.errors.len()),
            (vec![0, 3], 5, 3)
        );
        check!(store, [1, 3], Some(version("7")));
    }
}

#[test]
fn panicking_functions_leave_thread_safe_store_unchanged() {
    let store = thread_safe_store();
    for panics in ["version", "first", "second"] {
        for key in ["1", "9"] {
            let bad = || panicking(key.parse().unwrap(), panics);
            assert!(store.add(key.into(), bad()).is_err());
            assert!(store.update(key.into(), bad()).is_err());
            check!(store, [1, 2], Some(version("7")));
            let changes = vec![
                ("1".into(), Change::Update(thing(1))),
                (key.into(), Change::Update(bad())),
                (key.into(), Change::Add(bad())),
            ];
            assert_eq!(store.transaction(changes).unwrap_err().successful, [0]);
            check!(store, [1, 2], Some(version("7")));
            if panics != "version" {
                let items = vec![("3".into(), thing(3)), (key.into(), bad())];
                assert!(store.replace(items, Some(version("8"))).is_err());
                check!(store, [1, 2], Some(version("7")));
            }
        }
    }
    let gone = Deleted::Final(panicking(1, "version"));
    assert!(store.delete_with_object("1", &gone).is_err());
    assert!(
        store
            .transaction(vec![("1".into(), Change::Delete(gone))])
            .is_err()
    );
    check!(store, [1, 2], Some(version("7")));
    store
        .delete_with_object("1", &Deleted::Final(panicking(1, "first")))
        .unwrap();
    store.delete("2");
    store.add("4".into(), thing(4)).unwrap();
    check!(store, [4], Some(version("7")));
}

#[test]
fn index_lookup_fails_if_its_function_panics() {
    let (indexer, store) = (indexer(), thread_safe_store());
    for result in [
        indexer.index("first", &panicking(1, "first")),
        store.index("first", &panicking(1, "first")),
    ] {
        let error = result.unwrap_err();
        let IndexError::Function { name, error } = &error else {
            panic!("{error}")
        };
        assert_eq!(&**name, "first");
        assert!(matches!(error, FunctionError::Panicked(_)));
        assert_eq!(error.to_string(), "panicked: first panics on 1");
    }
    assert_eq!(
        indexer.index("second", &panicking(1, "first")).unwrap(),
        [thing(1)]
    );
    assert_eq!(
        store.index("second", &panicking(1, "first")).unwrap(),
        [thing(1)]
    );
    check!(indexer, [1, 2], Some(version("7")));
    check!(store, [1, 2], Some(version("7")));
}

/// The store has more objects than one indexing chunk, and the bad object is in the last chunk. The
/// new indexes are removed again.
#[test]
fn indexers_that_panic_on_stored_objects_are_not_added() {
    const MANY: u32 = 10_000;
    let things = || (1..MANY).map(|key| panicking(key, if key == MANY - 1 { "third" } else { "" }));
    let indexer = indexer();
    indexer
        .replace(things().collect(), Some(version("8")))
        .unwrap();
    let store = thread_safe_store();
    store
        .replace(
            things()
                .map(|thing| (thing.0.to_string().into(), thing))
                .collect(),
            Some(version("8")),
        )
        .unwrap();
    let more = || {
        Indexers::new()
            .with("fourth", index("fourth"))
            .with("third", index("third"))
    };
    for error in [
        indexer.add_indexers(more()).unwrap_err(),
        store.add_indexers(more()).unwrap_err(),
    ] {
        match error {
            AddIndexersError::Function { name, key, .. } => {
                assert_eq!((&*name, &*key), ("third", "9999"));
            }
            other => panic!("{other}"),
        }
    }
    let all: Vec<u32> = (1..MANY).collect();
    check!(indexer, all, Some(version("8")));
    check!(store, all, Some(version("8")));
    indexer.delete(Deleted::Final(thing(MANY - 1))).unwrap();
    indexer.add_indexers(more()).unwrap();
    assert_eq!(indexer.index_names().len(), 4);
    check!(indexer, all[..all.len() - 1], Some(version("8")));
}

//! Interleaving tests of lists and indexes. Here, a page has two slots, and a list of more than two
//! objects shares the pages with the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Item, item, key};
use crate::base::sync::{any, check, join_all, thread};
use crate::entry::{Delta, Entry};
use crate::object::{Deleted, Key};
use crate::resource_version::ResourceVersion;
use crate::store::{Change, IndexError, IndexFunc, Indexers, ThreadSafeStore};

type Store = ThreadSafeStore<Item>;

/// Returns objects with these keys, all of one version.
fn generation(keys: std::ops::Range<usize>, version: usize) -> Vec<(Key, Arc<Item>)> {
    keys.map(|at| (key(at), item(at, version))).collect()
}

/// Returns two indexes: `all`, with one value for all objects, and `version`.
fn indexers() -> Indexers<Item> {
    Indexers::new()
        .with("all", all())
        .with("version", by_version())
}

fn all() -> IndexFunc<Item> {
    IndexFunc::new(|_: &Item| vec!["x".to_owned()])
}

fn by_version() -> IndexFunc<Item> {
    IndexFunc::new(|item: &Item| vec![item.version.to_string()])
}

/// Reads all objects by a random method and sorts them.
fn read_all(store: &Store) -> Vec<Arc<Item>> {
    let mut objects = match any(3) {
        0 => store.list(),
        1 => store.by_index("all", "x").unwrap(),
        _ => store.index("all", &Item { key: 0, version: 0 }).unwrap(),
    };
    objects.sort_unstable();
    objects
}

fn keys_of(objects: &[Arc<Item>]) -> Vec<usize> {
    objects.iter().map(|item| item.key).collect()
}

/// Checks that the indexes agree with the content.
fn assert_consistent(store: &Store) {
    let mut objects = store.list();
    objects.sort_unstable();
    let mut indexed = store.by_index("all", "x").unwrap();
    indexed.sort_unstable();
    assert_eq!(objects, indexed);
    let mut by_version: BTreeMap<Arc<str>, Vec<Arc<Item>>> = BTreeMap::new();
    for object in objects {
        by_version
            .entry(object.version.to_string().into())
            .or_default()
            .push(object);
    }
    let values: BTreeSet<Arc<str>> = store.index_values("version").unwrap().into_iter().collect();
    assert!(
        values.iter().eq(by_version.keys()),
        "{values:?} {by_version:?}"
    );
    for (value, expected) in by_version {
        let mut found = store.by_index("version", &value).unwrap();
        found.sort_unstable();
        assert_eq!(found, expected);
    }
}

/// Every read returns the content before or after a replace, never a mix, and never older content
/// than an earlier read.
#[test]
fn read_during_replace_returns_all_old_or_all_new_content() {
    check(|| {
        let store = Arc::new(Store::new(indexers()));
        store
            .replace(generation(0..5, 0), ResourceVersion::new("0"))
            .unwrap();
        let readers = [(); 2].map(|()| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                let mut newest = 0;
                for _ in 0..2 {
                    let objects = read_all(&store);
                    let version = objects[0].version;
                    assert!(
                        objects.iter().all(|item| item.version == version),
                        "{objects:?}"
                    );
                    assert_eq!(
                        keys_of(&objects),
                        (version..5 + version).collect::<Vec<_>>()
                    );
                    assert!(version >= newest);
                    newest = version;
                    assert!(store.get("4").unwrap().version >= newest);
                    let found = store.by_index("version", "1").unwrap().len();
                    assert!(found == 0 || found == 5);
                }
            })
        });
        let writer = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                (1..=3).for_each(|at| {
                    store
                        .replace(
                            generation(at..5 + at, at),
                            ResourceVersion::new(&at.to_string()),
                        )
                        .unwrap();
                });
            }
        });
        writer.join().unwrap();
        join_all(readers);
        assert_consistent(&store);
    });
}

/// Each transaction moves an object to another key and changes the versions of two objects, so
/// that there are always five objects, and as many of version 0.
#[test]
fn read_during_transactions_returns_one_moment() {
    check(|| {
        let store = Arc::new(Store::new(indexers()));
        let one_new = (0..5).map(|at| (key(at), item(at, usize::from(at == 0))));
        store
            .replace(one_new.collect(), ResourceVersion::new("0"))
            .unwrap();
        let writer = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                for at in 0..3 {
                    let changes = vec![
                        (key(at), Change::Delete(Deleted::Final(item(at, 1)))),
                        (key(at + 5), Change::Add(item(at + 5, 0))),
                        (key(at + 1), Change::Update(item(at + 1, 1))),
                    ];
                    store.transaction(changes).unwrap();
                }
            }
        });
        for _ in 0..2 {
            let objects = read_all(&store);
            let first = objects[0].key;
            assert_eq!(keys_of(&objects), (first..first + 5).collect::<Vec<_>>());
            assert!(
                objects
                    .iter()
                    .all(|item| (item.key == first) == (item.version == 1))
            );
            assert_eq!(store.by_index("version", "0").unwrap().len(), 4);
            assert_eq!(store.index_values("version").unwrap().len(), 2);
        }
        writer.join().unwrap();
        assert_consistent(&store);
    });
}

#[test]
fn list_during_writes_has_each_remaining_key_once() {
    check(|| {
        let store = Arc::new(Store::new(indexers()));
        store
            .replace(generation(0..5, 0), ResourceVersion::new("0"))
            .unwrap();
        let writers = [1, 3].map(|removed| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                // The last object moves into the slot of the deleted one.
                store.delete(&key(removed));
                store.add(key(removed + 5), item(removed + 5, 0)).unwrap();
                store.add(key(removed), item(removed, 1)).unwrap();
                store.update(key(4), item(4, removed)).unwrap();
            })
        });
        for _ in 0..2 {
            let keys = keys_of(&read_all(&store));
            assert!(keys.is_sorted_by(|a, b| a < b), "duplicate key: {keys:?}");
            assert!(
                [0, 2, 4].iter().all(|remaining| keys.contains(remaining)),
                "{keys:?}"
            );
        }
        join_all(writers);
        assert_eq!(keys_of(&read_all(&store)), [0, 1, 2, 3, 4, 6, 8]);
        assert_consistent(&store);
    });
}

#[test]
fn index_added_during_writes_is_complete() {
    check(|| {
        let store = Arc::new(Store::new(Indexers::new().with("all", all())));
        store
            .replace(generation(0..5, 0), ResourceVersion::new("0"))
            .unwrap();
        let adder = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                store
                    .add_indexers(Indexers::new().with("version", by_version()))
                    .unwrap();
            }
        });
        let writer = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                store.update(key(0), item(0, 1)).unwrap();
                store.delete(&key(2));
                let added = Delta::Added(Entry::new(key(5), item(5, 1)));
                match any(2) {
                    0 => drop(store.add(key(5), item(5, 1)).unwrap()),
                    // As an informer does: the index values come first, then its locks.
                    _ => drop(store.write_prepared(
                        |functions| Some(functions.compute(&item(5, 1))),
                        |store, computed| store.apply(&added, computed.take()),
                    )),
                }
                if any(2) == 0 {
                    store
                        .replace(generation(0..4, 2), ResourceVersion::new("2"))
                        .unwrap();
                }
                store
                    .delete_with_object(&key(3), &Deleted::Final(item(3, 1)))
                    .unwrap();
            }
        });
        // Objects 1 and 4 are in the initial content, and only the replace changes them.
        match store.by_index("version", "0") {
            Err(IndexError::NoIndex { .. }) => {}
            Err(error) => panic!("{error}"),
            Ok(found) => {
                let stays = found
                    .iter()
                    .filter(|item| [1, 4].contains(&item.key))
                    .count();
                let replaced = store.get("1").is_some_and(|item| item.version == 2);
                assert!(stays == 2 || (stays == 0 && replaced), "{found:?}");
            }
        }
        adder.join().unwrap();
        writer.join().unwrap();
        assert_consistent(&store);
    });
}

/// If two threads add an index with the same name, one of them succeeds. An index that cannot be
/// added leaves neither its function nor its values behind.
#[test]
fn failed_add_of_an_index_leaves_no_function_or_values() {
    check(|| {
        let store = Arc::new(Store::new(Indexers::new().with("all", all())));
        store
            .replace(generation(0..5, 0), ResourceVersion::new("0"))
            .unwrap();
        let fails = || {
            IndexFunc::fallible(|item: &Item| match item.key {
                4 => Err("not this one"),
                _ => Ok(vec!["y".to_owned()]),
            })
        };
        let adders = [(); 2].map(|()| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                store
                    .add_indexers(Indexers::new().with("version", by_version()))
                    .is_ok()
            })
        });
        let failing = thread::spawn({
            let store = Arc::clone(&store);
            move || {
                store
                    .add_indexers(Indexers::new().with("bad", fails()))
                    .unwrap_err()
            }
        });
        store.update(key(1), item(1, 1)).unwrap();
        store.delete(&key(3));
        assert_eq!(join_all(adders).iter().filter(|added| **added).count(), 1);
        failing.join().unwrap();
        store.update(key(4), item(4, 1)).unwrap();
        assert_eq!(store.index_names(), ["all".into(), "version".into()]);
        assert!(store.by_index("bad", "y").is_err());
        assert_consistent(&store);
        store
            .add_indexers(Indexers::new().with("bad", all()))
            .unwrap();
        assert_eq!(store.by_index("bad", "x").unwrap().len(), 4);
        assert!(store.by_index("bad", "y").unwrap().is_empty());
    });
}

//! `Indexer` and `ThreadSafeStore` through their public API. Ports client-go's tests of the store,
//! the index and the thread-safe store, and tests what this crate adds.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::metrics::InformerMetrics;
use k8s_informer::object::{Accessor, Key, KeyError, ResourceVersion};
use k8s_informer::store::{
    AddIndexersError, Change, ExpirationCache, IndexError, IndexFunc, Indexers, KnownObjects,
    ReflectorStore, Store, StoreError, ThreadSafeStore, TransactionError, Transform,
};
use k8s_informer::{Deleted, Indexer};

use super::things::version;

/// An object with a key, a value and a resource version. The words of the value are index values.
#[derive(Clone, Debug, PartialEq)]
struct Thing {
    key: &'static str,
    value: String,
    rv: String,
}

fn thing(key: &'static str, value: &str) -> Arc<Thing> {
    Arc::new(Thing {
        key,
        value: value.to_owned(),
        rv: format!("rv-{value}"),
    })
}

fn accessor() -> Accessor<Thing> {
    Accessor::new(|thing: &Thing| match thing.key {
        "" => Err(KeyError::new("no key")),
        "panic" => panic!("key function"),
        key => Ok(key.into()),
    })
    .with_resource_version(|thing| Some(&thing.rv))
}

fn words() -> IndexFunc<Thing> {
    IndexFunc::new(|thing: &Thing| thing.value.split(' ').map(str::to_owned).collect())
}

/// Fails on `bad`, and panics on `worse`.
fn failing() -> IndexFunc<Thing> {
    IndexFunc::fallible(|thing: &Thing| match thing.value.as_str() {
        "bad" => Err("a bad value"),
        "worse" => panic!("a worse value"),
        value => Ok(vec![value.to_owned()]),
    })
}

fn by_words() -> Indexer<Thing> {
    Indexer::new(accessor(), Indexers::new().with("words", words()))
}

fn values(indexer: &Indexer<Thing>, index: &str) -> Vec<Arc<str>> {
    let mut values = indexer.index_values(index).unwrap();
    values.sort();
    values
}

fn keys(objects: &[Arc<Thing>]) -> Vec<&'static str> {
    let mut keys: Vec<_> = objects.iter().map(|thing| thing.key).collect();
    keys.sort();
    keys
}

fn arcs(texts: &[&str]) -> Vec<Arc<str>> {
    texts.iter().map(|text| Arc::from(*text)).collect()
}

#[test]
fn s2_writes_are_read_back_and_replace_sets_the_content() {
    let store = by_words();
    store.add(thing("foo", "bar")).unwrap();
    assert_eq!(store.get_by_key("foo"), Some(thing("foo", "bar")));
    store.update(thing("foo", "baz")).unwrap();
    assert_eq!(store.get(&thing("foo", "")).unwrap().unwrap().value, "baz");
    store.delete(Deleted::Final(thing("foo", "qux"))).unwrap();
    store.delete(Deleted::Final(thing("foo", "quux"))).unwrap();
    assert_eq!(store.get_by_key("foo"), None);
    assert_eq!(
        store.resource_version(),
        Some(version("rv-quux")),
        "deleting an absent object also sets the version"
    );
    store.add(thing("a", "b")).unwrap();
    store
        .replace(
            vec![thing("c", "d"), thing("e", "f"), thing("c", "g")],
            Some(version("7")),
        )
        .unwrap();
    assert_eq!(keys(&store.list()), ["c", "e"]);
    assert_eq!(
        store.get_by_key("c").unwrap().value,
        "g",
        "the last object of a duplicate key counts"
    );
    assert_eq!(store.resource_version(), Some(version("7")));
    assert_eq!((store.len(), store.is_empty()), (2, false));
}

#[test]
fn s1_key_error_has_a_source_and_changes_nothing() {
    let store = by_words();
    for key in ["", "panic"] {
        let error = store.add(thing(key, "x")).unwrap_err();
        assert!(std::error::Error::source(&error).unwrap().is::<KeyError>());
        assert!(matches!(
            store.replace(vec![thing("a", "x"), thing(key, "x")], Some(version("9"))),
            Err(StoreError::Key(_))
        ));
        assert!(matches!(
            store.delete(Deleted::Final(thing(key, "x"))),
            Err(StoreError::Key(_))
        ));
        assert!(matches!(
            store.get(&thing(key, "x")),
            Err(StoreError::Key(_))
        ));
    }
    assert!(store.is_empty());
    assert_eq!(store.resource_version(), None);
}

#[test]
fn s1_failed_transform_leaves_store_unchanged() {
    let store = by_words().with_transform(Transform::new(|thing: Arc<Thing>| {
        match thing.value.as_str() {
            "bad" => Err("a bad value"),
            "worse" => panic!("a worse value"),
            _ => Ok(Arc::new(Thing {
                value: format!("{}!", thing.value),
                ..(*thing).clone()
            })),
        }
    }));
    store.add(thing("a", "x")).unwrap();
    for value in ["bad", "worse"] {
        assert!(matches!(
            store.add(thing("a", value)),
            Err(StoreError::Transform { key: Some(_), .. })
        ));
        assert!(
            store
                .replace(vec![thing("b", "x"), thing("c", value)], Some(version("9")))
                .is_err()
        );
    }
    assert_eq!(store.get_by_key("a").unwrap().value, "x!");
    assert_eq!(store.by_index("words", "x!").unwrap().len(), 1);
}

#[test]
fn s3_deletion_sets_the_version_but_tombstone_does_not() {
    let store = by_words();
    store.add(thing("a", "1")).unwrap();
    store.delete(Deleted::Final(thing("a", "2"))).unwrap();
    assert_eq!(store.resource_version(), Some(version("rv-2")));
    assert!(store.is_empty());
    store.add(thing("a", "3")).unwrap();
    let tombstone = Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known: Some(thing("b", "4")),
    };
    store.delete(tombstone).unwrap();
    assert_eq!(store.resource_version(), Some(version("rv-3")));
    assert!(store.is_empty());
}

#[test]
fn s4_failed_replace_changes_nothing() {
    let transform = Transform::new(|thing: Arc<Thing>| match thing.value.as_str() {
        "no" => Err("no"),
        _ => Ok(thing),
    });
    let store = Indexer::new(accessor(), Indexers::new().with("failing", failing()))
        .with_transform(transform);
    store
        .replace(vec![thing("a", "x"), thing("a", "y")], Some(version("1")))
        .unwrap();
    assert_eq!(
        store.list(),
        [thing("a", "y")],
        "the last object of a duplicate key counts"
    );
    for bad in [
        thing("", "x"),
        thing("panic", "x"),
        thing("b", "no"),
        thing("b", "bad"),
        thing("b", "worse"),
    ] {
        assert!(
            store
                .replace(
                    vec![thing("c", "x"), bad, thing("d", "x")],
                    Some(version("2"))
                )
                .is_err()
        );
        assert_eq!(store.list(), [thing("a", "y")]);
        assert_eq!(store.resource_version(), Some(version("1")));
        assert_eq!(values(&store, "failing"), arcs(&["y"]));
    }
}

#[test]
fn s5_get_equals_get_by_key() {
    let store = by_words();
    store.add(thing("a", "x")).unwrap();
    assert_eq!(
        store.get(&thing("a", "whatever")).unwrap(),
        store.get_by_key("a")
    );
    assert_eq!(store.get(&thing("b", "whatever")).unwrap(), None);
    assert_eq!((store.get_by_key("b"), store.get_by_key("")), (None, None));
}

#[test]
fn s8_resync_does_nothing() {
    let store = by_words();
    store
        .replace(vec![thing("a", "x")], Some(version("7")))
        .unwrap();
    ReflectorStore::resync(&store).unwrap();
    assert_eq!(store.list(), [thing("a", "x")]);
    assert_eq!(store.resource_version(), Some(version("7")));
}

#[test]
fn s11_objects_are_shared_not_copied() {
    let store = by_words();
    let object = thing("a", "x");
    store.add(Arc::clone(&object)).unwrap();
    for found in [
        store.get_by_key("a").unwrap(),
        store.list().remove(0),
        store.by_index("words", "x").unwrap().remove(0),
        store.index("words", &object).unwrap().remove(0),
    ] {
        assert!(Arc::ptr_eq(&found, &object));
    }
    store.add(thing("a", "y")).unwrap();
    assert_eq!(
        Arc::strong_count(&object),
        1,
        "the store must not keep a replaced object"
    );
}

#[test]
fn s6_transaction_applies_the_transform() {
    let store = by_words().with_transform(Transform::in_place(|thing: &mut Thing| {
        thing.value.push('!');
    }));
    store
        .transaction(vec![
            Change::Add(thing("a", "x")),
            Change::Update(thing("b", "y")),
        ])
        .unwrap();
    assert_eq!(store.get_by_key("a").unwrap().value, "x!");
    assert_eq!(store.by_index("words", "y!").unwrap().len(), 1);
}

#[test]
fn s6_transaction_reports_failures_and_applies_the_rest() {
    let store = Indexer::new(accessor(), Indexers::new().with("failing", failing()));
    store.add(thing("gone", "x")).unwrap();
    let tombstone = Deleted::FinalStateUnknown {
        key: "gone".into(),
        last_known: None,
    };
    let TransactionError {
        successful,
        total,
        errors,
        ..
    } = store
        .transaction(vec![
            Change::Add(thing("a", "1")),
            Change::Add(thing("", "2")),
            Change::Add(thing("b", "worse")),
            Change::Delete(tombstone),
            Change::Update(thing("c", "3")),
            Change::Delete(Deleted::Final(thing("", "x"))),
        ])
        .unwrap_err();
    assert_eq!((successful, total), (vec![0, 3, 4], 6));
    assert!(matches!(
        errors.as_slice(),
        [
            StoreError::Key(_),
            StoreError::Index { .. },
            StoreError::Key(_)
        ]
    ));
    assert_eq!(keys(&store.list()), ["a", "c"]);
    assert_eq!(store.resource_version(), Some(version("rv-3")));
}

/// A custom store that implements only the required methods.
struct Words(Indexer<Thing>);

impl ReflectorStore<Thing> for Words {
    fn add(&self, thing: Arc<Thing>) -> Result<(), StoreError> {
        self.0.add(thing)
    }
    fn update(&self, thing: Arc<Thing>) -> Result<(), StoreError> {
        self.0.update(thing)
    }
    fn delete(&self, gone: Deleted<Thing>) -> Result<(), StoreError> {
        self.0.delete(gone)
    }
    fn replace(
        &self,
        things: Vec<Arc<Thing>>,
        version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        self.0.replace(things, version)
    }
}

impl KnownObjects<Thing> for Words {
    fn list_keys(&self) -> Vec<Key> {
        self.0.list_keys()
    }
    fn lookup(&self, key: &str) -> Result<Option<Arc<Thing>>, StoreError> {
        Ok(self.0.get_by_key(key))
    }
}

impl Store<Thing> for Words {
    fn list(&self) -> Vec<Arc<Thing>> {
        self.0.list()
    }
    fn get(&self, thing: &Thing) -> Result<Option<Arc<Thing>>, StoreError> {
        self.0.get(thing)
    }
}

#[test]
fn s7_default_transaction_fails_and_changes_nothing() {
    let store: Box<dyn Store<Thing>> = Box::new(Words(by_words()));
    let error = store
        .transaction(vec![Change::Add(thing("a", "x"))])
        .unwrap_err();
    assert_eq!(
        (error.successful.len(), error.total, error.errors.len()),
        (0, 1, 1)
    );
    assert_eq!(error.errors[0].to_string(), "transaction not supported");
    assert!(store.list().is_empty());
    assert_eq!(store.resource_version(), None);
}

/// The operations of client-go's `Store`, through the trait.
#[test]
fn s2_s8_stores_have_the_operations_of_client_go() {
    let stores: [Arc<dyn Store<Thing>>; 3] = [
        Arc::new(by_words()),
        Arc::new(ExpirationCache::new(accessor())),
        Arc::new(Words(by_words())),
    ];
    for store in stores {
        store.add(thing("a", "x")).unwrap();
        store.update(thing("b", "y")).unwrap();
        store.resync().unwrap();
        let mut keys = store.list_keys();
        keys.sort();
        assert_eq!(keys, ["a", "b"]);
        assert_eq!(store.list().len(), 2);
        store.delete(Deleted::Final(thing("a", ""))).unwrap();
        assert!(store.get_by_key("a").unwrap().is_none());
        assert_eq!(
            store.get(&thing("b", "")).unwrap(),
            store.get_by_key("b").unwrap()
        );
        store
            .replace(vec![thing("c", "z")], Some(version("7")))
            .unwrap();
        assert_eq!(store.list(), [thing("c", "z")]);
    }
}

#[test]
fn s9_bookmark_sets_the_version() {
    let store = by_words();
    ReflectorStore::bookmark(&store, Some(version("12"))).unwrap();
    assert_eq!(store.resource_version(), Some(version("12")));
}

#[test]
fn x2_update_moves_the_object_in_every_index() {
    let keys = IndexFunc::new(|thing: &Thing| vec![thing.key.to_owned(), thing.value.clone()]);
    let store = Indexer::new(
        accessor(),
        Indexers::new().with("words", words()).with("both", keys),
    );
    store.add(thing("a", "x")).unwrap();
    store.update(thing("a", "y")).unwrap();
    assert_eq!(
        (values(&store, "words"), values(&store, "both")),
        (arcs(&["y"]), arcs(&["a", "y"]))
    );
    assert_eq!(
        store.by_index("both", "y").unwrap(),
        store.by_index("words", "y").unwrap()
    );
}

#[test]
fn x3_x4_x5_object_is_indexed_under_each_of_its_values() {
    let store = by_words();
    store.add(thing("a", "one two")).unwrap();
    store.add(thing("b", "two three three")).unwrap();
    assert_eq!(store.index_keys("words", "two").unwrap(), ["a", "b"]);
    assert_eq!(store.index_keys("words", "three").unwrap(), ["b"]);
    assert_eq!(
        keys(&store.index("words", &thing("z", "one three")).unwrap()),
        ["a", "b"]
    );
    assert_eq!(
        keys(&store.index("words", &thing("z", "two two one")).unwrap()),
        ["a", "b"],
        "each once"
    );
    store.update(thing("a", "two four")).unwrap();
    assert_eq!(values(&store, "words"), arcs(&["four", "three", "two"]));
    store
        .delete(Deleted::Final(thing("b", "whatever")))
        .unwrap();
    assert_eq!(
        values(&store, "words"),
        arcs(&["four", "two"]),
        "a value without objects is removed"
    );
    store.add(thing("c", "two")).unwrap();
    assert_eq!(
        store.index_keys("words", "two").unwrap(),
        ["a", "c"],
        "the free slot is reused"
    );
    store
        .replace(vec![thing("d", "five")], Some(version("1")))
        .unwrap();
    assert_eq!(values(&store, "words"), arcs(&["five"]));
    assert!(store.by_index("words", "two").unwrap().is_empty());
}

#[test]
fn x6_failing_index_function_changes_nothing() {
    let store = Indexer::new(
        accessor(),
        Indexers::new()
            .with("failing", failing())
            .with("words", words()),
    );
    store.add(thing("a", "x")).unwrap();
    for value in ["bad", "worse"] {
        let Err(StoreError::Index { index, key, .. }) = store.update(thing("a", value)) else {
            panic!()
        };
        assert_eq!((&*index, &*key), ("failing", "a"));
        assert!(
            store
                .replace(vec![thing("b", "y"), thing("c", value)], Some(version("9")))
                .is_err()
        );
        assert!(matches!(
            store.index("failing", &thing("a", value)),
            Err(IndexError::Function { .. })
        ));
    }
    assert_eq!(store.get_by_key("a").unwrap().value, "x");
    assert_eq!(
        (values(&store, "failing"), values(&store, "words")),
        (arcs(&["x"]), arcs(&["x"]))
    );
    assert_eq!(store.resource_version(), Some(version("rv-x")));
    store.delete(Deleted::Final(thing("a", "bad"))).unwrap();
    assert!(store.is_empty() && values(&store, "failing").is_empty());
}

#[test]
fn x6_failing_indexers_are_not_added() {
    let store = by_words();
    store.add(thing("a", "fine")).unwrap();
    store.add(thing("b", "worse")).unwrap();
    let more = || {
        Indexers::new().with(
            "keys",
            IndexFunc::new(|thing: &Thing| vec![thing.key.to_owned()]),
        )
    };
    let error = store
        .add_indexers(more().with("failing", failing()))
        .unwrap_err();
    assert!(
        matches!(error, AddIndexersError::Function { name, key, .. } if (&*name, &*key) == ("failing", "b"))
    );
    assert_eq!(store.index_names(), arcs(&["words"]));
    store.add(thing("c", "worse")).unwrap();
    store.add_indexers(more()).unwrap();
    assert_eq!(values(&store, "keys"), arcs(&["a", "b", "c"]));
}

#[test]
fn x7_replace_rebuilds_all_indices() {
    let store = by_words();
    store
        .replace(vec![thing("a", "x y"), thing("b", "y")], Some(version("1")))
        .unwrap();
    store
        .add_indexers(Indexers::new().with("failing", failing()))
        .unwrap();
    store
        .replace(
            vec![thing("b", "z"), thing("c", "x"), thing("c", "y z")],
            Some(version("2")),
        )
        .unwrap();
    assert_eq!(
        (values(&store, "words"), values(&store, "failing")),
        (arcs(&["y", "z"]), arcs(&["y z", "z"]))
    );
    assert_eq!(store.index_keys("words", "z").unwrap(), ["b", "c"]);
    assert_eq!(store.resource_version(), Some(version("2")));
    store.replace(Vec::new(), Some(version("3"))).unwrap();
    assert!(store.is_empty() && values(&store, "words").is_empty());
}

#[test]
fn x8_indexers_are_added_unless_a_name_conflicts() {
    let store = Indexer::new(accessor(), Indexers::new());
    store.add(thing("a", "x")).unwrap();
    store
        .add_indexers(Indexers::new().with("words", words()))
        .unwrap();
    assert_eq!(store.index_keys("words", "x").unwrap(), ["a"]);
    let both = Indexers::new()
        .with("words", words())
        .with("failing", failing());
    let AddIndexersError::Conflict { names } = store.add_indexers(both).unwrap_err() else {
        panic!()
    };
    assert_eq!(names, arcs(&["words"]));
    assert_eq!(
        store.index_names(),
        arcs(&["words"]),
        "no indexer of a conflicting set may be added"
    );
}

#[test]
fn x9_version_follows_writes_and_bookmarks() {
    let store = ThreadSafeStore::new(Indexers::new())
        .with_resource_version(|thing: &Thing| Some(&thing.rv));
    assert_eq!(store.resource_version(), None);
    store.add("a".into(), thing("a", "1")).unwrap();
    store.delete("a");
    assert_eq!(store.resource_version(), Some(version("rv-1")));
    let tombstone = Deleted::FinalStateUnknown {
        key: "a".into(),
        last_known: Some(thing("a", "2")),
    };
    store.delete_with_object("a", &tombstone).unwrap();
    assert_eq!(store.resource_version(), Some(version("rv-1")));
    store
        .delete_with_object("a", &Deleted::Final(thing("a", "3")))
        .unwrap();
    assert_eq!(store.resource_version(), Some(version("rv-3")));
    store.bookmark(Some(version("2")));
    assert_eq!(
        store.resource_version(),
        Some(version("2")),
        "the version may go back"
    );
}

#[test]
fn x10_index_returns_each_object_once() {
    let store = by_words();
    store
        .replace(
            vec![thing("a", "x y"), thing("b", "y z"), thing("c", "z")],
            Some(version("1")),
        )
        .unwrap();
    assert_eq!(
        keys(&store.index("words", &thing("", "x")).unwrap()),
        ["a"],
        "one value; no key is needed"
    );
    assert_eq!(
        keys(&store.index("words", &thing("", "x y y")).unwrap()),
        ["a", "b"],
        "several values"
    );
    assert!(store.index("words", &thing("", "none")).unwrap().is_empty());
    assert_eq!(
        store.index_keys("words", "y").unwrap(),
        ["a", "b"],
        "sorted"
    );
    assert!(store.by_index("words", "none").unwrap().is_empty());
}

#[test]
fn x11_unknown_index_is_an_error() {
    let store = by_words();
    for error in [
        store.index_values("nope").unwrap_err(),
        store.by_index("nope", "x").unwrap_err(),
        store.index_keys("nope", "x").unwrap_err(),
        store.index("nope", &thing("a", "x")).unwrap_err(),
    ] {
        assert!(
            matches!(&error, IndexError::NoIndex { name } if &**name == "nope"),
            "{error}"
        );
    }
}

#[test]
fn x12_index_names_are_unaffected_by_later_adds() {
    let store = by_words();
    let names = store.index_names();
    store
        .add_indexers(Indexers::new().with("failing", failing()))
        .unwrap();
    assert_eq!(
        (names, store.index_names()),
        (arcs(&["words"]), arcs(&["failing", "words"]))
    );
}

/// Index functions, transforms and destructors use the store. They would hang if a lock were held.
#[test]
fn user_code_runs_without_the_lock() {
    struct Reentrant(u32, Arc<OnceLock<Arc<Indexer<Self>>>>);
    impl Drop for Reentrant {
        fn drop(&mut self) {
            if let Some(store) = self.1.get() {
                store.bookmark(Some(version("dropped"))).unwrap();
            }
        }
    }
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let cell = Arc::new(OnceLock::<Arc<Indexer<Reentrant>>>::new());
        let look = |reentrant: &Reentrant| {
            let count = reentrant.1.get().map_or(0, |store| {
                store.bookmark(Some(version("looked"))).unwrap();
                store.list().len()
            });
            Some(count)
        };
        let accessor = Accessor::new(move |reentrant: &Reentrant| {
            look(reentrant);
            Ok(reentrant.0.to_string().into())
        });
        let index = IndexFunc::new(move |reentrant: &Reentrant| {
            vec![look(reentrant).map_or_else(String::new, |_| "x".into())]
        });
        let store = Arc::new(
            Indexer::new(accessor, Indexers::new().with("look", index.clone())).with_transform(
                Transform::new(move |reentrant: Arc<Reentrant>| {
                    look(&reentrant);
                    Ok::<_, String>(reentrant)
                }),
            ),
        );
        assert!(cell.set(Arc::clone(&store)).is_ok());
        let reentrant = |id| Arc::new(Reentrant(id, Arc::clone(&cell)));
        store.add(reentrant(1)).unwrap();
        store.update(reentrant(1)).unwrap();
        store
            .transaction(vec![Change::Add(reentrant(1)), Change::Add(reentrant(2))])
            .unwrap();
        store
            .add_indexers(Indexers::new().with("again", index))
            .unwrap();
        store
            .replace(
                vec![reentrant(2), reentrant(3), reentrant(3)],
                Some(version("r")),
            )
            .unwrap();
        store
            .delete(Deleted::FinalStateUnknown {
                key: "2".into(),
                last_known: None,
            })
            .unwrap();
        store.replace(Vec::new(), Some(version("r"))).unwrap();
        assert_eq!(store.resource_version(), Some(version("dropped")));
        done.send(()).unwrap();
    });
    finished
        .recv_timeout(Duration::from_secs(20))
        .expect("a lock is held, or an assertion failed");
}

/// Each transaction moves two objects to other keys and exchanges their index values. Every read of
/// the 10,000 objects must see each of them in one place.
#[test]
fn x1_read_during_moves_sees_each_object_in_one_place() {
    /// The identity, the place and the side of an object.
    type Moved = (u32, u32, u32);
    const MANY: u32 = 10_000;
    const BOTH: u32 = 2;
    let pair =
        |number, round| [0, 1].map(|side| Arc::new((2 * number + (side + round) % 2, round, side)));
    let accessor = Accessor::new(|(id, place, _): &Moved| Ok(format!("{id}/{place}").into()));
    let indexers = Indexers::new()
        .with("all", IndexFunc::new(|_: &Moved| vec!["all".to_owned()]))
        .with(
            "id and place",
            IndexFunc::new(|(id, place, _)| vec![format!("{id}/{place}")]),
        )
        .with(
            "side",
            IndexFunc::new(|&(_, _, side)| match side {
                BOTH => vec!["0".to_owned(), "1".to_owned()],
                side => vec![side.to_string()],
            }),
        );
    let store = Indexer::new(accessor, indexers);
    let replace = |round| {
        let all = (0..MANY / 2).flat_map(|number| pair(number, round));
        store.replace(all.collect(), Some(version("1"))).unwrap();
    };
    replace(0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1.. {
                for number in 0..MANY / 2 {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let old =
                        pair(number, round - 1).map(|old| Change::Delete(Deleted::Final(old)));
                    let moves = old.into_iter().chain(pair(number, round).map(Change::Add));
                    store.transaction(moves.collect()).unwrap();
                }
                replace(round);
            }
        });
        let once = |mut ids: Vec<u32>| {
            ids.sort_unstable();
            ids.into_iter().eq(0..MANY)
        };
        let ids = |objects: Vec<Arc<Moved>>| objects.iter().map(|object| object.0).collect();
        let id_of_key = |key: &str| key.split_once('/').unwrap().0.parse().unwrap();
        for _ in 0..50 {
            let mut seen = vec![
                once(ids(store.list())),
                once(store.list_keys().iter().map(|key| id_of_key(key)).collect()),
                once(ids(store.by_index("all", "all").unwrap())),
                once(ids(store.index("side", &(0, 0, BOTH)).unwrap())),
            ];
            let values = store.index_values("id and place").unwrap();
            seen.push(once(values.iter().map(|value| id_of_key(value)).collect()));
            let one_side = store.index_keys("side", "0").unwrap();
            seen.push(one_side.len() as u32 == MANY / 2);
            if seen.contains(&false) {
                stop.store(true, Ordering::Relaxed);
            }
            assert!(!seen.contains(&false), "{seen:?}");
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Indices that are added during writes contain every object.
#[test]
fn x8_indices_added_during_writes_contain_all_objects() {
    let accessor = Accessor::new(|number: &(u32, u32)| Ok(number.0.to_string().into()));
    let store = Arc::new(Indexer::new(accessor, Indexers::new()));
    for number in 0..6000 {
        store.add(Arc::new((number, 0))).unwrap();
    }
    let writer = thread::spawn({
        let store = Arc::clone(&store);
        move || {
            for round in 1..20 {
                for number in (0..6000).step_by(7) {
                    store.update(Arc::new((number, round))).unwrap();
                }
                let fresh = (0..6000).map(|number| Arc::new((number, round)));
                if round % 8 == 0 {
                    store.replace(fresh.collect(), Some(version("x"))).unwrap();
                }
            }
        }
    });
    for at in 0..5 {
        let index = IndexFunc::new(|number: &(u32, u32)| vec![number.1.to_string()]);
        store
            .add_indexers(Indexers::new().with(format!("round{at}"), index))
            .unwrap();
    }
    writer.join().unwrap();
    for name in store.index_names() {
        let values = store.index_values(&name).unwrap();
        let mut all = 0;
        for value in values {
            for object in store.by_index(&name, &value).unwrap() {
                assert_eq!(*value, *object.1.to_string());
                all += 1;
            }
        }
        assert_eq!(all, 6000);
    }
}

#[test]
fn x1_key_is_allocated_once() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&seen);
    let accessor = Accessor::new(move |_: &u32| {
        let text: Arc<str> = "k".into();
        sink.lock().unwrap().push(Arc::clone(&text));
        Ok(text.into())
    });
    let store = Indexer::new(accessor, Indexers::new());
    store.add(Arc::new(1)).unwrap();
    let made = seen.lock().unwrap()[0].clone();
    assert!(std::ptr::eq(&*made, &*store.list_keys()[0]));
    assert_eq!(
        Arc::strong_count(&made),
        4,
        "`made`, `seen`, the map and the slot"
    );
}

/// The index has so many values that they are copied without the lock. New values make the index
/// move the others during the copy.
#[test]
fn x11_existing_values_are_listed_once_during_adds() {
    let store = ThreadSafeStore::new(
        Indexers::new().with("itself", IndexFunc::new(|word: &String| vec![word.clone()])),
    );
    let add = |word: String| store.add(word.as_str().into(), Arc::new(word)).map(drop);
    (0..20_000)
        .try_for_each(|n| add(format!("old-{n}")))
        .unwrap();
    thread::scope(|scope| {
        let writer = scope.spawn(|| (0..40_000).try_for_each(|n| add(format!("new-{n}"))));
        loop {
            let last = writer.is_finished();
            let mut values = store.index_values("itself").unwrap();
            let all = values.len();
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len(), all);
            assert_eq!(
                values
                    .iter()
                    .filter(|value| value.starts_with("old-"))
                    .count(),
                20_000
            );
            if last {
                assert_eq!(all, 60_000);
                break;
            }
        }
        writer.join().unwrap().unwrap();
    });
}

#[test]
fn x13_version_is_reported_to_the_metrics() {
    #[derive(Default)]
    struct Versions(Mutex<Vec<u64>>);
    impl InformerMetrics for Versions {
        fn store_resource_version(&self, version: u64) {
            self.0.lock().unwrap().push(version);
        }
    }
    let versions = Arc::new(Versions::default());
    let store = Indexer::new(accessor(), Indexers::new()).with_metrics(versions.clone());
    let at = |rv: &str| {
        Arc::new(Thing {
            key: "a",
            value: String::new(),
            rv: rv.to_owned(),
        })
    };
    store.add(at("1")).unwrap();
    store
        .replace(vec![at("2")], Some(version("99123456789012345")))
        .unwrap();
    store.bookmark(Some(version("no number"))).unwrap();
    store.delete(Deleted::Final(at("3"))).unwrap();
    store
        .transaction(vec![Change::Add(at("4")), Change::Update(at("5"))])
        .unwrap();
    store.bookmark(None).unwrap();
    assert_eq!(
        *versions.0.lock().unwrap(),
        [1, 123_456_789_012_345, 3, 5, 0]
    );
}

#[test]
fn replace_indexes_only_the_last_of_equal_keys() {
    let (sender, indexed) = mpsc::channel();
    let index = IndexFunc::fallible(move |thing: &Thing| {
        let _ = sender.send(format!("{}={}", thing.key, thing.value));
        if thing.value == "bad" {
            Err("no index for it")
        } else {
            Ok(vec![thing.value.clone()])
        }
    });
    let indexers = || Indexers::new().with("value", index.clone());
    let list = || {
        ["a=bad", "b=1", "a=2", "b=bad", "b=3"].map(|text| {
            let (key, value) = text.split_once('=').unwrap();
            thing(key, value)
        })
    };
    let by_key = ThreadSafeStore::new(indexers());
    by_key
        .replace(
            list().map(|thing| (thing.key.into(), thing)).into(),
            Some(version("7")),
        )
        .unwrap();
    let indexer = Indexer::new(accessor(), indexers());
    indexer.replace(list().into(), Some(version("7"))).unwrap();
    assert_eq!(
        indexed.try_iter().collect::<Vec<_>>(),
        ["a=2", "b=3", "a=2", "b=3"]
    );
    for value in ["2", "3"] {
        assert_eq!(by_key.by_index("value", value).unwrap().len(), 1);
        assert_eq!(indexer.by_index("value", value).unwrap().len(), 1);
    }
    // If a list has several objects with the same key, only the last one counts, even if it cannot
    // be indexed.
    let bad = [thing("a", "4"), thing("a", "bad")].into();
    assert!(matches!(
        indexer.replace(bad, Some(version("8"))),
        Err(StoreError::Index { .. })
    ));
    assert_eq!(indexer.get_by_key("a").unwrap().value, "2");
}

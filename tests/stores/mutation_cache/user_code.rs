//! User code around the cache: objects without a key, and functions that fail, panic or use the
//! cache.

use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use k8s_informer::object::{Accessor, Key};
use k8s_informer::store::{
    IndexFunc, Indexers, KnownObjects, MutationCache, ReflectorStore, Store, StoreError,
};
use k8s_informer::{Deleted, Indexer, Object};

use super::{Thing, accessor, thing, valued, with_adds, with_uid};

#[test]
fn rejected_objects_leave_the_cache_unchanged() {
    let subject = with_adds();
    subject.cache.mutation(thing("a", 5)).unwrap();
    for name in ["unkeyable", "panic"] {
        let key_error =
            |result: Result<(), StoreError>| assert!(matches!(result, Err(StoreError::Key(_))));
        key_error(subject.cache.mutation(thing(name, 1)));
        key_error(subject.cache.on_add_or_update(&thing(name, 9)));
        key_error(subject.cache.on_delete(&Deleted::Final(thing(name, 9))));
    }
    assert!(matches!(
        subject.cache.mutation(with_uid("a", 6, "panic")),
        Err(StoreError::Other(_))
    ));
    assert!(matches!(
        subject
            .cache
            .on_delete(&Deleted::Final(with_uid("a", 6, "panic"))),
        Err(StoreError::Other(_))
    ));
    assert!(matches!(
        subject.cache.mutation(thing("a", "panic")),
        Err(StoreError::ResourceVersion { .. })
    ));
    assert_eq!(
        (
            subject.version("a").unwrap(),
            subject.get(""),
            subject.get("b")
        ),
        ("5".into(), None, None)
    );
    subject.cache.mutation(thing("", 5)).unwrap();
    assert_eq!(subject.version("").unwrap(), "5", "an empty key is valid");
    let huge = "k".repeat(1 << 20);
    subject.cache.mutation(thing(&huge, 5)).unwrap();
    assert_eq!(subject.version(&huge).unwrap(), "5");
}

type GetByKey = dyn Fn(&str) -> Result<Option<Arc<Thing>>, StoreError> + Send + Sync;

/// A store that supports only lookups by key.
struct LookupOnly(Box<GetByKey>);

impl ReflectorStore<Thing> for LookupOnly {
    fn add(&self, _: Arc<Thing>) -> Result<(), StoreError> {
        unreachable!()
    }
    fn update(&self, _: Arc<Thing>) -> Result<(), StoreError> {
        unreachable!()
    }
    fn delete(&self, _: Deleted<Thing>) -> Result<(), StoreError> {
        unreachable!()
    }
    fn replace(&self, _: Vec<Arc<Thing>>, _: &str) -> Result<(), StoreError> {
        unreachable!()
    }
}

impl KnownObjects<Thing> for LookupOnly {
    fn list_keys(&self) -> Vec<Key> {
        unreachable!()
    }
    fn lookup(&self, key: &str) -> Result<Option<Arc<Thing>>, StoreError> {
        (self.0)(key)
    }
}

impl Store<Thing> for LookupOnly {
    fn list(&self) -> Vec<Arc<Thing>> {
        unreachable!()
    }
    fn get(&self, _: &Thing) -> Result<Option<Arc<Thing>>, StoreError> {
        unreachable!()
    }
    fn last_store_sync_resource_version(&self) -> String {
        unreachable!()
    }
}

#[test]
fn failing_or_panicking_store_fails_one_read() {
    let store = LookupOnly(Box::new(|key| match key {
        "fails" => Err(StoreError::other("out of order")),
        "panics" => panic!("out of order"),
        _ => Ok(None),
    }));
    let cache = MutationCache::builder(accessor(), Arc::new(store))
        .include_adds(true)
        .build();
    for name in ["fails", "panics", "fine"] {
        cache.mutation(thing(name, 1)).unwrap();
    }
    assert_eq!(
        cache.get_by_key("fails").unwrap_err().to_string(),
        "out of order"
    );
    assert_eq!(
        cache.get_by_key("panics").unwrap_err().to_string(),
        "the store panicked: out of order"
    );
    assert_eq!(cache.get_by_key("fine").unwrap(), Some(thing("fine", 1)));
}

/// The store returns its old object and catches up before the read ends. The mutation is forgotten
/// by then, but the read still returns it.
#[test]
fn m2_read_returns_mutation_forgotten_meanwhile() {
    let cell = Arc::new(OnceLock::<Arc<MutationCache<Thing>>>::new());
    let store = LookupOnly(Box::new({
        let cell = Arc::clone(&cell);
        move |_| {
            cell.get().unwrap().on_add_or_update(&thing("a", 2))?;
            Ok(Some(thing("a", 1)))
        }
    }));
    let cache = Arc::new(MutationCache::builder(accessor(), Arc::new(store)).build());
    assert!(cell.set(Arc::clone(&cache)).is_ok());
    cache.mutation(thing("a", 2)).unwrap();
    assert_eq!(cache.get_by_key("a").unwrap(), Some(thing("a", 2)));
}

/// A newer mutation arrives during a read that finds the older one in the store. The newer one
/// stays.
#[test]
fn m2_mutation_during_a_read_is_kept() {
    let cell = Arc::new(OnceLock::<Arc<MutationCache<Thing>>>::new());
    let store = LookupOnly(Box::new({
        let cell = Arc::clone(&cell);
        move |_| {
            cell.get().unwrap().mutation(thing("a", 3))?;
            Ok(Some(thing("a", 2)))
        }
    }));
    let cache = Arc::new(MutationCache::builder(accessor(), Arc::new(store)).build());
    assert!(cell.set(Arc::clone(&cache)).is_ok());
    cache.mutation(thing("a", 2)).unwrap();
    assert_eq!(
        cache.get_by_key("a").unwrap(),
        Some(thing("a", 2)),
        "the mutation at the start of the read"
    );
    assert_eq!(cache.get_by_key("a").unwrap(), Some(thing("a", 3)));
}

/// The store catches up while the index function runs on a mutation of an object that the store
/// lacked. The index then returns the store's newer object if that has the value.
#[test]
fn m3_index_returns_store_object_added_during_the_read() {
    for (value, found) in [("x", vec![valued("a", 3, "x")]), ("y", vec![])] {
        let cell = Arc::new(OnceLock::<Arc<Indexer<Thing>>>::new());
        let index = IndexFunc::new({
            let cell = Arc::clone(&cell);
            move |thing: &Thing| {
                if thing.version == "2" {
                    cell.get().unwrap().add(valued("a", 3, value)).unwrap();
                }
                vec![thing.value.to_owned()]
            }
        });
        let indexer = Arc::new(Indexer::new(
            accessor(),
            Indexers::new().with("value", index),
        ));
        assert!(cell.set(Arc::clone(&indexer)).is_ok());
        let cache = MutationCache::builder(accessor(), Arc::clone(&indexer) as _);
        let cache = cache.indexer(indexer).include_adds(true).build();
        cache.mutation(thing("a", 2)).unwrap();
        assert_eq!(cache.by_index("value", "x").unwrap(), found);
    }
}

/// Key functions, accessors, index functions and destructors use the cache. They would hang if a
/// lock were held.
#[test]
fn user_code_runs_without_the_lock() {
    struct Reentrant(String, Arc<OnceLock<Arc<MutationCache<Self>>>>);
    impl Reentrant {
        fn look(&self) -> &str {
            if let Some(cache) = self.1.get() {
                assert!(format!("{cache:?}").contains("mutations"));
            }
            &self.0
        }
    }
    impl Drop for Reentrant {
        fn drop(&mut self) {
            self.look();
        }
    }
    impl Object for Reentrant {
        fn name(&self) -> &str {
            self.look();
            "n"
        }
        fn namespace(&self) -> &str {
            self.look();
            ""
        }
        fn uid(&self) -> &str {
            self.look()
        }
        fn resource_version(&self) -> &str {
            self.look()
        }
        fn label(&self, _: &str) -> Option<&str> {
            None
        }
    }
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let cell = Arc::new(OnceLock::<Arc<MutationCache<Reentrant>>>::new());
        let index =
            IndexFunc::new(|reentrant: &Reentrant| vec![reentrant.look().len().to_string()]);
        let indexer = Arc::new(Indexer::new(
            Accessor::object(),
            Indexers::new().with("length", index),
        ));
        let cache = MutationCache::builder(Accessor::object(), Arc::clone(&indexer) as _);
        let cache = Arc::new(
            cache
                .indexer(Arc::clone(&indexer))
                .include_adds(true)
                .max_size(1)
                .build(),
        );
        assert!(cell.set(Arc::clone(&cache)).is_ok());
        let reentrant = |version: &str| Arc::new(Reentrant(version.to_owned(), Arc::clone(&cell)));
        cache.mutation(reentrant("1")).unwrap();
        cache.mutation(reentrant("1")).unwrap();
        assert_eq!(cache.by_index("length", "1").unwrap().len(), 1);
        indexer.add(reentrant("1")).unwrap();
        assert!(cache.get_by_key("n").unwrap().is_some());
        cache.mutation(reentrant("2")).unwrap();
        cache.on_add_or_update(&reentrant("2")).unwrap();
        cache.mutation(reentrant("3")).unwrap();
        cache.on_delete(&Deleted::Final(reentrant("4"))).unwrap();
        done.send(()).unwrap();
    });
    finished
        .recv_timeout(Duration::from_secs(20))
        .expect("a lock is held, or an assertion failed");
}

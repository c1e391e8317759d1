//! Interleaving tests of reading your own writes while the watch fills the store.

use std::sync::Arc;

use crate::object::{Accessor, Deleted, Object};
use crate::store::{IndexFunc, Indexer, Indexers, MutationCache};
use crate::sync::{any, check, join_all, thread};

/// An object that is always named `a`. Another UID means that it was created again.
#[derive(Debug)]
struct Thing {
    uid: &'static str,
    version: String,
}

impl Thing {
    fn new(version: usize) -> Arc<Self> {
        Self::with_uid("first", version)
    }

    fn with_uid(uid: &'static str, version: usize) -> Arc<Self> {
        Arc::new(Self {
            uid,
            version: version.to_string(),
        })
    }

    fn version(&self) -> usize {
        self.version.parse().unwrap()
    }
}

impl Object for Thing {
    fn name(&self) -> &str {
        "a"
    }
    fn namespace(&self) -> &str {
        ""
    }
    fn uid(&self) -> &str {
        self.uid
    }
    fn resource_version(&self) -> &str {
        &self.version
    }
    fn label(&self, _: &str) -> Option<&str> {
        None
    }
}

/// A store that a watch fills, with a mutation cache over it.
struct Cached {
    store: Arc<Indexer<Thing>>,
    cache: MutationCache<Thing>,
}

impl Cached {
    /// With `adds`, the cache also returns objects that the store does not have yet.
    fn new(adds: bool) -> Arc<Self> {
        let all = IndexFunc::new(|_: &Thing| vec!["x".to_owned()]);
        let store = Arc::new(Indexer::new(
            Accessor::object(),
            Indexers::new().with("all", all),
        ));
        let cache = MutationCache::builder(Accessor::object(), Arc::clone(&store) as _)
            .indexer(Arc::clone(&store))
            .include_adds(adds)
            .build();
        Arc::new(Self { store, cache })
    }

    /// Returns the version that the cache has, read by a random method, or 0 if it has no object.
    fn read(&self) -> usize {
        if any(2) == 0 {
            return self
                .cache
                .get_by_key("a")
                .unwrap()
                .map_or(0, |thing| thing.version());
        }
        let found = self.cache.by_index("all", "x").unwrap();
        assert!(found.len() <= 1, "duplicate object: {found:?}");
        found.first().map_or(0, |thing| thing.version())
    }

    /// Delivers a version to the store, and to the handler if there is one.
    fn watch(&self, version: usize, handler: bool) {
        let thing = Thing::new(version);
        self.store.add(Arc::clone(&thing)).unwrap();
        if handler {
            self.cache.on_add_or_update(&thing).unwrap();
        }
    }

    /// Delivers these versions from another thread.
    fn watches(
        self: &Arc<Self>,
        versions: impl IntoIterator<Item = usize> + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let cached = Arc::clone(self);
        let handler = any(2) == 0;
        thread::spawn(move || {
            versions
                .into_iter()
                .for_each(|version| cached.watch(version, handler));
        })
    }
}

/// A mutation is visible to all later reads, in this version or a newer one: it stays in the
/// overlay until it is in the store.
fn assert_mutation_is_visible_to_later_reads(adds: bool) {
    let cached = Cached::new(adds);
    if !adds {
        cached.watch(1, false);
    }
    let watch = cached.watches(2..=5);
    let writer = thread::spawn({
        let cached = Arc::clone(&cached);
        move || {
            for version in [3, 5] {
                cached.cache.mutation(Thing::new(version)).unwrap();
                let read = cached.read();
                assert!(read >= version, "read {read} after writing {version}");
            }
        }
    });
    let reader = thread::spawn({
        let cached = Arc::clone(&cached);
        move || {
            let mut newest = 0;
            for _ in 0..3 {
                let read = cached.read();
                assert!(read >= newest, "{read} after {newest}");
                newest = read;
            }
        }
    });
    join_all([watch, writer, reader]);
    assert_eq!(cached.read(), 5);
}

#[test]
fn m2_m3_update_is_visible_to_later_reads() {
    check(|| assert_mutation_is_visible_to_later_reads(false));
}

#[test]
fn m2_m3_create_is_visible_to_later_reads() {
    check(|| assert_mutation_is_visible_to_later_reads(true));
}

#[test]
fn m1_newer_of_two_mutations_is_read() {
    check(|| {
        let cached = Cached::new(true);
        let writers = [1, 2].map(|version| {
            let cached = Arc::clone(&cached);
            thread::spawn(move || {
                cached.cache.mutation(Thing::new(version)).unwrap();
                assert!(cached.read() >= version);
            })
        });
        let watch = cached.watches([1]);
        join_all(writers.into_iter().chain([watch]));
        assert_eq!(cached.read(), 2);
    });
}

/// A late mutation does not restore a deleted object. An object created later under the same name
/// is found.
#[test]
fn m4_late_mutation_does_not_restore_deleted_object() {
    check(|| {
        let cached = Cached::new(true);
        cached.watch(1, false);
        let recreated = any(2) == 0;
        let watch = thread::spawn({
            let cached = Arc::clone(&cached);
            move || {
                let gone = Deleted::Final(Thing::new(4));
                cached.store.delete(gone.clone()).unwrap();
                cached.cache.on_delete(&gone).unwrap();
            }
        });
        let writer = thread::spawn({
            let cached = Arc::clone(&cached);
            move || {
                cached.cache.mutation(Thing::new(3)).unwrap();
                if recreated {
                    cached.cache.mutation(Thing::with_uid("second", 6)).unwrap();
                    assert_eq!(cached.read(), 6);
                }
            }
        });
        let reader = thread::spawn({
            let cached = Arc::clone(&cached);
            move || {
                for _ in 0..2 {
                    cached.read();
                }
            }
        });
        join_all([watch, writer, reader]);
        assert_eq!(cached.read(), if recreated { 6 } else { 0 });
    });
}

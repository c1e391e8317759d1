//! The common parts of the benches: the objects, and the two caches that are compared. Each bench
//! uses only some of them.
#![allow(dead_code)]

pub(crate) mod bare;
pub(crate) mod custom;
pub(crate) mod pods;
pub(crate) mod replay;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use k8s_informer::object::{Key, ResourceVersion};
use k8s_informer::store::{IndexFunc, Indexers, ThreadSafeStore};
use parking_lot::RwLock;

/// An object that consists of a key like `team-7/app-0042-5d8f9c7b6d-00042` and one of ten
/// versions.
pub(crate) struct Named {
    pub(crate) key: Key,
    pub(crate) version: usize,
}

pub(crate) type Function = fn(&Named) -> String;

/// Returns the value of an object in an index with a thousand values.
pub(crate) fn app(object: &Named) -> String {
    object.key[7..15].to_owned()
}

/// Returns the value of an object in an index with ten values.
pub(crate) fn version(object: &Named) -> String {
    object.version.to_string()
}

/// Returns the value of an object in an index with one value.
pub(crate) fn all_equal(_: &Named) -> String {
    "all".to_owned()
}

/// Returns the value of an object in an index with a different value for each object.
pub(crate) fn key_of(object: &Named) -> String {
    object.key.to_string()
}

/// Returns objects in the order of their creation.
pub(crate) fn objects(count: usize) -> Vec<Arc<Named>> {
    (0..count)
        .map(|n| format!("team-7/app-{:04}-5d8f9c7b6d-{n:05}", n % 1000).into())
        .map(|key| Arc::new(Named { key, version: 0 }))
        .collect()
}

/// Returns the same object with the next version.
pub(crate) fn next_version(object: &Named) -> Arc<Named> {
    Arc::new(Named {
        key: Key::clone(&object.key),
        version: (object.version + 1) % 10,
    })
}

/// Pseudorandom numbers for access patterns that do not favor CPU caches.
pub(crate) struct Jump(u64);

impl Jump {
    pub(crate) fn new() -> Self {
        Self(7)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// The common interface of the caches.
pub(crate) trait Cache: Default + Send + Sync + 'static {
    fn get(&self, key: &str) -> Option<Arc<Named>>;
    fn add(&self, object: &Arc<Named>);
    fn delete(&self, key: &str);
    fn list(&self) -> Vec<Arc<Named>>;
    fn by_index(&self, name: &str, value: &str) -> Vec<Arc<Named>>;
    fn values(&self, name: &str) -> Vec<Arc<str>>;
    fn replace(&self, objects: &[Arc<Named>]);
    fn add_index(&self, name: &str, function: Function);
}

/// The store of this crate.
pub(crate) struct Ours(ThreadSafeStore<Named>);

impl Default for Ours {
    fn default() -> Self {
        Self(ThreadSafeStore::new(Indexers::new()))
    }
}

impl Cache for Ours {
    fn get(&self, key: &str) -> Option<Arc<Named>> {
        self.0.get(key)
    }

    fn add(&self, object: &Arc<Named>) {
        self.0
            .add(Key::clone(&object.key), Arc::clone(object))
            .expect("index functions do not fail");
    }

    fn delete(&self, key: &str) {
        self.0.delete(key);
    }

    fn list(&self) -> Vec<Arc<Named>> {
        self.0.list()
    }

    fn by_index(&self, name: &str, value: &str) -> Vec<Arc<Named>> {
        self.0.by_index(name, value).expect("the index exists")
    }

    fn values(&self, name: &str) -> Vec<Arc<str>> {
        self.0.index_values(name).expect("the index exists")
    }

    fn replace(&self, objects: &[Arc<Named>]) {
        let keyed = objects
            .iter()
            .map(|object| (Key::clone(&object.key), Arc::clone(object)));
        self.0
            .replace(keyed.collect(), ResourceVersion::new("1"))
            .expect("index functions do not fail");
    }

    fn add_index(&self, name: &str, function: Function) {
        let function = IndexFunc::new(move |object| vec![function(object)]);
        self.0
            .add_indexers(Indexers::new().with(name, function))
            .expect("the index is new");
    }
}

/// A map and its indexes under one lock. The lock is held as long as in client-go's
/// `threadSafeMap`. Removed objects are dropped after the lock is released, as in Go.
#[derive(Default)]
pub(crate) struct Plain(RwLock<State>);

#[derive(Default)]
struct State {
    items: HashMap<Key, Arc<Named>>,
    indices: Vec<Index>,
}

struct Index {
    name: String,
    function: Function,
    keys: HashMap<Arc<str>, HashSet<Key>>,
}

impl Cache for Plain {
    fn get(&self, key: &str) -> Option<Arc<Named>> {
        self.0.read().items.get(key).map(Arc::clone)
    }

    fn add(&self, object: &Arc<Named>) {
        let mut state = self.0.write();
        let State { items, indices } = &mut *state;
        let old = items.insert(Key::clone(&object.key), Arc::clone(object));
        for index in indices {
            index.update(old.as_deref(), object);
        }
        drop((state, old));
    }

    fn delete(&self, key: &str) {
        let mut state = self.0.write();
        let State { items, indices } = &mut *state;
        let old = items.remove(key);
        for index in indices {
            index.remove(
                &(index.function)(old.as_ref().expect("the key exists")),
                key,
            );
        }
        drop((state, old));
    }

    fn list(&self) -> Vec<Arc<Named>> {
        self.0.read().items.values().map(Arc::clone).collect()
    }

    fn by_index(&self, name: &str, value: &str) -> Vec<Arc<Named>> {
        let state = self.0.read();
        let keys = state.index(name).keys.get(value).into_iter().flatten();
        keys.map(|key| Arc::clone(&state.items[key])).collect()
    }

    fn values(&self, name: &str) -> Vec<Arc<str>> {
        self.0
            .read()
            .index(name)
            .keys
            .keys()
            .map(Arc::clone)
            .collect()
    }

    fn replace(&self, objects: &[Arc<Named>]) {
        let items = objects
            .iter()
            .map(|object| (Key::clone(&object.key), Arc::clone(object)))
            .collect();
        let mut state = self.0.write();
        let State {
            items: old,
            indices,
        } = &mut *state;
        let old = (
            std::mem::replace(old, items),
            indices.iter_mut().map(Index::clear).collect::<Vec<_>>(),
        );
        state.fill(0);
        drop((state, old));
    }

    fn add_index(&self, name: &str, function: Function) {
        let mut state = self.0.write();
        let new = state.indices.len();
        state.indices.push(Index {
            name: name.to_owned(),
            function,
            keys: HashMap::new(),
        });
        state.fill(new);
    }
}

impl State {
    fn index(&self, name: &str) -> &Index {
        self.indices
            .iter()
            .find(|index| index.name == name)
            .expect("the index exists")
    }

    fn fill(&mut self, first: usize) {
        for index in &mut self.indices[first..] {
            self.items
                .values()
                .for_each(|object| index.update(None, object));
        }
    }
}

impl Index {
    fn update(&mut self, old: Option<&Named>, new: &Named) {
        let value = (self.function)(new);
        if let Some(old) = old {
            let old = (self.function)(old);
            if old == value {
                return;
            }
            self.remove(&old, &new.key);
        }
        self.keys
            .entry(value.into())
            .or_default()
            .insert(Key::clone(&new.key));
    }

    fn remove(&mut self, value: &str, key: &str) {
        let Some(keys) = self.keys.get_mut(value) else {
            return;
        };
        keys.remove(key);
        if keys.is_empty() {
            self.keys.remove(value);
        }
    }

    fn clear(&mut self) -> HashMap<Arc<str>, HashSet<Key>> {
        std::mem::take(&mut self.keys)
    }
}

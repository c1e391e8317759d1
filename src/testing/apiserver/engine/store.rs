//! The objects, their versions and their history. The store corresponds to the etcd of a
//! kube-apiserver.
//!
//! It does not depend on HTTP or on the rules of the API, which are in [`write`](super::write).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::testing::apiserver::model::object::{Content, Object, set_meta};

/// The key of an object: its resource, and `namespace/name`, or `name` without a namespace. Keys
/// sort as in etcd.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) resource: usize,
    pub(crate) path: Arc<str>,
}

/// A collection: all objects of a resource, or those in one namespace.
#[derive(Clone, Debug)]
pub(crate) struct Collection {
    pub(crate) resource: usize,
    /// Empty, or `namespace/`.
    pub(crate) prefix: String,
}

/// The change from one version to the next.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) version: u64,
    pub(crate) key: Key,
    /// The previous state, or `None` for a creation.
    pub(crate) old: Option<Arc<Object>>,
    pub(crate) new: NewState,
}

#[derive(Debug)]
pub(crate) enum NewState {
    Stored(Arc<Object>),
    /// The last state, with the version of the deletion.
    Deleted(Arc<Object>),
}

/// All objects of a server, their common version counter, and the recent history.
#[derive(Clone)]
pub(crate) struct Store {
    version: u64,
    /// States before this version are not available.
    floor: u64,
    /// Watches cannot start before this version. It can be higher than `floor`, because etcd keeps
    /// older states than the watch cache.
    watch_floor: u64,
    objects: BTreeMap<Key, Arc<Object>>,
    /// The changes up to `version`, oldest first and without gaps.
    history: VecDeque<Arc<Change>>,
    history_limit: usize,
    random: u64,
}

impl Key {
    pub(crate) fn new(resource: usize, namespace: Option<&str>, name: &str) -> Self {
        let path = match namespace {
            Some(namespace) => format!("{namespace}/{name}").into(),
            None => name.into(),
        };
        Self { resource, path }
    }
}

impl Collection {
    pub(crate) fn new(resource: usize, namespace: Option<&str>) -> Self {
        Self {
            resource,
            prefix: namespace
                .map(|namespace| format!("{namespace}/"))
                .unwrap_or_default(),
        }
    }

    pub(crate) fn contains(&self, key: &Key) -> bool {
        key.resource == self.resource && key.path.starts_with(&self.prefix)
    }
}

impl Store {
    pub(crate) fn new(seed: u64, history_limit: usize) -> Self {
        Self {
            version: 0,
            floor: 0,
            watch_floor: 0,
            objects: BTreeMap::new(),
            history: VecDeque::new(),
            history_limit,
            random: seed,
        }
    }

    /// Returns the version of the newest change.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Returns the oldest version that can be listed.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Returns the oldest version from which a watch can start.
    pub(crate) fn watch_floor(&self) -> u64 {
        self.watch_floor.max(self.floor)
    }

    /// Makes states before the current version unavailable. The changes stay for open watches that
    /// have not read them yet.
    pub(crate) fn compact(&mut self) {
        self.floor = self.version;
    }

    /// Rejects watches that start before the current version. Lists at older versions still work.
    pub(crate) fn forget_events(&mut self) {
        self.watch_floor = self.version;
    }

    /// Restores the state of `then`, except the random state. Generated identifiers therefore do
    /// not repeat.
    pub(crate) fn restore(&mut self, then: &Self) {
        *self = Self {
            random: self.random,
            history_limit: self.history_limit,
            ..then.clone()
        };
    }

    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Returns all objects in the order of their keys.
    pub(crate) fn objects(&self) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        self.objects.iter()
    }

    /// Returns the objects of a collection in order, as they were at `version`, which must not be
    /// below the floor.
    pub(crate) fn snapshot(
        &self,
        collection: &Collection,
        version: u64,
    ) -> Vec<(Arc<str>, Arc<Object>)> {
        let start = Key {
            resource: collection.resource,
            path: collection.prefix.as_str().into(),
        };
        let current = self
            .objects
            .range(start..)
            .take_while(|(key, _)| collection.contains(key))
            .map(|(key, object)| (key.path.clone(), object.clone()));
        if version >= self.version {
            return current.collect();
        }
        let mut then: BTreeMap<Arc<str>, Arc<Object>> = current.collect();
        let later = self
            .history
            .iter()
            .rev()
            .take_while(|change| change.version > version);
        for change in later.filter(|change| collection.contains(&change.key)) {
            match &change.old {
                Some(old) => then.insert(change.key.path.clone(), old.clone()),
                None => then.remove(&change.key.path),
            };
        }
        then.into_iter().collect()
    }

    /// Returns up to `limit` changes after `version`, oldest first, or `None` if some of them were
    /// dropped.
    pub(crate) fn changes_after(&self, version: u64, limit: usize) -> Option<Vec<Arc<Change>>> {
        let first = self
            .history
            .front()
            .map_or(self.version + 1, |change| change.version);
        if version.saturating_add(1) < first {
            return None;
        }
        let start = self
            .history
            .partition_point(|change| change.version <= version);
        Some(self.history.range(start..).take(limit).cloned().collect())
    }

    /// Stores `content` under `key` with the next version.
    pub(crate) fn put(&mut self, key: Key, mut content: Content) -> Arc<Object> {
        self.version += 1;
        set_meta(&mut content, "resourceVersion", self.version.to_string());
        let object = Arc::new(Object::new(content));
        let old = self.objects.insert(key.clone(), object.clone());
        self.record(key, old, NewState::Stored(object.clone()));
        object
    }

    /// Removes the object under `key` with the next version.
    pub(crate) fn remove(&mut self, key: &Key) -> Option<Arc<Object>> {
        let old = self.objects.remove(key)?;
        self.version += 1;
        let last = Arc::new(old.at_version(self.version));
        self.record(key.clone(), Some(old), NewState::Deleted(last.clone()));
        Some(last)
    }

    fn record(&mut self, key: Key, old: Option<Arc<Object>>, new: NewState) {
        self.history.push_back(Arc::new(Change {
            version: self.version,
            key,
            old,
            new,
        }));
        while self.history.len() > self.history_limit {
            if let Some(forgotten) = self.history.pop_front() {
                self.floor = self.floor.max(forgotten.version);
            }
        }
    }

    /// Returns a random number (SplitMix64), which is good enough for identifiers that only have to
    /// differ.
    pub(crate) fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::testing::apiserver::model::object::meta_str;
    use serde_json::json;

    const ALL: Collection = Collection {
        resource: 0,
        prefix: String::new(),
    };

    fn content(name: &str, value: u32) -> Content {
        json!({ "metadata": { "name": name }, "value": value })
            .as_object()
            .unwrap()
            .clone()
    }

    fn key(name: &str) -> Key {
        Key::new(0, Some("ns"), name)
    }

    fn state(store: &Store, version: u64) -> Vec<(String, u64)> {
        let value = |object: &Object| object.content()["value"].as_u64().unwrap();
        store
            .snapshot(&ALL, version)
            .iter()
            .map(|(path, o)| (path.to_string(), value(o)))
            .collect()
    }

    #[test]
    fn changes_and_deletions_get_consecutive_versions() {
        let mut store = Store::new(1, 100);
        let a = store.put(key("a"), content("a", 1));
        assert_eq!(meta_str(a.content(), "resourceVersion"), "1");
        store.put(key("a"), content("a", 2));
        let gone = store.remove(&key("a")).unwrap();
        assert_eq!(meta_str(gone.content(), "resourceVersion"), "3");
        assert_eq!(gone.content()["value"], 2);
        assert!(store.remove(&key("a")).is_none());
        assert_eq!(store.version(), 3);
    }

    #[test]
    fn snapshot_returns_any_version_in_the_history() {
        let mut store = Store::new(1, 100);
        store.put(key("a"), content("a", 1));
        store.put(key("b"), content("b", 2));
        store.put(key("a"), content("a", 3));
        store.remove(&key("b"));
        store.put(key("c"), content("c", 5));
        store.put(Key::new(1, None, "other"), content("other", 6));
        let at = |version| {
            state(&store, version)
                .into_iter()
                .map(|(_, value)| value)
                .collect::<Vec<_>>()
        };
        assert!(at(0).is_empty());
        assert_eq!(at(1), [1]);
        assert_eq!(at(2), [1, 2]);
        assert_eq!(at(3), [3, 2]);
        assert_eq!(at(4), [3]);
        assert_eq!(at(6), [3, 5]);
        let one = Collection::new(0, Some("n"));
        assert!(
            store.snapshot(&one, 6).is_empty(),
            "a namespace is not a prefix of another one's name"
        );
    }

    #[test]
    fn objects_sort_like_etcd_keys() {
        let mut store = Store::new(1, 100);
        for namespace in ["a", "a-b", "b"] {
            store.put(Key::new(0, Some(namespace), "x"), content("x", 1));
        }
        let paths: Vec<String> = state(&store, 3).into_iter().map(|(path, _)| path).collect();
        assert_eq!(paths, ["a-b/x", "a/x", "b/x"]);
    }

    #[test]
    fn history_keeps_only_the_latest_changes() {
        let mut store = Store::new(1, 2);
        for value in 1..=4 {
            store.put(key("a"), content("a", value));
        }
        assert_eq!(store.floor(), 2);
        assert_eq!(store.changes_after(2, 10).unwrap().len(), 2);
        assert_eq!(store.changes_after(2, 1).unwrap()[0].version, 3);
        assert!(store.changes_after(1, 10).is_none());
        assert!(store.changes_after(u64::MAX, 10).unwrap().is_empty());
        assert_eq!(state(&store, 2), [("ns/a".to_owned(), 2)]);
    }

    #[test]
    fn compaction_raises_the_floor_and_keeps_changes() {
        let mut store = Store::new(1, 10);
        store.put(key("a"), content("a", 1));
        store.put(key("a"), content("a", 2));
        store.compact();
        assert_eq!(store.floor(), 2);
        assert_eq!(store.changes_after(1, 10).unwrap().len(), 1);
    }
}

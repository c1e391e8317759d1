//! The objects, their versions and their history. The store corresponds to the etcd of a
//! kube-apiserver.
//!
//! It does not depend on HTTP or on the rules of the API, which are in [`write`](super::write).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::apiserver::model::garbage::{owner_references, uid_of};
use crate::apiserver::model::object::{Content, Key, Object, set_meta};

/// The number of paged lists of which the store keeps the state.
const PAGED_LISTS: usize = 8;

/// The objects of a collection in order, at one version.
pub(crate) type Snapshot = Arc<Vec<(Key, Arc<Object>)>>;

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
    /// The uids of owners, each with the keys of the objects that refer to it.
    dependents: BTreeSet<(String, Key)>,
    /// The snapshots of lists that have further pages, with their prefixes and versions, newest
    /// last.
    paged: VecDeque<(String, u64, Snapshot)>,
    /// The changes up to `version`, oldest first and without gaps.
    history: VecDeque<Arc<Change>>,
    history_limit: usize,
    random: u64,
}

impl Store {
    pub(crate) fn new(seed: u64, history_limit: usize) -> Self {
        Self {
            version: 0,
            floor: 0,
            watch_floor: 0,
            objects: BTreeMap::new(),
            dependents: BTreeSet::new(),
            paged: VecDeque::new(),
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

    pub(crate) fn get(&self, key: &str) -> Option<&Arc<Object>> {
        self.objects.get(key)
    }

    /// Returns all current objects whose keys begin with `prefix`, in order.
    pub(crate) fn objects(&self, prefix: &str) -> impl Iterator<Item = (&Key, &Arc<Object>)> {
        let objects = self.objects.range(Key::from(prefix)..);
        objects.take_while(move |(key, _)| key.starts_with(prefix))
    }

    /// Returns the keys of the objects that refer to the owner with this uid.
    pub(crate) fn dependents(&self, uid: &str) -> impl Iterator<Item = &Key> {
        let dependents = self.dependents.range((uid.to_owned(), Key::from(""))..);
        dependents
            .take_while(move |(owner, _)| owner == uid)
            .map(|(_, key)| key)
    }

    /// Returns the objects whose keys begin with `prefix`, as they were at `version`, which must
    /// not be below the floor.
    pub(crate) fn snapshot(&self, prefix: &str, version: u64) -> Snapshot {
        let is_it = |(of, at, _): &&(String, u64, _)| of == prefix && *at == version;
        if let Some((.., known)) = self.paged.iter().find(is_it) {
            return known.clone();
        }
        let current = self.objects(prefix);
        let current = current.map(|(key, object)| (key.clone(), object.clone()));
        if version >= self.version {
            return Arc::new(current.collect());
        }
        let mut then: BTreeMap<Key, Arc<Object>> = current.collect();
        let later = self
            .history
            .iter()
            .rev()
            .take_while(|change| change.version > version);
        for change in later.filter(|change| change.key.starts_with(prefix)) {
            match &change.old {
                Some(old) => then.insert(change.key.clone(), old.clone()),
                None => then.remove(&change.key),
            };
        }
        Arc::new(then.into_iter().collect())
    }

    /// Keeps a snapshot for the next pages, each of which would copy the collection otherwise.
    pub(crate) fn keep_for_pages(&mut self, prefix: &str, version: u64, snapshot: Snapshot) {
        self.paged
            .retain(|(.., kept)| !Arc::ptr_eq(kept, &snapshot));
        self.paged.push_back((prefix.to_owned(), version, snapshot));
        if self.paged.len() > PAGED_LISTS {
            self.paged.pop_front();
        }
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
        let entries = |object: &Object| -> Vec<(String, Key)> {
            let references = owner_references(object.content());
            references
                .map(|one| (uid_of(one).to_owned(), key.clone()))
                .collect()
        };
        for entry in old.iter().flat_map(|old| entries(old)) {
            self.dependents.remove(&entry);
        }
        if let NewState::Stored(object) = &new {
            self.dependents.extend(entries(object));
        }
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
    use crate::apiserver::model::object::meta_str;
    use serde_json::json;

    fn content(name: &str, value: u32) -> Content {
        json!({ "metadata": { "name": name }, "value": value })
            .as_object()
            .unwrap()
            .clone()
    }

    fn key(name: &str) -> Key {
        format!("g/r/ns/{name}").into()
    }

    fn state(store: &Store, version: u64) -> Vec<(String, u64)> {
        let value = |object: &Object| object.content()["value"].as_u64().unwrap();
        store
            .snapshot("g/r/", version)
            .iter()
            .map(|(key, o)| (key["g/r/".len()..].to_owned(), value(o)))
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
        store.put("g/s/other".into(), content("other", 6));
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
        assert!(
            store.snapshot("g/r/n/", 6).is_empty(),
            "a namespace is not a prefix of another one's name"
        );
    }

    #[test]
    fn objects_sort_like_etcd_keys() {
        let mut store = Store::new(1, 100);
        for namespace in ["a", "a-b", "b"] {
            store.put(format!("g/r/{namespace}/x").into(), content("x", 1));
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

    #[test]
    fn next_pages_share_the_snapshot_of_the_first() {
        let mut store = Store::new(1, 100);
        store.put(key("a"), content("a", 1));
        let first = store.snapshot("g/r/", 1);
        store.keep_for_pages("g/r/", 1, first.clone());
        store.put(key("b"), content("b", 2));
        assert!(Arc::ptr_eq(&first, &store.snapshot("g/r/", 1)));
        assert_eq!(store.snapshot("g/r/", 2).len(), 2);
        for version in 2..2 + PAGED_LISTS as u64 {
            let other = store.snapshot("g/r/ns/", 2);
            store.keep_for_pages("g/r/ns/", version, Arc::new(other.to_vec()));
        }
        let again = store.snapshot("g/r/", 1);
        assert!(!Arc::ptr_eq(&first, &again), "only the newest are kept");
        assert_eq!(again.len(), 1);
    }

    #[test]
    fn dependents_follow_changes_of_references() {
        let owned_by = |uids: &[&str]| {
            let references: Vec<_> = uids.iter().map(|uid| json!({ "uid": uid })).collect();
            let content = json!({ "metadata": { "ownerReferences": references } });
            content.as_object().unwrap().clone()
        };
        let mut store = Store::new(1, 100);
        store.put(key("a"), owned_by(&["1", "2"]));
        store.put(key("b"), owned_by(&["1"]));
        let keys = |store: &Store, uid| store.dependents(uid).cloned().collect::<Vec<_>>();
        assert_eq!(keys(&store, "1"), [key("a"), key("b")]);
        assert_eq!(keys(&store, "2"), [key("a")]);
        store.put(key("a"), owned_by(&["2"]));
        assert_eq!(keys(&store, "1"), [key("b")]);
        let then = store.clone();
        store.remove(&key("a"));
        assert!(keys(&store, "2").is_empty());
        store.restore(&then);
        assert_eq!(keys(&store, "2"), [key("a")]);
    }
}

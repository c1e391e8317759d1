//! The known objects of a queue: none, a map whose lookups can fail, or an indexer that the
//! consumer fills. Keys are sorted, as in the recorded traces.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_informer::Indexer;
use k8s_informer::object::Key;
use k8s_informer::queue::{Delta, Deltas, ProcessError};
use k8s_informer::store::{Indexers, KnownObjects, StoreError};
use serde_json::{Value, json};

use super::object::{Obj, accessor, obj, sorted, text};

pub(crate) struct Known {
    map: Arc<Map>,
    indexer: Arc<Sorted>,
    kind: String,
}

impl Known {
    pub(crate) fn new(kind: &Value) -> Self {
        let indexer = Arc::new(Sorted(Indexer::new(accessor(), Indexers::new())));
        Self {
            map: Arc::default(),
            indexer,
            kind: text(kind).to_owned(),
        }
    }

    pub(crate) fn objects(&self) -> Option<Arc<dyn KnownObjects<Obj>>> {
        match self.kind.as_str() {
            "none" => None,
            "map" => Some(self.map.clone()),
            "indexer" => Some(self.indexer.clone()),
            other => panic!("known {other}"),
        }
    }

    /// Applies popped deltas to the indexer.
    pub(crate) fn apply(&self, deltas: &Deltas<Obj>) -> Result<(), ProcessError> {
        if self.kind == "indexer" {
            for delta in deltas.iter() {
                match delta {
                    Delta::Deleted { gone, .. } => self.indexer.0.delete(gone.clone())?,
                    other => self
                        .indexer
                        .0
                        .update(Arc::clone(other.object().unwrap()))
                        .map(drop)?,
                }
            }
        }
        Ok(())
    }

    pub(crate) fn step(&self, op: &str, step: &Value) -> Value {
        if op != "known_list" {
            self.map.change(op, step);
            return json!({});
        }
        let Some(known) = self.objects() else {
            return json!({"objs": []});
        };
        let keys = known.list_keys();
        json!({"objs": sorted(keys.iter().filter_map(|key| known.lookup(key).ok().flatten()).collect())})
    }
}

#[derive(Default)]
struct Map(Mutex<BTreeMap<String, Entry>>);

#[derive(Default)]
struct Entry {
    object: Option<Arc<Obj>>,
    fails: bool,
}

impl Map {
    fn change(&self, op: &str, step: &Value) {
        let key = text(&step["key"]).to_owned();
        let mut entries = self.0.lock().unwrap();
        match op {
            "known_set" => drop(entries.insert(
                key,
                Entry {
                    object: Some(obj(&step["obj"])),
                    fails: false,
                },
            )),
            "known_del" => drop(entries.remove(&key)),
            "known_fail" => drop(entries.insert(
                key,
                Entry {
                    object: None,
                    fails: true,
                },
            )),
            "known_ghost" => drop(entries.insert(key, Entry::default())),
            other => panic!("op {other}"),
        }
    }
}

impl KnownObjects<Obj> for Map {
    fn list_keys(&self) -> Vec<Key> {
        self.0
            .lock()
            .unwrap()
            .keys()
            .map(|key| key.as_str().into())
            .collect()
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<Obj>>, StoreError> {
        match self.0.lock().unwrap().get(key) {
            Some(Entry { fails: true, .. }) => Err(StoreError::other("fails")),
            Some(entry) => Ok(entry.object.clone()),
            None => Ok(None),
        }
    }
}

struct Sorted(Indexer<Obj>);

impl KnownObjects<Obj> for Sorted {
    fn list_keys(&self) -> Vec<Key> {
        let mut keys = self.0.list_keys();
        keys.sort();
        keys
    }

    fn lookup(&self, key: &str) -> Result<Option<Arc<Obj>>, StoreError> {
        Ok(self.0.get_by_key(key))
    }
}

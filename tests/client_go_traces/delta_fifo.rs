use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use k8s_informer::{
    Deleted, Delta, DeltaFifo, Deltas, Indexer, Indexers, Key, KnownObjects, PopError, Queue, ReflectorStore,
    StoreError,
};
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, accessor, done, obj, objs, sorted, text, tombstone, transform};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let map = Arc::new(Map::default());
    let indexer = Arc::new(Sorted(Indexer::new(accessor(), Indexers::new())));
    let mut builder =
        DeltaFifo::builder(accessor()).emit_replaced(config["emit_replaced"].as_bool().unwrap());
    builder = match text(&config["known"]) {
        "none" => builder,
        "map" => builder.known_objects(Arc::clone(&map) as _),
        "indexer" => builder.known_objects(Arc::clone(&indexer) as _),
        other => panic!("known {other}"),
    };
    if let Some(transform) = transform(&config["transform"]) {
        builder = builder.transform(transform);
    }
    let applies = config["known"] == "indexer";
    Box::new(Subject { queue: builder.build(), map, indexer, applies })
}

struct Subject {
    queue: DeltaFifo<Obj>,
    map: Arc<Map>,
    indexer: Arc<Sorted>,
    applies: bool,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let Self { queue, map, .. } = self;
        match op {
            "add" => done(queue.add(obj(&step["obj"]))),
            "update" => done(queue.update(obj(&step["obj"]))),
            "delete" => done(queue.delete(Deleted::Final(obj(&step["obj"])))),
            "delete_tombstone" => done(queue.delete(tombstone(step))),
            "replace" => done(queue.replace(objs(&step["list"]), text(&step["rv"]))),
            "resync" => done(queue.resync()),
            "pop" => self.pop(step["process"] == "error"),
            "has_synced" => json!({"value": queue.has_synced()}),
            "done_fired" => json!({"value": queue.synced().is_done()}),
            "is_closed" => json!({"value": queue.is_closed()}),
            "close" => {
                queue.close();
                json!({})
            }
            "key_of" => key_of(queue, step),
            "known_list" => {
                let keys = match self.applies {
                    true => self.indexer.list_keys(),
                    false => map.list_keys(),
                };
                let get = |key: &Key| match self.applies {
                    true => self.indexer.get_by_key(key),
                    false => map.get_by_key(key),
                };
                json!({"objs": sorted(keys.iter().filter_map(|key| get(key).ok().flatten()).collect())})
            }
            _ if op.starts_with("known_") => {
                map.change(op, step);
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}

impl Subject {
    fn pop(&self, fails: bool) -> Value {
        if self.queue.is_empty() && !self.queue.is_closed() {
            return json!({"would_block": true});
        }
        let mut initial = false;
        let result = self.queue.pop(&mut |deltas, in_initial_list| {
            initial = in_initial_list;
            if fails {
                return Err("process".into());
            }
            if self.applies {
                for delta in deltas.iter() {
                    match delta {
                        Delta::Deleted(gone) => self.indexer.0.delete(gone)?,
                        other => self.indexer.0.update(Arc::clone(other.object().unwrap())).map(drop)?,
                    }
                }
            }
            Ok(())
        });
        match result {
            Ok(popped) => json!({"deltas": deltas(&popped), "initial": initial}),
            Err(PopError::Closed) => json!({"error": "closed"}),
            Err(PopError::Process { popped, .. }) => {
                json!({"deltas": deltas(&popped), "initial": initial, "error": "process"})
            }
            #[allow(unreachable_patterns)]
            Err(other) => panic!("{other}"),
        }
    }
}

fn key_of(queue: &DeltaFifo<Obj>, step: &Value) -> Value {
    let key = if step["deltas"].is_array() {
        let deltas: Vec<Delta<Obj>> = step["deltas"].as_array().unwrap().iter().map(delta).collect();
        queue.key_of(&Deltas::from(deltas))
    } else if step["tombstone"].is_object() {
        accessor().key_of_deleted(&tombstone(&step["tombstone"])).map(Some)
    } else {
        accessor().key(&obj(&step["obj"])).map(Some)
    };
    match key {
        Ok(Some(key)) => json!({"key": &*key}),
        Ok(None) => json!({"error": "zero_deltas"}),
        Err(_) => json!({"error": "key"}),
    }
}

fn delta(value: &Value) -> Delta<Obj> {
    match text(&value["type"]) {
        "Deleted" if value["tombstone"].is_object() => Delta::Deleted(tombstone(&value["tombstone"])),
        "Deleted" => Delta::Deleted(Deleted::Final(obj(&value["obj"]))),
        "Added" => Delta::Added(obj(&value["obj"])),
        "Updated" => Delta::Updated(obj(&value["obj"])),
        "Replaced" => Delta::Replaced(obj(&value["obj"])),
        "Sync" => Delta::Sync(obj(&value["obj"])),
        other => panic!("delta {other}"),
    }
}

fn deltas(deltas: &Deltas<Obj>) -> Value {
    let write = |delta: &Delta<Obj>| match delta {
        Delta::Added(object) => json!({"type": "Added", "obj": **object}),
        Delta::Updated(object) => json!({"type": "Updated", "obj": **object}),
        Delta::Replaced(object) => json!({"type": "Replaced", "obj": **object}),
        Delta::Sync(object) => json!({"type": "Sync", "obj": **object}),
        Delta::Deleted(Deleted::Final(object)) => json!({"type": "Deleted", "obj": **object}),
        Delta::Deleted(Deleted::FinalStateUnknown { key, last_known }) => {
            json!({"type": "Deleted", "tombstone": {"key": &**key, "obj": last_known.as_deref()}})
        }
        other => panic!("{other:?}"),
    };
    json!(deltas.iter().map(write).collect::<Vec<_>>())
}

/// A known-object lister whose lookups can be made to fail. Keys come in order, as the recorder's did.
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
            "known_set" => drop(entries.insert(key, Entry { object: Some(obj(&step["obj"])), fails: false })),
            "known_del" => drop(entries.remove(&key)),
            "known_fail" => drop(entries.insert(key, Entry { object: None, fails: true })),
            "known_ghost" => drop(entries.insert(key, Entry::default())),
            other => panic!("op {other}"),
        }
    }
}

impl KnownObjects<Obj> for Map {
    fn list_keys(&self) -> Vec<Key> {
        self.0.lock().unwrap().keys().map(|key| key.as_str().into()).collect()
    }

    fn get_by_key(&self, key: &str) -> Result<Option<Arc<Obj>>, StoreError> {
        match self.0.lock().unwrap().get(key) {
            Some(Entry { fails: true, .. }) => Err(StoreError::other("fails")),
            Some(entry) => Ok(entry.object.clone()),
            None => Ok(None),
        }
    }
}

/// An indexer whose keys come in order.
struct Sorted(Indexer<Obj>);

impl KnownObjects<Obj> for Sorted {
    fn list_keys(&self) -> Vec<Key> {
        let mut keys = self.0.list_keys();
        keys.sort();
        keys
    }

    fn get_by_key(&self, key: &str) -> Result<Option<Arc<Obj>>, StoreError> {
        Ok(self.0.get_by_key(key))
    }
}

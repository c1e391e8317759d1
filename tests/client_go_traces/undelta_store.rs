use std::sync::mpsc::{Receiver, channel};

use k8s_informer::Deleted;
use k8s_informer::store::{KnownObjects, ReflectorStore, Store, UndeltaStore};
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, accessor, class, done, found, keys, obj, objs, sorted, text};

pub(crate) fn build(_config: &Value) -> Box<dyn Replay> {
    let (sender, pushed) = channel();
    let store = UndeltaStore::new(accessor(), move |objects| {
        sender.send(sorted(objects)).unwrap();
    });
    Box::new(Subject { store, pushed })
}

struct Subject {
    store: UndeltaStore<Obj>,
    pushed: Receiver<Value>,
}

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let store = &self.store;
        let mut reply = match op {
            "add" => done(store.add(obj(&step["obj"]))),
            "update" => done(store.update(obj(&step["obj"]))),
            "delete" => done(store.delete(Deleted::Final(obj(&step["obj"])))),
            "replace" => done(store.replace(objs(&step["list"]), text(&step["rv"]))),
            "resync" => done(store.resync()),
            "list" => json!({"objs": sorted(store.list())}),
            "list_keys" => json!({"keys": keys(store.list_keys())}),
            "get" => match store.get(&obj(&step["obj"])) {
                Ok(object) => found(object),
                Err(error) => json!({"error": class(&error)}),
            },
            "get_by_key" => found(store.get_by_key(text(&step["key"]))),
            other => panic!("op {other}"),
        };
        reply["pushed"] = json!(self.pushed.try_iter().collect::<Vec<_>>());
        reply
    }
}

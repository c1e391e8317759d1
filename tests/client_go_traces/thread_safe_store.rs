use k8s_informer::Deleted;
use k8s_informer::store::ThreadSafeStore;
use serde_json::{Value, json};

use super::Replay;
use super::object::{
    Obj, done, found, index_answer, indexers, keys, obj, sorted, text, tombstone, version,
    version_text,
};
use super::store::{added, change, transaction, written};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let store = ThreadSafeStore::new(indexers(&config["indexers"]));
    Box::new(Subject(store.with_resource_version(|object: &Obj| {
        (!object.unkeyable).then_some(object.rv.as_str())
    })))
}

struct Subject(ThreadSafeStore<Obj>);

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let store = &self.0;
        let name = || text(&step["name"]);
        let key = || text(&step["key"]);
        let nothing = json!({});
        match op {
            "add" => done(store.add(key().into(), obj(&step["obj"])).map(drop)),
            "update" => done(store.update(key().into(), obj(&step["obj"])).map(drop)),
            "delete" => {
                store.delete(key());
                nothing
            }
            "delete_with_object" if step["tombstone"].is_object() => {
                done(store.delete_with_object(key(), &tombstone(&step["tombstone"])))
            }
            "delete_with_object" if step["obj"].is_object() => {
                done(store.delete_with_object(key(), &Deleted::Final(obj(&step["obj"]))))
            }
            "delete_with_object" => {
                store.delete(key());
                nothing
            }
            "replace" => {
                let items = step["items"].as_array().unwrap().iter();
                let items = items
                    .map(|item| (text(&item["key"]).into(), obj(&item["obj"])))
                    .collect();
                done(store.replace(items, version(step)))
            }
            "transaction" => {
                let changes = step["txns"].as_array().unwrap().iter();
                let changes = changes.map(|value| (text(&value["key"]).into(), change(value)));
                transaction(store.transaction(changes.collect()))
            }
            "get" => found(store.get(key())),
            "list" => json!({"objs": sorted(store.list())}),
            "list_keys" => json!({"keys": keys(store.list_keys())}),
            "index" => index_answer("objs", store.index(name(), &obj(&step["obj"])), sorted),
            "by_index" => {
                index_answer("objs", store.by_index(name(), text(&step["value"])), sorted)
            }
            "index_keys" => index_answer(
                "keys",
                store.index_keys(name(), text(&step["value"])),
                written,
            ),
            "list_index_func_values" => index_answer("values", store.index_values(name()), keys),
            "add_indexers" => added(store.add_indexers(indexers(&step["names"]))),
            "get_indexers" => json!({"names": written(store.index_names())}),
            "bookmark" => {
                store.bookmark(version(step));
                nothing
            }
            "last_rv" => json!({"rv": version_text(store.resource_version())}),
            "resync" => nothing,
            other => panic!("op {other}"),
        }
    }
}

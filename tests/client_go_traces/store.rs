use k8s_informer::store::{AddIndexersError, Change, ReflectorStore, TransactionError};
use k8s_informer::{Deleted, Indexer};
use serde_json::{Value, json};

use super::Replay;
use super::object::{
    Obj, accessor, class, done, found, index_answer, indexers, keys, obj, objs, sorted, text,
    tombstone, transform, version, version_text,
};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let indexer = Indexer::new(accessor(), indexers(&config["indexers"]));
    Box::new(Subject(match transform(&config["transform"]) {
        Some(transform) => indexer.with_transform(transform),
        None => indexer,
    }))
}

struct Subject(Indexer<Obj>);

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let store = &self.0;
        let name = || text(&step["name"]);
        match op {
            "add" => done(store.add(obj(&step["obj"])).map(drop)),
            "update" => done(store.update(obj(&step["obj"])).map(drop)),
            "delete" => done(store.delete(Deleted::Final(obj(&step["obj"])))),
            "delete_tombstone" => done(store.delete(tombstone(step))),
            "replace" => done(store.replace(objs(&step["list"]), version(step))),
            "transaction" => {
                let changes = step["txns"].as_array().unwrap().iter().map(change);
                transaction(store.transaction(changes.collect()))
            }
            "get" if step["tombstone"].is_object() => {
                found(store.get_by_key(text(&step["tombstone"]["key"])))
            }
            "get" => match store.get(&obj(&step["obj"])) {
                Ok(object) => found(object),
                Err(error) => json!({"error": class(&error)}),
            },
            "get_by_key" => found(store.get_by_key(text(&step["key"]))),
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
            "bookmark" => done(ReflectorStore::bookmark(store, version(step))),
            "last_rv" => json!({"rv": version_text(store.resource_version())}),
            "resync" => done(store.resync()),
            other => panic!("op {other}"),
        }
    }
}

pub(crate) fn change(value: &Value) -> Change<Obj> {
    match text(&value["type"]) {
        "add" => Change::Add(obj(&value["obj"])),
        "update" => Change::Update(obj(&value["obj"])),
        "delete" if value["tombstone"].is_object() => {
            Change::Delete(tombstone(&value["tombstone"]))
        }
        "delete" => Change::Delete(Deleted::Final(obj(&value["obj"]))),
        other => panic!("transaction {other}"),
    }
}

pub(crate) fn transaction(result: Result<(), TransactionError>) -> Value {
    match result {
        Ok(()) => json!({}),
        Err(error) => json!({
            "error": "transaction",
            "successful": error.successful,
            "total": error.total,
            "errors": error.errors.iter().map(class).collect::<Vec<_>>(),
        }),
    }
}

pub(crate) fn added(result: Result<(), AddIndexersError>) -> Value {
    match result {
        Ok(()) => json!({}),
        Err(AddIndexersError::Conflict { .. }) => json!({"error": "conflict"}),
        Err(_) => json!({"error": "index"}),
    }
}

/// Returns the texts as JSON. Does not sort them: they must already be sorted.
pub(crate) fn written(texts: Vec<impl AsRef<str>>) -> Value {
    json!(texts.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

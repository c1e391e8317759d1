use std::sync::Arc;

use k8s_informer::object::{Key, KeyError, ObjectName, split_meta_namespace_key};
use k8s_informer::selector::SelectorError;
use k8s_informer::store::Indexers;
use k8s_informer::{Deleted, Indexer, Lister, Selector};
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, accessor, index_func, keys, obj, text, tombstone};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let indexers = match config["namespace_index"].as_bool().unwrap() {
        true => Indexers::new().with_namespace(),
        false => Indexers::new(),
    };
    let indexer = Indexer::new(accessor(), indexers);
    for object in config["objects"].as_array().unwrap() {
        indexer.add(obj(object)).unwrap();
    }
    Box::new(Subject(Lister::new(Arc::new(indexer))))
}

struct Subject(Lister<Obj>);

impl Replay for Subject {
    fn step(&mut self, op: &str, step: &Value) -> Value {
        let lister = &self.0;
        let given = || match step["tombstone"].is_object() {
            true => tombstone(&step["tombstone"]),
            false => Deleted::Final(obj(&step["obj"])),
        };
        // The plain functions of this crate take only objects. A tombstone would not compile, so
        // its result is an error.
        let plain = || match given() {
            Deleted::Final(object) => Ok(object),
            Deleted::FinalStateUnknown { .. } => Err(KeyError::new("a tombstone")),
        };
        match op {
            "meta_namespace_key" => key(plain().and_then(|object| accessor().key(&object))),
            "deletion_handling_key" => key(accessor().key_of_deleted(&given())),
            // In this crate, an explicit key needs no wrapper type.
            "explicit_key" => key(Ok(text(&step["key"]).into())),
            "object_to_name" => match plain() {
                Ok(object) if !object.unkeyable => name(Ok(ObjectName::of(&*object))),
                _ => json!({"error": "key"}),
            },
            "deletion_handling_object_to_name" => match given() {
                Deleted::Final(object) if object.unkeyable => json!({"error": "key"}),
                Deleted::Final(object) => name(Ok(ObjectName::of(&*object))),
                Deleted::FinalStateUnknown { key, .. } => name(key.parse()),
            },
            "split_key" => name(
                split_meta_namespace_key(text(&step["key"]))
                    .map(|(namespace, name)| ObjectName::new(namespace, name)),
            ),
            "parse_object_name" => name(text(&step["key"]).parse()),
            "object_name_string" => {
                json!({"key": ObjectName::new(text(&step["ns"]), text(&step["name"])).to_string()})
            }
            "index_key" => key(index_func(text(&step["name"])).key(&obj(&step["obj"]))),
            "parse_selector" => with(
                selector(step),
                |selector| json!({"canonical": selector.to_string(), "empty": selector.is_empty()}),
            ),
            "matches" => with(
                selector(step),
                |selector| json!({"value": selector.matches_labels(|key| step["labels"].get(key).map(text))}),
            ),
            "list_all" => with(selector(step), |selector| listed(lister.select(&selector))),
            "list_all_by_namespace" => with(selector(step), |selector| {
                listed(lister.namespace(text(&step["ns"])).select(&selector))
            }),
            "lister_get" => {
                let name = text(&step["name"]);
                let object = match step["ns"].as_str() {
                    Some(namespace) => lister.namespace(namespace).get(name),
                    None => lister.get("", name),
                };
                match object {
                    Some(object) => json!({"obj": *object}),
                    None => json!({"error": "not_found"}),
                }
            }
            other => panic!("op {other}"),
        }
    }
}

fn selector(step: &Value) -> Result<Selector, SelectorError> {
    match step["nothing"].as_bool() {
        Some(true) => Ok(Selector::nothing()),
        _ => text(&step["selector"]).parse(),
    }
}

fn with(selector: Result<Selector, SelectorError>, reply: impl FnOnce(Selector) -> Value) -> Value {
    selector.map_or_else(|_| json!({"error": "selector"}), reply)
}

fn listed(objects: Vec<Arc<Obj>>) -> Value {
    json!({"keys": keys(objects.iter().map(|object| k8s_informer::object::meta_namespace_key(&**object)).collect())})
}

fn key(key: Result<Key, KeyError>) -> Value {
    key.map_or_else(|_| json!({"error": "key"}), |key| json!({"key": &*key}))
}

fn name(name: Result<ObjectName, KeyError>) -> Value {
    match name {
        Ok(name) => json!({"ns": name.namespace, "name": name.name}),
        Err(_) => json!({"error": "key_format"}),
    }
}

use std::sync::{Arc, Mutex};

use k8s_informer::Deleted;
use k8s_informer::handler::{FilteringHandler, HandlerFuncs, ResourceEventHandler};
use k8s_informer::object::meta_namespace_key;
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, obj, tombstone};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    let (calls, filtered) = (Notes::default(), Notes::default());
    let (adds, updates, deletes) = (calls.clone(), calls.clone(), calls.clone());
    let inner = HandlerFuncs::new()
        .on_add(move |object: &Arc<Obj>, initial| {
            adds.note(json!({"call": "add", "obj": **object, "initial": initial}));
        })
        .on_update(move |old: &Arc<Obj>, new: &Arc<Obj>| {
            updates.note(json!({"call": "update", "old": **old, "new": **new}));
        })
        .on_delete(move |gone: &Deleted<Obj>| {
            deletes.note(match gone {
                Deleted::Final(object) => json!({"call": "delete", "obj": **object}),
                Deleted::FinalStateUnknown { key, last_known } => {
                    let tombstone = json!({"key": &**key, "obj": last_known.as_deref()});
                    json!({"call": "delete", "tombstone": tombstone})
                }
            });
        });
    let notes = filtered.clone();
    let filter = move |object: &Obj| {
        notes.note(json!(format!(
            "{}@{}",
            meta_namespace_key(object),
            object.rv
        )));
        object.val.starts_with("keep")
    };
    let handler = FilteringHandler::new(filter, inner);
    Box::new(Subject {
        handler: Box::new(handler),
        calls,
        filtered,
        unwraps: config["tombstones"] == "unwrap",
    })
}

struct Subject {
    handler: Box<dyn ResourceEventHandler<Obj>>,
    calls: Notes,
    filtered: Notes,
    /// Whether the filter of the trace looks at the object in a tombstone.
    unwraps: bool,
}

impl Replay for Subject {
    /// The filter receives the object of a tombstone, as the filters that unwrap it do.
    fn deviates(&self, step: &Value) -> Option<&'static str> {
        let tombstone = &step["tombstone"];
        let is_equal = self.unwraps && tombstone["obj"].is_object();
        (tombstone.is_object() && !is_equal).then_some("H1")
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "on_add" => self
                .handler
                .on_add(&obj(&step["obj"]), step["initial"].as_bool().unwrap()),
            "on_update" => self
                .handler
                .on_update(&obj(&step["old"]), &obj(&step["new"])),
            "on_delete" => self
                .handler
                .on_delete(&match step["tombstone"].is_object() {
                    true => tombstone(&step["tombstone"]),
                    false => Deleted::Final(obj(&step["obj"])),
                }),
            other => panic!("op {other}"),
        }
        let filtered = match &step["tombstone"]["key"] {
            Value::String(key) => {
                self.filtered.take();
                vec![json!(format!("tombstone:{key}"))]
            }
            _ => self.filtered.take(),
        };
        json!({"calls": self.calls.take(), "filtered": filtered})
    }
}

#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<Value>>>);

impl Notes {
    fn note(&self, note: Value) {
        self.0.lock().unwrap().push(note);
    }

    fn take(&self) -> Vec<Value> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

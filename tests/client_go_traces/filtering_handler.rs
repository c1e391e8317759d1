use std::sync::{Arc, Mutex};

use k8s_informer::Deleted;
use k8s_informer::handler::{FilteringHandler, HandlerFuncs, ResourceEventHandler};
use k8s_informer::object::meta_namespace_key;
use serde_json::{Value, json};

use super::Replay;
use super::object::{Obj, obj, text, tombstone};

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
    let (filtered_objects, filtered_tombstones) = (filtered.clone(), filtered.clone());
    let mode = text(&config["tombstones"]).to_owned();
    let filter = move |object: &Obj| {
        filtered_objects.note(json!(format!(
            "{}@{}",
            meta_namespace_key(object),
            object.rv
        )));
        passes(object)
    };
    let handler = FilteringHandler::new(filter, inner).tombstones(move |gone| {
        filtered_tombstones.note(json!(format!("tombstone:{}", gone.key())));
        match mode.as_str() {
            "pass" => true,
            "drop" => false,
            "unwrap" => gone.object().is_some_and(|object| passes(object)),
            other => panic!("tombstones {other}"),
        }
    });
    Box::new(Subject {
        handler: Box::new(handler),
        calls,
        filtered,
    })
}

fn passes(object: &Obj) -> bool {
    object.val.starts_with("keep")
}

struct Subject {
    handler: Box<dyn ResourceEventHandler<Obj>>,
    calls: Notes,
    filtered: Notes,
}

impl Replay for Subject {
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
        json!({"calls": self.calls.take(), "filtered": self.filtered.take()})
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

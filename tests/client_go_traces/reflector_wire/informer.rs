//! Sink `informer`: a whole `SharedIndexInformer` with one handler.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
use k8s_informer::object::meta_namespace_key;
use k8s_informer::time::Clock;
use k8s_informer::{Deleted, Done, DynamicObject, Object, SharedIndexInformer};
use serde_json::{Map, Value, json};

use super::options;
use super::script::Script;
use crate::client_go_traces::object::{text, version_text};

/// The maximum time until expected results arrive, in real time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the notifications that the handler received beyond the expected ones.
pub(super) fn run(config: &Value, script: &Arc<Script>) -> Vec<Value> {
    let clock: Arc<dyn Clock> = Arc::new(script.clock.clone());
    let reflector = options(config, clock, &script.recorder);
    let informer = SharedIndexInformer::new(
        script.lister_watcher(),
        SharedIndexInformerOptions::new()
            .queue(InformerQueue::RealFifo)
            .reflector(reflector),
    );

    let received = Arc::new(ReceivedEvents::default());
    let (adds, updates, deletes) = (
        Arc::clone(&received),
        Arc::clone(&received),
        Arc::clone(&received),
    );
    let handler = informer
        .add_event_handler(|handler| {
            handler
                .on_add(move |object: &Arc<DynamicObject>, initial| {
                    adds.push(json!({"type": "add", "obj": written(object), "initial": initial}));
                })
                .on_update(move |old: &Arc<DynamicObject>, new: &Arc<DynamicObject>| {
                    updates
                        .push(json!({"type": "update", "old": written(old), "new": written(new)}));
                })
                .on_delete(move |gone: &Deleted<DynamicObject>| {
                    deletes.push(match gone {
                        Deleted::Final(object) => json!({"type": "delete", "obj": written(object)}),
                        Deleted::FinalStateUnknown { key, last_known } => {
                            let object = last_known.as_deref().map(written);
                            json!({"type": "delete", "tombstone": {"key": &**key, "obj": object}})
                        }
                    });
                })
        })
        .unwrap();
    let (looked_at, seen) = (informer.clone(), Arc::clone(&received));
    script.look(move |want| {
        let informer = &want["informer"];
        let is_watch_list = want["request"]["query"]["sendInitialEvents"] == "true";
        let wanted = informer["events"].as_array().map_or(0, Vec::len);
        let events = sorted(seen.take(wanted), is_watch_list);
        let synced = |done: &Done, wanted: &Value| match wanted.as_bool() {
            Some(true) => done.wait_timeout(PATIENCE),
            _ => done.is_done(),
        };
        let observed = json!({
            "events": events,
            "cache": cache(&looked_at),
            "synced": synced(looked_at.synced(), &informer["synced"]),
            "handler_synced": synced(handler.synced(), &informer["handler_synced"]),
        });
        let version = version_text(looked_at.last_sync_resource_version());
        Map::from_iter([
            ("last_rv".to_owned(), json!(version)),
            ("informer".to_owned(), observed),
        ])
    });
    informer.run(&script.stop).unwrap();
    received.take(0)
}

/// The notifications that the handler received.
#[derive(Default)]
struct ReceivedEvents {
    /// The innermost lock.
    events: Mutex<Vec<Value>>,
    /// Notified on each event; `take` waits for it.
    changed: Condvar,
}

impl ReceivedEvents {
    fn push(&self, event: Value) {
        self.events.lock().unwrap().push(event);
        self.changed.notify_all();
    }

    /// Returns all events once there are at least `count`, or after a timeout.
    fn take(&self, count: usize) -> Vec<Value> {
        let events = self.events.lock().unwrap();
        let waited = self
            .changed
            .wait_timeout_while(events, PATIENCE, |events| events.len() < count);
        std::mem::take(&mut waited.unwrap().0)
    }
}

fn cache(informer: &SharedIndexInformer<DynamicObject>) -> Value {
    let entry = |object: Arc<DynamicObject>| {
        let key = meta_namespace_key(&*object);
        json!({"key": &*key, "rv": object.resource_version()})
    };
    let mut entries: Vec<Value> = informer.lister().list().into_iter().map(entry).collect();
    entries.sort_by_key(|entry| text(&entry["key"]).to_owned());
    json!(entries)
}

fn written(object: &DynamicObject) -> Value {
    let value: String = object.read("/data/i").unwrap().unwrap_or_default();
    let fields = [
        ("ns", object.namespace()),
        ("name", object.name()),
        ("rv", object.resource_version()),
        ("val", &value),
    ];
    let given = fields.into_iter().filter(|(_, text)| !text.is_empty());
    Value::Object(
        given
            .map(|(field, text)| (field.to_owned(), json!(text)))
            .collect(),
    )
}

/// Sorts events without a defined order: all events of a watch-list, otherwise adjacent tombstones.
fn sorted(mut events: Vec<Value>, is_watch_list: bool) -> Vec<Value> {
    let key = |event: &Value| match event["tombstone"]["key"].as_str() {
        Some(key) => key.to_owned(),
        None => {
            let object = event.get("obj").unwrap_or(&event["new"]);
            let field = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
            format!("{}/{}", field("ns"), field("name"))
        }
    };
    let are_alike = |a: &Value, b: &Value| {
        is_watch_list || a["tombstone"].is_object() && b["tombstone"].is_object()
    };
    for run in events.chunk_by_mut(are_alike) {
        run.sort_by_key(key);
    }
    events
}

//! The format of deltas in the traces.

use k8s_informer::Deleted;
use k8s_informer::queue::Delta;
use serde_json::{Value, json};

use super::object::{Obj, obj, text, tombstone};

pub(crate) fn read_delta(value: &Value) -> Delta<Obj> {
    match text(&value["type"]) {
        "Deleted" if value["tombstone"].is_object() => {
            Delta::Deleted(tombstone(&value["tombstone"]))
        }
        "Deleted" => Delta::Deleted(Deleted::Final(obj(&value["obj"]))),
        "Added" => Delta::Added(obj(&value["obj"])),
        "Updated" => Delta::Updated(obj(&value["obj"])),
        "Replaced" => Delta::Replaced(obj(&value["obj"])),
        "Sync" => Delta::Sync(obj(&value["obj"])),
        other => panic!("delta {other}"),
    }
}

pub(crate) fn write_deltas(deltas: &[Delta<Obj>]) -> Value {
    json!(deltas.iter().map(write_delta).collect::<Vec<_>>())
}

pub(crate) fn write_delta(delta: &Delta<Obj>) -> Value {
    match delta {
        Delta::Added(object) => json!({"type": "Added", "obj": **object}),
        Delta::Updated(object) => json!({"type": "Updated", "obj": **object}),
        Delta::Replaced(object) => json!({"type": "Replaced", "obj": **object}),
        Delta::Sync(object) => json!({"type": "Sync", "obj": **object}),
        Delta::Deleted(Deleted::Final(object)) => json!({"type": "Deleted", "obj": **object}),
        Delta::Deleted(Deleted::FinalStateUnknown { key, last_known }) => {
            json!({"type": "Deleted", "tombstone": {"key": &**key, "obj": last_known.as_deref()}})
        }
        Delta::ReplacedAll(list) => {
            let objects: Vec<&Obj> = list.objects.iter().map(|object| &**object).collect();
            json!({"type": "ReplacedAll", "rv": list.resource_version, "objs": objects})
        }
        Delta::SyncAll => json!({"type": "SyncAll"}),
        Delta::Bookmark(resource_version) => json!({"type": "Bookmark", "rv": &**resource_version}),
        other => panic!("{other:?}"),
    }
}

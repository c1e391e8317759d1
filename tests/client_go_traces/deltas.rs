//! The format of deltas in the traces.

use k8s_informer::Deleted;
use k8s_informer::object::KeyError;
use k8s_informer::queue::{Delta, Entry};
use serde_json::{Value, json};

use super::object::{Obj, accessor, obj, text, tombstone, version_text};

/// Reads a delta. Fails if its object has no key.
pub(crate) fn read_delta(value: &Value) -> Result<Delta<Obj>, KeyError> {
    let entry = || {
        let object = obj(&value["obj"]);
        Ok(Entry::new(accessor().key(&object)?, object))
    };
    let deleted = |gone: Deleted<Obj>| {
        let key = accessor().key_of_deleted(&gone)?;
        let version = None;
        Ok(Delta::Deleted { key, version, gone })
    };
    Ok(match text(&value["type"]) {
        "Deleted" if value["tombstone"].is_object() => deleted(tombstone(&value["tombstone"]))?,
        "Deleted" => deleted(Deleted::Final(obj(&value["obj"])))?,
        "Added" => Delta::Added(entry()?),
        "Updated" => Delta::Updated(entry()?),
        "Replaced" => Delta::Replaced(entry()?),
        "Sync" => Delta::Sync(entry()?),
        other => panic!("delta {other}"),
    })
}

pub(crate) fn write_deltas(deltas: &[Delta<Obj>]) -> Value {
    json!(deltas.iter().map(write_delta).collect::<Vec<_>>())
}

pub(crate) fn write_delta(delta: &Delta<Obj>) -> Value {
    match delta {
        Delta::Added(entry) => json!({"type": "Added", "obj": *entry.object}),
        Delta::Updated(entry) => json!({"type": "Updated", "obj": *entry.object}),
        Delta::Replaced(entry) => json!({"type": "Replaced", "obj": *entry.object}),
        Delta::Sync(entry) => json!({"type": "Sync", "obj": *entry.object}),
        Delta::Deleted { gone, .. } => match gone {
            Deleted::Final(object) => json!({"type": "Deleted", "obj": **object}),
            Deleted::FinalStateUnknown { key, last_known } => {
                let last_known = last_known.as_deref();
                json!({"type": "Deleted", "tombstone": {"key": &**key, "obj": last_known}})
            }
        },
        Delta::ReplacedAll(list) => {
            let objects: Vec<&Obj> = list.objects().map(|object| &**object).collect();
            let version = version_text(list.resource_version.clone());
            json!({"type": "ReplacedAll", "rv": version, "objs": objects})
        }
        Delta::SyncAll => json!({"type": "SyncAll"}),
        Delta::Bookmark(version) => {
            json!({"type": "Bookmark", "rv": version_text(version.clone())})
        }
        other => panic!("{other:?}"),
    }
}

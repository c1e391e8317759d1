//! Moves the fields that a program has created, updated and patched to those that it applies.
//!
//! The server keeps them apart, by the operation, although the manager has one name. The first
//! apply of a program that has written otherwise before therefore conflicts with itself. With
//! `force`, the server keeps a field that the program drops later: the update still owns it. The
//! remedy is that of kubectl and client-go, `csaupgrade`.

use serde::Serialize;
use serde_json::{Map, Value, json};

use k8s_informer::client::api::Patch;
use k8s_informer::error::Error;

/// Returns the patch that moves the fields that `manager` has updated to those that it applies.
/// `object` is the whole object. Returns `None` if there are none.
///
/// The patch is a conflict if the object has another version by then: its managers can be others.
pub(crate) fn migration(object: &impl Serialize, manager: &str) -> Option<Patch<Value>> {
    let object = serde_json::to_value(object).ok()?;
    let metadata = &object["metadata"];
    let managers = migrated(metadata["managedFields"].as_array()?, manager)?;
    // As in client-go, no `test`: the server would reject it as invalid instead of a conflict.
    Some(Patch::json(json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": managers},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata["resourceVersion"]},
    ])))
}

/// Whether an apply of `manager` has failed with a conflict that names `manager` itself. The
/// conflict can concern a subresource, so look at the managed fields.
pub(crate) fn names_manager(error: &Error, manager: &str) -> bool {
    let quoted = Value::from(manager).to_string();
    let details = error.status().and_then(|status| status.details.as_ref());
    let mut causes = details.into_iter().flat_map(|details| &details.causes);
    let is_named = causes
        .any(|cause| cause.reason == "FieldManagerConflict" && cause.message.contains(&quoted));
    error.is_conflict() && is_named
}

/// Returns the entries of the managed fields after the migration, or `None` if there is nothing to
/// migrate.
fn migrated(entries: &[Value], manager: &str) -> Option<Vec<Value>> {
    let is_of = |entry: &Value, operation: &str| {
        // A subresource has its own managers, and is written and applied on its own.
        let is_main = entry["subresource"].as_str().unwrap_or_default().is_empty();
        is_main && entry["manager"] == manager && entry["operation"] == operation
    };
    let is_update = |entry: &Value| is_of(entry, "Update");
    let first = entries.iter().find(|entry| is_update(entry))?;
    let applied = entries.iter().find(|entry| is_of(entry, "Apply"));
    let mut target = applied.unwrap_or(first).clone();
    target["operation"] = "Apply".into();
    // The paths of another version of the kind can be others, so client-go drops them.
    let same_version = |entry: &&Value| entry["apiVersion"] == target["apiVersion"];
    let updates = entries.iter().filter(|entry| is_update(entry));
    let fields: Vec<_> = updates
        .filter(same_version)
        .filter_map(|entry| entry["fieldsV1"].as_object())
        .cloned()
        .collect();
    if let Value::Object(owned) = &mut target["fieldsV1"] {
        fields.iter().for_each(|fields| add(owned, fields));
    }
    let mut target = Some(target);
    let mut migrated = Vec::new();
    for entry in entries {
        let is_replaced = match applied {
            Some(_) => is_of(entry, "Apply"),
            None => is_update(entry),
        };
        match is_replaced {
            true => migrated.extend(target.take()),
            false if is_update(entry) => {}
            false => migrated.push(entry.clone()),
        }
    }
    Some(migrated)
}

/// Adds the fields of `other` to a set in the form of `fieldsV1`, in which `{}` is a field without
/// children, and `.` a field beside its children.
fn add(fields: &mut Map<String, Value>, other: &Map<String, Value>) {
    for (name, theirs) in other {
        match (fields.get_mut(name), theirs) {
            (Some(Value::Object(own)), Value::Object(theirs)) => {
                let is_leaf = |set: &Map<String, Value>| set.is_empty() && name != ".";
                if is_leaf(own) != is_leaf(theirs) {
                    own.insert(".".to_owned(), json!({}));
                }
                add(own, theirs);
            }
            _ => {
                fields.insert(name.clone(), theirs.clone());
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn entry(manager: &str, operation: &str, version: &str, fields: Value) -> Value {
        json!({
            "manager": manager, "operation": operation, "apiVersion": version, "time": "2026-11-20T11:50:23Z",
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        })
    }

    fn of_status(mut entry: Value) -> Value {
        entry["subresource"] = "status".into();
        entry
    }

    #[test]
    fn union_keeps_maps_beside_their_fields() {
        let union = |mut own: Value, other: Value| {
            add(own.as_object_mut().unwrap(), other.as_object().unwrap());
            own
        };
        let own = json!({"f:a": {"f:x": {}}, "f:b": {}, "f:c": {"f:x": {}}, "f:d": {}});
        let other = json!({"f:a": {".": {}, "f:y": {}}, "f:b": {"f:x": {}}, "f:c": {}, "f:e": {}});
        let expected = json!({
            "f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {".": {}, "f:x": {}},
            "f:c": {".": {}, "f:x": {}}, "f:d": {}, "f:e": {},
        });
        assert_eq!(union(own.clone(), other.clone()), expected);
        assert_eq!(union(other, own.clone()), expected);
        assert_eq!(union(own.clone(), own.clone()), own);
    }

    #[test]
    fn updates_move_to_the_applied_fields() {
        let other = entry("other", "Update", "v1", json!({"f:z": {}}));
        let status = of_status(entry("me", "Update", "v1", json!({"f:status": {}})));
        let update = entry(
            "me",
            "Update",
            "v1",
            json!({"f:data": {".": {}, "f:b": {}}}),
        );
        let apply = entry("me", "Apply", "v1", json!({"f:data": {"f:a": {}}}));
        let both = entry(
            "me",
            "Apply",
            "v1",
            json!({"f:data": {".": {}, "f:a": {}, "f:b": {}}}),
        );
        let entries = [apply.clone(), other.clone(), update.clone(), status.clone()];
        let migrated_entries = migrated(&entries, "me").unwrap();
        assert_eq!(migrated_entries, [both, other.clone(), status.clone()]);
        assert_eq!(migrated(&migrated_entries, "me"), None);
        // Without an applied field, the update becomes the apply.
        let became = entry("me", "Apply", "v1", update["fieldsV1"].clone());
        let entries = [other.clone(), update, status.clone()];
        let migrated_entries = migrated(&entries, "me").unwrap();
        assert_eq!(migrated_entries, [other.clone(), became, status.clone()]);
        for entries in [vec![], vec![other], vec![status], vec![apply]] {
            assert_eq!(migrated(&entries, "me"), None);
        }
    }

    #[test]
    fn updates_in_another_version_are_dropped() {
        let apply = entry("me", "Apply", "e/v2", json!({"f:a": {}}));
        let old = entry("me", "Update", "e/v1", json!({"f:old": {}}));
        let new = entry("me", "Update", "e/v2", json!({"f:new": {}}));
        let expected = entry("me", "Apply", "e/v2", json!({"f:a": {}, "f:new": {}}));
        let entries = [apply, old.clone(), new];
        assert_eq!(migrated(&entries, "me").unwrap(), [expected]);
        let expected = entry("me", "Apply", "e/v1", json!({"f:old": {}}));
        assert_eq!(migrated(&[old], "me").unwrap(), [expected]);
    }
}

//! CustomResourceDefinitions. A definition is served as soon as it is stored, and until it is
//! removed.
//!
//! In a real cluster, controllers process a definition shortly after the write. This server does it
//! as part of the write, before any other request sees the store.

use std::sync::Arc;

use serde_json::json;

use super::store::{Collection, Key, Store};
use super::write::{Writer, now};
use crate::testing::apiserver::model::definitions::{CLEANUP, GROUP, PLURAL, made_by};
use crate::testing::apiserver::model::object::{Object, finalizers, meta, set_meta};
use crate::testing::apiserver::model::resources::Resources;

/// Processes all definitions after a write: accepts new ones, deletes the objects of deleted ones,
/// and updates the served resources. Returns the resources that are not served anymore.
pub(super) fn reconcile(store: &mut Store, resources: &Resources) -> Vec<usize> {
    let Some(definitions) = resources.find(GROUP, "v1", PLURAL) else {
        return Vec::new();
    };
    let all = Collection::new(definitions, None);
    let mut served = Vec::new();
    for (path, definition) in store.snapshot(&all, store.version()) {
        let key = Key {
            resource: definitions,
            path,
        };
        let is_deleted = meta(definition.content(), "deletionTimestamp").is_some();
        let made = made_by(definition.content(), |version| {
            is_deleted || version["served"] == true
        });
        if is_deleted {
            let of_it: Vec<usize> = made
                .iter()
                .filter_map(|made| resources.slot_of(made))
                .collect();
            if !clean_up(store, resources, &key, &definition, &of_it) {
                served.extend(of_it);
            }
        } else if !made.is_empty() {
            served.extend(made.into_iter().filter_map(|made| resources.add(made)));
            accept(store, key, &definition);
        }
    }
    resources.serve_only(&served)
}

/// Sets the status of a definition, as the controllers of a real server would.
fn accept(store: &mut Store, key: Key, definition: &Arc<Object>) {
    let content = definition.content();
    let names = content
        .get("spec")
        .map(|spec| spec["names"].clone())
        .unwrap_or_default();
    let accepted = content.get("status").map(|status| &status["acceptedNames"]);
    if accepted == Some(&names) {
        return;
    }
    let mut content = content.clone();
    let condition = |kind: &str, reason: &str, message: &str| {
        json!({
            "type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": now(),
        })
    };
    let conditions = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition(
            "Established",
            "InitialNamesAccepted",
            "the initial names have been accepted"
        ),
    ]);
    let stored = content
        .get("status")
        .map(|status| status["storedVersions"].clone())
        .unwrap_or_default();
    let status =
        json!({ "conditions": conditions, "acceptedNames": names, "storedVersions": stored });
    content.insert("status".to_owned(), status);
    store.put(key, content);
}

/// Deletes the objects of a deleted definition, then the definition itself. Returns whether no
/// objects are left. Finalizers of other clients can delay the removal of the objects, and of the
/// definition.
fn clean_up(
    store: &mut Store,
    resources: &Resources,
    key: &Key,
    definition: &Arc<Object>,
    of_it: &[usize],
) -> bool {
    let mut is_held = false;
    for &resource in of_it {
        let collection = Collection::new(resource, None);
        let version = store.version();
        for (path, object) in store.snapshot(&collection, version) {
            let key = Key { resource, path };
            let mut writer = Writer {
                store,
                resources,
                client: false,
                dry_run: false,
            };
            is_held |= !writer
                .delete_object(resources.get(resource), key, &object, None)
                .gone;
        }
    }
    if is_held {
        return false;
    }
    let mut rest = finalizers(definition.content());
    let before = rest.len();
    rest.retain(|finalizer| finalizer != CLEANUP);
    if rest.is_empty() {
        store.remove(key);
    } else if rest.len() < before {
        let mut content = definition.content().clone();
        set_meta(&mut content, "finalizers", rest);
        store.put(key.clone(), content);
    }
    true
}

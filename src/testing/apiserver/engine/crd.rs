//! CustomResourceDefinitions. A definition is served as soon as it is stored, and until it is
//! removed.
//!
//! In a real cluster, controllers process a definition shortly after the write. This server does it
//! as part of the write, before any other request sees the store.

use std::sync::Arc;

use serde_json::{Value, json};

use super::store::{Collection, Key, Store};
use super::write::{Writer, now};
use crate::testing::apiserver::model::definitions::{CLEANUP, GROUP, PLURAL, made_by};
use crate::testing::apiserver::model::object::{Content, Object, finalizers, meta, set_meta};
use crate::testing::apiserver::model::resources::Resources;

/// Processes all definitions after a write: deletes the objects of deleted ones, accepts new ones,
/// and updates the served resources. Returns the resources that are not served anymore.
pub(super) fn reconcile(store: &mut Store, resources: &Resources) -> Vec<usize> {
    let Some(definitions) = resources.find(GROUP, "v1", PLURAL) else {
        return Vec::new();
    };
    let all = Collection::new(definitions, None);
    let key = |path| Key {
        resource: definitions,
        path,
    };
    let mut served = Vec::new();
    // First, because a deleted definition frees its names.
    for (path, definition) in store.snapshot(&all, store.version()) {
        if is_deleted(&definition) {
            let of_it: Vec<usize> = made_by(definition.content(), |_| true)
                .iter()
                .filter_map(|made| resources.slot_of(made))
                .collect();
            if !clean_up(store, resources, &key(path), &definition, &of_it) {
                served.extend(of_it);
            }
        }
    }
    for (path, definition) in store.snapshot(&all, store.version()) {
        let made = made_by(definition.content(), |version| version["served"] == true);
        if is_deleted(&definition) || made.is_empty() {
            continue;
        }
        let Some(names) = accept(store, &all, key(path), &definition) else {
            continue;
        };
        // A change to names in conflict has no effect.
        let mut content = definition.content().clone();
        content["spec"]["names"] = names;
        let made = made_by(&content, |version| version["served"] == true);
        served.extend(made.into_iter().filter_map(|made| resources.add(made)));
    }
    resources.serve_only(&served)
}

fn is_deleted(definition: &Object) -> bool {
    meta(definition.content(), "deletionTimestamp").is_some()
}

/// Sets the status of a definition, as the controllers of a real server would. Returns the accepted
/// names if the definition is established.
fn accept(
    store: &mut Store,
    definitions: &Collection,
    key: Key,
    definition: &Object,
) -> Option<Value> {
    let mut content = definition.content().clone();
    let requested = content["spec"]["names"].clone();
    let object = |value: Option<&Value>| value.filter(|it| it.is_object()).cloned();
    let mut status = object(content.get("status")).unwrap_or_default();
    let mut accepted = object(status.get("acceptedNames")).unwrap_or_default();
    let is_established = condition(&status, "Established") == Some("True");
    if accepted == requested {
        return Some(accepted);
    }
    let group = |content: &Content| content.get("spec").map(|spec| spec["group"].clone());
    let own_group = group(&content);
    let others: Vec<Value> = store
        .snapshot(definitions, store.version())
        .into_iter()
        .filter(|(path, other)| *path != key.path && group(other.content()) == own_group)
        .filter_map(|(_, other)| Some(other.content().get("status")?["acceptedNames"].clone()))
        .collect();
    let mut conflict = None;
    for (fields, reason) in NAMES {
        match first_used(&requested[fields[0]], fields, &accepted, &others) {
            Some(name) => conflict = Some((reason, format!("\"{name}\" is already in use"))),
            None => accepted[fields[0]] = requested[fields[0]].clone(),
        }
    }
    let (names_accepted, established) = match &conflict {
        None => {
            accepted.clone_from(&requested);
            let (reason, message) = ("NoConflicts", "no conflicts found");
            let initial = "the initial names have been accepted";
            (
                (true, reason, message),
                (true, "InitialNamesAccepted", initial),
            )
        }
        Some((reason, message)) => (
            (false, *reason, &**message),
            (false, "NotAccepted", "not all names are accepted"),
        ),
    };
    let is_known = condition(&status, "NamesAccepted") == Some("False")
        && status["acceptedNames"] == accepted
        && status["conditions"][0]["message"] == names_accepted.2;
    if !is_known {
        let kept = is_established.then(|| status["conditions"][1].clone());
        status["conditions"] = json!([
            new_condition("NamesAccepted", names_accepted),
            kept.unwrap_or_else(|| new_condition("Established", established)),
        ]);
        status["acceptedNames"] = accepted.clone();
        content.insert("status".to_owned(), status);
        store.put(key, content);
    }
    (is_established || conflict.is_none()).then_some(accepted)
}

/// Each field with names, the fields whose names it must not repeat, beginning with itself, and the
/// reason of a conflict. If several fields are in conflict, the last one is reported.
const NAMES: [(&[&str], &str); 5] = [
    (&["plural", "singular", "shortNames"], "PluralConflict"),
    (&["singular", "plural", "shortNames"], "SingularConflict"),
    (&["shortNames", "plural", "singular"], "ShortNamesConflict"),
    (&["kind", "listKind"], "KindConflict"),
    (&["listKind", "kind"], "ListKindConflict"),
];

/// Returns the first of the requested names that another definition of the group has.
fn first_used<'a>(
    requested: &'a Value,
    fields: &[&str],
    accepted: &Value,
    others: &[Value],
) -> Option<&'a str> {
    let own: Vec<&str> = names_in(&accepted[fields[0]]).collect();
    let is_used = |name: &&str| {
        let mut used = others
            .iter()
            .flat_map(|other| fields.iter().flat_map(|field| names_in(&other[*field])));
        !own.contains(name) && used.any(|used| used == *name)
    };
    names_in(requested).find(is_used)
}

/// Returns one name, or a list of names.
fn names_in(value: &Value) -> impl Iterator<Item = &str> {
    let list = value.as_array().into_iter().flatten();
    list.chain(Some(value)).filter_map(Value::as_str)
}

fn condition<'a>(status: &'a Value, type_: &str) -> Option<&'a str> {
    let mut conditions = status["conditions"].as_array().into_iter().flatten();
    conditions.find(|one| one["type"] == type_)?["status"].as_str()
}

fn new_condition(type_: &str, (status, reason, message): (bool, &str, &str)) -> Value {
    json!({
        "type": type_, "status": if status { "True" } else { "False" }, "reason": reason, "message": message,
        "lastTransitionTime": now(),
    })
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

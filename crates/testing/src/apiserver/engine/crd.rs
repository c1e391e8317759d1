//! CustomResourceDefinitions. A definition is served as soon as it is stored, and until it is
//! removed.
//!
//! In a real cluster, controllers process a definition shortly after the write. This server does it
//! as part of the write, before any other request sees the store.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::{Value, json};

use super::store::{Change, NewState, Store};
use super::write::{Author, Writer, now};
use crate::apiserver::model::definitions::{CLEANUP, PREFIX, made_by, names};
use crate::apiserver::model::object::{Key, Object, finalizers, meta, set_meta};
use crate::apiserver::model::resources::{ApiResource, Resources, split_key};

/// Processes the definitions that the changes after version `since` affect, or all of them: deletes
/// the objects of deleted ones, accepts new ones, and updates the served resources. Returns the
/// resources that are not served anymore.
pub(super) fn reconcile(
    store: &mut Store,
    resources: &Resources,
    since: Option<u64>,
) -> Vec<Arc<ApiResource>> {
    let changes = since.and_then(|since| store.changes_after(since, usize::MAX));
    let mut keys: BTreeSet<Key> = match changes {
        Some(changes) => {
            let affected = changes.iter().map(|change| affected(store, change));
            affected.flatten().collect()
        }
        // All changed, and some may be gone.
        None => {
            let (_, defined) = resources.by_origin();
            let defined = defined.iter().map(|one| key_of(&one.group, &one.plural));
            let stored = store.objects(PREFIX).map(|(key, _)| key.clone());
            stored.chain(defined).collect()
        }
    };
    if keys.is_empty() {
        return Vec::new();
    }
    let mut gone = Vec::new();
    let mut serve = |key: &Key, versions| {
        gone.extend(resources.serve(&key[PREFIX.len()..], versions));
    };
    // First, because a deleted definition frees its names.
    for key in &keys {
        let definition = store.get(key).cloned();
        if definition.as_ref().is_some_and(|it| !is_deleted(it)) {
            continue;
        }
        let held = definition.filter(|it| !clean_up(store, key, it));
        let versions = held.and_then(|it| {
            let status = it.content().get("status")?;
            let is_established = condition(status, "Established") == Some("True");
            is_established.then(|| made_by(it.content(), &status["acceptedNames"]))
        });
        serve(key, versions.unwrap_or_default());
    }
    let waits = |(_, definition): &(&Key, &Arc<Object>)| {
        let status = definition.content().get("status");
        status.is_some_and(|status| condition(status, "NamesAccepted") == Some("False"))
    };
    keys.extend(
        store
            .objects(PREFIX)
            .filter(waits)
            .map(|(key, _)| key.clone()),
    );
    for key in keys {
        let definition = store.get(&key).cloned();
        let Some(definition) = definition.filter(|definition| !is_deleted(definition)) else {
            continue;
        };
        // A change to names in conflict has no effect.
        let names = names(definition.content()).and_then(|_| accept(store, &key, &definition));
        let versions = names.map(|names| made_by(definition.content(), &names));
        serve(&key, versions.unwrap_or_default());
    }
    gone
}

fn key_of(group: &str, plural: &str) -> Key {
    format!("{PREFIX}{plural}.{group}").into()
}

/// Returns the key of the definition that a change affects: the changed one, or one that is being
/// deleted, if an object of it is new or the last one is gone.
fn affected(store: &Store, change: &Change) -> Option<Key> {
    if change.key.starts_with(PREFIX) {
        return Some(change.key.clone());
    }
    let (group, plural) = split_key(&change.key)?;
    let key = key_of(group, plural);
    let is_affected = match &change.new {
        NewState::Stored(object) => !is_deleted(object),
        NewState::Deleted(_) => store
            .objects(&format!("{group}/{plural}/"))
            .next()
            .is_none(),
    };
    let definition = store.get(&key).filter(|it| is_affected && is_deleted(it));
    definition.map(|_| key)
}

fn is_deleted(object: &Object) -> bool {
    meta(object.content(), "deletionTimestamp").is_some()
}

/// Sets the status of a definition, as the controllers of a real server would. Returns the accepted
/// names if the definition is established.
fn accept(store: &mut Store, key: &Key, definition: &Object) -> Option<Value> {
    let content = definition.content();
    let (group, requested) = (&content["spec"]["group"], &content["spec"]["names"]);
    let object = |value: Option<&Value>| value.filter(|it| it.is_object()).cloned();
    let mut status = object(content.get("status")).unwrap_or_default();
    let mut accepted = object(status.get("acceptedNames")).unwrap_or_default();
    let is_established = condition(&status, "Established") == Some("True");
    if accepted == *requested {
        return Some(accepted);
    }
    let others = store.objects(PREFIX).filter(|(other, _)| *other != key);
    let others: Vec<&Value> = others
        .map(|(_, other)| other.content())
        .filter(|other| other.get("spec").map(|spec| &spec["group"]) == Some(group))
        .filter_map(|other| other.get("status")?.get("acceptedNames"))
        .collect();
    let conflict = conflict_in(requested, &accepted, &others);
    let (names_accepted, established) = match &conflict {
        None => {
            accepted.clone_from(requested);
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
        let mut content = content.clone();
        content.insert("status".to_owned(), status);
        store.put(key.clone(), content);
    }
    (is_established || conflict.is_none()).then_some(accepted)
}

/// The fields with names, and the reasons of their conflicts.
const NAMES: [(&str, &str); 5] = [
    ("listKind", "ListKindConflict"),
    ("kind", "KindConflict"),
    ("shortNames", "ShortNamesConflict"),
    ("singular", "SingularConflict"),
    ("plural", "PluralConflict"),
];

/// Returns the reason and the message of a conflict, if another definition of the group has one of
/// the requested names.
fn conflict_in(
    requested: &Value,
    accepted: &Value,
    others: &[&Value],
) -> Option<(&'static str, String)> {
    let has = |names: &Value, name: &str| {
        NAMES
            .iter()
            .any(|(field, _)| names_in(&names[*field]).any(|known| known == name))
    };
    let is_used = |name: &&str| !has(accepted, name) && others.iter().any(|other| has(other, name));
    NAMES.into_iter().find_map(|(field, reason)| {
        let name = names_in(&requested[field]).find(is_used)?;
        Some((reason, format!("\"{name}\" is already in use")))
    })
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
fn clean_up(store: &mut Store, key: &Key, definition: &Object) -> bool {
    let mut is_held = false;
    if let Some((group, plural)) = names(definition.content()) {
        let resource = ApiResource::new(group, "", plural, "");
        let all = store.snapshot(&resource.prefix(None), store.version());
        for (key, object) in &*all {
            let mut writer = Writer {
                store,
                author: Author::Cluster,
                dry_run: false,
            };
            let deleted = writer.delete_object(&resource, key.clone(), object, None);
            is_held |= !deleted.gone;
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

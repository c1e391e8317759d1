//! Rules for the content of an object: finalizers, generations, defaults.

use serde_json::{Value, json};

use super::definitions;
use super::object::{Content, meta, set_meta};
use super::resources::ApiResource;

pub(crate) fn is_namespace(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.plural == "namespaces"
}

/// Whether finalizers prevent the removal of the object. Namespaces also have finalizers in their
/// spec.
pub(crate) fn is_held(resource: &ApiResource, content: &Content) -> bool {
    let filled = |list: Option<&Value>| {
        list.and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
    };
    filled(meta(content, "finalizers"))
        || is_namespace(resource)
            && filled(content.get("spec").and_then(|spec| spec.get("finalizers")))
}

pub(crate) fn is_new_generation(resource: &ApiResource, before: &Content, after: &Content) -> bool {
    let counts = |key: &&String| *key != "metadata" && !(*key == "status" && resource.status);
    let keys = |content: &Content| content.keys().filter(counts).count();
    keys(before) != keys(after)
        || after
            .iter()
            .any(|(key, value)| counts(&key) && before.get(key) != Some(value))
}

pub(crate) fn bump_generation(content: &mut Content) {
    let generation = meta(content, "generation")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    set_meta(content, "generation", generation.saturating_add(1));
}

/// Sets the few defaults without which an object would differ too much from one in a real cluster.
pub(crate) fn set_defaults(resource: &ApiResource, name: &str, content: &mut Content) {
    if is_namespace(resource) {
        if meta(content, "labels").is_none() {
            set_meta(content, "labels", json!({}));
        }
        if let Some(labels) = content
            .get_mut("metadata")
            .and_then(|m| m.get_mut("labels"))
        {
            labels["kubernetes.io/metadata.name"] = name.into();
        }
        content
            .entry("spec")
            .or_insert_with(|| json!({ "finalizers": ["kubernetes"] }));
        content
            .entry("status")
            .or_insert_with(|| json!({ "phase": "Active" }));
    } else if resource.group.is_empty() && resource.plural == "pods" {
        content
            .entry("status")
            .or_insert_with(|| json!({ "phase": "Pending" }));
    } else if resource.group.is_empty() && resource.plural == "secrets" {
        content.entry("type").or_insert_with(|| "Opaque".into());
    } else if definitions::is_definition(resource) {
        definitions::set_defaults(content);
    }
}

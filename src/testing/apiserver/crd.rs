//! CustomResourceDefinitions: what one says is served from the moment it is stored, and is gone with it.
//! What the controllers of a real server do a moment later is done here before anybody else sees the store.

use std::sync::Arc;

use serde_json::{Value, json};

use super::resources::{ApiResource, Resources, Scale};
use super::server::State;
use super::store::{Collection, Content, Key, Object, meta, meta_str, set_meta};
use super::write::{Writer, now};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// What holds a definition until its objects have gone.
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// What a definition has to say, if it says it.
pub(super) fn set_defaults(content: &mut Content) {
    let versions: Vec<Value> = versions(content)
        .filter(|version| version["storage"] == true)
        .cloned()
        .collect();
    let stored: Vec<Value> = versions
        .iter()
        .map(|version| version["name"].clone())
        .collect();
    if let Some(Value::Object(spec)) = content.get_mut("spec") {
        spec.entry("conversion")
            .or_insert_with(|| json!({ "strategy": "None" }));
        if let Some(Value::Object(names)) = spec.get_mut("names")
            && let Some(kind) = names.get("kind").and_then(Value::as_str).map(str::to_owned)
        {
            names
                .entry("singular")
                .or_insert_with(|| kind.to_lowercase().into());
            names
                .entry("listKind")
                .or_insert_with(|| format!("{kind}List").into());
        }
    }
    content.entry("status").or_insert_with(|| {
        json!({ "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": stored })
    });
}

pub(super) fn is_definition(resource: &ApiResource) -> bool {
    resource.group == GROUP && resource.plural == PLURAL
}

fn versions(content: &Content) -> impl Iterator<Item = &Value> {
    let versions = content
        .get("spec")
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array);
    versions.into_iter().flatten()
}

/// The resources that a definition makes, one for each version; none of one that makes no sense, which is
/// what its name is for.
fn made_by(content: &Content, is_wanted: impl Fn(&Value) -> bool) -> Vec<ApiResource> {
    let Some(spec) = content.get("spec") else {
        return Vec::new();
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| {
        value
            .as_array()
            .into_iter()
            .flatten()
            .map(text)
            .collect::<Vec<_>>()
    };
    let (names, group) = (&spec["names"], text(&spec["group"]));
    let (plural, kind) = (text(&names["plural"]), text(&names["kind"]));
    if kind.is_empty()
        || plural.is_empty()
        || meta_str(content, "name") != format!("{plural}.{group}")
    {
        return Vec::new();
    }
    let made = versions(content)
        .filter(|version| is_wanted(version))
        .map(|version| {
            let fields = version["selectableFields"].as_array().into_iter().flatten();
            let fields =
                fields.map(|field| text(&field["jsonPath"]).trim_start_matches('.').to_owned());
            ApiResource {
                namespaced: spec["scope"] != "Cluster",
                fields: fields.collect(),
                status: version["subresources"]["status"].is_object(),
                scale: Some(&version["subresources"]["scale"])
                    .filter(|scale| scale.is_object())
                    .map(|scale| Scale {
                        spec: text(&scale["specReplicasPath"]),
                        status: text(&scale["statusReplicasPath"]),
                        selector: text(&scale["labelSelectorPath"]),
                    }),
                singular: text(&names["singular"]),
                short_names: list(&names["shortNames"]),
                categories: list(&names["categories"]),
                ..ApiResource::new(
                    group.clone(),
                    text(&version["name"]),
                    plural.clone(),
                    kind.clone(),
                )
            }
        });
    made.filter(|resource| !resource.version.is_empty())
        .collect()
}

/// What is deleted stays until its objects have gone.
pub(super) fn hold(content: &mut Content) {
    let mut finalizers = finalizers(content);
    finalizers.push(CLEANUP.to_owned());
    set_meta(content, "finalizers", finalizers);
}

/// Does what is to be done after a write: definitions are accepted, those that go take their objects along,
/// and what is served is what they say. Returns the resources that are served no longer.
pub(super) fn reconcile(state: &mut State, resources: &Resources) -> Vec<usize> {
    let Some(definitions) = resources.find(GROUP, "v1", PLURAL) else {
        return Vec::new();
    };
    let all = Collection::new(definitions, None);
    let mut served = Vec::new();
    for (path, definition) in state.store.snapshot(&all, state.store.version()) {
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
            if !clean_up(state, resources, &key, &definition, &of_it) {
                served.extend(of_it);
            }
        } else if !made.is_empty() {
            served.extend(made.into_iter().filter_map(|made| resources.add(made)));
            accept(state, key, &definition);
        }
    }
    resources.serve_only(&served)
}

/// Says of a definition what the controllers of a real server would.
fn accept(state: &mut State, key: Key, definition: &Arc<Object>) {
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
    state.store.put(key, content);
}

/// Deletes the objects of a definition that is being deleted, and when they have gone, itself; says whether
/// it has gone. What others have to finish holds both.
fn clean_up(
    state: &mut State,
    resources: &Resources,
    key: &Key,
    definition: &Arc<Object>,
    of_it: &[usize],
) -> bool {
    let mut is_held = false;
    for &resource in of_it {
        let collection = Collection::new(resource, None);
        let version = state.store.version();
        for (path, object) in state.store.snapshot(&collection, version) {
            let key = Key { resource, path };
            let mut writer = Writer {
                store: &mut state.store,
                resources,
                client: false,
                dry_run: false,
            };
            is_held |= !writer
                .delete_object(resources.get(resource), key, &object)
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
        state.store.remove(key);
    } else if rest.len() < before {
        let mut content = definition.content().clone();
        set_meta(&mut content, "finalizers", rest);
        state.store.put(key.clone(), content);
    }
    true
}

fn finalizers(content: &Content) -> Vec<String> {
    let finalizers = meta(content, "finalizers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    finalizers
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

//! The content of a CustomResourceDefinition.

use serde_json::{Value, json};

use super::keyed_lists::KeyedLists;
use super::object::{Content, finalizers, meta_str, set_meta};
use super::resources::{ApiResource, Scale};

const GROUP: &str = "apiextensions.k8s.io";
const PLURAL: &str = "customresourcedefinitions";

/// What the keys of definitions begin with.
pub(crate) const PREFIX: &str = "apiextensions.k8s.io/customresourcedefinitions/";

/// The finalizer that keeps a definition until its objects are gone.
pub(crate) const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// Sets the defaults of a definition.
pub(crate) fn set_defaults(content: &mut Content) {
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
        json!({ "conditions": null, "acceptedNames": { "plural": "", "kind": "" }, "storedVersions": [] })
    });
    add_stored_versions(content);
}

/// Adds the version in which objects are stored to those in the status.
pub(crate) fn add_stored_versions(content: &mut Content) {
    let stored = versions(content).filter(|version| version["storage"] == true);
    let stored: Vec<Value> = stored.map(|version| version["name"].clone()).collect();
    let status = content.get_mut("status");
    let known = status.and_then(|status| status.get_mut("storedVersions")?.as_array_mut());
    if let Some(known) = known {
        let new = stored.into_iter().filter(|name| !known.contains(name));
        known.extend(new.collect::<Vec<_>>());
    }
}

pub(crate) fn is_definition(resource: &ApiResource) -> bool {
    resource.group == GROUP && resource.plural == PLURAL
}

fn versions(content: &Content) -> impl Iterator<Item = &Value> {
    let versions = content
        .get("spec")
        .and_then(|spec| spec.get("versions"))
        .and_then(Value::as_array);
    versions.into_iter().flatten()
}

/// Returns the group and the plural of a definition, or `None` if it is invalid, for example
/// because its name does not match.
pub(crate) fn names(content: &Content) -> Option<(&str, &str)> {
    let spec = content.get("spec")?;
    let (group, names) = (spec["group"].as_str()?, &spec["names"]);
    let plural = names["plural"].as_str().filter(|it| !it.is_empty())?;
    names["kind"].as_str().filter(|it| !it.is_empty())?;
    (meta_str(content, "name") == format!("{plural}.{group}")).then_some((group, plural))
}

/// Returns the resources of a valid definition with these accepted names, one for each version that
/// is served.
pub(crate) fn made_by(content: &Content, names: &Value) -> Vec<ApiResource> {
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
    let made = versions(content)
        .filter(|version| version["served"] == true)
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
                keyed_lists: KeyedLists::of_schema(&version["schema"]["openAPIV3Schema"]),
                ..ApiResource::new(
                    text(&spec["group"]),
                    text(&version["name"]),
                    text(&names["plural"]),
                    text(&names["kind"]),
                )
            }
        });
    made.filter(|resource| !resource.version.is_empty())
        .collect()
}

/// Adds the finalizer that keeps a deleted definition until its objects are gone.
pub(crate) fn hold(content: &mut Content) {
    let mut finalizers = finalizers(content);
    finalizers.push(CLEANUP.to_owned());
    set_meta(content, "finalizers", finalizers);
}

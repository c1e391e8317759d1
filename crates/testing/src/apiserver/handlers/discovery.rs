//! Discovery of the served resources: the aggregated documents at `/api` and `/apis`, which modern
//! clients request.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::apiserver::model::http::Response;
use crate::apiserver::model::object_rules::is_namespace;
use crate::apiserver::model::resources::{ApiResource, Resources};

/// The verbs of every resource, except that Namespaces are deleted one by one.
const VERBS: [&str; 8] = [
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];

/// Returns the document of the core API, or that of all other groups.
pub(crate) fn document(resources: &Resources, core: bool) -> Response {
    let items: Vec<Value> = groups(resources)
        .iter()
        .filter(|group| group.name.is_empty() == core)
        .map(Group::to_value)
        .collect();
    let body = json!({
        "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items,
    });
    let mut response = Response::json(200, format!("{body}\n").into_bytes());
    response.content_type =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned();
    response
}

/// The resources of a group, by version.
struct Group {
    name: String,
    /// The versions with their resources, the preferred version first. No list is empty.
    versions: Vec<(String, Vec<Arc<ApiResource>>)>,
}

impl Group {
    fn to_value(&self) -> Value {
        let versions = self.versions.iter().map(|(version, resources)| {
            let resources: Vec<Value> =
                resources.iter().map(|one| with_subresources(one)).collect();
            json!({ "version": version, "resources": resources, "freshness": "Current" })
        });
        let metadata = if self.name.is_empty() {
            json!({})
        } else {
            json!({ "name": self.name })
        };
        json!({ "metadata": metadata, "versions": versions.collect::<Vec<_>>() })
    }
}

/// Returns the built-in groups in the order of their table, then other groups by name.
fn groups(resources: &Resources) -> Vec<Group> {
    let mut served = resources.served().to_vec();
    // A declared resource hides a built-in one of the same name.
    served.retain(|one| {
        let found = resources.find(&one.group, &one.version, &one.plural);
        found.is_some_and(|found| Arc::ptr_eq(&found, one))
    });
    served.sort_by_cached_key(|one| (one.custom, one.custom.then(|| one.group.clone())));
    let mut groups: Vec<Group> = Vec::new();
    for resource in served {
        let position = groups.iter().position(|group| group.name == resource.group);
        let position = position.unwrap_or_else(|| {
            groups.push(Group {
                name: resource.group.clone(),
                versions: Vec::new(),
            });
            groups.len() - 1
        });
        let versions = &mut groups[position].versions;
        match versions
            .iter_mut()
            .find(|known| known.0 == resource.version)
        {
            Some((_, resources)) => resources.push(resource),
            None => versions.push((resource.version.clone(), vec![resource])),
        }
    }
    for Group { versions, .. } in &mut groups {
        versions.sort_by_cached_key(|(version, _)| priority(version));
        for (_, resources) in versions {
            resources.sort_by(|one, other| one.plural.cmp(&other.plural));
        }
    }
    groups
}

/// Sorts versions as kube-apiserver does: v2, v1, v1beta2, v1beta1, v1alpha1, then all other names
/// in alphabetical order.
fn priority(version: &str) -> (bool, Reverse<(u8, u64, u64)>, String) {
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let (major, rest) = (rest[..end].parse().ok()?, &rest[end..]);
        let stages = [("alpha", 0), ("beta", 1)];
        match stages
            .iter()
            .find_map(|(name, stage)| Some((*stage, rest.strip_prefix(name)?)))
        {
            Some((stage, minor)) => Some((stage, major, minor.parse().ok()?)),
            None => rest.is_empty().then_some((2, major, 0)),
        }
    };
    let parsed = parse();
    (
        parsed.is_none(),
        Reverse(parsed.unwrap_or_default()),
        version.to_owned(),
    )
}

fn with_subresources(resource: &ApiResource) -> Value {
    let kind_in = |group: &str, version: &str, kind: &str| json!({ "group": group, "version": version, "kind": kind });
    let own_kind = match resource.custom {
        true => kind_in(&resource.group, &resource.version, &resource.kind),
        false => kind_in("", "", &resource.kind),
    };
    let singular = match &*resource.singular {
        "" => resource.kind.to_lowercase(),
        singular => singular.to_owned(),
    };
    let is_namespace = is_namespace(resource);
    let verbs = VERBS
        .into_iter()
        .filter(|verb| !is_namespace || *verb != "deletecollection");
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": own_kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": singular,
        "verbs": verbs.collect::<Vec<_>>(),
    });
    let writes = ["get", "patch", "update"];
    let subresource = |name: &str, kind: &Value, verbs: &[&str]| json!({ "subresource": name, "responseKind": kind, "verbs": verbs });
    let mut below = Vec::new();
    if resource.group.is_empty() && resource.plural == "pods" {
        let eviction = kind_in("policy", "v1", "Eviction");
        below.push(subresource("eviction", &eviction, &["create"]));
    }
    if is_namespace {
        below.push(subresource("finalize", &own_kind, &["update"]));
    }
    if resource.scale.is_some() {
        let scale = kind_in("autoscaling", "v1", "Scale");
        below.push(subresource("scale", &scale, &writes));
    }
    if resource.status {
        below.push(subresource("status", &own_kind, &writes));
    }
    set_unless_empty(&mut value, "shortNames", resource.short_names.clone());
    set_unless_empty(&mut value, "categories", resource.categories.clone());
    set_unless_empty(&mut value, "subresources", below);
    value
}

fn set_unless_empty<T: Into<Value>>(value: &mut Value, field: &str, list: Vec<T>) {
    if !list.is_empty() {
        value[field] = list.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_versions_sort_by_stability_number_and_name() {
        let mut versions = vec![
            "v1alpha1", "foo10", "v1", "v1beta1", "v10", "v1beta2", "bar", "v2", "v1beta",
        ];
        versions.sort_by_cached_key(|version| priority(version));
        assert_eq!(
            versions,
            [
                "v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo10", "v1beta"
            ]
        );
    }
}

//! Discovery of the served resources: `/api`, `/apis` and their subpaths, as separate or aggregated
//! documents.

use std::cmp::Reverse;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use serde_json::{Value, json};

use crate::testing::apiserver::model::http::{Head, Response};
use crate::testing::apiserver::model::resources::{ApiResource, Document, Resources};
use crate::testing::apiserver::model::status::StatusError;

/// The order of the built-in groups, as in kube-apiserver. Other groups follow by name.
const GROUPS: &[&str] = &[
    "",
    "apps",
    "events.k8s.io",
    "autoscaling",
    "batch",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "apiextensions.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
];

/// The short names of built-in resources, and whether the resources belong to the category `all`.
const NAMES: &[(&str, &[&str], bool)] = &[
    ("configmaps", &["cm"], false),
    ("cronjobs", &["cj"], true),
    ("customresourcedefinitions", &["crd", "crds"], false),
    ("daemonsets", &["ds"], true),
    ("deployments", &["deploy"], true),
    ("endpoints", &["ep"], false),
    ("events", &["ev"], false),
    ("horizontalpodautoscalers", &["hpa"], true),
    ("ingresses", &["ing"], false),
    ("jobs", &[], true),
    ("limitranges", &["limits"], false),
    ("namespaces", &["ns"], false),
    ("networkpolicies", &["netpol"], false),
    ("nodes", &["no"], false),
    ("persistentvolumeclaims", &["pvc"], false),
    ("persistentvolumes", &["pv"], false),
    ("poddisruptionbudgets", &["pdb"], false),
    ("pods", &["po"], true),
    ("replicasets", &["rs"], true),
    ("replicationcontrollers", &["rc"], true),
    ("resourcequotas", &["quota"], false),
    ("serviceaccounts", &["sa"], false),
    ("services", &["svc"], true),
    ("statefulsets", &["sts"], true),
    ("storageclasses", &["sc"], false),
];

/// Answers a request for a discovery document.
pub(crate) fn respond(
    resources: &Resources,
    document: &Document,
    head: &Head,
) -> Result<Response, StatusError> {
    let groups = groups(resources);
    let body = match document {
        Document::Api | Document::Apis => {
            if accepts_aggregated(head) {
                return Ok(with_etag(aggregated(&groups, document), head));
            }
            match document {
                Document::Api => {
                    let address =
                        json!({ "clientCIDR": "0.0.0.0/0", "serverAddress": "127.0.0.1:0" });
                    let versions = groups.iter().filter(|group| group.name.is_empty());
                    let versions: Vec<_> = versions.flat_map(Group::versions).collect();
                    json!({ "kind": "APIVersions", "versions": versions, "serverAddressByClientCIDRs": [address] })
                }
                _ => {
                    let others = groups.iter().filter(|group| !group.name.is_empty());
                    let others: Vec<Value> = others.map(Group::to_value).collect();
                    json!({ "kind": "APIGroupList", "apiVersion": "v1", "groups": others })
                }
            }
        }
        Document::Group(name) => {
            let group = groups.iter().find(|group| group.name == *name);
            let Some(group) = group.filter(|_| !name.is_empty()) else {
                return Ok(Response::text(404, "404 page not found\n"));
            };
            let mut value = group.to_value();
            value["kind"] = "APIGroup".into();
            value["apiVersion"] = "v1".into();
            value
        }
        Document::Version(..) if head.method != "GET" => {
            return Err(StatusError::method_not_allowed());
        }
        Document::Version(group, version) => {
            let served = groups.iter().find(|own| own.name == *group);
            let resources =
                served.and_then(|group| group.versions.iter().find(|own| own.0 == *version));
            let Some((_, resources)) = resources else {
                return Ok(Response::text(404, "404 page not found\n"));
            };
            let all: Vec<Value> = resources.iter().flat_map(|one| unaggregated(one)).collect();
            let group_version = resources[0].api_version();
            json!({ "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version, "resources": all })
        }
    };
    Ok(Response::json(200, line(&body)))
}

fn line(body: &Value) -> Vec<u8> {
    let mut line = body.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The resources of a group, by version.
struct Group {
    name: String,
    /// The versions with their resources, the preferred version first. No list is empty.
    versions: Vec<(String, Vec<Arc<ApiResource>>)>,
}

impl Group {
    fn versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(|(version, _)| version.as_str())
    }

    fn to_value(&self) -> Value {
        let version = |version| json!({ "groupVersion": format!("{}/{version}", self.name), "version": version });
        let versions: Vec<Value> = self.versions().map(version).collect();
        json!({ "name": self.name, "preferredVersion": versions[0], "versions": versions })
    }
}

fn groups(resources: &Resources) -> Vec<Group> {
    let mut groups = Vec::<Group>::new();
    for resource in &*resources.served() {
        let group = match groups
            .iter_mut()
            .position(|group| group.name == resource.group)
        {
            Some(position) => &mut groups[position],
            None => {
                groups.push(Group {
                    name: resource.group.clone(),
                    versions: Vec::new(),
                });
                let last = groups.len() - 1;
                &mut groups[last]
            }
        };
        match group
            .versions
            .iter_mut()
            .find(|(version, _)| *version == resource.version)
        {
            None => group
                .versions
                .push((resource.version.clone(), vec![resource.clone()])),
            // A declared resource hides a built-in one of the same name.
            Some((_, known)) if known.iter().any(|known| known.plural == resource.plural) => {}
            Some((_, known)) => known.push(resource.clone()),
        }
    }
    let position = |name: &str| {
        GROUPS
            .iter()
            .position(|known| *known == name)
            .unwrap_or(GROUPS.len())
    };
    groups.sort_by(|one, other| {
        (position(&one.name), &one.name).cmp(&(position(&other.name), &other.name))
    });
    for group in &mut groups {
        group
            .versions
            .sort_by_cached_key(|(version, _)| priority(version));
        for (_, resources) in &mut group.versions {
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

/// Whether the first supported media type in `Accept` is the aggregated document. Only its version
/// `v2` is supported, because `v2beta1` was removed.
fn accepts_aggregated(head: &Head) -> bool {
    let accept = head.header("accept").unwrap_or_default();
    let understood = accept.split(',').find_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        if !matches!(parts.next()?, "application/json" | "application/*" | "*/*") {
            return None;
        }
        let parameters: Vec<_> = parts.filter_map(|part| part.split_once('=')).collect();
        let parameter = |name| {
            parameters
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, value)| *value)
        };
        match (parameter("g"), parameter("v"), parameter("as")) {
            (Some("apidiscovery.k8s.io"), Some("v2"), Some("APIGroupDiscoveryList")) => Some(true),
            (None, None, None) => Some(false),
            _ => None,
        }
    });
    understood.unwrap_or(false)
}

fn aggregated(groups: &[Group], document: &Document) -> Vec<u8> {
    let own = groups
        .iter()
        .filter(|group| group.name.is_empty() == (*document == Document::Api));
    let items: Vec<Value> = own
        .map(|group| {
            let versions = group.versions.iter().map(|(version, resources)| {
                let resources: Vec<Value> =
                    resources.iter().map(|one| with_subresources(one)).collect();
                json!({ "version": version, "resources": resources, "freshness": "Current" })
            });
            let metadata = if group.name.is_empty() {
                json!({})
            } else {
                json!({ "name": group.name })
            };
            json!({ "metadata": metadata, "versions": versions.collect::<Vec<_>>() })
        })
        .collect();
    let api_version = "apidiscovery.k8s.io/v2";
    line(
        &json!({ "kind": "APIGroupDiscoveryList", "apiVersion": api_version, "metadata": {}, "items": items }),
    )
}

/// Returns the response with an ETag. If the client already has this version, the body is empty.
fn with_etag(body: Vec<u8>, head: &Head) -> Response {
    let mut hasher = DefaultHasher::new();
    body.hash(&mut hasher);
    let etag = format!("\"{:016X}\"", hasher.finish());
    let known = head.header("if-none-match") == Some(&*etag);
    let mut response = Response::json(
        if known { 304 } else { 200 },
        if known { Vec::new() } else { body },
    );
    response.content_type =
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned();
    response.headers.push(("Etag".to_owned(), etag));
    response
        .headers
        .push(("Vary".to_owned(), "Accept".to_owned()));
    response
}

fn verbs(resource: &ApiResource) -> Vec<&'static str> {
    if resource.custom {
        return vec![
            "delete",
            "deletecollection",
            "get",
            "list",
            "patch",
            "create",
            "update",
            "watch",
        ];
    }
    let mut verbs = vec![
        "create",
        "delete",
        "deletecollection",
        "get",
        "list",
        "patch",
        "update",
        "watch",
    ];
    if resource.group.is_empty() && resource.plural == "namespaces" {
        verbs.retain(|verb| *verb != "deletecollection");
    }
    verbs
}

fn singular(resource: &ApiResource) -> String {
    if resource.singular.is_empty() {
        resource.kind.to_lowercase()
    } else {
        resource.singular.clone()
    }
}

fn short_names(resource: &ApiResource) -> Vec<&str> {
    if resource.custom {
        return resource.short_names.iter().map(String::as_str).collect();
    }
    built_in(resource)
        .map(|(_, short, _)| short.to_vec())
        .unwrap_or_default()
}

fn categories(resource: &ApiResource) -> Vec<&str> {
    if resource.custom {
        return resource.categories.iter().map(String::as_str).collect();
    }
    let all = built_in(resource).is_some_and(|(.., all)| *all);
    if resource.plural == "customresourcedefinitions" {
        vec!["api-extensions"]
    } else {
        all.then_some("all").into_iter().collect()
    }
}

fn built_in(
    resource: &ApiResource,
) -> Option<&'static (&'static str, &'static [&'static str], bool)> {
    NAMES.iter().find(|(plural, ..)| *plural == resource.plural)
}

/// A subresource. Without `kind` it has the kind of its resource.
struct Subresource {
    name: &'static str,
    kind: Option<(&'static str, &'static str, &'static str)>,
    verbs: &'static [&'static str],
}

/// Returns the subresources, sorted by name.
fn subresources(resource: &ApiResource) -> Vec<Subresource> {
    const WRITES: &[&str] = &["get", "patch", "update"];
    let core = |plural| resource.group.is_empty() && resource.plural == plural;
    let of_its_kind = |name, verbs| Subresource {
        name,
        kind: None,
        verbs,
    };
    let mut all = Vec::new();
    if core("pods") {
        let kind = Some(("policy", "v1", "Eviction"));
        all.push(Subresource {
            name: "eviction",
            kind,
            verbs: &["create"],
        });
    }
    if core("namespaces") {
        all.push(of_its_kind("finalize", &["update"]));
    }
    if resource.scale.is_some() {
        let kind = Some(("autoscaling", "v1", "Scale"));
        all.push(Subresource {
            name: "scale",
            kind,
            verbs: WRITES,
        });
    }
    if resource.status {
        all.push(of_its_kind("status", WRITES));
    }
    all
}

fn with_subresources(resource: &ApiResource) -> Value {
    let (group, version) = if resource.custom {
        (&*resource.group, &*resource.version)
    } else {
        ("", "")
    };
    let kind = json!({ "group": group, "version": version, "kind": resource.kind });
    let mut value = json!({
        "resource": resource.plural,
        "responseKind": kind,
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": singular(resource),
        "verbs": verbs(resource),
    });
    let below = subresources(resource).into_iter();
    let below: Vec<Value> = below
        .map(|Subresource { name, kind: other, verbs }| {
            let other = other
                .map(|(group, version, kind)| json!({ "group": group, "version": version, "kind": kind }));
            json!({ "subresource": name, "responseKind": other.as_ref().unwrap_or(&kind), "verbs": verbs })
        })
        .collect();
    set_unless_empty(&mut value, "shortNames", short_names(resource));
    set_unless_empty(&mut value, "categories", categories(resource));
    set_unless_empty(&mut value, "subresources", below);
    value
}

/// Returns the resource and its subresources in the format of separate documents.
fn unaggregated(resource: &ApiResource) -> Vec<Value> {
    let mut value = json!({
        "name": resource.plural,
        "singularName": singular(resource),
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": verbs(resource),
    });
    set_unless_empty(&mut value, "shortNames", short_names(resource));
    set_unless_empty(&mut value, "categories", categories(resource));
    let below = subresources(resource)
        .into_iter()
        .map(|Subresource { name, kind, verbs }| {
            let mut value = json!({
                "name": format!("{}/{name}", resource.plural),
                "singularName": "",
                "namespaced": resource.namespaced,
                "kind": kind.map_or(&*resource.kind, |(_, _, kind)| kind),
                "verbs": verbs,
            });
            if let Some((group, version, _)) = kind {
                value["group"] = group.into();
                value["version"] = version.into();
            }
            value
        });
    std::iter::once(value).chain(below).collect()
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

//! Decodes discovery documents. Each group, version and resource is decoded separately, so an error
//! in one does not hide the others.

use std::collections::HashSet;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{DiscoveredResource, Discovery, DiscoveryFailure};
use crate::decode_error::explained;
use crate::error::Error;
use crate::json::null_is_default;
use crate::object::{GroupVersionKind, GroupVersionResource, Scope};
use crate::status::Status;
use crate::wire::EscapedName;

/// The maximum length of any name: that of a DNS subdomain.
const NAME_LIMIT: usize = 253;

/// The results decoded so far, in the order of the server.
#[derive(Default)]
pub(super) struct DiscoveryBuilder {
    pub(super) discovery: Discovery,
    groups: HashSet<String>,
    resources: HashSet<GroupVersionResource>,
    /// The groups and plural names of all resources.
    plurals: HashSet<(String, String)>,
}

/// A list of which each item is decoded separately.
type Items<'a> = Option<Vec<&'a RawValue>>;

type Names = Option<Vec<Option<String>>>;

/// A response to `/api` or `/apis`.
#[derive(Deserialize)]
struct Root<'a> {
    kind: Option<String>,
    #[serde(borrow)]
    items: Items<'a>,
}

#[derive(Deserialize)]
struct Group<'a> {
    metadata: Option<Metadata>,
    #[serde(borrow)]
    versions: Items<'a>,
}

#[derive(Deserialize)]
struct Metadata {
    name: Option<String>,
}

#[derive(Deserialize)]
struct Version<'a> {
    #[serde(deserialize_with = "null_is_default")]
    version: String,
    freshness: Option<String>,
    #[serde(borrow)]
    resources: Items<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    resource: String,
    singular_resource: Option<String>,
    scope: Option<String>,
    response_kind: Option<Kind>,
    verbs: Names,
    short_names: Names,
}

#[derive(Deserialize)]
struct Kind {
    kind: Option<String>,
}

impl DiscoveryBuilder {
    /// Decodes a response to `/api` or `/apis`.
    pub(super) fn read_root(&mut self, body: &[u8]) -> Result<(), Error> {
        let root: Root<'_> = decode(body)?;
        let groups = root.items.into_iter().flatten();
        if root.kind.as_deref() != Some("APIGroupDiscoveryList") {
            let what = "not an APIGroupDiscoveryList, which Kubernetes 1.30 and later send";
            return Err(Error::invalid(what));
        }
        groups.for_each(|item| self.read_group(item));
        Ok(())
    }

    fn read_group(&mut self, item: &RawValue) {
        let Some(group) = self.item::<Group<'_>>(item, "", "") else {
            return;
        };
        let name = group.metadata.and_then(|metadata| metadata.name);
        let name = name.unwrap_or_default();
        if !name.is_empty() && !is_name(&name) {
            let name = EscapedName(&name);
            let error = Error::invalid(format!("the group name \"{name}\" is invalid"));
            return self.fail("", "", error);
        }
        if !self.groups.insert(name.clone()) {
            return;
        }
        let mut seen = HashSet::new();
        for item in group.versions.into_iter().flatten() {
            let Some(found) = self.item::<Version<'_>>(item, &name, "") else {
                continue;
            };
            let version = found.version;
            if !is_name(&version) || version.contains('.') {
                let version = EscapedName(&version);
                let error = Error::invalid(format!("the version name \"{version}\" is invalid"));
                self.fail(&name, "", error);
            } else if found.freshness.as_deref() == Some("Stale") {
                self.fail(&name, &version, stale());
            } else if seen.insert(version.clone()) {
                for item in found.resources.into_iter().flatten() {
                    if let Some(resource) = self.item(item, &name, &version) {
                        self.add_resource(resource, &name, &version);
                    }
                }
            }
        }
    }

    fn add_resource(&mut self, found: Resource, group: &str, version: &str) {
        let kind = found.response_kind.and_then(|response| response.kind);
        let kind = kind.unwrap_or_default();
        // A resource without a kind exists only for its subresources and has no objects. API
        // servers send an empty kind, because old versions of client-go cannot read an absent one.
        if kind.is_empty() {
            return;
        }
        // A name with other characters than `is_name` allows could change the path of a request.
        if !is_name(&found.resource) || !is_name(&kind) {
            let (name, kind) = (EscapedName(&found.resource), EscapedName(&kind));
            let error = Error::invalid(format!(
                "the resource \"{name}\" of kind \"{kind}\" has an invalid name"
            ));
            return self.fail(group, version, error);
        }
        let kind = GroupVersionKind::new(group, version, kind);
        let resource = GroupVersionResource::new(group, version, found.resource);
        if !self.resources.insert(resource.clone()) {
            return;
        }
        let plural = (group.to_owned(), resource.resource.clone());
        self.discovery.resources.push(DiscoveredResource {
            resource,
            singular: found
                .singular_resource
                .filter(|name| is_name(name))
                .unwrap_or_else(|| kind.kind.to_lowercase()),
            kind,
            scope: match found.scope.as_deref() {
                Some("Namespaced") => Scope::Namespaced,
                _ => Scope::Cluster,
            },
            verbs: names(found.verbs),
            short_names: names(found.short_names),
            is_preferred: self.plurals.insert(plural),
        });
    }

    /// Decodes one item. Records a failure of this group and version if that is impossible.
    fn item<'a, T: Deserialize<'a>>(
        &mut self,
        item: &'a RawValue,
        group: &str,
        version: &str,
    ) -> Option<T> {
        // Go's zero value, which has neither a name nor a kind.
        if item.get() == "null" {
            return None;
        }
        serde_json::from_str(item.get())
            .map_err(|error| {
                let error = explained::<T>(item.get().as_bytes(), error);
                self.fail(group, version, Error::invalid(error.to_string()));
            })
            .ok()
    }

    pub(super) fn fail(&mut self, group: &str, version: &str, error: Error) {
        let failures = &mut self.discovery.failures;
        // Only the first of consecutive failures of a version is recorded.
        let last = failures.last().map(|last| (&*last.group, &*last.version));
        if last != Some((group, version)) {
            failures.push(DiscoveryFailure {
                group: group.to_owned(),
                version: version.to_owned(),
                error,
            });
        }
    }
}

fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::invalid(explained::<T>(body, error).to_string()))
}

fn names(names: Names) -> Vec<String> {
    let names = names.into_iter().flatten().flatten();
    names.filter(|name| is_name(name)).collect()
}

/// Whether a name is safe in a path and in a message.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_LIMIT
        && name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "-._".contains(c))
}

/// The error of a version whose server does not respond. Its last known resources are ignored.
fn stale() -> Error {
    Error::from_status(Status {
        status: "Failure".to_owned(),
        message: "the API server of the group does not respond".to_owned(),
        reason: "ServiceUnavailable".to_owned(),
        code: 503,
        ..Status::default()
    })
}

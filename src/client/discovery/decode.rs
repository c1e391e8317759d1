//! Decodes discovery documents. Each group, version and resource is decoded separately, so an error
//! in one does not hide the others.

use std::collections::{HashMap, HashSet};

use serde::Deserialize;
use serde_json::value::RawValue;

use super::document::{
    DiscoveredGroup, DiscoveredResource, DiscoveredSubresource, DiscoveryFailure,
};
use crate::decode_error::explained;
use crate::error::Error;
use crate::json::{null_is_default, null_items_are_default};
use crate::object::{GroupVersionKind, GroupVersionResource, Scope};
use crate::status::Status;
use crate::wire::EscapedName;

/// The maximum length of any name: that of a DNS subdomain.
const NAME_LIMIT: usize = 253;

/// The results decoded so far.
#[derive(Default)]
pub(super) struct DiscoveryBuilder {
    pub(super) groups: Vec<DiscoveredGroup>,
    /// The index of each group in `groups`.
    positions: HashMap<String, usize>,
    pub(super) resources: Vec<DiscoveredResource>,
    pub(super) failures: Vec<DiscoveryFailure>,
    /// The versions whose resources must still be requested.
    pub(super) to_fetch: Vec<(String, String)>,
}

/// A list of which each item is decoded separately.
type Items<'a> = Vec<&'a RawValue>;

/// A response to `/api` or `/apis`. Its `kind` selects the form, because the content type header
/// can be lost.
#[derive(Deserialize)]
struct Root<'a> {
    #[serde(default, deserialize_with = "null_is_default")]
    kind: String,
    /// The groups of an `APIGroupDiscoveryList`.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    items: Items<'a>,
    /// The groups of an `APIGroupList`.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    groups: Items<'a>,
    /// The versions of an `APIVersions`.
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    versions: Items<'a>,
}

#[derive(Deserialize)]
struct AggregatedGroup<'a> {
    #[serde(default, deserialize_with = "null_is_default")]
    metadata: Named,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    versions: Items<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Named {
    #[serde(deserialize_with = "null_is_default")]
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion<'a> {
    version: String,
    #[serde(default, deserialize_with = "null_is_default")]
    freshness: String,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    resources: Items<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedResource<'a> {
    resource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default, deserialize_with = "null_is_default")]
    scope: String,
    #[serde(default, deserialize_with = "null_is_default")]
    singular_resource: String,
    #[serde(default, deserialize_with = "null_items_are_default")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "null_items_are_default")]
    short_names: Vec<String>,
    #[serde(default, deserialize_with = "null_items_are_default")]
    categories: Vec<String>,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    subresources: Items<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AggregatedSubresource {
    subresource: String,
    #[serde(default)]
    response_kind: Option<Kind>,
    #[serde(default, deserialize_with = "null_items_are_default")]
    verbs: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kind {
    #[serde(deserialize_with = "null_is_default")]
    group: String,
    #[serde(deserialize_with = "null_is_default")]
    version: String,
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Group<'a> {
    #[serde(default, deserialize_with = "null_is_default")]
    name: String,
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    versions: Items<'a>,
    #[serde(default)]
    preferred_version: Option<GroupVersion>,
}

#[derive(Deserialize)]
struct GroupVersion {
    #[serde(deserialize_with = "null_is_default")]
    version: String,
}

#[derive(Deserialize)]
struct ResourceList<'a> {
    #[serde(borrow, default, deserialize_with = "null_is_default")]
    resources: Items<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Resource {
    name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    singular_name: String,
    #[serde(default, deserialize_with = "null_is_default")]
    namespaced: bool,
    #[serde(default, deserialize_with = "null_is_default")]
    group: String,
    #[serde(default, deserialize_with = "null_is_default")]
    version: String,
    #[serde(default, deserialize_with = "null_is_default")]
    kind: String,
    #[serde(default, deserialize_with = "null_items_are_default")]
    verbs: Vec<String>,
    #[serde(default, deserialize_with = "null_items_are_default")]
    short_names: Vec<String>,
    #[serde(default, deserialize_with = "null_items_are_default")]
    categories: Vec<String>,
}

impl DiscoveryBuilder {
    /// Decodes a response to `/api` or `/apis`.
    pub(super) fn read_root(&mut self, body: &[u8]) -> Result<(), Error> {
        let root: Root<'_> = decode(body)?;
        match root.kind.as_str() {
            "APIGroupDiscoveryList" => {
                root.items
                    .into_iter()
                    .for_each(|item| self.read_aggregated(item));
            }
            "APIGroupList" => {
                root.groups
                    .into_iter()
                    .for_each(|item| self.read_group(item));
            }
            "APIVersions" => {
                let versions = root.versions.into_iter();
                let versions = versions.filter_map(|item| serde_json::from_str(item.get()).ok());
                self.add_group(String::new(), versions.collect(), None, true);
            }
            _ => return Err(Error::invalid("not a list of API groups")),
        }
        Ok(())
    }

    fn read_aggregated(&mut self, item: &RawValue) {
        let Some(group) = self.item::<AggregatedGroup<'_>>(item, || name_in(item), "") else {
            return;
        };
        let name = group.metadata.name;
        if !self.check_group(&name) {
            return;
        }
        let mut versions = Vec::new();
        for item in group.versions {
            let Some(version) = self.item::<AggregatedVersion<'_>>(item, || name.clone(), "")
            else {
                continue;
            };
            if version.freshness == "Stale" {
                self.fail(name.clone(), &version.version, stale());
                continue;
            }
            for item in version.resources {
                self.read_aggregated_resource(&name, &version.version, item);
            }
            versions.push(version.version);
        }
        self.add_group(name, versions, None, false);
    }

    fn read_aggregated_resource(&mut self, group: &str, version: &str, item: &RawValue) {
        let name = || group.to_owned();
        let Some(found) = self.item::<AggregatedResource<'_>>(item, name, version) else {
            return;
        };
        let subresources = found.subresources.into_iter().filter_map(|item| {
            let found: AggregatedSubresource = serde_json::from_str(item.get()).ok()?;
            subresource(
                found.subresource,
                found.response_kind?,
                found.verbs,
                group,
                version,
            )
        });
        let subresources = subresources.collect();
        // A resource without a kind exists only for its subresources and has no objects. API
        // servers send an empty kind, because old versions of client-go cannot read an absent one.
        let kind = found.response_kind.unwrap_or_default();
        if [&kind.group, &kind.version, &kind.kind]
            .iter()
            .all(|it| it.is_empty())
        {
            return;
        }
        self.add_resource(DiscoveredResource {
            resource: GroupVersionResource::new(group, version, found.resource),
            kind: GroupVersionKind::new(group, version, kind.kind),
            singular: found.singular_resource,
            scope: scope(found.scope == "Namespaced"),
            verbs: found.verbs,
            short_names: found.short_names,
            categories: found.categories,
            subresources,
            is_preferred: false,
        });
    }

    fn read_group(&mut self, item: &RawValue) {
        let Some(group) = self.item::<Group<'_>>(item, || name_in(item), "") else {
            return;
        };
        if !self.check_group(&group.name) {
            return;
        }
        let versions = group.versions.into_iter();
        let versions =
            versions.filter_map(|item| serde_json::from_str::<GroupVersion>(item.get()).ok());
        let versions = versions.map(|version| version.version).collect();
        self.add_group(
            group.name,
            versions,
            group.preferred_version.map(|version| version.version),
            true,
        );
    }

    /// Decodes the resources of one version in the unaggregated form.
    pub(super) fn read_resources(
        &mut self,
        group: &str,
        version: &str,
        body: &[u8],
    ) -> Result<(), Error> {
        let list: ResourceList<'_> = decode(body)?;
        let mut all = Vec::<Resource>::new();
        for item in list.resources {
            all.extend(self.item(item, || group.to_owned(), version));
        }
        let mut subresources = HashMap::<String, Vec<_>>::new();
        let (subresource_items, resource_items): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|found| found.name.contains('/'));
        for Resource {
            name,
            group: kind_group,
            version: kind_version,
            kind,
            verbs,
            ..
        } in subresource_items
        {
            let Some((parent, name)) = name.split_once('/') else {
                continue;
            };
            let kind = Kind {
                group: kind_group,
                version: kind_version,
                kind,
            };
            if let Some(found) = subresource(name.to_owned(), kind, verbs, group, version) {
                subresources
                    .entry(parent.to_owned())
                    .or_default()
                    .push(found);
            }
        }
        for found in resource_items {
            let subresources = subresources.remove(&found.name).unwrap_or_default();
            self.add_resource(DiscoveredResource {
                resource: GroupVersionResource::new(group, version, found.name),
                kind: GroupVersionKind::new(group, version, found.kind),
                singular: found.singular_name,
                scope: scope(found.namespaced),
                verbs: found.verbs,
                short_names: found.short_names,
                categories: found.categories,
                subresources,
                is_preferred: false,
            });
        }
        Ok(())
    }

    /// Decodes one item. Records a failure of this group and version if that is impossible.
    fn item<'a, T: Deserialize<'a>>(
        &mut self,
        item: &'a RawValue,
        group: impl FnOnce() -> String,
        version: &str,
    ) -> Option<T> {
        // Go's zero value, which has neither a name nor a kind.
        if item.get() == "null" {
            return None;
        }
        serde_json::from_str(item.get())
            .map_err(|error| {
                let error = explained::<T>(item.get().as_bytes(), error);
                self.fail(group(), version, Error::invalid(error.to_string()));
            })
            .ok()
    }

    fn check_group(&mut self, name: &str) -> bool {
        let is_group = name.is_empty() || is_name(name);
        if !is_group {
            let name = EscapedName(name);
            let error = Error::invalid(format!("the group name \"{name}\" is invalid"));
            self.fail(String::new(), "", error);
        }
        is_group
    }

    pub(super) fn fail(&mut self, group: String, version: &str, error: Error) {
        let usable = |name: &str| {
            if is_name(name) {
                name.to_owned()
            } else {
                String::new()
            }
        };
        let (group, version) = (usable(&group), usable(version));
        // Only the first of consecutive failures of a version is recorded.
        if self
            .failures
            .last()
            .is_none_or(|last| (&last.group, &last.version) != (&group, &version))
        {
            self.failures.push(DiscoveryFailure {
                group,
                version,
                error,
            });
        }
    }

    fn add_group(
        &mut self,
        name: String,
        versions: Vec<String>,
        preferred: Option<String>,
        fetch: bool,
    ) {
        let (mut usable, mut seen) = (Vec::new(), HashSet::new());
        for version in versions {
            if !is_name(&version) || version.contains('.') {
                let version = EscapedName(&version);
                let error = Error::invalid(format!("the version name \"{version}\" is invalid"));
                self.fail(name.clone(), "", error);
            } else if seen.insert(version.clone()) {
                usable.push(version);
            }
        }
        if fetch {
            self.to_fetch
                .extend(usable.iter().map(|version| (name.clone(), version.clone())));
        }
        let preferred = preferred.filter(|preferred| seen.contains(preferred));
        let Some(preferred) = preferred.or_else(|| usable.first().cloned()) else {
            return;
        };
        if let Some(index) = self.positions.get(&name) {
            let group = &mut self.groups[*index];
            let known: HashSet<_> = group.versions.iter().cloned().collect();
            group.versions.extend(
                usable
                    .into_iter()
                    .filter(|version| !known.contains(version)),
            );
        } else {
            self.positions.insert(name.clone(), self.groups.len());
            self.groups.push(DiscoveredGroup {
                name,
                versions: usable,
                preferred_version: preferred,
            });
        }
    }

    fn add_resource(&mut self, mut resource: DiscoveredResource) {
        // A name with other characters than `is_name` allows could change the path of a request.
        if !is_name(resource.plural()) || !is_name(&resource.kind.kind) {
            let name = EscapedName(resource.plural());
            let kind = EscapedName(&resource.kind.kind);
            let error = Error::invalid(format!(
                "the resource \"{name}\" of kind \"{kind}\" has an invalid name"
            ));
            return self.fail(resource.group().to_owned(), resource.version(), error);
        }
        if !is_name(&resource.singular) {
            // The same default as in client-go, for servers that omit the singular name.
            resource.singular = resource.kind.kind.to_lowercase();
        }
        for names in [
            &mut resource.verbs,
            &mut resource.short_names,
            &mut resource.categories,
        ] {
            names.retain(|name| is_name(name));
        }
        self.resources.push(resource);
    }
}

fn decode<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    serde_json::from_slice(body)
        .map_err(|error| Error::invalid(explained::<T>(body, error).to_string()))
}

fn subresource(
    name: String,
    kind: Kind,
    mut verbs: Vec<String>,
    group: &str,
    version: &str,
) -> Option<DiscoveredSubresource> {
    if !is_name(&name) || !is_name(&kind.kind) {
        return None;
    }
    // The server omits group and version if they are the same as those of the resource.
    let own = kind.group.is_empty() && kind.version.is_empty();
    let (group, version) = if own {
        (group, version)
    } else {
        (&*kind.group, &*kind.version)
    };
    let kind = GroupVersionKind::new(group, version, kind.kind);
    verbs.retain(|verb| is_name(verb));
    Some(DiscoveredSubresource { name, kind, verbs })
}

/// Returns the name of a group that cannot be decoded, if at least the name can be read.
fn name_in(item: &RawValue) -> String {
    #[derive(Deserialize)]
    struct Either {
        #[serde(default, deserialize_with = "null_is_default")]
        name: String,
        #[serde(default, deserialize_with = "null_is_default")]
        metadata: Named,
    }
    match serde_json::from_str::<Either>(item.get()) {
        Ok(either) if either.name.is_empty() => either.metadata.name,
        Ok(either) => either.name,
        Err(_) => String::new(),
    }
}

fn scope(is_namespaced: bool) -> Scope {
    match is_namespaced {
        true => Scope::Namespaced,
        false => Scope::Cluster,
    }
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

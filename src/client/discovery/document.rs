use std::collections::{HashMap, HashSet};
use std::iter;

use crate::error::Error;
use crate::object::{GroupVersionKind, GroupVersionResource, Scope};

/// What a server serves: its groups with their versions and resources, as it said when it was asked.
/// client-go's `ServerGroupsAndResources` and the `RESTMapper` that is made of it.
///
/// [`Client::discovery`](crate::Client::discovery) gives it. It doesn't change; a newer one comes from
/// [`Client::rediscover`](crate::Client::rediscover).
///
/// A group that could not be asked, as the server behind it is down, is missing here and named by
/// [`failures`](Self::failures); the others are complete.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer::object::{GroupVersionKind, GroupVersionResource, Scope};
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let discovery = client.discovery(&Stop::new())?;
///
/// assert_eq!(discovery.group("apps").unwrap().preferred_version, "v1");
/// let deployments = GroupVersionResource::new("apps", "v1", "deployments");
/// let kind = &discovery.by_resource(&deployments).unwrap().kind;
/// assert_eq!(*kind, GroupVersionKind::new("apps", "v1", "Deployment"));
/// assert_eq!(discovery.by_kind(kind).unwrap().resource, deployments);
///
/// let mut cluster_wide = discovery.resources().iter().filter(|found| found.scope == Scope::Cluster);
/// assert!(cluster_wide.any(|found| found.resource.resource == "nodes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Discovery {
    groups: Vec<DiscoveredGroup>,
    /// Those of the first group first, and in it those of the preferred version.
    resources: Vec<DiscoveredResource>,
    failures: Vec<DiscoveryFailure>,
}

/// A group of a [`Discovery`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveredGroup {
    /// The name, `""` for the core group.
    pub name: String,
    /// The versions, in the server's order. Not empty.
    pub versions: Vec<String>,
    /// The version that the server prefers.
    pub preferred_version: String,
}

/// A resource in one version: its names, and what can be done with it. client-go's `APIResource`.
///
/// [`Client::dynamic_api`](crate::Client::dynamic_api) and
/// [`SharedInformerFactory::dynamic`](crate::SharedInformerFactory::dynamic) take its [`resource`](Self::resource).
///
/// ```
/// use k8s_informer::object::Scope;
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Stop};
///
/// let server = ApiServer::start()?;
/// let deployments = Client::new(Config::new(server.url()))?.discover("deploy", &Stop::new())?;
/// assert_eq!((&*deployments.singular, &*deployments.kind.kind), ("deployment", "Deployment"));
/// assert!(deployments.scope == Scope::Namespaced && deployments.has_verb("deletecollection"));
/// let scale = deployments.subresources.iter().find(|below| below.name == "scale").unwrap();
/// assert_eq!(scale.kind.to_string(), "autoscaling/v1 Scale");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveredResource {
    /// Group, version and the name in paths: `deployments` of `apps/v1`.
    pub resource: GroupVersionResource,
    /// The kind of the objects: `Deployment` of `apps/v1`.
    pub kind: GroupVersionKind,
    /// The name of one object: `deployment`.
    pub singular: String,
    /// Whether the objects are in namespaces, or belong to the whole cluster.
    pub scope: Scope,
    /// What can be done with it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`.
    pub verbs: Vec<String>,
    /// Abbreviations that kubectl accepts: `deploy`.
    pub short_names: Vec<String>,
    /// The sets that it belongs to: `all`.
    pub categories: Vec<String>,
    /// What is below each of the objects.
    pub subresources: Vec<DiscoveredSubresource>,
    /// Whether the server prefers this version of it: that of its group, or the first one that has it.
    pub is_preferred: bool,
}

/// What is below each object of a [`DiscoveredResource`]: `status`, `scale`, `log`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveredSubresource {
    /// The last part of the path: `scale`.
    pub name: String,
    /// What is read and written there, which can be of another group: `autoscaling/v1 Scale`.
    pub kind: GroupVersionKind,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

/// A version of a group whose resources could not be read. A part of client-go's `ErrGroupDiscoveryFailed`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveryFailure {
    /// The group.
    pub group: String,
    /// The version; empty if the group could not be read at all.
    pub version: String,
    /// Why.
    pub error: Error,
}

impl Discovery {
    /// Puts what there is into the order in which names are looked for: that of the groups, the preferred
    /// version of each first. What is there twice counts once.
    pub(super) fn new(
        groups: Vec<DiscoveredGroup>,
        found: Vec<DiscoveredResource>,
        failures: Vec<DiscoveryFailure>,
    ) -> Self {
        let mut by_version = HashMap::<_, Vec<_>>::new();
        for resource in found {
            let version = (resource.group().to_owned(), resource.version().to_owned());
            by_version.entry(version).or_default().push(resource);
        }
        let (mut resources, mut seen) = (Vec::new(), HashSet::new());
        for group in &groups {
            let mut names = HashSet::new();
            let others = group
                .versions
                .iter()
                .filter(|version| **version != group.preferred_version);
            for version in iter::once(&group.preferred_version).chain(others) {
                let of_version = by_version.remove(&(group.name.clone(), version.clone()));
                for mut resource in of_version.unwrap_or_default() {
                    if seen.insert(resource.resource.clone()) {
                        resource.is_preferred = names.insert(resource.plural().to_owned());
                        resources.push(resource);
                    }
                }
            }
        }
        Self {
            groups,
            resources,
            failures,
        }
    }

    /// The groups, in the server's order: the core group first.
    pub fn groups(&self) -> &[DiscoveredGroup] {
        &self.groups
    }

    /// The group of this name, `""` for the core group.
    pub fn group(&self, name: &str) -> Option<&DiscoveredGroup> {
        self.groups.iter().find(|group| group.name == name)
    }

    /// All resources in all versions: in the order of the groups, and in each those of the preferred version
    /// first.
    pub fn resources(&self) -> &[DiscoveredResource] {
        &self.resources
    }

    /// What could not be asked, or not be read. Empty if all of the server is here.
    pub fn failures(&self) -> &[DiscoveryFailure] {
        &self.failures
    }

    /// The resource with this group, version and plural name.
    pub fn by_resource(&self, resource: &GroupVersionResource) -> Option<&DiscoveredResource> {
        self.resources
            .iter()
            .find(|found| found.resource == *resource)
    }

    /// The resource whose objects are of this kind.
    pub fn by_kind(&self, kind: &GroupVersionKind) -> Option<&DiscoveredResource> {
        self.resources.iter().find(|found| found.kind == *kind)
    }
}

impl DiscoveredResource {
    /// Whether the objects are in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Whether this can be done with it.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    pub(super) fn group(&self) -> &str {
        &self.resource.group
    }

    pub(super) fn version(&self) -> &str {
        &self.resource.version
    }

    pub(super) fn plural(&self) -> &str {
        &self.resource.resource
    }
}

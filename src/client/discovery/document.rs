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
/// use k8s_informer::object::{GroupVersionKind, GroupVersionResource};
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let discovery = client.discovery(&Stop::new())?;
///
/// assert_eq!(discovery.group("apps").unwrap().preferred_version(), "v1");
/// let deployments = GroupVersionResource::new("apps", "v1", "deployments");
/// let kind = discovery.by_resource(&deployments).unwrap().group_version_kind();
/// assert_eq!(kind, GroupVersionKind::new("apps", "v1", "Deployment"));
/// assert_eq!(discovery.by_kind(&kind).unwrap().group_version_resource(), deployments);
///
/// let cluster_wide = discovery.resources().iter().filter(|resource| !resource.is_namespaced());
/// assert!(cluster_wide.clone().any(|resource| resource.plural() == "nodes"));
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
pub struct DiscoveredGroup {
    pub(super) name: String,
    /// Not empty.
    pub(super) versions: Vec<String>,
    pub(super) preferred: String,
}

/// A resource in one version: what it is called, and what can be done with it. client-go's `APIResource`.
///
/// Its [group, version and resource](Self::group_version_resource) are what
/// [`Client::dynamic_api`](crate::Client::dynamic_api) and
/// [`SharedInformerFactory::dynamic`](crate::SharedInformerFactory::dynamic) take.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Stop};
///
/// let server = ApiServer::start()?;
/// let deployments = Client::new(Config::new(server.url()))?.discover("deploy", &Stop::new())?;
/// assert_eq!((deployments.singular(), deployments.kind()), ("deployment", "Deployment"));
/// assert!(deployments.is_namespaced() && deployments.has_verb("deletecollection"));
/// let scale = deployments.subresources().iter().find(|below| below.name() == "scale").unwrap();
/// assert_eq!(scale.group_version_kind().to_string(), "autoscaling/v1 Scale");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct DiscoveredResource {
    pub(super) resource: GroupVersionResource,
    pub(super) kind: GroupVersionKind,
    pub(super) singular: String,
    pub(super) scope: Scope,
    pub(super) verbs: Vec<String>,
    pub(super) short_names: Vec<String>,
    pub(super) categories: Vec<String>,
    pub(super) subresources: Vec<DiscoveredSubresource>,
    pub(super) is_preferred: bool,
}

/// What there is below each object of a [`DiscoveredResource`]: `status`, `scale`, `log`.
#[derive(Clone, Debug)]
pub struct DiscoveredSubresource {
    pub(super) name: String,
    pub(super) kind: GroupVersionKind,
    pub(super) verbs: Vec<String>,
}

/// A version of a group that could not be asked for its resources. A part of client-go's
/// `ErrGroupDiscoveryFailed`.
#[derive(Clone, Debug)]
pub struct DiscoveryFailure {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) error: Error,
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
                .filter(|version| **version != group.preferred);
            for version in iter::once(&group.preferred).chain(others) {
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

impl DiscoveredGroup {
    /// The name, `""` for the core group.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The versions, in the server's order.
    pub fn versions(&self) -> impl Iterator<Item = &str> {
        self.versions.iter().map(String::as_str)
    }

    /// The version that the server takes for the one to be used.
    pub fn preferred_version(&self) -> &str {
        &self.preferred
    }
}

impl DiscoveredResource {
    /// The group, `""` for the core group.
    pub fn group(&self) -> &str {
        self.resource.group()
    }

    /// The version.
    pub fn version(&self) -> &str {
        self.resource.version()
    }

    /// The name in paths: `deployments`.
    pub fn plural(&self) -> &str {
        self.resource.resource()
    }

    /// The name of one: `deployment`.
    pub fn singular(&self) -> &str {
        &self.singular
    }

    /// The kind of its objects: `Deployment`.
    pub fn kind(&self) -> &str {
        self.kind.kind()
    }

    /// Where its objects are: what an [`Api`](crate::client::api::Api) and an informer take.
    pub fn group_version_resource(&self) -> GroupVersionResource {
        self.resource.clone()
    }

    /// What its objects say they are.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        self.kind.clone()
    }

    /// Whether its objects live in namespaces, or are of the whole cluster.
    pub fn scope(&self) -> Scope {
        self.scope
    }

    /// Whether its objects live in namespaces.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// What can be done with it: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    pub fn verbs(&self) -> impl Iterator<Item = &str> {
        self.verbs.iter().map(String::as_str)
    }

    /// Whether this can be done with it.
    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|own| own == verb)
    }

    /// What kubectl calls it for short: `deploy`.
    pub fn short_names(&self) -> impl Iterator<Item = &str> {
        self.short_names.iter().map(String::as_str)
    }

    /// The sets that it belongs to: `all`.
    pub fn categories(&self) -> impl Iterator<Item = &str> {
        self.categories.iter().map(String::as_str)
    }

    /// What there is below each of its objects.
    pub fn subresources(&self) -> &[DiscoveredSubresource] {
        &self.subresources
    }

    /// Whether this is the version of it that the server would have one use: that of its group, or the first
    /// one that has it.
    pub fn is_preferred(&self) -> bool {
        self.is_preferred
    }
}

impl DiscoveredSubresource {
    /// The last part of its path: `scale`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What is read and written there, which may be of another group: `autoscaling/v1 Scale`.
    pub fn group_version_kind(&self) -> GroupVersionKind {
        self.kind.clone()
    }

    /// What can be done with it.
    pub fn verbs(&self) -> impl Iterator<Item = &str> {
        self.verbs.iter().map(String::as_str)
    }
}

impl DiscoveryFailure {
    /// The group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version; empty if the group could not be read at all.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Why.
    pub fn error(&self) -> &Error {
        &self.error
    }
}

use crate::error::Error;
use crate::object::{GroupVersionKind, GroupVersionResource, Scope};

/// The groups, versions and resources of a server, at the time of one fetch.
///
/// [`Client::discovery`](crate::Client::discovery) returns it. A `Discovery` never changes. For a
/// newer one, call [`Client::rediscover`](crate::Client::rediscover). The client-go counterparts
/// are `ServerGroupsAndResources` and the `RESTMapper` built from that.
///
/// A group or a version that could not be read, for example because the server behind it is down,
/// is missing here. [`failures`](Self::failures) contains the error. The other groups are complete.
///
/// ```
/// use k8s_informer::object::{GroupVersionKind, GroupVersionResource, Scope};
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_testing::ApiServer;
///
/// let server = ApiServer::start()?;
/// let client = Client::new(Config::new(server.url()))?;
/// let discovery = client.discovery(&Stop::never())?;
///
/// let deployments = GroupVersionResource::new("apps", "v1", "deployments");
/// let kind = &discovery.by_resource(&deployments).unwrap().kind;
/// assert_eq!(*kind, GroupVersionKind::new("apps", "v1", "Deployment"));
/// assert_eq!(discovery.by_kind(kind).unwrap().resource, deployments);
///
/// let mut cluster_wide = discovery.resources().iter().filter(|found| found.scope == Scope::Cluster);
/// assert!(cluster_wide.any(|found| found.resource.resource == "nodes"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Discovery {
    /// Ordered by group. Within a group, the resources of the preferred version come first.
    pub(super) resources: Vec<DiscoveredResource>,
    pub(super) failures: Vec<DiscoveryFailure>,
}

/// A resource in one version: its names and verbs. The client-go counterpart is `APIResource`.
///
/// Pass its [`resource`](Self::resource) to [`Client::dynamic_api`](crate::Client::dynamic_api) or
/// [`Source::dynamic`](crate::informer::Source::dynamic).
///
/// ```
/// use k8s_informer::object::Scope;
/// use k8s_informer::{Client, Config, Stop};
/// use k8s_informer_testing::ApiServer;
///
/// let server = ApiServer::start()?;
/// let deployments = Client::new(Config::new(server.url()))?.discover("deploy", &Stop::never())?;
/// assert_eq!((&*deployments.singular, &*deployments.kind.kind), ("deployment", "Deployment"));
/// assert!(deployments.scope == Scope::Namespaced && deployments.has_verb("deletecollection"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveredResource {
    /// The group, the version and the plural name, as in paths: `deployments` in `apps/v1`.
    pub resource: GroupVersionResource,
    /// The kind of the objects: `Deployment` in `apps/v1`.
    pub kind: GroupVersionKind,
    /// The singular name: `deployment`.
    pub singular: String,
    /// Whether the objects are namespaced or cluster-scoped.
    pub scope: Scope,
    /// The supported verbs: `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`,
    /// `deletecollection`.
    pub verbs: Vec<String>,
    /// The short names that kubectl accepts: `deploy`.
    pub short_names: Vec<String>,
    /// Whether this version of the resource is the preferred one: the preferred version of the
    /// group or, if that lacks the resource, the first version that has it.
    pub is_preferred: bool,
}

/// A version of a group whose resources could not be read. The client-go counterpart is an entry of
/// `ErrGroupDiscoveryFailed`.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DiscoveryFailure {
    /// The name of the group.
    pub group: String,
    /// The version. Empty if the whole group could not be read.
    pub version: String,
    /// The reason.
    pub error: Error,
}

impl Discovery {
    /// Returns all resources in all versions. They are ordered by group; within a group, the
    /// preferred version comes first.
    pub fn resources(&self) -> &[DiscoveredResource] {
        &self.resources
    }

    /// Returns the groups and versions that could not be read. Empty if discovery was complete.
    pub fn failures(&self) -> &[DiscoveryFailure] {
        &self.failures
    }

    /// Returns the resource with this group, version and plural name.
    pub fn by_resource(&self, resource: &GroupVersionResource) -> Option<&DiscoveredResource> {
        self.resources
            .iter()
            .find(|found| found.resource == *resource)
    }

    /// Returns the resource whose objects have this kind.
    pub fn by_kind(&self, kind: &GroupVersionKind) -> Option<&DiscoveredResource> {
        self.resources.iter().find(|found| found.kind == *kind)
    }
}

impl DiscoveredResource {
    /// Returns whether the objects are namespaced.
    pub fn is_namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    /// Returns whether the resource supports this verb.
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

impl DiscoveryFailure {
    /// The group and version, for messages.
    pub(super) fn place(&self) -> String {
        match (&*self.group, &*self.version) {
            ("", "") => "a group".to_owned(),
            (name, "") | ("", name) => name.to_owned(),
            (group, version) => format!("{group}/{version}"),
        }
    }
}

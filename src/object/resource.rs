use std::fmt;

use super::Object;

/// Whether a resource lives in namespaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// One set of names for the whole cluster, as Nodes.
    Cluster,
    /// One set of names for each namespace, as Pods.
    Namespaced,
}

/// Where the API server keeps the objects of a type: known when the program is compiled.
///
/// For kinds that are known only at run time, give a [`GroupVersionResource`] to the dynamic calls instead.
pub trait Resource: Object {
    /// The API group, empty for the core group.
    const GROUP: &'static str;
    /// The version within the group: `v1`.
    const VERSION: &'static str;
    /// The kind: `Pod`.
    const KIND: &'static str;
    /// The resource, as it stands in URLs: `pods`.
    const PLURAL: &'static str;
    /// Whether objects live in namespaces.
    const SCOPE: Scope;

    /// Group, version and plural as a run-time value.
    fn group_version_resource() -> GroupVersionResource {
        GroupVersionResource::new(Self::GROUP, Self::VERSION, Self::PLURAL)
    }
}

/// A resource known at run time: `apps/v1 deployments`. client-go's `schema.GroupVersionResource`.
///
/// ```
/// use k8s_informer::GroupVersionResource;
///
/// let deployments = GroupVersionResource::new("apps", "v1", "deployments");
/// assert_eq!(deployments.path(None), "/apis/apps/v1/deployments");
/// let pods = GroupVersionResource::new("", "v1", "pods");
/// assert_eq!(pods.path(Some("default")), "/api/v1/namespaces/default/pods");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionResource {
    group: String,
    version: String,
    resource: String,
}

impl GroupVersionResource {
    /// Names a resource; the core group is `""`.
    pub fn new(group: impl Into<String>, version: impl Into<String>, resource: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), resource: resource.into() }
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version: `v1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The plural, lower-case resource: `pods`.
    pub fn resource(&self) -> &str {
        &self.resource
    }

    /// The path of the collection on the API server: in one namespace, or (`None`, `Some("")`) in all of
    /// them, which is also the path of a cluster-scoped resource.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let Self { group, version, resource } = self;
        let root =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        match namespace {
            None | Some("") => format!("{root}/{resource}"),
            Some(namespace) => format!("{root}/namespaces/{namespace}/{resource}"),
        }
    }
}

/// As `kubectl` writes it: `deployments.v1.apps`, `pods.v1`.
impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

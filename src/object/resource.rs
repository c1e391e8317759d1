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

    /// Group, version and kind as a run-time value.
    fn group_version_kind() -> GroupVersionKind {
        GroupVersionKind::new(Self::GROUP, Self::VERSION, Self::KIND)
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

/// What an object says it is.
///
/// ```
/// use k8s_informer::{GroupVersionKind, Resource};
/// use k8s_openapi::api::apps::v1::Deployment;
///
/// let kind = Deployment::group_version_kind();
/// assert_eq!((kind.api_version(), kind.kind()), ("apps/v1".to_owned(), "Deployment"));
/// assert_eq!(kind, GroupVersionKind::new("apps", "v1", "Deployment"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersionKind {
    group: String,
    version: String,
    kind: String,
}

impl GroupVersionKind {
    /// Names a kind; the core group is `""`.
    pub fn new(group: impl Into<String>, version: impl Into<String>, kind: impl Into<String>) -> Self {
        Self { group: group.into(), version: version.into(), kind: kind.into() }
    }

    /// Names it as objects and owner references do, by an apiVersion. client-go's `FromAPIVersionAndKind`.
    ///
    /// ```
    /// use k8s_informer::GroupVersionKind;
    ///
    /// assert_eq!(GroupVersionKind::of("apps/v1", "Deployment").group(), "apps");
    /// assert_eq!(GroupVersionKind::of("v1", "Pod"), GroupVersionKind::new("", "v1", "Pod"));
    /// ```
    pub fn of(api_version: &str, kind: impl Into<String>) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
    }

    /// The API group, empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    /// The version: `v1`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The kind: `Pod`.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Group and version as they stand in an object: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// `apps/v1 Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

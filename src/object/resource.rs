use std::fmt;

use super::Object;
use crate::error::Error;
use crate::text::{Shown, percent_encoded};

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
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes resource: it does not implement `k8s_informer::Resource`",
    label = "not a `Resource`",
    note = "for a struct of your own, use `impl_object!`",
    note = "for a type of k8s-openapi, enable the feature `k8s-openapi` of k8s-informer, with the same version of that crate"
)]
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
/// use k8s_informer::object::GroupVersionResource;
///
/// let deployments = GroupVersionResource::new("apps", "v1", "deployments");
/// assert_eq!((&*deployments.group, &*deployments.resource), ("apps", "deployments"));
/// assert_eq!(deployments.to_string(), "deployments.v1.apps");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "GVR")]
pub struct GroupVersionResource {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version: `v1`.
    pub version: String,
    /// The plural, lower-case resource: `pods`.
    pub resource: String,
}

impl GroupVersionResource {
    /// Names a resource; the core group is `""`.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            resource: resource.into(),
        }
    }

    /// The path of the collection on the API server: in one namespace, or (`None`, `Some("")`) in all of
    /// them, which is also the path of a cluster-scoped resource.
    ///
    /// Each part is percent-encoded.
    ///
    /// # Errors
    ///
    /// The group, version, resource or namespace is not one segment of a path: it is `.` or `..`, contains
    /// `/` or `%`, or is empty. Only the group may be empty.
    pub fn path(&self, namespace: Option<&str>) -> Result<String, Error> {
        let root = group_version_path(&self.group, &self.version)?;
        let resource = path_segment("resource", &self.resource)?;
        match namespace {
            None | Some("") => Ok(format!("{root}/{resource}")),
            Some(namespace) => {
                let namespace = path_segment("namespace", namespace)?;
                Ok(format!("{root}/namespaces/{namespace}/{resource}"))
            }
        }
    }
}

/// Returns the path of a version of an API group.
pub(crate) fn group_version_path(group: &str, version: &str) -> Result<String, Error> {
    let version = path_segment("version", version)?;
    match group {
        "" => Ok(format!("/api/{version}")),
        group => Ok(format!("/apis/{}/{version}", path_segment("group", group)?)),
    }
}

/// Returns `value` as one segment of a path, percent-encoded. Every part of a path that is not a constant
/// passes through here: a value such as `..` would request something else. apimachinery's
/// `IsValidPathSegmentName`, which accepts the empty name; a DELETE of `""` would be one of the collection.
pub(crate) fn path_segment(what: &str, value: &str) -> Result<String, Error> {
    /// The characters that Go's `url.URL` leaves as they are.
    const PLAIN: &[u8] = b"-._~$&+,:;=@";
    if matches!(value, "" | "." | "..") || value.contains(['/', '%']) {
        return Err(Error::other(format!(
            "{what} \"{}\" can't be part of a path: use a name that is not empty, \".\" or \"..\" and contains no \"/\" or \"%\"",
            Shown(value)
        )));
    }
    Ok(percent_encoded(value, PLAIN))
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
/// use k8s_informer::Resource;
/// use k8s_informer::object::GroupVersionKind;
/// use k8s_openapi::api::apps::v1::Deployment;
///
/// let kind = Deployment::group_version_kind();
/// assert_eq!((kind.api_version(), &*kind.kind), ("apps/v1".to_owned(), "Deployment"));
/// assert_eq!(kind, GroupVersionKind::new("apps", "v1", "Deployment"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[doc(alias = "GVK")]
pub struct GroupVersionKind {
    /// The API group, empty for the core group.
    pub group: String,
    /// The version: `v1`.
    pub version: String,
    /// The kind: `Pod`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Names a kind; the core group is `""`.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
        }
    }

    /// Names it as objects and owner references do, by an apiVersion. client-go's `FromAPIVersionAndKind`.
    ///
    /// ```
    /// use k8s_informer::object::GroupVersionKind;
    ///
    /// assert_eq!(GroupVersionKind::of("apps/v1", "Deployment").group, "apps");
    /// assert_eq!(GroupVersionKind::of("v1", "Pod"), GroupVersionKind::new("", "v1", "Pod"));
    /// ```
    pub fn of(api_version: &str, kind: impl Into<String>) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Self::new(group, version, kind)
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

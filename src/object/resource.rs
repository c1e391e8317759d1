use std::borrow::Cow;
use std::fmt;

use super::Object;
use crate::base::text::{EscapedName, percent_encoded};
use crate::error::Error;

/// Whether a resource is namespaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scope {
    /// Names are unique within the cluster, as those of Nodes.
    Cluster,
    /// Names are unique within a namespace, as those of Pods.
    Namespaced,
}

/// An object type that defines its resource.
///
/// ```
/// use k8s_informer::Resource;
/// use k8s_informer::object::Scope;
/// use k8s_openapi::api::apps::v1::Deployment;
///
/// assert_eq!(Deployment::group_version_kind().to_string(), "apps/v1 Deployment");
/// assert_eq!(Deployment::group_version_resource().to_string(), "deployments.v1.apps");
/// assert_eq!((&*Deployment::plural(), Deployment::scope()), ("deployments", Scope::Namespaced));
/// ```
///
/// For kinds that are known only at run time, pass a [`GroupVersionResource`] to the dynamic
/// methods instead.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a Kubernetes resource: it does not implement `k8s_informer::Resource`",
    label = "not a `Resource`",
    note = "for a custom struct, use `impl_object!`",
    note = "for a type of k8s-openapi, enable the feature `k8s-openapi` of k8s-informer and depend on the same version of k8s-openapi"
)]
pub trait Resource: Object {
    /// Returns the group, version and kind.
    fn group_version_kind() -> GroupVersionKind;

    /// Returns the plural name of the resource in URLs, for example `pods`.
    fn plural() -> Cow<'static, str>;

    /// Returns whether the resource is namespaced.
    fn scope() -> Scope;

    /// Returns the group, version and plural name.
    fn group_version_resource() -> GroupVersionResource {
        let kind = Self::group_version_kind();
        GroupVersionResource::new(kind.group, kind.version, Self::plural())
    }
}

/// A resource that is known at run time, for example `apps/v1 deployments`.
///
/// It corresponds to Go's `schema.GroupVersionResource`.
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
    /// The version, for example `v1`.
    pub version: String,
    /// The plural name of the resource in lower case, for example `pods`.
    pub resource: String,
}

impl GroupVersionResource {
    /// Creates a resource name. The core group is `""`.
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

    /// Returns the path of the collection on the API server.
    ///
    /// With a namespace, it is the path of that namespace's objects. With `None` or `Some("")`, it
    /// is the path of the objects in all namespaces, which is also the path of a cluster-scoped
    /// resource. Each part is percent-encoded.
    ///
    /// # Errors
    ///
    /// Returns an error if the group, version, resource or namespace is not a valid path segment:
    /// if it is `.` or `..`, contains `/` or `%`, or is empty. Only the group may be empty.
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

    /// Returns the URL path of one object.
    ///
    /// ```
    /// use k8s_informer::object::GroupVersionResource;
    ///
    /// let pods = GroupVersionResource::new("", "v1", "pods");
    /// assert_eq!(pods.object_path(Some("shop"), "web-0")?, "/api/v1/namespaces/shop/pods/web-0");
    /// assert!(pods.object_path(None, "..").is_err());
    /// # Ok::<(), k8s_informer::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`path`](Self::path), also for an invalid or empty name.
    pub fn object_path(&self, namespace: Option<&str>, name: &str) -> Result<String, Error> {
        let segment = path_segment("name", name)?;
        Ok(format!("{}/{segment}", self.path(namespace)?))
    }
}

fn group_version_path(group: &str, version: &str) -> Result<String, Error> {
    let version = path_segment("version", version)?;
    match group {
        "" => Ok(format!("/api/{version}")),
        group => Ok(format!("/apis/{}/{version}", path_segment("group", group)?)),
    }
}

/// Returns `value` as a percent-encoded path segment. Every variable part of a path passes through
/// this function: a value such as `..` would request something else.
///
/// apimachinery's `IsValidPathSegmentName` accepts the empty name. This function rejects it,
/// because a DELETE of `""` would delete the collection.
pub(crate) fn path_segment(what: &str, value: &str) -> Result<String, Error> {
    /// The characters that Go's `url.URL` does not encode.
    const PLAIN: &[u8] = b"-._~$&+,:;=@";
    if matches!(value, "" | "." | "..") || value.contains(['/', '%']) {
        return Err(Error::other(format!(
            "{what} \"{}\" can't be part of a path: it must not be empty, \".\" or \"..\", and must not contain \"/\" or \"%\"",
            EscapedName(value)
        )));
    }
    Ok(percent_encoded(value, PLAIN))
}

/// Writes the form that `kubectl` uses: `deployments.v1.apps`, `pods.v1`.
impl fmt::Display for GroupVersionResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.resource, self.version)?;
        if !self.group.is_empty() {
            write!(f, ".{}", self.group)?;
        }
        Ok(())
    }
}

/// The API group, version and kind of an object.
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
    /// The version, for example `v1`.
    pub version: String,
    /// The kind, for example `Pod`.
    pub kind: String,
}

impl GroupVersionKind {
    /// Creates a kind name. The core group is `""`.
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

    /// Creates a kind name from an apiVersion and kind, the form in objects and owner references.
    ///
    /// It corresponds to Go's `schema.FromAPIVersionAndKind`.
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

    /// Returns the group and version as objects contain them: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        match self.group.as_str() {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        }
    }
}

/// Writes the apiVersion and the kind: `apps/v1 Deployment`.
impl fmt::Display for GroupVersionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.kind)
    }
}

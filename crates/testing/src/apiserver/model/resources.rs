//! The resources that the server serves, and the routing of paths to them.

mod built_in;

use std::sync::Arc;

use parking_lot::RwLock;

use super::http::percent_decode;
use super::keyed_lists::KeyedLists;
use super::status::StatusError;

/// A resource that the server serves: its group, version, names and capabilities.
///
/// Built-in resources need no declaration. By default, a custom resource is namespaced and has a
/// `status` subresource and a `generation`. You can also create resources at any time with a
/// CustomResourceDefinition. Deleting the definition removes the resource and its objects.
///
/// All versions of a resource share their objects. The server only changes the `apiVersion` between
/// them, also if the definition names a conversion webhook, which it never calls. Only Events are
/// converted, between core `v1` and `events.k8s.io/v1`.
///
/// Server-side apply merges the `status.conditions` of a declared resource by their `type`. For a
/// resource with a CustomResourceDefinition it merges the lists that are maps in the schema.
///
/// ```
/// use k8s_informer_testing::{ApiResource, ApiServer};
/// use serde_json::json;
///
/// let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget").field("spec.colour");
/// let server = ApiServer::builder().resource(widgets).start()?;
/// let path = "/apis/example.com/v1/namespaces/default/widgets";
/// server.create(path, json!({ "metadata": { "name": "a" }, "spec": { "colour": "red" } }))?;
/// server.create(path, json!({ "metadata": { "name": "b" }, "spec": { "colour": "blue" } }))?;
///
/// let red = server.list(&format!("{path}?fieldSelector=spec.colour=red"))?;
/// assert_eq!(red["kind"], "WidgetList");
/// assert_eq!(red["items"][0]["metadata"]["name"], "a");
/// assert_eq!(red["items"].as_array().map(Vec::len), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiResource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) plural: String,
    pub(crate) kind: String,
    /// If empty, the singular is the kind in lower case.
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// The fields that a field selector may use, besides metadata.name and metadata.namespace.
    pub(crate) fields: Vec<String>,
    pub(crate) status: bool,
    pub(crate) generation: bool,
    /// Whether this is a custom resource. Custom resources differ in details: for example, list
    /// items include their kind.
    pub(crate) custom: bool,
    /// Whether DELETE returns the object instead of a `Status`.
    pub(crate) delete_returns_object: bool,
    /// Whether an update must contain a resourceVersion.
    pub(crate) versioned_updates: bool,
    pub(crate) scale: Option<Scale>,
    /// The keyed lists of a custom resource, besides the owner references.
    pub(crate) keyed_lists: KeyedLists,
}

/// The paths in an object to the values that form its scale. Each field corresponds to one of
/// `subresources.scale` in a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// `specReplicasPath`.
    pub(crate) spec: String,
    /// `statusReplicasPath`.
    pub(crate) status: String,
    /// `labelSelectorPath`. The value is a string, a LabelSelector or labels.
    pub(crate) selector: String,
}

impl ApiResource {
    /// Creates a custom resource. If `group` is empty, its paths are under `/api`.
    pub fn new(
        group: impl Into<String>,
        version: impl Into<String>,
        plural: impl Into<String>,
        kind: impl Into<String>,
    ) -> Self {
        Self {
            group: group.into(),
            version: version.into(),
            plural: plural.into(),
            kind: kind.into(),
            singular: String::new(),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: true,
            fields: Vec::new(),
            status: true,
            generation: true,
            custom: true,
            delete_returns_object: false,
            versioned_updates: true,
            scale: None,
            keyed_lists: KeyedLists::conditions(),
        }
    }

    /// Makes the resource cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Lets field selectors use this field, like `selectableFields` of a CustomResourceDefinition.
    /// The keys of the path are separated by dots. A missing field is treated as empty.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Self {
        self.fields.push(path.into());
        self
    }

    /// Adds a short name, such as `deploy` for deployments.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<String>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Removes the `status` subresource. `status` is then written like any other field.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.status = false;
        self
    }

    /// Adds the `scale` subresource, like `subresources.scale` of a CustomResourceDefinition.
    ///
    /// The arguments are the paths of the desired replicas (such as `.spec.replicas`), of the
    /// current replicas (such as `.status.replicas`), and of the selector as a string. The last one
    /// may be empty.
    #[must_use]
    pub fn scale(
        mut self,
        spec_replicas_path: impl Into<String>,
        status_replicas_path: impl Into<String>,
        label_selector_path: impl Into<String>,
    ) -> Self {
        let (spec, status) = (spec_replicas_path.into(), status_replicas_path.into());
        self.scale = Some(Scale {
            spec,
            status,
            selector: label_selector_path.into(),
        });
        self
    }

    /// Returns what the keys of a collection begin with. It does not contain the version, so all
    /// versions of a resource share their objects, and both APIs for Events share those of the core
    /// API.
    pub(crate) fn prefix(&self, namespace: Option<&str>) -> String {
        let group = match &*self.group {
            "events.k8s.io" if !self.custom => "",
            group => group,
        };
        let namespace = namespace.map(|namespace| format!("{namespace}/"));
        format!("{group}/{}/{}", self.plural, namespace.unwrap_or_default())
    }

    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> Arc<str> {
        (self.prefix(namespace) + name).into()
    }

    /// Whether a definition of this name defines the resource.
    fn is_named(&self, definition: &str) -> bool {
        let group = definition.strip_prefix(&*self.plural);
        group.and_then(|group| group.strip_prefix('.')) == Some(&self.group)
    }

    pub(crate) fn not_found(&self, name: &str) -> StatusError {
        StatusError::not_found(name, &self.group, &self.plural)
    }

    /// Returns `v1` or `apps/v1`, for example.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Returns the group and the plural in a key.
pub(crate) fn split_key(key: &str) -> Option<(&str, &str)> {
    let (group, rest) = key.split_once('/')?;
    Some((group, rest.split_once('/')?.0))
}

/// The resources of one server.
#[derive(Debug)]
pub(crate) struct Resources {
    /// The number of resources in `served` that are always served: those that were declared at the
    /// start, and the built-in ones. The others come and go with their definitions.
    fixed: usize,
    /// A leaf lock: no other lock is taken, and no user code runs, while it is held.
    served: RwLock<Arc<Vec<Arc<ApiResource>>>>,
}

/// The target of a path.
#[derive(Debug, PartialEq)]
pub(crate) enum Route {
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and their subpaths.
    Health,
    /// The discovery document of the core API (`/api`), or that of all other groups (`/apis`).
    Discovery {
        core: bool,
    },
    Object(Target),
    /// The group and version are served, but not the resource or subresource.
    NoSuchResource,
    /// Nothing is served at this path.
    NotFound,
}

/// A collection, an object or a subresource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    pub(crate) resource: Arc<ApiResource>,
    /// `None` in a path for all namespaces, and for cluster-scoped resources.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) status: bool,
    /// The subresource, if it has its own kind.
    pub(crate) sub: Option<Sub>,
}

/// A subresource with its own kind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sub {
    Scale,
    Eviction,
}

impl Target {
    /// The subresource in the entries of managers. Empty for the object itself.
    pub(crate) fn subresource(&self) -> &'static str {
        match self.sub {
            Some(Sub::Scale) => "scale",
            Some(Sub::Eviction) => "eviction",
            None if self.status => "status",
            None => "",
        }
    }

    pub(crate) fn prefix(&self) -> String {
        self.resource.prefix(self.namespace.as_deref())
    }

    /// Returns the key and the name of the object. Fails with 405 if the target has no name.
    pub(crate) fn key(&self) -> Result<(Arc<str>, &str), StatusError> {
        let name = self.name.as_deref();
        let name = name.ok_or_else(StatusError::method_not_allowed)?;
        Ok((self.resource.key(self.namespace.as_deref(), name), name))
    }
}

impl Resources {
    /// Creates the table of `custom` and built-in resources. Custom ones take precedence.
    pub(crate) fn new(custom: Vec<ApiResource>) -> Self {
        let fixed: Vec<_> = custom
            .into_iter()
            .chain(built_in::resources())
            .map(Arc::new)
            .collect();
        Self {
            fixed: fixed.len(),
            served: RwLock::new(Arc::new(fixed)),
        }
    }

    /// Returns all resources that are currently served.
    pub(crate) fn served(&self) -> Arc<Vec<Arc<ApiResource>>> {
        self.served.read().clone()
    }

    /// Returns the resources that are always served, and those with a definition.
    pub(crate) fn by_origin(&self) -> (Vec<Arc<ApiResource>>, Vec<Arc<ApiResource>>) {
        let served = self.served();
        let (fixed, defined) = served.split_at(self.fixed);
        (fixed.to_vec(), defined.to_vec())
    }

    fn find_where(&self, is_it: impl Fn(&ApiResource) -> bool) -> Option<Arc<ApiResource>> {
        let served = self.served();
        served.iter().find(|resource| is_it(resource)).cloned()
    }

    pub(crate) fn find(
        &self,
        group: &str,
        version: &str,
        plural: &str,
    ) -> Option<Arc<ApiResource>> {
        self.find_where(|r| r.plural == plural && r.group == group && r.version == version)
    }

    /// Returns the resource of a stored object, in one of its served versions.
    pub(crate) fn of_key(&self, key: &str) -> Option<Arc<ApiResource>> {
        let (group, plural) = split_key(key)?;
        self.find_where(|r| r.plural == plural && r.group == group)
    }

    /// Serves these versions of the resource with a definition of this name, and no others. Returns
    /// those that are not served anymore.
    pub(crate) fn serve(&self, name: &str, versions: Vec<ApiResource>) -> Vec<Arc<ApiResource>> {
        let mut served = self.served.write();
        let served = Arc::make_mut(&mut served);
        let is_kept = |old: &ApiResource| versions.iter().any(|new| new.version == old.version);
        let defined = served.split_off(self.fixed);
        let (old, others): (Vec<_>, _) = defined.into_iter().partition(|r| r.is_named(name));
        let gone = old.into_iter().filter(|old| !is_kept(old)).collect();
        served.extend(others);
        served.extend(versions.into_iter().map(Arc::new));
        gone
    }

    /// Routes `path`, which is percent-encoded and has no query.
    pub(crate) fn route(&self, path: &str) -> Route {
        let segments: Option<Vec<String>> = path.strip_prefix('/').map(|rest| {
            rest.trim_end_matches('/')
                .split('/')
                .map(percent_decode)
                .collect()
        });
        let Some(segments) = segments else {
            return Route::NotFound;
        };
        let segments: Vec<&str> = segments.iter().map(String::as_str).collect();
        match segments.as_slice() {
            ["version"] => Route::Version,
            ["healthz" | "livez" | "readyz", ..] => Route::Health,
            ["api"] => Route::Discovery { core: true },
            ["apis"] => Route::Discovery { core: false },
            ["api", version, rest @ ..] => self.route_in("", version, rest),
            ["apis", group, version, rest @ ..] => self.route_in(group, version, rest),
            _ => Route::NotFound,
        }
    }

    fn route_in(&self, group: &str, version: &str, rest: &[&str]) -> Route {
        let missing = || match self.find_where(|r| r.group == group && r.version == version) {
            Some(_) => Route::NoSuchResource,
            None => Route::NotFound,
        };
        let (namespace, rest) = match rest {
            // `/namespaces/x` and `/namespaces/x/status` refer to the namespace itself.
            ["namespaces", _] | ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some((*namespace).to_owned()), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [plural] => (plural, None, None),
            [plural, name] => (plural, Some((*name).to_owned()), None),
            [plural, name, subresource] => (plural, Some((*name).to_owned()), Some(*subresource)),
            _ => return missing(),
        };
        let Some(resource) = self.find(group, version, plural) else {
            return missing();
        };
        let in_namespace = namespace.is_some();
        // An object of a namespaced resource needs a namespace in its path. A cluster-scoped one
        // must not have one.
        if in_namespace && !resource.namespaced
            || !in_namespace && resource.namespaced && name.is_some()
        {
            return Route::NoSuchResource;
        }
        let (status, sub) = match subresource {
            None => (false, None),
            Some("status") if resource.status => (true, None),
            Some("scale") if resource.scale.is_some() => (false, Some(Sub::Scale)),
            Some("eviction") if group.is_empty() && *plural == "pods" => {
                (false, Some(Sub::Eviction))
            }
            // `finalize` is the last request of a namespace controller. It updates the whole
            // object.
            Some("finalize") if *plural == "namespaces" => (false, None),
            Some(_) => return Route::NoSuchResource,
        };
        Route::Object(Target {
            resource,
            namespace,
            name,
            status,
            sub,
        })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

//! The resources that the server serves, and the routing of paths to them.

mod built_in;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use self::built_in::{BUILT_IN, BuiltIn};
use super::http::percent_decode;
use super::keyed_lists::KeyedLists;

/// A resource that the server serves: its group, version, names and capabilities.
///
/// Built-in resources need no declaration. By default, a custom resource is namespaced and has a
/// `status` subresource and a `generation`. You can also create resources at any time with a
/// CustomResourceDefinition. Deleting the definition removes the resource and its objects. Each
/// version of a resource has its own objects: the server does not convert between versions. Only
/// Events are converted, between core `v1` and `events.k8s.io/v1`.
///
/// Server-side apply merges the `status.conditions` of a declared resource by their `type`. For a
/// resource with a CustomResourceDefinition it merges the lists that are maps in the schema.
///
/// ```
/// use k8s_informer::testing::{ApiResource, ApiServer};
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
    /// Whether PUT creates a missing object.
    pub(crate) creates_on_update: bool,
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
            creates_on_update: false,
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

    /// Whether `self` and `other` have the same objects: the same group, version, plural and scope.
    fn has_same_objects_as(&self, other: &Self) -> bool {
        let what = |r: &Self| {
            (
                r.group.clone(),
                r.version.clone(),
                r.plural.clone(),
                r.namespaced,
            )
        };
        what(self) == what(other)
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

/// Whether a built-in kind has this `apiVersion`.
pub(crate) fn is_built_in(api_version: &str, kind: &str) -> bool {
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let is_it = |known: &BuiltIn| (known.0, known.1, known.3) == (group, version, kind);
    BUILT_IN.iter().any(is_it)
}

/// The maximum number of resources from CustomResourceDefinitions.
const SLOTS: usize = 1024;

/// The resources of one server. Resources that were declared at the start are always served. Others
/// come and go with their definitions but keep their index, because the history refers to it.
#[derive(Debug)]
pub(crate) struct Resources {
    fixed: Vec<ApiResource>,
    /// Filled from the front.
    slots: Box<[OnceLock<Box<Slot>>]>,
}

/// A resource that comes and goes.
#[derive(Debug)]
struct Slot {
    first: Revision,
    is_served: AtomicBool,
}

/// A resource in one revision of its definition.
#[derive(Debug)]
struct Revision {
    resource: ApiResource,
    next: OnceLock<Box<Self>>,
}

impl Slot {
    fn last(&self) -> &Revision {
        let mut revision = &self.first;
        while let Some(next) = revision.next.get() {
            revision = next;
        }
        revision
    }

    fn resource(&self) -> &ApiResource {
        &self.last().resource
    }
}

impl Revision {
    fn new(resource: ApiResource) -> Self {
        Self {
            resource,
            next: OnceLock::new(),
        }
    }
}

/// The target of a path.
#[derive(Debug, PartialEq)]
pub(crate) enum Route {
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and their subpaths.
    Health,
    /// A discovery document.
    Discovery(Document),
    Object(Target),
    /// The group and version are served, but not the resource or subresource.
    NoSuchResource,
    /// Nothing is served at this path.
    NotFound,
}

/// A discovery document.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Document {
    /// `/api`.
    Api,
    /// `/apis`.
    Apis,
    /// `/apis/apps`.
    Group(String),
    /// `/api/v1`, `/apis/apps/v1`.
    Version(String, String),
}

/// A collection, an object or a subresource.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// The index in [`Resources`].
    pub(crate) resource: usize,
    /// The index of the resource under which the objects are stored: another one if two APIs share
    /// their objects.
    pub(crate) storage: usize,
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

impl Resources {
    /// Creates the table of `custom` and built-in resources. Custom ones take precedence.
    pub(crate) fn new(custom: Vec<ApiResource>) -> Self {
        let built_in =
            BUILT_IN.iter().map(
                |&(group, version, plural, kind, options, fields)| ApiResource {
                    namespaced: !options.contains('c'),
                    fields: fields.iter().map(|&field| field.to_owned()).collect(),
                    status: options.contains('s'),
                    generation: options.contains('g'),
                    custom: false,
                    delete_returns_object: options.contains('o'),
                    creates_on_update: options.contains('p'),
                    versioned_updates: options.contains('v'),
                    scale: options.contains('r').then(|| Scale {
                        spec: ".spec.replicas".to_owned(),
                        status: ".status.replicas".to_owned(),
                        selector: ".spec.selector".to_owned(),
                    }),
                    ..ApiResource::new(group, version, plural, kind)
                },
            );
        let slots = (0..SLOTS).map(|_| OnceLock::new()).collect();
        Self {
            fixed: custom.into_iter().chain(built_in).collect(),
            slots,
        }
    }

    /// Returns a resource that is or was served.
    pub(crate) fn get(&self, index: usize) -> &ApiResource {
        match index.checked_sub(self.fixed.len()) {
            None => &self.fixed[index],
            Some(slot) => match self.slots[slot].get() {
                Some(slot) => slot.resource(),
                None => unreachable!("indices refer only to used slots"),
            },
        }
    }

    fn slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.slots.iter().map_while(|slot| slot.get());
        slots
            .enumerate()
            .map(|(index, slot)| (self.fixed.len() + index, &**slot))
    }

    /// Returns all resources that are currently served.
    pub(crate) fn served(&self) -> impl Iterator<Item = (usize, &ApiResource)> {
        let slots = self
            .slots()
            .filter(|(_, slot)| slot.is_served.load(Ordering::Acquire));
        self.fixed
            .iter()
            .enumerate()
            .chain(slots.map(|(index, slot)| (index, slot.resource())))
    }

    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<usize> {
        let mut served = self.served();
        let found =
            served.find(|(_, r)| r.group == group && r.version == version && r.plural == plural);
        found.map(|(index, _)| index)
    }

    /// Returns the index of a resource that was ever added, in any revision.
    pub(crate) fn slot_of(&self, resource: &ApiResource) -> Option<usize> {
        let is_its = |slot: &Slot| slot.resource().has_same_objects_as(resource);
        self.slots()
            .find(|(_, slot)| is_its(slot))
            .map(|(index, _)| index)
    }

    /// Adds a new or changed resource. Returns its index, or `None` if the table is full. Only one
    /// thread at a time may call this.
    pub(crate) fn add(&self, resource: ApiResource) -> Option<usize> {
        let Some(index) = self.slot_of(&resource) else {
            let index = self.slots().count();
            let new = Slot {
                first: Revision::new(resource),
                is_served: AtomicBool::new(false),
            };
            self.slots.get(index)?.set(Box::new(new)).ok()?;
            return Some(self.fixed.len() + index);
        };
        let last = self.slots[index - self.fixed.len()].get()?.last();
        if last.resource != resource {
            last.next.set(Box::new(Revision::new(resource))).ok()?;
        }
        Some(index)
    }

    /// Sets which of the resources that come and go are served, by their indexes. Returns the
    /// indexes of those that are not served anymore.
    pub(crate) fn serve_only(&self, served: &[usize]) -> Vec<usize> {
        let mut gone = Vec::new();
        for (index, slot) in self.slots() {
            let is_served = served.contains(&index);
            if slot.is_served.swap(is_served, Ordering::AcqRel) && !is_served {
                gone.push(index);
            }
        }
        gone
    }

    /// Returns all known resources in order of their index.
    pub(crate) fn known(&self) -> Vec<ApiResource> {
        self.fixed
            .iter()
            .chain(self.slots().map(|(_, slot)| slot.resource()))
            .cloned()
            .collect()
    }

    /// Whether the resources of another server have the same indexes here. Adds those that are
    /// missing.
    pub(crate) fn has_slots_for(&self, known: &[ApiResource]) -> bool {
        let (mine, fixed) = (self.known(), self.fixed.len());
        known.get(..fixed) == Some(&self.fixed[..])
            && mine
                .iter()
                .zip(known)
                .skip(fixed)
                .all(|(mine, known)| mine.has_same_objects_as(known))
            && known
                .iter()
                .skip(mine.len())
                .all(|known| self.add(known.clone()).is_some())
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
            ["api"] => Route::Discovery(Document::Api),
            ["apis"] => Route::Discovery(Document::Apis),
            ["api", version] if self.serves("", Some(version)) => {
                Route::Discovery(Document::Version(String::new(), (*version).to_owned()))
            }
            ["apis", group] if self.serves(group, None) => {
                Route::Discovery(Document::Group((*group).to_owned()))
            }
            ["apis", group, version] if self.serves(group, Some(version)) => Route::Discovery(
                Document::Version((*group).to_owned(), (*version).to_owned()),
            ),
            ["api", version, rest @ ..] => self.route_in("", version, rest),
            ["apis", group, version, rest @ ..] => self.route_in(group, version, rest),
            _ => Route::NotFound,
        }
    }

    /// Returns the resource that stores the objects of another one. Both APIs for Events share the
    /// storage of the core API.
    fn storage(&self, index: usize) -> usize {
        let resource = self.get(index);
        if resource.custom || resource.group != "events.k8s.io" {
            return index;
        }
        let is_core = |r: &ApiResource| !r.custom && r.group.is_empty() && r.plural == "events";
        self.fixed.iter().position(is_core).unwrap_or(index)
    }

    fn serves(&self, group: &str, version: Option<&str>) -> bool {
        let mut served = self.served();
        served.any(|(_, r)| r.group == group && version.is_none_or(|version| r.version == version))
    }

    fn route_in(&self, group: &str, version: &str, rest: &[&str]) -> Route {
        if rest.is_empty() || !self.serves(group, Some(version)) {
            return Route::NotFound;
        }
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
            _ => return Route::NoSuchResource,
        };
        let Some(index) = self.find(group, version, plural) else {
            return Route::NoSuchResource;
        };
        let resource = self.get(index);
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
            resource: index,
            storage: self.storage(index),
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

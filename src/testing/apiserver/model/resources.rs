//! What the server serves, and which paths lead there.

mod built_in;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use self::built_in::BUILT_IN;
use super::http::percent_decode;

/// A resource that the server serves: group, version, names and what may be asked of it.
///
/// Built-in ones need not be declared. A custom one is what a CustomResourceDefinition would make it:
/// namespaced, with a `status` subresource and a `generation`, unless said otherwise. One can also be created
/// at any time as a CustomResourceDefinition; it is gone, with its objects, when that is deleted. Each
/// version of a resource has objects of its own: nothing is converted.
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
    /// Empty for the kind in small letters.
    pub(crate) singular: String,
    pub(crate) short_names: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Fields beside metadata.name and metadata.namespace that a field selector may name.
    pub(crate) fields: Vec<String>,
    pub(crate) status: bool,
    pub(crate) generation: bool,
    /// Custom resources differ in small ways: list items carry their kind, an update must name its version.
    pub(crate) custom: bool,
    /// DELETE answers with the object instead of a `Status`.
    pub(crate) delete_returns_object: bool,
    pub(crate) scale: Option<Scale>,
}

/// Where a scale is found in an object, or what that is called in a CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// `specReplicasPath`.
    pub(crate) spec: String,
    /// `statusReplicasPath`.
    pub(crate) status: String,
    /// `labelSelectorPath`, of a text, a LabelSelector or labels.
    pub(crate) selector: String,
}

impl ApiResource {
    /// A custom resource; `group` is empty for none (the paths are then under `/api`).
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
            scale: None,
        }
    }

    /// Makes the resource one of the whole cluster, without namespaces.
    #[must_use]
    pub fn cluster_scoped(mut self) -> Self {
        self.namespaced = false;
        self
    }

    /// Lets field selectors name this field, as `selectableFields` of a CustomResourceDefinition does. Dots
    /// separate the keys that lead to it; a field that is absent counts as empty.
    #[must_use]
    pub fn field(mut self, path: impl Into<String>) -> Self {
        self.fields.push(path.into());
        self
    }

    /// Gives it a short name, as `deploy` is one of deployments.
    #[must_use]
    pub fn short_name(mut self, name: impl Into<String>) -> Self {
        self.short_names.push(name.into());
        self
    }

    /// Takes the `status` subresource away: `status` is then written like any other field.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.status = false;
        self
    }

    /// Adds the `scale` subresource, as `subresources.scale` of a CustomResourceDefinition does: the paths of
    /// the replicas that are wanted and of those that are there, as `.spec.replicas` and `.status.replicas`,
    /// and of the selector as text; empty for none.
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

    /// Whether the objects of one are those of the other.
    fn has_place_of(&self, other: &Self) -> bool {
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

    /// `v1`, `apps/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// How many resources a server can come to know by CustomResourceDefinitions.
const SLOTS: usize = 1024;

/// The resources of one server. Those that it has started with are always served, others come and go with
/// their definitions, but none loses its place: the history speaks of what is gone.
#[derive(Debug)]
pub(crate) struct Resources {
    fixed: Vec<ApiResource>,
    /// Filled from the front.
    slots: Box<[OnceLock<Box<Slot>>]>,
}

/// The place of a resource that comes and goes.
#[derive(Debug)]
struct Slot {
    first: Revision,
    is_served: AtomicBool,
}

/// A resource as its definition had it at some time.
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

/// Where a path leads.
#[derive(Debug, PartialEq)]
pub(crate) enum Route {
    /// `/version`.
    Version,
    /// `/healthz`, `/livez`, `/readyz` and what is below them.
    Health,
    /// What says what is served.
    Discovery(Document),
    Object(Target),
    /// The group and version are served, the resource or subresource is not.
    NoSuchResource,
    /// Nothing at all is there.
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

/// A collection, an object or a subresource of one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Target {
    /// Index into [`Resources`].
    pub(crate) resource: usize,
    /// `None` in a path that spans all namespaces, and for cluster-scoped resources.
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
    pub(crate) status: bool,
    /// What is there instead of the object itself.
    pub(crate) sub: Option<Sub>,
}

/// A subresource that has a kind of its own.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Sub {
    Scale,
    Eviction,
}

impl Resources {
    /// The built-in resources and `custom` ones, which win over built-in ones of the same name.
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

    /// One that is or was served.
    pub(crate) fn get(&self, index: usize) -> &ApiResource {
        match index.checked_sub(self.fixed.len()) {
            None => &self.fixed[index],
            Some(slot) => match self.slots[slot].get() {
                Some(slot) => slot.resource(),
                None => unreachable!("nobody has the index of an empty slot"),
            },
        }
    }

    fn slots(&self) -> impl Iterator<Item = (usize, &Slot)> {
        let slots = self.slots.iter().map_while(|slot| slot.get());
        slots
            .enumerate()
            .map(|(index, slot)| (self.fixed.len() + index, &**slot))
    }

    /// All that are served now.
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

    /// The place of one that came at some time, in whatever revision.
    pub(crate) fn slot_of(&self, resource: &ApiResource) -> Option<usize> {
        let is_its = |slot: &Slot| slot.resource().has_place_of(resource);
        self.slots()
            .find(|(_, slot)| is_its(slot))
            .map(|(index, _)| index)
    }

    /// Takes in one that is new or has changed; its place, unless there is no more room. Only one thread at a
    /// time may.
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

    /// Of those that come and go these are served; returns which are served no longer.
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

    /// Those that it knows, in their places.
    pub(crate) fn known(&self) -> Vec<ApiResource> {
        self.fixed
            .iter()
            .chain(self.slots().map(|(_, slot)| slot.resource()))
            .cloned()
            .collect()
    }

    /// Whether `known` of another server have the same places here, where room is made for those that are
    /// missing.
    pub(crate) fn has_place_for(&self, known: &[ApiResource]) -> bool {
        let (mine, fixed) = (self.known(), self.fixed.len());
        known.get(..fixed) == Some(&self.fixed[..])
            && mine
                .iter()
                .zip(known)
                .skip(fixed)
                .all(|(mine, known)| mine.has_place_of(known))
            && known
                .iter()
                .skip(mine.len())
                .all(|known| self.add(known.clone()).is_some())
    }

    /// Finds out where `path` (still percent-encoded, without query) leads.
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

    fn serves(&self, group: &str, version: Option<&str>) -> bool {
        let mut served = self.served();
        served.any(|(_, r)| r.group == group && version.is_none_or(|version| r.version == version))
    }

    fn route_in(&self, group: &str, version: &str, rest: &[&str]) -> Route {
        if rest.is_empty() || !self.serves(group, Some(version)) {
            return Route::NotFound;
        }
        let (namespace, rest) = match rest {
            // `/namespaces/x` and `/namespaces/x/status` are about the namespace itself.
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
        // An object of a namespaced resource needs its namespace in the path; a cluster-scoped one can't have
        // any.
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
            // What a namespace controller would call in the end: an update of everything.
            Some("finalize") if *plural == "namespaces" => (false, None),
            Some(_) => return Route::NoSuchResource,
        };
        Route::Object(Target {
            resource: index,
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

//! The objects of the controller.

use std::fmt;

use k8s_informer::object::{FullObjectMeta, Key};
use k8s_informer::{Object, impl_full_metadata, impl_object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Nothing is created in the last one.
pub(crate) const NAMESPACES: [&str; 4] = ["sites-a", "sites-b", "sites-c", "sites-quiet"];

pub(crate) const FINALIZER: &str = "chaos.example.com/cloud";

pub(crate) const SITES: &str = "/apis/chaos.example.com/v1";

pub(crate) const TEAM: &str = "team";

/// The label of a [`Space`], with the key of its site.
pub(crate) const SITE: &str = "chaos.example.com/site";

/// The primary object.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Site {
    pub(crate) metadata: FullObjectMeta,
    pub(crate) spec: Spec,
    #[serde(default)]
    pub(crate) status: Status,
}
impl_object!(Site, "chaos.example.com/v1", "Site", "sites", Namespaced);
impl_full_metadata!(Site);

#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) struct Spec {
    /// The number of children.
    pub(crate) children: usize,
    /// The colour of the children.
    pub(crate) colour: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Status {
    /// The sorted names of the children.
    pub(crate) names: Vec<String>,
    pub(crate) colour: String,
    /// The label of the object.
    pub(crate) team: String,
}

/// A child is a ConfigMap.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Child {
    pub(crate) metadata: FullObjectMeta,
    #[serde(default)]
    pub(crate) data: Data,
}
impl_object!(Child, "v1", "ConfigMap", "configmaps", Namespaced);
impl_full_metadata!(Child);

#[derive(Clone, Debug, Default, Deserialize)]
pub(crate) struct Data {
    #[serde(default)]
    pub(crate) colour: String,
}

/// A Namespace that a site wants. No controller removes the finalizer in its spec, so a deleted one
/// stays in the phase `Terminating`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Space {
    pub(crate) metadata: FullObjectMeta,
}
impl_object!(Space, "v1", "Namespace", "namespaces", Cluster);
impl_full_metadata!(Space);

impl Space {
    /// Returns the name of the Namespace that a site wants. Some sites want one.
    pub(crate) fn wanted(site: &str, uid: &str, colour: &str) -> Option<String> {
        site.ends_with('7').then(|| format!("{uid}-{colour}"))
    }

    /// Returns the value of the label for a site. Labels contain no slashes.
    pub(crate) fn label_of(site: &str) -> String {
        site.replace('/', ".")
    }

    /// Returns the key of the site.
    pub(crate) fn site(&self) -> Option<Key> {
        Some(self.label(SITE)?.replace('.', "/").into())
    }

    /// Whether the cache of the controller rejects a Namespace of this name.
    pub(crate) fn is_rejected(name: &str) -> bool {
        name.ends_with('3')
    }
}

/// Where a controller is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Point {
    /// The finalizer was added.
    Finalizer,
    /// The cloud has executed the effect.
    Effect,
    /// A child was created.
    Create,
    /// The cloud has executed the cleanup.
    Cleanup,
    /// The finalizer was removed.
    Removal,
    /// Anywhere.
    Any,
}

impl Point {
    pub(crate) const ALL: [Self; 6] = [
        Self::Finalizer,
        Self::Effect,
        Self::Create,
        Self::Cleanup,
        Self::Removal,
        Self::Any,
    ];
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finalizer => "after the finalizer",
            Self::Effect => "after the effect",
            Self::Create => "after the create",
            Self::Cleanup => "after the cleanup",
            Self::Removal => "after the removal of the finalizer",
            Self::Any => "at a random time",
        })
    }
}

pub(crate) fn definition() -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": { "name": "sites.chaos.example.com" },
        "spec": {
            "group": "chaos.example.com",
            "scope": "Namespaced",
            "names": { "plural": "sites", "singular": "site", "kind": "Site", "listKind": "SiteList" },
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "subresources": { "status": {} },
                "schema": { "openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                } },
            }],
        },
    })
}

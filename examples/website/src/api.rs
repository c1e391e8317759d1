//! The custom resource `Website`. kube's derive macro creates its definition.

use std::collections::BTreeMap;

use k8s_informer::impl_object;
use k8s_informer_controller::Conditions;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Pages that are served under a host name.
#[derive(Clone, Debug, CustomResource, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "example.com",
    version = "v1",
    kind = "Website",
    namespaced,
    shortname = "web",
    status = "WebsiteStatus",
    printcolumn(name = "Host", type_ = "string", json_path = ".spec.host"),
    // Otherwise the old host would have to be removed.
    validation = Rule::new("self.spec.host == oldSelf.spec.host").message("the host can't change")
)]
pub(crate) struct WebsiteSpec {
    /// The host name, for example `blue.example.com`.
    #[schemars(
        length(min = 1, max = 253),
        regex(pattern = r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    )]
    pub(crate) host: String,
    pub(crate) image: String,
    #[schemars(range(min = 0, max = 20))]
    pub(crate) replicas: i32,
    /// The content of the pages by their file names.
    #[serde(default)]
    pub(crate) pages: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct WebsiteStatus {
    pub(crate) observed_generation: i64,
    pub(crate) ready_replicas: i32,
    #[schemars(with = "Vec<Condition>")]
    pub(crate) conditions: Conditions,
}

impl_object!(Website as kube::Resource);

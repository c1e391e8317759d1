//! Custom structs for kube-rs, with the fields of [`custom::Pod`](crate::measure::custom::Pod).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};

use crate::measure::custom::Annotations;
use crate::measure::latency::SENT_AT;

/// As a user would write it: `kube::Resource` requires the whole `ObjectMeta`.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[allow(dead_code, reason = "a cache only holds the fields")]
pub(crate) struct CustomPod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

/// The same, without the metadata that ours does not decode.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Pod)]
#[allow(dead_code, reason = "a cache only holds the fields")]
pub(crate) struct SameFieldsPod {
    #[serde(deserialize_with = "same_fields")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(dead_code, reason = "a cache only holds the fields")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[allow(dead_code, reason = "a cache only holds the fields")]
struct Status {
    phase: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<Annotations>,
}

/// Keeps the send time only if there is one, which is so only for paced events.
fn same_fields<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let metadata = Metadata::deserialize(deserializer)?;
    let sent_at = metadata.annotations.map_or(0, |all| all.sent_at);
    Ok(ObjectMeta {
        name: metadata.name,
        namespace: metadata.namespace,
        uid: metadata.uid,
        resource_version: metadata.resource_version,
        labels: metadata.labels,
        annotations: (sent_at > 0)
            .then(|| BTreeMap::from([(SENT_AT.to_owned(), sent_at.to_string())])),
        ..ObjectMeta::default()
    })
}

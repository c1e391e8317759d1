//! A Pod as a custom struct with three fields.

use k8s_informer::{ObjectMeta, impl_object};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Pod {
    metadata: ObjectMeta,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    node_name: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    phase: Option<String>,
}

impl_object!(Pod, "v1", "Pod", "pods", Namespaced);

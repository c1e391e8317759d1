//! The object type of the quickstart: of a Pod just what it shows. What is not decoded costs no memory.

use k8s_informer::{Object, ObjectMeta, impl_object};
use serde::Deserialize;

#[derive(Deserialize)]
pub(crate) struct Pod {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct PodSpec {
    node_name: Option<String>,
}

#[derive(Default, Deserialize)]
struct PodStatus {
    phase: Option<String>,
}

impl_object!(Pod, "v1", "Pod", "pods", Namespaced);

impl Pod {
    pub(crate) fn node(&self) -> Option<&str> {
        self.spec
            .node_name
            .as_deref()
            .filter(|node| !node.is_empty())
    }

    pub(crate) fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or("Unknown")
    }
}

/// The head of the table of Pods.
pub(crate) fn head() -> String {
    format!(
        "{:<14} {:<24} {:<10} {:<12} {}",
        "NAMESPACE", "NAME", "PHASE", "NODE", "VERSION"
    )
}

/// One line of the table of Pods.
pub(crate) fn row(pod: &Pod) -> String {
    let (namespace, name, version) = (pod.namespace(), pod.name(), pod.resource_version());
    format!(
        "{namespace:<14} {name:<24} {:<10} {:<12} {version}",
        pod.phase(),
        pod.node().unwrap_or("-")
    )
}

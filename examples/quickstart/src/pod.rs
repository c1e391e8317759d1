//! The object type of the quickstart. It has only the fields that are displayed. Other fields are
//! not decoded and take no memory.

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

/// The titles of the columns.
pub(crate) const TITLES: [&str; 5] = ["NAMESPACE", "NAME", "PHASE", "NODE", "VERSION"];

/// Returns the cells of one table row. Control characters from the object are escaped, because the
/// terminal would interpret them.
pub(crate) fn cells(pod: &Pod) -> [String; 5] {
    let node = pod.node().unwrap_or("-");
    [
        pod.namespace(),
        pod.name(),
        pod.phase(),
        node,
        pod.resource_version(),
    ]
    .map(|cell| cell.escape_debug().to_string())
}

/// Returns the titles as one line of text.
pub(crate) fn head() -> String {
    line(TITLES)
}

/// Returns a table row as one line of text.
pub(crate) fn row(pod: &Pod) -> String {
    line(cells(pod).each_ref().map(String::as_str))
}

fn line([namespace, name, phase, node, version]: [&str; 5]) -> String {
    format!("{namespace:<14} {name:<24} {phase:<10} {node:<12} {version}")
}

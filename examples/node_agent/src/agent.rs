//! The agent: reports the Pods on one node and their changes.

use k8s_informer::informer::{InformerError, InformerScope, Observation};
use k8s_informer::{Client, Object, ObjectMeta, impl_object, observe};
use serde::Deserialize;

/// The parts of a Pod that the agent needs. Other fields are not decoded and take no memory.
#[derive(Deserialize)]
pub(crate) struct Pod {
    metadata: ObjectMeta,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
struct PodStatus {
    phase: Option<String>,
}

impl_object!(Pod, "v1", "Pod", "pods", Namespaced);

impl Pod {
    fn phase(&self) -> &str {
        self.status.phase.as_deref().unwrap_or("Unknown")
    }
}

/// Returns `name` if it is a valid node name. The error names `option` as the source of the value.
///
/// An empty name would select every unscheduled Pod. A comma or an equals sign would change the
/// field selector.
pub(crate) fn node_name(option: &str, name: &str) -> Result<String, String> {
    let is_label = |label: &str| {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !label.is_empty()
            && label.bytes().all(is_allowed)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if name.len() <= 253 && name.split('.').all(is_label) {
        return Ok(name.to_owned());
    }
    Err(format!(
        "{option} is {name:?}; a node name consists of lower-case letters, digits, \"-\" and \".\""
    ))
}

/// Calls `report` with one line for each Pod on the node and for each change. It stops when the
/// returned observation is dropped.
///
/// The server applies the field selector and sends only the Pods of this node. The cost depends on
/// the size of the node, not of the cluster.
pub(crate) fn watch_node(
    client: Client,
    node: &str,
    report: impl Fn(String) + Clone + Send + 'static,
) -> Result<Observation<Pod>, InformerError> {
    let (added, modified, deleted) = (report.clone(), report.clone(), report);
    let on_this_node = InformerScope::all().field_selector(format!("spec.nodeName={node}"));
    observe::<Pod>(client)
        .scope(on_this_node)
        .on_added(move |pod| {
            added(format!(
                "+ {}/{} {}",
                pod.namespace(),
                pod.name(),
                pod.phase()
            ));
        })
        .on_modified(move |old, new| {
            if old.phase() != new.phase() {
                modified(format!(
                    "~ {}/{} {}",
                    new.namespace(),
                    new.name(),
                    new.phase()
                ));
            }
        })
        .on_deleted(move |pod| deleted(format!("- {}/{}", pod.namespace(), pod.name())))
        .start()
}

//! The agent: which Pods are on this node, and what becomes of them.

use k8s_informer::{
    Client, InformerError, InformerScope, Object, ObjectMeta, Observation, impl_object, observe,
};
use serde::Deserialize;

/// Of each Pod only what the agent needs, so that its memory is that, too.
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

/// Tells of the Pods of one node, until the observation is dropped. The server sends no others: it is asked
/// for them by a field selector, so the cost is that of a node and not that of the cluster.
pub(crate) fn watch_node(
    client: Client,
    node: &str,
    tell: impl Fn(String) + Clone + Send + 'static,
) -> Result<Observation<Pod>, InformerError> {
    let (added, modified, deleted) = (tell.clone(), tell.clone(), tell);
    let here = InformerScope::all().field_selector(format!("spec.nodeName={node}"));
    observe::<Pod>(client)
        .scope(here)
        .on_added(move |pod| {
            added(format!(
                "+ {}/{} {}",
                pod.namespace(),
                pod.name(),
                pod.phase()
            ))
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
        .on_deleted(move |gone| deleted(format!("- {}/{}", gone.namespace(), gone.name())))
        .start()
}

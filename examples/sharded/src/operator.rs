//! The controller: each task, a ConfigMap with the label `example.com/task`, gets a Job.
//! `manifest.yaml` has the permissions that it needs.

use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::FullMetadata;
use k8s_informer_controller::{ControllerError, Manager, ManagerBuilder, Next, ShardBy};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

/// The beginning of the names of the Leases.
pub(crate) const NAME: &str = "sharded-example";

/// The label of the tasks and their Jobs.
pub(crate) const LABEL: &str = "example.com/task";

/// Builds a replica. `namespace` has the Leases. `report` gets each task that is reconciled, and
/// whether its Job is new.
pub(crate) fn build(
    builder: ManagerBuilder,
    namespace: &str,
    shards: u32,
    report: impl Fn(String, bool) + Send + Sync + 'static,
) -> Result<Manager, ControllerError> {
    // A Job is in the namespace of its task, so it is in the same shard.
    let builder = builder.one_shard_of(namespace, NAME, shards, ShardBy::Namespace);
    let manager = builder.build()?;
    let scope = InformerScope::all().label_selector(LABEL.parse().expect("a label"));
    manager
        .reconcile_source(Source::of::<ConfigMap>().scope(scope.clone()), NAME)
        .owns(Source::of::<Job>().scope(scope))
        .by(move |cx, task| {
            // The cache has each Job that was created before this replica took the Lease.
            let is_new = !task.is_being_deleted() && cx.children::<Job>()?.is_empty();
            if is_new {
                let command = ["echo", cx.name()];
                let container = json!({"name": "task", "image": "busybox", "command": command});
                let pod = json!({"containers": [container], "restartPolicy": "Never"});
                // Use a fixed name if you can: it makes a second Job impossible, also after a lost
                // response. This name lets the demo count the Jobs.
                let name = format!("{}-", cx.name());
                let metadata = json!({"generateName": name, "labels": {(LABEL): ""}});
                let job = json!({"metadata": metadata, "spec": {"template": {"spec": pod}}});
                let jobs = cx.api::<Job>(Some(cx.namespace()));
                jobs.create(&cx.owned(job)?, cx.stop())?;
            }
            report(cx.key().to_string(), is_new);
            Ok(Next::Done)
        })?;
    Ok(manager)
}

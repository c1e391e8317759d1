//! The custom resource: `batch.tutorial.kubebuilder.io/v1`, kind CronJob.

use k8s_informer::object::FullObjectMeta;
use k8s_informer::{impl_full_metadata, impl_object};
use k8s_informer_controller::Conditions;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

#[derive(Deserialize)]
pub(crate) struct CronJob {
    pub(crate) metadata: FullObjectMeta,
    pub(crate) spec: CronJobSpec,
    #[serde(default)]
    pub(crate) status: CronJobStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CronJobSpec {
    pub(crate) schedule: String,
    /// The latest start of a run, in seconds after its time.
    pub(crate) starting_deadline_seconds: Option<i64>,
    #[serde(default)]
    pub(crate) concurrency_policy: ConcurrencyPolicy,
    #[serde(default)]
    pub(crate) suspend: bool,
    pub(crate) job_template: JobTemplate,
    /// The number of successful Jobs to keep.
    pub(crate) successful_jobs_history_limit: Option<usize>,
    /// The number of failed Jobs to keep.
    pub(crate) failed_jobs_history_limit: Option<usize>,
}

/// What to do if a Job is active when the next run is due.
#[derive(Default, Deserialize)]
pub(crate) enum ConcurrencyPolicy {
    #[default]
    Allow,
    /// Wait for the end of the active Job.
    Forbid,
    /// Delete the active Job.
    Replace,
}

/// The spec stays JSON, so that no field is lost that this program does not know.
#[derive(Deserialize)]
pub(crate) struct JobTemplate {
    #[serde(default)]
    pub(crate) metadata: FullObjectMeta,
    pub(crate) spec: Value,
}

#[derive(Clone, Default, PartialEq, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct CronJobStatus {
    /// An empty list is removed, because the tutorial's definition requires an item.
    #[serde(serialize_with = "null_if_empty")]
    pub(crate) active: Vec<ObjectReference>,
    pub(crate) last_schedule_time: Option<Time>,
    pub(crate) conditions: Conditions,
}

fn null_if_empty<S: Serializer>(list: &[ObjectReference], to: S) -> Result<S::Ok, S::Error> {
    let list = Some(list).filter(|list| !list.is_empty());
    list.serialize(to)
}

impl_object!(
    CronJob,
    "batch.tutorial.kubebuilder.io/v1",
    "CronJob",
    "cronjobs",
    Namespaced
);
impl_full_metadata!(CronJob);

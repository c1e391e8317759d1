//! The controller: each CronJob creates Jobs on a schedule.
//!
//! It needs `list` and `watch` on cronjobs and jobs, `create` and `delete` on jobs, `patch` on
//! cronjobs/status, and `update` on cronjobs/finalizers if the cluster enforces owner references.
//! With `--leader-elect`, it also needs the permissions for a Lease.
//!
//! It does what the tutorial's controller does, except:
//!
//! - It keeps `lastScheduleTime` when the Jobs of the last run are gone. The tutorial forgets it
//!   with the last Job, so a history limit of 0 repeats the same run forever.
//! - It writes the status once in a call, only if it differs, and resets the condition `Degraded`.
//!   Too many missed runs have a reason of their own. The condition of a missed starting deadline
//!   is left out, because the next call would reset it. `Progressing` is also set while the CronJob
//!   is suspended.
//! - After a clock that was ahead, Jobs with a time in the future do not count as runs, and a
//!   `lastScheduleTime` in the future becomes the present.
//! - Updates of the CronJob that change only its metadata or status cause no call.
//! - Times are in UTC, unless the schedule ends with a time zone. There are no forms like `@hourly`
//!   and `TZ=…`.
//! - `status.active` has no maximum.

use std::sync::Arc;
use std::time::SystemTime;

use k8s_informer::client::api::{DeleteOptions, Patch, PropagationPolicy};
use k8s_informer::informer::Source;
use k8s_informer::{Error, Object};
use k8s_informer_controller::{
    Condition, Conditions, Context, Controller, ControllerBuilder, ControllerError, Failure, Next,
    generation_changed,
};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::api::{ConcurrencyPolicy, CronJob, CronJobStatus};
use crate::schedule::{Plan, plan};

/// The name of the controller's Lease.
pub(crate) const NAME: &str = "cronjob-controller";

/// The annotation of a Job with the time of its run.
pub(crate) const SCHEDULED_AT: &str = "batch.tutorial.kubebuilder.io/scheduled-at";

/// The reason of the condition `Degraded` while a Job can't be created.
pub(crate) const JOB_CREATION_FAILED: &str = "JobCreationFailed";

pub(crate) fn build(
    builder: ControllerBuilder<CronJob>,
) -> Result<Controller<CronJob>, ControllerError> {
    builder
        .when(generation_changed())
        .owns(Source::of::<Job>())
        .by(|cx, cron_job| reconcile(cx, cron_job))
}

fn reconcile(cx: &Context, cron_job: &CronJob) -> Result<Next, Failure> {
    let spec = &cron_job.spec;
    let wall_clock = cx.clock().wall_clock();
    let now = Timestamp::try_from(wall_clock)?;
    let mut jobs = Jobs::new(cx, now);
    let mut status = cron_job.status.clone();
    status.active = jobs.active.iter().map(|job| reference(job)).collect();
    let last_run = status.last_schedule_time.map(|last| last.min(Time(now)));
    status.last_schedule_time = last_run.max(jobs.last_run.map(Time));
    let plan = match spec.suspend {
        true => Plan::Suspended,
        false => plan(cron_job, status.last_schedule_time.as_ref(), now),
    };
    set_conditions(&mut status.conditions, &jobs, &plan, wall_clock);
    if status != cron_job.status {
        // Before Jobs are deleted that show the time of the last run.
        write_status(cx, &status)?;
    }

    delete_oldest(cx, &mut jobs.failed, spec.failed_jobs_history_limit);
    delete_oldest(cx, &mut jobs.successful, spec.successful_jobs_history_limit);

    let Plan::Scheduled { due, next } = plan else {
        return Ok(Next::Done);
    };
    let next = Next::After(next.duration_since(now).unsigned_abs());
    let Some(run) = due else {
        return Ok(next);
    };
    match spec.concurrency_policy {
        // The end of the active Job causes a call.
        ConcurrencyPolicy::Forbid if !jobs.active.is_empty() => return Ok(next),
        ConcurrencyPolicy::Replace => jobs.active.iter().try_for_each(|job| delete(cx, job))?,
        _ => {}
    }
    let job = cx.owned(job_of(cron_job, run))?;
    let created = cx.api::<Job>(Some(cx.namespace())).create(&job, cx.stop());
    if let Err(error) = created {
        let reason = Condition::new("Degraded", true, JOB_CREATION_FAILED, error.to_string());
        if status.conditions.set_unless_same_reason(reason, wall_clock) {
            write_status(cx, &status)?;
        }
        return Err(error.into());
    }
    Ok(next)
}

/// The Jobs of a CronJob.
#[derive(Default)]
struct Jobs {
    active: Vec<Arc<Job>>,
    successful: Vec<Arc<Job>>,
    failed: Vec<Arc<Job>>,
    last_run: Option<Timestamp>,
}

impl Jobs {
    fn new(cx: &Context, now: Timestamp) -> Self {
        let mut jobs = Self::default();
        for job in cx.children::<Job>() {
            let annotations = job.metadata.annotations.as_ref();
            if let Some(text) = annotations.and_then(|annotations| annotations.get(SCHEDULED_AT)) {
                match text.parse() {
                    Ok(time) if time > now => {}
                    Ok(time) => jobs.last_run = jobs.last_run.max(Some(time)),
                    Err(error) => log::warn!("{cx}: Job {:?}: {SCHEDULED_AT}: {error}", job.name()),
                }
            }
            let status = job.status.as_ref();
            let conditions = status.and_then(|status| status.conditions.as_ref());
            let mut true_conditions = conditions
                .into_iter()
                .flatten()
                .filter(|of| of.status == "True");
            let end = true_conditions.find(|of| matches!(&*of.type_, "Complete" | "Failed"));
            match end.map(|end| &*end.type_) {
                None => jobs.active.push(job),
                Some("Failed") => jobs.failed.push(job),
                Some(_) => jobs.successful.push(job),
            }
        }
        jobs
    }
}

fn set_conditions(conditions: &mut Conditions, jobs: &Jobs, plan: &Plan, now: SystemTime) {
    let is_retry = |degraded: &Condition| degraded.reason == JOB_CREATION_FAILED;
    let is_retry = conditions.get("Degraded").is_some_and(is_retry);
    let mut set = |type_: &str, is_true: bool, reason: &str, message: &str| {
        conditions.set(Condition::new(type_, is_true, reason, message), now);
    };
    let (active, failed) = (jobs.active.len(), jobs.failed.len());
    let running = format!("{active} Jobs are active");
    let failures = format!("{failed} Jobs have failed");
    match active {
        0 => set("Progressing", false, "NoJobsActive", ""),
        _ => set("Progressing", true, "JobsActive", &running),
    }
    match plan {
        Plan::Suspended => set("Available", false, "Suspended", ""),
        _ if failed > 0 => set("Available", false, "JobsFailed", &failures),
        _ if active > 0 => set("Available", true, "JobsActive", &running),
        _ => set("Available", true, "AllJobsCompleted", ""),
    }
    match plan {
        Plan::Stuck { reason, message } => set("Degraded", true, reason, message),
        // Only a created Job ends this condition. Otherwise each retry would write it twice.
        Plan::Scheduled { due: Some(_), .. } if is_retry => {}
        _ if failed > 0 => set("Degraded", true, "JobsFailed", &failures),
        _ => set("Degraded", false, "AsExpected", ""),
    }
}

fn write_status(cx: &Context, status: &CronJobStatus) -> Result<(), Error> {
    let cron_jobs = cx.api::<CronJob>(Some(cx.namespace()));
    let patch = Patch::merge(json!({ "status": status }));
    cron_jobs
        .status()
        .patch(cx.name(), &patch, cx.stop())
        .map(drop)
}

/// Deletes finished Jobs, except the latest ones. An error does not delay the next run; the next
/// call tries it again.
fn delete_oldest(cx: &Context, jobs: &mut [Arc<Job>], limit: Option<usize>) {
    let Some(limit) = limit else {
        return;
    };
    jobs.sort_by_key(|job| {
        job.status
            .as_ref()
            .and_then(|status| status.start_time.clone())
    });
    for job in &jobs[..jobs.len().saturating_sub(limit)] {
        if let Err(error) = delete(cx, job) {
            log::warn!("{cx}: can't delete an old Job: {error}");
        }
    }
}

/// Deletes a Job and its Pods.
fn delete(cx: &Context, job: &Job) -> Result<(), Error> {
    let mut options = DeleteOptions::same_object(job);
    options.propagation_policy = Some(PropagationPolicy::Background);
    let jobs = cx.api::<Job>(Some(cx.namespace()));
    match jobs.delete(job.name(), &options, cx.stop()) {
        Err(error) if error.is_not_found() => Ok(()),
        deleted => deleted,
    }
}

/// Returns the Job of a run, without its owner. The name depends on the time only, so that the
/// server refuses a second Job for the same run.
fn job_of(cron_job: &CronJob, run: Timestamp) -> Value {
    let template = &cron_job.spec.job_template;
    let mut annotations = template.metadata.annotations.clone();
    annotations.insert(SCHEDULED_AT, run.to_string());
    json!({
        "metadata": {
            "name": format!("{}-{}", cron_job.name(), run.as_second()),
            "labels": template.metadata.labels,
            "annotations": annotations,
        },
        "spec": template.spec,
    })
}

fn reference(job: &Job) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_owned()),
        kind: Some("Job".to_owned()),
        name: Some(job.name().to_owned()),
        namespace: Some(job.namespace().to_owned()),
        uid: Some(job.uid().to_owned()),
        ..ObjectReference::default()
    }
}

use std::fmt;

use serde::Serialize;
use serde_json::Value;

use crate::base::text::EscapedText;

/// The type of the condition that is `True` while an object is on its way to the desired state.
pub(crate) const RECONCILING: &str = "Reconciling";
/// The type of the condition that is `True` while an object cannot reach the desired state.
pub(crate) const STALLED: &str = "Stalled";

/// Whether an object has reached its desired state.
///
/// [`Readiness::of`] determines it from the object alone, by the rules of kstatus, which Flux, Helm
/// and others use. To block until an object is ready, call `Api::wait_until_ready`. An object that
/// your controller writes follows the rules if its status has the conditions that `Conditions`
/// sets: `Reconciling`, `Stalled` or `Ready`, and an `observedGeneration`.
///
/// The first rule that matches counts:
///
/// | objects | rule |
/// |---|---|
/// | all | a `deletionTimestamp`: terminating |
/// | all | `status.observedGeneration` is not `metadata.generation`: in progress |
/// | all | the condition `Reconciling` is `True`: in progress; `Stalled` is `True`: failed |
/// | `Deployment` | `ProgressDeadlineExceeded`: failed; else enough updated, available and ready replicas, none left over, and the conditions `Progressing` and `Available` |
/// | `ReplicaSet` | enough labeled, available and ready replicas, none left over, no `ReplicaFailure` |
/// | `StatefulSet` | enough replicas that are ready, current and of one revision; with a partition, enough updated ones; with `OnDelete` always ready |
/// | `DaemonSet` | scheduled, updated, available and ready on enough nodes |
/// | `Pod` | `Ready`, or completed in any way; a container in `CrashLoopBackOff`: failed |
/// | `Job` | started, complete or suspended; `Failed`: failed |
/// | `PersistentVolumeClaim` | `Bound` |
/// | `Service` | a `LoadBalancer` has a cluster IP |
/// | `PodDisruptionBudget` | `observedGeneration` is set |
/// | `CustomResourceDefinition` | `Established`; names in conflict: failed |
/// | `ConfigMap`, `Secret`, `CronJob` | always ready |
/// | all others | the condition `Ready`; ready without this condition |
///
/// The rules have these limits:
///
/// - An object that no controller has seen yet can look ready: one whose kind has no rule of its
///   own, and one that wants no replicas.
/// - A Service of type `LoadBalancer` is ready before it has an external address.
/// - A Job is ready when it runs. To wait for its end, wait for the condition `Complete`.
/// - Failed objects can recover: a container can start after several crashes.
///
/// These are the differences from kstatus. A Pod that cannot be scheduled is in progress with the
/// reason `Unschedulable`, not failed after 15 seconds: a new node can heal it, and the result does
/// not depend on a clock. A Pod with an unknown phase is in progress, and so is a
/// `PodDisruptionBudget` without an `observedGeneration`. A Job with the condition `Suspended` counts
/// as suspended only while `spec.suspend` is true. Names of a definition that are in conflict count
/// before `Established`. For the conditions `Stalled` and `Ready`, an `observedGeneration` in the
/// condition that is older than the object means in progress.
///
/// ```
/// use k8s_informer::DynamicObject;
/// use k8s_informer::object::Readiness;
///
/// let web: DynamicObject = serde_json::from_str(
///     r#"{"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "web", "generation": 2},
///         "spec": {"replicas": 3}, "status": {"observedGeneration": 2, "replicas": 3, "readyReplicas": 1}}"#,
/// )?;
/// let readiness = Readiness::of(&web)?;
/// assert!(!readiness.is_ready());
/// assert_eq!(readiness.to_string(), "in progress: LessReady (Ready: 1/3)");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// The object has reached its desired state. kstatus: `Current`.
    Ready,
    /// The object is on its way to the desired state.
    InProgress {
        /// The cause, for programs, such as `LessReady`. It can be the reason of a condition.
        reason: String,
        /// The cause, for people. It can be the message of a condition.
        message: String,
    },
    /// The object cannot reach its desired state, or takes too long.
    Failed {
        /// The cause, for programs, such as `JobFailed`. It can be the reason of a condition.
        reason: String,
        /// The cause, for people. It can be the message of a condition.
        message: String,
    },
    /// The object is being deleted.
    Terminating,
}

impl Readiness {
    /// Determines the readiness of an object of any form.
    ///
    /// The object must have all fields of the server's response: a custom struct often lacks the
    /// kind and the status, and then only some rules apply. Fields with an unexpected type count as
    /// absent. kstatus: `Compute`.
    ///
    /// ```
    /// use k8s_informer::object::Readiness;
    /// use k8s_openapi::api::batch::v1::Job;
    /// use serde_json::json;
    ///
    /// let mut job: Job = serde_json::from_value(json!({"metadata": {"name": "a"}}))?;
    /// assert!(matches!(Readiness::of(&job)?, Readiness::InProgress { .. }));
    /// let status = json!({"conditions": [{"type": "Failed", "status": "True"}], "failed": 1});
    /// job.status = Some(serde_json::from_value(status)?);
    /// assert_eq!(Readiness::of(&job)?.to_string(), "failed: JobFailed (failed: 1/1)");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the object cannot be serialized as JSON.
    pub fn of(object: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Ok(Fields(&serde_json::to_value(object)?).readiness())
    }

    /// Whether the object has reached its desired state.
    ///
    /// ```
    /// use k8s_informer::object::Readiness;
    ///
    /// assert!(Readiness::Ready.is_ready() && !Readiness::Terminating.is_ready());
    /// ```
    pub fn is_ready(&self) -> bool {
        *self == Self::Ready
    }

    /// Returns the state without its cause.
    pub(crate) fn state(&self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::InProgress { .. } => "in progress",
            Self::Failed { .. } => "failed",
            Self::Terminating => "terminating",
        }
    }
}

/// Reasons and messages are escaped and shortened, because a server can send any text.
impl fmt::Display for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.state())?;
        let (Self::InProgress { reason, message } | Self::Failed { reason, message }) = self else {
            return Ok(());
        };
        write!(f, ": {}", EscapedText(reason))?;
        if message.is_empty() {
            return Ok(());
        }
        write!(f, " ({})", EscapedText(message))
    }
}

fn in_progress(reason: &str, message: impl Into<String>) -> Readiness {
    Readiness::InProgress {
        reason: reason.to_owned(),
        message: message.into(),
    }
}

fn failed(reason: &str, message: impl Into<String>) -> Readiness {
    Readiness::Failed {
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// A condition in the status of an object.
#[derive(Clone, Copy)]
pub(crate) struct ConditionFields<'a>(&'a Value);

impl<'a> ConditionFields<'a> {
    fn text(self, field: &str) -> &'a str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub(crate) fn status(self) -> &'a str {
        self.text("status")
    }

    pub(crate) fn reason(self) -> &'a str {
        self.text("reason")
    }

    fn message(self) -> &'a str {
        self.text("message")
    }

    /// The generation for which the condition was determined, if the condition has one.
    pub(crate) fn observed_generation(self) -> Option<i64> {
        self.0["observedGeneration"].as_i64()
    }

    fn is(self, type_: &str, status: &str) -> bool {
        self.text("type") == type_ && self.status() == status
    }
}

/// The fields of an object. A field with an unexpected type counts as absent.
pub(crate) struct Fields<'a>(pub(crate) &'a Value);

impl<'a> Fields<'a> {
    fn text(&self, pointer: &str) -> &'a str {
        let text = self.0.pointer(pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    }

    fn number(&self, pointer: &str) -> Option<i64> {
        self.0.pointer(pointer).and_then(Value::as_i64)
    }

    fn count(&self, field: &str) -> i64 {
        self.number(&format!("/status/{field}")).unwrap_or_default()
    }

    /// The replicas that the object declares. Controllers use 1 if there is no number.
    fn wanted_replicas(&self) -> i64 {
        self.number("/spec/replicas").unwrap_or(1)
    }

    pub(crate) fn generation(&self) -> Option<i64> {
        self.number("/metadata/generation")
    }

    pub(crate) fn observed_generation(&self) -> Option<i64> {
        self.number("/status/observedGeneration")
    }

    fn conditions(&self) -> impl Iterator<Item = ConditionFields<'a>> + use<'a> {
        let conditions = self.0.pointer("/status/conditions");
        let conditions = conditions.and_then(Value::as_array).into_iter().flatten();
        conditions.map(ConditionFields)
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<ConditionFields<'a>> {
        self.conditions().find(|one| one.text("type") == type_)
    }

    fn has(&self, type_: &str, status: &str) -> bool {
        self.conditions().any(|one| one.is(type_, status))
    }

    pub(crate) fn readiness(&self) -> Readiness {
        self.generic()
            .unwrap_or_else(|| self.by_kind().unwrap_or(Readiness::Ready))
    }

    /// The rules for all kinds. Returns `None` if the rules of the kind decide.
    fn generic(&self) -> Option<Readiness> {
        if !self.text("/metadata/deletionTimestamp").is_empty() {
            return Some(Readiness::Terminating);
        }
        if let (Some(generation), Some(observed)) = (self.generation(), self.observed_generation())
            && generation != observed
        {
            let message = format!("generation {generation}, observed {observed}");
            return Some(in_progress("LatestGenerationNotObserved", message));
        }
        self.conditions().find_map(|one| {
            if one.is(RECONCILING, "True") {
                Some(in_progress(one.reason(), one.message()))
            } else if one.is(STALLED, "True") {
                let stalled = || failed(one.reason(), one.message());
                Some(self.outdated(one).unwrap_or_else(stalled))
            } else {
                None
            }
        })
    }

    /// Returns the state of an object whose condition is for an older generation.
    fn outdated(&self, condition: ConditionFields<'_>) -> Option<Readiness> {
        let (generation, observed) = (self.generation()?, condition.observed_generation()?);
        (observed < generation).then(|| {
            let type_ = condition.text("type");
            let message = format!("generation {generation}, observed {observed} for {type_}");
            in_progress("LatestGenerationNotObserved", message)
        })
    }

    /// Returns `None` if the object is ready.
    fn by_kind(&self) -> Option<Readiness> {
        let (group, _version) = self.text("/apiVersion").split_once('/').unwrap_or_default();
        match (group, self.text("/kind")) {
            ("apps" | "extensions", "Deployment") => self.deployment(),
            ("apps" | "extensions", "ReplicaSet") => self.replica_set(),
            ("apps", "StatefulSet") => self.stateful_set(),
            ("apps" | "extensions", "DaemonSet") => self.daemon_set(),
            ("", "Pod") => self.pod(),
            ("batch", "Job") => self.job(),
            ("", "PersistentVolumeClaim") => self.claim(),
            ("", "Service") => self.service(),
            ("policy", "PodDisruptionBudget") => self.not_observed(),
            ("apiextensions.k8s.io", "CustomResourceDefinition") => self.definition(),
            ("", "ConfigMap" | "Secret") | ("batch", "CronJob") => None,
            _ => self.by_ready_condition(),
        }
    }

    fn by_ready_condition(&self) -> Option<Readiness> {
        let ready = self.condition("Ready")?;
        ["False", "Unknown"]
            .contains(&ready.status())
            .then(|| in_progress(ready.reason(), ready.message()))
            .or_else(|| self.outdated(ready))
    }

    /// For kinds whose controllers always set both generations.
    fn not_observed(&self) -> Option<Readiness> {
        if self.generation().is_none() {
            Some(in_progress("NoGeneration", "no metadata.generation"))
        } else if self.observed_generation().is_none() {
            let message = "no status.observedGeneration";
            Some(in_progress("NoObservedGeneration", message))
        } else {
            None
        }
    }

    /// Returns the first of these numbers that is too low. Each has its name in reasons, its field
    /// in the status, and the wanted number.
    fn first_lack(&self, numbers: &[(&str, &str, i64)]) -> Option<Readiness> {
        numbers.iter().find_map(|(what, field, wanted)| {
            let number = self.count(field);
            (wanted > &number).then(|| {
                let message = format!("{what}: {number}/{wanted}");
                in_progress(&format!("Less{what}"), message)
            })
        })
    }

    fn extra_pods(&self, wanted: i64) -> Option<Readiness> {
        let extra = self.count("replicas").saturating_sub(wanted);
        (extra > 0).then(|| in_progress("ExtraPods", format!("pending termination: {extra}")))
    }

    fn deployment(&self) -> Option<Readiness> {
        const EXCEEDED: &str = "ProgressDeadlineExceeded";
        let is_exceeded = |one: &ConditionFields<'_>| one.reason() == EXCEEDED;
        if let Some(progressing) = self.condition("Progressing").filter(is_exceeded) {
            return Some(failed(EXCEEDED, progressing.message()));
        }
        let wanted = self.wanted_replicas();
        // The controller reports progress only if there is a deadline, and takes this number for
        // none.
        let deadline = self.number("/spec/progressDeadlineSeconds");
        let reports_progress = deadline.is_some_and(|seconds| seconds != i64::from(i32::MAX));
        let has_progressed = !reports_progress
            || self.conditions().any(|one| {
                one.is("Progressing", "True") && one.reason() == "NewReplicaSetAvailable"
            });
        self.first_lack(&[
            ("Replicas", "replicas", wanted),
            ("Updated", "updatedReplicas", wanted),
        ])
        .or_else(|| self.extra_pods(wanted))
        .or_else(|| {
            self.first_lack(&[
                (
                    "Available",
                    "availableReplicas",
                    self.count("updatedReplicas"),
                ),
                ("Ready", "readyReplicas", wanted),
            ])
        })
        .or_else(|| (!has_progressed).then(|| in_progress("ReplicaSetNotAvailable", "")))
        .or_else(|| {
            let is_available = self.has("Available", "True");
            (!is_available).then(|| in_progress("DeploymentNotAvailable", ""))
        })
    }

    fn replica_set(&self) -> Option<Readiness> {
        if self.has("ReplicaFailure", "True") {
            return Some(in_progress("ReplicaFailure", ""));
        }
        let wanted = self.wanted_replicas();
        self.first_lack(&[
            ("Labelled", "fullyLabeledReplicas", wanted),
            ("Available", "availableReplicas", wanted),
            ("Ready", "readyReplicas", wanted),
        ])
        .or_else(|| self.extra_pods(wanted))
    }

    fn stateful_set(&self) -> Option<Readiness> {
        // The user replaces the Pods, so no state is the desired one.
        if self.text("/spec/updateStrategy/type") == "OnDelete" {
            return None;
        }
        let wanted = self.wanted_replicas();
        let counts = self
            .first_lack(&[
                ("Replicas", "replicas", wanted),
                ("Ready", "readyReplicas", wanted),
            ])
            .or_else(|| self.extra_pods(wanted));
        if counts.is_some() {
            return counts;
        }
        if let Some(partition) = self.number("/spec/updateStrategy/rollingUpdate/partition") {
            let updated = self.count("updatedReplicas");
            let wanted = wanted.saturating_sub(partition);
            return (updated < wanted)
                .then(|| in_progress("PartitionRollout", format!("Updated: {updated}/{wanted}")));
        }
        self.first_lack(&[("Current", "currentReplicas", wanted)])
            .or_else(|| {
                let (current, updated) = ("/status/currentRevision", "/status/updateRevision");
                let is_other = self.text(current) != self.text(updated);
                is_other.then(|| in_progress("RevisionMismatch", ""))
            })
    }

    fn daemon_set(&self) -> Option<Readiness> {
        if let Some(not_observed) = self.not_observed() {
            return Some(not_observed);
        }
        let Some(wanted) = self.number("/status/desiredNumberScheduled") else {
            return Some(in_progress("NoDesiredNumber", ""));
        };
        self.first_lack(&[
            ("Current", "currentNumberScheduled", wanted),
            ("Updated", "updatedNumberScheduled", wanted),
            ("Available", "numberAvailable", wanted),
            ("Ready", "numberReady", wanted),
        ])
    }

    fn pod(&self) -> Option<Readiness> {
        match self.text("/status/phase") {
            "Succeeded" | "Failed" => None,
            "Running" if self.has("Ready", "True") => None,
            "Running" => {
                let crashing = self.crashing_containers();
                Some(if crashing.is_empty() {
                    in_progress("PodRunningNotReady", "")
                } else {
                    failed("ContainerCrashLooping", crashing.join(", "))
                })
            }
            "Pending" => {
                let mut conditions = self.conditions();
                let unschedulable = conditions
                    .find(|one| one.is("PodScheduled", "False") && one.reason() == "Unschedulable");
                Some(match unschedulable {
                    Some(one) => in_progress(one.reason(), one.message()),
                    None => in_progress("PodPending", ""),
                })
            }
            "" => Some(in_progress("PodNotObserved", "")),
            phase => Some(in_progress("PodPhase", phase)),
        }
    }

    fn crashing_containers(&self) -> Vec<&'a str> {
        let statuses = self.0.pointer("/status/containerStatuses");
        let statuses = statuses.and_then(Value::as_array).into_iter().flatten();
        statuses
            .filter(|one| one["state"]["waiting"]["reason"] == "CrashLoopBackOff")
            .map(|one| one["name"].as_str().unwrap_or_default())
            .collect()
    }

    fn job(&self) -> Option<Readiness> {
        let is_suspended = self.0.pointer("/spec/suspend") == Some(&Value::Bool(true));
        for one in self.conditions() {
            if one.is("Complete", "True") || one.is("Suspended", "True") && is_suspended {
                return None;
            }
            if one.is("Failed", "True") {
                let parallelism = self.number("/spec/parallelism").unwrap_or(1);
                let completions = self.number("/spec/completions").unwrap_or(parallelism);
                let count = self.count("failed");
                return Some(failed(
                    "JobFailed",
                    format!("failed: {count}/{completions}"),
                ));
            }
        }
        let is_started = !self.text("/status/startTime").is_empty();
        (!is_started).then(|| in_progress("JobNotStarted", ""))
    }

    fn claim(&self) -> Option<Readiness> {
        match self.text("/status/phase") {
            "Bound" => None,
            phase => Some(in_progress("NotBound", phase)),
        }
    }

    fn service(&self) -> Option<Readiness> {
        let lacks_address =
            self.text("/spec/type") == "LoadBalancer" && self.text("/spec/clusterIP").is_empty();
        lacks_address.then(|| in_progress("NoIPAssigned", ""))
    }

    fn definition(&self) -> Option<Readiness> {
        let names = self.condition("NamesAccepted");
        if let Some(one) = names.filter(|one| one.status() == "False") {
            return Some(failed(one.reason(), one.message()));
        }
        let established = self.condition("Established");
        match established.map(|one| (one, one.status())) {
            Some((_, "True")) => return None,
            Some((one, "False")) if one.reason() != "Installing" => {
                return Some(failed(one.reason(), one.message()));
            }
            _ => {}
        }
        Some(in_progress("Installing", ""))
    }
}

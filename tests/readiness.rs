//! The readiness of objects, rule by rule, with statuses as controllers write them.

use k8s_informer::DynamicObject;
use k8s_informer::object::Readiness;
use serde_json::{Value, json};

/// Returns the readiness as text: `ready`, `terminating`, `in progress: Reason (message)`.
fn readiness(api_version: &str, kind: &str, rest: &Value) -> String {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    for (field, value) in rest.as_object().unwrap() {
        object[field] = value.clone();
    }
    let readiness = Readiness::of(&object).unwrap();
    let dynamic = Readiness::of(&DynamicObject::new(&object).unwrap()).unwrap();
    assert_eq!(readiness, dynamic, "{object}");
    assert_eq!(readiness.is_ready(), readiness == Readiness::Ready);
    readiness.to_string()
}

/// Checks the readiness of objects of one kind, given by their other fields.
#[track_caller]
fn check(api_version: &str, kind: &str, cases: &[(Value, &str)]) {
    for (rest, expected) in cases {
        assert_eq!(readiness(api_version, kind, rest), *expected, "{rest}");
    }
}

/// An object with this spec and status.
fn of(spec: &Value, status: &Value) -> Value {
    json!({"spec": spec, "status": status})
}

/// A status with these fields changed.
fn with(status: &Value, changes: &Value) -> Value {
    let mut status = status.clone();
    for (field, value) in changes.as_object().unwrap() {
        status[field] = value.clone();
    }
    status
}

fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": type_, "status": status, "reason": reason, "message": message})
}

#[test]
fn deletion_precedes_all_other_rules() {
    let stalled =
        json!({"observedGeneration": 1, "conditions": [condition("Stalled", "True", "R", "m")]});
    let metadata =
        json!({"name": "a", "generation": 2, "deletionTimestamp": "2026-11-25T10:00:00Z"});
    let deleted = json!({"metadata": metadata, "status": stalled});
    for (api_version, kind) in [
        ("v1", "Namespace"),
        ("v1", "ConfigMap"),
        ("apps/v1", "Deployment"),
    ] {
        assert_eq!(readiness(api_version, kind, &deleted), "terminating");
    }
}

#[test]
fn unobserved_generation_precedes_conditions() {
    let object = |generation: Value, observed: Value| {
        json!({"metadata": {"name": "a", "generation": generation},
            "status": {"observedGeneration": observed, "conditions": [condition("Ready", "True", "", "")]}})
    };
    check(
        "example.com/v1",
        "Widget",
        &[
            (
                object(json!(2), json!(1)),
                "in progress: LatestGenerationNotObserved (generation 2, observed 1)",
            ),
            (object(json!(2), json!(2)), "ready"),
            (object(json!(2), Value::Null), "ready"),
            (object(Value::Null, json!(2)), "ready"),
            (object(json!("2"), json!(1)), "ready"),
        ],
    );
}

/// The status has no `observedGeneration` of its own, as that of cert-manager's Certificate.
#[test]
fn condition_of_an_older_generation_means_in_progress() {
    let object = |type_: &str, observed: Value| {
        let mut condition = condition(type_, "True", "Done", "");
        condition["observedGeneration"] = observed;
        json!({"metadata": {"name": "a", "generation": 2}, "status": {"conditions": [condition]}})
    };
    let old = |type_: &str| {
        format!("in progress: LatestGenerationNotObserved (generation 2, observed 1 for {type_})")
    };
    check(
        "example.com/v1",
        "Widget",
        &[
            (object("Ready", json!(1)), &old("Ready")),
            (object("Ready", json!(2)), "ready"),
            (object("Ready", json!(3)), "ready"),
            (object("Stalled", json!(1)), &old("Stalled")),
            (object("Stalled", json!(2)), "failed: Done"),
            (object("Reconciling", json!(1)), "in progress: Done"),
            (object("Other", json!(1)), "ready"),
        ],
    );
}

#[test]
fn reconciling_and_stalled_precede_the_rules_of_the_kind() {
    let status = |conditions: Value| json!({"status": {"conditions": conditions}});
    let reconciling = condition("Reconciling", "True", "Joining", "1 of 3");
    let stalled = condition("Stalled", "True", "NoQuota", "the limit is 2");
    let ready = condition("Ready", "True", "", "");
    let cases = [
        (
            status(json!([ready, reconciling])),
            "in progress: Joining (1 of 3)",
        ),
        (
            status(json!([ready, stalled])),
            "failed: NoQuota (the limit is 2)",
        ),
        (
            status(json!([reconciling, stalled])),
            "in progress: Joining (1 of 3)",
        ),
        (
            status(json!([
                condition("Reconciling", "False", "R", ""),
                condition("Stalled", "Unknown", "R", "")
            ])),
            "ready",
        ),
    ];
    check("example.com/v1", "Widget", &cases);
    check("v1", "ConfigMap", &cases);
}

#[test]
fn other_kinds_follow_their_ready_condition() {
    let cases = [
        ("True", "ready"),
        ("False", "in progress: R (m)"),
        ("Unknown", "in progress: R (m)"),
        ("", "ready"),
    ]
    .map(|(status, expected)| {
        (
            json!({"status": {"conditions": [condition("Ready", status, "R", "m")]}}),
            expected,
        )
    });
    check("example.com/v1", "Widget", &cases);
    check("v1", "Node", &cases);
    check("apps/v1", "Pod", &cases);
    check(
        "v1",
        "Namespace",
        &[(json!({"status": {"phase": "Active"}}), "ready")],
    );
    check(
        "example.com/v1",
        "Widget",
        &[
            (json!({}), "ready"),
            (json!({"status": {"conditions": []}}), "ready"),
        ],
    );
}

#[test]
fn kinds_without_a_status_are_always_ready() {
    for (api_version, kind) in [
        ("v1", "ConfigMap"),
        ("v1", "Secret"),
        ("batch/v1", "CronJob"),
    ] {
        let not_ready = json!({"status": {"conditions": [condition("Ready", "False", "R", "")]}});
        assert_eq!(readiness(api_version, kind, &not_ready), "ready", "{kind}");
    }
}

#[test]
fn deployment_needs_all_replicas_and_conditions() {
    let conditions = json!([
        condition("Available", "True", "MinimumReplicasAvailable", ""),
        condition("Progressing", "True", "NewReplicaSetAvailable", ""),
    ]);
    let spec = json!({"replicas": 3, "progressDeadlineSeconds": 600});
    let done = json!({"replicas": 3, "updatedReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "conditions": conditions});
    let changed = |changes: Value| of(&spec, &with(&done, &changes));
    let exceeded = condition(
        "Progressing",
        "False",
        "ProgressDeadlineExceeded",
        "too late",
    );
    let progressing = condition("Progressing", "True", "ReplicaSetUpdated", "");
    let available = condition("Available", "True", "", "");
    let cases = [
        (of(&spec, &done), "ready"),
        (
            of(&spec, &json!({})),
            "in progress: LessReplicas (Replicas: 0/3)",
        ),
        (json!({}), "in progress: LessReplicas (Replicas: 0/1)"),
        (
            changed(json!({"replicas": 2})),
            "in progress: LessReplicas (Replicas: 2/3)",
        ),
        (
            changed(json!({"updatedReplicas": 1})),
            "in progress: LessUpdated (Updated: 1/3)",
        ),
        (
            changed(json!({"replicas": 4})),
            "in progress: ExtraPods (pending termination: 1)",
        ),
        (
            changed(json!({"availableReplicas": 2})),
            "in progress: LessAvailable (Available: 2/3)",
        ),
        (
            changed(json!({"readyReplicas": 2})),
            "in progress: LessReady (Ready: 2/3)",
        ),
        (
            changed(json!({"conditions": [available, progressing]})),
            "in progress: ReplicaSetNotAvailable",
        ),
        (
            changed(
                json!({"conditions": [condition("Available", "False", "", ""), conditions[1]]}),
            ),
            "in progress: DeploymentNotAvailable",
        ),
        (
            changed(json!({"conditions": [exceeded]})),
            "failed: ProgressDeadlineExceeded (too late)",
        ),
        // Without a deadline, the controller does not report progress.
        (
            of(
                &json!({"replicas": 3}),
                &with(&done, &json!({"conditions": [available]})),
            ),
            "ready",
        ),
        (
            of(
                &json!({"replicas": 3, "progressDeadlineSeconds": i32::MAX}),
                &with(&done, &json!({"conditions": [available, progressing]})),
            ),
            "ready",
        ),
    ];
    check("apps/v1", "Deployment", &cases);
    check("extensions/v1beta1", "Deployment", &cases);
}

#[test]
fn replica_set_needs_labeled_available_and_ready_pods() {
    let spec = json!({"replicas": 2});
    let done = json!({"replicas": 2, "fullyLabeledReplicas": 2, "availableReplicas": 2, "readyReplicas": 2});
    let changed = |changes: Value| of(&spec, &with(&done, &changes));
    check(
        "apps/v1",
        "ReplicaSet",
        &[
            (of(&spec, &done), "ready"),
            (
                of(&spec, &json!({})),
                "in progress: LessLabelled (Labelled: 0/2)",
            ),
            (
                changed(json!({"availableReplicas": 1})),
                "in progress: LessAvailable (Available: 1/2)",
            ),
            (
                changed(json!({"readyReplicas": 1})),
                "in progress: LessReady (Ready: 1/2)",
            ),
            (
                changed(json!({"replicas": 3})),
                "in progress: ExtraPods (pending termination: 1)",
            ),
            (
                changed(
                    json!({"conditions": [condition("ReplicaFailure", "True", "FailedCreate", "quota")]}),
                ),
                "in progress: ReplicaFailure",
            ),
        ],
    );
}

#[test]
fn stateful_set_needs_replicas_of_one_revision() {
    let spec = json!({"replicas": 2});
    let done = json!({"replicas": 2, "readyReplicas": 2, "currentReplicas": 2, "updatedReplicas": 2,
        "currentRevision": "web-1", "updateRevision": "web-1"});
    let changed = |changes: Value| of(&spec, &with(&done, &changes));
    let partition = |number: i64| json!({"replicas": 2, "updateStrategy": {"rollingUpdate": {"partition": number}}});
    let half = with(
        &done,
        &json!({"currentReplicas": 1, "updatedReplicas": 1, "updateRevision": "web-2"}),
    );
    check(
        "apps/v1",
        "StatefulSet",
        &[
            (of(&spec, &done), "ready"),
            (
                of(&spec, &json!({})),
                "in progress: LessReplicas (Replicas: 0/2)",
            ),
            (
                changed(json!({"readyReplicas": 1})),
                "in progress: LessReady (Ready: 1/2)",
            ),
            (
                changed(json!({"replicas": 3})),
                "in progress: ExtraPods (pending termination: 1)",
            ),
            (
                changed(json!({"currentReplicas": 1})),
                "in progress: LessCurrent (Current: 1/2)",
            ),
            (
                changed(json!({"updateRevision": "web-2"})),
                "in progress: RevisionMismatch",
            ),
            (of(&partition(1), &half), "ready"),
            (
                of(&partition(0), &half),
                "in progress: PartitionRollout (Updated: 1/2)",
            ),
            (
                of(&partition(i64::MIN), &half),
                &format!("in progress: PartitionRollout (Updated: 1/{})", i64::MAX),
            ),
            (
                of(
                    &json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}}),
                    &json!({}),
                ),
                "ready",
            ),
        ],
    );
}

#[test]
fn daemon_set_needs_an_observed_generation_and_all_nodes() {
    let done = json!({"observedGeneration": 1, "desiredNumberScheduled": 2, "currentNumberScheduled": 2,
        "updatedNumberScheduled": 2, "numberAvailable": 2, "numberReady": 2});
    let observed =
        |status: Value| json!({"metadata": {"name": "a", "generation": 1}, "status": status});
    let changed = |changes: Value| observed(with(&done, &changes));
    check(
        "apps/v1",
        "DaemonSet",
        &[
            (observed(done.clone()), "ready"),
            (
                json!({"status": done}),
                "in progress: NoGeneration (no metadata.generation)",
            ),
            (
                observed(json!({})),
                "in progress: NoObservedGeneration (no status.observedGeneration)",
            ),
            (
                changed(json!({"desiredNumberScheduled": null})),
                "in progress: NoDesiredNumber",
            ),
            (changed(json!({"desiredNumberScheduled": 0})), "ready"),
            (
                changed(json!({"currentNumberScheduled": 1})),
                "in progress: LessCurrent (Current: 1/2)",
            ),
            (
                changed(json!({"updatedNumberScheduled": 1})),
                "in progress: LessUpdated (Updated: 1/2)",
            ),
            (
                changed(json!({"numberAvailable": 1})),
                "in progress: LessAvailable (Available: 1/2)",
            ),
            (
                changed(json!({"numberReady": 1})),
                "in progress: LessReady (Ready: 1/2)",
            ),
        ],
    );
}

#[test]
fn pod_is_ready_or_completed() {
    let status = |status: Value| json!({ "status": status });
    let waiting = |reason: &str| json!([{"name": "app", "state": {"waiting": {"reason": reason}}}]);
    let unschedulable = condition("PodScheduled", "False", "Unschedulable", "0/3 nodes");
    check(
        "v1",
        "Pod",
        &[
            (status(json!({})), "in progress: PodNotObserved"),
            (
                status(json!({"phase": "Pending"})),
                "in progress: PodPending",
            ),
            (
                status(json!({"phase": "Pending", "conditions": [unschedulable]})),
                "in progress: Unschedulable (0/3 nodes)",
            ),
            (
                status(json!({"phase": "Running"})),
                "in progress: PodRunningNotReady",
            ),
            (
                status(
                    json!({"phase": "Running", "conditions": [condition("Ready", "True", "", "")]}),
                ),
                "ready",
            ),
            (
                status(
                    json!({"phase": "Running", "containerStatuses": waiting("CrashLoopBackOff")}),
                ),
                "failed: ContainerCrashLooping (app)",
            ),
            (
                status(
                    json!({"phase": "Running", "containerStatuses": waiting("ImagePullBackOff")}),
                ),
                "in progress: PodRunningNotReady",
            ),
            (status(json!({"phase": "Succeeded"})), "ready"),
            (status(json!({"phase": "Failed"})), "ready"),
            (
                status(json!({"phase": "Odd"})),
                "in progress: PodPhase (Odd)",
            ),
        ],
    );
}

#[test]
fn job_is_ready_when_it_has_started() {
    let status = |status: Value| json!({ "status": status });
    let suspended = json!({"conditions": [condition("Suspended", "True", "", "")]});
    let failed = json!({"failed": 2, "conditions": [condition("Failed", "True", "BackoffLimitExceeded", "")]});
    check(
        "batch/v1",
        "Job",
        &[
            (status(json!({})), "in progress: JobNotStarted"),
            (
                status(json!({"startTime": "2026-11-25T10:00:00Z", "active": 1})),
                "ready",
            ),
            (
                status(json!({"conditions": [condition("Complete", "True", "", "")]})),
                "ready",
            ),
            (
                of(&json!({"completions": 3}), &failed),
                "failed: JobFailed (failed: 2/3)",
            ),
            (
                of(&json!({"parallelism": 4}), &failed),
                "failed: JobFailed (failed: 2/4)",
            ),
            (of(&json!({"suspend": true}), &suspended), "ready"),
            (
                of(&json!({"suspend": false}), &suspended),
                "in progress: JobNotStarted",
            ),
        ],
    );
}

#[test]
fn claim_service_and_budget_have_one_rule_each() {
    check(
        "v1",
        "PersistentVolumeClaim",
        &[
            (json!({"status": {"phase": "Bound"}}), "ready"),
            (
                json!({"status": {"phase": "Pending"}}),
                "in progress: NotBound (Pending)",
            ),
            (json!({}), "in progress: NotBound"),
        ],
    );
    check(
        "v1",
        "Service",
        &[
            (json!({"spec": {}}), "ready"),
            (
                json!({"spec": {"type": "LoadBalancer"}}),
                "in progress: NoIPAssigned",
            ),
            (
                json!({"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.7"}}),
                "ready",
            ),
        ],
    );
    let budget = |observed: Value| json!({"metadata": {"name": "a", "generation": 2}, "status": {"observedGeneration": observed, "disruptionsAllowed": 0}});
    check(
        "policy/v1",
        "PodDisruptionBudget",
        &[
            (budget(json!(2)), "ready"),
            (
                budget(json!(1)),
                "in progress: LatestGenerationNotObserved (generation 2, observed 1)",
            ),
            (
                budget(Value::Null),
                "in progress: NoObservedGeneration (no status.observedGeneration)",
            ),
        ],
    );
}

#[test]
fn definition_is_ready_when_established() {
    let accepted = condition("NamesAccepted", "True", "NoConflicts", "no conflicts found");
    let conflict = condition(
        "NamesAccepted",
        "False",
        "KindConflict",
        "\"Widget\" is already in use",
    );
    let established = |status: &str, reason: &str| condition("Established", status, reason, "m");
    let status = |conditions: Value| json!({"status": {"conditions": conditions}});
    check(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        &[
            (status(Value::Null), "in progress: Installing"),
            (
                status(json!([accepted, established("False", "Installing")])),
                "in progress: Installing",
            ),
            (
                status(json!([
                    accepted,
                    established("True", "InitialNamesAccepted")
                ])),
                "ready",
            ),
            (
                status(json!([conflict, established("False", "NotAccepted")])),
                "failed: KindConflict (\"Widget\" is already in use)",
            ),
            (
                status(json!([
                    established("True", "InitialNamesAccepted"),
                    conflict
                ])),
                "failed: KindConflict (\"Widget\" is already in use)",
            ),
            (
                status(json!([established("False", "Other")])),
                "failed: Other (m)",
            ),
        ],
    );
}

#[test]
fn unexpected_types_and_numbers_do_not_panic() {
    let odd = [
        Value::Null,
        json!(7),
        json!("x"),
        json!([7, {}, null]),
        json!({"a": [1]}),
        json!(i64::MIN),
    ];
    let kinds = [
        ("apps/v1", "Deployment"),
        ("apps/v1", "ReplicaSet"),
        ("apps/v1", "StatefulSet"),
        ("apps/v1", "DaemonSet"),
        ("v1", "Pod"),
        ("batch/v1", "Job"),
        ("v1", "Service"),
        ("apiextensions.k8s.io/v1", "CustomResourceDefinition"),
        ("/", ""),
    ];
    for (api_version, kind) in kinds {
        for value in &odd {
            readiness(api_version, kind, &json!({"spec": value, "status": value}));
            let fields = json!({"replicas": value, "updatedReplicas": value, "readyReplicas": value, "phase": value,
                "conditions": value, "containerStatuses": value, "updateStrategy": {"rollingUpdate": {"partition": value}}});
            readiness(api_version, kind, &of(&fields, &fields));
            let metadata = json!({"name": "a", "generation": value, "deletionTimestamp": null});
            readiness(
                api_version,
                kind,
                &json!({"metadata": metadata, "status": {"observedGeneration": value}}),
            );
        }
    }
    assert_eq!(Readiness::of("text").unwrap(), Readiness::Ready);
    assert!(Readiness::of(&std::collections::BTreeMap::from([(vec![1], 2)])).is_err());
}

#[test]
fn display_escapes_text_of_the_server() {
    let text = readiness(
        "example.com/v1",
        "Widget",
        &json!({"status": {"conditions": [condition("Ready", "False", "R\u{1b}[2J", "a\nb")]}}),
    );
    assert_eq!(text, "in progress: R\\u{1b}[2J (a b)");
}

//! Leases: what the server stores, and what it refuses.

use k8s_informer::client::Request;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster};
use crate::verbs::ONCE;

/// The code, the reason and the message of an error.
pub(crate) type Refusal = (u16, String, String);

/// Sends a request that the server refuses.
#[track_caller]
pub(crate) fn refused(cluster: &Cluster, request: Request) -> Refusal {
    let error = match cluster.try_send(request) {
        Ok(accepted) => panic!("accepted: {accepted}"),
        Err(error) => error,
    };
    match error.status() {
        Some(status) => (status.code, status.reason.clone(), status.message.clone()),
        None => panic!("no status: {error}"),
    }
}

/// The error of an object with an invalid field.
pub(crate) fn invalid(kind: &str, name: &str, why: &str) -> Refusal {
    let message = format!("{kind} \"{name}\" is invalid: {why}");
    (422, "Invalid".to_owned(), message)
}

pub(crate) fn bad_request(message: impl Into<String>) -> Refusal {
    (400, "BadRequest".to_owned(), message.into())
}

/// Returns the object without the fields of the metadata that the server sets.
pub(crate) fn stripped(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for field in [
            "uid",
            "creationTimestamp",
            "managedFields",
            "resourceVersion",
            "namespace",
        ] {
            metadata.remove(field);
        }
    }
    object
}

pub(crate) fn post(path: &str, object: &Value) -> Request {
    Request::post(path).json(object).unwrap()
}

pub(crate) fn put(path: &str, object: &Value) -> Request {
    Request::put(path).json(object).unwrap()
}

pub(crate) fn strategic_patch(path: &str, patch: &Value) -> Request {
    merge_patch(path, patch).content_type("application/strategic-merge-patch+json")
}

const KIND: &str = "Lease.coordination.k8s.io";

pub(crate) fn leases(namespace: &Namespace<'_>) -> String {
    format!(
        "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
        namespace.name
    )
}

fn lease(name: &str, spec: Value) -> Value {
    json!({ "metadata": { "name": name }, "spec": spec })
}

/// Creates a lease and returns its spec.
#[track_caller]
fn created_spec(cluster: &Cluster, leases: &str, name: &str, spec: Value) -> Value {
    cluster.send(post(leases, &lease(name, spec)))["spec"].take()
}

#[test]
fn leases_are_stored_with_times_in_six_digits() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        let full = json!({
            "holderIdentity": "me", "leaseDurationSeconds": 15, "leaseTransitions": 0,
            "acquireTime": "2024-01-02T03:04:05.000000Z", "renewTime": "2024-01-02T03:04:05.100000Z",
        });
        assert_eq!(created_spec(cluster, &leases, "full", full.clone()), full);
        let made = |name, spec| created_spec(cluster, &leases, name, spec);
        let zone = json!({ "renewTime": "2024-01-02T05:04:05.123456+02:00" });
        let utc = json!({ "renewTime": "2024-01-02T03:04:05.123456Z" });
        assert_eq!(made("zone", zone), utc);
        // An empty holder differs from none.
        let empty = json!({ "holderIdentity": "" });
        assert_eq!(made("empty", empty.clone()), empty);
        let nulls = json!({ "holderIdentity": null, "renewTime": null });
        assert_eq!(made("nulls", nulls), json!({}));
        let without_spec = json!({ "metadata": { "name": "without-spec" } });
        let without_spec = cluster.send(post(&leases, &without_spec));
        assert_eq!(without_spec["spec"], json!({}));
        // The feature gate CoordinatedLeaderElection is off by default.
        let coordinated = json!({ "strategy": "none", "preferredHolder": "you" });
        assert_eq!(made("coordinated", coordinated), json!({}));
        let unknown = json!({ "holderIdentity": "me", "bogus": 1 });
        assert_eq!(
            made("unknown", unknown.clone()),
            json!({ "holderIdentity": "me" })
        );
        let strict = post(&leases, &lease("strict", unknown)).query("fieldValidation", "Strict");
        assert_eq!(
            refused(cluster, strict),
            bad_request(
                "Lease in version \"v1\" cannot be handled as a Lease: strict decoding error: unknown field \
                 \"spec.bogus\""
            )
        );
    });
}

#[test]
fn invalid_leases_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        cluster.send(post(&leases, &lease("a", json!({}))));
        let stored = format!("{leases}/a");
        let duration = |n: i64| {
            format!("spec.leaseDurationSeconds: Invalid value: {n}: must be greater than 0")
        };
        let transitions =
            "spec.leaseTransitions: Invalid value: -1: must be greater than or equal to 0";
        for (spec, why) in [
            (json!({ "leaseDurationSeconds": 0 }), duration(0)),
            (json!({ "leaseDurationSeconds": -3 }), duration(-3)),
            (json!({ "leaseTransitions": -1 }), transitions.to_owned()),
            (
                json!({ "leaseDurationSeconds": 0, "leaseTransitions": -1 }),
                format!("[{}, {transitions}]", duration(0)),
            ),
        ] {
            // The spec is checked even if the name is taken.
            let wanted = invalid(KIND, "a", &why);
            assert_eq!(
                refused(cluster, post(&leases, &lease("a", spec.clone()))),
                wanted
            );
            let patch = json!({ "spec": spec });
            assert_eq!(refused(cluster, merge_patch(&stored, &patch)), wanted);
            assert_eq!(refused(cluster, strategic_patch(&stored, &patch)), wanted);
            let mut changed = cluster.send(Request::get(&stored));
            changed["spec"] = patch["spec"].clone();
            assert_eq!(refused(cluster, put(&stored, &changed)), wanted);
            let missing = put(&format!("{leases}/b"), &lease("b", patch["spec"].clone()));
            assert_eq!(refused(cluster, missing), invalid(KIND, "b", &why));
        }
        let (_, _, both) = refused(
            cluster,
            post(&leases, &lease("B", json!({ "leaseDurationSeconds": 0 }))),
        );
        assert!(both.contains("[metadata.name: Invalid value: \"B\": a lowercase RFC 1123"));
        assert!(both.ends_with(&format!("{}]", duration(0))), "{both}");
    });
}

#[test]
fn lease_fields_of_a_wrong_type_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        cluster.send(post(&leases, &lease("a", json!({}))));
        let micro = r#"as "2006-01-02T15:04:05.000000Z07:00": cannot parse"#;
        let mismatch = |found, field, wanted| {
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}")
        };
        for (spec, why) in [
            // A time needs exactly six digits.
            (
                json!({ "renewTime": "2024-01-02T03:04:05Z" }),
                format!(r#"parsing time "2024-01-02T03:04:05Z" {micro} "Z" as ".000000""#),
            ),
            (
                json!({ "renewTime": "2024-01-02T03:04:05.1Z" }),
                format!(r#"parsing time "2024-01-02T03:04:05.1Z" {micro} ".1Z" as ".000000""#),
            ),
            (
                json!({ "renewTime": "2024-01-02T03:04:05.1234567Z" }),
                format!(r#"parsing time "2024-01-02T03:04:05.1234567Z" {micro} "7Z" as "Z07:00""#),
            ),
            (
                json!({ "acquireTime": "" }),
                format!(r#"parsing time "" {micro} "" as "2006""#),
            ),
            (
                json!({ "acquireTime": 5 }),
                mismatch("number", "LeaseSpec.spec.acquireTime", "string"),
            ),
            (
                json!({ "holderIdentity": true }),
                mismatch("bool", "LeaseSpec.spec.holderIdentity", "string"),
            ),
            (
                json!({ "leaseDurationSeconds": "15" }),
                mismatch("string", "LeaseSpec.spec.leaseDurationSeconds", "int32"),
            ),
            (
                json!({ "leaseDurationSeconds": 1.5 }),
                mismatch("number 1.5", "LeaseSpec.spec.leaseDurationSeconds", "int32"),
            ),
            (
                json!({ "leaseTransitions": 3_000_000_000_u32 }),
                mismatch(
                    "number 3000000000",
                    "LeaseSpec.spec.leaseTransitions",
                    "int32",
                ),
            ),
            (json!([]), mismatch("array", "Lease.spec", "v1.LeaseSpec")),
        ] {
            let wanted = format!("Lease in version \"v1\" cannot be handled as a Lease: {why}");
            let lease = lease("a", spec);
            assert_eq!(
                refused(cluster, post(&leases, &lease)),
                bad_request(&wanted)
            );
            assert_eq!(
                refused(cluster, put(&format!("{leases}/a"), &lease)),
                bad_request(&wanted)
            );
            let patch = merge_patch(&format!("{leases}/a"), &json!({ "spec": lease["spec"] }));
            let (code, reason, message) = refused(cluster, patch);
            assert_eq!((code, &*reason), (422, "Invalid"), "{message}");
            assert!(
                message.starts_with(" \"\" is invalid: patch: Invalid value: ")
                    && message.ends_with(&why),
                "{message}"
            );
        }
    });
}

#[test]
fn lease_updates_need_the_current_version() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        let path = format!("{leases}/a");
        let first = cluster.send(post(
            &leases,
            &lease("a", json!({ "holderIdentity": "me" })),
        ));
        let patch = json!({ "spec": { "renewTime": "2024-01-02T03:04:05.000000Z" } });
        let second = cluster.send(strategic_patch(&path, &patch));
        assert_eq!(second["spec"]["holderIdentity"], "me");
        assert_ne!(
            first["metadata"]["resourceVersion"],
            second["metadata"]["resourceVersion"]
        );
        // A patch without a change is no write.
        assert_eq!(cluster.send(merge_patch(&path, &patch)), second);

        let conflict = |why: &str| {
            let subject = "Operation cannot be fulfilled on leases.coordination.k8s.io";
            (
                409,
                "Conflict".to_owned(),
                format!("{subject} \"a\": {why}"),
            )
        };
        let modified = "the object has been modified; please apply your changes to the latest version and try again";
        assert_eq!(refused(cluster, put(&path, &first)), conflict(modified));
        let version =
            json!({ "metadata": { "resourceVersion": first["metadata"]["resourceVersion"] } });
        assert_eq!(
            refused(cluster, merge_patch(&path, &version)),
            conflict(modified)
        );
        // The version is checked before the spec.
        let mut invalid_and_old = first.clone();
        invalid_and_old["spec"]["leaseDurationSeconds"] = 0.into();
        assert_eq!(
            refused(cluster, put(&path, &invalid_and_old)),
            conflict(modified)
        );
        let unversioned = lease("a", json!({ "holderIdentity": "you" }));
        assert_eq!(
            refused(cluster, put(&path, &unversioned)),
            invalid(
                "leases.coordination.k8s.io",
                "a",
                "metadata.resourceVersion: Invalid value: 0: must be specified for an update"
            )
        );
        let mut renamed = second.clone();
        renamed["metadata"]["name"] = "b".into();
        assert_eq!(
            refused(cluster, put(&path, &renamed)),
            bad_request("the name of the object (b) does not match the name on the URL (a)")
        );
        let mut moved = second.clone();
        moved["metadata"]["namespace"] = "other".into();
        assert_eq!(
            refused(cluster, put(&path, &moved)),
            bad_request(
                "the namespace of the provided object does not match the namespace sent on the request"
            )
        );
        let mut taken = second;
        taken["spec"]["holderIdentity"] = "you".into();
        let third = cluster.send(put(&path, &taken));
        assert_eq!(third["spec"], taken["spec"]);

        let deleted = cluster.send(Request::delete(&path));
        assert_eq!(deleted["details"]["kind"], "leases");
        let missing = "leases.coordination.k8s.io \"a\" not found".to_owned();
        assert_eq!(
            refused(cluster, Request::get(&path)),
            (404, "NotFound".to_owned(), missing.clone())
        );
        assert_eq!(
            refused(cluster, merge_patch(&path, &patch)),
            (404, "NotFound".to_owned(), missing)
        );
    });
}

#[test]
fn put_creates_a_missing_lease_unless_it_has_a_uid() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        let holder = json!({ "holderIdentity": "me" });
        let made = cluster.send(put(&format!("{leases}/a"), &lease("a", holder.clone())));
        assert_eq!(made["spec"], holder);
        // The resourceVersion of a deleted lease does not prevent this.
        let mut old = lease("b", holder);
        old["metadata"]["resourceVersion"] = "1".into();
        let path = format!("{leases}/b");
        let again = cluster.send(put(&path, &old));
        assert_eq!(stripped(again.clone())["metadata"], json!({ "name": "b" }));

        cluster.send(Request::delete(&path));
        let (code, reason, message) = refused(cluster, put(&path, &again));
        assert_eq!((code, &*reason), (409, "Conflict"));
        let uid = again["metadata"]["uid"].as_str().unwrap();
        assert!(
            message.ends_with(&format!(
                "Precondition failed: UID in precondition: {uid}, UID in object meta: "
            )),
            "{message}"
        );
    });
}

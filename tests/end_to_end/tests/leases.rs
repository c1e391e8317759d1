//! Leases: what the server stores, and what it refuses.

use k8s_informer::client::Request;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster};
use crate::verbs::ONCE;

/// The code and the reason of an error. The embedded server has texts of its own.
pub(crate) type Refusal = (u16, String);

/// Sends a request that the server refuses.
#[track_caller]
pub(crate) fn refused(cluster: &Cluster, request: Request) -> Refusal {
    let error = match cluster.try_send(request) {
        Ok(accepted) => panic!("accepted: {accepted}"),
        Err(error) => error,
    };
    match error.status() {
        Some(status) => (status.code, status.reason.clone()),
        None => panic!("no status: {error}"),
    }
}

/// The error of an object with an invalid field.
pub(crate) fn invalid() -> Refusal {
    (422, "Invalid".to_owned())
}

pub(crate) fn bad_request() -> Refusal {
    (400, "BadRequest".to_owned())
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
        // An empty holder differs from none.
        let empty = json!({ "holderIdentity": "" });
        assert_eq!(made("empty", empty.clone()), empty);
        let nulls = json!({ "holderIdentity": null, "renewTime": null });
        assert_eq!(made("nulls", nulls), json!({}));
    });
}

#[test]
fn invalid_leases_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        cluster.send(post(&leases, &lease("a", json!({}))));
        let stored = format!("{leases}/a");
        for spec in [
            json!({ "leaseDurationSeconds": 0 }),
            json!({ "leaseDurationSeconds": -3 }),
            json!({ "leaseTransitions": -1 }),
        ] {
            // The spec is checked even if the name is taken.
            let taken = post(&leases, &lease("a", spec.clone()));
            assert_eq!(refused(cluster, taken), invalid());
            let patch = json!({ "spec": spec });
            assert_eq!(refused(cluster, merge_patch(&stored, &patch)), invalid());
            assert_eq!(
                refused(cluster, strategic_patch(&stored, &patch)),
                invalid()
            );
            let mut changed = cluster.send(Request::get(&stored));
            changed["spec"] = patch["spec"].clone();
            assert_eq!(refused(cluster, put(&stored, &changed)), invalid());
        }
        let both = lease("B", json!({ "leaseDurationSeconds": 0 }));
        assert_eq!(refused(cluster, post(&leases, &both)), invalid());
    });
}

#[test]
fn lease_fields_of_a_wrong_type_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("leases");
        let leases = leases(&namespace);
        cluster.send(post(&leases, &lease("a", json!({}))));
        for spec in [
            // A time needs exactly six digits.
            json!({ "renewTime": "2024-01-02T03:04:05Z" }),
            json!({ "renewTime": "2024-01-02T03:04:05.1Z" }),
            json!({ "renewTime": "2024-01-02T03:04:05.1234567Z" }),
            json!({ "acquireTime": "" }),
            json!({ "acquireTime": 5 }),
            json!({ "holderIdentity": true }),
            json!({ "leaseDurationSeconds": "15" }),
            json!({ "leaseDurationSeconds": 1.5 }),
            json!({ "leaseTransitions": 3_000_000_000_u32 }),
        ] {
            let lease = lease("a", spec);
            assert_eq!(refused(cluster, post(&leases, &lease)), bad_request());
            let update = put(&format!("{leases}/a"), &lease);
            assert_eq!(refused(cluster, update), bad_request());
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

        let conflict = (409, "Conflict".to_owned());
        assert_eq!(refused(cluster, put(&path, &first)), conflict);
        let version =
            json!({ "metadata": { "resourceVersion": first["metadata"]["resourceVersion"] } });
        assert_eq!(refused(cluster, merge_patch(&path, &version)), conflict);
        // The version is checked before the spec.
        let mut invalid_and_old = first.clone();
        invalid_and_old["spec"]["leaseDurationSeconds"] = 0.into();
        assert_eq!(refused(cluster, put(&path, &invalid_and_old)), conflict);
        let unversioned = lease("a", json!({ "holderIdentity": "you" }));
        assert_eq!(refused(cluster, put(&path, &unversioned)), invalid());
        let mut renamed = second.clone();
        renamed["metadata"]["name"] = "b".into();
        assert_eq!(refused(cluster, put(&path, &renamed)), bad_request());
        let mut moved = second.clone();
        moved["metadata"]["namespace"] = "other".into();
        assert_eq!(refused(cluster, put(&path, &moved)), bad_request());
        let mut taken = second;
        taken["spec"]["holderIdentity"] = "you".into();
        let third = cluster.send(put(&path, &taken));
        assert_eq!(third["spec"], taken["spec"]);

        let deleted = cluster.send(Request::delete(&path));
        assert_eq!(deleted["details"]["kind"], "leases");
        let missing = (404, "NotFound".to_owned());
        assert_eq!(refused(cluster, Request::get(&path)), missing);
        assert_eq!(refused(cluster, merge_patch(&path, &patch)), missing);
    });
}

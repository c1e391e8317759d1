//! What a deletion does with each propagation policy, on a server without a garbage collector.

use k8s_informer::client::Request;
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster};
use crate::leases::{bad_request, invalid, post, refused};
use crate::verbs::ONCE;

fn delete(path: &str, options: &Value) -> Request {
    Request::delete(path).json(options).unwrap()
}

fn policy(policy: &str) -> Value {
    json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy})
}

/// Returns the finalizers of an object that is being deleted, or the status of the response.
fn outcome(object: &Value) -> String {
    let metadata = &object["metadata"];
    match metadata["deletionTimestamp"] {
        Value::Null => object["status"].as_str().unwrap_or("kept").to_owned(),
        _ => {
            let finalizers = metadata["finalizers"].as_array().into_iter().flatten();
            let finalizers = finalizers.map(|one| one.as_str().unwrap());
            finalizers.collect::<Vec<_>>().join(",")
        }
    }
}

/// Creates a ConfigMap and returns its path.
fn config(cluster: &Cluster, namespace: &Namespace<'_>, finalizers: &[&str]) -> String {
    let collection = namespace.path("configmaps");
    let object = json!({"metadata": {"generateName": "a-", "finalizers": finalizers}});
    let created = cluster.send(post(&collection, &object));
    format!(
        "{collection}/{}",
        created["metadata"]["name"].as_str().unwrap()
    )
}

/// Lets the namespace of the test go.
fn release(cluster: &Cluster, path: &str) {
    let patch = json!({"metadata": {"finalizers": null}});
    let _ = cluster.try_send(merge_patch(path, &patch));
}

#[test]
fn propagation_policy_sets_the_finalizer_of_the_collector() {
    const X: &str = "example.com/x";
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletions");
        for (finalizers, policies, expected) in [
            (&[][..], &["Background"][..], &["Success"][..]),
            (
                &[],
                &["Foreground", "", "Orphan", "", "Background"],
                &[
                    "foregroundDeletion",
                    "foregroundDeletion",
                    "orphan",
                    "orphan",
                    "Success",
                ],
            ),
            (
                &[X],
                &["", "Foreground", "Orphan", "Background", ""],
                &[
                    X,
                    "example.com/x,foregroundDeletion",
                    "example.com/x,orphan",
                    X,
                    X,
                ],
            ),
            (
                &["orphan"],
                &["", "Foreground"],
                &["orphan", "foregroundDeletion"],
            ),
            (
                &["orphan", X],
                &["", "Orphan"],
                &["orphan,example.com/x"; 2],
            ),
            (
                &["foregroundDeletion"],
                &["", "Orphan"],
                &["foregroundDeletion", "orphan"],
            ),
            (&["orphan"], &["Background"], &["Success"]),
            (&["foregroundDeletion"], &["Background"], &["Success"]),
        ] {
            let path = config(cluster, &namespace, finalizers);
            let outcomes = policies.iter().map(|&name| {
                let request = match name {
                    "" => Request::delete(&*path),
                    name => delete(&path, &policy(name)),
                };
                outcome(&cluster.send(request))
            });
            assert_eq!(
                outcomes.collect::<Vec<_>>(),
                expected,
                "{finalizers:?} {policies:?}"
            );
            release(cluster, &path);
        }
    });
}

#[test]
fn propagation_policy_comes_from_the_query_without_a_body() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletions");
        let config = || config(cluster, &namespace, &[]);
        let deleted = |path: &str, request: Request| {
            let outcome = outcome(&cluster.send(request));
            release(cluster, path);
            outcome
        };
        let path = config();
        let query = |path: &str, name: &str, value: &str| Request::delete(path).query(name, value);
        let request = query(&path, "propagationPolicy", "Foreground");
        assert_eq!(deleted(&path, request), "foregroundDeletion");
        let path = config();
        let request = delete(&path, &json!({"kind": "DeleteOptions", "apiVersion": "v1"}));
        let request = request.query("propagationPolicy", "Foreground");
        assert_eq!(deleted(&path, request), "Success");
    });
}

#[test]
fn invalid_propagation_policy_is_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletions");
        let path = config(cluster, &namespace, &[]);
        for name in ["", "Nope"] {
            assert_eq!(refused(cluster, delete(&path, &policy(name))), invalid());
            let query = Request::delete(&*path).query("propagationPolicy", name);
            assert_eq!(refused(cluster, query), invalid());
        }
    });
}

#[test]
fn kinds_have_their_default_propagation_policy() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletions");
        let template = |restart: &str| {
            json!({
                "metadata": {"labels": {"a": "b"}},
                "spec": {"restartPolicy": restart, "containers": [{"name": "main", "image": "none"}]},
            })
        };
        let jobs = format!("/apis/batch/v1/namespaces/{}/jobs", namespace.name);
        let deployments = format!("/apis/apps/v1/namespaces/{}/deployments", namespace.name);
        let job = json!({"template": template("Never")});
        let controller = json!({"selector": {"a": "b"}, "template": template("Always")});
        let deployment =
            json!({"selector": {"matchLabels": {"a": "b"}}, "template": template("Always")});
        for (collection, spec, by_default) in [
            (jobs, job, "orphan"),
            (
                namespace.path("replicationcontrollers"),
                controller,
                "orphan",
            ),
            (deployments, deployment, "Success"),
        ] {
            let path = format!("{collection}/one");
            for (name, expected) in [(None, by_default), (Some("Background"), "Success")] {
                let object = json!({"metadata": {"name": "one"}, "spec": spec});
                cluster.send(post(&collection, &object));
                let request = match name {
                    None => Request::delete(&*path),
                    Some(name) => delete(&path, &policy(name)),
                };
                assert_eq!(outcome(&cluster.send(request)), expected, "{path}");
                release(cluster, &path);
            }
        }
        // Events are never owners.
        let events = namespace.path("events");
        let event =
            json!({"metadata": {"name": "e"}, "involvedObject": {"namespace": namespace.name}});
        cluster.send(post(&events, &event));
        let request = delete(&format!("{events}/e"), &policy("Foreground"));
        assert_eq!(outcome(&cluster.send(request)), "Success");
    });
}

#[test]
fn collections_and_dry_runs_follow_the_policy() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletions");
        let path = config(cluster, &namespace, &[]);
        let mut options = policy("Foreground");
        options["dryRun"] = json!(["All"]);
        assert_eq!(
            outcome(&cluster.send(delete(&path, &options))),
            "foregroundDeletion"
        );
        let read = || cluster.send(Request::get(&*path));
        assert_eq!(outcome(&read()), "kept");
        let name = path.rsplit('/').next().unwrap();
        let request = delete(&namespace.path("configmaps"), &policy("Foreground"));
        cluster.send(request.query("fieldSelector", &format!("metadata.name={name}")));
        assert_eq!(outcome(&read()), "foregroundDeletion");
        release(cluster, &path);
    });
}

#[test]
fn invalid_owner_references_are_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletions");
        let pod = |name: &str| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name, "controller": true});
        let post = |owners: Value| {
            let object = json!({"metadata": {"name": "a", "ownerReferences": owners}});
            post(&namespace.path("configmaps"), &object)
        };
        let mut no_uid = pod("x");
        no_uid["uid"] = "".into();
        let event = json!({"apiVersion": "v1", "kind": "Event", "name": "e", "uid": "e"});
        for owners in [
            json!([{}]),
            json!([no_uid]),
            json!([event]),
            json!([pod("x"), pod("y")]),
        ] {
            assert_eq!(refused(cluster, post(owners)), invalid());
        }
        for owners in [json!("x"), json!(["x"])] {
            assert_eq!(refused(cluster, post(owners)), bad_request());
        }
    });
}

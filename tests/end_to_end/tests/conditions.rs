//! Conditions: how patches and server-side apply merge them.

use std::time::{Duration, SystemTime};

use k8s_informer::client::Request;
use k8s_informer_controller::{Condition, Conditions};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Namespace, merge_patch, on_every_cluster};
use crate::discovery::Definition;
use crate::leases::{post, refused, strategic_patch};
use crate::verbs::ONCE;

/// Creates a Pod and returns its path.
fn pod(cluster: &Cluster, namespace: &Namespace<'_>) -> String {
    let pod = json!({
        "metadata": {"name": "p"}, "spec": {"containers": [{"name": "main", "image": "none"}]},
    });
    cluster.send(post(&namespace.path("pods"), &pod));
    format!("{}/p", namespace.path("pods"))
}

fn apply(path: &str, manager: &str, object: &Value) -> Request {
    merge_patch(path, object)
        .content_type("application/apply-patch+yaml")
        .query("fieldManager", manager)
}

/// Returns the conditions of an object as `Type=Status`, followed by the reason if there is one.
fn conditions(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array();
    let text = |condition: &Value| {
        let field = |name: &str| condition[name].as_str().unwrap_or_default().to_owned();
        let reason = condition["reason"].as_str().map(|it| format!(" {it}"));
        let (name, status) = (field("type"), field("status"));
        format!("{name}={status}{}", reason.unwrap_or_default())
    };
    conditions.into_iter().flatten().map(text).collect()
}

/// Sorts conditions. A real server merges lists in an order that the embedded one does not have.
fn sorted(mut conditions: Vec<String>) -> Vec<String> {
    conditions.sort_unstable();
    conditions
}

#[test]
fn strategic_patch_merges_conditions_by_type() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        let status = format!("{}/status", pod(cluster, &namespace));
        let patch = |status_patch: Value| {
            let patch = json!({"status": status_patch});
            sorted(conditions(&cluster.send(strategic_patch(&status, &patch))))
        };
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        for (sent, expected) in [
            (
                json!({"conditions": [condition("A", "True"), condition("B", "False")]}),
                &["A=True", "B=False"][..],
            ),
            (
                json!({"conditions": [condition("C", "True"), {"type": "B", "status": "True", "reason": "R"}]}),
                &["A=True", "B=True R", "C=True"],
            ),
            (
                json!({"conditions": [condition("B", "False")]}),
                &["A=True", "B=False R", "C=True"],
            ),
            (
                json!({"conditions": [{"type": "B", "reason": null}]}),
                &["A=True", "B=False", "C=True"],
            ),
            (json!({"conditions": []}), &["A=True", "B=False", "C=True"]),
            (
                json!({"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}],
                    "conditions": [condition("A", "False")]}),
                &["A=False", "B=False", "C=True"],
            ),
            (
                json!({"$setElementOrder/conditions": [{"type": "A"}, {"type": "B"}, {"type": "C"}]}),
                &["A=False", "B=False", "C=True"],
            ),
            (
                json!({"conditions": [{"$patch": "delete", "type": "A"}, {"$patch": "delete", "type": "none"}]}),
                &["B=False", "C=True"],
            ),
            (
                json!({"conditions": [{"$patch": "replace"}, condition("D", "True")]}),
                &["D=True"],
            ),
            (json!({"conditions": null}), &[]),
        ] {
            assert_eq!(patch(sent.clone()), expected, "{sent}");
        }
        for sent in [
            json!({"status": "True"}),
            json!({"$patch": "some", "type": "A"}),
            json!({"$patch": "merge", "type": "A"}),
        ] {
            cluster.send(merge_patch(
                &status,
                &json!({"status": {"conditions": [condition("A", "True")]}}),
            ));
            let sent = json!({"status": {"conditions": [sent]}});
            let refusal = refused(cluster, strategic_patch(&status, &sent));
            assert_eq!(refusal, (500, String::new()), "{sent}");
        }
    });
}

#[test]
fn merge_patch_replaces_conditions() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        let status = format!("{}/status", pod(cluster, &namespace));
        for name in ["A", "B"] {
            let patch = json!({"status": {"conditions": [{"type": name, "status": "True"}]}});
            let patched = cluster.send(merge_patch(&status, &patch));
            assert_eq!(conditions(&patched), [format!("{name}=True")]);
        }
    });
}

#[test]
fn strategic_patch_merges_owner_references_by_uid() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        namespace.create("a", json!({}));
        let path = format!("{}/a", namespace.path("configmaps"));
        let owner = |uid: &str, controller: bool| {
            json!({
                "apiVersion": "v1", "kind": "Pod", "name": uid, "uid": uid, "controller": controller,
            })
        };
        let patch = |owners: Value| {
            let patch = json!({"metadata": {"ownerReferences": owners}});
            let mut patched = cluster.send(strategic_patch(&path, &patch));
            let mut owners = patched["metadata"]["ownerReferences"].take();
            if let Value::Array(owners) = &mut owners {
                owners.sort_unstable_by_key(|owner| owner["uid"].to_string());
            }
            owners
        };
        assert_eq!(patch(json!([owner("1", true)])), json!([owner("1", true)]));
        assert_eq!(
            patch(json!([owner("2", false)])),
            json!([owner("1", true), owner("2", false)])
        );
        assert_eq!(
            patch(json!([{"$patch": "delete", "uid": "1"}, {"uid": "2", "controller": true}])),
            json!([owner("2", true)])
        );
        assert_eq!(
            patch(json!([{"$patch": "delete", "uid": "2"}])),
            json!(null)
        );
    });
}

/// The schema of a resource whose `conditions` are a map and whose `plain` is an atomic list.
fn schema() -> Value {
    let condition = json!({
        "type": "object", "required": ["type"],
        "properties": {"type": {"type": "string"}, "status": {"type": "string"}, "reason": {"type": "string"},
            "message": {"type": "string"}, "observedGeneration": {"type": "integer"},
            "lastTransitionTime": {"type": "string", "format": "date-time"}},
    });
    let tag = json!({
        "type": "object", "required": ["key"],
        "properties": {"key": {"type": "string"}, "value": {"type": "string"}},
    });
    let port = json!({
        "type": "object", "required": ["port", "protocol"],
        "properties": {"port": {"type": "integer"}, "protocol": {"type": "string"}, "name": {"type": "string"},
            "tags": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["key"],
                "items": tag}},
    });
    json!({"type": "object", "properties": {"status": {"type": "object", "properties": {
        "conditions": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"],
            "items": condition},
        "ports": {"type": "array", "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["port", "protocol"], "items": port},
        "plain": {"type": "array", "items": condition},
    }}}})
}

/// Creates a Gizmo and returns its path.
fn gizmo(cluster: &Cluster, namespace: &Namespace<'_>, definition: &Definition<'_>) -> String {
    let group = &definition.group;
    let path = format!("/apis/{group}/v1/namespaces/{}/gizmos", namespace.name);
    let gizmo = json!({
        "apiVersion": format!("{group}/v1"), "kind": "Gizmo", "metadata": {"name": "g"},
    });
    cluster.send(post(&path, &gizmo));
    format!("{path}/g")
}

/// Applies a status to a Pod and to a Gizmo.
fn on_pods_and_gizmos(test: impl Fn(&Cluster, &dyn Fn(&str, Value) -> Request)) {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        let definition = Definition::with_schema(cluster, &namespace.name, &schema());
        let version = format!("{}/v1", definition.group);
        for (path, version, kind) in [
            (pod(cluster, &namespace), "v1", "Pod"),
            (gizmo(cluster, &namespace, &definition), &*version, "Gizmo"),
        ] {
            println!("  {kind}");
            let name = path.rsplit('/').next().unwrap();
            test(cluster, &|manager, status| {
                let object = json!({
                    "apiVersion": version, "kind": kind, "metadata": {"name": name}, "status": status,
                });
                apply(&format!("{path}/status"), manager, &object)
            });
        }
    });
}

#[test]
fn apply_merges_conditions_of_managers_by_type() {
    on_pods_and_gizmos(|cluster, status| {
        let apply = |manager: &str, conditions: Value| {
            cluster.send(status(manager, json!({"conditions": conditions})))
        };
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        let a = condition("A", "True");
        assert_eq!(conditions(&apply("one", json!([a]))), ["A=True"]);
        let b = json!({"type": "B", "status": "True", "reason": "R"});
        assert_eq!(
            conditions(&apply("two", json!([b]))),
            ["A=True", "B=True R"]
        );

        let other = json!({"conditions": [a, condition("B", "False")]});
        let refusal = refused(cluster, status("one", other.clone()));
        assert_eq!(refusal, (409, "Conflict".to_owned()));
        let forced = cluster.send(status("one", other).query("force", "true"));
        assert_eq!(conditions(&forced), ["A=True", "B=False R"]);
        let managers = forced["metadata"]["managedFields"].as_array().unwrap();
        let fields = |manager: &str| {
            let entry = managers.iter().find(|entry| entry["manager"] == manager);
            entry.unwrap()["fieldsV1"]["f:status"]["f:conditions"].clone()
        };
        assert_eq!(
            fields("two"),
            json!({"k:{\"type\":\"B\"}": {".": {}, "f:reason": {}, "f:type": {}}})
        );
        assert_eq!(
            fields("one")["k:{\"type\":\"A\"}"],
            json!({".": {}, "f:status": {}, "f:type": {}})
        );

        // A condition stays while a manager applies it.
        let applied = apply("two", json!([condition("B", "False")]));
        assert_eq!(conditions(&applied), ["A=True", "B=False"]);
        let applied = apply("one", json!([condition("C", "True"), a]));
        assert_eq!(
            sorted(conditions(&applied)),
            ["A=True", "B=False", "C=True"]
        );
        assert_eq!(conditions(&apply("one", json!([]))), ["B=False"]);
        assert_eq!(conditions(&apply("two", json!([]))), [""; 0]);
    });
}

#[test]
fn apply_follows_the_list_types_of_the_schema() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        let definition = Definition::with_schema(cluster, &namespace.name, &schema());
        let path = gizmo(cluster, &namespace, &definition);
        let request = |manager: &str, status: Value| {
            let object = json!({
                "apiVersion": format!("{}/v1", definition.group), "kind": "Gizmo", "metadata": {"name": "g"},
                "status": status,
            });
            apply(&format!("{path}/status"), manager, &object)
        };
        let send = |manager, status| cluster.send(request(manager, status))["status"].take();
        let tcp = |name: &str, tags: Value| json!({"port": 1, "protocol": "TCP", "name": name, "tags": tags});
        let udp = json!({"port": 1, "protocol": "UDP"});
        let one = json!([tcp("x", json!([{"key": "a", "value": "1"}])), udp]);
        assert_eq!(send("one", json!({"ports": one}))["ports"], one);
        let two = json!([{"port": 1, "protocol": "TCP", "tags": [{"key": "b", "value": "1"}]}]);
        let both = json!([{"key": "a", "value": "1"}, {"key": "b", "value": "1"}]);
        assert_eq!(
            send("two", json!({"ports": two}))["ports"],
            json!([tcp("x", both), udp])
        );
        let other = json!({"ports": [tcp("y", json!([{"key": "a", "value": "2"}]))]});
        assert_eq!(refused(cluster, request("two", other)).0, 409);
        assert_eq!(send("one", json!({}))["ports"], two);

        let condition = |name: &str| json!({"type": name, "status": "True"});
        send("one", json!({"plain": [condition("A"), condition("B")]}));
        let atomic = json!({"plain": [condition("C")]});
        assert_eq!(refused(cluster, request("two", atomic.clone())).0, 409);
        let forced = cluster.send(request("two", atomic).query("force", "true"));
        assert_eq!(forced["status"]["plain"], json!([condition("C")]));

        let strategic = strategic_patch(&path, &json!({"metadata": {"labels": {"a": "b"}}}));
        assert_eq!(refused(cluster, strategic).0, 415);
    });
}

#[test]
fn invalid_lists_are_refused_by_apply() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        let definition = Definition::with_schema(cluster, &namespace.name, &schema());
        let path = gizmo(cluster, &namespace, &definition);
        let version = format!("{}/v1", definition.group);
        let condition = json!({"type": "A", "status": "True"});
        for sent in [
            json!([{"status": "True"}]),
            json!([condition, condition]),
            json!([condition, "x"]),
            json!("x"),
        ] {
            let object = json!({
                "apiVersion": version, "kind": "Gizmo", "metadata": {"name": "g"}, "status": {"conditions": sent},
            });
            let refusal = refused(cluster, apply(&format!("{path}/status"), "m", &object));
            assert_eq!(refusal, (500, String::new()));
        }
    });
}

#[test]
fn wr25_applied_condition_is_read_back_and_not_changed() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conditions");
        let definition = Definition::with_schema(cluster, &namespace.name, &schema());
        let path = gizmo(cluster, &namespace, &definition);
        let apply = |manager: &str, conditions: &Conditions| {
            let object = json!({
                "apiVersion": format!("{}/v1", definition.group), "kind": "Gizmo", "metadata": {"name": "g"},
                "status": {"conditions": conditions},
            });
            cluster.send(apply(&format!("{path}/status"), manager, &object))
        };
        let read = |object: &Value| -> Conditions {
            serde_json::from_value(object["status"]["conditions"].clone()).unwrap()
        };
        let now = SystemTime::now();
        let mut mine = Conditions::new();
        assert!(mine.set(Condition::new("Ready", true, "Done", "all is well"), now));
        let applied = apply("me", &mine);
        assert_eq!(read(&applied), mine);
        let time = |conditions: &Conditions| conditions.get("Ready").unwrap().last_transition_time;
        assert_eq!(time(&read(&applied)), time(&mine));

        let mut other = Conditions::new();
        other.set_current(1, now);
        apply("other", &other);
        let mut retried = mine.clone();
        let later = now + Duration::from_secs(60);
        assert!(!retried.set(Condition::new("Ready", true, "Done", "all is well"), later));
        let again = apply("me", &retried);
        assert_eq!(
            read(&again).iter().map(|it| &*it.type_).collect::<Vec<_>>(),
            ["Ready", "Reconciling", "Stalled"]
        );
        let version = |object: &Value| object["metadata"]["resourceVersion"].clone();
        assert_eq!(version(&apply("me", &retried)), version(&again));
    });
}

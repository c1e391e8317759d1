//! Informers that select by label, by field or by namespace.

use k8s_informer::Stop;
use k8s_informer::client::Request;
use k8s_informer::informer::{InformerScope, Source};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ReflectorState;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::json;

use crate::cluster::{BOTH, merge_patch, on_every_cluster};
use crate::support::{names, shut_down, synced, wait_until};

#[test]
fn label_changes_add_and_delete_objects() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("labels");
        namespace.create("a", json!({ "tier": "web" }));
        namespace.create("b", json!({ "tier": "db" }));
        let selector = "tier in (web, edge),!hidden".parse().unwrap();
        let scope = InformerScope::all()
            .namespace(&namespace.name)
            .label_selector(selector);
        let factory = cluster.factory_with(|options| options.scope(scope));
        let maps = factory.informer::<ConfigMap>();
        let follower = synced(&factory, &maps);
        follower.wait_for_events(&["+a"]);

        namespace.patch(
            "b",
            &json!({ "metadata": { "labels": { "tier": "edge" } } }),
        );
        namespace.patch("a", &json!({ "data": { "round": "1" } }));
        namespace.patch(
            "a",
            &json!({ "metadata": { "labels": { "hidden": "yes" } } }),
        );
        namespace.patch("a", &json!({ "data": { "round": "unseen" } }));
        namespace.create("c", json!({ "tier": "none" }));
        namespace.patch(
            "a",
            &json!({ "metadata": { "labels": { "hidden": null } } }),
        );
        namespace.delete("b");
        follower.wait_for_events(&["+a", "+b", "~a", "-a", "+a", "-b"]);
        assert_eq!(names(&maps), ["a"]);
        let known = follower.known();
        assert_eq!(
            (known.problems.len(), known.initial),
            (0, 1),
            "{:?}",
            known.problems
        );
        shut_down(&factory, "with a label selector");
    });
}

#[test]
fn field_changes_add_and_delete_objects() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("fields");
        let pods = namespace.path("pods");
        for name in ["a", "b"] {
            let pod = json!({
                "metadata": { "name": name },
                // A scheduler, if there is one, ignores this Pod.
                "spec": { "schedulerName": "nobody", "containers": [{ "name": "c", "image": "none" }] },
            });
            cluster.send(Request::post(&pods).json(&pod).unwrap());
        }
        let phase = |name: &str, phase: &str| {
            let patch = json!({ "status": { "phase": phase } });
            cluster.send(merge_patch(&format!("{pods}/{name}/status"), &patch));
        };
        phase("b", "Running");
        let scope = InformerScope::all()
            .namespace(&namespace.name)
            .field_selector("spec.nodeName=,status.phase!=Running");
        let factory = cluster.factory_with(|options| options.scope(scope));
        let informer = factory.informer::<Pod>();
        let follower = synced(&factory, &informer);
        follower.wait_for_events(&["+a"]);
        phase("a", "Running");
        phase("b", "Failed");
        phase("a", "Pending");
        follower.wait_for_events(&["+a", "-a", "+b", "+a"]);
        assert_eq!(names(&informer), ["a", "b"]);
        assert_eq!(follower.known().problems, [""; 0]);
        shut_down(&factory, "with a field selector");
    });
}

#[test]
fn field_selector_selects_one_object_by_name() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("name");
        namespace.create("other", json!({}));
        let scope = InformerScope::all()
            .namespace(&namespace.name)
            .field_selector("metadata.name=this");
        let factory = cluster.factory_with(|options| options.scope(scope));
        let maps = factory.informer_for(Source::dynamic(GroupVersionResource::new(
            "",
            "v1",
            "configmaps",
        )));
        let follower = synced(&factory, &maps);
        assert!(names(&maps).is_empty());
        namespace.create("this", json!({}));
        namespace.delete("other");
        namespace.patch("this", &json!({ "data": { "round": "1" } }));
        namespace.delete("this");
        follower.wait_for_events(&["+this", "~this", "-this"]);
        shut_down(&factory, "with one object");
    });
}

#[test]
fn namespaced_factory_caches_and_delivers_one_namespace_only() {
    on_every_cluster(BOTH, |cluster| {
        let (here, there) = (cluster.namespace("here"), cluster.namespace("there"));
        here.create("a", json!({}));
        there.create("b", json!({}));
        // A full cluster has a ConfigMap kube-root-ca.crt in each namespace.
        let scope = InformerScope::all()
            .namespace(&here.name)
            .field_selector("metadata.name!=kube-root-ca.crt");
        let factory = cluster.factory_with(|options| options.scope(scope));
        let maps = factory.informer::<ConfigMap>();
        let follower = synced(&factory, &maps);
        there.patch("b", &json!({ "data": { "round": "1" } }));
        there.create("c", json!({}));
        here.create("d", json!({}));
        there.delete("b");
        here.delete("a");
        follower.wait_for_events(&["+a", "+d", "-a"]);
        assert_eq!(names(&maps), ["d"]);
        shut_down(&factory, "with one namespace");
    });
}

#[test]
fn invalid_field_selector_is_reported() {
    on_every_cluster(BOTH, |cluster| {
        let scope = InformerScope::all()
            .namespace("default")
            .field_selector("a");
        let factory = cluster.factory_with(|options| options.scope(scope));
        let maps = factory.informer::<ConfigMap>();
        factory.start(&Stop::never()).unwrap();
        let error = wait_until("the status has the error", || {
            let status = maps.status();
            status
                .last_error
                .filter(|_| status.state == ReflectorState::BackingOff)
        });
        let status = error.status().unwrap();
        assert_eq!(
            (status.code, status.reason.as_str()),
            (400, "BadRequest"),
            "{error}"
        );
        assert!(
            error
                .to_string()
                .starts_with("list configmaps in namespace \"default\": "),
            "{error}"
        );
        shut_down(&factory, "with an invalid selector");
    });
}

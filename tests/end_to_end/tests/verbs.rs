//! Dry runs, collection deletes, scales, evictions and similar requests. The results are the same
//! from the embedded server and a real one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions, FieldValidation, Patch};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListOptions;
use k8s_informer::{Client, DynamicObject, Object, ObjectMeta, Stopper, impl_object};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::autoscaling::v1::Scale;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, ReplicationController};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::cluster::{ListMethod, Namespace, merge_patch, on_every_cluster};
use crate::leases::{post, put};

/// Runs a test with one list method only, because these tests do not depend on how informers list.
pub(crate) const ONCE: &[ListMethod] = &[ListMethod::List];

/// A type that reads only the name of a ConfigMap.
#[derive(Debug, Deserialize)]
pub(crate) struct Slim {
    metadata: ObjectMeta,
}
impl_object!(Slim, "v1", "ConfigMap", "configmaps", Namespaced);

pub(crate) fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

pub(crate) fn maps(client: &Client, namespace: &Namespace<'_>) -> Api<ConfigMap> {
    client.api(Some(&namespace.name))
}

pub(crate) fn names<T: Object>(objects: &[T]) -> Vec<&str> {
    objects.iter().map(Object::name).collect()
}

pub(crate) fn all() -> ListOptions {
    ListOptions::default()
}

pub(crate) fn labelled(selector: &str) -> ListOptions {
    ListOptions::new().label_selector(selector)
}

#[test]
fn dry_run_returns_results_but_stores_nothing() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("dry");
        let (api, dry) = (
            maps(&client, &namespace),
            maps(&client, &namespace).dry_run(),
        );
        let none = DeleteOptions::default();
        let made = dry
            .create(&json!({"metadata": {"generateName": "made-"}}), &stop)
            .unwrap();
        assert!(
            made.name().starts_with("made-") && !made.uid().is_empty(),
            "{made:?}"
        );
        assert!(api.get(made.name(), &stop).unwrap_err().is_not_found());
        let applied = Patch::apply(
            "me",
            json!({"metadata": {"name": "applied"}, "data": {"round": "1"}}),
        );
        assert_eq!(
            dry.patch("applied", &applied, &stop).unwrap().name(),
            "applied"
        );
        assert!(api.get("applied", &stop).unwrap_err().is_not_found());

        namespace.create("a", json!({}));
        let before = api.get("a", &stop).unwrap();
        assert!(
            dry.create(&json!({"metadata": {"name": "a"}}), &stop)
                .unwrap_err()
                .is_already_exists()
        );
        let patched = dry
            .patch("a", &Patch::merge(json!({"data": {"round": "1"}})), &stop)
            .unwrap();
        assert_eq!(patched.data.as_ref().unwrap()["round"], "1");
        let replaced = dry.modify("a", |map| map.data = None, &stop).unwrap();
        assert!(replaced.data.is_none());
        dry.delete("a", &none, &stop).unwrap();
        assert!(dry.delete("none", &none, &stop).unwrap_err().is_not_found());
        dry.delete_collection(&none, &all(), &stop).unwrap();
        assert_eq!(api.get("a", &stop).unwrap(), before);
        // `api` is not affected by the dry runs of `dry`: it still writes.
        api.delete("a", &none, &stop).unwrap();
        assert!(api.get("a", &stop).unwrap_err().is_not_found());
    });
}

#[test]
fn unknown_fields_are_dropped_or_rejected() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("fields");
        let api = client.dynamic_api(&configmaps(), Some(&namespace.name));
        let strict = api.field_validation(FieldValidation::Strict);
        let body = |name: &str| {
            json!({
                "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "bogus": 1, "data": {"x": "1"},
            })
        };
        let error = strict.create(&body("a"), &stop).unwrap_err();
        assert!(error.is_bad_request(), "{error:?}");
        assert!(
            error
                .to_string()
                .contains("strict decoding error: unknown field \"bogus\""),
            "{error}"
        );
        for (name, api) in [
            ("ignored", api.field_validation(FieldValidation::Ignore)),
            ("warned", api.field_validation(FieldValidation::Warn)),
            ("a", api.clone()),
        ] {
            let made = api.create(&body(name), &stop).unwrap();
            assert_eq!(
                (
                    made.read::<Value>("/bogus").unwrap(),
                    made.read("/data").unwrap()
                ),
                (None, Some(json!({"x": "1"})))
            );
        }
        let patch = Patch::merge(json!({"bogus": 2, "data": {"x": "2"}}));
        let error = strict.patch("a", &patch, &stop).unwrap_err();
        assert!(
            error.is_invalid() && error.to_string().contains("unknown field \"bogus\""),
            "{error:?}"
        );
        let patched = api.patch("a", &patch, &stop).unwrap();
        assert_eq!(patched.read::<Value>("/bogus").unwrap(), None);
        let change = |map: &mut DynamicObject| {
            map.edit(|fields| fields.insert("bogus".to_owned(), json!(3)))
                .unwrap();
        };
        assert!(
            strict
                .modify("a", change, &stop)
                .unwrap_err()
                .is_bad_request()
        );
        // The response contains the server's warnings.
        let request = Request::post(namespace.path("configmaps"))
            .json(&body("unknown-field"))
            .unwrap();
        let response = client.request(&request, &stop).unwrap();
        assert_eq!(
            response.header("warning"),
            Some(r#"299 - "unknown field \"bogus\"""#)
        );
    });
}

#[test]
fn writes_use_the_configured_field_manager() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("manager");
        let api = client
            .dynamic_api(&configmaps(), Some(&namespace.name))
            .field_manager("mine");
        let managers = |map: &DynamicObject| -> BTreeSet<String> {
            let entries: Option<Vec<Value>> = map.read("/metadata/managedFields").unwrap();
            let name = |entry: Value| entry["manager"].as_str().unwrap().to_owned();
            entries.unwrap_or_default().into_iter().map(name).collect()
        };
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
        let made = api.create(&body, &stop).unwrap();
        let wanted = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"y": "1"}});
        let applied = api
            .patch("a", &Patch::apply("other", wanted), &stop)
            .unwrap();
        assert_eq!(managers(&made), BTreeSet::from(["mine".to_owned()]));
        assert_eq!(
            managers(&applied),
            BTreeSet::from(["mine".to_owned(), "other".to_owned()])
        );
    });
}

#[test]
fn managers_follow_creates_updates_patches_and_applies() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("owners");
        let collection = namespace.path("configmaps");
        let path = format!("{collection}/a");
        let json_patch = |operations: &Value| {
            merge_patch(&path, operations).content_type("application/json-patch+json")
        };
        let apply = |data: Value| {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data});
            merge_patch(&path, &map).content_type("application/apply-patch+yaml")
        };
        // Returns the fields of each manager after a write.
        let owners = |manager: &str, request: Request| {
            let written = cluster.send(request.query("fieldManager", manager));
            let entries = written["metadata"]["managedFields"].as_array().cloned();
            let fields = entries.unwrap_or_default().into_iter().map(|entry| {
                assert_eq!(entry["apiVersion"], "v1");
                let text = |field: &str| entry[field].as_str().unwrap().to_owned();
                let name = format!("{} {}", text("manager"), text("operation"));
                (name, entry["fieldsV1"].clone())
            });
            json!(fields.collect::<BTreeMap<_, _>>())
        };
        let finalizers = json!(["example.com/f"]);
        let metadata = json!({"name": "a", "labels": {"l": "1"}, "finalizers": finalizers});
        let map = json!({"metadata": metadata, "data": {"x": "1", "y": "1"}});
        let held = json!({"f:finalizers": {".": {}, "v:\"example.com/f\"": {}}});
        let labels = json!({".": {}, "f:l": {}});
        let mut all = held.clone();
        all["f:labels"] = labels;
        let data = json!({".": {}, "f:x": {}, "f:y": {}});
        assert_eq!(
            owners("one", post(&collection, &map)),
            json!({"one Update": {"f:metadata": all, "f:data": data}})
        );
        // An update takes what it changes, and nothing owns what it removes.
        let metadata = json!({"name": "a", "finalizers": finalizers});
        let map = json!({"metadata": metadata, "data": {"x": "1", "y": "2", "z": "1"}});
        let one = json!({"f:metadata": held, "f:data": {".": {}, "f:x": {}}});
        let expected = json!({"one Update": one, "two Update": {"f:data": {"f:y": {}, "f:z": {}}}});
        assert_eq!(owners("two", put(&path, &map)), expected);
        // Without a change, nothing is taken.
        assert_eq!(owners("three", put(&path, &map)), expected);
        let z = merge_patch(&path, &json!({"data": {"z": "2"}}));
        let two = json!({"f:data": {"f:y": {}}});
        assert_eq!(
            owners("three", z),
            json!({"one Update": one, "two Update": two, "three Update": {"f:data": {"f:z": {}}}})
        );
        let remove = json!([{"op": "remove", "path": "/data/z"}]);
        assert_eq!(
            owners("four", json_patch(&remove)),
            json!({"one Update": one, "two Update": two})
        );
        // An apply shares a field with the same value. Another value is a conflict, also with a
        // manager of the same name.
        let x = json!({"f:data": {"f:x": {}}});
        assert_eq!(
            owners("five", apply(json!({"x": "1"}))),
            json!({"five Apply": x, "one Update": one, "two Update": two})
        );
        let request = apply(json!({"y": "3"})).query("fieldManager", "two");
        let error = cluster.try_send(request).unwrap_err();
        assert!(error.is_conflict(), "{error:?}");
        let text = error.to_string();
        assert!(
            text.contains(r#"conflict with "two" using v1: .data.y"#),
            "{text}"
        );
        let forced = apply(json!({"y": "3"})).query("force", "true");
        assert_eq!(
            owners("two", forced),
            json!({"five Apply": x, "one Update": one, "two Apply": two})
        );
        // Nothing owns a field that its last manager has dropped.
        let five = json!({"five Apply": x, "one Update": one});
        assert_eq!(
            owners("two", apply(json!({})))
                .as_object()
                .map(|all| all.len()),
            Some(3)
        );
        let release = json!({"metadata": {"finalizers": null}});
        let released = owners("six", merge_patch(&path, &release));
        assert_eq!(released["five Apply"], five["five Apply"]);
        assert_eq!(
            released["one Update"],
            json!({"f:data": {".": {}, "f:x": {}}})
        );
        let data = cluster.send(Request::get(&*path))["data"].take();
        assert_eq!(data, json!({"x": "1"}));
        // A reset, and the manager of what was there before the next apply.
        let reset = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}]);
        assert_eq!(owners("seven", json_patch(&reset)), json!({}));
        let patch = merge_patch(&path, &json!({"data": {"x": "2"}}));
        assert_eq!(owners("seven", patch), json!({}));
        let data = json!({"f:data": {".": {}, "f:x": {}}});
        assert_eq!(
            owners("eight", apply(json!({"x": "2"}))),
            json!({"before-first-apply Update": data, "eight Apply": x})
        );
    });
}

#[test]
fn writes_are_managed_by_the_name_of_the_program() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("program");
        let path = std::env::args().next().unwrap();
        let program = Path::new(&path).file_name().unwrap().to_str().unwrap();
        let api = maps(&client, &namespace);
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
        api.create(&body, &stop).unwrap();
        api.patch("a", &Patch::merge(json!({"data": {"y": "2"}})), &stop)
            .unwrap();
        let finalizers =
            json!([{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/f"]}]);
        api.patch("a", &Patch::json(finalizers), &stop).unwrap();
        let read = cluster.send(Request::get(format!("{}/a", namespace.path("configmaps"))));
        let entries = read["metadata"]["managedFields"].as_array().unwrap();
        let managers: Vec<_> = entries.iter().map(|entry| &entry["manager"]).collect();
        assert_eq!(managers, [program]);
    });
}

#[test]
fn delete_collection_deletes_only_selected_objects() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let (namespace, other) = (cluster.namespace("many"), cluster.namespace("many"));
        let api = maps(&client, &namespace);
        for (name, app) in [("a", "web"), ("b", "web"), ("c", "db"), ("d", "db")] {
            namespace.create(name, json!({"app": app}));
        }
        other.create("a", json!({"app": "web"}));
        let none = DeleteOptions::default();
        let left = || {
            let list = api.list(&labelled("app"), &stop).unwrap();
            list.into_iter()
                .map(|map| map.name().to_owned())
                .collect::<Vec<_>>()
        };

        api.delete_collection(&none, &labelled("app=none"), &stop)
            .unwrap();
        assert_eq!(left().len(), 4);
        api.dry_run()
            .delete_collection(&none, &all(), &stop)
            .unwrap();
        assert_eq!(left().len(), 4);
        let error = api
            .delete_collection(&none, &labelled("a b"), &stop)
            .unwrap_err();
        assert!(error.is_bad_request() && left().len() == 4, "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("delete all configmaps in namespace "),
            "{error}"
        );
        let one = labelled("app=web").field_selector("metadata.name=b");
        api.delete_collection(&none, &one, &stop).unwrap();
        assert_eq!(left(), ["a", "c", "d"]);
        client
            .api::<Slim>(Some(&namespace.name))
            .delete_collection(&none, &labelled("app=web"), &stop)
            .unwrap();
        assert_eq!(left(), ["c", "d"]);
        let metadata = client.metadata_api(&configmaps(), Some(&namespace.name));
        metadata
            .delete_collection(&none, &labelled("app=db"), &stop)
            .unwrap();
        assert!(left().is_empty());
        namespace.create("e", json!({}));
        api.delete_collection(&none, &all(), &stop).unwrap();
        assert!(api.get("e", &stop).unwrap_err().is_not_found());
        assert_eq!(
            names(
                &maps(&client, &other)
                    .list(&labelled("app"), &stop)
                    .unwrap()
                    .items
            ),
            ["a"]
        );

        // A limit bounds the number of deletions.
        for name in ["f", "g", "h"] {
            namespace.create(name, json!({"app": "web"}));
        }
        let mut two = labelled("app=web");
        two.limit = Some(2);
        api.delete_collection(&none, &two, &stop).unwrap();
        assert_eq!(left(), ["h"]);
        api.delete_collection(&none, &two, &stop).unwrap();
        assert!(left().is_empty());

        // A collection cannot be deleted across namespaces: the server does not support that
        // request.
        client
            .api::<ConfigMap>(None)
            .delete_collection(&none, &all(), &stop)
            .unwrap_err();
        let dynamic = client.dynamic_api(&configmaps(), None);
        let error = dynamic
            .delete_collection(&none, &labelled("app=none"), &stop)
            .unwrap_err();
        assert!(error.is_method_not_allowed(), "{error:?}");
    });
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "none"}]},
    })
}

#[test]
fn workloads_with_replicas_can_be_scaled() {
    fn assert_scaling<T: Object + DeserializeOwned>(api: &Api<T>, selector: Value) {
        let stop = Stopper::new();
        let spec = json!({"replicas": 1, "selector": selector, "serviceName": "web", "template": template()});
        let api = api.field_validation(FieldValidation::Ignore);
        api.create(&json!({"metadata": {"name": "web"}, "spec": spec}), &stop)
            .unwrap();
        let scales = api.subresource::<Scale>("scale");
        let scale = scales.get("web", &stop).unwrap();
        assert_eq!((scale.name(), replicas(&scale)), ("web", 1));
        let status = scale.status.as_ref().unwrap();
        assert_eq!(
            (status.replicas, status.selector.as_deref()),
            (0, Some("app=web"))
        );
        let to = |replicas: i32| Patch::merge(json!({"spec": {"replicas": replicas}}));
        let dry = scales.dry_run().patch("web", &to(5), &stop).unwrap();
        assert_eq!(replicas(&dry), 5);
        assert_eq!(scales.get("web", &stop).unwrap(), scale);
        let scaled = scales.patch("web", &to(3), &stop).unwrap();
        assert_eq!(replicas(&scaled), 3);
        assert!(scales.replace(&scale, &stop).unwrap_err().is_conflict());
        let to_none = |scale: &mut Scale| scale.spec.get_or_insert_default().replicas = Some(0);
        let scale = scales.modify("web", to_none, &stop).unwrap();
        assert_eq!(replicas(&scale), 0);
        assert_eq!(
            scale.resource_version(),
            api.get("web", &stop).unwrap().resource_version()
        );
        let applied = Patch::apply(
            "me",
            json!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "web"},
                "spec": {"replicas": 2}}),
        );
        let scale = scales.patch("web", &applied.force(true), &stop).unwrap();
        assert_eq!(replicas(&scale), 2);
        let patch = json!([{"op": "test", "path": "/spec/replicas", "value": 2},
            {"op": "replace", "path": "/spec/replicas", "value": 4}]);
        let scale = scales.patch("web", &Patch::json(patch), &stop).unwrap();
        assert_eq!(replicas(&scale), 4);
        let error = scales.patch("web", &to(-1), &stop).unwrap_err();
        assert!(error.is_invalid(), "{error:?}");
        assert_eq!(replicas(&scales.get("web", &stop).unwrap()), 4);
        let error = scales.patch("none", &to(1), &stop).unwrap_err();
        assert!(error.is_not_found(), "{error:?}");
        let what = format!("patch {}/scale \"none\" in namespace ", kind_of(&api));
        assert!(error.to_string().starts_with(&what), "{error}");
        assert!(scales.get("none", &stop).unwrap_err().is_not_found());
        api.delete("web", &DeleteOptions::default(), &stop).unwrap();
    }
    fn kind_of<T>(api: &Api<T>) -> String {
        let resource = api.resource();
        match &*resource.group {
            "" => resource.resource.clone(),
            group => format!("{}.{group}", resource.resource),
        }
    }
    fn replicas(scale: &Scale) -> i32 {
        let spec = scale.spec.as_ref();
        spec.and_then(|spec| spec.replicas).unwrap_or_default()
    }
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("scale");
        let space = Some(&*namespace.name);
        let labels = json!({"matchLabels": {"app": "web"}});
        assert_scaling(&client.api::<Deployment>(space), labels.clone());
        assert_scaling(&client.api::<StatefulSet>(space), labels.clone());
        assert_scaling(&client.api::<ReplicaSet>(space), labels);
        assert_scaling(
            &client.api::<ReplicationController>(space),
            json!({"app": "web"}),
        );

        let sets = client.api::<DaemonSet>(space);
        let scales = sets.subresource::<Scale>("scale");
        assert!(scales.get("any", &stop).unwrap_err().is_not_found());
    });
}

fn pod(name: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": "none"}], "terminationGracePeriodSeconds": 0},
    })
}

#[test]
fn pod_is_evicted_by_its_name_and_uid() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("evict");
        let pods = client.api::<Pod>(Some(&namespace.name));
        let none = DeleteOptions::default();
        let error = pods.evict("none", &none, &stop).unwrap_err();
        assert!(error.is_not_found(), "{error:?}");
        assert!(
            error
                .to_string()
                .starts_with("evict pods \"none\" in namespace "),
            "{error}"
        );

        let one = pods.create(&pod("one"), &stop).unwrap();
        pods.dry_run().evict("one", &none, &stop).unwrap();
        assert_eq!(pods.get("one", &stop).unwrap(), one);
        let mut other = none.clone();
        other.uid = Some("another".to_owned());
        assert!(pods.evict("one", &other, &stop).unwrap_err().is_conflict());
        pods.evict("one", &DeleteOptions::same_object(&*one), &stop)
            .unwrap();
        assert!(pods.get("one", &stop).unwrap_err().is_not_found());

        pods.create(&pod("three"), &stop).unwrap();
        // An eviction also works as a subresource, without the method `evict`.
        let eviction =
            json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "three"}});
        let response = pods
            .subresource::<DynamicObject>("eviction")
            .create("three", &eviction, &stop)
            .unwrap();
        assert_eq!(
            (response.kind(), response.read("/status").unwrap()),
            ("Status", Some("Success".to_owned()))
        );
        assert!(pods.get("three", &stop).unwrap_err().is_not_found());
    });
}

//! Resources with several versions.

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, Patch};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{DynamicObject, Object, Stopper};
use serde_json::{Value, json};

use crate::cluster::{merge_patch, on_every_cluster};
use crate::discovery::{DEFINITIONS, create_definition};
use crate::support::wait_until;
use crate::verbs::ONCE;

#[test]
fn versions_of_a_definition_share_their_objects() {
    on_every_cluster(ONCE, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let namespace = cluster.namespace("versions");
        let group = format!("{}.example.com", namespace.name);
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let version = |name: &str, subresources: Value| {
            json!({
                "name": name, "served": true, "storage": name == "v1", "subresources": subresources,
                "schema": {"openAPIV3Schema": anything},
            })
        };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("boats.{group}")},
            "spec": {
                "group": group, "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "versions": [version("v1", json!({"status": {}})), version("v2", json!({}))],
            },
        });
        create_definition(cluster, &definition);
        let api = |version: &str| {
            let boats = GroupVersionResource::new(&*group, version, "boats");
            client.dynamic_api(&boats, Some(&namespace.name))
        };
        let boat = |version: &str, spec: Value| {
            json!({
                "apiVersion": format!("{group}/{version}"), "kind": "Boat",
                "metadata": {"name": "a"}, "spec": spec, "status": {"afloat": true},
            })
        };
        let (one, two) = (api("v1"), api("v2"));
        let made = two.create(&boat("v2", json!({"mast": 1})), &stop).unwrap();
        let read = one.get("a", &stop).unwrap();
        assert_eq!(
            (read.uid(), read.resource_version()),
            (made.uid(), made.resource_version())
        );
        assert_eq!(read.api_version(), format!("{group}/v1"));
        let afloat = |api: &Api<DynamicObject>| -> Option<bool> {
            api.get("a", &stop).unwrap().read("/status/afloat").unwrap()
        };
        assert_eq!(afloat(&one), Some(true));
        let sunk = Patch::merge(json!({"status": {"afloat": false}}));
        one.patch("a", &sunk, &stop).unwrap();
        assert_eq!(afloat(&two), Some(true), "v1 has a subresource for it");
        two.patch("a", &sunk, &stop).unwrap();
        assert_eq!(afloat(&one), Some(false));

        let error = two.create(&boat("v1", json!({})), &stop).unwrap_err();
        let why = format!(
            "the API version in the data ({group}/v1) does not match the expected API version ({group}/v2)"
        );
        assert!(error.to_string().contains(&why), "{error}");

        let managers = |version: &str, spec: Value| -> Vec<String> {
            let mut wanted = boat(version, spec);
            wanted.as_object_mut().unwrap().remove("status");
            let applied = api(version).patch("a", &Patch::apply("me", wanted).force(true), &stop);
            let entries: Vec<Value> = applied
                .unwrap()
                .read("/metadata/managedFields")
                .unwrap()
                .unwrap();
            let of_me = entries.iter().filter(|entry| entry["manager"] == "me");
            of_me
                .map(|entry| entry["apiVersion"].as_str().unwrap().to_owned())
                .collect()
        };
        for version in ["v1", "v2", "v2", "v1"] {
            assert_eq!(
                managers(version, json!({"mast": 3})),
                [format!("{group}/{version}")]
            );
        }

        // Another stored version changes only the record of it.
        let path = format!("{DEFINITIONS}/boats.{group}");
        let mut versions = definition["spec"]["versions"].clone();
        versions[0]["storage"] = false.into();
        versions[1]["storage"] = true.into();
        let patch = json!({"spec": {"versions": versions}});
        let patched = cluster.send(merge_patch(&path, &patch));
        assert_eq!(patched["status"]["storedVersions"], json!(["v1", "v2"]));
        assert_eq!(one.get("a", &stop).unwrap().uid(), made.uid());

        one.delete("a", &Default::default(), &stop).unwrap();
        assert!(two.get("a", &stop).unwrap_err().is_not_found());
        cluster.send(Request::delete(&*path));
        wait_until("the definition is gone", || {
            cluster
                .try_send(Request::get(&*path))
                .is_err()
                .then_some(())
        });
    });
}

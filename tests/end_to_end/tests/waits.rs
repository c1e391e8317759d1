//! Waits for objects, and definitions that are installed by the client.

use std::net::TcpListener;
use std::thread;

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions, Patch};
use k8s_informer::client::crds::InstallOptions;
use k8s_informer::informer::Source;
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{DynamicObject, Object, SharedInformerFactory, Stop, Stopper};
use k8s_informer_controller::{Condition, Conditions};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use serde_json::{Value, json};

use crate::cluster::{Cluster, on_every_cluster};
use crate::support::{PATIENCE, shut_down};
use crate::verbs::ONCE;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Definitions in the group of a test. They are deleted on drop.
struct Installed<'a> {
    cluster: &'a Cluster,
    group: String,
}

impl<'a> Installed<'a> {
    fn new(cluster: &'a Cluster, namespace: &str) -> Self {
        let group = format!("{namespace}.example.com");
        Self { cluster, group }
    }

    fn definition(&self, plural: &str, kind: &str) -> Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.{}", self.group)},
            "spec": {
                "group": self.group, "scope": "Namespaced",
                "names": {"plural": plural, "singular": plural.trim_end_matches('s'), "kind": kind, "listKind": format!("{kind}List")},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
            },
        })
    }

    fn path(&self, plural: &str) -> String {
        format!("{DEFINITIONS}/{plural}.{}", self.group)
    }

    fn version(&self, plural: &str) -> Value {
        self.cluster.send(Request::get(self.path(plural)))["metadata"]["resourceVersion"].clone()
    }

    fn api(&self, plural: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = GroupVersionResource::new(&*self.group, "v1", plural);
        self.cluster
            .client()
            .dynamic_api(&resource, Some(namespace))
    }
}

impl Drop for Installed<'_> {
    fn drop(&mut self) {
        for plural in ["ships", "boats", "rafts"] {
            let _ = self.cluster.try_send(Request::delete(self.path(plural)));
        }
    }
}

fn options() -> InstallOptions {
    InstallOptions::new("e2e").timeout(PATIENCE)
}

#[test]
fn installed_definitions_are_served_and_not_written_again() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("install");
        let installed = Installed::new(cluster, &namespace.name);
        let (client, stop) = (cluster.client(), Stopper::new());
        let both = [
            installed.definition("ships", "Ship"),
            installed.definition("boats", "Boat"),
        ];
        client.install_crds(&both, &options(), &stop).unwrap();

        // Everything is ready at once: discovery, lists and informers.
        let factory = SharedInformerFactory::new(client.clone());
        for plural in ["ships", "boats"] {
            let name = format!("{plural}.{}", installed.group);
            let found = client.discover(&name, &stop).unwrap();
            assert_eq!(found.resource.version, "v1");
            let api = client.dynamic_api(&found.resource, Some(&namespace.name));
            assert!(
                api.list(&Default::default(), &stop)
                    .unwrap()
                    .items
                    .is_empty()
            );
            factory.informer_for(Source::dynamic(found.resource));
        }
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(PATIENCE, &stop).unwrap();
        shut_down(&factory, "after an installation");

        let versions = || ["ships", "boats"].map(|plural| installed.version(plural));
        let before = versions();
        client.install_crds(&both, &options(), &stop).unwrap();
        assert_eq!(versions(), before);

        let mut changed = both[0].clone();
        changed["spec"]["names"]["shortNames"] = json!(["shp"]);
        client.install_crds([&changed], &options(), &stop).unwrap();
        assert_ne!(versions()[0], before[0]);
        assert_eq!(versions()[1], before[1]);
    });
}

#[test]
fn silent_conversion_webhook_does_not_block_installation() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conversion");
        let installed = Installed::new(cluster, &namespace.name);
        let (client, stop) = (cluster.client(), Stopper::new());
        let mut definition = installed.definition("ships", "Ship");
        client
            .install_crds([&definition], &options(), &stop)
            .unwrap();
        let ships = installed.api("ships", &namespace.name);
        let ship = json!({"apiVersion": format!("{}/v1", installed.group), "kind": "Ship", "metadata": {"name": "a"}});
        ships.create(&ship, &stop).unwrap();

        // It accepts connections, and never responds.
        let webhook = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("https://{}/convert", webhook.local_addr().unwrap());
        let mut next = definition["spec"]["versions"][0].clone();
        next["name"] = "v2".into();
        next["storage"] = false.into();
        definition["spec"]["versions"]
            .as_array_mut()
            .unwrap()
            .push(next);
        definition["spec"]["conversion"] = json!({"strategy": "Webhook", "webhook":
            {"conversionReviewVersions": ["v1"], "clientConfig": {"url": url}}});
        client
            .install_crds([&definition], &options(), &stop)
            .unwrap();
        let discovery = client.discovery(&stop).unwrap();
        let v2 = GroupVersionResource::new(&*installed.group, "v2", "ships");
        assert!(discovery.by_resource(&v2).is_some());
    });
}

#[test]
fn conflicting_kind_of_a_definition_is_reported() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("conflict");
        let installed = Installed::new(cluster, &namespace.name);
        let (client, stop) = (cluster.client(), Stopper::new());
        client
            .install_crds([installed.definition("ships", "Ship")], &options(), &stop)
            .unwrap();
        let rival = installed.definition("boats", "Ship");
        let raft = installed.definition("rafts", "Raft");
        let error = client
            .install_crds([&rival, &raft], &options(), &stop)
            .unwrap_err();
        assert!(error.is_refused(), "{error}");
        // The list kind is in conflict as well. The server reports the last conflict.
        let end = format!(
            "\"boats.{}\": ListKindConflict: \"ShipList\" is already in use",
            installed.group
        );
        assert!(error.to_string().ends_with(&end), "{error}");

        // After a rename, the earlier conflict does not count.
        let boat = installed.definition("boats", "Boat");
        client
            .install_crds([&boat, &raft], &options(), &stop)
            .unwrap();
    });
}

#[test]
fn condition_of_a_custom_resource_is_awaited() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("condition");
        let installed = Installed::new(cluster, &namespace.name);
        let (client, stop) = (cluster.client(), Stopper::new());
        client
            .install_crds([installed.definition("ships", "Ship")], &options(), &stop)
            .unwrap();
        let ships = installed.api("ships", &namespace.name);
        let set = |ready: bool, generation: i64| {
            let mut conditions = Conditions::new();
            let ready =
                Condition::new("Ready", ready, "Sailing", "").observed_generation(generation);
            conditions.set(ready, std::time::SystemTime::now());
            let patch = Patch::merge(json!({"status": {"conditions": conditions}}));
            ships.status().patch("a", &patch, &stop).unwrap()
        };
        thread::scope(|scope| {
            let condition =
                scope.spawn(|| ships.wait_for_condition("a", "Ready", "True", PATIENCE, &stop));
            let ship = json!({"apiVersion": format!("{}/v1", installed.group), "kind": "Ship", "metadata": {"name": "a"},
                "spec": {"size": 1}});
            ships.create(&ship, &stop).unwrap();
            let changed = ships
                .patch("a", &Patch::merge(json!({"spec": {"size": 2}})), &stop)
                .unwrap();
            assert_eq!(changed.read("/metadata/generation").unwrap(), Some(2));
            set(false, 1);
            set(true, 1);
            let last = set(true, 2);
            let awaited = condition.join().unwrap().unwrap();
            assert_eq!(awaited.resource_version(), last.resource_version());
        });
    });
}

#[test]
fn deletion_with_a_finalizer_and_recreation_are_awaited() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("deletion");
        let (client, stop) = (cluster.client(), Stopper::new());
        let maps = client.api::<ConfigMap>(Some(&namespace.name));
        let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
        let first = maps.create(&held, &stop).unwrap();
        thread::scope(|scope| {
            let gone =
                scope.spawn(|| maps.wait_for_deletion("a", Some(first.uid()), PATIENCE, &stop));
            let unnamed = scope.spawn(|| {
                let is_red = |map: Option<&ConfigMap>| map.is_some_and(|map| map.data.is_some());
                maps.wait_for("a", is_red, PATIENCE, &stop)
            });
            maps.delete("a", &DeleteOptions::same_object(&*first), &stop)
                .unwrap();
            let none = Patch::merge(json!({"metadata": {"finalizers": null}}));
            maps.patch("a", &none, &stop).unwrap();
            let second = json!({"metadata": {"name": "a"}, "data": {"color": "red"}});
            let second = maps.create(&second, &stop).unwrap();
            gone.join().unwrap().unwrap();
            let seen = unnamed.join().unwrap().unwrap().unwrap();
            assert_eq!(seen.uid(), second.uid());
            assert_ne!(seen.uid(), first.uid());
        });
        // The new object counts as gone for the old UID, but not for the name.
        maps.wait_for_deletion("a", Some(first.uid()), PATIENCE, &stop)
            .unwrap();
        let soon = std::time::Duration::from_millis(300);
        let error = maps.wait_for_deletion("a", None, soon, &stop).unwrap_err();
        assert!(error.is_timed_out(), "{error}");
    });
}

#[test]
fn condition_of_a_pod_is_awaited() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("condition");
        let (client, stop) = (cluster.client(), Stopper::new());
        let pods = client.api::<Pod>(Some(&namespace.name));
        let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "app", "image": "none"}]}});
        pods.create(&pod, &stop).unwrap();
        let set = |status: Value| {
            let patch = Patch::merge(json!({ "status": status }));
            pods.status().patch("p", &patch, &stop).unwrap();
        };
        thread::scope(|scope| {
            let ready =
                scope.spawn(|| pods.wait_for_condition("p", "Ready", "True", PATIENCE, &stop));
            set(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}]}));
            set(json!({"conditions": [{"type": "Ready", "status": "True"}]}));
            let pod = ready.join().unwrap().unwrap();
            assert_eq!(
                pod.into_inner().status.unwrap().phase.as_deref(),
                Some("Running")
            );
        });
    });
}

#[test]
fn wait_for_an_unknown_kind_is_refused() {
    on_every_cluster(ONCE, |cluster| {
        let namespace = cluster.namespace("unknown");
        let installed = Installed::new(cluster, &namespace.name);
        let ships = installed.api("ships", &namespace.name);
        let error = ships
            .wait_for_condition("a", "Ready", "True", PATIENCE, &Stop::never())
            .unwrap_err();
        assert!(error.is_refused() && error.last_error().unwrap().is_not_found());
    });
}

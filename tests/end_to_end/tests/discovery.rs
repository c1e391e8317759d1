//! Resources that are found by name, built in or from a CustomResourceDefinition.

use k8s_informer::client::Request;
use k8s_informer::client::api::Patch;
use k8s_informer::informer::Source;
use k8s_informer::object::{GroupVersionKind, GroupVersionResource, Scope};
use k8s_informer::{Client, Config, DynamicObject, SharedInformerFactory, Stop, Stopper};
use k8s_openapi::api::autoscaling::v1::Scale;
use serde_json::{Value, json};

use crate::cluster::{BOTH, Cluster, on_every_cluster};
use crate::support::{shut_down, synced, wait_until};

pub(crate) const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Creates a CustomResourceDefinition, and waits until its first version is served.
pub(crate) fn create_definition(cluster: &Cluster, definition: &Value) {
    let text = |pointer: &str| definition.pointer(pointer).unwrap().as_str().unwrap();
    let path = format!("{DEFINITIONS}/{}", text("/metadata/name"));
    wait_until("no earlier definition is left", || {
        // An earlier one exists until its objects have been deleted.
        let create = Request::post(DEFINITIONS).json(definition).unwrap();
        match cluster.try_send(create) {
            Err(error) if error.is_already_exists() => None,
            created => Some(created.unwrap()),
        }
    });
    wait_until("the definition is established", || {
        let definition = cluster.send(Request::get(&*path));
        let conditions = definition["status"]["conditions"].as_array()?.iter();
        let is_established = |one: &Value| one["type"] == "Established" && one["status"] == "True";
        conditions.into_iter().any(is_established).then_some(())
    });
    // The storage is not ready immediately.
    let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
    let version = text("/spec/versions/0/name");
    let list = format!("/apis/{group}/{version}/{plural}");
    wait_until("the resource can be listed", || {
        cluster.try_send(Request::get(&*list)).ok()
    });
}

/// A CustomResourceDefinition of the test. It is deleted on drop.
pub(crate) struct Definition<'a> {
    cluster: &'a Cluster,
    pub(crate) group: String,
}

impl<'a> Definition<'a> {
    /// Creates the definition of a resource without a schema, and waits until it is served.
    pub(crate) fn create(cluster: &'a Cluster, namespace: &str) -> Self {
        let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        Self::with_schema(cluster, namespace, &anything)
    }

    /// Creates the definition and waits until its resource is served.
    pub(crate) fn with_schema(cluster: &'a Cluster, namespace: &str, schema: &Value) -> Self {
        Self::in_group(cluster, format!("{namespace}.example.com"), schema)
    }

    /// Creates the definition in this group, for a type that implements
    /// [`Resource`](k8s_informer::Resource).
    pub(crate) fn in_group(cluster: &'a Cluster, group: String, schema: &Value) -> Self {
        let created = Self { cluster, group };
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("gizmos.{}", created.group)},
            "spec": {
                "group": created.group, "scope": "Namespaced",
                "names": {"plural": "gizmos", "kind": "Gizmo", "shortNames": ["gz"], "categories": ["all"]},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
                    "subresources": {"status": {}, "scale": {
                        "specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size",
                        "labelSelectorPath": ".status.selector",
                    }}}],
            },
        });
        create_definition(cluster, &definition);
        created
    }

    fn path(&self) -> String {
        format!("{DEFINITIONS}/gizmos.{}", self.group)
    }

    fn exists(&self) -> bool {
        self.cluster.try_send(Request::get(self.path())).is_ok()
    }
}

impl Drop for Definition<'_> {
    fn drop(&mut self) {
        let _ = self.cluster.try_send(Request::delete(self.path()));
    }
}

#[test]
fn short_kind_and_qualified_names_resolve_to_resources() {
    on_every_cluster(BOTH, |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let discovery = client.discovery(&stop).unwrap();
        for (name, expected) in [
            ("po", "pods.v1"),
            ("Pod", "pods.v1"),
            ("pods.v1.", "pods.v1"),
            ("deploy", "deployments.v1.apps"),
            ("deployments.apps", "deployments.v1.apps"),
            ("Deployment.v1.apps", "deployments.v1.apps"),
            ("sts", "statefulsets.v1.apps"),
            ("ev", "events.v1"),
            ("hpa", "horizontalpodautoscalers.v2.autoscaling"),
            ("ingresses.networking", "ingresses.v1.networking.k8s.io"),
            ("crd", "customresourcedefinitions.v1.apiextensions.k8s.io"),
        ] {
            let found = client.discover(name, &stop).unwrap();
            assert_eq!(found.resource.to_string(), expected, "{name}");
        }
        let nodes = client.discover("nodes", &stop).unwrap();
        assert!(nodes.scope == Scope::Cluster && nodes.has_verb("watch"));
        let kind = GroupVersionKind::new("apps", "v1", "Deployment");
        let deployments = discovery.by_kind(&kind).unwrap();
        assert_eq!(
            deployments.resource,
            GroupVersionResource::new("apps", "v1", "deployments")
        );

        let error = client.discover("deployments.batch", &stop).unwrap_err();
        println!("  {error}");
        assert!(
            error.is_no_match()
                && error
                    .to_string()
                    .contains("similar names: deployments.apps"),
            "{error}"
        );
    });
}

#[test]
fn unserved_request_error_says_what_discovery_has() {
    on_every_cluster(&BOTH[..1], |cluster| {
        let (client, stop) = (cluster.client(), Stopper::new());
        let core = |plural: &str| GroupVersionResource::new("", "v1", plural);
        let api = |plural: &str, namespace| client.dynamic_api(&core(plural), namespace);
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}});
        let (here, options) = (Some("default"), Default::default());
        for (error, end) in [
            (
                api("podz", here).get("a", &stop).err(),
                "the server has no resource \"podz.v1\"",
            ),
            (
                api("podz", None).list(&options, &stop).err(),
                "the server has no resource \"podz.v1\"",
            ),
            (
                api("nodes", here).get("a", &stop).err(),
                "Node is cluster-scoped: use no namespace",
            ),
            (
                api("nodes", here).list(&options, &stop).err(),
                "Node is cluster-scoped: use no namespace",
            ),
            (
                api("pods", None).get("a", &stop).err(),
                "Pod is namespaced: use a namespace, and `Namespaced` as the scope of the type",
            ),
            (
                api("pods", None).create(&pod, &stop).err(),
                "Pod is namespaced: use a namespace, and `Namespaced` as the scope of the type",
            ),
        ] {
            let error = error.unwrap();
            println!("  {error}");
            // Other tests make groups unavailable, which follows.
            assert!(error.to_string().contains(end), "{error}");
        }
    });
}

#[test]
fn custom_resource_is_discovered_watched_and_scaled() {
    on_every_cluster(BOTH, |cluster| {
        let namespace = cluster.namespace("discovery");
        let (client, stop) = (cluster.client(), Stopper::new());
        let name = format!("gizmos.{}.example.com", namespace.name);
        let error = client.discover(&name, &stop).unwrap_err();
        assert!(error.is_no_match(), "{error:?}");

        let definition = Definition::create(cluster, &namespace.name);
        // An unknown name causes a new discovery. The server may list the resource a moment later.
        let found = match client.discover(&name, &stop) {
            Ok(found) => found,
            Err(_) => wait_until("discovery finds the resource", || {
                client.rediscover(&stop).unwrap().find(&name).ok().cloned()
            }),
        };
        assert_eq!((&*found.kind.kind, &*found.singular), ("Gizmo", "gizmo"));
        assert!(found.scope == Scope::Namespaced && found.has_verb("watch"));

        let gizmos = client.dynamic_api(&found.resource, Some(&namespace.name));
        let gizmo = |name: &str| json!({"apiVersion": format!("{}/v1", definition.group), "kind": "Gizmo", "metadata": {"name": name}});
        let created = gizmos.create(&gizmo("a"), &stop).unwrap();
        let by_kind = client
            .discover_kind(&created.group_version_kind(), &stop)
            .unwrap();
        assert_eq!(by_kind.resource, found.resource);
        let factory =
            SharedInformerFactory::with_options(client.clone(), cluster.factory_options());
        let by_name = |name: &str| {
            let name = format!("{name}.{}", definition.group);
            factory.informer_for(Source::dynamic(
                factory.find_resource(&name, &stop).unwrap(),
            ))
        };
        let (informer, same) = (by_name("gz"), by_name("Gizmo.v1"));
        assert!(informer.is_same(&same));
        let follower = synced(&factory, &informer);
        // The server lists from its cache, which can be older than the object.
        follower.wait_for_events(&["+a"]);

        gizmos.create(&gizmo("b"), &stop).unwrap();
        let patch = Patch::merge(json!({"spec": {"size": 3}}));
        gizmos.patch("a", &patch, &stop).unwrap();
        follower.wait_for_events(&["+a", "+b", "~a"]);
        let size = |object: &DynamicObject| object.read::<u64>("/spec/size").unwrap();
        let lister = informer.lister();
        assert_eq!(
            lister.get(&namespace.name, "a").as_deref().and_then(size),
            Some(3)
        );

        // The scale subresource works for custom resources.
        let scales = gizmos.subresource::<Scale>("scale");
        let add_two = |scale: &mut Scale| {
            let replicas = &mut scale.spec.get_or_insert_default().replicas;
            *replicas = replicas.map(|replicas| replicas + 2);
        };
        let scale = scales.modify("a", add_two, &stop).unwrap().into_inner();
        assert_eq!(scale.spec.unwrap().replicas, Some(5));
        let status = json!({"status": {"size": 4, "selector": "app=a"}});
        gizmos
            .status()
            .patch("a", &Patch::merge(status), &stop)
            .unwrap();
        let status = scales.get("a", &stop).unwrap().into_inner().status.unwrap();
        assert_eq!(
            (status.replicas, status.selector.as_deref()),
            (4, Some("app=a"))
        );
        assert!(
            !scales.get("b", &stop).unwrap_err().is_not_found(),
            "the object has no size"
        );
        let patch = Patch::merge(json!({"spec": {"replicas": 1}}));
        scales.patch("b", &patch, &stop).unwrap();
        assert_eq!(size(&gizmos.get("b", &stop).unwrap()), Some(1));

        cluster.send(Request::delete(definition.path()));
        wait_until("the definition is deleted", || {
            (!definition.exists()).then_some(())
        });
        wait_until("discovery no longer finds the resource", || {
            client
                .rediscover(&stop)
                .unwrap()
                .find(&name)
                .is_err()
                .then_some(())
        });
        let error = client.discover(&name, &stop).unwrap_err();
        assert!(error.is_no_match(), "{error:?}");
        // The resource is gone, so the informer reports an error. Before that, the server may or
        // may not report the deletions of the objects.
        let error = wait_until("the informer reports the error", || {
            informer.status().last_error
        });
        println!("  {error}");
        shut_down(&factory, "after the resource was deleted");
    });
}

#[test]
fn unprivileged_user_may_use_discovery() {
    on_every_cluster(BOTH, |cluster| {
        let Some(path) = cluster.unprivileged_kubeconfig() else {
            return println!("skipped: there is no kubeconfig-nobody");
        };
        let client = Client::new(Config::from_kubeconfig(path, None).unwrap()).unwrap();
        let found = client.discover("deploy", &Stop::never()).unwrap();
        assert_eq!(found.resource.resource, "deployments");
        let error = client
            .dynamic_api(&found.resource, Some("default"))
            .get("a", &Stop::never());
        assert!(error.unwrap_err().is_forbidden());
    });
}

#[test]
fn unavailable_group_does_not_hide_other_groups() {
    on_every_cluster(&BOTH[..1], |cluster| {
        const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
        if cluster.try_send(Request::get(SERVICES)).is_err() {
            return println!("skipped: this server has no API aggregation");
        }
        let namespace = cluster.namespace("down");
        let (client, stop) = (cluster.client(), Stopper::new());
        let group = format!("{}.example.com", namespace.name);
        let service = json!({
            "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
            "metadata": {"name": format!("v1beta1.{group}")},
            "spec": {"group": group, "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true, "service": {"namespace": "default", "name": "down"}},
        });
        cluster.send(Request::post(SERVICES).json(&service).unwrap());
        let discovery = wait_until("discovery reports the failed group", || {
            let discovery = client.rediscover(&stop).unwrap();
            let is_reported = discovery
                .failures()
                .iter()
                .any(|failure| failure.group == group);
            is_reported.then_some(discovery)
        });
        assert_eq!(discovery.find("deploy").unwrap().resource.group, "apps");
        let error = client
            .discover(&format!("things.{group}"), &stop)
            .unwrap_err();
        println!("  {error}");
        assert!(error.is_retryable() && !error.is_no_match(), "{error:?}");
        let error = client.discover("things", &stop).unwrap_err();
        println!("  {error}");
        assert!(
            error.is_no_match()
                && error
                    .to_string()
                    .contains(&format!("discovery failed for {group}/v1beta1"))
        );

        cluster.send(Request::delete(format!("{SERVICES}/v1beta1.{group}")));
        wait_until("discovery reports no failed group", || {
            let discovery = client.rediscover(&stop).unwrap();
            discovery
                .failures()
                .iter()
                .all(|failure| failure.group != group)
                .then_some(())
        });
    });
}

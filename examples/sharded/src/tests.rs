//! The demo on the API server inside this program, and on a real one if `KUBEBUILDER_ASSETS` names
//! its programs; and the manifest.

use k8s_informer::Stop;
use k8s_informer_testing::RealApiServer;
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};

use crate::demo;
use crate::operator::NAME;

fn manifest() -> Vec<Value> {
    let documents = include_str!("../manifest.yaml").split("\n---\n");
    let objects = documents.map(|document| serde_saphyr::from_str(document).unwrap());
    objects.collect()
}

fn object(kind: &str) -> Value {
    let mut objects = manifest().into_iter().filter(|of| of["kind"] == kind);
    objects.next().unwrap()
}

/// Returns the rules of a role, as resource and verbs.
fn rules(kind: &str) -> Vec<Value> {
    object(kind)["rules"].as_array().unwrap().clone()
}

fn verbs_of(kind: &str, resource: &str) -> Value {
    let rules = rules(kind);
    let mut found = rules
        .iter()
        .filter(|of| of["resources"] == json!([resource]));
    let verbs = found.next().unwrap()["verbs"].clone();
    assert_eq!(found.count(), 0, "one rule for {resource}");
    verbs
}

#[test]
fn spare_replica_takes_over_on_the_embedded_server() {
    demo::run().unwrap();
}

#[test]
fn spare_replica_takes_over_with_the_rights_of_the_manifest() {
    if !RealApiServer::is_configured() {
        return println!("skipped: KUBEBUILDER_ASSETS is not set");
    }
    let server = RealApiServer::start().unwrap();
    let rules = [rules("ClusterRole"), rules("Role")].concat();
    let config = server.account(NAME, &rules).unwrap();
    for namespace in demo::NAMESPACES {
        let namespace = json!({"metadata": {"name": namespace}});
        let namespaces = server.client().api::<Namespace>(None);
        namespaces.create(&namespace, &Stop::never()).unwrap();
    }
    demo::play(server.client(), &config).unwrap();
}

#[test]
fn manifest_grants_the_needed_verbs() {
    assert_eq!(
        verbs_of("Role", "leases"),
        json!(["get", "list", "create", "update"])
    );
    assert_eq!(
        verbs_of("ClusterRole", "configmaps"),
        json!(["list", "watch"])
    );
    assert_eq!(
        verbs_of("ClusterRole", "jobs"),
        json!(["list", "watch", "create"])
    );
    for (binding, role) in [
        ("RoleBinding", "Role"),
        ("ClusterRoleBinding", "ClusterRole"),
    ] {
        let binding = object(binding);
        assert_eq!(binding["roleRef"]["kind"], role);
        assert_eq!(binding["roleRef"]["name"], object(role)["metadata"]["name"]);
        let account = object("ServiceAccount")["metadata"].clone();
        assert_eq!(binding["subjects"][0]["name"], account["name"]);
        assert_eq!(binding["subjects"][0]["namespace"], account["namespace"]);
    }
}

#[test]
fn manifest_selects_and_spreads_its_pods() {
    let spec = object("Deployment")["spec"].clone();
    let labels = &spec["template"]["metadata"]["labels"];
    assert_eq!(&spec["selector"]["matchLabels"], labels);
    let pod = &spec["template"]["spec"];
    let spread = &pod["topologySpreadConstraints"][0];
    assert_eq!(&spread["labelSelector"]["matchLabels"], labels);
    assert_eq!(
        pod["serviceAccountName"],
        object("ServiceAccount")["metadata"]["name"]
    );
    let container = &pod["containers"][0];
    let port = &container["ports"][0];
    assert_eq!(port["containerPort"], 8080);
    for (probe, path) in [("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")] {
        let get = json!({"path": path, "port": port["name"]});
        assert_eq!(container[probe]["httpGet"], get);
    }
}

#[test]
fn manifest_has_more_replicas_than_shards() {
    let spec = object("Deployment")["spec"].clone();
    let args = &spec["template"]["spec"]["containers"][0]["args"];
    assert_eq!(
        *args,
        json!(["--live", "--shards", "2", "--health", "0.0.0.0:8080"])
    );
    assert!(spec["replicas"].as_u64().unwrap() > 2, "no spare replica");
}

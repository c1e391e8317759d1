//! Names, labels and field selectors, by the rules of kube-apiserver 1.36.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS};

const NAMESPACES: &str = "/api/v1/namespaces";
const SERVICES: &str = "/api/v1/namespaces/default/services";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles";
const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/default/statefulsets";
const CRON_JOBS: &str = "/apis/batch/v1/namespaces/default/cronjobs";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

/// Creates an object with this metadata. Returns the status, and the fields of a rejection.
fn create(server: &ApiServer, collection: &str, metadata: Value) -> (u16, Vec<String>) {
    let body = json!({ "metadata": metadata });
    let response = Client::connect(server).json("POST", collection, &body);
    let causes = response.json()["details"]["causes"].take();
    let causes = causes.as_array().into_iter().flatten();
    let fields = causes.map(|cause| cause["field"].as_str().unwrap().to_owned());
    (response.status, fields.collect())
}

#[test]
fn names_follow_the_rule_of_their_kind() {
    let server = ApiServer::start().unwrap();
    let (long, longer) = ("a".repeat(64), "a".repeat(254));
    for (collection, name, is_valid) in [
        (NAMESPACES, "a.b", false),
        (NAMESPACES, "1.2.3.4", false),
        (NAMESPACES, &*long, false),
        (NAMESPACES, "A", false),
        (NAMESPACES, "1a", true),
        (SERVICES, "a.b", false),
        (SERVICES, &long, false),
        (SERVICES, "a-", false),
        (SERVICES, "1a", true),
        (STATEFUL_SETS, "a.b", false),
        (CONFIGMAPS, "a.b", true),
        (CONFIGMAPS, &long, true),
        (CONFIGMAPS, "a_b", false),
        (CONFIGMAPS, &longer, false),
        (ROLES, "A:b", true),
        (ROLES, "a%b", false),
        (BUDGETS, &longer, true),
        (CRON_JOBS, &long[..52], true),
        (CRON_JOBS, &long[..53], false),
        (JOBS, &long[..63], true),
        (JOBS, &long, false),
    ] {
        let expected = match is_valid {
            true => (201, Vec::new()),
            false => (422, vec!["metadata.name".to_owned()]),
        };
        assert_eq!(
            create(&server, collection, json!({"name": name})),
            expected,
            "{collection} {name}"
        );
    }
}

#[test]
fn generated_names_are_checked() {
    let server = ApiServer::start().unwrap();
    for (collection, generate, status) in [
        (CONFIGMAPS, "a-", 201),
        (CONFIGMAPS, "a.", 201),
        (CONFIGMAPS, ".", 422),
        (ROLES, "a/", 422),
        (ROLES, "A", 201),
        (SERVICES, "a.", 422),
    ] {
        let metadata = json!({ "generateName": generate });
        assert_eq!(
            create(&server, collection, metadata).0,
            status,
            "{collection} {generate}"
        );
    }
}

#[test]
fn labels_and_annotations_are_checked() {
    let server = ApiServer::start().unwrap();
    let long = "a".repeat(64);
    for (field, key, value, is_valid) in [
        ("labels", "a", "b c", false),
        ("labels", "a", "-b", false),
        ("labels", "a", &*long, false),
        ("labels", "a", "", true),
        ("labels", "", "b", false),
        ("labels", "a/", "b", false),
        ("labels", &long, "b", false),
        ("labels", "a b", "b", false),
        ("labels", "a/b/c", "b", false),
        ("labels", "A/b", "b", false),
        ("labels", "a.b/c", "b", true),
        ("annotations", "A/b", "x y", true),
        ("annotations", "a b", "x y", false),
        ("annotations", "", "x y", false),
    ] {
        let metadata = json!({ "generateName": "a-", field: { key: value } });
        let expected = match is_valid {
            true => (201, Vec::new()),
            false => (422, vec![format!("metadata.{field}")]),
        };
        assert_eq!(
            create(&server, CONFIGMAPS, metadata),
            expected,
            "{key:?}: {value:?}"
        );
    }
    for (size, status) in [((256 << 10) - 1, 201), (256 << 10, 422)] {
        let metadata = json!({"generateName": "a-", "annotations": {"a": "x".repeat(size)}});
        assert_eq!(create(&server, CONFIGMAPS, metadata).0, status, "{size}");
    }
    // An update is checked as well. Null is an empty string.
    let client = &mut Client::connect(&server);
    let created = client.json(
        "POST",
        CONFIGMAPS,
        &json!({"metadata": {"name": "n", "labels": {"a": null}}}),
    );
    assert_eq!(created.status, 201);
    assert_eq!(created.json()["metadata"]["labels"], json!({"a": ""}));
    let path = format!("{CONFIGMAPS}/n");
    for (labels, status) in [(json!({"a": "b c"}), 422), (json!({"a": "b"}), 200)] {
        let patch = json!({"metadata": {"labels": labels}});
        assert_eq!(client.json("PATCH", &path, &patch).status, status);
    }
}

#[test]
fn field_selectors_follow_the_rules_of_kubernetes() {
    let things = ApiResource::new("example.com", "v1", "things", "Thing").cluster_scoped();
    let server = ApiServer::builder().resource(things).start().unwrap();
    let pod = json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n1"}, "status": {"podIPs": [{"ip": "10.0.0.1"}]}});
    server.create(PODS, pod).unwrap();
    for (name, status) in [("new", json!({})), ("done", json!({"succeeded": 2}))] {
        let job = json!({"metadata": {"name": name}, "status": status});
        server.create(JOBS, job).unwrap();
    }
    let client = &mut Client::connect(&server);
    let mut list = |collection: &str, selector: &str| {
        let selector = selector
            .replace('\\', "%5C")
            .replace('=', "%3D")
            .replace(' ', "%20");
        let response = client.get(&format!("{collection}?fieldSelector={selector}"));
        match response.status {
            200 => Ok(response.names()),
            status => Err(status),
        }
    };
    for (selector, found) in [
        ("spec.host=n1", 1),
        ("spec.host!=n1", 0),
        ("status.podIPs=1", 0),
        ("status.podIPs=", 1),
        ("=", 1),
        ("!=,metadata.name=b", 0),
        (r"metadata.name=a\,b", 0),
        (r"metadata.name!=a\=b", 1),
        (r"metadata.name!=a\\", 1),
    ] {
        let names = list(PODS, selector).unwrap();
        assert_eq!(names.len(), found, "{selector}");
    }
    for selector in [
        r"metadata.name=a\",
        r"metadata.name=\a",
        "metadata.name=a=b",
        "metadata.name==a=b",
        "metadata.name=a!=b",
        "metadata.name!=a=b",
        "spec.x=1",
        "=a",
        "metadata.name",
    ] {
        assert_eq!(list(PODS, selector), Err(400), "{selector}");
    }
    for (selector, name) in [
        ("status.successful=0", "new"),
        ("status.successful=2", "done"),
    ] {
        assert_eq!(list(JOBS, selector).unwrap(), [name]);
    }
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let things = "/apis/example.com/v1/things";
    for (collection, selector, is_valid) in [
        (definitions, "metadata.namespace=x", true),
        (definitions, "spec.x=1", false),
        ("/api/v1/nodes", "metadata.namespace=x", false),
        (things, "metadata.namespace=x", false),
        (JOBS, "spec.x=1", false),
        (things, "spec.x=1", false),
    ] {
        assert_eq!(
            list(collection, selector).is_ok(),
            is_valid,
            "{collection} {selector}"
        );
    }
}

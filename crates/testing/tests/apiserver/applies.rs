//! Server-side apply beyond the recorded exchanges. Messages and codes are those of kube-apiserver
//! 1.36.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::{Client, Response};
use crate::apiserver::{CONFIGMAPS, PODS};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn apply_to(client: &mut Client, path: &str, query: &str, body: &str) -> Response {
    let kind = "application/apply-patch+yaml; charset=utf-8".to_owned();
    client.send(
        "PATCH",
        &format!("{path}?{query}"),
        &[("Content-Type".to_owned(), kind)],
        body,
    );
    client.response()
}

fn map(data: Value) -> String {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": data})
        .to_string()
}

/// Applies to ConfigMap `a`. Returns the status and the data.
fn apply(client: &mut Client, manager: &str, data: Value) -> (u16, Value) {
    let response = apply_to(
        client,
        &format!("{CONFIGMAPS}/a"),
        &format!("fieldManager={manager}"),
        &map(data),
    );
    (response.status, response.json()["data"].clone())
}

#[test]
fn apply_merges_managers_and_keeps_unowned_fields() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    assert_eq!(
        apply(client, "one", json!({"x": "1"})),
        (201, json!({"x": "1"}))
    );
    let version = server.resource_version();
    assert_eq!(
        apply(client, "one", json!({"x": "1"})),
        (200, json!({"x": "1"}))
    );
    assert_eq!(
        server.resource_version(),
        version,
        "an identical apply changes nothing"
    );

    server
        .patch(&format!("{CONFIGMAPS}/a"), json!({"data": {"free": "0"}}))
        .unwrap();
    assert_eq!(
        apply(client, "two", json!({"x": "1", "y": "2"})).1,
        json!({"free": "0", "x": "1", "y": "2"})
    );
    assert_eq!(
        apply(client, "one", json!({})).1,
        json!({"free": "0", "x": "1", "y": "2"}),
        "manager two also owns x"
    );
    assert_eq!(
        apply(client, "two", json!({"y": "2"})).1,
        json!({"free": "0", "y": "2"})
    );
    // A field that no manager has applied causes no conflict.
    assert_eq!(
        apply(client, "two", json!({"free": "1"})).1,
        json!({"free": "1"})
    );
    let managers =
        server.get(&format!("{CONFIGMAPS}/a")).unwrap()["metadata"]["managedFields"].take();
    let summary: Vec<_> = managers
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["manager"].clone(), entry["fieldsV1"].clone()))
        .collect();
    assert_eq!(
        summary,
        [
            ("one".into(), json!({"f:data": {}})),
            ("two".into(), json!({"f:data": {"f:free": {}}}))
        ]
    );
}

#[test]
fn values_of_other_managers_conflict_unless_forced() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let path = format!("{CONFIGMAPS}/a");
    apply(client, "one", json!({"x": "1", "y": "1"}));
    apply(client, "two", json!({"z": "1"}));
    let version = server.resource_version();
    let refused = apply_to(
        client,
        &path,
        "fieldManager=me",
        &map(json!({"x": "0", "y": "0", "z": "0"})),
    );
    assert_eq!((refused.status, server.resource_version()), (409, version));
    assert_eq!(
        refused.json()["message"],
        "Apply failed with 3 conflicts: conflict with \"one\": .data.x, conflict with \"one\": .data.y, conflict with \
         \"two\": .data.z"
    );
    assert_eq!(
        refused.json()["details"]["causes"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    let forced = apply_to(
        client,
        &path,
        "fieldManager=me&force=true",
        &map(json!({"x": "0", "y": "1", "z": "0"})),
    );
    assert_eq!(
        (forced.status, forced.json()["data"].clone()),
        (200, json!({"x": "0", "y": "1", "z": "0"}))
    );
    // "two" has lost all its fields. "one" keeps the field whose value is unchanged.
    let managers = forced.json()["metadata"]["managedFields"].clone();
    let names: Vec<_> = managers
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["manager"].clone())
        .collect();
    assert_eq!(names, ["one", "me"]);
    assert_eq!(managers[0]["fieldsV1"], json!({"f:data": {"f:y": {}}}));
}

#[test]
fn managed_fields_cannot_be_set_by_clients() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    apply(client, "one", json!({"x": "1"}));
    let path = format!("{CONFIGMAPS}/a");
    let mut object = client.get(&path).json();
    let managers = object["metadata"]["managedFields"].clone();
    assert_eq!(managers[0]["operation"], "Apply");
    object["metadata"]["managedFields"] = json!([{"manager": "liar", "operation": "Apply"}]);
    assert_eq!(
        client.json("PUT", &path, &object).json()["metadata"]["managedFields"],
        managers
    );
    let patch = json!({"metadata": {"managedFields": null}, "data": {"y": "2"}});
    assert_eq!(
        client.json("PATCH", &path, &patch).json()["metadata"]["managedFields"],
        managers
    );
    let plain = client
        .json("POST", CONFIGMAPS, &json!({"metadata": {"name": "b"}}))
        .json();
    assert_eq!(plain["metadata"].get("managedFields"), None);
}

#[test]
fn apply_to_status_changes_no_other_field_and_vice_versa() {
    let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    let server = ApiServer::builder().resource(widgets).start().unwrap();
    let client = &mut Client::connect(&server);
    for (path, api_version, kind) in [(WIDGETS, "example.com/v1", "Widget"), (PODS, "v1", "Pod")] {
        let path = format!("{path}/a");
        let body = json!({
            "apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "labels": {"l": "1"}},
            "spec": {"x": 1}, "status": {"y": 1},
        });
        let status = format!("{path}/status");
        let none = apply_to(client, &status, "fieldManager=m", &body.to_string());
        assert_eq!(none.status, 404, "an apply to the status creates no object");
        let created = apply_to(client, &path, "fieldManager=m", &body.to_string());
        assert_eq!(
            (created.status, created.json().pointer("/status/y")),
            (201, None)
        );
        let changed = body
            .to_string()
            .replace("\"x\":1", "\"x\":2")
            .replace("\"l\":\"1\"", "\"l\":\"2\"");
        let changed = apply_to(client, &status, "fieldManager=m", &changed).json();
        assert_eq!(
            (&changed["spec"]["x"], &changed["status"]["y"]),
            (&json!(1), &json!(1))
        );
        assert_eq!(changed["metadata"]["labels"]["l"], "1");
        assert_eq!(changed["metadata"]["generation"], 1);
        let managers = changed["metadata"]["managedFields"].as_array().unwrap();
        let subresources: Vec<_> = managers
            .iter()
            .map(|entry| entry["subresource"].as_str())
            .collect();
        assert_eq!(subresources, [None, Some("status")]);
        // Applying to the object leaves the fields that were applied to its status, and vice versa.
        let again = apply_to(client, &path, "fieldManager=m", &body.to_string()).json();
        assert_eq!(again, changed);
    }
}

#[test]
fn apply_treats_lists_as_atomic() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let pod = |list: Value| {
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"list": list}})
            .to_string()
    };
    let path = format!("{PODS}/p");
    apply_to(
        client,
        &path,
        "fieldManager=one",
        &pod(json!([{"name": "a"}])),
    );
    let refused = apply_to(
        client,
        &path,
        "fieldManager=two",
        &pod(json!([{"name": "b"}])),
    );
    assert!(
        refused.json()["message"]
            .as_str()
            .unwrap()
            .ends_with("conflict with \"one\": .spec.list")
    );
}

#[test]
fn empty_map_is_owned_without_its_entries() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    apply(client, "one", json!({"x": "1"}));
    apply(client, "two", json!({"x": "1", "y": "2"}));
    assert_eq!(
        apply(client, "one", json!({})),
        (200, json!({"x": "1", "y": "2"}))
    );
    assert_eq!(
        apply(client, "three", json!({})),
        (200, json!({"x": "1", "y": "2"}))
    );
    assert_eq!(
        apply(client, "three", json!(null)),
        (200, json!({"x": "1", "y": "2"}))
    );
    assert_eq!(apply(client, "two", json!({"x": null})), (200, json!({})));
}

#[test]
fn invalid_apply_is_rejected() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    server
        .create(CONFIGMAPS, json!({"metadata": {"name": "here"}}))
        .unwrap();
    let version = server.resource_version();
    for (path, query, body, status) in [
        ("a", "fieldManager=m", json!({"data": {}}), 400),
        (
            "a",
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "Secret"}),
            400,
        ),
        (
            "a",
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "ConfigMap"}),
            400,
        ),
        (
            "b",
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            400,
        ),
        (
            "a",
            "force=true",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}),
            422,
        ),
        (
            "a",
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "managedFields": []}}),
            400,
        ),
        (
            "here",
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "uid": "7"}}),
            422,
        ),
        (
            "here",
            "fieldManager=m",
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "here", "resourceVersion": "9"}}),
            409,
        ),
    ] {
        let response = apply_to(
            client,
            &format!("{CONFIGMAPS}/{path}"),
            query,
            &body.to_string(),
        );
        assert_eq!(response.status, status, "{body}");
    }
    for body in [
        "[]",
        "{",
        "",
        "x: y",
        &"[".repeat(10_000),
        r#"{"metadata": 1}"#,
    ] {
        let response = apply_to(client, &format!("{CONFIGMAPS}/a"), "fieldManager=m", body);
        assert_eq!(response.status, 400, "{body}");
    }
    client.send(
        "PATCH",
        &format!("{CONFIGMAPS}/here?force=true"),
        &[(
            "Content-Type".to_owned(),
            "application/merge-patch+json".to_owned(),
        )],
        "{}",
    );
    let response = client.response();
    assert_eq!(response.status, 422);
    assert_eq!(server.resource_version(), version);
    // A new object may contain a resource version.
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "new", "resourceVersion": "7"}});
    assert_eq!(
        apply_to(
            client,
            &format!("{CONFIGMAPS}/new"),
            "fieldManager=m",
            &body.to_string()
        )
        .status,
        201
    );
}

#[test]
fn dry_run_apply_stores_nothing() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let path = format!("{CONFIGMAPS}/a");
    let dry = apply_to(
        client,
        &path,
        "fieldManager=m&dryRun=All",
        &map(json!({"x": "1"})),
    );
    assert_eq!(
        (dry.status, dry.json()["data"]["x"].as_str()),
        (201, Some("1"))
    );
    assert_eq!(client.get(&path).status, 404);
}

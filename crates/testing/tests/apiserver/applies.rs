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
    // The test owns the field that it has patched.
    let refused = apply_to(
        client,
        &format!("{CONFIGMAPS}/a"),
        "fieldManager=two",
        &map(json!({"free": "1"})),
    );
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.json()["details"]["causes"][0]["message"],
        "conflict with \"k8s-informer-testing\" using v1"
    );
    assert_eq!(
        apply(client, "two&force=true", json!({"free": "1"})).1,
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
        .map(|entry| entry["manager"].as_str().unwrap_or_default().to_owned())
        .collect();
    let sorted: std::collections::BTreeSet<_> = names.into_iter().collect();
    assert_eq!(sorted, ["me", "one"].map(str::to_owned).into());
    let entries = managers.as_array().unwrap();
    let one = entries.iter().find(|entry| entry["manager"] == "one");
    assert_eq!(one.unwrap()["fieldsV1"], json!({"f:data": {"f:y": {}}}));
}

/// Sends a request as a client with this user agent. Returns the managed fields, without times.
fn write_as(client: &mut Client, agent: &str, method: &str, path: &str, body: &Value) -> Value {
    let kind = match (method, body) {
        ("PATCH", Value::Array(_)) => "application/json-patch+json",
        ("PATCH", _) => "application/merge-patch+json",
        _ => "application/json",
    };
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let headers = [header("Content-Type", kind), header("User-Agent", agent)];
    client.send(method, path, &headers, &body.to_string());
    let response = client.response();
    assert!(response.status < 300, "{}", response.json());
    timeless(response.json()["metadata"]["managedFields"].take())
}

fn timeless(mut managers: Value) -> Value {
    for entry in managers.as_array_mut().into_iter().flatten() {
        let time = entry.as_object_mut().unwrap().remove("time");
        assert!(time.is_some(), "{entry}");
    }
    managers
}

fn updated(manager: &str, fields: &Value) -> Value {
    json!({
        "manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields,
    })
}

#[test]
fn created_updated_and_patched_fields_have_an_owner() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let path = format!("{CONFIGMAPS}/a");
    let labels = json!({"l": "1"});
    let mut object =
        json!({"metadata": {"name": "a", "labels": labels}, "data": {"x": "1", "y": "1"}});
    let created = json!({
        "f:metadata": {"f:labels": {".": {}, "f:l": {}}}, "f:data": {".": {}, "f:x": {}, "f:y": {}},
    });
    let managers = write_as(client, "one/1.0 (linux)", "POST", CONFIGMAPS, &object);
    assert_eq!(managers, json!([updated("one", &created)]));
    // An update takes what it changes, and nothing owns what it removes.
    object["data"] = json!({"x": "1", "y": "2", "z": "1"});
    object["metadata"]["labels"] = json!({});
    let managers = write_as(client, "two", "PUT", &path, &object);
    let one = updated("one", &json!({"f:data": {".": {}, "f:x": {}}}));
    let two = updated("two", &json!({"f:data": {"f:y": {}, "f:z": {}}}));
    assert_eq!(managers, json!([one, two]));
    let version = server.resource_version();
    let again = write_as(client, "three", "PUT", &path, &object);
    assert_eq!((again, server.resource_version()), (managers, version));
    // So does a patch, also of both sorts.
    let managers = write_as(
        client,
        "two",
        "PATCH",
        &format!("{path}?fieldManager=three"),
        &json!({"data": {"z": "2"}}),
    );
    let two = updated("two", &json!({"f:data": {"f:y": {}}}));
    let three = updated("three", &json!({"f:data": {"f:z": {}}}));
    assert_eq!(managers, json!([one, three, two]));
    let remove = json!([{"op": "remove", "path": "/data/z"}]);
    let managers = write_as(client, "four", "PATCH", &path, &remove);
    assert_eq!(managers, json!([one, two]));
    // An apply with the same value shares a field, one with another value conflicts.
    assert_eq!(apply(client, "five", json!({"x": "1"})).0, 200);
    let refused = apply_to(client, &path, "fieldManager=two", &map(json!({"y": "3"})));
    assert_eq!(refused.status, 409);
    assert_eq!(
        refused.json()["message"],
        "Apply failed with 1 conflict: conflict with \"two\" using v1: .data.y",
        "an update conflicts also with the same manager"
    );
    assert_eq!(
        apply(client, "five", json!({})).1,
        json!({"x": "1", "y": "2"})
    );
}

#[test]
fn subresources_have_their_own_entries() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    let path = format!("{deployments}/web");
    let object =
        json!({"metadata": {"name": "web"}, "spec": {"replicas": 1}, "status": {"replicas": 1}});
    write_as(client, "me", "POST", deployments, &object);
    let status = json!({"status": {"replicas": 2}, "spec": {"replicas": 7}});
    write_as(client, "me", "PATCH", &format!("{path}/status"), &status);
    let scale = json!({"spec": {"replicas": 3}});
    let kind = (
        "Content-Type".to_owned(),
        "application/merge-patch+json".to_owned(),
    );
    client.send(
        "PATCH",
        &format!("{path}/scale?fieldManager=me"),
        &[kind],
        &scale.to_string(),
    );
    assert_eq!(client.response().status, 200);
    let managers = server.get(&path).unwrap()["metadata"]["managedFields"].take();
    let summary: Vec<_> = managers
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["subresource"].as_str(), entry["fieldsV1"].clone()))
        .collect();
    let expected = [
        (None, json!({"f:spec": {}})),
        (Some("scale"), json!({"f:spec": {"f:replicas": {}}})),
        (
            Some("status"),
            json!({"f:status": {".": {}, "f:replicas": {}}}),
        ),
    ];
    assert_eq!(summary, expected);
}

#[test]
fn managed_fields_change_only_in_a_valid_form() {
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
    let patch = json!({"metadata": {"managedFields": null}});
    assert_eq!(
        client.json("PATCH", &path, &patch).json()["metadata"]["managedFields"],
        managers
    );
    let plain = client
        .json("POST", CONFIGMAPS, &json!({"metadata": {"name": "b"}}))
        .json();
    assert_eq!(plain["metadata"].get("managedFields"), None);
    // A JSON patch moves the fields to another manager, if the version is right.
    let mut moved = managers.clone();
    moved[0]["manager"] = "two".into();
    let migrate = |version: &str| {
        json!([
            {"op": "replace", "path": "/metadata/managedFields", "value": moved},
            {"op": "replace", "path": "/metadata/resourceVersion", "value": version},
        ])
    };
    let kind = (
        "Content-Type".to_owned(),
        "application/json-patch+json".to_owned(),
    );
    client.send(
        "PATCH",
        &path,
        std::slice::from_ref(&kind),
        &migrate("1").to_string(),
    );
    assert_eq!(client.response().status, 409);
    let version = server.resource_version().to_string();
    let before = client.get(&path).json()["metadata"]["resourceVersion"].take();
    assert_ne!(before, json!(version));
    let migration = migrate(before.as_str().unwrap()).to_string();
    client.send("PATCH", &path, std::slice::from_ref(&kind), &migration);
    let response = client.response();
    assert_eq!(
        (
            response.status,
            &response.json()["metadata"]["managedFields"]
        ),
        (200, &moved)
    );
    assert_eq!(apply(client, "two", json!({})).1, json!({}));
    // An empty list, or one with an empty entry, removes all managers. Updates have none then.
    for reset in [json!([]), json!([{}])] {
        apply(client, "one", json!({"x": "1"}));
        let patch = json!({"metadata": {"managedFields": reset}, "data": {"y": "1"}});
        let bare = client.json("PATCH", &path, &patch).json();
        assert_eq!(bare["metadata"].get("managedFields"), None);
        let bare = client
            .json("PATCH", &path, &json!({"data": {"z": "1"}}))
            .json();
        assert_eq!(bare["metadata"].get("managedFields"), None);
        // Somebody owned the fields before the first apply.
        let refused = apply_to(client, &path, "fieldManager=one", &map(json!({"z": "2"})));
        let message =
            "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.z";
        assert_eq!(refused.json()["message"], message);
        assert_eq!(apply(client, "one&force=true", json!({"z": "2"})).0, 200);
        client.json("PATCH", &path, &json!({"data": null}));
    }
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
fn finalizers_of_managers_are_merged() {
    let server = ApiServer::start().unwrap();
    let client = &mut Client::connect(&server);
    let path = format!("{CONFIGMAPS}/a");
    let finalizer = |name: &str| format!("example.com/{name}");
    let held = json!({"metadata": {"name": "a", "finalizers": [finalizer("a")]}});
    let fields = json!({"f:metadata": {"f:finalizers": {".": {}, "v:\"example.com/a\"": {}}}});
    let managers = write_as(client, "one", "POST", CONFIGMAPS, &held);
    assert_eq!(managers, json!([updated("one", &fields)]));
    let mut send = |names: &[&str]| {
        let names: Vec<_> = names.iter().copied().map(finalizer).collect();
        let metadata = json!({"name": "a", "finalizers": names});
        let body = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        let applied = apply_to(client, &path, "fieldManager=two", &body.to_string());
        assert_eq!(applied.status, 200);
        applied.json()["metadata"]["finalizers"].take()
    };
    assert_eq!(send(&["b", "c"]), json!(["a", "b", "c"].map(finalizer)));
    assert_eq!(send(&["c"]), json!(["a", "c"].map(finalizer)));
    assert_eq!(send(&[]), json!(["a"].map(finalizer)));
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

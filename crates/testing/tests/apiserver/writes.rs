//! Writes beyond the recorded exchanges.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS};

const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn server() -> ApiServer {
    let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    let server = ApiServer::builder().resource(widgets).start().unwrap();
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    server
}

/// Statuses are those of kube-apiserver 1.36.
#[test]
fn invalid_writes_are_rejected() {
    let server = server();
    let mut client = Client::connect(&server);
    for (method, path, body, status) in [
        ("POST", "", json!({ "metadata": {} }), 422),
        (
            "POST",
            "",
            json!({ "metadata": { "name": "b", "namespace": "other" } }),
            400,
        ),
        ("POST", "", json!({ "metadata": { "name": 7 } }), 400),
        (
            "POST",
            "",
            json!({ "metadata": { "name": "b", "resourceVersion": "7" } }),
            500,
        ),
        ("POST", "/a", json!({ "metadata": { "name": "b" } }), 405),
        ("PATCH", "", json!({}), 405),
        ("PUT", "/a/status", json!({}), 404),
        ("PUT", "/a", json!({ "metadata": { "name": "b" } }), 400),
        ("PUT", "/a", json!({ "metadata": {} }), 400),
        ("PUT", "/zz", json!({ "metadata": { "name": "zz" } }), 404),
        (
            "PUT",
            "/a",
            json!({ "metadata": { "name": "a", "uid": "xx" } }),
            409,
        ),
        ("PATCH", "/zz", json!({}), 404),
        (
            "PATCH",
            "/a",
            json!({ "metadata": { "resourceVersion": "3" } }),
            409,
        ),
        ("PATCH", "/a", json!({ "metadata": { "name": "b" } }), 400),
        ("DELETE", "/a", json!({ "propagationPolicy": "Nope" }), 422),
        (
            "DELETE",
            "/a",
            json!({ "preconditions": { "uid": "xxx" } }),
            409,
        ),
    ] {
        let response = client.json(method, &format!("{CONFIGMAPS}{path}"), &body);
        assert_eq!(response.status, status, "{method} {path} {body}");
    }
    for (method, path, status) in [
        ("DELETE", "/api/v1/configmaps", 405),
        ("GET", "/api/v1/configmaps/a", 404),
        ("GET", "/api/v1/nothings", 404),
    ] {
        client.send(method, path, &[], "");
        assert_eq!(client.response().status, status, "{method} {path}");
    }
    assert_eq!(
        server.resource_version(),
        5,
        "a rejected write created a version"
    );
}

#[test]
fn write_without_change_creates_no_version() {
    let server = server();
    let mut client = Client::connect(&server);
    let path = format!("{CONFIGMAPS}/a");
    let object = client.get(&path).json();
    assert_eq!(client.json("PUT", &path, &object).json(), object);
    assert_eq!(
        client
            .json("PATCH", &path, &json!({ "metadata": { "labels": null } }))
            .json(),
        object
    );
    assert_eq!(server.resource_version(), 5);
    let changed = client
        .json("PATCH", &path, &json!({ "data": { "x": "y" } }))
        .json();
    assert_eq!(changed["metadata"]["resourceVersion"], "6");
    for field in ["uid", "creationTimestamp"] {
        assert_eq!(changed["metadata"][field], object["metadata"][field]);
    }
}

#[test]
fn spec_and_status_are_written_separately() {
    let server = server();
    let mut client = Client::connect(&server);
    let body = json!({ "metadata": { "name": "p" }, "spec": { "a": 1 }, "status": { "phase": "Running" } });
    let pod = client.json("POST", PODS, &body).json();
    assert_eq!(pod["status"]["phase"], "Pending");
    assert_eq!(pod["metadata"]["generation"], 1);

    let path = format!("{PODS}/p");
    let body = json!({ "metadata": { "name": "p" }, "spec": { "a": 2 }, "status": { "phase": "Running" } });
    let pod = client.json("PUT", &path, &body).json();
    assert_eq!(
        (&pod["spec"]["a"], &pod["status"]["phase"]),
        (&2.into(), &"Pending".into())
    );
    assert_eq!(pod["metadata"]["generation"], 2);

    let body = json!({
        "metadata": { "name": "p", "labels": { "x": "y" } }, "spec": { "a": 3 }, "status": { "phase": "Running" },
    });
    let pod = client.json("PUT", &format!("{path}/status"), &body).json();
    assert_eq!(
        (&pod["spec"]["a"], &pod["status"]["phase"]),
        (&2.into(), &"Running".into())
    );
    assert_eq!(pod["metadata"]["generation"], 2);
    assert_eq!(
        pod["metadata"]["labels"]["x"], "y",
        "a status update of a built-in kind also writes the metadata"
    );
    assert_eq!(
        client.json("DELETE", &path, &json!({})).json()["kind"],
        "Pod"
    );
}

#[test]
fn custom_resource_put_needs_version_and_status_is_separate() {
    let server = server();
    let mut client = Client::connect(&server);
    let body = json!({ "metadata": { "name": "w" }, "spec": 1, "status": 1 });
    let widget = client.json("POST", WIDGETS, &body).json();
    assert_eq!(widget.get("status"), None);
    let path = format!("{WIDGETS}/w");
    let refused = client.json("PUT", &path, &json!({ "metadata": { "name": "w" } }));
    assert_eq!(refused.status, 422, "an update must contain its version");
    let patch = json!({ "metadata": { "labels": { "x": "y" } }, "status": 2 });
    let widget = client
        .json("PATCH", &format!("{path}/status"), &patch)
        .json();
    assert_eq!(widget["status"], 2);
    assert_eq!(
        widget["metadata"].get("labels"),
        None,
        "only the status is written"
    );
    let deleted = client.json("DELETE", &path, &Value::Null).json();
    assert_eq!(deleted["details"]["group"], "example.com");
    assert_eq!(
        client.json("DELETE", &path, &Value::Null).json()["message"],
        "widgets.example.com \"w\" not found"
    );
}

#[test]
fn in_process_writes_may_set_system_fields() {
    let server = server();
    let object = json!({
        "metadata": {
            "name": "p", "uid": "my-uid", "creationTimestamp": "2020-01-01T00:00:00Z", "resourceVersion": "77",
        },
        "status": { "phase": "Running" },
    });
    let pod = server.create(PODS, object.clone()).unwrap();
    assert_eq!(pod["metadata"]["uid"], "my-uid");
    assert_eq!(pod["metadata"]["creationTimestamp"], "2020-01-01T00:00:00Z");
    assert_eq!(pod["metadata"]["resourceVersion"], "6");
    assert_eq!(pod["status"]["phase"], "Running");
    let error = server.create(PODS, object).unwrap_err();
    assert_eq!((error.code(), error.reason()), (409, "AlreadyExists"));
    assert_eq!(error.to_string(), "pods \"p\" already exists");
    assert_eq!(server.get("/nowhere").unwrap_err().code(), 404);
    assert_eq!(
        server
            .create(&format!("{PODS}/p"), json!({}))
            .unwrap_err()
            .code(),
        405
    );
}

#[test]
fn object_is_deleted_with_its_last_finalizer() {
    let server = server();
    let path = format!("{WIDGETS}/w");
    server
        .create(
            WIDGETS,
            json!({ "metadata": { "name": "w", "finalizers": ["x/a", "x/b"] } }),
        )
        .unwrap();
    let held = server.delete(&path).unwrap();
    assert!(held["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(held["metadata"]["generation"], 2);
    let version = server.resource_version();
    assert_eq!(
        server.delete(&path).unwrap(),
        held,
        "deleting it again changes nothing"
    );
    assert_eq!(server.resource_version(), version);
    server
        .patch(&path, json!({ "metadata": { "finalizers": ["x/b"] } }))
        .unwrap();
    assert!(server.get(&path).is_ok());
    server
        .patch(&path, json!({ "metadata": { "finalizers": [] } }))
        .unwrap();
    assert_eq!(server.get(&path).unwrap_err().code(), 404);
}

#[test]
fn namespace_is_deleted_when_finalized() {
    let server = server();
    let mut client = Client::connect(&server);
    let path = "/api/v1/namespaces/default";
    let mut namespace = client.json("DELETE", path, &Value::Null).json();
    assert_eq!(namespace["status"]["phase"], "Terminating");
    assert_eq!(
        client
            .json("POST", CONFIGMAPS, &json!({ "metadata": { "name": "b" } }))
            .status,
        403
    );
    namespace["spec"]["finalizers"] = json!([]);
    assert_eq!(
        client
            .json("PUT", &format!("{path}/finalize"), &namespace)
            .status,
        200
    );
    assert_eq!(client.get(path).status, 404);
    assert_eq!(
        client
            .json("POST", CONFIGMAPS, &json!({ "metadata": { "name": "b" } }))
            .status,
        201
    );
}

#[test]
fn dry_run_responds_but_stores_nothing() {
    let server = server();
    let mut client = Client::connect(&server);
    let body = json!({ "metadata": { "name": "b" }, "data": { "x": "y" } });
    let dry = client.json("POST", &format!("{CONFIGMAPS}?dryRun=All"), &body);
    assert_eq!(dry.status, 201);
    assert_eq!(dry.json()["metadata"].get("resourceVersion"), None);
    let patched = client.json(
        "PATCH",
        &format!("{CONFIGMAPS}/a?dryRun=All"),
        &json!({ "data": { "x": "y" } }),
    );
    assert_eq!(patched.json()["data"]["x"], "y");
    assert_eq!(
        client
            .json(
                "DELETE",
                &format!("{CONFIGMAPS}/a?dryRun=All"),
                &Value::Null
            )
            .status,
        200
    );
    assert_eq!(client.get(CONFIGMAPS).names(), ["a"]);
    assert_eq!(server.resource_version(), 5);
}

#[test]
fn uids_are_random_unless_seeded() {
    let uids = |server: &ApiServer| {
        let create = |_| {
            server
                .create(CONFIGMAPS, json!({ "metadata": { "generateName": "g-" } }))
                .unwrap()
        };
        let uid = |object: Value| object["metadata"]["uid"].as_str().unwrap().to_owned();
        (0..100).map(create).map(uid).collect::<Vec<_>>()
    };
    let seeded = || uids(&ApiServer::builder().seed(7).start().unwrap());
    let first = seeded();
    assert_eq!(first, seeded());
    assert_ne!(first, uids(&ApiServer::start().unwrap()));
    assert_eq!(
        first.iter().collect::<std::collections::HashSet<_>>().len(),
        100
    );
    for uid in &first {
        assert_eq!((uid.len(), &uid[14..15]), (36, "4"), "{uid}");
        assert!(uid[19..20].contains(['8', '9', 'a', 'b']), "{uid}");
    }
}

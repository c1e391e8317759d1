//! Scales, evictions and options of writes.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::{Client, Response};
use crate::apiserver::{CONFIGMAPS, PODS};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WIDGETS: &str = "/apis/example.com/v1/namespaces/default/widgets";

fn patch(client: &mut Client, path: &str, kind: &str, body: &Value) -> Response {
    let kind = ("Content-Type".to_owned(), format!("application/{kind}"));
    client.send("PATCH", path, &[kind], &body.to_string());
    client.response()
}

fn status_and_message(response: &Response) -> (u16, String) {
    (
        response.status,
        response.json()["message"].as_str().unwrap().to_owned(),
    )
}

#[test]
fn scale_reads_and_writes_the_replicas() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    let selector = json!({ "matchLabels": { "b": "2", "a": "1" } });
    let web =
        json!({ "metadata": { "name": "web" }, "spec": { "replicas": 2, "selector": selector } });
    server.create(DEPLOYMENTS, web).unwrap();
    server
        .patch(
            &format!("{DEPLOYMENTS}/web/status"),
            json!({ "status": { "replicas": 1 } }),
        )
        .unwrap();
    let path = format!("{DEPLOYMENTS}/web/scale");
    let object = server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    let metadata = |field: &str| object["metadata"][field].clone();
    let scale = client.get(&path).json();
    let mut expected = json!({
        "kind": "Scale", "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "web", "namespace": "default", "uid": metadata("uid"),
            "resourceVersion": metadata("resourceVersion"), "creationTimestamp": metadata("creationTimestamp"),
        },
        "spec": { "replicas": 2 },
        "status": { "replicas": 1, "selector": "a=1,b=2" },
    });
    assert_eq!(scale, expected);

    let mut desired = scale.clone();
    desired["spec"]["replicas"] = 5.into();
    let scaled = client.json("PUT", &path, &desired).json();
    expected["spec"] = json!({ "replicas": 5 });
    expected["metadata"]["resourceVersion"] = scaled["metadata"]["resourceVersion"].clone();
    assert_eq!(scaled, expected);
    let object = server.get(&format!("{DEPLOYMENTS}/web")).unwrap();
    assert_eq!(
        (
            &object["spec"]["replicas"],
            &object["metadata"]["generation"]
        ),
        (&5.into(), &2.into())
    );
    assert_eq!(object["status"]["replicas"], 1);

    let none = json!({ "spec": { "replicas": 0 } });
    let response = patch(&mut client, &path, "merge-patch+json", &none);
    assert_eq!(response.json()["spec"]["replicas"], 0);
    let dry = format!("{path}?dryRun=All");
    let response = patch(
        &mut client,
        &dry,
        "merge-patch+json",
        &json!({ "spec": { "replicas": 9 } }),
    );
    assert_eq!(response.json()["spec"]["replicas"], 9);
    assert_eq!(client.get(&path).json()["spec"]["replicas"], 0);

    assert_eq!(client.json("PUT", &path, &desired).status, 409);
    let other = json!({ "metadata": { "name": "web", "uid": "x" }, "spec": { "replicas": 3 } });
    assert_eq!(client.json("PUT", &path, &other).status, 409);
    for (body, status) in [
        (json!({ "spec": { "replicas": -1 } }), 422),
        (json!({ "metadata": { "name": "other" } }), 400),
    ] {
        let response = patch(&mut client, &path, "merge-patch+json", &body);
        assert_eq!(response.status, status, "{body}");
    }
    for (method, body) in [
        ("GET", Value::Null),
        ("PUT", json!({ "metadata": { "name": "none" } })),
    ] {
        let response = client.json(method, &format!("{DEPLOYMENTS}/none/scale"), &body);
        assert_eq!(
            status_and_message(&response),
            (404, "deployments.apps \"none\" not found".to_owned())
        );
    }
    for method in ["DELETE", "POST"] {
        assert_eq!(client.json(method, &path, &Value::Null).status, 405);
    }
    assert_eq!(
        client
            .get("/apis/apps/v1/namespaces/default/daemonsets/web/scale")
            .status,
        404
    );
    assert_eq!(
        server.get(&path).unwrap_err().code(),
        405,
        "in-process calls have no scale subresource"
    );
}

#[test]
fn custom_resource_scale_uses_the_configured_paths() {
    let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    let widgets = widgets.scale(".spec.size.desired", ".status.size", ".status.selector");
    let server = ApiServer::builder().resource(widgets).start().unwrap();
    let mut client = Client::connect(&server);
    let widget =
        json!({ "metadata": { "name": "w" }, "spec": { "size": { "desired": 2, "most": 9 } } });
    server.create(WIDGETS, widget).unwrap();
    let path = format!("{WIDGETS}/w/scale");
    let scale = client.get(&path).json();
    assert_eq!(
        (&scale["spec"]["replicas"], &scale["status"]),
        (&2.into(), &json!({ "replicas": 0 }))
    );
    let status = json!({ "status": { "size": 2, "selector": "w in (w)" } });
    server
        .patch(&format!("{WIDGETS}/w/status"), status)
        .unwrap();
    let response = patch(
        &mut client,
        &path,
        "merge-patch+json",
        &json!({ "spec": { "replicas": 3 } }),
    );
    assert_eq!(
        response.json()["status"],
        json!({ "replicas": 2, "selector": "w in (w)" })
    );
    let widget = server.get(&format!("{WIDGETS}/w")).unwrap();
    assert_eq!(
        widget["spec"],
        json!({ "size": { "desired": 3, "most": 9 } })
    );

    server
        .create(WIDGETS, json!({ "metadata": { "name": "empty" } }))
        .unwrap();
    let response = client.get(&format!("{WIDGETS}/empty/scale"));
    assert_eq!(response.status, 500);
    let path = format!("{WIDGETS}/empty/scale");
    let response = patch(
        &mut client,
        &path,
        "merge-patch+json",
        &json!({ "spec": { "replicas": 3 } }),
    );
    assert_eq!(
        (response.status, &response.json()["spec"]),
        (200, &json!({ "replicas": 3 }))
    );
    assert_eq!(client.get(&path).json()["spec"], json!({ "replicas": 3 }));
}

#[test]
fn eviction_deletes_the_pod() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    for name in ["a", "b"] {
        let pod = json!({ "metadata": { "name": name } });
        server.create(PODS, pod).unwrap();
    }
    let eviction = |name: &str| json!({ "metadata": { "name": name } });
    let path = |name: &str| format!("{PODS}/{name}/eviction");
    let response = client.json("POST", &path("a"), &eviction("b"));
    assert_eq!(response.status, 400);
    let response = client.json("POST", &path("none"), &eviction("none"));
    assert_eq!(
        status_and_message(&response),
        (404, "pods \"none\" not found".to_owned())
    );
    assert_eq!(client.get(&path("a")).status, 405);
    assert_eq!(client.get(&format!("{CONFIGMAPS}/a/eviction")).status, 404);
    let done = json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201 });
    let dry = format!("{}?dryRun=All", path("a"));
    assert_eq!(client.json("POST", &dry, &eviction("a")).json(), done);
    assert!(server.get(&format!("{PODS}/a")).is_ok());
    let response = client.json("POST", &path("a"), &eviction("a"));
    assert_eq!((response.status, response.json()), (201, done));
    assert_eq!(server.get(&format!("{PODS}/a")).unwrap_err().code(), 404);

    let mut other = eviction("b");
    other["deleteOptions"] = json!({ "preconditions": { "uid": "x" } });
    assert_eq!(client.json("POST", &path("b"), &other).status, 409);
}

#[test]
fn unknown_fields_are_warned_of_dropped_or_rejected() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    let body = |name: &str| json!({ "metadata": { "name": name, "x": 1 }, "bogus": 1, "data": { "a": "b" } });
    let response = client.json(
        "POST",
        &format!("{CONFIGMAPS}?fieldValidation=Strict"),
        &body("a"),
    );
    let strict = "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \
                  \"bogus\", unknown field \"metadata.x\"";
    assert_eq!(status_and_message(&response), (400, strict.to_owned()));
    let response = client.json("POST", CONFIGMAPS, &body("a"));
    assert_eq!(
        response.header("Warning"),
        Some(r#"299 - "unknown field \"bogus\"""#)
    );
    assert_eq!(
        (
            response.json().get("bogus"),
            response.json()["metadata"].get("x")
        ),
        (None, None)
    );
    let response = client.json(
        "POST",
        &format!("{CONFIGMAPS}?fieldValidation=Ignore"),
        &body("b"),
    );
    assert_eq!(
        (
            response.status,
            response.header("Warning"),
            response.json().get("bogus")
        ),
        (201, None, None)
    );

    let path = format!("{CONFIGMAPS}/a");
    let response = patch(
        &mut client,
        &path,
        "merge-patch+json",
        &json!({ "bogus": 2, "data": { "a": "c" } }),
    );
    assert_eq!(
        response.header("Warning"),
        Some(r#"299 - "unknown field \"bogus\"""#)
    );
    assert_eq!(
        (response.json().get("bogus"), &response.json()["data"]["a"]),
        (None, &"c".into())
    );
    let response = patch(
        &mut client,
        &path,
        "merge-patch+json",
        &json!({ "bogus": null }),
    );
    assert_eq!(
        response.header("Warning"),
        None,
        "removing a missing field gives no warning"
    );
    let strict = format!("{path}?fieldValidation=Strict");
    let response = patch(
        &mut client,
        &strict,
        "merge-patch+json",
        &json!({ "bogus": 2 }),
    );
    let (status, message) = status_and_message(&response);
    assert_eq!(status, 422);
    assert!(
        message.ends_with("strict decoding error: unknown field \"bogus\""),
        "{message}"
    );
    let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    let server = ApiServer::builder().resource(widgets).start().unwrap();
    let response = Client::connect(&server).json(
        "POST",
        &format!("{WIDGETS}?fieldValidation=Strict"),
        &body("w"),
    );
    assert_eq!(
        response.status, 201,
        "the fields of a custom resource are not validated"
    );
}

#[test]
fn unknown_write_options_are_rejected() {
    let server = ApiServer::start().unwrap();
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    let mut client = Client::connect(&server);
    let map = json!({ "metadata": { "name": "b" } });
    let response = client.json("POST", &format!("{CONFIGMAPS}?dryRun=Some"), &map);
    let why = "Options.meta.k8s.io \"\" is invalid: dryRun: Unsupported value: \"Some\"";
    assert_eq!(status_and_message(&response), (422, why.to_owned()));
    let response = client.json("PUT", &format!("{CONFIGMAPS}/a?dryRun=Some"), &map);
    assert_eq!(response.status, 422);
    for path in [format!("{CONFIGMAPS}/a"), CONFIGMAPS.to_owned()] {
        let response = client.json("DELETE", &path, &json!({ "dryRun": ["Some"] }));
        assert_eq!(response.status, 422);
    }
    let response = client.json("POST", &format!("{CONFIGMAPS}?fieldValidation=Nope"), &map);
    assert_eq!(response.status, 422);
    // For a delete, only the options in the body count.
    let body = json!({ "dryRun": ["All"] });
    assert_eq!(
        client
            .json("DELETE", &format!("{CONFIGMAPS}/a"), &body)
            .status,
        200
    );
    assert_eq!(client.json("DELETE", CONFIGMAPS, &body).status, 200);
    assert!(server.get(&format!("{CONFIGMAPS}/a")).is_ok());
    assert_eq!(
        client
            .json("DELETE", &format!("{CONFIGMAPS}/a?dryRun=All"), &json!({}))
            .status,
        200
    );
    assert_eq!(
        server.get(&format!("{CONFIGMAPS}/a")).unwrap_err().code(),
        404
    );
}

#[test]
fn forbidden_subresource_is_named_in_the_message() {
    let server = ApiServer::builder()
        .token("good")
        .token_without_rights("nobody", "somebody")
        .start()
        .unwrap();
    let mut client = Client::connect(&server);
    for (path, resource, group) in [
        (
            format!("{DEPLOYMENTS}/web/scale"),
            "deployments/scale",
            "apps",
        ),
        (
            format!("{DEPLOYMENTS}/web/status"),
            "deployments/status",
            "apps",
        ),
        (format!("{PODS}/a/eviction"), "pods/eviction", ""),
    ] {
        client.send(
            "GET",
            &path,
            &[("Authorization".to_owned(), "Bearer nobody".to_owned())],
            "",
        );
        let (status, message) = status_and_message(&client.response());
        let why = format!(
            "User \"somebody\" cannot get resource \"{resource}\" in API group \"{group}\" in the namespace \"default\""
        );
        assert!(status == 403 && message.ends_with(&why), "{message}");
    }
}

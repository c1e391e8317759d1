//! Lists beyond the recorded exchanges.

use k8s_informer_testing::ApiServer;
use serde_json::{Value, json};

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS};

fn create(server: &ApiServer, namespace: &str, name: &str, labels: Value) {
    let path = format!("/api/v1/namespaces/{namespace}/configmaps");
    server
        .create(
            &path,
            json!({ "metadata": { "name": name, "labels": labels } }),
        )
        .unwrap();
}

#[test]
fn pages_show_one_version_despite_changes() {
    let server = ApiServer::start().unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        create(&server, "default", name, Value::Null);
    }
    let version = server.resource_version().to_string();
    let mut client = Client::connect(&server);
    let mut query = "?limit=2".to_owned();
    let (mut names, mut remaining) = (Vec::new(), Vec::new());
    loop {
        let page = client.get(&format!("{CONFIGMAPS}{query}"));
        names.extend(page.names());
        let metadata = page.json()["metadata"].clone();
        assert_eq!(metadata["resourceVersion"], version.as_str());
        remaining.push(metadata["remainingItemCount"].as_u64());
        let Some(token) = metadata["continue"].as_str() else {
            break;
        };
        query = format!("?limit=2&continue={token}");
        create(
            &server,
            "default",
            &format!("bb-{}", remaining.len()),
            Value::Null,
        );
        let _ = server.delete(&format!("{CONFIGMAPS}/d"));
    }
    assert_eq!(names, ["a", "b", "c", "d", "e"]);
    assert_eq!(remaining, [Some(3), Some(1), None]);
    assert_eq!(
        client.get(CONFIGMAPS).names(),
        ["a", "b", "bb-1", "bb-2", "c", "e"]
    );
}

#[test]
fn list_across_namespaces_is_paged_in_etcd_order() {
    let server = ApiServer::start().unwrap();
    for (namespace, name) in [("n", "b"), ("n-1", "z"), ("n", "a"), ("m", "x")] {
        create(&server, namespace, name, Value::Null);
    }
    let mut client = Client::connect(&server);
    assert_eq!(
        client.get("/api/v1/configmaps").names(),
        ["x", "z", "a", "b"]
    );
    let page = client.get("/api/v1/configmaps?limit=3");
    assert_eq!(page.names(), ["x", "z", "a"]);
    let token = page.json()["metadata"]["continue"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        client
            .get(&format!("/api/v1/configmaps?continue={token}"))
            .names(),
        ["b"]
    );
    assert_eq!(
        client.get("/api/v1/namespaces/n/configmaps").names(),
        ["a", "b"]
    );
}

#[test]
fn label_and_field_selectors_filter_lists() {
    let server = ApiServer::start().unwrap();
    create(
        &server,
        "default",
        "a",
        json!({ "app": "web", "tier": "1" }),
    );
    create(&server, "default", "b", json!({ "app": "db" }));
    create(&server, "default", "c", Value::Null);
    let mut client = Client::connect(&server);
    for (query, names) in [
        ("labelSelector=app", "a b"),
        ("labelSelector=app%3Dweb", "a"),
        ("labelSelector=app+in+(web,db),!tier", "b"),
        ("labelSelector=app!%3Dweb", "b c"),
        ("fieldSelector=metadata.name%3Db", "b"),
        (
            "fieldSelector=metadata.name!%3Db,metadata.namespace%3D%3Ddefault",
            "a c",
        ),
        ("fieldSelector=metadata.namespace%3Dother", ""),
    ] {
        assert_eq!(
            client
                .get(&format!("{CONFIGMAPS}?{query}"))
                .names()
                .join(" "),
            names,
            "{query}"
        );
    }
    let page = client
        .get(&format!("{CONFIGMAPS}?labelSelector=app&limit=1"))
        .json();
    assert_eq!(
        page["metadata"].get("remainingItemCount"),
        None,
        "a filtered list has no remainingItemCount"
    );

    for (name, node, phase) in [
        ("p", "n1", "Running"),
        ("q", "n1", "Failed"),
        ("r", "n2", "Running"),
    ] {
        let pod = json!({ "metadata": { "name": name }, "spec": { "nodeName": node }, "status": { "phase": phase } });
        server.create(PODS, pod).unwrap();
    }
    let selected =
        client.get("/api/v1/pods?fieldSelector=spec.nodeName%3Dn1,status.phase!%3DFailed");
    assert_eq!(selected.names(), ["p"]);
    assert_eq!(
        server
            .list("/api/v1/pods?fieldSelector=spec.nodeName=n1")
            .unwrap()["kind"],
        "PodList"
    );
}

#[test]
fn list_with_version_and_limit_is_exact_unless_not_older_than() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a", Value::Null);
    create(&server, "default", "b", Value::Null);
    let old_version = server.resource_version();
    create(&server, "default", "c", Value::Null);
    let mut client = Client::connect(&server);
    let mut list = |query: &str| {
        let list = client
            .get(&format!("{CONFIGMAPS}?resourceVersion={query}"))
            .json();
        let version = list["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse::<u64>()
            .unwrap();
        (
            version - old_version,
            list["items"].as_array().unwrap().len(),
        )
    };
    assert_eq!(list(&format!("{old_version}&limit=9")), (0, 2));
    assert_eq!(
        list(&format!("{old_version}&resourceVersionMatch=Exact")),
        (0, 2)
    );
    assert_eq!(list(&format!("{old_version}")), (1, 3));
    assert_eq!(
        list(&format!(
            "{old_version}&limit=2&resourceVersionMatch=NotOlderThan"
        )),
        (1, 2)
    );
    assert_eq!(list("0&limit=1"), (1, 3));
    assert_eq!(list("0&limit=1&resourceVersionMatch=NotOlderThan"), (1, 3));
}

/// `forget_events` acts like a restart of kube-apiserver: the watch cache is empty, and etcd keeps
/// its history.
#[test]
fn forgotten_version_can_be_listed_but_not_watched() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a", Value::Null);
    let old_version = server.resource_version();
    create(&server, "default", "b", Value::Null);
    let now = server.resource_version();
    server.forget_events();
    let mut client = Client::connect(&server);
    let mut listed = |query: &str| client.get(&format!("{CONFIGMAPS}?{query}"));
    for exact in [
        "limit=9",
        "limit=9&resourceVersionMatch=Exact",
        "resourceVersionMatch=Exact",
    ] {
        assert_eq!(
            listed(&format!("resourceVersion={old_version}&{exact}")).names(),
            ["a"],
            "{exact}"
        );
    }
    for present in ["", "&resourceVersionMatch=NotOlderThan&limit=9"] {
        assert_eq!(
            listed(&format!("resourceVersion={old_version}{present}")).names(),
            ["a", "b"],
            "{present}"
        );
    }
    let watch = |version: u64| {
        Client::watch(
            &server,
            &format!("{CONFIGMAPS}?watch=true&resourceVersion={version}"),
        )
    };
    let mut late = watch(old_version);
    let message = format!("too old resource version: {old_version} ({now})");
    assert_eq!(late.event_json()["object"]["message"], message);
    late.assert_end();
    let mut in_time = watch(now);
    create(&server, "default", "c", Value::Null);
    assert_eq!(in_time.event(), format!("ADDED c {}", now + 1));

    server.compact();
    let gone = listed(&format!("resourceVersion={old_version}&limit=9")).json();
    assert_eq!(
        (&gone["code"], &gone["reason"]),
        (&410.into(), &"Expired".into())
    );
}

/// Statuses are those of kube-apiserver 1.36.
#[test]
fn invalid_options_are_rejected_as_in_kubernetes() {
    let server = ApiServer::start().unwrap();
    let mut client = Client::connect(&server);
    let token = ".cm-09";
    for (query, status) in [
        ("fieldSelector=data.x%3D1", 400),
        ("fieldSelector=xx", 400),
        ("labelSelector=a+b+c", 400),
        ("limit=abc", 400),
        ("resourceVersion=abc", 400),
        ("resourceVersion=1&resourceVersionMatch=Bogus", 422),
        ("resourceVersion=0&resourceVersionMatch=Exact", 422),
        ("resourceVersion=9999&resourceVersionMatch=Exact", 504),
        ("resourceVersion=9999", 504),
        (&format!("continue={token}&resourceVersion=5"), 400),
        (
            &format!("continue={token}&resourceVersionMatch=Exact&resourceVersion=5"),
            422,
        ),
        ("continue=eyJ2IjoieCJ9", 400),
        ("sendInitialEvents=true", 422),
        (
            "watch=true&sendInitialEvents=true&resourceVersionMatch=Exact",
            422,
        ),
        (
            "watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1",
            422,
        ),
        ("watch=true&timeoutSeconds=x", 400),
    ] {
        let response = client.get(&format!("{CONFIGMAPS}?{query}"));
        assert_eq!(response.status, status, "{query}");
    }
    assert_eq!(client.get(&format!("{CONFIGMAPS}?limit=-1")).status, 200);
}

#[test]
fn partial_object_metadata_is_served_on_request() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a", json!({ "x": "y" }));
    server
        .patch(
            &format!("{CONFIGMAPS}/a"),
            json!({ "data": { "big": "secret" } }),
        )
        .unwrap();
    let mut client = Client::connect(&server);
    let accept = |media_type: &str| vec![("Accept".to_owned(), media_type.to_owned())];
    let partial = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
    client.send("GET", &format!("{CONFIGMAPS}/a"), &accept(partial), "");
    let object = client.response().json();
    assert_eq!(
        (&object["kind"], &object["apiVersion"]),
        (&"PartialObjectMetadata".into(), &"meta.k8s.io/v1".into())
    );
    assert_eq!(object["metadata"]["labels"]["x"], "y");
    assert_eq!(object.get("data"), None);

    for (media_type, status, kind) in [
        (
            "application/vnd.kubernetes.protobuf, application/json",
            200,
            "ConfigMap",
        ),
        ("*/*", 200, "ConfigMap"),
        (
            "application/json;as=Table;g=meta.k8s.io;v=v1,application/json",
            200,
            "ConfigMap",
        ),
        (
            "application/json;as=Table;g=meta.k8s.io;v=v1",
            406,
            "Status",
        ),
        ("application/yaml", 406, "Status"),
        (
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json",
            406,
            "Status",
        ),
    ] {
        client.send("GET", &format!("{CONFIGMAPS}/a"), &accept(media_type), "");
        let response = client.response();
        assert_eq!(
            (response.status, response.json()["kind"].as_str()),
            (status, Some(kind)),
            "{media_type}"
        );
    }
    // For a list, only `PartialObjectMetadataList` is valid.
    client.send("GET", CONFIGMAPS, &accept(partial), "");
    assert_eq!(client.response().status, 406);
    client.send(
        "GET",
        CONFIGMAPS,
        &accept(&partial.replace("Metadata;", "MetadataList;")),
        "",
    );
    assert_eq!(
        client.response().json()["kind"],
        "PartialObjectMetadataList"
    );
    // Writes also return the requested form.
    let body = json!({ "metadata": { "name": "b" }, "data": { "x": "y" } }).to_string();
    client.send("POST", CONFIGMAPS, &accept(partial), &body);
    let created = client.response().json();
    assert_eq!(
        (&created["kind"], created.get("data")),
        (&"PartialObjectMetadata".into(), None)
    );
}

//! Definitions with several versions, which share their objects.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, TIMEOUT};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const DEFINITION: &str =
    "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/boats.sea.example.com";

/// Returns the collection of the boats in a version.
fn boats(version: &str) -> String {
    format!("/apis/sea.example.com/{version}/namespaces/default/boats")
}

/// A version with these subresources.
fn version(name: &str, served: bool, subresources: Value) -> Value {
    json!({"name": name, "served": served, "storage": name == "v1", "subresources": subresources})
}

fn definition(versions: &[Value]) -> Value {
    json!({
        "metadata": {"name": "boats.sea.example.com"},
        "spec": {
            "group": "sea.example.com", "scope": "Namespaced",
            "names": {"plural": "boats", "kind": "Boat"}, "versions": versions,
        },
    })
}

/// A server with boats in `v1`, which has a status, and `v2`, which has none.
fn server() -> ApiServer {
    let builder = ApiServer::builder().garbage_collection(true);
    let server = builder.start().unwrap();
    let versions = [
        version("v1", true, json!({"status": {}})),
        version("v2", true, json!({})),
    ];
    server.create(DEFINITIONS, definition(&versions)).unwrap();
    server
}

fn create(server: &ApiServer, version: &str, name: &str) -> Value {
    let boat = json!({"metadata": {"name": name}});
    server.create(&boats(version), boat).unwrap()
}

#[test]
fn object_of_one_version_is_read_and_written_in_another() {
    let server = server();
    let client = &mut Client::connect(&server);
    let made = create(&server, "v2", "a");
    assert_eq!(made["apiVersion"], "sea.example.com/v2");
    let path = |version: &str| format!("{}/a", boats(version));
    let read = client.get(&path("v1")).json();
    assert_eq!(read["metadata"], made["metadata"]);
    assert_eq!(read["apiVersion"], "sea.example.com/v1");

    let again = client.json("POST", &boats("v1"), &json!({"metadata": {"name": "a"}}));
    assert_eq!(again.status, 409);
    let list = client.get(&boats("v1")).json();
    assert_eq!(list["apiVersion"], "sea.example.com/v1");
    assert_eq!(list["items"], json!([read]));

    let patched = client.json("PATCH", &path("v1"), &json!({"spec": {"mast": 2}}));
    assert_eq!(patched.json()["metadata"]["uid"], made["metadata"]["uid"]);
    let mut seen = client.get(&path("v2")).json();
    assert_eq!(seen["metadata"], patched.json()["metadata"]);
    seen["spec"]["mast"] = 3.into();
    assert_eq!(client.json("PUT", &path("v2"), &seen).status, 200);
    // The version that v1 has seen is out of date.
    let mut late = patched.json();
    late["spec"]["mast"] = 1.into();
    assert_eq!(client.json("PUT", &path("v1"), &late).status, 409);
    assert_eq!(client.get(&path("v1")).json()["spec"]["mast"], 3);

    let all = client.get("/apis/sea.example.com/v2/boats?limit=1").json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    client.json("DELETE", &path("v1"), &Value::Null);
    assert_eq!(client.get(&path("v2")).status, 404);
    create(&server, "v1", "b");
    client.json("DELETE", &boats("v2"), &Value::Null);
    assert!(client.get(&boats("v1")).names().is_empty());
}

#[test]
fn declared_versions_share_their_objects() {
    let boats_in = |version| ApiResource::new("sea.example.com", version, "boats", "Boat");
    let builder = ApiServer::builder().resource(boats_in("v1"));
    let builder = builder.resource(boats_in("v2").field("spec.mast"));
    let server = builder.start().unwrap();
    let made = create(&server, "v1", "a");
    let path = format!("{}/a", boats("v2"));
    assert_eq!(server.get(&path).unwrap()["metadata"], made["metadata"]);
    server.patch(&path, json!({"spec": {"mast": 2}})).unwrap();
    let client = &mut Client::connect(&server);
    let selected = format!("{}?fieldSelector=spec.mast=2", boats("v2"));
    assert_eq!(client.get(&selected).names(), ["a"]);
    let selected = format!("{}?fieldSelector=spec.mast=2", boats("v1"));
    assert_eq!(client.get(&selected).status, 400, "v1 has no such field");
}

#[test]
fn watch_of_each_version_sees_all_writes() {
    let server = server();
    let mut watches = ["v1", "v2"].map(|version| {
        let path = format!("{}?watch=1&allowWatchBookmarks=1", boats(version));
        (version, Client::watch(&server, &path))
    });
    create(&server, "v1", "a");
    create(&server, "v2", "b");
    server.delete(&format!("{}/a", boats("v2"))).unwrap();
    for (version, watch) in &mut watches {
        for (type_, name) in [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")] {
            let event = watch.event_json();
            let object = &event["object"];
            assert_eq!(
                (&event["type"], &object["metadata"]["name"]),
                (&type_.into(), &name.into())
            );
            assert_eq!(object["apiVersion"], format!("sea.example.com/{version}"));
        }
    }
}

#[test]
fn each_version_has_its_own_subresources() {
    let server = server();
    let client = &mut Client::connect(&server);
    // v2 treats the status like any other field, v1 ignores it.
    let boat = |name: &str| json!({"metadata": {"name": name}, "status": {"afloat": true}});
    client.json("POST", &boats("v1"), &boat("a"));
    client.json("POST", &boats("v2"), &boat("b"));
    let status = |client: &mut Client, name: &str| {
        client.get(&format!("{}/{name}", boats("v1"))).json()["status"].take()
    };
    assert_eq!(status(client, "a"), Value::Null);
    assert_eq!(status(client, "b"), json!({"afloat": true}));
    let sunk = json!({"status": {"afloat": false}});
    client.json("PATCH", &format!("{}/b", boats("v1")), &sunk);
    assert_eq!(status(client, "b"), json!({"afloat": true}));
    client.json("PATCH", &format!("{}/b", boats("v2")), &sunk);
    assert_eq!(status(client, "b"), json!({"afloat": false}));
    client.json("PATCH", &format!("{}/a/status", boats("v1")), &sunk);
    assert_eq!(status(client, "a"), json!({"afloat": false}));
    assert_eq!(client.get(&format!("{}/a/status", boats("v2"))).status, 404);
}

#[test]
fn owner_is_found_in_any_served_version() {
    let server = server();
    let owner = create(&server, "v2", "owner");
    for (name, version) in [("one", "v1"), ("two", "v2"), ("unserved", "v3")] {
        let reference = json!({
            "apiVersion": format!("sea.example.com/{version}"), "kind": "Boat", "name": "owner",
            "uid": owner["metadata"]["uid"],
        });
        let metadata = json!({"name": name, "ownerReferences": [reference]});
        server
            .create(CONFIGMAPS, json!({"metadata": metadata}))
            .unwrap();
    }
    let left = || Client::connect(&server).get(CONFIGMAPS).names();
    assert_eq!(left(), ["one", "two", "unserved"]);
    server.delete(&format!("{}/owner", boats("v1"))).unwrap();
    assert!(left().is_empty(), "the owner with this uid is gone");
}

#[test]
fn unserved_version_keeps_its_objects() {
    let server = server();
    create(&server, "v2", "a");
    let mut watch = Client::watch(&server, &format!("{}?watch=1", boats("v2")));
    assert!(watch.event().starts_with("ADDED a"));
    let mut new = version("v1", true, json!({}));
    new["storage"] = false.into();
    let mut stored = version("v2", false, json!({}));
    stored["storage"] = true.into();
    let versions = json!({"spec": {"versions": [new, stored]}});
    server.patch(DEFINITION, versions).unwrap();
    watch.assert_end();
    let client = &mut Client::connect(&server);
    assert_eq!(client.get(&boats("v2")).status, 404);
    assert_eq!(client.get(&boats("v1")).names(), ["a"]);
    let status = &server.get(DEFINITION).unwrap()["status"];
    assert_eq!(status["storedVersions"], json!(["v1", "v2"]));
    // Its objects go with the definition.
    server.delete(DEFINITION).unwrap();
    assert_eq!(client.get(&boats("v1")).status, 404);
    let both = [
        version("v1", true, json!({})),
        version("v2", true, json!({})),
    ];
    server.create(DEFINITIONS, definition(&both)).unwrap();
    assert!(client.get(&boats("v2")).names().is_empty());
}

#[test]
fn held_object_keeps_all_versions_of_a_deleted_definition() {
    let server = server();
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    server.create(&boats("v2"), held).unwrap();
    server.delete(DEFINITION).unwrap();
    for version in ["v1", "v2"] {
        let names = Client::connect(&server).get(&boats(version)).names();
        assert_eq!(names, ["a"]);
    }
    // A new object is deleted at once, and unrelated writes change nothing.
    create(&server, "v1", "b");
    assert_eq!(Client::connect(&server).get(&boats("v1")).names(), ["a"]);
    let version = server.resource_version();
    server
        .create(CONFIGMAPS, json!({"metadata": {"name": "x"}}))
        .unwrap();
    assert_eq!(server.resource_version(), version + 1);
    let release = json!({"metadata": {"finalizers": null}});
    server
        .patch(&format!("{}/a", boats("v1")), release)
        .unwrap();
    assert_eq!(server.get(DEFINITION).unwrap_err().code(), 404);
    assert_eq!(Client::connect(&server).get(&boats("v2")).status, 404);
}

#[test]
fn one_manager_applies_in_both_versions() {
    let server = server();
    let client = &mut Client::connect(&server);
    let apply = |client: &mut Client, version: &str| {
        let boat = json!({
            "apiVersion": format!("sea.example.com/{version}"), "kind": "Boat",
            "metadata": {"name": "a"}, "spec": {"mast": 1},
        });
        let kind = "application/apply-patch+yaml".to_owned();
        let path = format!("{}/a?fieldManager=me", boats(version));
        let headers = [("Content-Type".to_owned(), kind)];
        client.send("PATCH", &path, &headers, &boat.to_string());
        client.response().json()["metadata"]["managedFields"].take()
    };
    for version in ["v1", "v2", "v1"] {
        let managers = apply(client, version);
        assert_eq!(managers.as_array().unwrap().len(), 1, "{managers}");
        assert_eq!(
            managers[0]["apiVersion"],
            format!("sea.example.com/{version}")
        );
    }
}

#[test]
fn event_of_either_api_owns_nothing_and_is_shared() {
    let server = server();
    let event = json!({
        "metadata": {"name": "e"}, "eventTime": "2024-01-02T03:04:05.000000Z", "type": "Normal",
        "reportingController": "example.com/c", "reportingInstance": "i", "action": "Act",
        "reason": "Done", "regarding": {"kind": "Pod", "namespace": "default", "name": "p"},
    });
    let path = "/apis/events.k8s.io/v1/namespaces/default/events";
    let made = server.create(path, event).unwrap();
    let core = server.get("/api/v1/namespaces/default/events/e").unwrap();
    assert_eq!(core["metadata"], made["metadata"]);
    assert_eq!(core["involvedObject"]["name"], "p");
    server.wait_for_watches(0, TIMEOUT).unwrap();
}

//! CustomResourceDefinitions create resources and remove them.

use std::fs;
use std::path::Path;

use k8s_informer_testing::ApiServer;
use serde_json::{Value, json};

use crate::apiserver::TIMEOUT;
use crate::apiserver::client::Client;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGETS: &str = "/apis/sample.example.com/v1/namespaces/default/widgets";

fn definition() -> Value {
    json!({
        "metadata": {"name": "widgets.sample.example.com"},
        "spec": {
            "group": "sample.example.com", "scope": "Namespaced",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wdg"]},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "selectableFields": [{"jsonPath": ".spec.colour"}]},
                {"name": "v1alpha1", "served": false, "storage": false},
            ],
        },
    })
}

fn path() -> String {
    format!("{DEFINITIONS}/widgets.sample.example.com")
}

fn status(server: &ApiServer, path: &str) -> u16 {
    Client::connect(server).get(path).status
}

fn conditions(definition: &Value) -> Vec<(&str, &str)> {
    let conditions = definition["status"]["conditions"].as_array().unwrap();
    conditions
        .iter()
        .map(|one| {
            (
                one["type"].as_str().unwrap(),
                one["status"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn created_definition_matches_real_server_response() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/wire/13-create-crd.http");
    let text = fs::read_to_string(path).unwrap();
    let body = text.lines().find(|line| line.starts_with("> {")).unwrap();
    let body: Value = serde_json::from_str(&body[2..]).unwrap();
    let recorded: Value = serde_json::from_str(&text[text.find("\n{\n").unwrap()..]).unwrap();
    let server = ApiServer::start().unwrap();
    let response = Client::connect(&server).json("POST", DEFINITIONS, &body);
    assert_eq!(response.status, 201);
    let ours = response.json();
    for field in ["kind", "apiVersion", "spec", "status"] {
        assert_eq!(ours[field], recorded[field], "{field}");
    }
}

/// Returns the discovery of a resource in version v1 of the group.
fn discovered(server: &ApiServer, plural: &str) -> Value {
    let groups = Client::connect(server).get("/apis").json();
    let groups = groups["items"].as_array().unwrap();
    let group = groups
        .iter()
        .find(|group| group["metadata"]["name"] == "sample.example.com");
    let versions = group.unwrap()["versions"].as_array().unwrap();
    let version = versions.iter().find(|version| version["version"] == "v1");
    let resources = version.unwrap()["resources"].as_array().unwrap();
    let found = resources.iter().find(|one| one["resource"] == plural);
    found.unwrap().clone()
}

#[test]
fn resource_of_created_definition_is_served() {
    let server = ApiServer::start().unwrap();
    assert_eq!(status(&server, WIDGETS), 404);
    let created = server.create(DEFINITIONS, definition()).unwrap();
    assert_eq!(
        created["status"]["conditions"],
        Value::Null,
        "the conditions are set after the create"
    );
    let accepted = server.get(&path()).unwrap();
    assert_eq!(
        conditions(&accepted),
        [("NamesAccepted", "True"), ("Established", "True")]
    );
    assert_eq!(
        accepted["status"]["acceptedNames"],
        accepted["spec"]["names"]
    );
    assert_eq!(accepted["spec"]["names"]["singular"], "widget");
    assert!(accepted["metadata"]["resourceVersion"] != created["metadata"]["resourceVersion"]);

    assert_eq!(
        status(&server, "/apis/sample.example.com/v1alpha1/widgets"),
        404,
        "v1alpha1 is not served"
    );
    server
        .create(
            WIDGETS,
            json!({"metadata": {"name": "a"}, "spec": {"colour": "red"}}),
        )
        .unwrap();
    server
        .create(
            WIDGETS,
            json!({"metadata": {"name": "b"}, "spec": {"colour": "blue"}}),
        )
        .unwrap();
    let response =
        Client::connect(&server).get(&format!("{WIDGETS}?fieldSelector=spec.colour=red"));
    assert_eq!(response.names(), ["a"]);
    assert_eq!(response.json()["kind"], "WidgetList");
    server
        .update(
            &format!("{WIDGETS}/a/status"),
            json!({"metadata": {"name": "a"}, "status": {"ok": true}}),
        )
        .unwrap();
    let widgets = discovered(&server, "widgets");
    assert_eq!(widgets["shortNames"], json!(["wdg"]));
}

/// A definition in the same group with these names.
fn rival(plural: &str, names: Value) -> Value {
    let mut rival = definition();
    rival["metadata"]["name"] = format!("{plural}.sample.example.com").into();
    rival["spec"]["names"] = names;
    rival
}

#[test]
fn names_of_another_definition_are_not_accepted() {
    for (names, reason, message) in [
        (
            json!({"plural": "as", "kind": "Widget", "listKind": "AList"}),
            "KindConflict",
            "Widget",
        ),
        (
            json!({"plural": "as", "kind": "A", "listKind": "Widget"}),
            "ListKindConflict",
            "Widget",
        ),
        (
            json!({"plural": "as", "kind": "Widget"}),
            "ListKindConflict",
            "WidgetList",
        ),
        (
            json!({"plural": "as", "kind": "A", "singular": "widgets"}),
            "SingularConflict",
            "widgets",
        ),
        (
            json!({"plural": "as", "kind": "A", "shortNames": ["a", "wdg"]}),
            "ShortNamesConflict",
            "wdg",
        ),
        (
            json!({"plural": "wdg", "kind": "A"}),
            "PluralConflict",
            "wdg",
        ),
    ] {
        let server = ApiServer::start().unwrap();
        server.create(DEFINITIONS, definition()).unwrap();
        let plural = names["plural"].as_str().unwrap().to_owned();
        server
            .create(DEFINITIONS, rival(&plural, names.clone()))
            .unwrap();
        let rival = format!("{DEFINITIONS}/{plural}.sample.example.com");
        let refused = server.get(&rival).unwrap();
        assert_eq!(
            conditions(&refused),
            [("NamesAccepted", "False"), ("Established", "False")],
            "{names}"
        );
        let condition = &refused["status"]["conditions"][0];
        assert_eq!(condition["reason"], reason);
        assert_eq!(
            condition["message"],
            format!("\"{message}\" is already in use")
        );
        assert_eq!(refused["status"]["conditions"][1]["reason"], "NotAccepted");
        let collection = format!("/apis/sample.example.com/v1/{plural}");
        assert_eq!(status(&server, &collection), 404);

        // When the other definition is gone, its names are free.
        server.delete(&path()).unwrap();
        let accepted = server.get(&rival).unwrap();
        assert_eq!(
            conditions(&accepted),
            [("NamesAccepted", "True"), ("Established", "True")]
        );
        assert_eq!(status(&server, &collection), 200);
    }
}

#[test]
fn established_definition_keeps_its_names_in_a_conflict() {
    let server = ApiServer::start().unwrap();
    server.create(DEFINITIONS, definition()).unwrap();
    server
        .create(
            DEFINITIONS,
            rival("as", json!({"plural": "as", "kind": "A"})),
        )
        .unwrap();
    let rival = format!("{DEFINITIONS}/as.sample.example.com");
    let patch = json!({"spec": {"names": {"kind": "Widget"}}});
    server.patch(&rival, patch).unwrap();
    let refused = server.get(&rival).unwrap();
    assert_eq!(
        conditions(&refused),
        [("NamesAccepted", "False"), ("Established", "True")]
    );
    assert_eq!(discovered(&server, "as")["responseKind"]["kind"], "A");

    server
        .patch(&rival, json!({"spec": {"names": {"kind": "B"}}}))
        .unwrap();
    let accepted = server.get(&rival).unwrap();
    assert_eq!(
        conditions(&accepted),
        [("NamesAccepted", "True"), ("Established", "True")]
    );
}

#[test]
fn definition_with_an_odd_status_does_not_panic() {
    let server = ApiServer::start().unwrap();
    let mut odd = definition();
    for status in [
        json!(7),
        json!({"acceptedNames": "x", "conditions": {}}),
        json!([1]),
    ] {
        odd["status"] = status;
        server.create(DEFINITIONS, odd.clone()).unwrap();
        let accepted = server.get(&path()).unwrap();
        assert_eq!(conditions(&accepted)[1], ("Established", "True"));
        server.delete(&path()).unwrap();
    }
}

#[test]
fn changed_definition_keeps_its_objects() {
    let server = ApiServer::start().unwrap();
    server.create(DEFINITIONS, definition()).unwrap();
    server
        .create(WIDGETS, json!({"metadata": {"name": "a"}}))
        .unwrap();
    let version = |served: bool| {
        json!({"spec": {"names": {"shortNames": ["w"]}, "versions": [
        {"name": "v1", "served": served, "storage": true}]}})
    };
    server.patch(&path(), version(true)).unwrap();
    let widgets = discovered(&server, "widgets");
    assert_eq!(widgets["shortNames"], json!(["w"]));
    assert_eq!(
        widgets["subresources"],
        Value::Null,
        "the status subresource is removed"
    );
    assert_eq!(
        server.get(&path()).unwrap()["status"]["acceptedNames"]["shortNames"],
        json!(["w"])
    );
    assert_eq!(status(&server, &format!("{WIDGETS}/a")), 200);

    server.patch(&path(), version(false)).unwrap();
    assert_eq!(status(&server, &format!("{WIDGETS}/a")), 404);
    server.patch(&path(), version(true)).unwrap();
    assert_eq!(status(&server, &format!("{WIDGETS}/a")), 200);
}

#[test]
fn deleted_definition_deletes_objects_and_ends_watches() {
    let server = ApiServer::start().unwrap();
    server.create(DEFINITIONS, definition()).unwrap();
    server
        .create(WIDGETS, json!({"metadata": {"name": "a"}}))
        .unwrap();
    let mut watcher = Client::connect(&server);
    watcher.send("GET", &format!("{WIDGETS}?watch=1"), &[], "");
    let mut others = Client::connect(&server);
    others.send("GET", "/api/v1/pods?watch=1", &[], "");
    server.wait_for_watches(2, TIMEOUT).unwrap();

    let response = Client::connect(&server)
        .json("DELETE", &path(), &Value::Null)
        .json();
    assert_eq!(
        response["metadata"]["finalizers"],
        json!(["customresourcecleanup.apiextensions.k8s.io"])
    );
    assert!(response["metadata"]["deletionTimestamp"].is_string());
    server.wait_for_watches(1, TIMEOUT).unwrap();
    watcher.head();
    let mut received = String::new();
    while let Some(chunk) = watcher.chunk().unwrap() {
        received.push_str(&String::from_utf8(chunk).unwrap());
    }
    let types: Vec<Value> = received
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["type"].clone())
        .collect();
    assert_eq!(types, ["ADDED", "DELETED"]);

    assert_eq!(server.get(&path()).unwrap_err().code(), 404);
    assert_eq!(status(&server, WIDGETS), 404);
    // A new definition starts without objects.
    server.create(DEFINITIONS, definition()).unwrap();
    assert!(Client::connect(&server).get(WIDGETS).names().is_empty());
}

#[test]
fn object_with_finalizer_keeps_its_definition() {
    let server = ApiServer::start().unwrap();
    server.create(DEFINITIONS, definition()).unwrap();
    let held = json!({"metadata": {"name": "a", "finalizers": ["example.com/hold"]}});
    server.create(WIDGETS, held).unwrap();
    server.delete(&path()).unwrap();
    assert!(
        server.get(&format!("{WIDGETS}/a")).unwrap()["metadata"]["deletionTimestamp"].is_string()
    );
    assert!(server.get(&path()).unwrap()["metadata"]["deletionTimestamp"].is_string());
    server
        .patch(
            &format!("{WIDGETS}/a"),
            json!({"metadata": {"finalizers": null}}),
        )
        .unwrap();
    assert_eq!(server.get(&path()).unwrap_err().code(), 404);
    assert_eq!(status(&server, WIDGETS), 404);
}

#[test]
fn invalid_definition_is_stored_but_not_served() {
    let server = ApiServer::start().unwrap();
    for (name, spec) in [
        ("nothing", json!(null)),
        (
            "other.example.com",
            json!({"group": "sample.example.com", "names": {"plural": "widgets", "kind": "W"}}),
        ),
        (
            "widgets.sample.example.com",
            json!({"group": "sample.example.com", "names": 7, "versions": {}}),
        ),
        (
            "a.sample.example.com",
            json!({"group": "sample.example.com", "names": {"plural": "a", "kind": "A"},
            "versions": [7, {}, {"name": "v1"}, {"served": true}]}),
        ),
    ] {
        server
            .create(
                DEFINITIONS,
                json!({"metadata": {"name": name}, "spec": spec}),
            )
            .unwrap();
        assert_eq!(status(&server, "/apis/sample.example.com"), 404, "{name}");
        server.delete(&format!("{DEFINITIONS}/{name}")).unwrap();
    }
}

#[test]
fn backup_contains_definitions_and_their_objects() {
    let server = ApiServer::start().unwrap();
    let before = server.backup();
    server.create(DEFINITIONS, definition()).unwrap();
    server
        .create(WIDGETS, json!({"metadata": {"name": "a"}}))
        .unwrap();
    let with_it = server.backup();
    server.restore(&before).unwrap();
    assert_eq!(status(&server, WIDGETS), 404);
    server.restore(&with_it).unwrap();
    assert_eq!(status(&server, &format!("{WIDGETS}/a")), 200);
    // The backup can also be restored to a server that never had this definition.
    let other = ApiServer::start().unwrap();
    other.restore(&with_it).unwrap();
    assert_eq!(status(&other, &format!("{WIDGETS}/a")), 200);
}

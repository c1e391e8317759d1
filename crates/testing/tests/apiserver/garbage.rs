//! The garbage collector: owners that go, foreground deletion and orphaning.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS};

const NODES: &str = "/api/v1/nodes";
const KEPT: &str = "example.com/kept";

fn server() -> ApiServer {
    let builder = ApiServer::builder().garbage_collection(true);
    builder.start().unwrap()
}

/// Returns a reference to an object, which blocks its foreground deletion.
fn owned_by(owner: &Value) -> Value {
    let metadata = &owner["metadata"];
    json!({
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": metadata["name"], "uid": metadata["uid"],
        "blockOwnerDeletion": true,
    })
}

fn create(server: &ApiServer, collection: &str, name: &str, owners: &[Value]) -> Value {
    let metadata = json!({"name": name, "ownerReferences": owners});
    server
        .create(collection, json!({"metadata": metadata}))
        .unwrap()
}

/// Creates a ConfigMap.
fn config(server: &ApiServer, name: &str, owners: &[&Value]) -> Value {
    let owners: Vec<_> = owners.iter().map(|owner| owned_by(owner)).collect();
    create(server, CONFIGMAPS, name, &owners)
}

fn path(name: &str) -> String {
    format!("{CONFIGMAPS}/{name}")
}

fn delete(server: &ApiServer, path: &str, policy: &str) -> Value {
    let options = json!({"propagationPolicy": policy});
    let deleted = Client::connect(server).json("DELETE", path, &options);
    assert_eq!(deleted.status, 200);
    deleted.json()
}

fn set_finalizers(server: &ApiServer, path: &str, finalizers: &[&str]) {
    let patch = json!({"metadata": {"finalizers": finalizers}});
    server.patch(path, patch).unwrap();
}

/// Returns the ConfigMaps: those that are being deleted with `-`, and their owners and finalizers.
fn left(server: &ApiServer) -> Vec<String> {
    let list = server.list(CONFIGMAPS).unwrap();
    let names = |list: &Value, field: &str| {
        let items = list.as_array().into_iter().flatten();
        let text = |item: &Value| {
            let item = if field.is_empty() { item } else { &item[field] };
            format!(" {}", item.as_str().unwrap())
        };
        items.map(text).collect::<String>()
    };
    let text = |object: &Value| {
        let metadata = &object["metadata"];
        let is_deleted = metadata["deletionTimestamp"].is_string();
        format!(
            "{}{}{}{}",
            if is_deleted { "-" } else { "" },
            metadata["name"].as_str().unwrap(),
            names(&metadata["ownerReferences"], "name"),
            names(&metadata["finalizers"], "")
        )
    };
    list["items"].as_array().unwrap().iter().map(text).collect()
}

#[test]
fn dependents_are_deleted_after_their_last_owner() {
    let server = server();
    let (a, b) = (config(&server, "a", &[]), config(&server, "b", &[]));
    let child = config(&server, "child", &[&a, &b]);
    config(&server, "grandchild", &[&child]);
    config(&server, "other", &[]);
    assert!(delete(&server, &path("a"), "Background")["status"] == "Success");
    assert_eq!(
        left(&server),
        ["b", "child b", "grandchild child", "other"],
        "the reference to the absent owner is removed"
    );
    delete(&server, &path("b"), "Background");
    assert_eq!(left(&server), ["other"]);
}

#[test]
fn nothing_is_collected_by_default() {
    let server = ApiServer::start().unwrap();
    let owner = config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    delete(&server, &path("owner"), "Background");
    assert_eq!(left(&server), ["child owner"]);
    delete(&server, &path("child"), "Foreground");
    assert_eq!(left(&server), ["-child owner foregroundDeletion"]);
}

#[test]
fn dependent_with_finalizer_stays_until_it_is_removed() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    let child = config(&server, "child", &[&owner]);
    config(&server, "grandchild", &[&child]);
    set_finalizers(&server, &path("child"), &[KEPT]);
    delete(&server, &path("owner"), "Background");
    let kept = [
        format!("-child owner {KEPT}"),
        "grandchild child".to_owned(),
    ];
    assert_eq!(left(&server), kept);
    set_finalizers(&server, &path("child"), &[]);
    assert_eq!(left(&server), [""; 0]);
}

#[test]
fn foreground_deletion_waits_for_blocking_dependents() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    let child = config(&server, "child", &[&owner]);
    let mut loose = owned_by(&child);
    loose["blockOwnerDeletion"] = false.into();
    create(&server, CONFIGMAPS, "loose", &[loose]);
    config(&server, "grandchild", &[&child]);
    for name in ["loose", "grandchild"] {
        set_finalizers(&server, &path(name), &[KEPT]);
    }
    let deleted = delete(&server, &path("owner"), "Foreground");
    assert_eq!(
        deleted["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    assert_eq!(
        left(&server),
        [
            "-child owner foregroundDeletion".to_owned(),
            format!("-grandchild child {KEPT}"),
            format!("-loose child {KEPT}"),
            "-owner foregroundDeletion".to_owned(),
        ]
    );
    set_finalizers(&server, &path("grandchild"), &[]);
    assert_eq!(left(&server), [format!("-loose child {KEPT}")]);
    set_finalizers(&server, &path("loose"), &[]);
    assert_eq!(left(&server), [""; 0]);
}

#[test]
fn foreground_deletion_continues_after_reference_is_removed() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    set_finalizers(&server, &path("child"), &[KEPT]);
    delete(&server, &path("owner"), "Foreground");
    assert_eq!(left(&server).len(), 2);
    let patch = json!({"metadata": {"ownerReferences": null}});
    server.patch(&path("child"), patch).unwrap();
    assert_eq!(left(&server), [format!("-child {KEPT}")]);
}

#[test]
fn foreground_deletion_spares_dependent_with_another_owner() {
    let server = server();
    let (a, b) = (config(&server, "a", &[]), config(&server, "b", &[]));
    config(&server, "child", &[&a, &b]);
    delete(&server, &path("a"), "Foreground");
    assert_eq!(left(&server), ["b", "child b"]);
}

#[test]
fn foreground_deletion_of_owner_cycle_ends() {
    let server = server();
    let a = config(&server, "a", &[]);
    let b = config(&server, "b", &[&a]);
    let patch = json!({"metadata": {"ownerReferences": [owned_by(&b)]}});
    server.patch(&path("a"), patch).unwrap();
    delete(&server, &path("a"), "Foreground");
    assert_eq!(left(&server), [""; 0]);
}

#[test]
fn orphaned_dependents_lose_their_owner() {
    let server = server();
    let (a, b) = (config(&server, "a", &[]), config(&server, "b", &[]));
    config(&server, "one", &[&a]);
    config(&server, "two", &[&a, &b]);
    let deleted = delete(&server, &path("a"), "Orphan");
    assert_eq!(deleted["metadata"]["finalizers"], json!(["orphan"]));
    assert_eq!(left(&server), ["b", "one", "two b"]);
}

#[test]
fn jobs_are_deleted_without_their_pods_by_default() {
    let server = server();
    let jobs = "/apis/batch/v1/namespaces/default/jobs";
    for (policy, expected) in [
        (json!({}), 1),
        (json!({"propagationPolicy": "Background"}), 0),
    ] {
        let job = create(&server, jobs, "job", &[]);
        create(&server, PODS, "pod", &[owned_by(&job)]);
        Client::connect(&server).json("DELETE", &format!("{jobs}/job"), &policy);
        assert!(server.get(&format!("{jobs}/job")).is_err());
        let pods = server.list(PODS).unwrap();
        assert_eq!(pods["items"].as_array().unwrap().len(), expected);
        let _ = server.delete(&format!("{PODS}/pod"));
    }
}

#[test]
fn object_with_absent_owner_is_deleted_at_once() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    let mut wrong_uid = owned_by(&owner);
    wrong_uid["uid"] = "other".into();
    let mut wrong_name = owned_by(&owner);
    wrong_name["name"] = "other".into();
    let mut wrong_kind = owned_by(&owner);
    wrong_kind["kind"] = "Secret".into();
    for reference in [wrong_uid, wrong_name, wrong_kind] {
        create(&server, CONFIGMAPS, "child", &[reference]);
        assert_eq!(left(&server), ["owner"]);
    }
    config(&server, "child", &[&owner]);
    let absent = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "1"});
    let patch = json!({"metadata": {"ownerReferences": [absent]}});
    server.patch(&path("child"), patch).unwrap();
    assert_eq!(left(&server), ["owner"]);
}

#[test]
fn object_with_owner_of_unknown_kind_stays() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    let unknown = json!({"apiVersion": "none/v1", "kind": "None", "name": "n", "uid": "1"});
    create(&server, CONFIGMAPS, "child", &[unknown, owned_by(&owner)]);
    delete(&server, &path("owner"), "Background");
    assert_eq!(left(&server), ["child n owner"]);
}

#[test]
fn owner_in_another_namespace_counts_as_absent() {
    let server = server();
    let other = "/api/v1/namespaces/other/configmaps";
    let owner = create(&server, other, "owner", &[]);
    config(&server, "child", &[&owner]);
    assert_eq!(left(&server), [""; 0]);
    assert!(server.get(&format!("{other}/owner")).is_ok());
}

#[test]
fn cluster_scoped_owners_have_dependents_of_both_scopes() {
    let server = server();
    let node = create(&server, NODES, "owner", &[]);
    create(&server, NODES, "child", &[owned_by(&node)]);
    config(&server, "child", &[&node]);
    let owner = config(&server, "owner", &[]);
    create(&server, NODES, "stays", &[owned_by(&owner)]);
    delete(&server, &path("owner"), "Background");
    delete(&server, &format!("{NODES}/owner"), "Foreground");
    assert_eq!(left(&server), [""; 0]);
    let nodes = server.list(NODES).unwrap();
    assert_eq!(nodes["items"].as_array().unwrap().len(), 1);
    assert_eq!(nodes["items"][0]["metadata"]["name"], "stays");
}

#[test]
fn dependents_of_custom_resources_go_with_the_definition() {
    let server = server();
    let definition = json!({
        "metadata": {"name": "teams.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "teams", "kind": "Team"},
            "versions": [{"name": "v1", "served": true, "storage": true}],
        },
    });
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let teams = "/apis/example.com/v1/namespaces/default/teams";
    server.create(definitions, definition).unwrap();
    let team = create(&server, teams, "team", &[]);
    config(&server, "child", &[&team]);
    server
        .delete(&format!("{definitions}/teams.example.com"))
        .unwrap();
    assert_eq!(left(&server), [""; 0]);
}

#[test]
fn collection_deletes_dependents_with_the_policy() {
    let server = server();
    let nodes = create(&server, NODES, "owner", &[]);
    config(&server, "a", &[&nodes]);
    let client = |path: &str, options: Value| {
        Client::connect(&server)
            .json("DELETE", path, &options)
            .status
    };
    assert_eq!(client(NODES, json!({"propagationPolicy": "Orphan"})), 200);
    assert_eq!(left(&server), ["a"]);
    let nodes = create(&server, NODES, "owner", &[]);
    config(&server, "b", &[&nodes]);
    assert_eq!(
        client(NODES, json!({"propagationPolicy": "Foreground"})),
        200
    );
    assert_eq!(left(&server), ["a"]);
}

#[test]
fn collection_order_and_versions_are_the_same_in_each_run() {
    let events = || {
        let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
        let builder = ApiServer::builder().garbage_collection(true).seed(1);
        let server = builder.resource(widgets).start().unwrap();
        let path = "/apis/example.com/v1/namespaces/default/widgets";
        let owner = create(&server, path, "owner", &[]);
        for name in ["c", "a", "b"] {
            config(&server, name, &[&owner]);
            create(&server, PODS, name, &[owned_by(&owner)]);
        }
        let since = server.resource_version();
        let mut client = Client::connect(&server);
        let watch = format!("{CONFIGMAPS}?watch=true&resourceVersion={since}");
        client.send("GET", &watch, &[], "");
        assert_eq!(client.head().status, 200);
        delete(&server, &format!("{path}/owner"), "Foreground");
        let mut event = || -> Value {
            let chunk = client.chunk().unwrap().unwrap();
            serde_json::from_slice(&chunk).unwrap()
        };
        let three = [event(), event(), event()];
        three.map(|event| {
            let metadata = &event["object"]["metadata"];
            let field = |name: &str| metadata[name].as_str().unwrap().to_owned();
            (
                event["type"].clone(),
                field("name"),
                field("resourceVersion"),
            )
        })
    };
    let first = events();
    assert_eq!(
        first.each_ref().map(|(_, name, _)| &**name),
        ["a", "b", "c"]
    );
    assert!(first.iter().all(|(kind, ..)| kind == "DELETED"));
    assert_eq!(first, events());
}

#[test]
fn short_history_loses_no_garbage() {
    let builder = ApiServer::builder().garbage_collection(true).history(1);
    let server = builder.start().unwrap();
    let owner = config(&server, "owner", &[]);
    for index in 0..20 {
        let child = config(&server, &format!("child-{index}"), &[&owner]);
        config(&server, &format!("grandchild-{index}"), &[&child]);
    }
    delete(&server, &path("owner"), "Background");
    assert_eq!(left(&server), [""; 0]);
}

#[test]
fn dry_run_collects_nothing() {
    let server = server();
    let owner = config(&server, "owner", &[]);
    config(&server, "child", &[&owner]);
    let options = json!({"propagationPolicy": "Foreground", "dryRun": ["All"]});
    let deleted = Client::connect(&server).json("DELETE", &path("owner"), &options);
    assert_eq!(
        deleted.json()["metadata"]["finalizers"],
        json!(["foregroundDeletion"])
    );
    assert_eq!(left(&server), ["child owner", "owner"]);
}

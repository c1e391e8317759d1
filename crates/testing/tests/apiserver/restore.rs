//! Restored backups, and clients that have seen newer versions.

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::json;

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, TIMEOUT};

fn create(server: &ApiServer, name: &str) {
    server
        .create(CONFIGMAPS, json!({ "metadata": { "name": name } }))
        .unwrap();
}

#[test]
fn restore_brings_back_objects_and_version() {
    let server = ApiServer::start().unwrap();
    create(&server, "kept");
    create(&server, "deleted");
    let backup = server.backup();
    assert_eq!(backup.resource_version(), 6);
    server.delete(&format!("{CONFIGMAPS}/deleted")).unwrap();
    server
        .patch(
            &format!("{CONFIGMAPS}/kept"),
            json!({ "data": { "a": "b" } }),
        )
        .unwrap();
    create(&server, "lost");
    server.compact();

    for _ in 0..2 {
        server.restore(&backup).unwrap();
        let mut client = Client::connect(&server);
        let list = client.get(CONFIGMAPS);
        assert_eq!(list.names(), ["deleted", "kept"]);
        assert_eq!(list.json()["metadata"]["resourceVersion"], "6");
        assert_eq!(
            client.get(&format!("{CONFIGMAPS}/kept")).json().get("data"),
            None
        );
        // The history is also restored.
        let mut watch = Client::watch(
            &server,
            &format!("{CONFIGMAPS}?watch=true&resourceVersion=4"),
        );
        assert_eq!(
            (watch.event(), watch.event()),
            ("ADDED kept 5".to_owned(), "ADDED deleted 6".to_owned())
        );
        create(&server, "new");
        assert_eq!(watch.event(), "ADDED new 7", "versions are assigned again");
    }
}

#[test]
fn lost_version_is_rejected_as_too_large_after_restore() {
    let server = ApiServer::start().unwrap();
    let backup = server.backup();
    (0..5).for_each(|index| create(&server, &format!("lost-{index}")));
    let mut open = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=9"),
    );
    let mut page = Client::connect(&server);
    let token = page.get(&format!("{CONFIGMAPS}?limit=2")).json()["metadata"]["continue"].clone();
    server.restore(&backup).unwrap();
    open.assert_closed();
    server.wait_for_watches(0, TIMEOUT).unwrap();

    let mut client = Client::connect(&server);
    let token = token.as_str().unwrap();
    for query in [
        "resourceVersion=9",
        "resourceVersion=9&limit=2",
        &format!("limit=2&continue={token}"),
    ] {
        let response = client.get(&format!("{CONFIGMAPS}?{query}"));
        assert_eq!(
            (response.status, response.header("retry-after")),
            (504, Some("1")),
            "{query}"
        );
        let body = response.json();
        assert_eq!(
            body["message"],
            "Timeout: Too large resource version: 9, current: 4"
        );
        assert_eq!(
            body["details"]["causes"][0]["reason"],
            "ResourceVersionTooLarge"
        );
        assert_eq!(body["details"]["retryAfterSeconds"], 1);
    }
    // A watch from a newer version is silent until the server passes that version. The watch misses
    // all changes up to that version.
    let mut ahead = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=9"),
    );
    (0..6).for_each(|index| create(&server, &format!("new-{index}")));
    assert_eq!(ahead.event(), "ADDED new-5 10");
}

#[test]
fn uids_are_not_repeated_after_restore() {
    let server = ApiServer::builder().seed(7).start().unwrap();
    let backup = server.backup();
    let uid = || {
        create(&server, "a");
        server.get(&format!("{CONFIGMAPS}/a")).unwrap()["metadata"]["uid"].clone()
    };
    let lost = uid();
    server.restore(&backup).unwrap();
    assert_ne!(uid(), lost);
}

#[test]
fn backup_restores_only_to_server_with_same_resources() {
    let (one, two) = (ApiServer::start().unwrap(), ApiServer::start().unwrap());
    create(&one, "moved");
    let backup = one.backup();
    drop(one);
    two.restore(&backup).unwrap();
    assert_eq!(Client::connect(&two).get(CONFIGMAPS).names(), ["moved"]);
    let widgets = ApiResource::new("example.com", "v1", "widgets", "Widget");
    let other = ApiServer::builder().resource(widgets).start().unwrap();
    assert_eq!(
        other.restore(&backup).unwrap_err().kind(),
        std::io::ErrorKind::InvalidInput
    );
}

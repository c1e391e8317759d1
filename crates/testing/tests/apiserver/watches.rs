//! Watches beyond the recorded exchanges.

use std::time::Duration;

use k8s_informer_testing::ApiServer;
use serde_json::{Value, json};

use crate::apiserver::client::Client;
use crate::apiserver::{CONFIGMAPS, PODS, TIMEOUT};

fn object(name: &str, value: u32) -> Value {
    json!({ "metadata": { "name": name }, "data": { "value": value.to_string() } })
}

fn put(server: &ApiServer, name: &str, value: u32) {
    let path = format!("{CONFIGMAPS}/{name}");
    let written = match server.get(&path) {
        Ok(_) => server.update(&path, object(name, value)),
        Err(_) => server.create(CONFIGMAPS, object(name, value)),
    };
    written.unwrap();
}

#[test]
fn watch_delivers_matching_changes_in_order() {
    let server = ApiServer::start().unwrap();
    put(&server, "a", 1);
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}?watch=1"));
    assert_eq!(watch.event(), "ADDED a 5");
    put(&server, "b", 1);
    assert_eq!(watch.event(), "ADDED b 6");
    put(&server, "b", 2);
    server
        .create("/api/v1/namespaces/other/configmaps", object("c", 1))
        .unwrap();
    server
        .create("/api/v1/namespaces/default/secrets", object("d", 1))
        .unwrap();
    server.delete(&format!("{CONFIGMAPS}/b")).unwrap();
    assert_eq!(watch.event(), "MODIFIED b 7");
    assert_eq!(watch.event(), "DELETED b 10");
}

#[test]
fn object_entering_or_leaving_selection_is_added_or_deleted() {
    let server = ApiServer::start().unwrap();
    let query = format!("{PODS}?watch=true&fieldSelector=status.phase%3DRunning");
    let mut watch = Client::watch(&server, &query);
    server
        .create(PODS, json!({ "metadata": { "name": "p" } }))
        .unwrap();
    let phase = |phase: &str| {
        server
            .patch(
                &format!("{PODS}/p/status"),
                json!({ "status": { "phase": phase } }),
            )
            .unwrap();
    };
    phase("Running");
    assert_eq!(watch.event(), "ADDED p 6");
    phase("Failed");
    let gone = watch.event_json();
    assert_eq!(gone["type"], "DELETED");
    assert_eq!(
        gone["object"]["metadata"]["resourceVersion"], "7",
        "the version of the change"
    );
    assert_eq!(
        gone["object"]["status"]["phase"], "Running",
        "the state while it was selected"
    );
    server.delete(&format!("{PODS}/p")).unwrap();
    server
        .create(
            PODS,
            json!({ "metadata": { "name": "q" }, "status": { "phase": "Running" } }),
        )
        .unwrap();
    assert_eq!(watch.event(), "ADDED q 9");
}

#[test]
fn compaction_spares_open_watch_and_expires_new_one() {
    let server = ApiServer::start().unwrap();
    let query = |version: u64| format!("{CONFIGMAPS}?watch=true&resourceVersion={version}");
    let start = server.resource_version();
    let mut open = Client::watch(&server, &query(start));
    put(&server, "a", 1);
    server.compact();
    put(&server, "a", 2);
    assert_eq!(open.event(), "ADDED a 5");
    assert_eq!(open.event(), "MODIFIED a 6");

    let mut late = Client::watch(&server, &query(start));
    assert_eq!(late.event_json()["object"]["code"], 410);
    late.assert_end();
    let mut in_time = Client::watch(&server, &query(5));
    assert_eq!(in_time.event(), "MODIFIED a 6");
}

#[test]
fn watch_before_configured_history_is_expired() {
    let server = ApiServer::builder().history(2).start().unwrap();
    for value in 1..=4 {
        put(&server, "a", value);
    }
    let mut late = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=5"),
    );
    assert_eq!(
        late.event_json()["object"]["message"],
        "too old resource version: 5 (6)"
    );
    let mut in_time = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=6"),
    );
    assert_eq!(in_time.event(), "MODIFIED a 7");
}

#[test]
fn bookmarks_are_sent_at_intervals_if_allowed() {
    let server = ApiServer::builder()
        .bookmark_interval(Duration::from_millis(5))
        .start()
        .unwrap();
    let mut without = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=4"),
    );
    let mut with = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=4&allowWatchBookmarks=true"),
    );
    assert_eq!(with.event(), "BOOKMARK - 4");
    assert_eq!(with.event(), "BOOKMARK - 4");
    server
        .create("/api/v1/namespaces/default/secrets", object("elsewhere", 1))
        .unwrap();
    while with.event() != "BOOKMARK - 5" {}
    put(&server, "a", 1);
    assert_eq!(without.event(), "ADDED a 6");
    while with.event() != "ADDED a 6" {}
    assert_eq!(with.event(), "BOOKMARK - 6");
}

#[test]
fn watch_sends_bookmark_before_its_timeout_and_keeps_connection() {
    let server = ApiServer::builder()
        .watch_timeout(Duration::from_millis(2001))
        .start()
        .unwrap();
    let mut client = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&allowWatchBookmarks=true"),
    );
    assert_eq!(client.event(), "BOOKMARK - 4");
    client.assert_end();
    assert_eq!(client.get(CONFIGMAPS).status, 200);
    assert_eq!(server.open_watches(), 0);
    assert_eq!(server.open_connections(), 1);
}

#[test]
fn watch_list_sends_annotated_bookmark_then_watches() {
    let server = ApiServer::start().unwrap();
    put(&server, "b", 1);
    put(&server, "a", 1);
    let query = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}?{query}"));
    assert_eq!(watch.event(), "ADDED a 6");
    assert_eq!(watch.event(), "ADDED b 5");
    let end = watch.event_json();
    assert_eq!(
        end["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"],
        "true"
    );
    assert_eq!(end["object"]["metadata"]["resourceVersion"], "6");
    put(&server, "a", 2);
    assert_eq!(watch.event(), "MODIFIED a 7");

    let mut early = Client::watch(&server, &format!("{CONFIGMAPS}?{query}&resourceVersion=99"));
    let error = early.event_json();
    assert_eq!(
        (&error["type"], &error["object"]["code"]),
        (&"ERROR".into(), &504.into())
    );
    early.assert_end();
    let query = query.replace("sendInitialEvents=true", "sendInitialEvents=false");
    let mut only_new = Client::watch(&server, &format!("{CONFIGMAPS}?{query}"));
    put(&server, "a", 3);
    assert_eq!(only_new.event(), "MODIFIED a 8");
}

#[test]
fn partial_object_metadata_can_be_watched() {
    let server = ApiServer::start().unwrap();
    put(&server, "a", 1);
    let mut client = Client::connect(&server);
    let accept = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1".to_owned();
    client.send(
        "GET",
        &format!("{CONFIGMAPS}?watch=true"),
        &[("Accept".to_owned(), accept)],
        "",
    );
    assert_eq!(client.head().status, 200);
    let event = client.event_json();
    assert_eq!(event["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(event["object"].get("data"), None);
}

#[test]
fn watch_commands_take_effect_in_order_with_changes() {
    let server = ApiServer::start().unwrap();
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}?watch=true"));
    put(&server, "a", 1);
    assert_eq!(server.write_to_watches("garbage\n"), 1);
    put(&server, "a", 2);
    server.close_watches();
    put(&server, "a", 3);
    assert_eq!(watch.event(), "ADDED a 5");
    assert_eq!(watch.chunk().unwrap().as_deref(), Some(&b"garbage\n"[..]));
    assert_eq!(watch.event(), "MODIFIED a 6");
    watch.assert_end();

    let mut watch = Client::watch(
        &server,
        &format!("{CONFIGMAPS}?watch=true&resourceVersion=7"),
    );
    put(&server, "a", 4);
    assert_eq!(server.cut_watches(), 1);
    assert_eq!(watch.event(), "MODIFIED a 8");
    watch.assert_closed();
    server.wait_for_watches(0, TIMEOUT).unwrap();
}

#[test]
fn idle_watch_of_disconnected_client_is_closed() {
    let server = ApiServer::start().unwrap();
    let one = Client::watch(&server, &format!("{CONFIGMAPS}?watch=true"));
    let two = Client::watch(&server, &format!("{CONFIGMAPS}?watch=true"));
    assert_eq!(server.open_watches(), 2);
    drop(one);
    server.wait_for_watches(1, TIMEOUT).unwrap();
    drop(two);
    server.wait_for_watches(0, TIMEOUT).unwrap();
    let unopened = server.wait_for_watches(1, Duration::ZERO);
    assert!(unopened.unwrap_err().is_timed_out());
}

#[test]
fn many_changes_reach_many_watches_in_order() {
    const CHANGES: u32 = 2000;
    let server = ApiServer::start().unwrap();
    let mut watches: Vec<Client> = (0..4)
        .map(|_| Client::watch(&server, &format!("{CONFIGMAPS}?watch=true")))
        .collect();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..CHANGES).for_each(|value| put(&server, "a", value)));
        for watch in &mut watches {
            scope.spawn(move || {
                for value in 0..CHANGES {
                    let event = watch.event_json();
                    assert_eq!(event["object"]["data"]["value"], value.to_string());
                }
            });
        }
    });
}

#[test]
fn watch_behind_history_is_ended_without_gap() {
    const CHANGES: u64 = 48;
    let server = ApiServer::builder().history(2).start().unwrap();
    let mut watch = Client::watch(&server, &format!("{CONFIGMAPS}?watch=true"));
    // Write more than all buffers hold, while the client does not read.
    for _ in 0..CHANGES {
        let data = json!({ "x": "y".repeat(1 << 20) });
        server
            .create(
                CONFIGMAPS,
                json!({ "metadata": { "generateName": "big-" }, "data": data }),
            )
            .unwrap();
    }
    let mut last = 4;
    while let Some(event) = watch.chunk().unwrap() {
        let event: Value = serde_json::from_slice(&event).unwrap();
        let version: u64 = event["object"]["metadata"]["resourceVersion"]
            .as_str()
            .unwrap()
            .parse()
            .unwrap();
        assert_eq!(version, last + 1, "an event is missing");
        last = version;
    }
    assert!(last < 4 + CHANGES, "the watch did not fall behind");
    assert_eq!(watch.get("/livez").status, 200);
}

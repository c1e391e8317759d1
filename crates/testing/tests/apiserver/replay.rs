//! Replays the exchanges in `tests/data/wire`, recorded from a kube-apiserver 1.36, against the
//! embedded server.
//!
//! The objects are written in the recorded order. Filler writes replace the other writes of the
//! real cluster, so that even resource versions match. UIDs, times, generated names, continue tokens,
//! the texts and causes of errors, and audit headers are not compared.

use std::path::Path;

use k8s_informer_testing::{ApiResource, ApiServer};
use serde_json::{Value, json};

use crate::apiserver::client::{Client, Response};

const SAMPLE: &str = "/api/v1/namespaces/sample/configmaps";

struct Recording {
    name: String,
    method: String,
    path: String,
    headers: Vec<(String, String)>,
    body: String,
    start: String,
    response_headers: Vec<(String, String)>,
    response: String,
}

fn recording(name: &str) -> Recording {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/data/wire")
        .join(format!("{name}.http"));
    let text = std::fs::read_to_string(&path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let text = text.replace("\r\n", "\n");
    let (request, response) = text.split_once("\n\n").unwrap();
    let mut request = request
        .lines()
        .map(|line| line.trim_start_matches('>').trim());
    let (method, path) = request.next().unwrap().split_once(' ').unwrap();
    let (mut headers, mut body) = (Vec::new(), String::new());
    while let Some(option) = request.next() {
        match option {
            "-H" => {
                let (key, value) = request.next().unwrap().split_once(": ").unwrap();
                headers.push((key.to_owned(), value.to_owned()));
            }
            "-d" => request.next().unwrap().clone_into(&mut body),
            "" | "--raw" => {}
            other => panic!("{name}: {other}"),
        }
    }
    let (head, response) = response
        .split_once("\n\n")
        .unwrap_or_else(|| (response.trim_end(), ""));
    let mut head = head.lines();
    Recording {
        name: name.to_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        headers,
        body,
        start: head.next().unwrap().trim_end().to_owned(),
        response_headers: head
            .filter_map(|line| line.split_once(": "))
            .map(|(key, value)| (key.to_owned(), value.trim_end().to_owned()))
            .collect(),
        response: response.to_owned(),
    }
}

/// Sends the recorded request and asserts that the response matches the recorded one.
fn replay(server: &ApiServer, name: &str) {
    replay_with(server, name, None);
}

fn replay_with(server: &ApiServer, name: &str, token: Option<&str>) {
    let mut recording = recording(name);
    for (_, value) in recording
        .headers
        .iter_mut()
        .filter(|(key, _)| key == "Authorization")
    {
        *value = format!("Bearer {}", token.unwrap());
    }
    let is_watch = recording.path.contains("watch=true") && recording.start.contains("200");
    // The recorded watches ran for seconds. Here, every event is already available, so three
    // seconds are enough, also for a bookmark.
    let seconds = recording
        .path
        .find("timeoutSeconds=")
        .map_or(recording.path.len(), |at| at + "timeoutSeconds=".len());
    let path = format!(
        "{}3{}",
        &recording.path[..seconds],
        recording.path[seconds..].trim_start_matches(char::is_numeric)
    );
    let path = if is_watch {
        path.as_str()
    } else {
        recording.path.as_str()
    };

    let mut client = Client::connect(server);
    recording.headers.push(agent());
    client.send(&recording.method, path, &recording.headers, &recording.body);
    let response = if is_watch {
        read_watch(server, &mut client, &recording)
    } else {
        client.response()
    };
    compare(&recording, &response);
}

/// The user agent of the recorded requests, whose name the managed fields have.
fn agent() -> (String, String) {
    ("User-Agent".to_owned(), "curl/8.7.1".to_owned())
}

/// Reads a watch to the end of the recording.
fn read_watch(server: &ApiServer, client: &mut Client, recording: &Recording) -> Response {
    let mut response = client.head();
    let lines = recording.response.lines().count();
    for count in 0.. {
        if count == lines {
            server.close_watches();
        }
        match client.chunk().unwrap() {
            Some(chunk) => response.body.extend(chunk),
            None => break,
        }
    }
    response
}

fn compare(recording: &Recording, response: &Response) {
    let name = &recording.name;
    assert!(
        recording.start.starts_with(response.start.trim_end()),
        "{name}: {}: {}",
        response.start,
        String::from_utf8_lossy(&response.body)
    );
    for header in [
        "Content-Type",
        "Retry-After",
        "Warning",
        "X-Content-Type-Options",
    ] {
        let recorded = recording
            .response_headers
            .iter()
            .find(|(key, _)| key == header)
            .map(|(_, value)| &**value);
        assert_eq!(response.header(header), recorded, "{name}: {header}");
    }
    let body = String::from_utf8_lossy(&response.body);
    if recording
        .response_headers
        .iter()
        .any(|(_, value)| value.starts_with("text/plain"))
    {
        assert_eq!(body, recording.response, "{name}");
        return;
    }
    let values = |text: &str| -> Vec<Value> {
        serde_json::Deserializer::from_str(text)
            .into_iter()
            .map(|value| {
                normalised(value.unwrap_or_else(|error| panic!("{name}: {error}: {text}")))
            })
            .collect()
    };
    let (actual, recorded_values) = (values(&body), values(&recording.response));
    for (index, expected) in recorded_values.iter().enumerate() {
        assert_eq!(actual.get(index), Some(expected), "{name}, value {index}");
    }
    assert_eq!(actual.len(), recorded_values.len(), "{name}: {body}");
}

/// Replaces values that differ between runs with their type, and removes the texts of errors.
fn normalised(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            if fields.get("status") == Some(&json!("Failure")) {
                fields.remove("message");
                let details = fields.remove("details");
                let seconds = details.and_then(|details| details.get("retryAfterSeconds").cloned());
                fields.extend(seconds.map(|seconds| ("details".to_owned(), seconds)));
            }
            if let (Some(prefix), Some(Value::String(name))) =
                (fields.get("generateName").cloned(), fields.get_mut("name"))
            {
                let prefix = prefix.as_str().unwrap();
                assert!(
                    name.starts_with(prefix) && name.len() == prefix.len() + 5,
                    "{name}"
                );
                name.truncate(prefix.len());
            }
            for (key, field) in fields.iter_mut() {
                *field = match (key.as_str(), &*field) {
                    ("uid", Value::String(uid)) => Value::from(uid.len()),
                    ("creationTimestamp" | "deletionTimestamp" | "time", Value::String(time)) => {
                        Value::from(time.len())
                    }
                    ("continue", Value::String(token)) => Value::from(token.is_empty()),
                    _ => normalised(field.take()),
                };
            }
        }
        Value::Array(items) => items
            .iter_mut()
            .for_each(|item| *item = normalised(item.take())),
        _ => {}
    }
    value
}

/// Writes filler objects until `version` is reached, in place of other writes in the real cluster.
fn fill(server: &ApiServer, version: u64) {
    let path = "/api/v1/namespaces/filler/configmaps";
    if server.get(&format!("{path}/filler")).is_err() {
        server
            .create(path, json!({ "metadata": { "name": "filler" } }))
            .unwrap();
    }
    while server.resource_version() < version {
        let data = json!({ "data": { "version": server.resource_version().to_string() } });
        server.patch(&format!("{path}/filler"), data).unwrap();
    }
    assert_eq!(server.resource_version(), version);
}

/// Creates an object as the recorded client.
fn create(server: &ApiServer, object: &Value) {
    send(server, "POST", SAMPLE, "application/json", object);
}

/// Patches an object as the recorded client.
fn patch(server: &ApiServer, name: &str, patch: &Value) {
    let kind = "application/merge-patch+json";
    send(server, "PATCH", &format!("{SAMPLE}/{name}"), kind, patch);
}

fn send(server: &ApiServer, method: &str, path: &str, kind: &str, body: &Value) {
    let mut client = Client::connect(server);
    let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    // Only one of the servers requires a token.
    let headers = [
        agent(),
        header("Content-Type", kind),
        header("Authorization", "Bearer good"),
    ];
    client.send(method, path, &headers, &body.to_string());
    let response = client.response();
    assert!(response.status < 300, "{}", response.json());
}

#[test]
fn recorded_kube_apiserver_exchanges_are_reproduced() {
    let widgets = ApiResource::new("sample.example.com", "v1", "widgets", "Widget");
    let server = ApiServer::builder().resource(widgets).start().unwrap();

    fill(&server, 206);
    replay(&server, "02-create-namespace");
    replay(&server, "03-create-configmap");
    for i in 1..50 {
        let labels = json!({ "parity": if i % 2 == 0 { "even" } else { "odd" } });
        let object = json!({ "metadata": { "name": format!("cm-{i:02}"), "labels": labels }, "data": { "i": i.to_string() } });
        create(&server, &object);
    }
    assert_eq!(server.resource_version(), 257);
    for name in [
        "04-get-configmap",
        "05-list-limit10-page1",
        "06-list-empty",
        "06-list-exact-rv",
        "06-list-invalid-rvmatch",
        "06-list-notolderthan-rv",
        "06-list-partialmetadata",
        "06-list-rv0",
        "06-list-too-large-rv",
    ] {
        replay(&server, name);
    }

    create(
        &server,
        &json!({ "metadata": { "name": "w-1" }, "data": { "a": "1" } }),
    );
    patch(&server, "w-1", &json!({ "data": { "a": "2" } }));
    server.delete(&format!("{SAMPLE}/w-1")).unwrap();
    for name in [
        "07-watch-rv-bookmarks",
        "07-watch-from-first-rv-history",
        "07-watch-no-rv",
        "07-watch-rv0",
    ] {
        replay(&server, name);
    }
    fill(&server, 264);
    patch(&server, "cm-02", &json!({ "data": { "x": "y" } }));
    fill(&server, 266);
    patch(
        &server,
        "cm-04",
        &json!({ "metadata": { "labels": { "parity": "none" } } }),
    );
    patch(
        &server,
        "cm-04",
        &json!({ "metadata": { "labels": { "parity": "even" } } }),
    );
    for name in [
        "07-watch-selector-leave-enter",
        "07-watch-rv-in-future",
        "07-watch-invalid-rv",
    ] {
        replay(&server, name);
    }
    fill(&server, 269);
    replay(&server, "08-watchlist");
    replay(&server, "08-watchlist-rv0");
    fill(&server, 271);
    for name in [
        "08-watchlist-empty",
        "08-watchlist-without-bookmarks",
        "08-watchlist-invalid-no-match",
        "09-already-exists",
        "09-bad-json-400",
        "09-invalid-422",
        "09-method-not-allowed-405",
        "09-not-acceptable-406",
        "09-not-found",
        "09-unknown-resource",
        "09-unsupported-media-415",
        "09-strict-field-validation",
        "09-warn-field-validation",
        "10-put-update",
        "10-put-conflict-409",
    ] {
        replay(&server, name);
    }
    fill(&server, 273);
    for name in [
        "10-patch-merge",
        "10-patch-json",
        "10-patch-json-test-fails",
        "10-patch-strategic",
    ] {
        replay(&server, name);
    }
    for name in [
        "10-apply",
        "10-apply-conflict-409",
        "10-apply-force",
        "10-create-generatename",
    ] {
        replay(&server, name);
    }

    fill(&server, 285);
    for name in [
        "13-create-cr",
        "13-patch-cr-status",
        "13-list-cr",
        "13-watchlist-cr",
        "14-delete",
        "14-delete-again-404",
    ] {
        replay(&server, name);
    }
    let held = json!({ "metadata": { "name": "fin", "finalizers": ["sample.example.com/hold"] } });
    create(&server, &held);
    for name in [
        "14-delete-precondition-409",
        "14-delete-with-finalizer",
        "14-remove-finalizer",
        "14-deletecollection",
        "15-list-exact-before-restart",
        "15-watch-old-rv-before-restart",
    ] {
        replay(&server, name);
    }

    fill(&server, 322);
    server.compact();
    fill(&server, 325);
    for name in [
        "16-watch-expired-410",
        "16-watch-expired-rv1-410",
        "16-continue-garbage-400",
        "16-list-exact-expired-410",
        "16-watchlist-after-restart",
        "17-delete-namespace",
        "17-create-in-terminating-403",
    ] {
        replay(&server, name);
    }
}

#[test]
fn recorded_authorization_errors_are_reproduced() {
    let server = ApiServer::builder()
        .token("good")
        .token_without_rights("nobody", "token-nobody")
        .start()
        .unwrap();
    fill(&server, 208);
    let object = json!({ "metadata": { "name": "cm-01", "labels": { "parity": "odd" } }, "data": { "i": "1" } });
    create(&server, &object);
    replay_with(&server, "11-token-ok", Some("good"));
    replay_with(&server, "11-token-unknown-401", Some("bad"));
    replay_with(&server, "11-forbidden-403", Some("nobody"));
    replay(&server, "11-anonymous-403");
}

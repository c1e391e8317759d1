//! Requests for single objects, and responses that are rejected.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::api::{Api, DeleteOptions, Patch, PropagationPolicy, retry_on_conflict};
use k8s_informer::object::{GroupVersionResource, PartialObjectMetadata};
use k8s_informer::reflector::{ListOptions, ListerWatcher, ListerWatcherSource};
use k8s_informer::{
    Client, Config, DynamicObject, Error, Object, ObjectMeta, Stop, Stopper, impl_object,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use serde::Deserialize;
use serde_json::{Value, json};

use super::server::{Reply, SOON, Server, ServerEvent, first_chunk, reply};

/// A type outside the core group that decodes only its metadata.
#[derive(Debug, Deserialize)]
struct Widget {
    metadata: ObjectMeta,
}
impl_object!(Widget, "example.com/v1", "Widget", "widgets", Namespaced);

const MAP: &str = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n","resourceVersion":"7"}}"#;
const WIDGET: &str = r#"{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"name":"a","namespace":"n"},"spec":{}}"#;
const CONFLICT: &str = r#"{"kind":"Status","message":"too late","reason":"Conflict","code":409}"#;

fn client(server: &Server) -> Client {
    Client::new(
        Config::new(server.url())
            .token("t0ken")
            .response_timeout(SOON),
    )
    .unwrap()
}

fn maps(server: &Server) -> Api<ConfigMap> {
    client(server).api(Some("n"))
}

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

/// Returns the request line, the headers named in `headers` and the body of the next request.
fn request_parts(server: &Server, headers: &[&str]) -> Vec<String> {
    let request = server.request();
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    let mut lines = head.lines();
    let mut parts = vec![
        lines
            .next()
            .unwrap()
            .trim_end_matches(" HTTP/1.1")
            .to_owned(),
    ];
    let lines: Vec<&str> = lines.collect();
    parts.extend(headers.iter().map(|name| {
        let of_name = |line: &&&str| line.to_ascii_lowercase().starts_with(&format!("{name}: "));
        lines
            .iter()
            .find(of_name)
            .map_or("", |line| &line[name.len() + 2..])
            .to_owned()
    }));
    parts.push(body.to_owned());
    parts
}

#[test]
fn api_is_clone_send_sync_and_hides_token() {
    fn shared<T: Clone + Send + Sync + 'static>() {}
    shared::<Api<ConfigMap>>();
    shared::<Api<Widget>>();
    let server = Server::answering(MAP);
    let api = maps(&server);
    assert_eq!(
        (api.resource(), api.namespace()),
        (&configmaps(), Some("n"))
    );
    assert!(!format!("{api:?} {:?}", api.status()).contains("t0ken"));
}

#[test]
fn verbs_send_expected_method_path_headers_body() {
    let server = Server::answering(WIDGET);
    let (widgets, stop) = (client(&server).api::<Widget>(Some("n")), Stopper::new());
    let all = "/apis/example.com/v1/namespaces/n/widgets";
    let one = format!("{all}/a");
    let headers = ["accept", "content-type"];
    let whole = r#"{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a"}}"#;

    widgets.get("a", &stop).unwrap();
    assert_eq!(
        request_parts(&server, &headers),
        [&format!("GET {one}"), "application/json", "", ""]
    );
    // The body may omit the `kind` and `apiVersion` of its type.
    widgets
        .create(&json!({"metadata": {"name": "a"}}), &stop)
        .unwrap();
    assert_eq!(
        request_parts(&server, &headers),
        [
            &format!("POST {all}"),
            "application/json",
            "application/json",
            whole
        ]
    );
    let other = json!({"apiVersion": "example.com/v2", "metadata": {"name": "a"}});
    widgets.create(&other, &stop).unwrap();
    assert!(
        request_parts(&server, &[])[1]
            .starts_with(r#"{"apiVersion":"example.com/v2","kind":"Widget""#)
    );

    let body = json!({"x": 1});
    for (patch, kind) in [
        (Patch::merge(&body), "merge-patch+json"),
        (Patch::json(&body).force(true), "json-patch+json"),
        (Patch::strategic_merge(&body), "strategic-merge-patch+json"),
    ] {
        widgets.patch("a", &patch, &stop).unwrap();
        let kind = format!("application/{kind}");
        assert_eq!(
            request_parts(&server, &headers),
            [
                &format!("PATCH {one}"),
                "application/json",
                &kind,
                r#"{"x":1}"#
            ]
        );
        widgets.status().patch("a", &patch, &stop).unwrap();
        assert_eq!(
            request_parts(&server, &[])[0],
            format!("PATCH {one}/status")
        );
    }
    let patch = Patch::apply("a b&c", json!({"metadata": {"name": "a"}}));
    widgets.patch("a", &patch, &stop).unwrap();
    assert_eq!(
        request_parts(&server, &["content-type"]),
        [
            &format!("PATCH {one}?fieldManager=a%20b%26c"),
            "application/apply-patch+yaml",
            whole
        ]
    );
    widgets
        .status()
        .patch("a", &patch.force(true), &stop)
        .unwrap();
    assert_eq!(
        request_parts(&server, &[])[0],
        format!("PATCH {one}/status?fieldManager=a%20b%26c&force=true")
    );

    widgets
        .delete("a", &DeleteOptions::default(), &stop)
        .unwrap();
    let plain = r#"{"apiVersion":"v1","kind":"DeleteOptions"}"#;
    assert_eq!(
        request_parts(&server, &headers),
        [
            &format!("DELETE {one}"),
            "application/json",
            "application/json",
            plain
        ]
    );
    let mut meta = ObjectMeta::default();
    (meta.uid, meta.resource_version) = ("u".to_owned(), "7".to_owned());
    let mut options = DeleteOptions::unchanged(&meta);
    options.propagation_policy = Some(PropagationPolicy::Orphan);
    options.grace_period_seconds = Some(0);
    widgets.delete("a", &options, &stop).unwrap();
    let expected = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u", "resourceVersion": "7"},
        "propagationPolicy": "Orphan", "gracePeriodSeconds": 0,
    });
    assert_eq!(
        serde_json::from_str::<Value>(&request_parts(&server, &[])[1]).unwrap(),
        expected
    );
    assert_eq!(DeleteOptions::same_object(&meta).resource_version, None);
}

#[test]
fn replace_sends_unknown_fields_back() {
    let server = Server::answering(
        r#"{"kind":"X","apiVersion":"v9","metadata":{"name":"a","uid":"u","new":{"deep":[1,null]}},"unknown":1.50}"#,
    );
    let (objects, stop) = (
        client(&server).dynamic_api(&configmaps(), None),
        Stopper::new(),
    );
    let fetched = objects.get("a", &stop).unwrap();
    assert_eq!(request_parts(&server, &[])[0], "GET /api/v1/configmaps/a");
    objects.replace(&fetched, &stop).unwrap();
    let [line, body] = &request_parts(&server, &[])[..] else {
        panic!()
    };
    assert_eq!(line, "PUT /api/v1/configmaps/a");
    assert_eq!(
        serde_json::from_str::<DynamicObject>(body).unwrap(),
        *fetched
    );
    objects.status().replace(&fetched, &stop).unwrap();
    assert_eq!(
        request_parts(&server, &[])[0],
        "PUT /api/v1/configmaps/a/status"
    );
}

#[test]
fn metadata_request_accepts_partial_and_whole_objects() {
    const PARTIAL: &str =
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
    let server = Server::answering(
        r#"{"kind":"Secret","metadata":{"name":"a","namespace":"n","managedFields":[{"manager":"m"}]},"data":{"k":"djEK"}}"#,
    );
    let (client, stop) = (client(&server), Stopper::new());
    let metadata = client.metadata_api(&configmaps(), Some("n"));
    let object: PartialObjectMetadata = metadata.get("a", &stop).unwrap().into_inner();
    assert_eq!((object.name(), object.namespace()), ("a", "n"));
    assert_eq!(request_parts(&server, &["accept"])[1], PARTIAL);
    metadata
        .patch("a", &Patch::merge(json!({})), &stop)
        .unwrap();
    assert_eq!(request_parts(&server, &["accept"])[1], PARTIAL);

    let watcher = client.metadata_lister_watcher(&configmaps(), Some("n"));
    assert!(watcher.supports_watch_list());
    assert_eq!(watcher.description(), "configmaps in namespace \"n\"");
    watcher.list(&ListOptions::default(), &stop).unwrap();
    let list = PARTIAL.replace("Metadata;", "MetadataList;");
    assert_eq!(
        request_parts(&server, &["accept"])[..2],
        ["GET /api/v1/namespaces/n/configmaps", &list]
    );
    watcher.watch(&ListOptions::default(), &stop).unwrap();
    let source: &dyn ListerWatcherSource = &client;
    source
        .metadata_lister_watcher(&configmaps(), None)
        .watch(&ListOptions::default(), &stop)
        .unwrap();
    // The client closes the connection of a body that was not read. The event
    // `ServerEvent::Closed` can come between the requests, so skip it.
    let mut requests = Vec::new();
    while requests.len() < 2 {
        if let ServerEvent::Request(request) = server.next() {
            requests.push(request);
        }
    }
    assert!(
        requests[0].starts_with("GET /api/v1/namespaces/n/configmaps?watch=true "),
        "{requests:?}"
    );
    assert!(
        requests[1].starts_with("GET /api/v1/configmaps?watch=true "),
        "{requests:?}"
    );
    assert!(
        requests.iter().all(|request| request.contains(PARTIAL)),
        "{requests:?}"
    );
}

#[test]
fn source_without_metadata_support_lists_whole_objects() {
    struct Plain(Client);
    impl ListerWatcherSource for Plain {
        fn lister_watcher(
            &self,
            resource: &GroupVersionResource,
            namespace: Option<&str>,
        ) -> std::sync::Arc<dyn ListerWatcher> {
            self.0.lister_watcher(resource, namespace)
        }
    }
    let server = Server::answering("{}");
    let watcher = Plain(client(&server)).metadata_lister_watcher(&configmaps(), None);
    watcher
        .list(&ListOptions::default(), &Stop::never())
        .unwrap();
    assert_eq!(request_parts(&server, &["accept"])[1], "application/json");
}

#[test]
fn invalid_name_namespace_or_body_is_rejected_before_sending() {
    let server = Server::answering(MAP);
    let (client, stop) = (client(&server), Stopper::new());
    let maps = client.api::<ConfigMap>(Some("n"));
    let mut errors: Vec<(Error, &str)> = Vec::new();
    for name in ["", ".", "..", "a/b", "%2e%2e"] {
        let message = format!(
            "get configmaps {name:?} in namespace \"n\": name {name:?} can't be part of a path: "
        );
        let message = if name.is_empty() {
            message.replace("configmaps \"\" in", "configmaps in")
        } else {
            message
        };
        let error = maps.get(name, &stop).unwrap_err();
        assert!(error.to_string().starts_with(&message), "{error}");
        errors.push((error, ""));
        errors.push((
            maps.delete(name, &DeleteOptions::default(), &stop)
                .unwrap_err(),
            "can't be part of a path",
        ));
        errors.push((
            maps.status().get(name, &stop).unwrap_err(),
            "get configmaps/status",
        ));
        errors.push((
            maps.patch(name, &Patch::merge(json!({})), &stop)
                .unwrap_err(),
            "patch configmaps",
        ));
    }
    for namespace in [".", "..", "n/configmaps", "%2e"] {
        let error = client
            .api::<ConfigMap>(Some(namespace))
            .get("a", &stop)
            .unwrap_err();
        errors.push((error, "can't be part of a path"));
    }
    errors.push((
        client.api::<ConfigMap>(None).get("a", &stop).unwrap_err(),
        "this kind is namespaced",
    ));
    errors.push((
        client
            .api::<ConfigMap>(Some(""))
            .create(&json!({}), &stop)
            .unwrap_err(),
        "no namespace was given",
    ));
    errors.push((
        client.api::<Node>(Some("n")).get("a", &stop).unwrap_err(),
        "this kind is cluster-scoped",
    ));
    for body in [json!("s3cret"), json!(["s3cret"]), json!(null)] {
        errors.push((
            maps.create(&body, &stop).unwrap_err(),
            "create configmaps in namespace \"n\": the body",
        ));
        errors.push((
            maps.patch("a", &Patch::apply("m", body), &stop)
                .unwrap_err(),
            "the body is not a JSON object",
        ));
    }
    let keys = std::collections::BTreeMap::from([(vec!["s3cret"], 1)]);
    errors.push((
        maps.create(&keys, &stop).unwrap_err(),
        "can't be serialized as JSON",
    ));
    errors.push((
        maps.patch("a", &Patch::merge(&keys), &stop).unwrap_err(),
        "can't be serialized as JSON",
    ));
    for (error, expected) in errors {
        let text = format!("{error} {error:?}");
        assert!(
            text.contains(expected) && !text.contains("s3cret"),
            "{text}"
        );
        assert!(
            !error.is_retryable() && !error.is_not_found() && !error.is_conflict(),
            "{text}"
        );
    }
    assert_eq!(server.accepted(), 0);
}

/// Returns the errors of all verbs that read this response. Asserts that no error quotes the
/// request body or the response.
fn errors_of(reply: impl Fn() -> Reply + Send + Sync + 'static) -> Vec<Error> {
    let server = Server::start(move |_| reply());
    let (maps, stop) = (maps(&server), Stopper::new());
    let body = json!({"metadata": {"name": "a"}, "data": {"password": "s3cret"}});
    let errors = vec![
        maps.get("a", &stop).unwrap_err(),
        maps.create(&body, &stop).unwrap_err(),
        maps.patch("a", &Patch::merge(&body), &stop).unwrap_err(),
        maps.patch("a", &Patch::apply("s3cret", &body), &stop)
            .unwrap_err(),
        maps.status()
            .patch("a", &Patch::merge(&body), &stop)
            .unwrap_err(),
        maps.modify("a", |_| {}, &stop).unwrap_err(),
    ];
    for error in &errors {
        let text = format!("{error} {error:?}");
        assert!(
            !text.contains("s3cret") && !text.contains("t0ken"),
            "{text}"
        );
        assert!(
            text.contains("configmaps") && text.contains("\"a\" in namespace \"n\": "),
            "{text}"
        );
        assert!(text.contains(&server.url()), "{text}");
    }
    errors
}

#[test]
fn wrong_or_broken_object_response_is_an_error() {
    let named = |name: &str, namespace: &str| {
        json!({"metadata": {"name": name, "namespace": namespace}, "data": {"k": "s3cret"}})
            .to_string()
    };
    let json = "Content-Type: application/json\r\n";
    for bytes in [
        // A different object from the requested one, or none.
        reply("200 OK", json, &named("s3cret", "n")),
        reply("200 OK", json, &named("a", "other")),
        reply("200 OK", json, &named("", "n")),
        reply("200 OK", json, "{}"),
        reply(
            "200 OK",
            json,
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"s3cret"}"#,
        ),
        reply(
            "200 OK",
            json,
            r#"{"kind":"Secret","apiVersion":"v1","metadata":{"name":"a","namespace":"n"}}"#,
        ),
        // The body is not exactly one JSON document, or it has an encoding that was not requested.
        reply(
            "200 OK",
            "Content-Type: text/html\r\n",
            "<html>s3cret</html>",
        ),
        reply("200 OK", "Content-Encoding: gzip\r\n", MAP),
        reply("200 OK", json, ""),
        reply("200 OK", json, "{\"metadata\":{\"name\":\"s3cret"),
        reply("200 OK", json, &format!("{MAP}{MAP}")),
        reply("200 OK", json, &"[".repeat(100_000)),
        reply("200 OK", json, &"{\"metadata\":".repeat(100_000)),
        reply("204 No Content", "", ""),
    ] {
        for error in errors_of(move || Reply::Write(bytes.clone())) {
            assert!(error.is_decode(), "{error:?}");
        }
    }
    for bytes in [
        &b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{\"metadata\":"[..],
        &first_chunk("{\"metadata\":{\"name\":\"s3cret\""),
        b"s3cret",
        b"",
    ] {
        let bytes = bytes.to_vec();
        for error in errors_of(move || Reply::WriteAndClose(bytes.clone())) {
            assert!(error.is_connection() && error.is_retryable(), "{error:?}");
        }
    }
}

#[test]
fn api_error_has_status_and_request_description() {
    type ErrorCheck = fn(&Error) -> bool;
    let cases: [(&str, &str, &str, ErrorCheck); 7] = [
        ("404 Not Found", "NotFound", "", Error::is_not_found),
        (
            "409 Conflict",
            "AlreadyExists",
            "",
            Error::is_already_exists,
        ),
        ("409 Conflict", "Conflict", "", Error::is_conflict),
        ("422 Unprocessable Entity", "Invalid", "", Error::is_invalid),
        (
            "403 Forbidden",
            "Forbidden",
            "NamespaceTerminating",
            Error::is_namespace_terminating,
        ),
        (
            "405 Method Not Allowed",
            "MethodNotAllowed",
            "",
            Error::is_method_not_allowed,
        ),
        (
            "429 Too Many Requests",
            "TooManyRequests",
            "",
            Error::is_too_many_requests,
        ),
    ];
    for (line, reason, cause, is_expected) in cases {
        let code: u16 = line[..3].parse().unwrap();
        let status = json!({
            "kind": "Status", "status": "Failure", "message": "no", "reason": reason, "code": code,
            "details": {"causes": [{"reason": cause}]},
        });
        let server = Server::start(move |_| Reply::Write(reply(line, "", &status.to_string())));
        let (maps, stop) = (maps(&server), Stopper::new());
        let error = maps.get("a", &stop).unwrap_err();
        assert!(is_expected(&error), "{error:?}");
        assert_eq!(
            cases.iter().filter(|(.., is)| is(&error)).count(),
            1,
            "{error:?}"
        );
        let url = server.url();
        let path = "/api/v1/namespaces/n/configmaps/a";
        assert_eq!(
            error.to_string(),
            format!(
                "get configmaps \"a\" in namespace \"n\": GET {url}{path}: no ({code} {reason})"
            )
        );
        let error = maps
            .delete("a", &DeleteOptions::default(), &stop)
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "delete configmaps \"a\" in namespace \"n\": DELETE {url}{path}: no ({code} {reason})"
            )
        );
        let patch = Patch::apply("m", json!({}));
        let error = maps.status().patch("a", &patch, &stop).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("apply configmaps/status \"a\" in namespace \"n\": PATCH "),
            "{error}"
        );
        assert_eq!(
            server.accepted(),
            1,
            "a response that was read to its end must release its connection"
        );
    }
}

#[test]
fn slow_response_times_out() {
    let short = Duration::from_millis(50);
    let api = |server: &Server| {
        let config = Config::new(server.url()).response_timeout(short);
        Client::new(config).unwrap().api::<ConfigMap>(Some("n"))
    };
    for head in [
        Vec::new(),
        first_chunk("{"),
        b"HTTP/1.1 200 OK\r\nContent".to_vec(),
    ] {
        let server = Server::start(move |_| Reply::WriteAndHang(head.clone()));
        let (maps, stop) = (api(&server), Stopper::new());
        for error in [
            maps.get("a", &stop).unwrap_err(),
            maps.create(&json!({"metadata": {"name": "a"}}), &stop)
                .unwrap_err(),
            maps.delete("a", &DeleteOptions::default(), &stop)
                .unwrap_err(),
        ] {
            assert!(error.is_timeout() && error.is_retryable(), "{error:?}");
        }
    }
    // A body in small pieces also times out, although every read is fast enough.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let dripping = thread::spawn(move || {
        use std::io::Write;
        let (mut stream, _) = listener.accept().unwrap();
        super::server::read_request(&mut stream)?;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")?;
        let pause = Stopper::new();
        loop {
            stream.write_all(b" ")?;
            pause.wait_timeout(short / 10);
        }
    });
    let client = Client::new(Config::new(url).response_timeout(short)).unwrap();
    let error = client
        .api::<ConfigMap>(Some("n"))
        .get("a", &Stop::never())
        .unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    let write_result: std::io::Result<()> = dripping.join().unwrap();
    write_result.unwrap_err();
}

#[test]
fn stop_ends_reads_and_writes_before_and_during_response() {
    for body in [Vec::new(), first_chunk("{")] {
        let server = Server::start(move |_| Reply::WriteAndHang(body.clone()));
        let maps = maps(&server);
        let verbs: [fn(&Api<ConfigMap>, &Stop) -> Error; 4] = [
            |maps, stop| maps.get("a", stop).unwrap_err(),
            |maps, stop| {
                maps.create(&json!({"metadata": {"name": "a"}}), stop)
                    .unwrap_err()
            },
            |maps, stop| {
                maps.delete("a", &DeleteOptions::default(), stop)
                    .unwrap_err()
            },
            |maps, stop| {
                maps.modify("a", |_| panic!("the closure ran without an object"), stop)
                    .unwrap_err()
            },
        ];
        for verb in verbs {
            let stop = Stopper::new();
            let (done, result) = channel();
            let (api, stopped) = (maps.clone(), stop.clone());
            thread::spawn(move || done.send(verb(&api, &stopped)).unwrap());
            while !matches!(server.next(), ServerEvent::Request(_)) {}
            let start = Instant::now();
            stop.stop();
            let error = result
                .recv_timeout(SOON)
                .expect("the stop did not end the request");
            assert!(error.is_stopped() && !error.is_retryable(), "{error:?}");
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{:?}",
                start.elapsed()
            );
            assert!(
                verb(&maps, &stop).is_stopped(),
                "a stop before the request must end it"
            );
        }
    }
}

fn contended(conflicts: usize) -> Server {
    let writes = AtomicUsize::new(0);
    Server::start(move |request| {
        let is_read = request.starts_with("GET");
        Reply::Write(
            if is_read || writes.fetch_add(1, Ordering::SeqCst) >= conflicts {
                reply("200 OK", "", MAP)
            } else {
                reply("409 Conflict", "", CONFLICT)
            },
        )
    })
}

#[test]
fn modify_makes_at_most_five_attempts_on_conflict() {
    for conflicts in [0, 1, 4] {
        let server = contended(conflicts);
        let mut calls = 0;
        maps(&server)
            .modify("a", |_| calls += 1, &Stop::never())
            .unwrap();
        assert_eq!(calls, conflicts + 1);
        for _ in 0..calls {
            assert!(server.request().starts_with("GET "));
            assert!(server.request().starts_with("PUT "));
        }
    }
    let server = contended(5);
    let mut calls = 0;
    let error = maps(&server)
        .modify("a", |_| calls += 1, &Stop::never())
        .unwrap_err();
    assert!(error.is_conflict() && calls == 5, "{calls}: {error:?}");
    let message = format!(
        "replace configmaps \"a\" in namespace \"n\": PUT {}/api/v1/namespaces/n/configmaps/a: too late (409 Conflict)",
        server.url()
    );
    assert_eq!(error.to_string(), message);
    assert_eq!(server.accepted(), 1);
}

#[test]
fn modify_returns_503_of_a_write_without_retry() {
    let server = Server::start(|request| {
        Reply::Write(match request {
            get if get.starts_with("GET") => reply("200 OK", "", MAP),
            _ => reply("503 Busy", "", ""),
        })
    });
    let mut calls = 0;
    let error = maps(&server)
        .modify("a", |_| calls += 1, &Stop::never())
        .unwrap_err();
    assert!(error.is_retryable() && calls == 1, "{calls}: {error:?}");
}

#[test]
fn stop_ends_wait_between_conflict_retries() {
    let stop = Stopper::new();
    let mut calls = 0;
    let result: Result<(), Error> = retry_on_conflict(
        || {
            calls += 1;
            stop.stop();
            Err(Error::from_status(serde_json::from_str(CONFLICT).unwrap()))
        },
        &stop,
    );
    assert!(result.unwrap_err().is_stopped() && calls == 1, "{calls}");
}

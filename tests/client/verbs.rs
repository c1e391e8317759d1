//! Lists, deletions of collections and other verbs against a scripted server.

use std::io::{BufRead, BufReader};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::client::api::{Api, DeleteOptions, FieldValidation, Patch};
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::{ListOptions, ResourceVersionMatch};
use k8s_informer::{
    Client, Config, DynamicObject, Error, Object, ObjectMeta, Stop, Stopper, impl_object,
};
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use serde::Deserialize;
use serde_json::{Value, json};

use super::server::{Reply, SOON, Server, ServerEvent, first_chunk, reply};

/// A type with a required number.
#[derive(Debug, Deserialize)]
pub(crate) struct Counted {
    metadata: ObjectMeta,
    count: u32,
}
impl_object!(Counted, "example.com/v1", "Counted", "counteds", Namespaced);

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

pub(crate) fn counteds(server: &Server) -> Api<Counted> {
    client(server).api(Some("n"))
}

fn configmaps() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

pub(crate) fn all() -> ListOptions {
    ListOptions::default()
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> String {
    json!({"kind": "Status", "status": "Failure", "message": message, "reason": reason, "code": code})
        .to_string()
}

/// A list of `Counted` objects. Those without a count cannot be decoded.
fn list(metadata: Value, counts: &[Option<u32>]) -> String {
    let item = |(at, count): (usize, &Option<u32>)| {
        let mut item =
            json!({"metadata": {"name": format!("c{at}"), "namespace": "n"}, "secret": "s3cret"});
        if let Some(count) = count {
            item["count"] = (*count).into();
        }
        item
    };
    let items: Vec<Value> = counts.iter().enumerate().map(item).collect();
    json!({"kind": "CountedList", "apiVersion": "example.com/v1", "metadata": metadata, "items": items})
        .to_string()
}

/// Returns the next request line and body.
fn next_request(server: &Server) -> (String, String) {
    let request = loop {
        if let ServerEvent::Request(request) = server.next() {
            break request;
        }
    };
    let (head, body) = request.split_once("\r\n\r\n").unwrap();
    (
        head.lines()
            .next()
            .unwrap()
            .trim_end_matches(" HTTP/1.1")
            .to_owned(),
        body.to_owned(),
    )
}

#[test]
fn list_and_watch_send_their_options_as_query() {
    let server =
        Server::start(|_| Reply::WriteAndClose(reply("200 OK", "", &list(json!({}), &[]))));
    let stop = Stopper::new();
    let mut options = ListOptions::new()
        .label_selector("a in (b)")
        .resource_version(ResourceVersion::new("0"))
        .limit(7);
    counteds(&server).list(&options, &stop).unwrap();
    let collection = "GET /apis/example.com/v1/namespaces/n/counteds";
    let query = "labelSelector=a%20in%20%28b%29&resourceVersion=0&limit=7";
    assert_eq!(next_request(&server).0, format!("{collection}?{query}"));
    drop(counteds(&server).watch(&options, &stop).unwrap());
    assert_eq!(
        next_request(&server).0,
        format!("{collection}?watch=true&{query}")
    );
    client(&server)
        .api::<Counted>(None)
        .list(&all(), &stop)
        .unwrap();
    assert_eq!(next_request(&server).0, "GET /apis/example.com/v1/counteds");
    let mut pages = counteds(&server).pages(&all(), &stop);
    pages.next().unwrap().unwrap();
    assert_eq!(next_request(&server).0, format!("{collection}?limit=500"));
    options.limit = Some(0);
    counteds(&server)
        .pages(&options, &stop)
        .next()
        .unwrap()
        .unwrap();
    assert!(next_request(&server).0.ends_with("&limit=500"));

    // An invalid namespace sends no request.
    let before = server.accepted();
    for namespace in ["..", "a/b", "%2e"] {
        let api = client(&server).api::<ConfigMap>(Some(namespace));
        for error in [
            api.list(&all(), &stop).unwrap_err(),
            api.watch(&all(), &stop).unwrap_err(),
            api.pages(&all(), &stop).next().unwrap().unwrap_err(),
            api.delete_collection(&DeleteOptions::default(), &all(), &stop)
                .unwrap_err(),
        ] {
            assert!(
                error.to_string().contains("can't be part of a path"),
                "{error}"
            );
        }
    }
    let error = client(&server)
        .api::<Node>(Some("n"))
        .list(&all(), &stop)
        .unwrap_err();
    assert!(
        error.to_string().contains("this kind is cluster-scoped"),
        "{error}"
    );
    let without_namespace = client(&server).api::<ConfigMap>(None);
    without_namespace
        .delete_collection(&DeleteOptions::default(), &all(), &stop)
        .unwrap_err();
    assert_eq!(server.accepted(), before);
}

#[test]
fn rejected_request_names_its_selectors() {
    let refusal = status(400, "BadRequest", "unable to parse");
    let server = Server::start(move |_| {
        let kind = "Content-Type: application/json\r\n";
        Reply::Write(reply("400 Bad Request", kind, &refusal))
    });
    let (api, stop) = (counteds(&server), Stopper::new());
    let options = ListOptions::new()
        .label_selector("a in (b\n")
        .field_selector("x");
    let what = r#"counteds.example.com in namespace "n": label selector "a in (b\n": field selector "x": "#;
    let errors = [
        ("list", api.list(&options, &stop).unwrap_err()),
        ("watch", api.watch(&options, &stop).unwrap_err()),
        (
            "page 1: list",
            api.pages(&options, &stop).next().unwrap().unwrap_err(),
        ),
        (
            "delete all",
            api.delete_collection(&DeleteOptions::default(), &options, &stop)
                .unwrap_err(),
        ),
    ];
    for (verb, error) in errors {
        let error = error.to_string();
        assert!(error.starts_with(&format!("{verb} {what}")), "{error}");
        assert!(error.contains("unable to parse"), "{error}");
    }
    let error = api.list(&all(), &stop).unwrap_err().to_string();
    assert!(!error.contains("selector"), "{error}");
}

#[test]
fn list_without_items_is_empty() {
    let bodies = [
        r#"{"kind":"CountedList","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7","continue":"a"}}"#,
        r#"{"items":null,"metadata":{"resourceVersion":"7"},"kind":"CountedList","apiVersion":"example.com/v1"}"#,
        r#"{"metadata":{"resourceVersion":"7"},"apiVersion":"example.com/v1","kind":"CountedList"}"#,
    ];
    let requests = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        let body = bodies[requests.fetch_add(1, Ordering::Relaxed)];
        Reply::Write(reply("200 OK", "Content-Type: application/json\r\n", body))
    });
    let (api, stop) = (counteds(&server), Stopper::new());
    let pages: Vec<_> = api.pages(&all(), &stop).map(Result::unwrap).collect();
    let list = api.list(&all(), &stop).unwrap();
    let lists: Vec<_> = pages.iter().chain([&list]).collect();
    assert_eq!(lists.len(), 3);
    for list in lists {
        assert_eq!(list.resource_version, ResourceVersion::new("7"));
        assert!(list.items.is_empty());
    }
}

#[test]
fn invalid_list_response_is_rejected_without_quoting_it() {
    for (body, expected) in [
        (String::new(), "malformed"),
        (
            "<html>Sign in</html>".to_owned(),
            "HTML or XML instead of JSON",
        ),
        (
            status(404, "NotFound", "s3cret"),
            "not a list: the kind is Status",
        ),
        (list(json!({}), &[Some(1)])[..60].to_owned(), "malformed"),
        (
            r#"{"kind":"CountedList","items":[{"metadata":{}}]}"#.to_owned(),
            "item 1",
        ),
        (
            r#"{"kind":"CountedList","items":["s3cret"]}"#.to_owned(),
            "item 1: unexpected response: not a JSON object",
        ),
        (
            list(json!({"remainingItemCount": 3}), &[Some(1)]),
            "the list is incomplete: remainingItemCount is 3",
        ),
        (
            r#"{"kind":"PodList","apiVersion":"v1","items":[]}"#.to_owned(),
            ", found \"v1\" \"PodList\"",
        ),
        // The error names the object that cannot be decoded.
        (
            list(json!({}), &[Some(1), None, Some(3)]),
            "n/c1: unexpected response: missing field `count`",
        ),
    ] {
        let shown = body.clone();
        let server = Server::start(move |_| Reply::Write(reply("200 OK", "", &body)));
        let (api, stop) = (counteds(&server), Stopper::new());
        let first = api.list(&all(), &stop).unwrap_err();
        let mut pages = api.pages(&all(), &stop);
        let second = pages.next().unwrap().unwrap_err();
        assert!(pages.next().is_none());
        for error in [first, second] {
            let text = format!("{error} {error:?}");
            assert!(
                error.is_decode() && text.contains(expected),
                "{shown}: {text}"
            );
            assert!(
                text.contains("list counteds.example.com in namespace \"n\": "),
                "{text}"
            );
            assert!(
                !text.contains("s3cret") && !text.contains("t0ken"),
                "{text}"
            );
        }
    }
    // The connection closes in the middle of a list.
    let server =
        Server::start(|_| Reply::WriteAndClose(first_chunk(r#"{"kind":"CountedList","items":["#)));
    let error = counteds(&server).list(&all(), &Stop::never()).unwrap_err();
    assert!(error.is_connection() && error.is_retryable(), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("list counteds.example.com in namespace \"n\": GET "),
        "{error}"
    );
}

#[test]
fn pages_follow_continue_token_until_first_error() {
    let gone = status(410, "Expired", "too old");
    let server = Server::start(move |request| {
        let query = request.lines().next().unwrap();
        Reply::Write(if query.contains("continue=second") {
            reply(
                "200 OK",
                "",
                &list(
                    json!({"resourceVersion": "7", "continue": "third"}),
                    &[Some(3)],
                ),
            )
        } else if query.contains("continue=third") {
            reply("410 Gone", "", &gone)
        } else {
            let metadata =
                json!({"resourceVersion": "7", "continue": "second", "remainingItemCount": 5});
            reply("200 OK", "", &list(metadata, &[Some(1), Some(2)]))
        })
    });
    let options = ListOptions::new()
        .label_selector("a")
        .resource_version(ResourceVersion::new("5"))
        .resource_version_match(ResourceVersionMatch::NotOlderThan);
    let mut pages = counteds(&server).pages(&options, &Stop::never());
    assert_eq!(
        server.accepted(),
        0,
        "a request was sent before the first page was requested"
    );
    let first = pages.next().unwrap().unwrap();
    assert_eq!(
        (first.items[1].count, first.remaining_item_count),
        (2, Some(5))
    );
    assert_eq!(pages.next().unwrap().unwrap().items[0].count, 3);
    let error = pages.next().unwrap().unwrap_err();
    assert!(error.is_gone(), "{error:?}");
    assert!(
        error
            .to_string()
            .starts_with("the list expired at page 3: list counteds"),
        "{error}"
    );
    assert!(pages.next().is_none());
    let lines: Vec<String> = (0..3).map(|_| next_request(&server).0).collect();
    assert!(lines[0].ends_with(
        "?labelSelector=a&resourceVersion=5&resourceVersionMatch=NotOlderThan&limit=500"
    ));
    assert!(
        lines[1].ends_with("?labelSelector=a&limit=500&continue=second"),
        "{lines:?}"
    );
    assert!(
        lines[2].ends_with("?labelSelector=a&limit=500&continue=third"),
        "{lines:?}"
    );

    // A 410 for the first page does not mean that the list expired between pages.
    let gone = status(410, "Expired", "too old");
    let server = Server::start(move |_| Reply::Write(reply("410 Gone", "", &gone)));
    let error = counteds(&server)
        .pages(&all(), &Stop::never())
        .next()
        .unwrap()
        .unwrap_err();
    assert!(
        error.is_gone() && error.to_string().starts_with("page 1: list "),
        "{error}"
    );
}

#[test]
fn dynamic_list_items_inherit_kind_from_the_list() {
    let kinds = |list_kind: &str| {
        let items = json!([
            {"metadata": {"name": "a"}}, {"kind": "Own", "apiVersion": "x/v1", "metadata": {"name": "b"}},
        ]);
        let list =
            json!({"kind": list_kind, "apiVersion": "example.com/v1", "items": items}).to_string();
        let server = Server::start(move |_| Reply::Write(reply("200 OK", "", &list)));
        let resource = GroupVersionResource::new("example.com", "v1", "widgets");
        let list = client(&server)
            .dynamic_api(&resource, Some("n"))
            .list(&all(), &Stop::never())
            .unwrap();
        let kind = |object: DynamicObject| format!("{} {}", object.api_version(), object.kind());
        list.into_iter().map(kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds("WidgetList"), ["example.com/v1 Widget", "x/v1 Own"]);
    assert_eq!(kinds("Widgets"), ["example.com/v1 Widgets", "x/v1 Own"]);
    assert_eq!(kinds("List"), [" ", "x/v1 Own"]);
}

#[test]
fn stop_ends_lists_collection_deletes_evictions_and_scales() {
    let beginning = first_chunk("{\"kind\":\"ConfigMapList\",");
    for body in [Vec::new(), beginning] {
        let server = Server::start(move |_| Reply::WriteAndHang(body.clone()));
        let client = client(&server);
        type Verb = fn(&Client, &Stop) -> Error;
        let verbs: [Verb; 5] = [
            |client, stop| {
                client
                    .api::<ConfigMap>(None)
                    .list(&all(), stop)
                    .unwrap_err()
            },
            |client, stop| {
                client
                    .api::<ConfigMap>(None)
                    .pages(&all(), stop)
                    .next()
                    .unwrap()
                    .unwrap_err()
            },
            |client, stop| {
                let maps = client.api::<ConfigMap>(Some("n"));
                maps.delete_collection(&DeleteOptions::default(), &all(), stop)
                    .unwrap_err()
            },
            |client, stop| {
                client
                    .api::<Pod>(Some("n"))
                    .evict("a", &DeleteOptions::default(), stop)
                    .unwrap_err()
            },
            |client, stop| {
                client
                    .api::<Pod>(Some("n"))
                    .subresource::<DynamicObject>("scale")
                    .patch("a", &Patch::merge(json!({})), stop)
                    .unwrap_err()
            },
        ];
        for verb in verbs {
            let stop = Stopper::new();
            let (done, result) = channel();
            let (thread_client, stopped) = (client.clone(), stop.clone());
            thread::spawn(move || done.send(verb(&thread_client, &stopped)).unwrap());
            while !matches!(server.next(), ServerEvent::Request(_)) {}
            let start = Instant::now();
            stop.stop();
            let error = result
                .recv_timeout(SOON)
                .expect("the stop did not end the request");
            assert!(
                error.is_stopped() && start.elapsed() < Duration::from_secs(2),
                "{error:?}"
            );
            assert!(
                verb(&client, &stop).is_stopped(),
                "a stop before the request must end it"
            );
        }
    }
}

#[test]
fn write_options_are_sent_with_writes_only() {
    let map = r#"{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","namespace":"n"},"items":[]}"#;
    let server = Server::answering(map);
    let (plain, stop) = (maps(&server), Stopper::new());
    let api = plain
        .dry_run()
        .field_manager("me & you")
        .field_validation(FieldValidation::Strict);
    let query = "fieldManager=me%20%26%20you&fieldValidation=Strict&dryRun=All";
    let collection = "/api/v1/namespaces/n/configmaps";
    let map = api
        .create(&json!({"metadata": {"name": "a"}}), &stop)
        .unwrap();
    assert_eq!(
        next_request(&server).0,
        format!("POST {collection}?{query}")
    );
    api.replace(&map, &stop).unwrap();
    assert_eq!(
        next_request(&server).0,
        format!("PUT {collection}/a?{query}")
    );
    api.patch("a", &Patch::merge(json!({})), &stop).unwrap();
    assert_eq!(
        next_request(&server).0,
        format!("PATCH {collection}/a?{query}")
    );
    api.status()
        .patch("a", &Patch::merge(json!({})), &stop)
        .unwrap();
    assert_eq!(
        next_request(&server).0,
        format!("PATCH {collection}/a/status?{query}")
    );
    plain
        .status()
        .dry_run()
        .patch("a", &Patch::merge(json!({})), &stop)
        .unwrap();
    assert_eq!(
        next_request(&server).0,
        format!("PATCH {collection}/a/status?dryRun=All")
    );
    api.subresource::<DynamicObject>("scale")
        .patch("a", &Patch::merge(json!({"spec": 7})), &stop)
        .unwrap();
    let (line, body) = next_request(&server);
    assert_eq!(line, format!("PATCH {collection}/a/scale?{query}"));
    assert_eq!(body, r#"{"spec":7}"#);
    // An apply uses the field manager of its patch instead of the API's field manager.
    api.patch("a", &Patch::apply("other", json!({})).force(true), &stop)
        .unwrap();
    let query = query.replace("me%20%26%20you", "other");
    assert_eq!(
        next_request(&server).0,
        format!("PATCH {collection}/a?{query}&force=true")
    );
    // A delete sends the options in its body, because a server reads them only there.
    let none = DeleteOptions::default();
    api.delete("a", &none, &stop).unwrap();
    let dry = r#"{"apiVersion":"v1","dryRun":["All"],"kind":"DeleteOptions"}"#;
    assert_eq!(
        next_request(&server),
        (format!("DELETE {collection}/a"), dry.to_owned())
    );
    let selected = ListOptions::new().label_selector("a=b");
    api.delete_collection(&none, &selected, &stop).unwrap();
    assert_eq!(
        next_request(&server),
        (
            format!("DELETE {collection}?labelSelector=a%3Db"),
            dry.to_owned()
        )
    );
    api.get("a", &stop).unwrap();
    assert_eq!(next_request(&server).0, format!("GET {collection}/a"));
    // The original API is unchanged.
    plain
        .create(&json!({"metadata": {"name": "a"}}), &stop)
        .unwrap();
    assert_eq!(next_request(&server).0, format!("POST {collection}"));
}

#[test]
fn eviction_sends_name_and_options_and_is_not_retried() {
    let refused = status(429, "TooManyRequests", "Cannot evict pod");
    let server = Server::start(move |request| {
        Reply::Write(match request {
            dry if dry.contains("dryRun=All") => reply("201 Created", "", "{}"),
            _ => reply("429 Too Many Requests", "Retry-After: 1\r\n", &refused),
        })
    });
    let (pods, stop) = (client(&server).api::<Pod>(Some("n")), Stopper::new());
    let mut options = DeleteOptions::default();
    options.uid = Some("u".to_owned());
    options.grace_period_seconds = Some(0);
    let error = pods.evict("a", &options, &stop).unwrap_err();
    assert!(
        error.is_too_many_requests() && error.retry_after() == Some(Duration::from_secs(1)),
        "{error:?}"
    );
    let (line, body) = next_request(&server);
    assert_eq!(line, "POST /api/v1/namespaces/n/pods/a/eviction");
    let expected = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "n"},
        "deleteOptions": {
            "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "u"},
        },
    });
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
    pods.dry_run().evict("a", &options, &stop).unwrap();
    assert_eq!(
        next_request(&server).0,
        "POST /api/v1/namespaces/n/pods/a/eviction?dryRun=All",
        "the first eviction must not be retried"
    );

    let (maps, none) = (maps(&server), DeleteOptions::default());
    let before = server.accepted();
    for error in [
        maps.evict("a", &none, &stop).unwrap_err(),
        pods.evict("../a", &none, &stop).unwrap_err(),
        pods.path("a", "../b").unwrap_err(),
        pods.path("a/b", "log").unwrap_err(),
        pods.subresource::<DynamicObject>("")
            .create("a", &json!({}), &stop)
            .unwrap_err(),
        pods.subresource::<DynamicObject>("b/c")
            .create("a", &json!({}), &stop)
            .unwrap_err(),
        client(&server)
            .api::<Pod>(None)
            .path("a", "log")
            .unwrap_err(),
    ] {
        assert!(
            !error.is_retryable() && error.status().is_none(),
            "{error:?}"
        );
    }
    assert_eq!(server.accepted(), before);
}

#[test]
fn list_pages_and_watch_are_retried_after_retry_after() {
    let (busy, empty) = (status(429, "TooManyRequests", "busy"), list(json!({}), &[]));
    let requests = AtomicUsize::new(0);
    let server = Server::start(move |_| {
        Reply::Write(match requests.fetch_add(1, Ordering::Relaxed) % 2 {
            0 => reply("429 Too Many Requests", "Retry-After: 1\r\n", &busy),
            _ => reply("200 OK", "Content-Type: application/json\r\n", &empty),
        })
    });
    let (api, stop) = (counteds(&server), Stopper::new());
    assert!(api.list(&all(), &stop).unwrap().items.is_empty());
    assert_eq!(api.pages(&all(), &stop).map(Result::unwrap).count(), 1);
    assert!(api.watch(&all(), &stop).is_ok());
}

#[test]
fn delete_discards_response_body_above_the_body_limit() {
    let long = list(json!({}), &[Some(1); 5000]);
    let server = Server::start(move |_| Reply::Write(reply("200 OK", "", &long)));
    let api = Client::new(Config::new(server.url()).body_limit(1000))
        .unwrap()
        .api::<Counted>(Some("n"));
    let (none, stop) = (DeleteOptions::default(), Stopper::new());
    api.delete_collection(&none, &all(), &stop).unwrap();
    api.delete("a", &none, &stop).unwrap();
    assert_eq!(
        server.accepted(),
        1,
        "each response must be read to its end"
    );
}

#[test]
fn object_can_be_created_at_a_subresource() {
    let reply = r#"{"kind":"TokenRequest","status":{"token":"s3cret"}}"#;
    let server = Server::answering(reply);
    let resource = GroupVersionResource::new("", "v1", "serviceaccounts");
    let (accounts, stop) = (
        client(&server).dynamic_api(&resource, Some("n")),
        Stopper::new(),
    );
    let body =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let created: DynamicObject = accounts
        .subresource::<DynamicObject>("token")
        .create("a", &body, &stop)
        .unwrap();
    assert_eq!(
        created.read("/status/token").unwrap(),
        Some("s3cret".to_owned())
    );
    let (line, sent) = next_request(&server);
    assert_eq!(line, "POST /api/v1/namespaces/n/serviceaccounts/a/token");
    assert_eq!(serde_json::from_str::<Value>(&sent).unwrap(), body);
    assert_eq!(
        accounts.path("a b:c", "").unwrap(),
        "/api/v1/namespaces/n/serviceaccounts/a%20b:c"
    );
    let path = accounts.path("a b", "token").unwrap();
    client(&server)
        .request(&Request::get(path), &stop)
        .unwrap()
        .bytes()
        .unwrap();
    assert_eq!(
        next_request(&server).0,
        "GET /api/v1/namespaces/n/serviceaccounts/a%20b/token",
        "the path must be encoded exactly once"
    );

    let server = Server::answering("{\"status\":{\"token\":\"s3cret\"");
    let accounts = client(&server).dynamic_api(&resource, Some("n"));
    let error = accounts
        .subresource::<DynamicObject>("token")
        .create("a", &body, &stop)
        .unwrap_err();
    assert!(
        error.is_decode() && !format!("{error:?}").contains("s3cret"),
        "{error:?}"
    );
    assert!(
        error
            .to_string()
            .starts_with("create serviceaccounts/token \"a\" in namespace \"n\": POST ")
    );
}

#[test]
fn subresource_of_metadata_is_read_and_replaced_whole() {
    let scale = r#"{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"a","namespace":"n","uid":"u","resourceVersion":"7"},"spec":{},"status":{"replicas":2,"selector":"a=b"}}"#;
    let server = Server::answering(scale);
    let resource = GroupVersionResource::new("example.com", "v1", "widgets");
    let (widgets, stop) = (
        client(&server).metadata_api(&resource, Some("n")),
        Stopper::new(),
    );
    let scales = widgets.subresource::<DynamicObject>("scale");
    let mut read = scales.get("a", &stop).unwrap();
    assert_eq!(read.json(), scale);
    let path = "/apis/example.com/v1/namespaces/n/widgets/a/scale";
    let request = server.request();
    assert!(
        request.starts_with(&format!("GET {path} "))
            && request.contains("accept: application/json\r\n")
    );
    read.edit(|scale| scale["spec"]["replicas"] = 3.into())
        .unwrap();
    scales.replace(&read, &stop).unwrap();
    let (line, body) = next_request(&server);
    assert_eq!(line, format!("PUT {path}"));
    let mut expected: Value = serde_json::from_str(scale).unwrap();
    expected["spec"]["replicas"] = 3.into();
    assert_eq!(serde_json::from_str::<Value>(&body).unwrap(), expected);
}

#[test]
fn pod_logs_stream_without_timeout_until_stopped() {
    let server = Server::start(|_| {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n";
        Reply::WriteAndHang(format!("{head}4\r\none\n\r\n6\r\ntwo\nth\r\n").into_bytes())
    });
    let config = Config::new(server.url()).response_timeout(Duration::from_millis(100));
    let (client, stop) = (Client::new(config).unwrap(), Stopper::new());
    let pods = client.api::<Pod>(Some("n"));
    let request = Request::get(pods.path("a", "log").unwrap())
        .query("follow", "true")
        .idle_timeout(None);
    let log = client.request(&request, &stop).unwrap().into_body();
    let mut lines = BufReader::new(log).lines();
    assert_eq!(
        next_request(&server).0,
        "GET /api/v1/namespaces/n/pods/a/log?follow=true"
    );
    assert_eq!(lines.next().unwrap().unwrap(), "one");
    assert_eq!(lines.next().unwrap().unwrap(), "two");
    // When the container is silent, the log does not time out like other responses. Only the stop
    // ends the wait.
    let (sender, results) = channel();
    let reading = thread::spawn(move || {
        sender
            .send(lines.next().unwrap().map_err(Error::from))
            .unwrap();
    });
    assert!(
        results.recv_timeout(Duration::from_millis(300)).is_err(),
        "the read returned before the stop"
    );
    stop.stop();
    assert!(
        results
            .recv_timeout(SOON)
            .unwrap()
            .unwrap_err()
            .is_stopped()
    );
    reading.join().unwrap();
}

#[test]
fn metadata_verbs_send_matching_accept_headers() {
    const ONE: &str =
        "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1, application/json";
    let many = ONE.replace("Metadata;", "MetadataList;");
    let list = r#"{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"a"}}]}"#;
    let server = Server::answering(list);
    let (metadata, stop) = (
        client(&server).metadata_api(&configmaps(), None),
        Stopper::new(),
    );
    let accepts = || {
        let request = server.request();
        let line = request
            .lines()
            .find_map(|line| line.strip_prefix("accept: "))
            .unwrap()
            .to_owned();
        (
            request.lines().next().unwrap().replace(" HTTP/1.1", ""),
            line,
        )
    };
    assert_eq!(metadata.list(&all(), &stop).unwrap().items[0].name(), "a");
    assert_eq!(
        accepts(),
        ("GET /api/v1/configmaps".to_owned(), many.clone())
    );
    metadata
        .delete_collection(&DeleteOptions::default(), &all(), &stop)
        .unwrap();
    assert_eq!(accepts(), ("DELETE /api/v1/configmaps".to_owned(), many));
    metadata
        .delete("a", &DeleteOptions::default(), &stop)
        .unwrap();
    assert_eq!(
        accepts(),
        ("DELETE /api/v1/configmaps/a".to_owned(), ONE.to_owned())
    );
    drop(metadata.watch(&all(), &stop).unwrap());
    assert_eq!(
        accepts(),
        (
            "GET /api/v1/configmaps?watch=true".to_owned(),
            ONE.to_owned()
        )
    );
}

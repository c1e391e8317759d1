//! Servers that send another response than the requested one.

use k8s_informer::client::api::{DeleteOptions, Patch};
use k8s_informer::reflector::Shard;
use k8s_informer::{Error, Stop, Stopper};
use serde_json::{Value, json};

use super::server::{Reply, Server, ServerEvent, reply};
use super::verbs::{all, counteds, status};

fn counted(api_version: &str, kind: &str) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": "a", "namespace": "n"},
        "count": 1, "secret": "s3cret",
    })
}

/// Requests an object with several verbs that all receive `body`. Asserts that each error is a
/// decode error without secrets. Returns the result of the first request.
fn read(body: &Value) -> Result<(), Error> {
    let body = body.to_string();
    let server = Server::start(move |_| Reply::Write(reply("200 OK", "", &body)));
    let (api, stop) = (counteds(&server), Stopper::new());
    let results = [
        api.get("a", &stop),
        api.status().get("a", &stop),
        api.patch("a", &Patch::merge(json!({})), &stop),
        api.create(&json!({"metadata": {"name": "a"}}), &stop),
        api.create(&json!({"metadata": {"generateName": "a-"}}), &stop),
    ];
    let [first, ..] = results.map(|result| result.map(drop)).map(|result| {
        if let Err(error) = &result {
            let text = format!("{error} {error:?}");
            assert!(
                error.is_decode() && !text.contains("s3cret") && !text.contains("t0ken"),
                "{text}"
            );
        }
        result
    });
    first
}

#[test]
fn duplicate_json_field_is_an_error_of_the_call() {
    let of = |more: &str| {
        format!(
            r#"{{"apiVersion":"example.com/v1","kind":"Counted","metadata":{{"name":"a","namespace":"n"}},"count":1{more}}}"#
        )
    };
    for (object, expected) in [
        (of(""), None),
        (of(r#","count":2"#), Some("duplicate field `count`")),
    ] {
        let list = format!(
            r#"{{"kind":"CountedList","apiVersion":"example.com/v1","metadata":{{"resourceVersion":"7"}},"items":[{object}]}}"#
        );
        let event = format!("{{\"type\":\"ADDED\",\"object\":{object}}}\n");
        let serving =
            |body: String| Server::start(move |_| Reply::Write(reply("200 OK", "", &body)));
        let stop = Stopper::new();
        let got = counteds(&serving(object)).get("a", &stop).map(drop);
        let listed = counteds(&serving(list))
            .list(&all(), &stop)
            .map(|list| list.items.len());
        let watched = counteds(&serving(event))
            .watch(&all(), &stop)
            .unwrap()
            .next()
            .unwrap()
            .map(drop);
        for (what, error) in [
            ("get", got.err()),
            ("list", listed.err()),
            ("watch", watched.err()),
        ] {
            let text = error.map(|error| error.to_string());
            let as_expected = match (&text, expected) {
                (None, None) => true,
                (Some(text), Some(expected)) => text.contains(expected),
                _ => false,
            };
            assert!(as_expected, "{what}: {text:?}, not {expected:?}");
        }
    }
}

#[test]
fn object_of_wrong_kind_is_rejected() {
    read(&counted("example.com/v1", "Counted")).unwrap();
    for (api_version, kind) in [
        ("example.com/v1", "Other"),
        ("v1", "Counted"),
        ("example.com/v2", "Counted"),
        ("v1", "Status"),
    ] {
        let error = read(&counted(api_version, kind)).unwrap_err().to_string();
        let expected =
            format!("expected example.com/v1 Counted, found \"{api_version}\" \"{kind}\"");
        assert!(error.contains(&expected), "{error}");
        assert!(
            error.contains(" counteds.example.com \"a\" in namespace \"n\": GET "),
            "{error}"
        );
    }
    // As in a list, an object may omit its `kind` and `apiVersion`.
    let mut untyped = counted("", "");
    untyped
        .as_object_mut()
        .unwrap()
        .retain(|field, _| field != "kind" && field != "apiVersion");
    read(&untyped).unwrap();
    // An array of field values is rejected, although serde would decode it.
    let error = read(&json!([{"name": "a", "namespace": "n"}, 1]))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with(": not a JSON object"), "{error}");
}

#[test]
fn repeated_continue_token_ends_pages_with_error() {
    let server = Server::start(|request| {
        let items = if request.contains("continue=") {
            json!([])
        } else {
            json!([counted("example.com/v1", "Counted")])
        };
        let list = json!({
            "kind": "CountedList", "apiVersion": "example.com/v1", "items": items,
            "metadata": {"resourceVersion": "7", "continue": "again"},
        });
        Reply::Write(reply("200 OK", "", &list.to_string()))
    });
    let mut pages = counteds(&server).pages(&all(), &Stop::never());
    assert_eq!(pages.next().unwrap().unwrap().items.len(), 1);
    let error = pages.next().unwrap().unwrap_err();
    assert!(
        error.is_decode() && error.to_string().starts_with("page 2: list counteds"),
        "{error}"
    );
    assert!(pages.next().is_none());
}

#[test]
fn endless_pages_are_an_error() {
    let numbered = |request: &str| {
        let at = request
            .split("continue=t")
            .nth(1)
            .and_then(|rest| rest.split([' ', '&']).next());
        at.map_or(0, |number| number.parse::<u32>().unwrap())
    };
    let endless = |next: fn(u32) -> u32, has_items: bool| {
        Server::start(move |request| {
            let item = has_items.then(|| counted("example.com/v1", "Counted"));
            let list = json!({
                "kind": "CountedList", "apiVersion": "example.com/v1", "items": item.into_iter().collect::<Vec<_>>(),
                "metadata": {"resourceVersion": "7", "continue": format!("t{}", next(numbered(request)))},
            });
            Reply::Write(reply("200 OK", "", &list.to_string()))
        })
    };
    for (server, count, expected) in [
        (
            endless(|number| number % 2 + 1, true),
            3,
            "page 3 repeats a continue token",
        ),
        (
            endless(|number| number + 1, false),
            100,
            "the last 100 of 100 pages contained nothing new",
        ),
    ] {
        let mut pages = counteds(&server).pages(&all(), &Stop::never());
        let error = pages
            .by_ref()
            .take(200)
            .enumerate()
            .find_map(|(at, page)| Some((at + 1, page.err()?)));
        let (page, error) = error.expect("the pages did not end with an error");
        assert_eq!(page, count);
        let shown = format!(
            "page {count}: list counteds.example.com in namespace \"n\": unexpected response: the list never ends: {expected}"
        );
        assert_eq!(error.to_string(), shown);
        assert!(error.is_decode() && pages.next().is_none());
    }
}

#[test]
fn delete_collection_of_one_shard_is_rejected() {
    let server = Server::answering("{}");
    let mut selected = all();
    selected.shard_selector = Shard::new(0, 2).unwrap().selector();
    let error =
        counteds(&server).delete_collection(&DeleteOptions::default(), &selected, &Stop::never());
    let error = error.unwrap_err().to_string();
    assert!(error.contains("shard"), "{error}");
    assert_eq!(server.accepted(), 0);
    selected.shard_selector = None;
    counteds(&server)
        .delete_collection(&DeleteOptions::default(), &selected, &Stop::never())
        .unwrap();
    assert!(
        matches!(server.next(), ServerEvent::Request(request) if request.starts_with("DELETE "))
    );
}

#[test]
fn watch_with_non_event_response_is_an_error() {
    let status = status(200, "", "s3cret");
    let list =
        json!({"kind": "CountedList", "apiVersion": "example.com/v1", "metadata": {}, "items": []});
    for body in [
        status,
        list.to_string(),
        format!("{list:#}"),
        "[]".to_owned(),
        "null".to_owned(),
    ] {
        let shown = body.clone();
        let server = Server::start(move |_| Reply::Write(reply("200 OK", "", &body)));
        let mut events = counteds(&server).watch(&all(), &Stop::never()).unwrap();
        let error = events.next().unwrap().unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(
            error.is_decode() && !text.contains("s3cret"),
            "{shown}: {text}"
        );
        assert!(events.next().is_none() && events.resource_version().is_none());
    }
}

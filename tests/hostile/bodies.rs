//! Responses to a LIST that are not a valid list. Each of them fails its request and leaves the
//! cache unchanged.

use std::sync::Arc;

use k8s_informer::object::GroupVersionKind;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer::{DynamicObject, Error};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use parking_lot::Mutex;

use crate::hostile::objects::object;
use crate::hostile::support::{EXPIRED, LAST, QUEUES, TestInformer, list};

/// The objects of the first list. The last list lacks "c".
fn objects() -> Vec<Vec<u8>> {
    vec![object("a", "1"), object("b", "2"), object("c", "3")]
}

/// Runs an informer whose relists receive one of `bodies` each, and finally a good list. Asserts
/// that only the good list changes the cache. Returns the error of each failed relist.
fn errors(bodies: Vec<Answer>, set: impl Fn(&mut ReflectorOptions)) -> Vec<Error> {
    errors_of_pages(bodies.into_iter().map(|body| vec![body]).collect(), set)
}

/// Like [`errors`], but each relist receives several responses (pages). Returns one error for each
/// relist.
fn errors_of_pages(lists: Vec<Vec<Answer>>, set: impl Fn(&mut ReflectorOptions)) -> Vec<Error> {
    let first = [
        Answer::body(list("4", "", &objects())),
        Answer::body(EXPIRED),
    ];
    let good = [
        Answer::body(list("8", "", &objects()[..2])),
        Answer::open(LAST),
    ];
    let (count, answers) = (lists.len(), lists.into_iter().flatten());
    let script = ScriptedListerWatcher::new(first.into_iter().chain(answers).chain(good));
    let errors = Arc::new(Mutex::new(Vec::new()));
    let informer = TestInformer::<DynamicObject>::run(script, QUEUES[count % 2], |options| {
        let errors = Arc::clone(&errors);
        options.watch_error_handler = Some(Arc::new(move |error: &Error| {
            errors.lock().push(error.clone());
        }));
        set(options);
    });
    let notifications = informer.notifications();
    assert_eq!(notifications, ["+ns/a@1", "+ns/b@2", "+ns/c@3", "-ns/c@?3"]);
    let status = informer.status();
    assert!(status.complete, "{status:?}");
    let errors = errors.lock().clone();
    assert_eq!(errors.len(), count, "{errors:?}");
    errors
}

fn list_with(items: &[u8], beside_metadata: &str) -> Vec<u8> {
    let head = format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"6"}}{beside_metadata},"items":"#
    );
    [head.as_bytes(), items, b"}"].concat()
}

fn broken_bodies() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let good = list("6", "", &objects());
    let text = String::from_utf8(good.clone()).unwrap();
    let after = |bytes: &[u8]| [&good, bytes].concat();
    let before = |bytes: &[u8]| [bytes, &good].concat();
    let instead = |old: &str, new: &str| text.replacen(old, new, 1).into_bytes();
    let meta = |meta: &str| instead(r#""metadata":{"resourceVersion":"6","continue":""}"#, meta);
    let raw = |text: &str| text.as_bytes().to_vec();
    let (a, b) = (object("a", "1"), object("b", "2"));
    let items = |between: &[u8]| list_with(&[b"[", &a[..], between, &b[..], b"]"].concat(), "");
    vec![
        ("an empty body", Vec::new(), "malformed at byte 0"),
        ("white space", raw(" \n\t "), "malformed"),
        ("garbage", raw("garbage"), "malformed at byte 7"),
        ("bytes", vec![0xff, 0xfe, 0, 0x80], "malformed"),
        ("an HTML page", raw("<!DOCTYPE html><html><body>Sign in</body></html>"), "HTML"),
        ("an HTML page after white space", raw("\r\n <html></html>"), "HTML"),
        ("null", raw("null"), "malformed"),
        ("an array of lists", [b"[", &good[..], b"]"].concat(), "malformed"),
        ("an array of objects", raw(r#"[{"metadata":{"name":"a"}}]"#), "malformed"),
        ("an object", object("a", "1"), "not a list"),
        ("an object without items", raw("{}"), "not a list"),
        (
            "a Status",
            raw(r#"{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","code":500,"items":[]}"#),
            "not a list: the kind is Status",
        ),
        (
            "a Table",
            raw(r#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"6"},"columnDefinitions":[],"rows":[],"items":[]}"#),
            "not a list: the kind is Table",
        ),
        ("no kind", instead(r#""kind":"List","#, ""), "not a list: the kind is missing"),
        ("a kind that is a number", instead(r#""List""#, "7"), "malformed"),
        ("a byte order mark", before(b"\xef\xbb\xbf"), "malformed"),
        ("NUL first", before(b"\0"), "malformed"),
        ("UTF-16", good.iter().flat_map(|byte| [0, *byte]).collect(), "malformed"),
        ("garbage after it", after(b"garbage"), "malformed"),
        ("a brace after it", after(b"}"), "malformed"),
        ("another list after it", after(&good), "malformed"),
        ("NUL after it", after(b"\0"), "malformed"),
        ("items is an object", list_with(b"{}", ""), "malformed"),
        ("items is an object of objects", list_with(br#"{"a":{"metadata":{"name":"a"}}}"#, ""), "malformed"),
        ("items is a number", list_with(b"7", ""), "malformed"),
        ("items is a string", list_with(br#""[]""#, ""), "malformed"),
        ("items is false", list_with(b"false", ""), "malformed"),
        ("items has no value", list_with(b"", ""), "malformed"),
        ("items is a truncated null", list_with(b"nul", ""), "malformed"),
        ("no items", instead(r#""items""#, r#""item""#), "not a list"),
        ("items twice", list_with(b"[]", r#","items":[]"#), "malformed"),
        ("items twice, once null", list_with(b"[]", r#","items":null"#), "malformed"),
        ("no comma between items", items(b""), "malformed"),
        ("two commas between items", items(b",,"), "malformed"),
        ("a word after an item", items(b" x,"), "malformed"),
        ("a comma before the items", list_with(&[b"[,", &a[..], b"]"].concat(), ""), "malformed"),
        ("a comma after the items", list_with(&[b"[", &a[..], b",]"].concat(), ""), "malformed"),
        ("only a comma", list_with(b"[,]", ""), "malformed"),
        ("the brace of an item is missing", items(&[b",", &b[..b.len() - 1], b","].concat()), "malformed"),
        ("an extra brace", items(b"},"), "malformed"),
        ("an extra bracket", items(b"],"), "malformed"),
        ("metadata twice", instead(r#""metadata""#, r#""metadata":{},"metadata""#), "malformed"),
        ("metadata is a number", meta(r#""metadata":7"#), "malformed"),
        ("metadata is an array", meta(r#""metadata":["6"]"#), "malformed"),
        ("a version twice", meta(r#""metadata":{"resourceVersion":"6","resourceVersion":"7"}"#), "malformed"),
        ("a version that is a number", meta(r#""metadata":{"resourceVersion":6}"#), "malformed"),
        ("a token that is a number", meta(r#""metadata":{"resourceVersion":"6","continue":7}"#), "malformed"),
        ("a truncated character", meta("\"metadata\":{\"resourceVersion\":\"6\",\"continue\":\"~\"}"), "malformed"),
        (
            "remaining objects without a token",
            meta(r#""metadata":{"resourceVersion":"6","remainingItemCount":3}"#),
            "the list is incomplete: remainingItemCount is 3",
        ),
        (
            "a negative remaining count",
            meta(r#""metadata":{"resourceVersion":"6","remainingItemCount":-1}"#),
            "malformed",
        ),
        (
            "a remaining count that is a string",
            meta(r#""metadata":{"resourceVersion":"6","remainingItemCount":"0"}"#),
            "malformed",
        ),
        ("a million brackets", vec![b'['; 1_000_000], "malformed"),
        ("a million brackets as items", list_with(&vec![b'['; 1_000_000], ""), "malformed"),
        (
            "metadata a million deep",
            meta(&format!("\"metadata\":{}", "{\"a\":".repeat(1_000_000))),
            "malformed",
        ),
    ]
    .into_iter()
    .map(|(case, mut body, error)| {
        if case == "a truncated character" {
            body.iter_mut().filter(|byte| **byte == b'~').for_each(|byte| *byte = 0xc3);
        }
        (case, body, error)
    })
    .collect()
}

#[test]
fn l15_body_that_is_not_a_list_fails_and_deletes_nothing() {
    let bodies = broken_bodies();
    let answers = bodies
        .iter()
        .map(|(_, body, _)| Answer::body(&body[..]))
        .collect();
    let errors = errors(answers, |_| {});
    for ((case, _, expected), error) in bodies.iter().zip(errors) {
        assert!(error.is_decode(), "{case}: {error}");
        let error = error.to_string();
        assert!(
            error.contains(expected) && error.starts_with("list scripted objects: "),
            "{case}: {error}"
        );
    }
}

#[test]
fn l13_last_page_that_is_not_a_list_deletes_nothing() {
    let bodies = broken_bodies();
    let page = || Answer::body(list("6", "more", &objects()[..1]));
    let answers = bodies
        .iter()
        .map(|(_, body, _)| vec![page(), Answer::body(&body[..])])
        .collect();
    let errors = errors_of_pages(answers, |_| {});
    for ((case, _, expected), error) in bodies.iter().zip(errors) {
        assert!(
            error.is_decode() && error.to_string().contains(expected),
            "{case}: {error}"
        );
    }
}

#[test]
fn truncated_list_fails_and_deletes_nothing() {
    let body = list("6", "", &objects());
    let body = body.trim_ascii_end();
    let cuts = || (0..body.len()).map(|cut| &body[..cut]);
    for error in errors(cuts().map(Answer::body).collect(), |_| {}) {
        assert!(error.is_decode(), "{error}");
    }
    let broken = errors(cuts().map(Answer::broken).collect(), |_| {});
    assert!(broken.iter().all(Error::is_connection), "{:?}", broken[0]);
}

#[test]
fn w9_list_of_other_kind_fails_and_deletes_nothing() {
    let list_of = |api_version: &str, kind: &str| {
        let body = String::from_utf8(list("6", "", &objects()[..1])).unwrap();
        let body = body.replacen(r#""List""#, &format!("{kind:?}"), 1);
        Answer::body(body.replacen(r#""v1""#, &format!("{api_version:?}"), 1))
    };
    let others = [
        list_of("v1", "NodeList"),
        list_of("v2", "PodList"),
        list_of("apps/v1", "PodList"),
        list_of("v1", "Pod"),
    ];
    let errors = errors(Vec::from(others), |options| {
        options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod"));
    });
    for error in errors {
        assert!(
            error.is_decode() && error.to_string().contains("expected a list of v1 Pod"),
            "{error}"
        );
    }
}

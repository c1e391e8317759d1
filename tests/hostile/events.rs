//! Invalid events. Each costs only itself or its connection and leaves the rest of the cache
//! unchanged.

use k8s_informer::DynamicObject;
use k8s_informer::informer::InformerQueue;
use k8s_informer::object::{GroupVersionKind, ResourceVersion};
use k8s_informer_testing::{Answer, ScriptedListerWatcher, ScriptedRequest};
use k8s_openapi::api::core::v1::Pod;

use crate::hostile::objects::{
    Broken, broken_for_any_type, broken_for_pods, broken_for_typed, object, with,
};
use crate::hostile::support::{
    Delivery, EXPIRED, LAST, QUEUES, TestInformer, event, initial_events, list,
};

fn objects() -> Vec<Vec<u8>> {
    vec![object("a", "1"), object("b", "2"), object("c", "3")]
}

fn lines(lines: &[&[u8]]) -> Vec<u8> {
    lines
        .iter()
        .flat_map(|line| [line.trim_ascii_end(), b"\n"].concat())
        .collect()
}

/// Lines of a watch that are not valid events.
fn broken_frames() -> Vec<(&'static str, Vec<u8>)> {
    let a = object("a", "7");
    let text = |text: &str| text.as_bytes().to_vec();
    let of = |kind: &str| {
        [
            br#"{"type":"#,
            kind.as_bytes(),
            br#","object":"#,
            &a[..],
            b"}",
        ]
        .concat()
    };
    let modified = |object: &[u8]| event("MODIFIED", object);
    vec![
        ("garbage", text("garbage")),
        (
            "an HTML page",
            text("<html><body>Bad Gateway</body></html>"),
        ),
        ("null", text("null")),
        ("a number", text("7")),
        ("an array", text("[]")),
        (
            "an event as an array",
            [br#"["DELETED","#, &a[..], b"]"].concat(),
        ),
        ("an empty object", text("{}")),
        ("an object", a.clone()),
        ("no type", [br#"{"object":"#, &a[..], b"}"].concat()),
        ("no object", text(r#"{"type":"MODIFIED"}"#)),
        ("a type that is unknown", of(r#""CHANGED""#)),
        ("a type in lower case", of(r#""deleted""#)),
        ("a type that is empty", of(r#""""#)),
        ("a type that is null", of("null")),
        ("a type that is a number", of("7")),
        ("a type twice", of(r#""ADDED","type":"DELETED""#)),
        (
            "an object twice",
            [&of(r#""DELETED""#)[..a.len()], br#","object":{}}"#].concat(),
        ),
        ("object: null", modified(b"null")),
        ("object is a number", modified(b"7")),
        ("object is a string", modified(br#""a""#)),
        (
            "object is an array",
            modified(&[b"[", &a[..], b"]"].concat()),
        ),
        (
            "a byte order mark",
            [b"\xef\xbb\xbf", &of(r#""DELETED""#)[..]].concat(),
        ),
        ("NUL first", [b"\0", &of(r#""DELETED""#)[..]].concat()),
        ("NUL in it", modified(&with("a", "7", ",\"x\":\"\0\"", ""))),
        (
            "a truncated character in it",
            [&modified(b"{\"metadata\":{\"name\":\"")[..33], b"\xc3\"}}}"].concat(),
        ),
        ("a missing brace", event("MODIFIED", &a[..a.len() - 1])),
        ("a missing quote", modified(br#"{"metadata":{"name":"a}}"#)),
        ("garbage in it", modified(br#"{"metadata":{"name":"a"},}"#)),
        ("a million brackets", vec![b'['; 1_000_000]),
        ("a million braces", vec![b'{'; 1_000_000]),
        (
            "an object a million levels deep",
            modified(&b"{\"a\":".repeat(1_000_000)),
        ),
        ("a status", EXPIRED.replace("ERROR", "error").into_bytes()),
    ]
}

#[test]
fn w15_malformed_event_restarts_watch_at_last_good_version() {
    for queue in QUEUES {
        let frames = broken_frames();
        let good = |version: usize| {
            event(
                "ADDED",
                &object(&format!("d{version}"), &version.to_string()),
            )
        };
        let mut answers = vec![Answer::body(list("4", "", &objects()))];
        let broken = frames.iter().zip(10..);
        // The event after the broken frame is not processed.
        answers.extend(broken.map(|((_, frame), version)| {
            Answer::body(lines(&[
                &good(version),
                frame,
                &event("DELETED", &object("b", "900")),
            ]))
        }));
        answers.push(Answer::open(LAST));
        let informer =
            TestInformer::<DynamicObject>::run(ScriptedListerWatcher::new(answers), queue, |_| {});
        informer.until_last();
        let versions = |request: &ScriptedRequest| match request {
            ScriptedRequest::Watch(options) => options.resource_version.clone(),
            _ => None,
        };
        let watches: Vec<_> = informer
            .script
            .requests()
            .iter()
            .filter_map(versions)
            .collect();
        let expected = [4].into_iter().chain(10..10 + frames.len());
        let expected = expected.filter_map(|version| ResourceVersion::new(&version.to_string()));
        assert_eq!(
            watches,
            expected.collect::<Vec<_>>(),
            "{:?}",
            informer.status()
        );
        assert_eq!(informer.status().lists, 1);
        assert_eq!(informer.cache().len(), 3 + frames.len());
        assert!(
            informer
                .notifications()
                .iter()
                .all(|notification| notification.starts_with('+')),
            "{:?}",
            informer.notifications()
        );
        let error = informer.status().last_error.unwrap();
        assert!(
            error.is_decode() && error.to_string().contains("event 2 (last version 41): "),
            "{error}"
        );
    }
}

#[test]
fn invalid_event_line_gives_a_decode_error() {
    for (case, frame) in broken_frames() {
        let answers = [
            Answer::body(list("4", "", &objects())),
            Answer::body(lines(&[&event("MODIFIED", &object("a", "5")), &frame])),
            Answer::open(LAST),
        ];
        let script = ScriptedListerWatcher::new(answers);
        let informer = TestInformer::<Pod>::run(script, InformerQueue::DeltaFifo, |_| {});
        let error = informer.status().last_error.unwrap();
        let place = "watch scripted objects: event 2 (last version 5): ";
        assert!(
            error.is_decode() && error.to_string().starts_with(place),
            "{case}: {error}"
        );
    }
}

#[test]
fn truncated_event_is_ignored() {
    let frame = event("DELETED", &object("b", "9"));
    let frame = frame.trim_ascii_end();
    let cuts = 0..frame.len();
    let mut answers = vec![Answer::body(list("4", "", &objects()))];
    for cut in cuts {
        // A watch with an event before the cut does not count as a very short watch.
        let body = [&event("MODIFIED", &object("a", "7"))[..], &frame[..cut]].concat();
        answers.push(if cut % 2 == 0 {
            Answer::body(body)
        } else {
            Answer::broken(body)
        });
    }
    answers.push(Answer::open(LAST));
    let script = ScriptedListerWatcher::new(answers);
    let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
    assert_eq!(informer.cache(), ["ns/a@7", "ns/b@2", "ns/c@3"]);
    assert!(informer.deleted_keys().is_empty());
    assert_eq!(
        (informer.status().lists, informer.status().complete),
        (1, true)
    );
}

#[test]
fn undecodable_change_skips_only_that_object() {
    let cases = [broken_for_any_type(), broken_for_typed(), broken_for_pods()].concat();
    for (broken, case, bytes) in cases {
        if matches!(broken, Broken::Json | Broken::Text)
            || case.contains("deep") && !case.contains("managed")
        {
            continue; // These end the stream, or `Pod` can decode them.
        }
        if !bytes.starts_with(b"{") {
            continue;
        }
        for (queue, kind) in QUEUES.into_iter().zip(["ADDED", "MODIFIED", "MODIFIED"]) {
            let events = lines(&[&event(kind, &bytes), &event("MODIFIED", &object("c", "6"))]);
            let script = Delivery::List.script(&[("4", objects())], &events);
            let informer = TestInformer::<Pod>::run(script, queue, |_| {});
            assert!(informer.deleted_keys().is_empty(), "{case}");
            assert_eq!(informer.cache(), ["ns/a@1", "ns/b@2", "ns/c@6"], "{case}");
            let status = informer.status();
            assert_eq!(
                (status.complete, status.unreadable, status.watches),
                (false, 1, 1),
                "{case}"
            );
            let error = status.last_error.unwrap();
            let place = if broken == Broken::Form { "ns/b: " } else { "" };
            assert!(
                error.is_decode() && error.to_string().contains(place),
                "{case}: {error}"
            );
        }
    }
}

#[test]
fn undecodable_delete_event_with_readable_name_still_deletes() {
    let cases = [broken_for_any_type(), broken_for_typed(), broken_for_pods()].concat();
    for (broken, case, bytes) in cases {
        if matches!(broken, Broken::Json | Broken::Text)
            || case.contains("deep") && !case.contains("managed")
        {
            continue;
        }
        if !bytes.starts_with(b"{") {
            continue;
        }
        for queue in QUEUES {
            let script = Delivery::List.script(&[("4", objects())], &event("DELETED", &bytes));
            let informer = TestInformer::<Pod>::run(script, queue, |_| {});
            let (gone, cache): (&[_], &[_]) = match broken {
                Broken::Form => (&["ns/b"], &["ns/a@1", "ns/c@3"]),
                _ => (&[], &["ns/a@1", "ns/b@2", "ns/c@3"]),
            };
            assert_eq!(informer.deleted_keys(), gone, "{case} over {queue:?}");
            assert_eq!(informer.cache(), cache, "{case} over {queue:?}");
            let status = informer.status();
            assert_eq!(
                (status.complete, status.unreadable, status.watches),
                (false, 1, 1),
                "{case}"
            );
        }
    }
}

#[test]
fn wl3_undecodable_initial_delete_still_deletes() {
    for queue in QUEUES {
        let deleted = event("DELETED", &with("b", "5", "", r#","spec":7"#));
        let nameless = event("DELETED", br#"{"metadata":{"namespace":"ns"},"spec":7}"#);
        for (deletion, is_deleted) in [(deleted, true), (nameless, false)] {
            let first = [initial_events("4", &objects()), EXPIRED.as_bytes().to_vec()].concat();
            let mut again = [event("ADDED", &object("a", "1")), deletion].concat();
            again.extend(initial_events("6", &[object("c", "3")]));
            again.extend(LAST.as_bytes());
            let script = ScriptedListerWatcher::new([Answer::body(first), Answer::open(again)]);
            let informer = TestInformer::<Pod>::run(script.with_watch_list(), queue, |_| {});
            let cache: &[_] = if is_deleted {
                &["ns/a@1", "ns/c@3"]
            } else {
                &["ns/a@1", "ns/b@2", "ns/c@3"]
            };
            assert_eq!(informer.cache(), cache);
            assert_eq!(
                (informer.status().complete, informer.status().unreadable),
                (is_deleted, 1)
            );
        }
    }
}

#[test]
fn wl3_initial_events_on_one_line_are_all_delivered() {
    let mut line = Vec::new();
    for object in objects() {
        line.extend_from_slice(event("ADDED", &object).trim_ascii_end());
    }
    let first = [initial_events("4", &objects()), EXPIRED.as_bytes().to_vec()].concat();
    let again = [&line[..], &initial_events("6", &[])[..], LAST.as_bytes()].concat();
    let script = ScriptedListerWatcher::new([Answer::body(first), Answer::open(again)]);
    let script = script.with_watch_list();
    let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
    assert_eq!(
        informer.notifications().len(),
        3,
        "{:?}",
        informer.notifications()
    );
    assert_eq!(informer.cache(), ["ns/a@1", "ns/b@2", "ns/c@3"]);
    assert!(informer.status().complete);
}

#[test]
fn wl3_garbage_in_initial_events_falls_back_to_list() {
    for (case, frame) in broken_frames() {
        let first = [initial_events("4", &objects()), EXPIRED.as_bytes().to_vec()].concat();
        let again = lines(&[
            &event("ADDED", &object("a", "1")),
            &frame,
            &initial_events("6", &[]),
        ]);
        let answers = [
            Answer::body(first),
            Answer::body(again),
            Answer::body(list("8", "", &objects()[1..])),
            Answer::open(LAST),
        ];
        let script = ScriptedListerWatcher::new(answers).with_watch_list();
        let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
        assert_eq!(informer.deleted_keys(), ["ns/a"], "{case}");
        assert!(
            matches!(informer.script.requests()[2], ScriptedRequest::List(_)),
            "{case}"
        );
    }
}

#[test]
fn w9_object_of_other_kind_is_reported_and_not_deleted() {
    let other = with("b", "5", "", r#","kind":"Node","apiVersion":"v1""#);
    let table =
        br#"{"kind":"Table","apiVersion":"meta.k8s.io/v1","rows":[{"object":{"metadata":{"name":"b"}}}]}"#;
    for queue in QUEUES {
        for (other, c_is_deleted) in [(&other[..], true), (&table[..], false)] {
            let expects = |options: &mut k8s_informer::reflector::ReflectorOptions| {
                options.expected_kind = Some(GroupVersionKind::new("", "v1", "Pod"));
            };
            let states = [
                ("4", objects()),
                ("6", vec![object("a", "1"), other.to_vec()]),
            ];
            let script = Delivery::WatchList.script(&states, b"");
            let informer = TestInformer::<DynamicObject>::run(script, queue, expects);
            let cache: &[_] = if c_is_deleted {
                &["ns/a@1", "ns/b@2"]
            } else {
                &["ns/a@1", "ns/b@2", "ns/c@3"]
            };
            assert_eq!(informer.cache(), cache);
            assert!(!informer.status().complete);
            let error = informer.status().last_error.unwrap();
            assert!(
                error.is_decode() && error.to_string().contains("expected v1 Pod"),
                "{error}"
            );

            for kind in ["ADDED", "MODIFIED", "DELETED"] {
                let script = Delivery::List.script(&states[..1], &event(kind, other));
                let informer = TestInformer::<DynamicObject>::run(script, queue, expects);
                assert!(informer.deleted_keys().is_empty());
                let error = informer.status().last_error.unwrap();
                assert!(
                    error.is_decode() && error.to_string().contains("expected v1 Pod"),
                    "{error}"
                );
            }
        }
    }
}

#[test]
fn error_event_without_status_triggers_relist() {
    for object in [
        "null",
        "7",
        "[]",
        "{}",
        r#"{"kind":"Pod"}"#,
        r#"{"kind":"Status","code":"x"}"#,
    ] {
        let answers = [
            Answer::body(list("4", "", &objects())),
            Answer::body(event("ERROR", object.as_bytes())),
            Answer::body(list("8", "", &objects()[1..])),
            Answer::open(LAST),
        ];
        let script = ScriptedListerWatcher::new(answers);
        let informer = TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
        assert_eq!(informer.deleted_keys(), ["ns/a"], "{object}");
        let error = informer.status().last_error.unwrap();
        assert!(error.status().is_some(), "{object}: {error}");
    }
}

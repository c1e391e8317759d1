//! Invalid resource versions, and duplicate objects.

use k8s_informer::error::Status;
use k8s_informer::informer::InformerQueue;
use k8s_informer::{DynamicObject, Error};
use k8s_informer_testing::{Answer, ScriptedListerWatcher, ScriptedRequest};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::hostile::objects::{object, with};
use crate::hostile::support::{
    DELIVERIES, LAST, QUEUES, TestInformer, event, initial_events, list,
};

fn refused(code: u16, reason: &str) -> Answer {
    let status: Status = serde_json::from_value(json!({ "code": code, "reason": reason })).unwrap();
    Answer::error(Error::from_status(status))
}

fn describe(request: &ScriptedRequest) -> String {
    let version = request.options().resource_version.as_ref();
    let version = version.map_or("most recent".to_owned(), ToString::to_string);
    format!(
        "{} {version}",
        if matches!(request, ScriptedRequest::List(_)) {
            "list"
        } else {
            "watch"
        }
    )
}

#[test]
fn l8_rejected_version_falls_back_to_most_recent() {
    for version in ["5x", "-5", " ", "99999999999999999999999"] {
        for (code, reason) in [(400, "BadRequest"), (422, "Invalid")] {
            let change = event("MODIFIED", &object("a", version));
            let answers = [
                Answer::body(list("4", "", &[object("a", "1"), object("b", "2")])),
                Answer::body(&change[..]),
                refused(500, "InternalError"),
                refused(code, reason),
                Answer::body(list("8", "", &[object("a", "5")])),
                Answer::open(LAST),
            ];
            let script = ScriptedListerWatcher::new(answers);
            let informer =
                TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
            assert_eq!(informer.cache(), ["ns/a@5"]);
            assert_eq!(informer.deleted_keys(), ["ns/b"]);
            let requests: Vec<_> = informer.script.requests().iter().map(describe).collect();
            let bad = |verb: &str| format!("{verb} {version}");
            assert_eq!(
                requests[2..],
                [
                    bad("watch"),
                    bad("list"),
                    "list most recent".into(),
                    "watch 8".into()
                ]
            );

            // The informer also recovers if it uses watch lists. When the server rejects the watch
            // list, a list follows in the same cycle.
            let answers = [
                Answer::body([initial_events("4", &[object("a", "1")]), change].concat()),
                refused(500, "InternalError"),
                refused(422, "Invalid"),
                refused(code, reason),
                Answer::body(list("8", "", &[object("a", "5")])),
                Answer::open(LAST),
            ];
            let script = ScriptedListerWatcher::new(answers).with_watch_list();
            let informer =
                TestInformer::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
            assert_eq!(informer.cache(), ["ns/a@5"]);
        }
    }
    // The informer also recovers if the server rejects a version that is a valid number.
    let answers = [
        Answer::body(list("4", "", &[object("a", "1")])),
        refused(400, "BadRequest"),
        refused(400, "BadRequest"),
        Answer::body(list("8", "", &[object("a", "5")])),
        Answer::open(LAST),
    ];
    let informer = TestInformer::<DynamicObject>::run(
        ScriptedListerWatcher::new(answers),
        InformerQueue::DeltaFifo,
        |_| {},
    );
    informer.until_last();
    let requests: Vec<_> = informer.script.requests().iter().map(describe).collect();
    assert_eq!(
        requests[1..],
        ["watch 4", "list most recent", "list most recent", "watch 8"]
    );
}

#[test]
fn w10_version_that_is_not_a_string_is_not_adopted() {
    let bad = |kind: &str, version: &str| {
        event(
            kind,
            format!(
                r#"{{"metadata":{{"name":"a","namespace":"ns","resourceVersion":{version}}}}}"#
            )
            .as_bytes(),
        )
    };
    for version in ["6", "null", "[\"6\"]", "{}", "true", "1e400"] {
        let answers = [
            Answer::body(list("4", "", &[object("a", "1")])),
            Answer::body([bad("MODIFIED", version), bad("BOOKMARK", version)].concat()),
            Answer::open(LAST),
        ];
        let script = ScriptedListerWatcher::new(answers);
        let informer = TestInformer::<ConfigMap>::run(script, InformerQueue::DeltaFifo, |_| {});
        informer.until_last();
        let requests: Vec<_> = informer.script.requests().iter().map(describe).collect();
        assert_eq!(requests[1..], ["watch 4", "watch 4"], "{version}");
        assert!(informer.deleted_keys().is_empty());
    }
}

#[test]
fn last_of_duplicate_list_items_wins() {
    for delivery in DELIVERIES {
        for queue in QUEUES {
            let twice = vec![
                object("b", "2"),
                object("a", "1"),
                object("b", "3"),
                object("c", "4"),
            ];
            let again = vec![
                object("b", "3"),
                object("b", "3"),
                object("a", "1"),
                object("a", "5"),
            ];
            let script = delivery.script(&[("4", twice), ("6", again)], b"");
            let informer = TestInformer::<ConfigMap>::run(script, queue, |_| {});
            assert_eq!(
                informer.cache(),
                ["ns/a@5", "ns/b@3"],
                "{delivery:?} {queue:?}"
            );
            assert_eq!(informer.deleted_keys(), ["ns/c"], "{delivery:?} {queue:?}");
        }
    }
}

#[test]
fn object_listed_twice_and_once_broken_is_kept() {
    let broken = with("b", "3", r#","labels":7"#, "");
    for delivery in DELIVERIES {
        for queue in QUEUES {
            for items in [
                [object("b", "2"), broken.clone()],
                [broken.clone(), object("b", "2")],
            ] {
                let states = [
                    ("4", vec![object("b", "1"), object("c", "1")]),
                    ("6", items.to_vec()),
                ];
                let informer =
                    TestInformer::<ConfigMap>::run(delivery.script(&states, b""), queue, |_| {});
                assert_eq!(informer.cache(), ["ns/b@2"], "{delivery:?} {queue:?}");
                assert_eq!(informer.deleted_keys(), ["ns/c"], "{delivery:?} {queue:?}");
                assert_eq!(informer.status().unreadable, 1);
            }
        }
    }
}

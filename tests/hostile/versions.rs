//! Invalid resource versions, and duplicate objects.

use k8s_informer::error::Status;
use k8s_informer::informer::InformerQueue;
use k8s_informer::testing::{Answer, Request, ScriptedListerWatcher};
use k8s_informer::{DynamicObject, Error};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use crate::hostile::objects::{object, with};
use crate::hostile::support::{Informed, LAST, QUEUES, SENDINGS, event, initial_events, list};

fn refused(code: u16, reason: &str) -> Answer {
    let status: Status = serde_json::from_value(json!({ "code": code, "reason": reason })).unwrap();
    Answer::error(Error::from_status(status))
}

fn asked(request: &Request) -> String {
    let version = request
        .options()
        .resource_version
        .as_deref()
        .unwrap_or("most recent");
    format!(
        "{} {version}",
        if matches!(request, Request::List(_)) {
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
            let informed = Informed::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
            assert_eq!(
                (informed.cache(), informed.gone()),
                (vec!["ns/a@5".into()], vec!["ns/b".into()])
            );
            let requests: Vec<_> = informed.script.requests().iter().map(asked).collect();
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
            let informed = Informed::<DynamicObject>::run(script, InformerQueue::DeltaFifo, |_| {});
            assert_eq!(informed.cache(), ["ns/a@5"]);
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
    let informed = Informed::<DynamicObject>::run(
        ScriptedListerWatcher::new(answers),
        InformerQueue::DeltaFifo,
        |_| {},
    );
    informed.until_last();
    let requests: Vec<_> = informed.script.requests().iter().map(asked).collect();
    assert_eq!(
        requests[1..],
        ["watch 4", "list most recent", "list most recent", "watch 8"]
    );
}

#[test]
fn w10_a_version_that_is_no_text_does_not_count() {
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
        let informed = Informed::<ConfigMap>::run(script, InformerQueue::RealFifoInOrder, |_| {});
        informed.until_last();
        let requests: Vec<_> = informed.script.requests().iter().map(asked).collect();
        assert_eq!(requests[1..], ["watch 4", "watch 4"], "{version}");
        assert!(informed.gone().is_empty());
    }
}

#[test]
fn an_object_that_is_listed_twice_is_there_as_it_came_last() {
    for sending in SENDINGS {
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
            let script = sending.script(&[("4", twice), ("6", again)], b"");
            let informed = Informed::<ConfigMap>::run(script, queue, |_| {});
            assert_eq!(
                informed.cache(),
                ["ns/a@5", "ns/b@3"],
                "{sending:?} {queue:?}"
            );
            assert_eq!(informed.gone(), ["ns/c"], "{sending:?} {queue:?}");
        }
    }
}

#[test]
fn an_object_that_is_listed_twice_and_once_broken_stays() {
    let broken = with("b", "3", r#","labels":7"#, "");
    for sending in SENDINGS {
        for queue in QUEUES {
            for items in [
                [object("b", "2"), broken.clone()],
                [broken.clone(), object("b", "2")],
            ] {
                let states = [
                    ("4", vec![object("b", "1"), object("c", "1")]),
                    ("6", items.to_vec()),
                ];
                let informed =
                    Informed::<ConfigMap>::run(sending.script(&states, b""), queue, |_| {});
                assert_eq!(informed.cache(), ["ns/b@2"], "{sending:?} {queue:?}");
                assert_eq!(informed.gone(), ["ns/c"], "{sending:?} {queue:?}");
                assert_eq!(informed.status().unreadable, 1);
            }
        }
    }
}

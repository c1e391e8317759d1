//! Waits for the initial list: when they fail, and the status after them.

use std::sync::Arc;

use k8s_informer::SharedIndexInformer;
use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions, wait_for_cache_sync};
use k8s_informer::reflector::ListerWatcher;
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use crate::informer::support::{SOON, until};
use crate::informer::versions::{QUEUES, run};

fn list(items: &[Value]) -> Answer {
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "10"}, "items": items});
    Answer::body(list.to_string())
}

fn watch_list(items: &[Value]) -> Answer {
    let added = items
        .iter()
        .map(|item| json!({"type": "ADDED", "object": item}));
    let annotations = json!({"k8s.io/initial-events-end": "true"});
    let metadata = json!({"resourceVersion": "10", "annotations": annotations});
    let end = json!({"type": "BOOKMARK", "object": {"metadata": metadata}});
    Answer::open(
        added
            .chain([end])
            .map(|event| format!("{event}\n"))
            .collect::<String>(),
    )
}

fn response(items: &[Value], is_watch_list: bool) -> ScriptedListerWatcher {
    match is_watch_list {
        true => ScriptedListerWatcher::new([watch_list(items)]).with_watch_list(),
        false => ScriptedListerWatcher::new([list(items), Answer::open("")]),
    }
}

fn named(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}})
}

/// A config map whose data is a number, which cannot be decoded.
fn broken(name: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": name, "resourceVersion": "1"}, "data": 7})
}

fn named_options() -> SharedIndexInformerOptions<ConfigMap> {
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.name = Some("configmaps".to_owned());
    options
}

fn config_maps(
    script: ScriptedListerWatcher,
    queue: InformerQueue,
) -> SharedIndexInformer<ConfigMap> {
    SharedIndexInformer::new(Arc::new(script), named_options().queue(queue))
}

#[test]
fn w15_first_list_of_undecodable_objects_fails_the_wait() {
    for (queue, is_watch_list) in QUEUES
        .into_iter()
        .flat_map(|queue| [(queue, false), (queue, true)])
    {
        let informer = config_maps(response(&[broken("a"), broken("b")], is_watch_list), queue);
        run(&informer, |stop| {
            let error = informer.wait_for_sync(SOON, stop).unwrap_err();
            let text = error.to_string();
            let begin =
                "configmaps: none of the 2 objects in the list could be decoded as k8s_openapi::";
            assert!(text.starts_with(begin), "{text}");
            assert!(
                text.contains("::ConfigMap; the first error: n/a: "),
                "{text}"
            );
            assert!(text.contains("expected a map"), "{text}");
            assert!(!error.is_timed_out() && !stop.is_stopped());
            assert!(error.unsynced()[0].undecodable.is_some());
            // The informer itself has synced, as in client-go: the queue has processed an empty
            // list.
            assert!(informer.has_synced() && informer.synced().is_done());
            wait_for_cache_sync([informer.synced()], None, stop).unwrap();
        });
    }
}

#[test]
fn w15_single_broken_object_does_not_fail_the_wait() {
    for is_watch_list in [false, true] {
        for items in [
            &[broken("a")][..],
            &[broken("a"), named("b"), broken("c")],
            &[named("b")],
            &[],
        ] {
            let informer = config_maps(response(items, is_watch_list), InformerQueue::default());
            run(&informer, |stop| {
                informer.wait_for_sync(SOON, stop).unwrap();
            });
        }
    }
}

#[test]
fn w15_later_list_that_decodes_clears_the_error() {
    let gone = json!({"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"});
    let expired = json!({"type": "ERROR", "object": gone}).to_string() + "\n";
    let broken = || list(&[broken("a"), broken("b")]);
    // Each of these lists clears the error: one with a readable object, and an empty one, which has
    // nothing to decode.
    for healed in [list(&[named("a"), self::broken("b")]), list(&[])] {
        let answers = [
            broken(),
            Answer::body(expired.clone()),
            broken(),
            Answer::body(expired.clone()),
        ];
        let script =
            ScriptedListerWatcher::new(answers.into_iter().chain([healed, Answer::open("")]));
        let clock = FakeClock::new();
        let mut options = SharedIndexInformerOptions::<ConfigMap>::default();
        options.reflector.clock = Arc::new(clock.clone());
        let informer = SharedIndexInformer::new(Arc::new(script), options);
        run(&informer, |stop| {
            informer.wait_for_sync(SOON, stop).unwrap_err();
            for relist in 1..=2 {
                clock.wait_for_waits(relist, SOON).unwrap();
                informer.wait_for_sync(SOON, stop).unwrap_err();
                clock.advance(SOON * 10);
            }
            until("error cleared", || informer.status().undecodable.is_none());
            informer.wait_for_sync(SOON, stop).unwrap();
        });
    }
}

#[test]
fn w15_namespace_of_undecodable_objects_fails_the_wait() {
    let source = |namespace: &str, items: &[Value]| {
        (
            namespace.to_owned(),
            Arc::new(response(items, false)) as Arc<dyn ListerWatcher>,
        )
    };
    let bad = |name: &str| json!({"metadata": {"namespace": "bad", "name": name}, "data": 7});
    let sources = [
        source("bad", &[bad("a"), bad("b")]),
        source("n", &[named("a")]),
    ];
    let informer = SharedIndexInformer::for_namespaces(sources, named_options());
    run(&informer, |stop| {
        let error = informer.wait_for_sync(SOON, stop).unwrap_err();
        assert_eq!(error.unsynced().len(), 1);
        assert_eq!(error.unsynced()[0].name, "configmaps in bad", "{error}");
    });
}

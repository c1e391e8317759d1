use std::sync::Mutex as StdMutex;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use k8s_informer::informer::Source;
use k8s_informer::{Client, Config, Stopper};
use k8s_informer_testing::{ApiServer, Fault, Verb};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

use super::*;
use crate::{Applied, Controller, Next};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PATIENCE: Duration = Duration::from_secs(60);

fn object(version: &str, status: u32, time: &str, size: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Web", "spec": {"size": size, "list": [1, {}]}, "status": status,
        "metadata": {"name": "a", "resourceVersion": version, "managedFields": [
            {"manager": "a", "operation": "Apply", "time": time, "fieldsV1": {"f:spec": {}}},
            {"manager": "b", "operation": "Update", "time": time, "subresource": "status", "fieldsV1": status},
        ]},
    })
}

#[test]
fn digests_ignore_the_status_and_its_traces() {
    let applied = AppliedObjects::default();
    let first = applied.digests(object("1", 1, "1", json!("3")));
    assert_eq!(first, applied.digests(object("2", 2, "2", json!("3"))));
    assert!(applied.is_same(&object("3", 3, "3", json!("3")), first));
    let null = json!({"metadata": {"labels": null}, "kind": null});
    assert_eq!(
        applied.digests(null),
        applied.digests(json!({"metadata": {}}))
    );
    for other in [
        json!(3),
        json!("4"),
        json!(["3"]),
        json!({"3": 3}),
        json!(null),
    ] {
        let other = object("1", 1, "1", other);
        assert!(!applied.is_same(&other, first), "{other}");
    }
    assert_ne!(
        applied.hasher.hash_one(1),
        AppliedObjects::default().hasher.hash_one(1)
    );
}

#[test]
fn digest_includes_managed_fields_unless_the_cache_skips_them() {
    let applied = AppliedObjects::default();
    let whole = object("1", 1, "1", json!("3"));
    let first = applied.digests(whole.clone());
    let mut other = whole.clone();
    other["metadata"]["managedFields"][0]["manager"] = json!("c");
    assert!(!applied.is_same(&other, first));
    remove(&mut other["metadata"], "managedFields");
    assert!(applied.is_same(&other, first));
    other["metadata"]["labels"] = json!({"a": "b"});
    assert!(!applied.is_same(&other, first));
}

/// No input of a server or of a type of the user may cause a panic.
#[test]
fn digests_of_malformed_objects_do_not_panic() {
    let applied = AppliedObjects::default();
    for malformed in [
        json!(null),
        json!("text"),
        json!([1]),
        json!({"metadata": "text"}),
        json!({"metadata": {"managedFields": "text"}}),
        json!({"metadata": {"managedFields": [1, "text", {"subresource": 1}, null]}}),
    ] {
        let digests = applied.digests(malformed.clone());
        assert!(applied.is_same(&malformed, digests), "{malformed}");
    }
}

#[test]
fn hash_of_what_was_sent_has_nulls_manager_and_force() {
    let applied = AppliedObjects::default();
    let child = json!({"a": {"b": 1, "c": [null]}, "d": null});
    let sent = [
        applied.sent(&child, "m", false),
        applied.sent(&child, "m", true),
        applied.sent(&child, "n", false),
        applied.sent(&json!({"a": {"b": 1, "c": [null]}}), "m", false),
        applied.sent(&json!({"a": {"b": 1, "c": []}, "d": null}), "m", false),
        applied.sent(&json!({"a": {"b": 1}, "c": [null], "d": null}), "m", false),
    ];
    let different: std::collections::BTreeSet<_> = sent.iter().collect();
    assert_eq!(different.len(), sent.len());
    assert_eq!(sent[0], applied.sent(&child, "m", false));
}

#[test]
fn fight_is_reported_once_until_it_calms() {
    let (mut fight, start) = (Fight::default(), Instant::now());
    let mut at = |seconds: u64| fight.count(start + Duration::from_secs(seconds));
    let mut reports = |seconds: &mut dyn Iterator<Item = u64>| {
        let reports: Vec<_> = seconds.filter(|second| at(*second)).collect();
        reports
    };
    assert_eq!(reports(&mut (0..10)), [9]);
    assert!(reports(&mut (10..200)).is_empty(), "one line");
    assert_eq!(reports(&mut (400..420)), [409], "after a calm time");
    // Nine in each minute are no fight.
    let slow = (0..9)
        .chain(61..70)
        .chain(122..131)
        .map(|second| 1000 + second);
    assert!(reports(&mut slow.into_iter()).is_empty());
}

fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

/// Runs a controller that applies the ConfigMap `m`, and sends what it did.
fn start(
    server: &ApiServer,
    results: Sender<Applied>,
) -> (Controller<Deployment>, Stopper, thread::JoinHandle<()>) {
    let client = Client::new(Config::new(server.url())).unwrap();
    let results = StdMutex::new(results);
    let builder = Controller::builder(&client, Source::of::<Deployment>(), "memory");
    let controller = builder.owns(Source::of::<ConfigMap>()).by(move |cx, web| {
        if web.metadata.labels.is_none() {
            let applied = cx.apply::<ConfigMap>(json!({"metadata": {"name": "m"}}))?;
            results.lock().unwrap().send(applied)?;
        }
        Ok(Next::Done)
    });
    let (controller, stop) = (controller.unwrap(), Stopper::new());
    let run = (controller.clone(), stop.clone());
    let thread = thread::spawn(move || run.0.run(&run.1).unwrap());
    (controller, stop, thread)
}

#[test]
fn answers_are_forgotten_with_their_objects_and_at_the_end() {
    let server = ApiServer::start().unwrap();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server
        .create(path, json!({"metadata": {"name": "web"}}))
        .unwrap();
    let (sender, results) = channel();
    let (controller, stop, thread) = start(&server, sender);
    let reconcile_loop = controller.runner.current();
    let applied = &reconcile_loop.own_writes.applied;
    let len = || applied.answers.lock().len();
    assert_eq!(results.recv_timeout(PATIENCE).unwrap(), Applied::Created);
    assert_eq!(results.recv_timeout(PATIENCE).unwrap(), Applied::NotSent);
    assert_eq!(len(), 1);
    // The label stops the applies.
    server
        .patch(
            &format!("{path}/web"),
            json!({"metadata": {"labels": {"stop": "it"}}}),
        )
        .unwrap();
    wait_until(|| {
        let web = controller.lister().get("default", "web").unwrap();
        let status = controller.status();
        let is_idle = status.running.is_empty() && status.queued + status.postponed == 0;
        web.metadata.labels.is_some() && is_idle
    });
    server.delete(&format!("{MAPS}/m")).unwrap();
    wait_until(|| len() == 0);
    server
        .patch(
            &format!("{path}/web"),
            json!({"metadata": {"labels": null}}),
        )
        .unwrap();
    while results.recv_timeout(PATIENCE).unwrap() != Applied::Created {}
    stop.stop();
    thread.join().unwrap();
    assert_eq!(len(), 0);
}

#[test]
fn newer_object_of_the_same_name_is_not_forgotten() {
    let (applied, id) = (AppliedObjects::default(), (1, "a/b".into()));
    let answer = |uid: &str| Answer {
        sent: 1,
        uid: uid.to_owned(),
        version: "1".to_owned(),
        digests: [1, 2],
        fight: Fight::default(),
    };
    applied.set(&id, answer("new"));
    applied.forget(&id, "old");
    assert!(applied.get(&id, "new").is_some() && applied.get(&id, "old").is_none());
    assert!(applied.get(&(2, "a/b".into()), "new").is_none());
    applied.forget(&id, "new");
    assert!(applied.get(&id, "new").is_none());
}

/// The deletion is observed before the response arrives, so that nothing else would forget it.
#[test]
fn answer_that_comes_after_the_deletion_is_forgotten() {
    let server = ApiServer::start().unwrap();
    let late = Fault::delay(Duration::from_millis(500)).after_bytes(0);
    server.fail_next(late.on(Verb::Patch).resource("configmaps"));
    let path = "/apis/apps/v1/namespaces/default/deployments";
    server
        .create(path, json!({"metadata": {"name": "web"}}))
        .unwrap();
    let (sender, results) = channel();
    let (controller, stop, thread) = start(&server, sender);
    wait_until(|| server.get(&format!("{MAPS}/m")).is_ok());
    let labels = json!({"metadata": {"labels": {"stop": "it"}}});
    server.patch(&format!("{path}/web"), labels).unwrap();
    wait_until(|| {
        let web = controller.lister().get("default", "web");
        web.is_some_and(|web| web.metadata.labels.is_some())
    });
    server.delete(&format!("{MAPS}/m")).unwrap();
    assert_eq!(results.recv_timeout(PATIENCE).unwrap(), Applied::Created);
    let reconcile_loop = controller.runner.current();
    let applied = &reconcile_loop.own_writes.applied;
    wait_until(|| applied.answers.lock().is_empty());
    stop.stop();
    thread.join().unwrap();
}

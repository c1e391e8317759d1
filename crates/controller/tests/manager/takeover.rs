//! No call begins before the caches contain what was committed before the term.

use std::sync::{Arc, mpsc};

use k8s_informer::Object;
use k8s_informer::informer::FactoryOptions;
use k8s_informer::reflector::ReflectorOptions;
use k8s_informer_controller::{Context, Manager, Next};
use k8s_informer_testing::{ApiServer, Fault, RequestRecord, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use serde_json::json;

use super::{MAPS, PATIENCE, Running, client, create_map, get, replica, send_names};
use crate::support::until;

const SECRETS: &str = "/api/v1/namespaces/default/secrets";

fn lists(server: &ApiServer, resource: &str) -> Vec<RequestRecord> {
    let requests = server.requests().into_iter();
    let lists = requests
        .filter(|request| request.verb() == Verb::List && request.resource() == Some(resource));
    lists.collect()
}

/// A source without permission holds up only the controllers that use it.
#[test]
fn cr9_source_that_cannot_be_read_holds_up_only_its_controllers() {
    let server = ApiServer::start().unwrap();
    create_map(&server, "a");
    server
        .create(SECRETS, json!({"metadata": {"name": "b"}}))
        .unwrap();
    let first = Running::start(replica(&server, "first"));
    assert!(
        first
            .manager
            .elector()
            .unwrap()
            .wait_for_leadership(PATIENCE, &first.stop)
            .is_ok()
    );

    let second = replica(&server, "second");
    let maps = send_names(&second);
    let (sender, secrets) = mpsc::channel();
    let controller = second.reconcile::<Secret>("secrets").by(move |_, secret| {
        sender.send(secret.metadata.name.clone())?;
        Ok(Next::Done)
    });
    let (controller, second) = (controller.unwrap(), Running::start(second));
    let factory = second.manager.factory();
    assert!(factory.informer::<Secret>().synced().wait_timeout(PATIENCE));
    server.fail_next(
        Fault::status(403)
            .on(Verb::List)
            .resource("secrets")
            .always(),
    );
    first.end().unwrap();

    assert_eq!(maps.recv_timeout(PATIENCE).unwrap(), "a");
    let is_reported = || {
        let caches = controller.status().old_caches;
        caches.iter().any(|wait| wait.reason.contains("403"))
    };
    until("the status has the reason", is_reported);
    assert!(secrets.try_recv().is_err());
    let address = second.manager.health_address().unwrap();
    let status = get(address, "/status");
    assert!(
        status.contains("\"oldCaches\": [\n        {\n          \"informer\": \"secrets\""),
        "{status}"
    );
    let metric =
        "controller_runtime_source_wait_seconds{controller=\"secrets\",source=\"secrets\"}";
    let has_metric = |text: &str| second.manager.metrics().render().contains(text);
    until("the metric exists", || has_metric(metric));
    assert!(get(address, "/readyz").ends_with("ok"));
    assert!(second.manager.elector().unwrap().is_leader());

    server.clear_faults();
    assert_eq!(
        secrets.recv_timeout(PATIENCE).unwrap().as_deref(),
        Some("b")
    );
    assert!(controller.status().old_caches.is_empty());
    until("the metric is reset", || {
        has_metric(&format!("{metric} 0\n"))
    });
    second.end().unwrap();
}

/// The wait ends with a stop.
#[test]
fn stop_ends_the_wait_for_current_caches() {
    let server = ApiServer::start().unwrap();
    let options = ReflectorOptions::new().watch_list(false);
    let manager = Manager::builder(client(&server))
        .informers(FactoryOptions::new().reflector(options))
        .build()
        .unwrap();
    let _names = send_names(&manager);
    server.fail_next(Fault::status(403).on(Verb::List).skip(1).always());
    let running = Running::start(manager);
    until("the read was sent", || {
        lists(&server, "configmaps").len() > 1
    });
    running.end().unwrap();
}

/// The first list can be old if it is not a consistent read.
#[test]
fn start_without_election_reads_only_what_the_first_list_does_not_prove() {
    for watch_list in [true, false] {
        let server = ApiServer::start().unwrap();
        create_map(&server, "a");
        let options = ReflectorOptions::new().watch_list(watch_list);
        let manager = Manager::builder(client(&server))
            .informers(FactoryOptions::new().reflector(options))
            .build()
            .unwrap();
        let names = send_names(&manager);
        let running = Running::start(manager);
        assert_eq!(names.recv_timeout(PATIENCE).unwrap(), "a");
        let lists = lists(&server, "configmaps");
        let limits: Vec<_> = lists
            .iter()
            .map(|request| request.param("limit").map(str::to_owned))
            .collect();
        match watch_list {
            true => assert!(limits.is_empty(), "{limits:?}"),
            false => assert_eq!(limits, ["500", "1"].map(|limit| Some(limit.to_owned()))),
        }
        running.end().unwrap();
    }
}

/// Adds a controller with a finalizer. It sends the names of objects that are cleaned up, and whether
/// they have vanished.
fn clean_up(manager: &Manager) -> mpsc::Receiver<(String, bool)> {
    let (sender, cleanups) = mpsc::channel();
    let cleanup = move |cx: &Context, map: &Arc<ConfigMap>| {
        sender.send((map.name().to_owned(), cx.has_vanished()))?;
        Ok(Next::Done)
    };
    manager
        .reconcile::<ConfigMap>("maps")
        .finalizer("example.com/test", |_| true, cleanup)
        .by(|_, _| Ok(Next::Done))
        .unwrap();
    cleanups
}

/// The earlier leader may have cleaned up, or a person may have removed the finalizer.
#[test]
fn cr14_states_that_a_standby_has_cached_prove_nothing() {
    for is_missed in [true, false] {
        let server = ApiServer::start().unwrap();
        create_map(&server, "a");
        let first = replica(&server, "first");
        let of_first = clean_up(&first);
        let first = Running::start(first);
        let path = format!("{MAPS}/a");
        until("the object has its finalizer", || {
            server.get(&path).unwrap()["metadata"]["finalizers"].is_array()
        });
        let second = replica(&server, "second");
        let of_second = clean_up(&second);
        let second = Running::start(second);
        let maps = second.manager.factory().informer::<ConfigMap>();
        until("the standby has the finalizer", || {
            let map = maps.lister().get("default", "a");
            map.is_some_and(|map| map.metadata.finalizers.is_some())
        });
        // Neither sees the deletion.
        // The third watch is that of the Lease.
        server.wait_for_watches(3, PATIENCE).unwrap();
        server.fail_watches(&Fault::stall().resource("configmaps"));
        server.vanish(&path).unwrap();
        if is_missed {
            server.compact();
        }
        first.end().unwrap();
        assert!(of_first.try_recv().is_err());
        create_map(&server, "b");
        until("the second replica works", || {
            let map = server.get(&format!("{MAPS}/b")).unwrap();
            map["metadata"]["finalizers"].is_array() && maps.lister().get("default", "a").is_none()
        });
        second.end().unwrap();
        // The deletion event has the last state, whoever has led.
        let expected = if is_missed {
            vec![]
        } else {
            vec![("a".to_owned(), true)]
        };
        assert_eq!(of_second.try_iter().collect::<Vec<_>>(), expected);
    }
}

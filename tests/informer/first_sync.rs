//! The first sync of a program: how waits for it end, and their errors.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use k8s_informer::error::WaitError;
use k8s_informer::informer::{InformerScope, Source, SyncOptions};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::{
    Client, Config, ObjectMeta, SharedInformerFactory, Stop, Stopper, impl_object, observe,
};
use k8s_informer_testing::{ApiServer, Fault};
use serde::Deserialize;
use serde_json::json;

use crate::informer::support::{SOON, logged, logging, until};

const INSTANT: Duration = Duration::from_millis(10);

fn server() -> (ApiServer, Client) {
    let server = ApiServer::start().unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    (server, client)
}

fn resource(name: &str) -> GroupVersionResource {
    GroupVersionResource::new("", "v1", name)
}

fn fail_fast() -> SyncOptions {
    SyncOptions::new().timeout(SOON).fail_fast(true)
}

#[test]
fn fa4_factory_never_started_fails_the_wait() {
    let (_server, client) = server();
    let factory = SharedInformerFactory::new(client);
    let stop = Stopper::new();
    factory.wait_for_cache_sync(None, &stop).unwrap();
    factory.informer_for(Source::dynamic(resource("pods")));
    factory.informer_for(Source::dynamic(resource("configmaps")));
    let error = factory.wait_for_cache_sync(None, &stop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call `start` first; not started: configmaps, pods"
    );
    assert!(error.unsynced().iter().all(|one| one.not_started));
    assert!(!error.is_stopped() && !error.is_timed_out() && !error.is_refused());

    // An observation starts its own informer and no other.
    let nodes = factory
        .observe(Source::dynamic(resource("nodes")))
        .start()
        .unwrap();
    nodes.wait_for_sync(SOON, &stop).unwrap();
    let error = factory.wait_for_cache_sync(None, &stop).unwrap_err();
    assert_eq!(
        error.to_string(),
        "call `start` first; not started: configmaps, pods"
    );

    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(SOON, &stop).unwrap();
    drop(nodes);
    factory.shut_down(None).unwrap();
}

#[test]
fn fail_fast_wait_ends_with_the_first_refusal() {
    for code in [400, 401, 403, 404] {
        let (server, client) = server();
        server.fail_next(Fault::status(code).always());
        let factory = SharedInformerFactory::new(client);
        let pods = factory.informer_for(Source::dynamic(resource("pods")));
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        let of_the_factory = factory.wait_for_cache_sync(fail_fast(), &stop).unwrap_err();
        // The server has already rejected a request of the informer, so this wait fails at once.
        let of_the_informer = pods.wait_for_sync(fail_fast(), &stop).unwrap_err();
        for error in [of_the_factory, of_the_informer] {
            assert!(
                error.is_refused() && !error.is_timed_out() && !error.is_stopped(),
                "{error}"
            );
            let text = error.to_string();
            assert!(text.starts_with("cannot sync: pods (list pods: "), "{text}");
            assert!(text.contains(&code.to_string()), "{text}");
        }
        factory.shut_down(None).unwrap();
    }
}

#[test]
fn fail_fast_wait_continues_on_transient_errors() {
    let (server, client) = server();
    // Six failures are three cycles, each with a watch-list and a list.
    server.fail_next(Fault::status(503).times(6));
    let pods = SharedInformerFactory::new(client)
        .observe(Source::dynamic(resource("pods")))
        .start()
        .unwrap();
    pods.wait_for_sync(fail_fast(), &Stop::never()).unwrap();
    assert_eq!(server.pending_faults(), 0);
    let error = pods.status().last_error.unwrap();
    assert_eq!(error.status().unwrap().code, 503, "{error}");
}

#[test]
fn fail_fast_wait_ends_while_another_informer_is_silent() {
    let (server, client) = server();
    server.fail_next(Fault::stall().resource("configmaps").always());
    server.fail_next(Fault::status(403).resource("secrets").always());
    let factory = SharedInformerFactory::new(client);
    factory.informer_for(Source::dynamic(resource("configmaps")));
    factory.informer_for(Source::dynamic(resource("secrets")));
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    let error = factory
        .wait_for_cache_sync(SyncOptions::new().fail_fast(true), &stop)
        .unwrap_err();
    assert!(error.is_refused(), "{error}");
    let names: Vec<_> = error
        .unsynced()
        .iter()
        .map(|one| one.name.as_str())
        .collect();
    assert_eq!(names, ["configmaps", "secrets"]);
    factory.shut_down(None).unwrap();
}

#[test]
fn lifted_refusal_does_not_end_a_later_wait() {
    let (server, client) = server();
    let scope = InformerScope::all().namespace("blue").namespace("green");
    server.fail_next(
        Fault::status(403)
            .when(|request| request.path().contains("/blue/"))
            .times(2),
    );
    server.fail_next(
        Fault::status(503)
            .when(|request| request.path().contains("/green/"))
            .always(),
    );
    let pods = SharedInformerFactory::new(client)
        .observe(Source::dynamic(resource("pods")))
        .scope(scope)
        .start()
        .unwrap();
    let listed = || {
        pods.informer()
            .statuses()
            .iter()
            .any(|(_, status)| status.listed)
    };
    until("blue listed", listed);
    let options = SyncOptions::new().timeout(INSTANT).fail_fast(true);
    let error = pods.wait_for_sync(options, &Stop::never()).unwrap_err();
    assert!(error.is_timed_out() && !error.is_refused(), "{error}");
}

#[test]
fn sync_error_distinguishes_timeout_stop_and_end() {
    let (server, client) = server();
    server.fail_next(Fault::status(403).always());
    let factory = SharedInformerFactory::new(client);
    let pods = factory.informer_for(Source::dynamic(resource("pods")));
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    until("failed", || pods.status().last_error.is_some());
    let kind = |error: &WaitError| (error.is_stopped(), error.is_timed_out(), error.is_refused());
    let error = factory.wait_for_cache_sync(INSTANT, &stop).unwrap_err();
    assert_eq!(kind(&error), (false, true, false), "{error}");
    stop.stop();
    let error = factory.wait_for_cache_sync(fail_fast(), &stop).unwrap_err();
    assert_eq!(kind(&error), (true, false, false), "{error}");
    let error = pods.wait_for_sync(fail_fast(), &stop).unwrap_err();
    assert_eq!(kind(&error), (true, false, false), "{error}");
    // The stop of this wait is a new one that is not signalled, but the informer has ended.
    let error = pods.wait_for_sync(SOON, &Stop::never()).unwrap_err();
    assert_eq!(kind(&error), (false, false, false), "{error}");
    assert!(
        error
            .to_string()
            .starts_with("ended before syncing: pods ("),
        "{error}"
    );
    factory.shut_down(None).unwrap();
}

#[test]
fn observation_reports_errors_to_its_callback() {
    let (server, client) = server();
    server.fail_next(Fault::status(403).always());
    let factory = SharedInformerFactory::new(client);
    let (sender, errors) = mpsc::channel();
    let first = factory.observe(Source::dynamic(resource("pods")));
    let first = first
        .on_error(move |error| sender.send(error.clone()).unwrap())
        .start()
        .unwrap();
    // A second observation of the same informer, whose error callback panics.
    let second = factory.observe(Source::dynamic(resource("pods")));
    let second = second
        .on_error(|error| panic!("cannot bear {error}"))
        .start()
        .unwrap();
    for _ in 0..2 {
        assert!(errors.recv_timeout(SOON).unwrap().is_forbidden());
    }
    // Dropping the observation also drops its error callback, so the channel closes.
    drop(first);
    assert!(errors.iter().all(|error| error.is_forbidden()));
    drop(second);
}

#[derive(Deserialize)]
struct Counts {
    metadata: ObjectMeta,
    #[expect(
        dead_code,
        reason = "decoding fails at this field, so nothing reads it"
    )]
    data: BTreeMap<String, u32>,
}

impl_object!(Counts, "v1", "ConfigMap", "configmaps", Namespaced);

#[test]
fn observation_reports_objects_that_cannot_be_decoded() {
    let (server, client) = server();
    let (sender, errors) = mpsc::channel();
    let maps =
        observe::<Counts>(client).on_error(move |error| sender.send(error.to_string()).unwrap());
    let maps = maps.start().unwrap();
    maps.wait_for_sync(SOON, &Stop::never()).unwrap();
    let map = json!({"metadata": {"name": "a"}, "data": {"n": "many"}});
    server
        .create("/api/v1/namespaces/default/configmaps", map)
        .unwrap();
    let error = errors.recv_timeout(SOON).unwrap();
    assert!(
        error.starts_with("watch configmaps: default/a: "),
        "{error}"
    );
}

#[test]
fn refused_list_is_logged_once_as_permanent() {
    logging();
    let (server, client) = server();
    let factory = SharedInformerFactory::new(client);
    let scope = InformerScope::all()
        .namespace("bad-selector")
        .field_selector("spec.colour=red");
    let pods = factory.informer_for(Source::dynamic(resource("pods")).scope(scope.clone()));
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    let error = pods.wait_for_sync(fail_fast(), &stop).unwrap_err();
    assert!(
        error.is_refused() && error.to_string().contains("400"),
        "{error}"
    );
    let line = logged(&["WARN ", "bad-selector", "this error persists until"]);
    assert!(
        line.starts_with("WARN list pods in namespace \"bad-selector\""),
        "{line}"
    );
    drop(server);
    factory.shut_down(None).unwrap();
}

#[test]
fn wait_and_start_errors_have_equal_debug_and_display() {
    let (server, client) = server();
    server.fail_next(Fault::status(403).always());
    let pods = SharedInformerFactory::new(client)
        .observe(Source::dynamic(resource("pods")))
        .start()
        .unwrap();
    let error = pods.wait_for_sync(fail_fast(), &Stop::never()).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
    let cause = error.unsynced()[0].last_error.clone().unwrap();
    assert_eq!(format!("{cause:?}"), cause.to_string());
    let factory = SharedInformerFactory::new(Client::new(Config::new(server.url())).unwrap());
    factory.shut_down(None).unwrap();
    let error = factory.start(&Stop::never()).unwrap_err();
    assert_eq!(format!("{error:?}"), error.to_string());
}

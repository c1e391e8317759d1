//! Factories (FA).

use std::collections::HashMap;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use k8s_informer::error::{ShutdownError, WaitCause};
use k8s_informer::handler::HandlerFuncs;
use k8s_informer::informer::{FactoryOptions, InformerError, Source, SyncOptions};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::{
    ListerWatcher, ListerWatcherSource, ReflectorOptions, ReflectorState,
};
use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop, Stopper};
use k8s_informer_testing::{ApiServer, FakeClock, Fault, RequestRecord, Verb};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use parking_lot::Mutex;
use serde_json::json;

use super::{one_thread, queue_kind};
use crate::informer::support::{
    Door, Feed, Informer, SOON, options, record, recorder, run, soon, status, until,
};

/// The resource and the namespace of a `lister_watcher` call.
type ListerWatcherCall = (String, Option<String>);

/// One feed per resource, and the recorded calls.
#[derive(Clone, Default)]
struct Feeds {
    feeds: Arc<Mutex<HashMap<String, Feed>>>,
    calls: Arc<Mutex<Vec<ListerWatcherCall>>>,
}

impl Feeds {
    fn feed(&self, resource: &str) -> Feed {
        let new = || Feed::new(String::leak(resource.to_owned()));
        self.feeds
            .lock()
            .entry(resource.to_owned())
            .or_insert_with(new)
            .clone()
    }
}

impl ListerWatcherSource for Feeds {
    fn lister_watcher(
        &self,
        resource: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        self.calls
            .lock()
            .push((resource.resource.clone(), namespace.map(str::to_owned)));
        Arc::new(self.feed(&resource.resource))
    }
}

fn factory(source: &Feeds) -> SharedInformerFactory {
    factory_with(source, FactoryOptions::new())
}

/// A factory with these options, whose informers are of the variant under test.
fn factory_with(source: &Feeds, factory_options: FactoryOptions) -> SharedInformerFactory {
    let factory_options = factory_options
        .queue(queue_kind())
        .one_thread(one_thread())
        .reflector(options(&FakeClock::new()));
    SharedInformerFactory::with_options(source.clone(), factory_options)
}

fn gvr(resource: &str) -> GroupVersionResource {
    GroupVersionResource::new("", "v1", resource)
}

#[test]
fn fa1_same_type_and_resource_share_one_informer() {
    let source = Feeds::default();
    let factory = factory_with(&source, FactoryOptions::new().namespace("here"));
    let (one, two) = (factory.informer::<Pod>(), factory.informer::<Pod>());
    assert!(one.is_same(&two));
    // Another type of the same resource has another informer. client-go has a separate factory for
    // dynamic objects.
    let dynamic = factory.informer_for(Source::dynamic(gvr("pods")));
    assert!(dynamic.is_same(&factory.informer_for(Source::dynamic(gvr("pods")))));
    assert!(!dynamic.is_same(&factory.informer_for(Source::dynamic(gvr("nodes")))));
    let here = || Some("here".to_owned());
    let expected = [
        ("pods".to_owned(), here()),
        ("pods".to_owned(), here()),
        ("nodes".to_owned(), here()),
    ];
    assert_eq!(*source.calls.lock(), expected);
}

#[test]
fn fa3_start_runs_unstarted_informers_without_waiting() {
    let source = Feeds::default();
    let factory = factory(&source);
    factory.start(&Stop::never()).unwrap();
    let pods = factory.informer_for(Source::dynamic(gvr("pods")));
    let (first, second) = (Stopper::new(), Stopper::new());
    factory.start(&first).unwrap();
    let nodes = factory.informer_for(Source::dynamic(gvr("nodes")));
    assert_eq!(nodes.status().state, ReflectorState::Created);
    factory.start(&second).unwrap();
    for resource in ["pods", "nodes"] {
        source.feed(resource).list("10", &[("a", "1")]);
    }
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    // Each informer has the stop that it was started with.
    first.stop();
    until("stopped", || one_thread() || pods.is_stopped());
    assert!(!nodes.is_stopped());
    second.stop();
    until("stopped", || nodes.is_stopped());
    factory.start(&Stop::never()).unwrap();
    factory.shut_down(None).unwrap();
}

#[test]
fn fa3_start_after_shutdown_fails() {
    let factory = factory(&Feeds::default());
    let pods = factory.informer_for(Source::dynamic(gvr("pods")));
    factory.shut_down(None).unwrap();
    let error = factory.start(&Stop::never()).unwrap_err();
    assert!(matches!(error, InformerError::Stopped { .. }));
    assert_eq!(
        error.to_string(),
        "factory: already stopped; the informers were not started"
    );
    // The shutdown does not affect an informer that was never started (FA5).
    assert!(!pods.is_stopped());
    pods.add_handler(recorder().0).unwrap();
}

#[test]
fn fa4_informer_requested_after_start_fails_the_wait() {
    let source = Feeds::default();
    let factory = factory(&source);
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    factory.informer_for(Source::dynamic(gvr("pods")));
    factory.start(&Stop::never()).unwrap();
    source.feed("pods").list("10", &[]);
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    let late = [gvr("nodes"), gvr("secrets")]
        .map(|resource| factory.informer_for(Source::dynamic(resource)));
    let waits = [
        SyncOptions::new(),
        SyncOptions::new().timeout(SOON),
        SyncOptions::new().timeout(SOON).fail_fast(true),
    ];
    for options in waits {
        let error = factory
            .wait_for_cache_sync(options, &Stop::never())
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "call `start` first; not started: nodes, secrets"
        );
        assert!(error.unsynced().iter().all(|one| one.not_started));
    }
    let error = late[0].wait_for_sync(Duration::from_millis(1), &Stop::never());
    let text = "timed out after 1ms; not synced: nodes (not started)";
    assert_eq!(error.unwrap_err().to_string(), text);
    factory.start(&Stop::never()).unwrap();
    source.feed("nodes").list("10", &[("a", "1")]);
    // A component that needs one informer waits for this one.
    late[0].wait_for_sync(SOON, &Stop::never()).unwrap();
    source.feed("secrets").list("10", &[]);
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    assert_eq!(late[0].lister().list().len(), 1);
    factory.shut_down(None).unwrap();
}

#[test]
fn fa4_wait_includes_an_informer_that_the_program_runs() {
    let source = Feeds::default();
    let factory = factory(&source);
    factory.start(&Stop::never()).unwrap();
    let informers =
        ["pods", "nodes"].map(|resource| factory.informer_for(Source::dynamic(gvr(resource))));
    let _running = informers.each_ref().map(run);
    let is_running = |informer: &Informer| informer.status().state != ReflectorState::Created;
    until("both run", || informers.iter().all(is_running));
    source.feed("pods").list("10", &[("a", "1")]);
    informers[0].wait_for_sync(SOON, &Stop::never()).unwrap();
    let error = factory.wait_for_cache_sync(Duration::from_millis(1), &Stop::never());
    let text = "timed out after 1ms; not synced: nodes";
    assert_eq!(error.unwrap_err().to_string(), text);
    source.feed("nodes").list("10", &[("b", "1")]);
    let wait = || factory.wait_for_cache_sync(SOON, &Stop::never());
    wait().unwrap();
    assert_eq!(informers[1].lister().list().len(), 1);

    let secrets = factory.informer_for(Source::dynamic(gvr("secrets")));
    let text = "call `start` first; not started: secrets";
    assert_eq!(wait().unwrap_err().to_string(), text);
    let stopped = Stopper::new();
    stopped.stop();
    secrets.run(&stopped).unwrap();
    let text = "ended before syncing: secrets";
    assert_eq!(wait().unwrap_err().to_string(), text);
}

#[test]
fn fa4_wt3_stopped_wait_reports_unsynced_informers_and_errors() {
    let source = Feeds::default();
    let factory = factory(&source);
    for resource in ["pods", "nodes", "secrets"] {
        factory.informer_for(Source::dynamic(gvr(resource)));
    }
    factory.start(&Stop::never()).unwrap();
    source.feed("pods").list("10", &[]);
    source.feed("secrets").fail_list(status(
        403,
        "Forbidden",
        "secrets is forbidden: you can't list them",
    ));
    let (pods, secrets) = (
        factory.informer_for(Source::dynamic(gvr("pods"))),
        factory.informer_for(Source::dynamic(gvr("secrets"))),
    );
    assert!(pods.synced().wait_timeout(SOON));
    until("failed", || secrets.status().last_error.is_some());
    let stop = Stopper::new();
    stop.stop();
    let error = factory.wait_for_cache_sync(None, &stop).unwrap_err();
    let names: Vec<_> = error
        .unsynced()
        .iter()
        .map(|unsynced| unsynced.name.as_str())
        .collect();
    assert_eq!(names, ["nodes", "secrets"], "sorted");
    assert!(error.unsynced()[0].last_error.is_none());
    assert_eq!(
        error.unsynced()[1]
            .last_error
            .as_ref()
            .unwrap()
            .status()
            .unwrap()
            .code,
        403
    );
    let text = error.to_string();
    assert!(
        text.starts_with("stopped before syncing: nodes, secrets ("),
        "{text}"
    );
    assert!(text.contains("you can't list them"), "{text}");

    // A shutdown also ends a wait.
    let waiter = std::thread::spawn({
        let factory = Arc::new(factory);
        let waits = Arc::clone(&factory);
        let waiter = std::thread::spawn(move || waits.wait_for_cache_sync(None, &Stop::never()));
        move || (factory.shut_down(None), waiter.join().unwrap().is_err())
    });
    assert_eq!(
        soon("shutdown", move || waiter.join().unwrap()),
        (Ok(()), true)
    );
}

#[test]
fn wait_after_start_reports_no_informer_as_not_started() {
    let source = Feeds::default();
    let factory = factory(&source);
    for number in 0..50 {
        factory.informer_for(Source::dynamic(gvr(&format!("kind{number}"))));
    }
    factory.start(&Stop::never()).unwrap();
    let stop = Stopper::new();
    stop.stop();
    let error = factory.wait_for_cache_sync(None, &stop).unwrap_err();
    assert_eq!(error.unsynced().len(), 50);
    assert!(
        error.unsynced().iter().all(|one| !one.not_started),
        "{error}"
    );
    factory.shut_down(None).unwrap();
}

#[test]
fn fa4_wait_names_informers_that_decode_nothing() {
    let source = Feeds::default();
    let factory = factory(&source);
    for resource in ["pods", "nodes", "secrets"] {
        factory.informer_for(Source::dynamic(gvr(resource)));
    }
    factory.start(&Stop::never()).unwrap();
    // Objects of the right type, but without names.
    let nameless = |version: &str| serde_json::json!({"metadata": {"resourceVersion": version}});
    source
        .feed("pods")
        .list_of("10", &[nameless("1"), nameless("2")]);
    source.feed("nodes").list("10", &[]);
    let wait = |millis| factory.wait_for_cache_sync(Duration::from_millis(millis), &Stop::never());
    assert!(
        factory
            .informer_for(Source::dynamic(gvr("pods")))
            .synced()
            .wait_timeout(SOON)
    );
    assert!(
        factory
            .informer_for(Source::dynamic(gvr("nodes")))
            .synced()
            .wait_timeout(SOON)
    );
    let both = wait(1).unwrap_err();
    let what = "pods: none of the 2 objects in the list could be decoded as \
                k8s_informer::object::dynamic::DynamicObject; the first error: item 0 of the list: unexpected response: the object has no name";
    assert_eq!(
        both.to_string(),
        format!("timed out after 1ms; not synced: secrets; {what}")
    );
    assert!(both.is_timed_out());
    source.feed("secrets").list("10", &[]);
    let error = factory
        .wait_for_cache_sync(None, &Stop::never())
        .unwrap_err();
    assert_eq!(
        (error.to_string(), error.cause()),
        (what.to_owned(), &WaitCause::Undecodable)
    );
}

#[test]
fn wait_for_object_outside_one_namespace_is_an_error() {
    let source = Feeds::default();
    let factory = factory_with(&source, FactoryOptions::new().namespace("web"));
    let pods = factory.informer_for(Source::dynamic(gvr("pods")));
    let in_namespace = |namespace: &str| {
        let metadata = json!({"namespace": namespace, "name": "a", "resourceVersion": "1"});
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    };
    let outside = pods
        .wait_for_object(&in_namespace("db"), SOON, &Stop::never())
        .unwrap_err();
    assert_eq!(
        outside.to_string(),
        r#"failed waiting for db/a: the informer does not watch the namespace "db"; it watches: web"#
    );
    let stop = Stopper::new();
    stop.stop();
    let inside = pods
        .wait_for_object(&in_namespace("web"), SOON, &stop)
        .unwrap_err();
    assert!(inside.is_stopped(), "{inside}");
}

#[test]
fn fa5_shutdown_stops_and_joins_started_informers() {
    let source = Feeds::default();
    let factory = factory(&source);
    let pods = factory.informer_for(Source::dynamic(gvr("pods")));
    let (_handler, events) = record(&pods);
    source.feed("pods").list("10", &[("a", "1")]);
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(None, &stop).unwrap();
    let factory = soon("shutdown", move || {
        factory.shut_down(None).unwrap();
        factory
    });
    assert!(pods.is_stopped() && !stop.is_stopped());
    events.rest();
    assert!(events.is_disconnected());
    assert_eq!(factory.shut_down(None), Ok(()), "a second shutdown");
}

/// A factory with one informer, whose callback is blocked at the door.
fn factory_with_blocked_callback() -> (Arc<SharedInformerFactory>, Informer, Door) {
    let source = Feeds::default();
    let factory = factory(&source);
    let pods = factory.informer_for(Source::dynamic(gvr("pods")));
    let door = Door::new();
    let at = door.clone();
    pods.add_event_handler(|handler| handler.on_add(move |_, _| at.pass()))
        .unwrap();
    source.feed("pods").list("10", &[("a", "1")]);
    factory.start(&Stop::never()).unwrap();
    door.wait_for_arrivals(1);
    (Arc::new(factory), pods, door)
}

#[test]
fn fa5_shutdown_returns_when_all_threads_have_ended() {
    let (factory, pods, door) = factory_with_blocked_callback();
    let (sender, results) = mpsc::channel();
    for _ in 0..4 {
        let (factory, pods, sender) = (Arc::clone(&factory), pods.clone(), sender.clone());
        std::thread::spawn(move || {
            sender
                .send((factory.shut_down(None), pods.is_stopped()))
                .unwrap();
        });
    }
    until("stopped", || one_thread() || pods.is_stopped());
    // No shutdown may return while the callback runs. The short wait may overlook a shutdown that
    // returns too early, but it never fails without a reason.
    assert!(results.recv_timeout(Duration::from_millis(200)).is_err());
    door.open();
    for _ in 0..4 {
        assert_eq!(results.recv_timeout(SOON), Ok((Ok(()), true)));
    }
}

#[test]
fn fa5_callback_shutting_factory_down_does_not_deadlock() {
    let source = Feeds::default();
    let factory = Arc::new(factory(&source));
    let (pods, nodes) = (
        factory.informer_for(Source::dynamic(gvr("pods"))),
        factory.informer_for(Source::dynamic(gvr("nodes"))),
    );
    let (sender, results) = mpsc::channel();
    let inner = Arc::downgrade(&factory);
    pods.add_event_handler(|handler| {
        handler.on_add(move |_, _| {
            sender
                .send(inner.upgrade().unwrap().shut_down(None))
                .unwrap();
        })
    })
    .unwrap();
    source.feed("pods").list("10", &[("a", "1")]);
    factory.start(&Stop::never()).unwrap();
    assert_eq!(
        results.recv_timeout(SOON),
        Ok(Err(ShutdownError::FromWithin))
    );
    // A shutdown from outside a callback waits for the threads.
    soon("shutdown", move || factory.shut_down(None)).unwrap();
    assert!(pods.is_stopped() && nodes.is_stopped());
}

#[test]
fn dropped_factory_stops_its_informers() {
    let (factory, pods, door) = factory_with_blocked_callback();
    drop(factory);
    until("stopped", || one_thread() || pods.is_stopped());
    door.open();
}

#[test]
fn fa8_factory_informer_has_the_namespace_index() {
    let source = Feeds::default();
    let factory = factory(&source);
    let pods = factory.informer_for(Source::dynamic(gvr("pods")));
    let metadata = |namespace: &str| json!({ "metadata": { "name": "a", "namespace": namespace, "resourceVersion": "1" } });
    source
        .feed("pods")
        .list_of("10", &[metadata("x"), metadata("y")]);
    factory.start(&Stop::never()).unwrap();
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    assert_eq!(pods.lister().by_index("namespace", "x").unwrap().len(), 1);
    assert_eq!(pods.lister().namespace("y").list()[0].namespace(), "y");
    factory.shut_down(None).unwrap();
}

#[test]
fn fa7_client_serves_typed_and_dynamic_informers() {
    let server = ApiServer::start().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    server
        .create(
            maps,
            json!({ "metadata": { "name": "a" }, "data": { "x": "1" } }),
        )
        .unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new()
            .queue(queue_kind())
            .one_thread(one_thread()),
    );
    let (typed, dynamic) = (
        factory.informer::<ConfigMap>(),
        factory.informer_for(Source::dynamic(gvr("configmaps"))),
    );
    let (seen, names) = mpsc::channel();
    typed
        .add_handler(
            HandlerFuncs::new().on_update(move |_, new: &Arc<ConfigMap>| {
                seen.send(new.data.clone().unwrap_or_default()["x"].clone())
                    .unwrap();
            }),
        )
        .unwrap();
    let (_handler, events) = record(&dynamic);
    factory.start(&Stop::never()).unwrap();
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    assert!(events.next().starts_with("add a@"));
    server
        .patch(&format!("{maps}/a"), json!({ "data": { "x": "2" } }))
        .unwrap();
    assert_eq!(names.recv_timeout(SOON), Ok("2".to_owned()));
    assert!(events.next().starts_with("update a@"));
    server.delete(&format!("{maps}/a")).unwrap();
    assert!(events.next().starts_with("delete a@"));
    soon("shutdown", move || factory.shut_down(None)).unwrap();
    assert!(typed.is_stopped());
}

#[test]
fn w3_refused_watch_connection_is_retried_without_list() {
    // The initial objects come from a watch-list or from a LIST.
    for (watch_list, lists) in [(true, 0), (false, 1)] {
        let mut options = options(&FakeClock::new());
        options.watch_list = watch_list;
        watch_without_connections(options, lists);
    }
}

fn watch_without_connections(options: ReflectorOptions, lists: u64) {
    let server = ApiServer::start().unwrap();
    let maps = "/api/v1/namespaces/default/configmaps";
    let client = Client::new(Config::new(server.url())).unwrap();
    let factory = SharedInformerFactory::with_options(
        client,
        FactoryOptions::new()
            .queue(queue_kind())
            .one_thread(one_thread())
            .reflector(options),
    );
    let informer = factory.informer_for(Source::dynamic(gvr("configmaps")));
    let (_handler, events) = record(&informer);
    factory.start(&Stop::never()).unwrap();
    factory.wait_for_cache_sync(None, &Stop::never()).unwrap();
    // A new object gives the watch a version that the server still has in its history.
    server
        .create(maps, json!({ "metadata": { "name": "a" } }))
        .unwrap();
    assert!(events.next().starts_with("add a@"));
    let wait_for_watches = |count: usize| {
        let watch_count = |all: &[RequestRecord]| {
            all.iter()
                .filter(|request| request.verb() == Verb::Watch)
                .count()
        };
        server
            .wait_for_requests(|all| watch_count(all) >= count, SOON)
            .unwrap();
    };
    // The server closes the connections before it responds.
    server.fail_next(Fault::close().on(Verb::Watch).times(3));
    server.close_watches();
    wait_for_watches(5);
    // Now the server refuses the connections. The new object gives the open watch an event; a watch
    // that ends without an event would be a very short watch (W5).
    server
        .create(maps, json!({ "metadata": { "name": "b" } }))
        .unwrap();
    assert!(events.next().starts_with("add b@"));
    server.pause();
    until("nine watch attempts", || informer.status().watches >= 9);
    server.resume().unwrap();
    server
        .create(maps, json!({ "metadata": { "name": "c" } }))
        .unwrap();
    assert!(events.next().starts_with("add c@"));
    assert_eq!(informer.status().lists, lists, "{:?}", server.requests());
    soon("shutdown", move || factory.shut_down(None)).unwrap();
}

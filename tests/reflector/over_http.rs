//! The reflector with the client, over HTTP, against the embedded API server.

use std::collections::BTreeMap;
use std::io::Cursor;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::informer::FactoryOptions;
use k8s_informer::informer::SharedIndexInformerOptions;
use k8s_informer::informer::Source;
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::{
    Body, ListOptions, ListWatch, ListerWatcher, Reflector, ReflectorOptions, Shard,
};
use k8s_informer::time::Backoff;
use k8s_informer::{
    Client, Config, DynamicObject, Error, Indexer, Object, SharedIndexInformer,
    SharedInformerFactory, Stop, Stopper,
};
use k8s_informer_testing::{ApiServer, Fault, Verb};
use serde_json::json;

use crate::reflector::support::TIMEOUT;

const PODS: &str = "/api/v1/namespaces/default/pods";

fn options() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::from_millis(10))
        .factor(2.0)
        .cap(Duration::from_millis(100))
        .jitter(1.0);
    options
}

fn factory(server: &ApiServer, options: ReflectorOptions) -> SharedInformerFactory {
    let client = Client::new(Config::new(server.url())).unwrap();
    SharedInformerFactory::with_options(client, FactoryOptions::new().reflector(options))
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

#[test]
fn wl11_watch_list_yields_same_objects_as_list() {
    let server = ApiServer::start().unwrap();
    for number in 0..50 {
        server
            .create(
                PODS,
                json!({ "metadata": { "name": format!("pod-{number}") } }),
            )
            .unwrap();
    }
    server.delete(&format!("{PODS}/pod-7")).unwrap();
    server
        .patch(
            &format!("{PODS}/pod-8"),
            json!({ "metadata": { "labels": { "app": "web" } } }),
        )
        .unwrap();
    let objects = |watch_list: bool| {
        let mut options = options();
        options.watch_list = watch_list;
        server.clear_requests();
        let (factory, stop) = (factory(&server, options), Stopper::new());
        let pods = factory.informer_for(Source::dynamic(pods()));
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        factory.shut_down(None).unwrap();
        assert_eq!(
            pods.last_sync_resource_version(),
            ResourceVersion::new(&server.resource_version().to_string())
        );
        let lists = server
            .requests()
            .iter()
            .filter(|request| request.verb() == Verb::List)
            .count();
        assert_eq!(lists == 0, watch_list, "{:?}", server.requests());
        pods.lister()
            .list()
            .into_iter()
            .map(|pod| (pod.name().to_owned(), pod))
            .collect::<BTreeMap<_, _>>()
    };
    let (by_watch_list, by_list) = (objects(true), objects(false));
    assert_eq!(by_list.len(), 49);
    assert_eq!(by_watch_list.len(), by_list.len());
    for (name, pod) in by_list {
        assert_eq!((pod.api_version(), pod.kind()), ("v1", "Pod"));
        assert_eq!(by_watch_list[&name], pod);
    }
}

/// A server whose first watch delivers a bookmark at `version` and ends.
struct FirstWatch {
    server: Arc<dyn ListerWatcher>,
    version: String,
    watch_list: bool,
    done: AtomicBool,
}

impl ListerWatcher for FirstWatch {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.server.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        if self.done.swap(true, Ordering::SeqCst) {
            return self.server.watch(options, stop);
        }
        let end = if self.watch_list { "true" } else { "false" };
        let meta = json!({
            "resourceVersion": self.version, "annotations": { "k8s.io/initial-events-end": end },
        });
        let bookmark = json!({ "type": "BOOKMARK", "object": { "metadata": meta } });
        Ok(Body::new(Cursor::new(format!("{bookmark}\n"))))
    }

    fn supports_watch_list(&self) -> bool {
        self.watch_list
    }

    fn description(&self) -> String {
        self.server.description()
    }
}

#[test]
fn l8_oversized_request_falls_back_to_most_recent_list() {
    for watch_list in [false, true] {
        let server = ApiServer::start().unwrap();
        server
            .create(PODS, json!({ "metadata": { "name": "a" } }))
            .unwrap();
        let client = Client::new(Config::new(server.url())).unwrap();
        let first_watch = FirstWatch {
            server: client.lister_watcher(&pods(), None),
            version: "9".repeat(40_000),
            watch_list,
            done: AtomicBool::new(false),
        };
        let options = options();
        let store = Arc::new(Indexer::<DynamicObject>::for_objects());
        let reflector = Reflector::new(Arc::new(first_watch), store.clone(), options);
        let stop = Stopper::new();
        thread::scope(|scope| {
            scope.spawn(|| reflector.run(&stop));
            let (deadline, version) = (
                Instant::now() + TIMEOUT,
                ResourceVersion::new(&server.resource_version().to_string()),
            );
            let has_caught_up = || {
                let status = reflector.status();
                status.last_error.is_some() && status.resource_version == version
            };
            while !has_caught_up() && Instant::now() < deadline {
                thread::yield_now();
            }
            stop.stop();
            assert!(has_caught_up(), "{:?}", reflector.status());
        });
        assert_eq!(store.list_keys(), ["default/a"]);
        let error = "the URL has 40";
        let last = reflector.status().last_error.unwrap();
        assert!(
            last.is_config() && last.to_string().contains(error),
            "{last}"
        );
    }
}

#[test]
fn w4_informer_with_stalled_watch_receives_later_events() {
    for watch_list in [false, true] {
        let server = ApiServer::start().unwrap();
        // The watch delivers one event, or the bookmark after the initial events, and then stalls.
        server.fail_next(
            Fault::stall()
                .after_events(1)
                .on(Verb::Watch)
                .resource("pods"),
        );
        let mut options = options();
        options.watch_list = watch_list;
        options.watch_idle_timeout = Some(Duration::from_millis(300));
        let (factory, stop) = (factory(&server, options), Stopper::new());
        let pods = factory.informer_for(Source::dynamic(pods()));
        let (sender, receiver) = mpsc::channel();
        pods.add_event_handler(|handler| {
            handler.on_add(move |pod, _| sender.send(pod.name().to_owned()).unwrap())
        })
        .unwrap();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
        for name in ["before", "meanwhile"] {
            server
                .create(PODS, json!({ "metadata": { "name": name } }))
                .unwrap();
        }
        for name in ["before", "meanwhile"] {
            assert_eq!(
                receiver.recv_timeout(TIMEOUT).unwrap(),
                name,
                "watch-list: {watch_list}"
            );
        }
        let status = pods.status();
        assert!(status.last_error.unwrap().is_timeout());
        assert_eq!(
            (status.lists, status.watches),
            (u64::from(!watch_list), 2),
            "watch-list: {watch_list}"
        );
        factory.shut_down(None).unwrap();
        assert_eq!(server.pending_faults(), 0);
    }
}

/// Runs three informers of one kind, each with a shard. Returns for each whether its server filters
/// the objects.
fn three_shards(server: &ApiServer, watch_list: bool) -> Vec<Option<bool>> {
    let mut objects = BTreeMap::new();
    let stop = Stopper::new();
    let factories: Vec<_> = (0..3)
        .map(|index| {
            let mut options = options();
            options.watch_list = watch_list;
            options.shard = Some(Shard::new(index, 3).unwrap());
            factory(server, options)
        })
        .collect();
    let informers: Vec<_> = factories
        .iter()
        .map(|factory| factory.informer_for(Source::dynamic(pods())))
        .collect();
    for factory in &factories {
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(None, &stop).unwrap();
    }
    // Changes after the initial list are also divided between the shards.
    for number in 30..60 {
        server
            .create(
                PODS,
                json!({ "metadata": { "name": format!("pod-{number}") } }),
            )
            .unwrap();
    }
    for number in (0..60).step_by(3) {
        server.delete(&format!("{PODS}/pod-{number}")).unwrap();
    }
    for number in (1..60).step_by(3) {
        let patch = json!({ "metadata": { "labels": { "app": "web" } } });
        server
            .patch(&format!("{PODS}/pod-{number}"), patch)
            .unwrap();
    }
    let is_up_to_date = |informer: &SharedIndexInformer<DynamicObject>| {
        let pods = informer.lister().list();
        let has_label = |pod: &DynamicObject| pod.label("app").is_some();
        let number = |pod: &DynamicObject| pod.name()["pod-".len()..].parse::<u32>().unwrap();
        pods.iter()
            .all(|pod| number(pod) % 3 != 0 && has_label(pod) == (number(pod) % 3 == 1))
    };
    let deadline = Instant::now() + TIMEOUT;
    let count = || {
        informers
            .iter()
            .map(|informer| informer.lister().list().len())
            .sum::<usize>()
    };
    while count() != 40 || !informers.iter().all(is_up_to_date) {
        assert!(
            Instant::now() < deadline,
            "{} objects instead of 40",
            count()
        );
        thread::yield_now();
    }
    for (index, informer) in informers.iter().enumerate() {
        let pods = informer.lister().list();
        assert!(!pods.is_empty());
        for pod in pods {
            assert_eq!(
                objects.insert(pod.name().to_owned(), index),
                None,
                "{} is in two shards",
                pod.name()
            );
        }
        let status = informer.status();
        assert!(status.complete && status.last_error.is_none(), "{status:?}");
    }
    assert_eq!(objects.len(), 40);
    for factory in &factories {
        factory.shut_down(None).unwrap();
    }
    informers
        .iter()
        .map(|informer| informer.status().shard_applied)
        .collect()
}

#[test]
fn sh2_sh4_three_shards_hold_each_object_once() {
    for (gate, watch_list, applied) in [
        (true, false, Some(true)),
        (true, true, None), // A watch-list cannot confirm the shard (SH3).
        (false, false, Some(false)),
        (false, true, Some(false)),
    ] {
        let server = ApiServer::builder()
            .sharded_list_and_watch(gate)
            .seed(7)
            .start()
            .unwrap();
        for number in 0..30 {
            server
                .create(
                    PODS,
                    json!({ "metadata": { "name": format!("pod-{number}") } }),
                )
                .unwrap();
        }
        assert_eq!(
            three_shards(&server, watch_list),
            [applied; 3],
            "gate: {gate}, watch-list: {watch_list}"
        );
    }
}

#[test]
fn sh5_rejected_selector_error_has_the_server_message() {
    let server = ApiServer::builder()
        .sharded_list_and_watch(true)
        .start()
        .unwrap();
    let client = Client::new(Config::new(server.url())).unwrap();
    let pods = client.lister_watcher(&pods(), None);
    let list = Arc::clone(&pods);
    let invalid = |options: &ListOptions| {
        let selector = "shardRange(object.metadata.name)";
        options.clone().shard_selector(selector)
    };
    let source = ListWatch::new(
        move |options: &ListOptions, stop: &Stop| list.list(&invalid(options), stop),
        move |options: &ListOptions, stop: &Stop| pods.watch(&invalid(options), stop),
    );
    let informer_options = SharedIndexInformerOptions::new().reflector(options());
    let pods = SharedIndexInformer::<DynamicObject>::new(Arc::new(source), informer_options);
    let (stop, running) = (Stopper::new(), pods.clone());
    let run = {
        let stop = stop.clone();
        thread::spawn(move || running.run(&stop))
    };
    let deadline = Instant::now() + TIMEOUT;
    while pods.status().last_error.is_none() {
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
    let error = pods.status().last_error.unwrap();
    assert!(
        error.to_string().contains("invalid shard selector: "),
        "{error}"
    );
    assert_eq!(
        error.status().map(|status| (status.code, &*status.reason)),
        Some((500, ""))
    );
    stop.stop();
    run.join().unwrap().unwrap();
}

//! Metrics of informers: the provider's calls, the names, and the values. Also tests the code of
//! `examples/metrics`.

#[path = "../examples/metrics/src/http.rs"]
mod http;
#[path = "../examples/metrics/src/prometheus.rs"]
mod prometheus;
#[path = "../examples/metrics/src/rest_client.rs"]
mod rest_client;

use std::collections::{BTreeMap, HashMap};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::handler::HandlerFuncs;
use k8s_informer::informer::{
    InformerOptions, InformerQueue, InformerScope, SharedIndexInformerOptions,
    SharedInformerFactoryBuilder, Source, new_indexer_informer,
};
use k8s_informer::metrics::{
    ClientMetrics, InformerMetrics, InformerName, InformerNameAndResource, InformerNameError,
    MetricsProvider,
};
use k8s_informer::object::GroupVersionResource;
use k8s_informer::reflector::ListerWatcher;
use k8s_informer::store::{IndexFunc, Indexers};
use k8s_informer::testing::{Answer, ApiServer, Fault, ScriptedListerWatcher};
use k8s_informer::workqueue::{WorkQueue, WorkQueueMetrics};
use k8s_informer::{
    Client, Config, DynamicObject, SharedIndexInformer, SharedInformerFactory, Stop,
};
use serde_json::json;

use self::prometheus::Exporter;
use self::rest_client::RestClient;
use crate::log_capture;

/// The longest wait of a test.
const SOON: Duration = Duration::from_secs(20);

const QUEUES: [InformerQueue; 3] = [
    InformerQueue::DeltaFifo,
    InformerQueue::RealFifoAtomic,
    InformerQueue::RealFifoInOrder,
];

/// A provider that records its calls and the reported values.
#[derive(Default)]
struct Noted {
    asked: Mutex<Vec<InformerNameAndResource>>,
    recorded: Arc<RecordedMetrics>,
    /// How the provider responds when it is asked for metrics.
    response: Answers,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Answers {
    #[default]
    Metrics,
    Nobody,
    Panics,
    PanickingMetrics,
}

#[derive(Default)]
struct RecordedMetrics {
    levels: Mutex<Vec<usize>>,
    latencies: Mutex<usize>,
    versions: Mutex<Vec<u64>>,
    ends: Mutex<usize>,
    panics: bool,
}

impl RecordedMetrics {
    fn maybe_panic(&self) {
        assert!(!self.panics, "these metrics are broken");
    }
}

impl InformerMetrics for RecordedMetrics {
    fn queued_items(&self, items: usize) {
        self.levels.lock().unwrap().push(items);
        self.maybe_panic();
    }

    fn processing_latency(&self, _: Duration) {
        *self.latencies.lock().unwrap() += 1;
        self.maybe_panic();
    }

    fn store_resource_version(&self, version: u64) {
        self.versions.lock().unwrap().push(version);
        self.maybe_panic();
    }

    fn ended(&self) {
        *self.ends.lock().unwrap() += 1;
        self.maybe_panic();
    }
}

impl MetricsProvider for Noted {
    fn informer_metrics(
        &self,
        informer: InformerNameAndResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        self.asked.lock().unwrap().push(informer);
        match self.response {
            Answers::Nobody => None,
            Answers::Panics => panic!("this provider is broken"),
            Answers::Metrics | Answers::PanickingMetrics => Some(self.recorded.clone()),
        }
    }

    fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
        assert!(
            self.response == Answers::Metrics,
            "this provider has nothing for {name}"
        );
        (name == "pods").then(|| self.recorded.clone() as _)
    }
}

impl WorkQueueMetrics for RecordedMetrics {
    fn depth(&self, items: usize) {
        self.queued_items(items);
    }
}

impl Noted {
    fn that(response: Answers) -> Arc<Self> {
        let recorded = Arc::new(RecordedMetrics {
            panics: response == Answers::PanickingMetrics,
            ..RecordedMetrics::default()
        });
        Arc::new(Self {
            response,
            recorded,
            ..Self::default()
        })
    }

    fn asked(&self) -> Vec<String> {
        self.asked
            .lock()
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect()
    }
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

fn builder(server: &ApiServer) -> SharedInformerFactoryBuilder {
    SharedInformerFactory::builder(Client::new(Config::new(server.url())).unwrap())
}

fn create(server: &ApiServer, namespace: &str, name: &str) {
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    server
        .create(&pods, json!({"metadata": {"name": name}}))
        .unwrap();
}

/// A lister-watcher with two Pods.
fn two_pods() -> Arc<dyn ListerWatcher> {
    let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"},
        "items": [{"metadata": {"name": "a", "resourceVersion": "7"}}, {"metadata": {"name": "b", "resourceVersion": "7"}}]}"#;
    Arc::new(ScriptedListerWatcher::new([
        Answer::body(list),
        Answer::open(""),
    ]))
}

#[test]
fn id1_name_is_unique_until_released_or_dropped() {
    assert_eq!(InformerName::new("").unwrap_err(), InformerNameError::Empty);
    let name = InformerName::new("id1").unwrap();
    let taken = InformerName::new("id1").unwrap_err();
    assert_eq!(taken.to_string(), "the name \"id1\" of informers is taken");
    name.release();
    let again = InformerName::new("id1").unwrap();
    name.release();
    drop(name);
    assert!(
        InformerName::new("id1").is_err(),
        "who has released it has no say any more"
    );
    let clone = again.clone();
    drop(again);
    assert!(InformerName::new("id1").is_err(), "a clone has it");
    drop(clone);
    assert_eq!(InformerName::new("id1").unwrap().name(), "id1");
}

#[test]
fn id2_first_informer_has_metrics_next_logs_an_error() {
    logging();
    let server = ApiServer::start().unwrap();
    let noted = Arc::new(Noted::default());
    let factory = builder(&server)
        .metrics(InformerName::new("id2").unwrap(), noted.clone())
        .build();
    factory.dynamic(pods());
    factory.dynamic(pods());
    assert_eq!(
        noted.asked(),
        ["id2 pods.v1"],
        "all who ask for it have one informer"
    );
    factory.informer_of(
        Source::dynamic(pods())
            .scope(InformerScope::all().label_selector("app=web".parse().unwrap())),
    );
    logged(&["ERROR id2 pods.v1: ", "its metrics are not published"]);
    factory.dynamic(GroupVersionResource::new("apps", "v1", "deployments"));
    assert_eq!(noted.asked(), ["id2 pods.v1", "id2 deployments.v1.apps"]);
}

#[test]
fn id2_concurrent_requests_get_one_informer_with_metrics() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    for round in 0..20 {
        let noted = Arc::new(Noted::default());
        let name = InformerName::new(format!("id2-threads-{round}")).unwrap();
        let factory = builder(&server).metrics(name, noted.clone()).build();
        let together = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    factory.dynamic(pods());
                });
            }
        });
        assert!(noted.asked.lock().unwrap().last().unwrap().is_reserved());
        let stop = Stop::new();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync_with(&stop, SOON).unwrap();
        assert!(!noted.recorded.versions.lock().unwrap().is_empty());
        factory.shutdown();
    }
}

#[test]
fn id3_release_ends_metrics_and_shutdown_releases_name() {
    let server = ApiServer::start().unwrap();
    let noted = Arc::new(Noted::default());
    let name = InformerName::new("id3").unwrap();
    let factory = builder(&server)
        .metrics(name.clone(), noted.clone())
        .build();
    let informer = factory.dynamic(pods());
    let seen = factory_sees(&factory, &informer);
    create(&server, "default", "a");
    seen.recv_timeout(SOON).unwrap();
    assert!(noted.asked.lock().unwrap()[0].is_reserved());
    name.release();
    assert!(!noted.asked.lock().unwrap()[0].is_reserved());
    // A report that is in progress during the release may still arrive. Later reports must not.
    create(&server, "default", "b");
    seen.recv_timeout(SOON).unwrap();
    let before = noted.recorded.versions.lock().unwrap().len();
    create(&server, "default", "c");
    seen.recv_timeout(SOON).unwrap();
    assert_eq!(noted.recorded.versions.lock().unwrap().len(), before);
    assert!(
        !name
            .with_resource(GroupVersionResource::new("", "v1", "nodes"))
            .is_reserved()
    );
    factory.shutdown();

    let name = InformerName::new("id3").unwrap();
    let factory = builder(&server).metrics(name, noted).build();
    factory.shutdown();
    assert!(
        InformerName::new("id3").is_ok(),
        "though the factory is still there"
    );
}

/// Starts the factory. The receiver gets a message for each Pod that the informer adds.
fn factory_sees(
    factory: &SharedInformerFactory,
    informer: &SharedIndexInformer<DynamicObject>,
) -> std::sync::mpsc::Receiver<()> {
    let (see, seen) = std::sync::mpsc::channel();
    let _ = informer
        .add_event_handler(|handler| handler.on_add(move |_, _| see.send(()).unwrap()))
        .unwrap();
    let stop = Stop::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync_with(&stop, SOON).unwrap();
    seen
}

#[test]
fn id3_an_informer_that_has_ended_makes_room_for_the_next() {
    let server = ApiServer::start().unwrap();
    let noted = Arc::new(Noted::default());
    let factory = builder(&server)
        .metrics(InformerName::new("id3-again").unwrap(), noted.clone())
        .build();
    let first = factory.dynamic(pods());
    let stop = Stop::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync_with(&stop, SOON).unwrap();
    assert!(factory.stop_informer(&first));
    assert_eq!(*noted.recorded.ends.lock().unwrap(), 1);
    let second = factory.dynamic(pods());
    let reserved: Vec<_> = noted
        .asked
        .lock()
        .unwrap()
        .iter()
        .map(|id| id.is_reserved())
        .collect();
    assert_eq!(reserved, [false, true]);
    // `second` never runs.
    assert!(factory.stop_informer(&second));
    drop(second);
    factory.dynamic(pods());
    assert_eq!(noted.asked().len(), 3);
    assert!(noted.asked.lock().unwrap()[2].is_reserved());
    factory.shutdown();
    assert_eq!(
        *noted.recorded.ends.lock().unwrap(),
        1,
        "the others have told nothing"
    );
}

#[test]
fn id3_stopping_informer_frees_its_name_before_it_ended() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    let noted = Arc::new(Noted::default());
    let factory = builder(&server)
        .metrics(InformerName::new("id3-soon").unwrap(), noted.clone())
        .build();
    let first = factory.dynamic(pods());
    let (made, makes) = std::sync::mpsc::channel();
    let (inner, own) = (factory.clone(), Mutex::new(Some(first.clone())));
    let handler = first.add_event_handler(|handler| {
        handler.on_add(move |_, _| {
            if let Some(own) = { own.lock().unwrap().take() } {
                assert!(!inner.stop_informer(&own), "it does not wait for itself");
                made.send(inner.dynamic(pods())).unwrap();
            }
        })
    });
    handler.unwrap();
    factory.start(&Stop::new()).unwrap();
    let _second = makes.recv_timeout(SOON).unwrap();
    assert!(first.ended().wait_timeout(SOON));
    let reserved: Vec<_> = noted
        .asked
        .lock()
        .unwrap()
        .iter()
        .map(|id| id.is_reserved())
        .collect();
    assert_eq!(reserved, [false, true]);
    factory.shutdown();
}

#[test]
fn x13_and_r22_reach_the_provider_whatever_the_queue_is() {
    for queue in QUEUES {
        let noted = Arc::new(Noted::default());
        let name = InformerName::new(format!("x13 {queue:?}")).unwrap();
        let metrics = name.with_resource(pods()).metrics(&*noted);
        let options = SharedIndexInformerOptions {
            queue,
            metrics,
            ..Default::default()
        };
        let informer = SharedIndexInformer::<DynamicObject>::new(two_pods(), options);
        let stop = Stop::new();
        thread::scope(|scope| {
            let _stopping = Stopping(stop.clone());
            scope.spawn(|| informer.run(&stop).unwrap());
            assert!(informer.synced().wait_timeout(SOON));
            let versions = || noted.recorded.versions.lock().unwrap().clone();
            until(
                &format!("{queue:?}: the version of the store is told"),
                || versions().last() == Some(&7),
            );
            until("nothing waits", || {
                noted.recorded.levels.lock().unwrap().last() == Some(&0)
            });
            assert!(*noted.recorded.latencies.lock().unwrap() > 0, "{queue:?}");
        });
        assert_eq!(*noted.recorded.ends.lock().unwrap(), 1);
        assert!(!noted.asked.lock().unwrap()[0].is_reserved());
    }
}

#[test]
fn an_unshared_informer_has_metrics_too() {
    let noted = Arc::new(Noted::default());
    let (see, seen) = std::sync::mpsc::channel();
    let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| see.send(()).unwrap());
    let mut options = InformerOptions::new(two_pods(), handler);
    options.metrics = Some(noted.recorded.clone());
    let (_store, controller) = new_indexer_informer(options);
    let stop = Stop::new();
    thread::scope(|scope| {
        let _stopping = Stopping(stop.clone());
        scope.spawn(|| controller.run(&stop).unwrap());
        seen.recv_timeout(SOON).unwrap();
        until("the version is told", || {
            noted.recorded.versions.lock().unwrap().last() == Some(&7)
        });
        until("nothing waits", || {
            noted.recorded.levels.lock().unwrap().last() == Some(&0)
        });
    });
}

#[test]
fn queue_depth_of_several_namespaces_is_one_sum() {
    let noted = Arc::new(Noted::default());
    // Each process loop blocks in its first batch of 64 Pods.
    let gate = Arc::new(Mutex::new(()));
    let gates = gate.clone();
    let indexers = Indexers::new().with(
        "gate",
        IndexFunc::new(move |_: &DynamicObject| {
            drop(gates.lock().unwrap());
            Vec::new()
        }),
    );
    let metrics: Arc<dyn InformerMetrics> = noted.recorded.clone();
    let options = SharedIndexInformerOptions {
        metrics: Some(metrics),
        indexers,
        ..Default::default()
    };
    let informer = SharedIndexInformer::for_namespaces(
        [
            ("blue".to_owned(), pods_of("blue", 66)),
            ("green".to_owned(), pods_of("green", 67)),
        ],
        options,
    );
    let stop = Stop::new();
    thread::scope(|scope| {
        let closed = gate.lock().unwrap();
        let _stopping = Stopping(stop.clone());
        scope.spawn(|| informer.run(&stop).unwrap());
        let level = || noted.recorded.levels.lock().unwrap().last().copied();
        until("two of blue and three of green wait", || level() == Some(5));
        drop(closed);
        assert!(informer.synced().wait_timeout(SOON));
        until("nothing waits", || level() == Some(0));
    });
}

fn pods_of(namespace: &str, count: usize) -> Arc<dyn ListerWatcher> {
    let metadata =
        |n: usize| json!({"metadata": {"namespace": namespace, "name": format!("pod-{n}")}});
    let items: Vec<_> = (0..count).map(metadata).collect();
    let list = json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": items});
    Arc::new(ScriptedListerWatcher::new([
        Answer::body(list.to_string()),
        Answer::open(""),
    ]))
}

#[test]
fn where_nobody_wants_to_know_nobody_is_told() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    for (n, response) in [Answers::Nobody, Answers::Panics, Answers::PanickingMetrics]
        .into_iter()
        .enumerate()
    {
        logging();
        let noted = Noted::that(response);
        let name = InformerName::new(format!("nobody-{n}")).unwrap();
        let factory = builder(&server)
            .metrics(name.clone(), noted.clone())
            .build();
        let informer = factory.dynamic(pods());
        let seen = factory_sees(&factory, &informer);
        seen.recv_timeout(SOON).unwrap();
        create(&server, "default", &format!("b-{n}"));
        seen.recv_timeout(SOON).unwrap();
        assert!(factory.shutdown());
        let recorded = !noted.recorded.levels.lock().unwrap().is_empty();
        assert_eq!(recorded, response == Answers::PanickingMetrics);
    }
    logged(&["ERROR nobody-1 pods.v1: ", "this provider is broken"]);
    logged(&["ERROR metrics panicked: these metrics are broken"]);
}

#[test]
fn q18_a_work_queue_with_a_name_asks_the_provider_too() {
    logging();
    let noted = Arc::new(Noted::default());
    let add = |provider: &Arc<Noted>, name: Option<&str>| {
        let builder = WorkQueue::builder().metrics_provider(provider.clone());
        let builder = match name {
            Some(name) => builder.name(name),
            None => builder,
        };
        let queue = builder.build().unwrap();
        queue.add("a");
        queue.shut_down();
    };
    add(&noted, Some("pods"));
    add(&noted, Some("nodes"));
    add(&noted, None);
    assert_eq!(*noted.recorded.levels.lock().unwrap(), [1]);
    add(&Noted::that(Answers::Panics), Some("pods"));
    logged(&[
        "ERROR work queue \"pods\": ",
        "this provider has nothing for pods",
    ]);
}

/// Returns the samples of a text by name and labels. Checks the text format.
fn parse(text: &str) -> HashMap<(String, BTreeMap<String, String>), f64> {
    let mut samples = HashMap::new();
    let (mut family, mut kinds) = (String::new(), HashMap::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(!kinds.contains_key(&family), "{family} is in one piece");
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert_eq!(name, family);
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            assert_eq!(kind == "counter", name.ends_with("_total"), "{line}");
            kinds.insert(family.clone(), kind.to_owned());
        } else {
            let (name, labels, value) = sample(line);
            let of_histogram = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            let of = if kinds[&family] == "histogram" {
                of_histogram.unwrap()
            } else {
                &name
            };
            assert_eq!(of, family, "{line}");
            assert!(
                samples.insert((name, labels), value).is_none(),
                "twice: {line}"
            );
        }
    }
    samples
}

fn sample(line: &str) -> (String, BTreeMap<String, String>, f64) {
    let (name, mut rest) = line.split_once('{').unwrap();
    let mut labels = BTreeMap::new();
    while let Some((label, quoted)) = rest.split_once("=\"") {
        let (mut value, mut characters) = (String::new(), quoted.char_indices());
        let end = loop {
            match characters.next().unwrap() {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next().unwrap().1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, other) => value.push(other),
            }
        };
        assert!(
            labels
                .insert(label.trim_start_matches(',').to_owned(), value)
                .is_none(),
            "{line}"
        );
        rest = &quoted[end + 1..];
    }
    (
        name.to_owned(),
        labels,
        rest.strip_prefix("} ").unwrap().parse().unwrap(),
    )
}

#[test]
fn the_example_serves_what_prometheus_can_read() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    let exporter = Arc::new(Exporter::default());
    let odd = "a \"name\"\\ with\neverything";
    let factory = builder(&server)
        .metrics(InformerName::new(odd).unwrap(), exporter.clone())
        .build();
    let informer = factory.dynamic(pods());
    let handler = informer
        .add_event_handler(|handler| handler.on_add(|_, _| {}))
        .unwrap();
    exporter.read_handler(&pods(), odd, handler.clone());
    exporter.read_reflector(&pods(), odd, {
        let informer = informer.clone();
        move || informer.status()
    });
    let stop = Stop::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync_with(&stop, SOON).unwrap();
    assert!(handler.synced().wait_timeout(SOON));
    let version = server.resource_version();
    until("the reflector has seen it all", || {
        informer.last_sync_resource_version() == version.to_string()
            && handler.stats().delivered == 1
    });

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ended = thread::scope(|scope| {
        let (listener, stop, exporter) = (&listener, &stop, &exporter);
        let _stopping = Stopping(stop.clone());
        let serving = scope.spawn(move || http::serve(listener, stop, || exporter.text()));
        let scraped = || parse(&http::get(address, "/metrics").unwrap());
        let labels = |more: &[(&str, &str)]| -> BTreeMap<String, String> {
            let all = [
                ("name", odd),
                ("group", ""),
                ("version", "v1"),
                ("resource", "pods"),
            ];
            all.iter()
                .chain(more)
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect()
        };
        let figure = |name: &str, more: &[(&str, &str)]| {
            let samples = scraped();
            *samples
                .get(&(name.to_owned(), labels(more)))
                .unwrap_or_else(|| panic!("{name} in {samples:?}"))
        };
        until("the store's version is published", || {
            figure("informer_store_resource_version", &[]) >= version as f64
        });
        until("all of it is processed", || {
            figure("informer_queued_items", &[]) == 0.0
        });
        assert_eq!(figure("reflector_watches_total", &[]), 1.0);
        assert_eq!(
            figure("reflector_lists_total", &[]),
            0.0,
            "it is a watch-list"
        );
        assert_eq!(figure("reflector_listed_items", &[]), 1.0);
        assert_eq!(
            figure("reflector_last_resource_version", &[]),
            version as f64
        );
        let handler = [("handler", "handler-1")];
        assert_eq!(figure("informer_pending_notifications", &handler), 0.0);
        assert_eq!(figure("informer_notifications_total", &handler), 1.0);

        let samples = scraped();
        let bucket = |most: &str| {
            samples[&(
                "informer_processing_latency_seconds_bucket".to_owned(),
                labels(&[("le", most)]),
            )]
        };
        let count = samples[&(
            "informer_processing_latency_seconds_count".to_owned(),
            labels(&[]),
        )];
        assert!(count >= 1.0 && bucket("+Inf") == count && bucket("0.001") <= bucket("10"));

        let response = |request: &str| {
            let mut connection = TcpStream::connect(address).unwrap();
            connection.write_all(request.as_bytes()).unwrap();
            let mut response = String::new();
            connection.read_to_string(&mut response).unwrap();
            response.lines().take(2).collect::<Vec<_>>().join(" ")
        };
        let text = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
        assert_eq!(
            response("GET /metrics?x HTTP/1.1\r\n\r\n"),
            format!("HTTP/1.1 200 OK {text}")
        );
        assert_eq!(
            response("GET / HTTP/1.1\r\n\r\n"),
            format!("HTTP/1.1 404 Not Found {text}")
        );
        assert_eq!(
            response("POST /metrics HTTP/1.1\r\n\r\n"),
            format!("HTTP/1.1 405 Method Not Allowed {text}")
        );

        assert!(factory.shutdown());
        assert!(
            !scraped()
                .keys()
                .any(|(name, _)| name.starts_with("informer_")),
            "of what has ended"
        );
        stop.stop();
        serving.join()
    });
    ended.unwrap();
}

#[test]
fn the_example_serves_what_a_client_tells() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    let recorded = Arc::new(RestClient::default());
    let config = Config::new(server.url())
        .metrics(recorded.clone())
        .rate_limit(1000.0, 1000);
    let client = Client::new(config).unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    let body = json!({"metadata": {"name": "b"}}).to_string();
    let length = client
        .request(&Request::get(pods), &Stop::new())
        .unwrap()
        .bytes()
        .unwrap()
        .len();
    client
        .request(&Request::post(pods).body(body.clone()), &Stop::new())
        .unwrap()
        .bytes()
        .unwrap();
    server.fail_next(Fault::status(429).retry_after(0));
    let path = format!("{pods}/none");
    assert!(
        client
            .request(&Request::get(path), &Stop::new())
            .unwrap_err()
            .is_not_found()
    );
    recorded.exec_plugin_call(1, "plugin_execution_error");
    recorded.certificate_rotation_age(Duration::from_secs(3600));

    let samples = parse(&recorded.text());
    let host = server.url().strip_prefix("http://").unwrap().to_owned();
    let figure = |name: &str, labels: &[(&str, &str)]| {
        let labels = labels
            .iter()
            .map(|(name, value)| (name.to_string(), value.to_string()))
            .collect();
        *samples
            .get(&(format!("rest_client_{name}"), labels))
            .unwrap_or_else(|| panic!("{name} in {samples:?}"))
    };
    let requests = |code, method| {
        figure(
            "requests_total",
            &[("code", code), ("method", method), ("host", &host)],
        )
    };
    assert_eq!(
        [
            ("200", "GET"),
            ("201", "POST"),
            ("429", "GET"),
            ("404", "GET")
        ]
        .map(|(c, m)| requests(c, m)),
        [1.0; 4]
    );
    let again = [("code", "404"), ("verb", "GET"), ("host", &*host)];
    assert_eq!(figure("request_retries_total", &again), 1.0);
    let of = |name: &str, verb| figure(name, &[("verb", verb), ("host", &host)]);
    assert_eq!(of("request_duration_seconds_count", "GET"), 2.0);
    assert_eq!(of("request_size_bytes_sum", "POST"), body.len() as f64);
    assert!(of("response_size_bytes_sum", "GET") > length as f64);
    assert_eq!(of("rate_limiter_duration_seconds_count", "GET"), 3.0);
    assert_eq!(of("rate_limiter_duration_seconds_sum", "GET"), 0.0);
    let failed = [("code", "1"), ("call_status", "plugin_execution_error")];
    assert_eq!(figure("exec_plugin_call_total", &failed), 1.0);
    assert_eq!(
        figure(
            "exec_plugin_certificate_rotation_age_bucket",
            &[("le", "3600")]
        ),
        1.0
    );
    assert_eq!(figure("exec_plugin_ttl_seconds", &[]), f64::INFINITY);
    recorded.certificate_expiry(Some(std::time::SystemTime::UNIX_EPOCH));
    assert!(
        recorded
            .text()
            .contains("rest_client_exec_plugin_ttl_seconds{} -")
    );
}

/// Stops the informer even if the test fails, because the scope waits for the thread of the
/// informer.
struct Stopping(Stop);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Polls until `is_so` returns `true`, for conditions without a notification.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        thread::yield_now();
    }
}

/// Starts to collect log lines.
fn logging() {
    log_capture::start();
}

/// Checks that a logged line contains all of `parts`.
fn logged(parts: &[&str]) {
    let lines = log_capture::lines_with(&[]);
    assert!(
        !log_capture::lines_with(parts).is_empty(),
        "{parts:?} in {lines:#?}"
    );
}

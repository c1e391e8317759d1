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
    FactoryOptions, InformerOptions, InformerQueue, InformerScope, SharedIndexInformerOptions,
    Source, new_indexer_informer,
};
use k8s_informer::metrics::{ClientMetrics, InformerMetrics, MetricsProvider};
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::ListerWatcher;
use k8s_informer::store::{IndexFunc, Indexers};
use k8s_informer::time::RateLimit;
use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue, WorkQueueMetrics};
use k8s_informer::{
    Client, Config, DynamicObject, SharedIndexInformer, SharedInformerFactory, Stop, Stopper,
};
use k8s_informer_testing::{Answer, ApiServer, Fault, ScriptedListerWatcher};
use serde_json::json;

use self::prometheus::Exporter;
use self::rest_client::RestClient;
use crate::log_capture;

/// The longest wait of a test.
const SOON: Duration = Duration::from_secs(20);

const QUEUES: [InformerQueue; 2] = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];

/// A provider that records its calls and the reported values.
#[derive(Default)]
struct RecordingProvider {
    requested: Mutex<Vec<String>>,
    recorded: Arc<RecordedMetrics>,
    /// How the provider responds to a request for metrics.
    behavior: ProviderBehavior,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum ProviderBehavior {
    #[default]
    Metrics,
    NoMetrics,
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

impl MetricsProvider for RecordingProvider {
    fn informer_metrics(
        &self,
        name: &str,
        resource: &GroupVersionResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        let mut requested = self.requested.lock().unwrap();
        requested.push(format!("{name} {resource}"));
        drop(requested);
        match self.behavior {
            ProviderBehavior::NoMetrics => None,
            ProviderBehavior::Panics => panic!("this provider is broken"),
            ProviderBehavior::Metrics | ProviderBehavior::PanickingMetrics => {
                Some(self.recorded.clone())
            }
        }
    }

    fn work_queue_metrics(&self, name: &str) -> Option<Arc<dyn WorkQueueMetrics>> {
        assert!(
            self.behavior == ProviderBehavior::Metrics,
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

impl RecordingProvider {
    fn with_behavior(behavior: ProviderBehavior) -> Arc<Self> {
        let recorded = Arc::new(RecordedMetrics {
            panics: behavior == ProviderBehavior::PanickingMetrics,
            ..RecordedMetrics::default()
        });
        Arc::new(Self {
            behavior,
            recorded,
            ..Self::default()
        })
    }

    fn requested(&self) -> Vec<String> {
        self.requested.lock().unwrap().clone()
    }

    /// Returns the number of informers whose metrics have not ended.
    fn live(&self) -> usize {
        self.requested().len() - *self.recorded.ends.lock().unwrap()
    }
}

fn pods() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "pods")
}

/// A factory that publishes its metrics under this name.
fn factory_with_metrics(
    server: &ApiServer,
    name: impl Into<String>,
    provider: Arc<dyn MetricsProvider>,
) -> SharedInformerFactory {
    let client = Client::new(Config::new(server.url())).unwrap();
    SharedInformerFactory::with_options(client, FactoryOptions::new().metrics(name, provider))
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
fn id1_and_id2_informers_may_share_name_and_resource() {
    let server = ApiServer::start().unwrap();
    let provider = Arc::new(RecordingProvider::default());
    let factory = factory_with_metrics(&server, "id", provider.clone());
    factory.informer_for(Source::dynamic(pods()));
    factory.informer_for(Source::dynamic(pods()));
    assert_eq!(
        provider.requested(),
        ["id pods.v1"],
        "both calls must return the same informer"
    );
    let web = InformerScope::all().label_selector("app=web".parse().unwrap());
    factory.informer_for(Source::dynamic(pods()).scope(web));
    let other = factory_with_metrics(&server, "id", provider.clone());
    other.informer_for(Source::dynamic(GroupVersionResource::new(
        "apps",
        "v1",
        "deployments",
    )));
    assert_eq!(
        provider.requested(),
        ["id pods.v1", "id pods.v1", "id deployments.v1.apps"]
    );
    assert_eq!(provider.live(), 3);
}

#[test]
fn concurrent_requests_get_one_informer_with_metrics() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    for _ in 0..20 {
        let provider = Arc::new(RecordingProvider::default());
        let factory = factory_with_metrics(&server, "threads", provider.clone());
        let together = Barrier::new(4);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    together.wait();
                    factory.informer_for(Source::dynamic(pods()));
                });
            }
        });
        assert_eq!(provider.live(), 1);
        let stop = Stopper::new();
        factory.start(&stop).unwrap();
        factory.wait_for_cache_sync(SOON, &stop).unwrap();
        assert!(!provider.recorded.versions.lock().unwrap().is_empty());
        factory.shut_down(None).unwrap();
        assert_eq!(provider.live(), 0);
    }
}

/// Starts the factory. The receiver gets a message for each Pod that the informer adds.
fn start_and_watch_adds(
    factory: &SharedInformerFactory,
    informer: &SharedIndexInformer<DynamicObject>,
) -> std::sync::mpsc::Receiver<()> {
    let (sender, added) = std::sync::mpsc::channel();
    let _ = informer
        .add_event_handler(|handler| handler.on_add(move |_, _| sender.send(()).unwrap()))
        .unwrap();
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(SOON, &stop).unwrap();
    added
}

#[test]
fn id3_metrics_end_with_each_informer() {
    let server = ApiServer::start().unwrap();
    let provider = Arc::new(RecordingProvider::default());
    let factory = factory_with_metrics(&server, "id3", provider.clone());
    let first = factory.informer_for(Source::dynamic(pods()));
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(SOON, &stop).unwrap();
    factory.shut_down_informer(&first, None).unwrap();
    assert_eq!(provider.live(), 0);
    let second = factory.informer_for(Source::dynamic(pods()));
    assert_eq!(provider.live(), 1);
    // `second` never runs.
    factory.shut_down_informer(&second, None).unwrap();
    drop(second);
    assert_eq!(provider.live(), 0);
    factory.informer_for(Source::dynamic(pods()));
    assert_eq!((provider.requested().len(), provider.live()), (3, 1));
    factory.shut_down(None).unwrap();
    drop(factory);
    assert_eq!(provider.live(), 0);
}

#[test]
fn x13_and_r22_metrics_are_reported_for_every_queue() {
    for queue in QUEUES {
        let provider = Arc::new(RecordingProvider::default());
        let metrics = provider.informer_metrics("x13", &pods());
        let mut options = SharedIndexInformerOptions::new().queue(queue);
        options.metrics = metrics;
        let informer = SharedIndexInformer::<DynamicObject>::new(two_pods(), options);
        let stop = Stopper::new();
        thread::scope(|scope| {
            let _stopping = Stopping(stop.clone());
            scope.spawn(|| informer.run(&stop).unwrap());
            assert!(informer.synced().wait_timeout(SOON));
            let versions = || provider.recorded.versions.lock().unwrap().clone();
            wait_until(
                &format!("{queue:?}: the store's version is reported"),
                || versions().last() == Some(&7),
            );
            wait_until("the queue is empty", || {
                provider.recorded.levels.lock().unwrap().last() == Some(&0)
            });
            assert!(
                *provider.recorded.latencies.lock().unwrap() > 0,
                "{queue:?}"
            );
        });
        drop(informer);
        assert_eq!(*provider.recorded.ends.lock().unwrap(), 1);
    }
}

#[test]
fn unshared_informer_reports_metrics() {
    let provider = Arc::new(RecordingProvider::default());
    let (sender, added) = std::sync::mpsc::channel();
    let handler = HandlerFuncs::<DynamicObject>::new().on_add(move |_, _| sender.send(()).unwrap());
    let mut options = InformerOptions::new(two_pods(), handler);
    options.metrics = Some(provider.recorded.clone());
    let (_store, controller) = new_indexer_informer(options);
    let stop = Stopper::new();
    thread::scope(|scope| {
        let _stopping = Stopping(stop.clone());
        scope.spawn(|| controller.run(&stop).unwrap());
        added.recv_timeout(SOON).unwrap();
        wait_until("the version is reported", || {
            provider.recorded.versions.lock().unwrap().last() == Some(&7)
        });
        wait_until("the queue is empty", || {
            provider.recorded.levels.lock().unwrap().last() == Some(&0)
        });
        assert_eq!(*provider.recorded.ends.lock().unwrap(), 0);
        stop.stop();
    });
    assert_eq!(*provider.recorded.ends.lock().unwrap(), 1);

    // An informer that never runs ends when it is dropped.
    let mut options = InformerOptions::new(two_pods(), HandlerFuncs::<DynamicObject>::new());
    options.metrics = Some(provider.recorded.clone());
    drop(new_indexer_informer(options));
    assert_eq!(*provider.recorded.ends.lock().unwrap(), 2);
}

#[test]
fn queue_depth_sums_all_namespaces() {
    let provider = Arc::new(RecordingProvider::default());
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
    let metrics: Arc<dyn InformerMetrics> = provider.recorded.clone();
    let options = SharedIndexInformerOptions::new()
        .metrics(metrics)
        .indexers(indexers);
    let informer = SharedIndexInformer::for_namespaces(
        [
            ("blue".to_owned(), pods_of("blue", 66)),
            ("green".to_owned(), pods_of("green", 67)),
        ],
        options,
    );
    let stop = Stopper::new();
    thread::scope(|scope| {
        let closed = gate.lock().unwrap();
        let _stopping = Stopping(stop.clone());
        scope.spawn(|| informer.run(&stop).unwrap());
        let level = || provider.recorded.levels.lock().unwrap().last().copied();
        wait_until("two Pods of blue and three of green are queued", || {
            level() == Some(5)
        });
        drop(closed);
        assert!(informer.synced().wait_timeout(SOON));
        wait_until("the queue is empty", || level() == Some(0));
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
fn missing_or_panicking_metrics_do_not_stop_informer() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    for (n, behavior) in [
        ProviderBehavior::NoMetrics,
        ProviderBehavior::Panics,
        ProviderBehavior::PanickingMetrics,
    ]
    .into_iter()
    .enumerate()
    {
        logging();
        let provider = RecordingProvider::with_behavior(behavior);
        let name = format!("provider-{n}");
        let factory = factory_with_metrics(&server, name, provider.clone());
        let informer = factory.informer_for(Source::dynamic(pods()));
        let seen = start_and_watch_adds(&factory, &informer);
        seen.recv_timeout(SOON).unwrap();
        create(&server, "default", &format!("b-{n}"));
        seen.recv_timeout(SOON).unwrap();
        factory.shut_down(None).unwrap();
        let recorded = !provider.recorded.levels.lock().unwrap().is_empty();
        assert_eq!(recorded, behavior == ProviderBehavior::PanickingMetrics);
    }
    logged(&["ERROR provider-1 pods.v1: ", "this provider is broken"]);
    logged(&["ERROR metrics panicked: these metrics are broken"]);
}

#[test]
fn q18_named_work_queue_requests_metrics_from_provider() {
    logging();
    let provider = Arc::new(RecordingProvider::default());
    let add = |provider: &Arc<RecordingProvider>, name: Option<&str>| {
        let builder = WorkQueue::builder().metrics_provider(provider.clone());
        let builder = match name {
            Some(name) => builder.name(name),
            None => builder,
        };
        let queue = builder.build().unwrap();
        queue.add("a");
        queue.stop();
    };
    add(&provider, Some("pods"));
    add(&provider, Some("nodes"));
    add(&provider, None);
    assert_eq!(*provider.recorded.levels.lock().unwrap(), [1]);
    add(
        &RecordingProvider::with_behavior(ProviderBehavior::Panics),
        Some("pods"),
    );
    logged(&[
        "ERROR work queue \"pods\": ",
        "this provider has nothing for pods",
    ]);
}

/// Parses a text in the Prometheus format. Returns its samples by name and labels, and panics if
/// the format is invalid.
fn parse(text: &str) -> HashMap<(String, BTreeMap<String, String>), f64> {
    let mut samples = HashMap::new();
    let (mut family, mut kinds) = (String::new(), HashMap::new());
    assert!(text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            family = rest.split(' ').next().unwrap().to_owned();
            assert!(
                !kinds.contains_key(&family),
                "the lines of {family} are not contiguous"
            );
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
            let metric = if kinds[&family] == "histogram" {
                of_histogram.unwrap()
            } else {
                &name
            };
            assert_eq!(metric, family, "{line}");
            assert!(
                samples.insert((name, labels), value).is_none(),
                "duplicate sample: {line}"
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
fn example_serves_valid_prometheus_text() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    let exporter = Arc::new(Exporter::default());
    let odd = "a \"name\"\\ with\neverything";
    let factory = factory_with_metrics(&server, odd, exporter.clone());
    let informer = factory.informer_for(Source::dynamic(pods()));
    let blue = InformerScope::all().namespace("blue");
    factory.informer_for(Source::dynamic(pods()).scope(blue));
    let handler = informer
        .add_event_handler(|handler| handler.on_add(|_, _| {}))
        .unwrap();
    exporter.read_handler(&pods(), odd, handler.clone());
    exporter.read_reflector(&pods(), odd, {
        let informer = informer.clone();
        move || informer.status()
    });
    let stop = Stopper::new();
    factory.start(&stop).unwrap();
    factory.wait_for_cache_sync(SOON, &stop).unwrap();
    assert!(handler.synced().wait_timeout(SOON));
    let version = server.resource_version();
    wait_until("the reflector has received all objects", || {
        informer.last_sync_resource_version() == ResourceVersion::new(&version.to_string())
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
        wait_until("the store's version is published", || {
            figure("informer_store_resource_version", &[]) >= version as f64
        });
        wait_until("all items are processed", || {
            figure("informer_queued_items", &[]) == 0.0
        });
        assert_eq!(figure("reflector_watches_total", &[]), 1.0);
        assert_eq!(
            figure("reflector_lists_total", &[]),
            0.0,
            "the informer must use a watch-list"
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

        factory.shut_down(None).unwrap();
        assert!(
            !scraped()
                .keys()
                .any(|(name, _)| name.starts_with("informer_")),
            "the metrics of a stopped informer must be removed"
        );
        stop.stop();
        serving.join()
    });
    ended.unwrap();
}

#[test]
fn example_serves_client_metrics() {
    let server = ApiServer::start().unwrap();
    create(&server, "default", "a");
    let recorded = Arc::new(RestClient::default());
    let config = Config::new(server.url())
        .metrics(recorded.clone())
        .rate_limit(RateLimit::per_second(1000.0).burst(1000));
    let client = Client::new(config).unwrap();
    let pods = "/api/v1/namespaces/default/pods";
    let body = json!({"metadata": {"name": "b"}}).to_string();
    let length = client
        .request(&Request::get(pods), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap()
        .len();
    client
        .request(&Request::post(pods).body(body.clone()), &Stop::never())
        .unwrap()
        .bytes()
        .unwrap();
    server.fail_next(Fault::status(429).retry_after(0));
    let path = format!("{pods}/none");
    assert!(
        client
            .request(&Request::get(path), &Stop::never())
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

/// Stops the informer on drop, also if the test fails. Otherwise the thread scope would wait
/// forever for the thread of the informer.
struct Stopping(Stopper);

impl Drop for Stopping {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Polls until `condition` returns `true`, for conditions without a notification.
fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting until {what}");
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

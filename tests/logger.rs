//! A logger or a clock may call the crate while the crate calls it, without a deadlock. For
//! example, a logger may send the log lines of a client with the same client. A logger may also panic:
//! `println!` does if the output is closed.

#![allow(clippy::unwrap_used)]

use std::cell::Cell;
use std::fs;
use std::mem::ManuallyDrop;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, Once, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::client::Request;
use k8s_informer::handler::{HandlerFuncs, HandlerOptions};
use k8s_informer::informer::{FactoryOptions, InformerQueue, SharedIndexInformerOptions, Source};
use k8s_informer::metrics::{InformerMetrics, MetricsProvider};
use k8s_informer::object::{Accessor, GroupVersionResource, Key, ResourceVersion};
use k8s_informer::queue::{DeltaFifo, DeltaFifoOptions};
use k8s_informer::reflector::{ListerWatcher, ListerWatcherSource};
use k8s_informer::store::{IndexFunc, Indexers, KnownObjects, ReflectorStore, StoreError};
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::workqueue::{AnyWorkQueue, WorkQueue, WorkQueueMetrics};
use k8s_informer::{
    Client, Config, DynamicObject, Error, Object, SharedIndexInformer, SharedInformerFactory, Stop,
    Stopper,
};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};

const SOON: Duration = Duration::from_secs(20);

static CLIENT: OnceLock<Client> = OnceLock::new();
static LOGGED: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// A text, and the closure that is called when a logged line contains it.
type Hook = (&'static str, Arc<dyn Fn() + Send + Sync>);
static HOOKS: Mutex<Vec<Hook>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether the logger sends the lines of this thread with `CLIENT`. It does not send the lines of
    /// other tests: such a request would read the files of the client while its test writes them.
    static IS_SENT: Cell<bool> = const { Cell::new(false) };
}

struct RequestingLogger;

/// Sets the logger once for all tests.
fn logging() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        log::set_logger(&RequestingLogger).unwrap();
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// Calls `hook` for each logged line that contains `text`. The receiver gets a message after each
/// call.
fn on_log(text: &'static str, hook: impl Fn() + Send + Sync + 'static) -> Receiver<()> {
    logging();
    let (sender, called) = channel();
    let hook = move || {
        hook();
        let _ = sender.send(());
    };
    HOOKS.lock().unwrap().push((text, Arc::new(hook)));
    called
}

/// Runs `work` on another thread, and panics if it takes too long.
fn bounded<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, finished) = channel();
    thread::spawn(move || done.send(work()));
    finished
        .recv_timeout(SOON)
        .expect("timed out, probably a deadlock")
}

impl log::Log for RequestingLogger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        // Includes the HTTP library, as in a program that logs everything at trace level.
        ["k8s_informer", "ureq_proto"]
            .iter()
            .any(|target| metadata.target().starts_with(target))
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target().starts_with("k8s_informer")
            && IS_SENT.get()
            && let Some(client) = CLIENT.get()
        {
            LOGGED.lock().unwrap().push(record.args().to_string());
            client
                .request(&Request::get("/version"), &Stop::never())
                .unwrap_err();
        }
        let line = record.args().to_string();
        let hooks: Vec<_> = HOOKS
            .lock()
            .unwrap()
            .iter()
            .filter(|(text, _)| line.contains(text))
            .cloned()
            .collect();
        hooks.iter().for_each(|(_, hook)| hook());
    }

    fn flush(&self) {}
}

#[test]
fn logger_may_use_client_that_logs() {
    let folder = std::env::temp_dir().join(format!("k8s-informer-logger-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let (ca, token) = (folder.join("ca.crt"), folder.join("token"));
    let authority = || {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params
            .self_signed(&KeyPair::generate().unwrap())
            .unwrap()
            .pem()
    };
    fs::write(&ca, authority()).unwrap();
    fs::write(&token, "token").unwrap();
    // No server listens there, so each request fails.
    let config = Config::new("https://127.0.0.1:1")
        .no_proxy()
        .ca_file(&ca)
        .token_file(&token);
    CLIENT.get_or_init(|| Client::new(config).unwrap());
    logging();

    let mut warnings = 0;
    for (ca_now, token_now, expected) in [
        (authority(), "token", "certificates have changed"),
        (authority(), "", "is empty; using the last good token"),
        (
            "no PEM".to_owned(),
            "token",
            "using the previous certificates",
        ),
    ] {
        fs::write(&ca, ca_now).unwrap();
        fs::write(&token, token_now).unwrap();
        let (done, answered) = channel();
        thread::spawn(move || {
            // The client logs on the thread that calls it, so the logger calls the client within a
            // call of the client.
            IS_SENT.set(true);
            let client = CLIENT.get().unwrap();
            done.send(
                client
                    .request(&Request::get("/version"), &Stop::never())
                    .is_err(),
            )
            .unwrap();
        });
        assert!(
            answered
                .recv_timeout(Duration::from_secs(20))
                .expect("timed out, probably a deadlock"),
            "{expected}"
        );
        let logged = std::mem::take(&mut *LOGGED.lock().unwrap());
        assert_eq!(
            logged.iter().filter(|line| line.contains(expected)).count(),
            1,
            "{logged:?}"
        );
        warnings += logged
            .iter()
            .filter(|line| line.contains("\"ureq_proto\" is at level trace"))
            .count();
    }
    assert_eq!(warnings, 1, "expected one warning that tokens are logged");

    // Without a good token in the file, the token of the configuration is used.
    let fallback = on_log("; using the token of the configuration", || {});
    let config = Config::new("http://127.0.0.1:1")
        .no_proxy()
        .token_file("/nowhere/token")
        .token("inline");
    let client = Client::new(config).unwrap();
    let response = client.request(&Request::get("/version"), &Stop::never());
    assert!(response.is_err());
    fallback.recv_timeout(SOON).unwrap();
    fs::remove_dir_all(&folder).unwrap();
}

type Informer = SharedIndexInformer<DynamicObject>;

fn add_handler(informer: &Informer) {
    informer.add_handler(HandlerFuncs::new()).unwrap();
}

#[test]
fn logger_may_add_handler_during_add_handler() {
    let script = Arc::new(ScriptedListerWatcher::new([]));
    let informer = Informer::new(script, SharedIndexInformerOptions::default());
    let (too_short, no_period) = ({ informer.clone() }, informer.clone());
    let short = on_log("of 10ms is too short", move || add_handler(&too_short));
    let never = on_log("\"never resynced\"", move || add_handler(&no_period));
    bounded(move || {
        let mut options = HandlerOptions::default();
        options.name = Some("never resynced".to_owned());
        options.resync_period = Some(Duration::from_millis(10));
        informer
            .add_handler_with_options(HandlerFuncs::new(), options)
            .unwrap();
    });
    short.recv_timeout(SOON).unwrap();
    never.recv_timeout(SOON).unwrap();
}

/// A clock that calls the informer.
#[derive(Default)]
struct CallingClock {
    informer: OnceLock<Informer>,
}

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

impl Clock for CallingClock {
    fn now(&self) -> Instant {
        if let Some(informer) = self.informer.get()
            && !CALLING.replace(true)
        {
            informer.status();
            if !informer.is_stopped() {
                let _ = informer.add_handler(HandlerFuncs::new());
            }
            CALLING.set(false);
        }
        Instant::now()
    }

    fn wait(&self, duration: Duration, stop: &Stop) -> bool {
        !stop.wait_timeout(duration)
    }
}

#[test]
fn skipped_pem_block_is_logged_with_its_number() {
    let logged = on_log("the CA: skipped block 2: not valid PEM", || {});
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["a".to_owned()]).unwrap();
    let ca = params.self_signed(&key).unwrap().pem();
    let ca = format!("{ca}-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n{ca}");
    Client::new(Config::new("https://a").ca_pem(ca)).unwrap();
    logged.recv_timeout(SOON).unwrap();
}

#[test]
fn clock_may_call_informer() {
    let clock = Arc::new(CallingClock::default());
    let mut options = SharedIndexInformerOptions::default();
    options.reflector.clock = Arc::clone(&clock) as _;
    options.reflector.resync_period = Duration::from_secs(3600);
    // The reflector reads the clock when it publishes this error.
    let script = ScriptedListerWatcher::new([Answer::error(Error::other("no list today"))]);
    let informer = Informer::new(Arc::new(script), options);
    clock.informer.set(informer.clone()).unwrap();
    bounded({
        let informer = informer.clone();
        move || {
            let mut options = HandlerOptions::default();
            options.resync_period = Some(Duration::from_secs(60));
            informer
                .add_handler_with_options(HandlerFuncs::new(), options)
                .unwrap();
        }
    });
    let stop = Stopper::new();
    let (failed, failures) = channel();
    informer
        .set_watch_error_handler(move |_| failed.send(()).unwrap_or_default())
        .unwrap();
    let running = thread::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        move || informer.run(&stop)
    });
    failures
        .recv_timeout(SOON)
        .expect("timed out, probably a deadlock");
    stop.stop();
    assert!(informer.ended().wait_timeout(SOON));
    running.join().unwrap().unwrap();
}

/// Metrics that panic.
struct PanickingMetrics;

impl WorkQueueMetrics for PanickingMetrics {
    fn depth(&self, _: usize) {
        panic!("no depth today");
    }
}

impl InformerMetrics for PanickingMetrics {}

impl MetricsProvider for PanickingMetrics {
    fn informer_metrics(
        &self,
        _: &str,
        _: &GroupVersionResource,
    ) -> Option<Arc<dyn InformerMetrics>> {
        panic!("no provider today")
    }
}

#[test]
fn logger_may_use_queue_whose_metrics_panic() {
    let queue = WorkQueue::builder()
        .metrics(Arc::new(PanickingMetrics))
        .build()
        .unwrap();
    let queue: Arc<WorkQueue<u32>> = Arc::new(queue);
    let logged = on_log("no depth today", {
        let queue = Arc::clone(&queue);
        move || {
            if queue.len() < 3 {
                queue.add(queue.len() as u32);
            }
        }
    });
    bounded({
        let queue = Arc::clone(&queue);
        move || queue.add(0)
    });
    logged.recv_timeout(SOON).unwrap();
    assert_eq!(queue.len(), 3);
}

/// Known objects that list a key whose lookup fails.
struct FailingKnownObjects;

impl KnownObjects<DynamicObject> for FailingKnownObjects {
    fn list_keys(&self) -> Vec<Key> {
        vec!["a".into()]
    }

    fn lookup(&self, _: &str) -> Result<Option<Arc<DynamicObject>>, StoreError> {
        Err(StoreError::other("not known today"))
    }
}

#[test]
fn logger_may_use_queue_whose_known_objects_fail() {
    let queue = DeltaFifo::with_options(
        Accessor::object(),
        DeltaFifoOptions::new().known_objects(Arc::new(FailingKnownObjects)),
    );
    let queue: Arc<DeltaFifo<DynamicObject>> = Arc::new(queue);
    let logged = on_log("not known today", {
        let queue = Arc::clone(&queue);
        move || drop(queue.list_keys())
    });
    bounded({
        let queue = Arc::clone(&queue);
        move || {
            queue
                .replace(Vec::new(), ResourceVersion::new("7"))
                .unwrap();
        }
    });
    logged.recv_timeout(SOON).unwrap();
    assert_eq!(queue.list_keys(), ["a"]);
}

/// A source with one object per resource.
struct OneObject;

impl ListerWatcherSource for OneObject {
    fn lister_watcher(&self, _: &GroupVersionResource, _: Option<&str>) -> Arc<dyn ListerWatcher> {
        let list = r#"{"kind": "List", "metadata": {"resourceVersion": "7"}, "items": [{"metadata": {"name": "a"}}]}"#;
        Arc::new(ScriptedListerWatcher::new([
            Answer::body(list),
            Answer::open(""),
        ]))
    }
}

#[test]
fn logger_may_use_factory_whose_provider_panics() {
    let factory = SharedInformerFactory::with_options(
        OneObject,
        FactoryOptions::new().metrics("logger", Arc::new(PanickingMetrics)),
    );
    let pods = GroupVersionResource::new("", "v1", "pods");
    let logged = on_log("logger pods.v1: the metrics provider panicked", {
        let factory = factory.clone();
        move || {
            drop(
                factory.informer_for(Source::dynamic(GroupVersionResource::new(
                    "", "v1", "nodes",
                ))),
            );
        }
    });
    bounded(move || {
        factory.informer_for(Source::dynamic(pods));
    });
    logged.recv_timeout(SOON).unwrap();
}

#[test]
fn logger_may_add_handler_after_panic_on_the_only_thread() {
    let observed: Arc<OnceLock<Informer>> = Arc::default();
    let logged = on_log("no observer today", {
        let observed = Arc::clone(&observed);
        move || add_handler(observed.wait())
    });
    let factory = SharedInformerFactory::new(OneObject);
    let observation = factory
        .observe(Source::dynamic(GroupVersionResource::new("", "v1", "pods")))
        .on_added(|_| panic!("no observer today"))
        .one_thread(true)
        .start()
        .unwrap();
    // If the test fails, the observation is not dropped, because the drop would hang as well.
    let observation = ManuallyDrop::new(observation);
    observed.set(observation.informer().clone()).unwrap();
    logged
        .recv_timeout(SOON)
        .expect("timed out, probably a deadlock");
    bounded(move || {
        ManuallyDrop::into_inner(observation)
            .shut_down(None)
            .unwrap();
    });
}

/// The configurations of an informer: its queue, and whether it runs on one thread. The number makes
/// texts of a test different.
const CONFIGURATIONS: [(usize, InformerQueue, bool); 4] = [
    (0, InformerQueue::DeltaFifo, false),
    (1, InformerQueue::RealFifo, false),
    (2, InformerQueue::DeltaFifo, true),
    (3, InformerQueue::RealFifo, true),
];

/// Runs an informer whose list has "a". Each handler call sends the name of the object. `watch` is
/// read at once, and a list with "c" follows.
fn run_script(
    (_, queue, one_thread): (usize, InformerQueue, bool),
    watch: &str,
    indexers: Indexers<DynamicObject>,
) -> (Informer, Stopper, Receiver<String>) {
    let list = |version: &str, names: &[&str]| {
        let item = |name: &&str| {
            format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "1"}}}}"#)
        };
        let items: Vec<_> = names.iter().map(item).collect();
        let items = items.join(",");
        Answer::body(format!(
            r#"{{"kind": "List", "metadata": {{"resourceVersion": "{version}"}}, "items": [{items}]}}"#
        ))
    };
    let script = ScriptedListerWatcher::new([
        list("10", &["a"]),
        Answer::open(watch),
        list("20", &["a", "b", "c"]),
        Answer::open(""),
    ]);
    let mut options = SharedIndexInformerOptions::default();
    (options.queue, options.one_thread, options.indexers) = (queue, one_thread, indexers);
    options.reflector.backoff = Backoff::new(Duration::ZERO);
    let informer = Informer::new(Arc::new(script), options);
    let (added, names) = channel();
    informer
        .add_event_handler(|handler| {
            handler.on_add(move |object, _| added.send(object.name().to_owned()).unwrap())
        })
        .unwrap();
    let stop = Stopper::new();
    thread::spawn({
        let (informer, stop) = (informer.clone(), stop.clone());
        move || informer.run(&stop).unwrap()
    });
    (informer, stop, names)
}

fn added(name: &str) -> String {
    let object = format!(r#"{{"metadata": {{"name": "{name}", "resourceVersion": "11"}}}}"#);
    format!(r#"{{"type": "ADDED", "object": {object}}}"#) + "\n"
}

fn failed(message: &str) -> String {
    let status = format!(
        r#"{{"kind": "Status", "status": "Failure", "code": 500, "reason": "InternalError", "message": "{message}"}}"#
    );
    format!(r#"{{"type": "ERROR", "object": {status}}}"#) + "\n"
}

/// A text for one configuration.
fn text(what: &str, (number, ..): (usize, InformerQueue, bool)) -> &'static str {
    Box::leak(format!("{what} {number}").into_boxed_str())
}

#[test]
fn logger_that_panics_does_not_stop_an_informer() {
    for configuration in CONFIGURATIONS {
        // The logger panics at the failure, after an event that was read together with it, and at the
        // line about the recovery.
        let message = text("the server fails, the logger panics", configuration);
        let _logged = on_log(message, || panic!("no line today"));
        let watch = added("b") + &failed(message);
        let (informer, stop, names) = run_script(configuration, &watch, Indexers::new());
        for name in ["a", "b", "c"] {
            assert_eq!(names.recv_timeout(SOON).unwrap(), name, "{configuration:?}");
        }
        stop.stop();
        assert!(informer.ended().wait_timeout(SOON), "{configuration:?}");
    }
}

#[test]
fn logger_may_wait_for_events_read_before_an_error() {
    for configuration in CONFIGURATIONS {
        let message = text("the server fails, the logger waits", configuration);
        let (sender, received) = channel();
        let names: Arc<OnceLock<Mutex<Receiver<String>>>> = Arc::default();
        let _logged = on_log(message, {
            let names = Arc::clone(&names);
            move || {
                let names = names.wait().lock().unwrap();
                for _ in 0..2 {
                    let _ = sender.send(names.recv_timeout(SOON));
                }
            }
        });
        let watch = added("b") + &failed(message);
        let (_, stop, of_handler) = run_script(configuration, &watch, Indexers::new());
        names.set(Mutex::new(of_handler)).unwrap();
        for name in ["a", "b"] {
            let received = received.recv_timeout(2 * SOON).unwrap();
            assert_eq!(received.as_deref(), Ok(name), "{configuration:?}");
        }
        stop.stop();
    }
}

#[test]
fn logger_may_wait_for_events_read_with_an_unindexed_one() {
    for configuration in CONFIGURATIONS {
        let bad = text("unindexed", configuration);
        let (sender, received) = channel();
        let names: Arc<OnceLock<Mutex<Receiver<String>>>> = Arc::default();
        let _logged = on_log(bad, {
            let names = Arc::clone(&names);
            move || {
                let names = names.wait().lock().unwrap();
                for _ in 0..3 {
                    let _ = sender.send(names.recv_timeout(SOON));
                }
            }
        });
        let fails = IndexFunc::fallible(move |object: &DynamicObject| match object.name() {
            name if name == bad => Err("not this one"),
            _ => Ok(Vec::new()),
        });
        let watch = added(bad) + &added("b");
        let indexers = Indexers::new().with("index", fails);
        let (_, stop, of_handler) = run_script(configuration, &watch, indexers);
        names.set(Mutex::new(of_handler)).unwrap();
        for name in ["a", bad, "b"] {
            let received = received.recv_timeout(2 * SOON).unwrap();
            assert_eq!(received.as_deref(), Ok(name), "{configuration:?}");
        }
        stop.stop();
    }
}

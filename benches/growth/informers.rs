//! Informers whose source is in the same process.

use std::fmt::Write;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use k8s_informer::error::Error;
use k8s_informer::handler::HandlerFuncs;
use k8s_informer::informer::{FactoryOptions, InformerScope, SharedIndexInformerOptions, Source};
use k8s_informer::object::{GroupVersionResource, ResourceVersion};
use k8s_informer::reflector::{
    Body, ListOptions, ListerWatcher, ListerWatcherSource, ReflectorOptions,
};
use k8s_informer::time::Backoff;
use k8s_informer::{SharedIndexInformer, SharedInformerFactory, Stop, Stopper};
use k8s_informer_testing::{Answer, FakeControllerSource, ScriptedListerWatcher};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{Item, LIMIT, cpu_of, wait_until};

/// The objects of each namespace in [`namespaces`].
const PER_NAMESPACE: usize = 100;

pub(crate) fn events(n: usize) -> Duration {
    let mut events = String::new();
    for number in 0..n {
        let item = item(number);
        writeln!(events, r#"{{"type":"ADDED","object":{item}}}"#).unwrap();
    }
    let answers = [Answer::body(list(0)), Answer::open(events)];
    notify(informer(ScriptedListerWatcher::new(answers)), n, || {})
}

pub(crate) fn relist(n: usize) -> Duration {
    notify(informer(lists(n)), 2 * n, || {})
}

/// A hundred events for each handler.
pub(crate) fn handlers(n: usize) -> Duration {
    let informer = informer(lists(50));
    for _ in 1..n {
        informer.add_handler(HandlerFuncs::new()).unwrap();
    }
    notify(informer, 100, || {})
}

/// One cache of `n` namespaces.
pub(crate) fn namespaces(n: usize) -> Duration {
    let source = Namespaces::default();
    let (sources, open_watches) = (
        Arc::clone(&source.sources),
        Arc::clone(&source.open_watches),
    );
    let factory = SharedInformerFactory::with_options(
        source,
        FactoryOptions::new().reflector(reflector_options()),
    );
    let name = |number| format!("team-{number}");
    let scope = (0..n).fold(InformerScope::all(), |scope, number| {
        scope.namespace(name(number))
    });
    let informer = factory.informer_for(Source::of::<Item>().scope(scope));
    let notified = add_handler(&informer);
    factory.start(&Stop::never()).unwrap();
    wait_for(&notified, n * PER_NAMESPACE);
    wait_for(&open_watches, n);
    let cpu = cpu_of(|| {
        sources.lock().iter().for_each(expire_watch);
        wait_for(&notified, 2 * n * PER_NAMESPACE);
    });
    factory.shut_down(None).unwrap();
    cpu
}

/// Each event ends the wait of one thread.
pub(crate) fn waits(n: usize) -> Duration {
    let source = FakeControllerSource::new();
    source.add(json!({"metadata": {"name": "item"}}));
    let running = Running::new(informer(source.clone()));
    let informer = &running.informer;
    informer.wait_for_sync(LIMIT, &running.stop).unwrap();
    let version = |number: u64| ResourceVersion::new(&number.to_string()).unwrap();
    let last = source.resource_version();
    let (waiting, measured) = (Arc::new(Barrier::new(n + 1)), Stopper::new());
    let waits = (0..n).map(|number| {
        let version = version(last + 1 + number as u64);
        let (informer, stop) = (informer.clone(), Stopper::new());
        let (waiting, measured) = (Arc::clone(&waiting), measured.clone());
        thread::spawn(move || {
            waiting.wait();
            informer
                .wait_for_resource_version(&version, LIMIT, &stop)
                .unwrap();
            // The CPU time of a thread counts while it lives.
            measured.wait();
        })
    });
    let waits: Vec<_> = waits.collect();
    waiting.wait();
    let cpu = cpu_of(|| {
        for number in 0..n {
            source.add(json!({"metadata": {"name": format!("item-{number}")}}));
            let version = version(source.resource_version());
            informer
                .wait_for_resource_version(&version, LIMIT, &running.stop)
                .unwrap();
        }
    });
    measured.stop();
    waits.into_iter().for_each(|wait| wait.join().unwrap());
    running.end();
    cpu
}

pub(crate) fn test_source(n: usize) -> Duration {
    let source = FakeControllerSource::new();
    let informer = informer(source.clone());
    notify(informer, n, || {
        for number in 0..n {
            source.add(json!({"metadata": {"name": format!("item-{number}")}}));
        }
    })
}

/// Returns the CPU time from the start of the informer until a handler has been notified `count`
/// times. `then` runs meanwhile.
fn notify(informer: SharedIndexInformer<Item>, count: usize, then: impl FnOnce()) -> Duration {
    let notified = add_handler(&informer);
    let mut running = None;
    let cpu = cpu_of(|| {
        running = Some(Running::new(informer));
        then();
        wait_for(&notified, count);
    });
    running.into_iter().for_each(Running::end);
    cpu
}

/// An informer that runs on a thread.
struct Running {
    informer: SharedIndexInformer<Item>,
    stop: Stopper,
    thread: JoinHandle<()>,
}

impl Running {
    fn new(informer: SharedIndexInformer<Item>) -> Self {
        let stop = Stopper::new();
        let run = (informer.clone(), stop.clone());
        Self {
            informer,
            stop,
            thread: thread::spawn(move || run.0.run(&run.1).unwrap()),
        }
    }

    fn end(self) {
        self.stop.stop();
        self.thread.join().unwrap();
    }
}

/// Adds a handler that counts its notifications.
fn add_handler(informer: &SharedIndexInformer<Item>) -> Arc<AtomicUsize> {
    let notified = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&notified);
    let handler = HandlerFuncs::new().on_event(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
    informer.add_handler(handler).unwrap();
    notified
}

fn wait_for(notified: &AtomicUsize, count: usize) {
    wait_until(|| notified.load(Ordering::Relaxed) >= count);
}

fn informer(source: impl ListerWatcher + 'static) -> SharedIndexInformer<Item> {
    let options = SharedIndexInformerOptions::new().reflector(reflector_options());
    SharedIndexInformer::new(Arc::new(source), options)
}

/// Without waits before a relist.
fn reflector_options() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO);
    options
}

/// Ends the watch of a source, and makes its version too old for the next one.
fn expire_watch(source: &NamespaceSource) {
    source.objects.modify_drop_watch(source.last.clone());
    source.objects.reset_watch();
}

/// The sources of the namespaces.
#[derive(Default)]
struct Namespaces {
    sources: Arc<Mutex<Vec<NamespaceSource>>>,
    /// How many watches have begun.
    open_watches: Arc<AtomicUsize>,
}

#[derive(Clone)]
struct NamespaceSource {
    objects: FakeControllerSource,
    last: Value,
    open_watches: Arc<AtomicUsize>,
}

impl ListerWatcher for NamespaceSource {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.objects.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        let watch = self.objects.watch(options, stop)?;
        self.open_watches.fetch_add(1, Ordering::Relaxed);
        Ok(watch)
    }
}

impl ListerWatcherSource for Namespaces {
    fn lister_watcher(
        &self,
        _: &GroupVersionResource,
        namespace: Option<&str>,
    ) -> Arc<dyn ListerWatcher> {
        let (objects, mut last) = (FakeControllerSource::new(), Value::Null);
        for n in 0..PER_NAMESPACE {
            let name = format!("item-{n}");
            last = objects.add(json!({"metadata": {"namespace": namespace, "name": name}}));
        }
        let open_watches = Arc::clone(&self.open_watches);
        let source = NamespaceSource {
            objects,
            last,
            open_watches,
        };
        self.sources.lock().push(source.clone());
        Arc::new(source)
    }
}

/// A list, a watch that has expired, the same list again, and a silent watch.
fn lists(count: usize) -> ScriptedListerWatcher {
    const EXPIRED: &str = concat!(
        r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","code":410}}"#,
        "\n"
    );
    ScriptedListerWatcher::new([
        Answer::body(list(count)),
        Answer::body(EXPIRED),
        Answer::body(list(count)),
        Answer::open(""),
    ])
}

fn list(count: usize) -> String {
    let items: Vec<String> = (0..count).map(item).collect();
    let items = items.join(",");
    format!(
        r#"{{"kind":"ConfigMapList","apiVersion":"v1","metadata":{{"resourceVersion":"1"}},"items":[{items}]}}"#
    )
}

/// The version is at least 2, so that a list of version 1 can be followed by events.
fn item(n: usize) -> String {
    let version = n + 2;
    format!(
        r#"{{"metadata":{{"namespace":"default","name":"item-{n}","resourceVersion":"{version}"}}}}"#
    )
}

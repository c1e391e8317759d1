use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use k8s_informer::handler::ResourceEventHandler;
use k8s_informer::informer::{InformerQueue, SharedIndexInformerOptions};
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{
    Body, ListOptions, ListerWatcher, ReflectorOptions, ReflectorStatus,
};
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::{Deleted, Error, Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::{Answer, ScriptedListerWatcher};
use parking_lot::{Condvar, Mutex};
use serde::de::DeserializeOwned;

/// How long a test waits for an event that must happen.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const QUEUES: [InformerQueue; 2] = [InformerQueue::DeltaFifo, InformerQueue::RealFifo];

pub(crate) const DELIVERIES: [Delivery; 3] = [Delivery::List, Delivery::Pages, Delivery::WatchList];

/// Ends a watch so that a relist follows, with a sign that etcd may have been restored.
pub(crate) const EXPIRED: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}}"#;

/// Ends a watch so that a list follows, without a sign that etcd may have been restored: the user
/// may not watch for a moment.
pub(crate) const FORBIDDEN: &str = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":403,"reason":"Forbidden"}}"#;

/// The last event of a script. Once it is delivered, everything before it is delivered.
pub(crate) const LAST: &str =
    r#"{"type":"ADDED","object":{"metadata":{"name":"last","resourceVersion":"999"},"size":1}}"#;

/// How a server sends its state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Delivery {
    List,
    Pages,
    WatchList,
}

/// A version, and the objects at that version.
pub(crate) type State = (&'static str, Vec<Vec<u8>>);

impl Delivery {
    /// A server with these states, one after the other. The events follow the last state.
    pub(crate) fn script(self, states: &[State], events: &[u8]) -> ScriptedListerWatcher {
        self.script_between(EXPIRED, states, events)
    }

    /// Like [`Delivery::script`], with `between` as the end of each watch except the last one.
    pub(crate) fn script_between(
        self,
        between: &str,
        states: &[State],
        events: &[u8],
    ) -> ScriptedListerWatcher {
        let mut answers = Vec::new();
        for (at, (version, items)) in states.iter().enumerate() {
            let end = if at + 1 < states.len() {
                between.as_bytes()
            } else {
                events
            };
            let end = |mut body: Vec<u8>| {
                body.extend_from_slice(end);
                body.push(b'\n');
                if at + 1 < states.len() {
                    return Answer::body(body);
                }
                body.extend_from_slice(LAST.as_bytes());
                Answer::open(body)
            };
            match self {
                Self::List => answers.push(Answer::body(list(version, "", items))),
                Self::Pages => {
                    let pages: Vec<_> = items.chunks(2).collect();
                    for (page, items) in pages.iter().enumerate() {
                        let is_last = page + 1 == pages.len();
                        let token = if is_last {
                            String::new()
                        } else {
                            format!("more-{page}")
                        };
                        answers.push(Answer::body(list(version, &token, items)));
                    }
                }
                Self::WatchList => {
                    answers.push(end(initial_events(version, items)));
                    continue;
                }
            }
            answers.push(end(Vec::new()));
        }
        let script = ScriptedListerWatcher::new(answers);
        if self == Self::WatchList {
            script.with_watch_list()
        } else {
            script
        }
    }
}

/// A page of a list.
pub(crate) fn list(version: &str, token: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let head = format!(
        r#"{{"kind":"List","apiVersion":"v1","metadata":{{"resourceVersion":"{version}","continue":"{token}"}},"items":["#
    );
    [head.as_bytes(), &items.join(&b","[..]), b"]}\n"].concat()
}

/// The first events of a watch list.
pub(crate) fn initial_events(version: &str, items: &[Vec<u8>]) -> Vec<u8> {
    let mut body: Vec<u8> = items.iter().flat_map(|item| event("ADDED", item)).collect();
    let bookmark = format!(
        r#"{{"type":"BOOKMARK","object":{{"metadata":{{"resourceVersion":"{version}","annotations":{{"k8s.io/initial-events-end":"true"}}}}}}}}"#
    );
    body.extend_from_slice(bookmark.as_bytes());
    body.push(b'\n');
    body
}

pub(crate) fn event(kind: &str, object: &[u8]) -> Vec<u8> {
    [
        br#"{"type":""#,
        kind.as_bytes(),
        br#"","object":"#,
        object,
        b"}\n",
    ]
    .concat()
}

#[derive(Debug)]
pub(crate) enum Change<T> {
    Add(Arc<T>),
    Update(Arc<T>, Arc<T>),
    Delete(Deleted<T>),
}

struct ReceivedChanges<T> {
    changes: Mutex<Vec<Change<T>>>,
    changed: Condvar,
}

struct Handler<T>(Arc<ReceivedChanges<T>>);

impl<T> Handler<T> {
    fn record(&self, change: Change<T>) {
        self.0.changes.lock().push(change);
        self.0.changed.notify_all();
    }
}

impl<T: Object> ResourceEventHandler<T> for Handler<T> {
    fn on_add(&mut self, object: &Arc<T>, _: bool) {
        self.record(Change::Add(Arc::clone(object)));
    }

    fn on_update(&mut self, old: &Arc<T>, new: &Arc<T>) {
        self.record(Change::Update(Arc::clone(old), Arc::clone(new)));
    }

    fn on_delete(&mut self, gone: &Deleted<T>) {
        self.record(Change::Delete(gone.clone()));
    }
}

/// An informer that runs until the end of the test, and the changes that its handler received.
pub(crate) struct TestInformer<T: Object> {
    pub(crate) informer: SharedIndexInformer<T>,
    pub(crate) script: ScriptedListerWatcher,
    received: Arc<ReceivedChanges<T>>,
    stop: Stopper,
    thread: Option<thread::JoinHandle<()>>,
}

/// A script that waits before each response, except before later pages of a list.
struct Paced<W> {
    script: ScriptedListerWatcher,
    wait: W,
}

impl<W: Fn() + Send + Sync> ListerWatcher for Paced<W> {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        if options.continue_token.is_none() {
            (self.wait)();
        }
        self.script.list(options, stop)
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        (self.wait)();
        self.script.watch(options, stop)
    }

    fn supports_watch_list(&self) -> bool {
        self.script.supports_watch_list()
    }

    fn description(&self) -> String {
        self.script.description()
    }
}

/// A clock that stands still and ends all waits at once.
#[derive(Debug)]
struct NoWaits(Instant);

impl Clock for NoWaits {
    fn now(&self) -> Instant {
        self.0
    }

    fn wait(&self, _: Duration, stop: &Stop) -> bool {
        !stop.is_stopped()
    }
}

/// Options whose waits end at once. The clock stands still, so an unreadable object does not cause
/// a relist.
pub(crate) fn options() -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.backoff = Backoff::new(Duration::ZERO);
    options.clock = Arc::new(NoWaits(Instant::now()));
    options
}

impl<T: Object + DeserializeOwned> TestInformer<T> {
    pub(crate) fn run(
        script: ScriptedListerWatcher,
        queue: InformerQueue,
        set: impl FnOnce(&mut ReflectorOptions),
    ) -> Self {
        Self::run_paced(script, queue, 0, set)
    }

    /// Runs an informer. Each request after the first one waits until at least `cached` objects are
    /// cached and the first list has been processed. Zero means no wait.
    pub(crate) fn run_paced(
        script: ScriptedListerWatcher,
        queue: InformerQueue,
        cached: usize,
        set: impl FnOnce(&mut ReflectorOptions),
    ) -> Self {
        let informer = Arc::new(OnceLock::<SharedIndexInformer<T>>::new());
        let wait = {
            let (script, informer) = (script.clone(), Arc::clone(&informer));
            let is_cached = move |informer: &SharedIndexInformer<T>| {
                cached == 0 || informer.has_synced() && informer.lister().len() >= cached
            };
            move || {
                if !script.requests().is_empty() {
                    until(|| informer.get().is_some_and(&is_cached));
                }
            }
        };
        let paced = Paced {
            script: script.clone(),
            wait,
        };
        let this = Self::run_on(Arc::new(paced), script, queue, set);
        let _ = informer.set(this.informer.clone());
        this
    }

    /// Runs an informer over a lister-watcher that forwards requests to `script`.
    pub(crate) fn run_on(
        lister_watcher: Arc<dyn ListerWatcher>,
        script: ScriptedListerWatcher,
        queue: InformerQueue,
        set: impl FnOnce(&mut ReflectorOptions),
    ) -> Self {
        let mut informer_options = SharedIndexInformerOptions::new().reflector(options());
        informer_options.queue = queue;
        set(&mut informer_options.reflector);
        let informer = SharedIndexInformer::<T>::new(lister_watcher, informer_options);
        let received = Arc::new(ReceivedChanges {
            changes: Mutex::default(),
            changed: Condvar::new(),
        });
        informer
            .add_handler(Handler(Arc::clone(&received)))
            .unwrap();
        let stop = Stopper::new();
        let thread = thread::spawn({
            let (informer, stop) = (informer.clone(), stop.clone());
            move || informer.run(&stop).unwrap()
        });
        Self {
            informer,
            script,
            received,
            stop,
            thread: Some(thread),
        }
    }

    /// Waits until the script ends and everything is delivered.
    pub(crate) fn until_last(&self) {
        let is_last =
            |change: &Change<T>| matches!(change, Change::Add(object) if object.name() == "last");
        let deadline = Instant::now() + TIMEOUT;
        let mut changes = self.received.changes.lock();
        while !changes.iter().any(is_last) {
            let late = self
                .received
                .changed
                .wait_until(&mut changes, deadline)
                .timed_out();
            assert!(
                !late,
                "{:?} {:?}",
                self.informer.status(),
                self.script.requests()
            );
        }
        drop(changes);
        // The handler may get the last event before the reflector updates its version.
        until(|| self.informer.last_sync_resource_version() == ResourceVersion::new("999"));
    }

    /// Returns the notifications in short form: `+ns/a@1`, `ns/a@1>2`, `-ns/a@2`, or `-ns/a@?1` if
    /// the final state is unknown. Omits updates to the same version.
    pub(crate) fn notifications(&self) -> Vec<String> {
        self.until_last();
        let version = |object: &Arc<T>| object.resource_version().to_owned();
        let changes = self.received.changes.lock();
        let words = changes.iter().filter_map(|change| match change {
            Change::Add(object) if object.name() == "last" => None,
            Change::Add(object) => Some(format!("+{}", id(&**object))),
            Change::Update(old, new) if version(old) == version(new) => None,
            Change::Update(old, new) => {
                let new = version(new);
                Some(format!("{}>{new}", id(&**old)))
            }
            Change::Delete(Deleted::Final(object)) => Some(format!("-{}", id(&**object))),
            Change::Delete(Deleted::FinalStateUnknown { key, last_known }) => Some(format!(
                "-{key}@?{}",
                last_known.as_ref().map(version).unwrap_or_default()
            )),
        });
        words.collect()
    }

    /// Passes all notifications to `look` and returns its result.
    pub(crate) fn changes<R>(&self, look: impl FnOnce(&[Change<T>]) -> R) -> R {
        self.until_last();
        look(&self.received.changes.lock())
    }

    /// The keys of all delivered deletions.
    pub(crate) fn deleted_keys(&self) -> Vec<String> {
        let notifications = self.notifications();
        let gone = notifications
            .iter()
            .filter_map(|notification| notification.strip_prefix('-')?.split('@').next());
        gone.map(str::to_owned).collect()
    }

    /// The objects in the cache, in the form `ns/a@1`.
    pub(crate) fn cache(&self) -> Vec<String> {
        self.until_last();
        let objects = self.informer.lister().list();
        let mut ids: Vec<_> = objects.iter().map(|object| id(&**object)).collect();
        ids.retain(|id| !id.starts_with("/last@") && !id.starts_with("last@"));
        ids.sort();
        ids
    }

    pub(crate) fn status(&self) -> ReflectorStatus {
        self.until_last();
        self.informer.status()
    }
}

fn id<T: Object>(object: &T) -> String {
    format!(
        "{}@{}",
        k8s_informer::object::meta_namespace_key(object),
        object.resource_version()
    )
}

impl<T: Object> Drop for TestInformer<T> {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok());
        }
    }
}

pub(crate) fn until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(
            Instant::now() < deadline,
            "the condition was not met in time"
        );
        thread::yield_now();
    }
}

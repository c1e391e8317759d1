//! A reflector that runs on scripted responses and a fake clock.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use k8s_informer::error::Status;
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{
    Body, ListOptions, ListerWatcher, Reflector, ReflectorOptions, ReflectorStatus, TimedRead,
};
use k8s_informer::store::{ReflectorStore, StoreError};
use k8s_informer::time::Backoff;
use k8s_informer::{Deleted, DynamicObject, Error, Object, Stop, Stopper};
use k8s_informer_testing::{Answer, FakeClock, ScriptedListerWatcher, ScriptedRequest};
use parking_lot::{Condvar, Mutex};
use serde::de::DeserializeOwned;

use crate::log_capture;

/// The longest time that a test waits for an event.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// In a body: silence until the read timeout, or until the reflector is stopped if no timeout is
/// set. The next read continues after it.
pub(crate) const SILENCE: &str = "\u{1}";
/// In a body: the fake clock advances by one second.
pub(crate) const TICK: &str = "\u{2}";

/// A store that records its calls.
#[derive(Default)]
pub(crate) struct Recorder {
    calls: Mutex<Vec<String>>,
    /// Notified of each call.
    called: Condvar,
    refuse_replace: AtomicUsize,
    refuse_resync: AtomicUsize,
}

impl Recorder {
    /// Rejects the first `lists` lists.
    pub(crate) fn refusing(lists: usize) -> Self {
        Self {
            refuse_replace: lists.into(),
            ..Self::default()
        }
    }

    /// Rejects the first `resyncs` resyncs.
    pub(crate) fn refusing_resyncs(resyncs: usize) -> Self {
        Self {
            refuse_resync: resyncs.into(),
            ..Self::default()
        }
    }

    fn record(&self, call: String) -> Result<(), StoreError> {
        self.calls.lock().push(call);
        self.called.notify_all();
        Ok(())
    }

    /// Waits for `count` calls, and returns them.
    #[track_caller]
    pub(crate) fn until_calls(&self, count: usize) -> Vec<String> {
        let mut calls = self.calls.lock();
        let is_short = |calls: &mut Vec<String>| calls.len() < count;
        let waited = self.called.wait_while_for(&mut calls, is_short, TIMEOUT);
        assert!(!waited.timed_out(), "{calls:?}");
        calls.clone()
    }

    fn refuse(left: &AtomicUsize) -> Result<(), StoreError> {
        let refuses = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
            left.checked_sub(1)
        });
        if refuses.is_ok() {
            Err(StoreError::other("no"))
        } else {
            Ok(())
        }
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }
}

fn describe_object(object: &DynamicObject) -> String {
    format!("{}@{}", object.name(), object.resource_version())
}

/// Returns the text of a version, or `-` without one.
pub(crate) fn shown(version: Option<&ResourceVersion>) -> String {
    version.map_or("-".to_owned(), ToString::to_string)
}

impl ReflectorStore<DynamicObject> for Recorder {
    fn add(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.record(format!("add {}", describe_object(&object)))
    }

    fn update(&self, object: Arc<DynamicObject>) -> Result<(), StoreError> {
        self.record(format!("update {}", describe_object(&object)))
    }

    fn delete(&self, object: Deleted<DynamicObject>) -> Result<(), StoreError> {
        self.record(format!(
            "delete {}",
            object
                .object()
                .map(|object| describe_object(object))
                .unwrap_or_default()
        ))
    }

    fn replace(
        &self,
        objects: Vec<Arc<DynamicObject>>,
        resource_version: Option<ResourceVersion>,
    ) -> Result<(), StoreError> {
        let mut names: Vec<_> = objects
            .iter()
            .map(|object| describe_object(object))
            .collect();
        names.sort();
        self.record(format!(
            "replace [{}] at {}",
            names.join(" "),
            shown(resource_version.as_ref())
        ))?;
        Self::refuse(&self.refuse_replace)
    }

    fn resync(&self) -> Result<(), StoreError> {
        self.record("resync".to_owned())?;
        Self::refuse(&self.refuse_resync)
    }

    fn bookmark(&self, resource_version: Option<ResourceVersion>) -> Result<(), StoreError> {
        self.record(format!("bookmark {}", shown(resource_version.as_ref())))
    }
}

/// A scripted server whose bodies advance the clock. It records their read timeouts, and how many
/// are open.
#[derive(Clone)]
pub(crate) struct Server {
    script: ScriptedListerWatcher,
    pub(crate) clock: FakeClock,
    /// The duration of each request.
    latency: Duration,
    /// Whether the bodies support read timeouts.
    read_timeouts: bool,
    state: Arc<ServerState>,
}

#[derive(Default)]
struct ServerState {
    read_timeouts: Mutex<Vec<Option<Duration>>>,
    open: AtomicUsize,
    /// The largest number of bodies that were open at a request.
    open_at_request: AtomicUsize,
}

impl Server {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self {
            script: ScriptedListerWatcher::new(answers),
            clock: FakeClock::new(),
            latency: Duration::ZERO,
            read_timeouts: true,
            state: Arc::default(),
        }
    }

    pub(crate) fn with_watch_list(self) -> Self {
        Self {
            script: self.script.with_watch_list(),
            ..self
        }
    }

    /// Makes each request take this time.
    pub(crate) fn with_latency(self, latency: Duration) -> Self {
        Self { latency, ..self }
    }

    pub(crate) fn without_read_timeouts(self) -> Self {
        Self {
            read_timeouts: false,
            ..self
        }
    }

    /// Returns the read timeouts that were set so far, over all bodies.
    pub(crate) fn read_timeouts(&self) -> Vec<Option<Duration>> {
        self.state.read_timeouts.lock().clone()
    }

    /// Returns the number of open bodies.
    pub(crate) fn open_bodies(&self) -> usize {
        self.state.open.load(Ordering::SeqCst)
    }

    /// Returns the largest number of bodies that were open at a request.
    pub(crate) fn open_bodies_at_request(&self) -> usize {
        self.state.open_at_request.load(Ordering::SeqCst)
    }

    /// Waits for `count` requests, and returns their descriptions.
    #[track_caller]
    pub(crate) fn requests(&self, count: usize) -> Vec<String> {
        self.options(count).iter().map(describe).collect()
    }

    /// Waits for `count` requests, and returns them.
    #[track_caller]
    pub(crate) fn options(&self, count: usize) -> Vec<ScriptedRequest> {
        self.script.wait_for_requests(count, TIMEOUT).unwrap();
        self.script.requests().into_iter().take(count).collect()
    }

    /// Returns the number of requests so far.
    pub(crate) fn request_count(&self) -> usize {
        self.script.requests().len()
    }

    fn response(
        &self,
        stop: &Stop,
        request: impl FnOnce() -> Result<Body, Error>,
    ) -> Result<Body, Error> {
        self.state
            .open_at_request
            .fetch_max(self.open_bodies(), Ordering::SeqCst);
        self.clock.advance(self.latency);
        let body = request()?;
        self.state.open.fetch_add(1, Ordering::SeqCst);
        let (server, stop) = (self.clone(), stop.clone());
        let body = ServerBody {
            body,
            pending: VecDeque::new(),
            limit: None,
            stop,
            server,
        };
        Ok(match self.read_timeouts {
            true => Body::timed(body),
            false => Body::new(body),
        })
    }
}

impl ListerWatcher for Server {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.response(stop, || self.script.list(options, stop))
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.response(stop, || self.script.watch(options, stop))
    }

    fn supports_watch_list(&self) -> bool {
        self.script.supports_watch_list()
    }

    fn description(&self) -> String {
        self.script.description()
    }
}

struct ServerBody {
    body: Body,
    pending: VecDeque<u8>,
    limit: Option<Duration>,
    stop: Stop,
    server: Server,
}

impl TimedRead for ServerBody {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        if timeout.is_some() && self.limit != timeout {
            self.server.state.read_timeouts.lock().push(timeout);
            self.limit = timeout;
        }
        self.read(buffer)
    }
}

impl Read for ServerBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.pending.is_empty() {
                let length = self.body.read(buffer)?;
                self.pending.extend(&buffer[..length]);
            }
            let is_mark = |byte: &u8| [SILENCE.as_bytes()[0], TICK.as_bytes()[0]].contains(byte);
            let length = self
                .pending
                .iter()
                .take(buffer.len())
                .take_while(|byte| !is_mark(byte))
                .count();
            if length > 0 || self.pending.is_empty() {
                return self.pending.read(&mut buffer[..length]);
            }
            if self.pending.pop_front() == Some(TICK.as_bytes()[0]) {
                self.server.clock.advance(SECOND);
                continue;
            }
            let Some(limit) = self.limit else {
                self.stop.wait();
                return Err(io::Error::other("stopped"));
            };
            self.server.clock.advance(limit);
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
}

impl Drop for ServerBody {
    fn drop(&mut self) {
        self.server.state.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A reflector that runs on a script until this value is dropped.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) store: Arc<Recorder>,
    pub(crate) clock: FakeClock,
    passed: Cell<usize>,
    pub(crate) reflector: Arc<Reflector<DynamicObject>>,
    /// The errors that the watch error handler received.
    pub(crate) errors: Arc<Mutex<Vec<Error>>>,
    pub(crate) stop: Stopper,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    /// Starts a reflector on a server without watch-lists.
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::with(answers, |_| {})
    }

    pub(crate) fn with(
        answers: impl IntoIterator<Item = Answer>,
        set: impl FnOnce(&mut ReflectorOptions),
    ) -> Self {
        Self::start(Server::new(answers), Recorder::default(), set)
    }

    /// Starts a reflector on a server with watch-lists.
    pub(crate) fn watch_list(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self::start(
            Server::new(answers).with_watch_list(),
            Recorder::default(),
            |_| {},
        )
    }

    pub(crate) fn start(
        server: Server,
        store: Recorder,
        set: impl FnOnce(&mut ReflectorOptions),
    ) -> Self {
        let (clock, store) = (server.clock.clone(), Arc::new(store));
        let errors = Arc::new(Mutex::new(Vec::new()));
        let mut options = ReflectorOptions::default();
        options.clock = Arc::new(clock.clone());
        options.backoff = Backoff::new(SECOND).factor(2.0).cap(30 * SECOND);
        let handled_errors = Arc::clone(&errors);
        options.watch_error_handler = Some(Arc::new(move |error: &Error| {
            handled_errors.lock().push(error.clone());
        }));
        set(&mut options);
        let reflector = Arc::new(Reflector::new(
            Arc::new(server.clone()),
            store.clone(),
            options,
        ));
        let stop = Stopper::new();
        let thread = thread::spawn({
            let (reflector, stop) = (Arc::clone(&reflector), stop.clone());
            move || reflector.run(&stop)
        });
        Self {
            server,
            store,
            clock,
            passed: Cell::new(0),
            reflector,
            errors,
            stop,
            thread: Some(thread),
        }
    }

    /// Waits for `count` requests, and returns their descriptions.
    #[track_caller]
    pub(crate) fn requests(&self, count: usize) -> Vec<String> {
        self.server.requests(count)
    }

    /// Waits for `count` requests, and returns them.
    #[track_caller]
    pub(crate) fn options(&self, count: usize) -> Vec<ScriptedRequest> {
        self.server.options(count)
    }

    /// Returns the number of requests so far.
    pub(crate) fn request_count(&self) -> usize {
        self.server.request_count()
    }

    /// Waits until `bodies` bodies were read and processed. Returns the store's calls.
    #[track_caller]
    pub(crate) fn calls(&self, bodies: usize) -> Vec<String> {
        let script = &self.server.script;
        script.wait_for_bodies(bodies, TIMEOUT).unwrap();
        self.store.calls()
    }

    /// Waits until another wait has begun, and advances the clock.
    #[track_caller]
    pub(crate) fn advance_wait(&self, time: Duration) {
        self.wait_for_waits(self.passed.get() + 1);
        self.passed.set(self.clock.waits().len());
        self.clock.advance(time);
    }

    /// Waits until `count` waits have begun.
    #[track_caller]
    pub(crate) fn wait_for_waits(&self, count: usize) {
        self.clock.wait_for_waits(count, TIMEOUT).unwrap();
    }

    /// Returns the duration of each wait so far, in seconds.
    pub(crate) fn waited(&self) -> Vec<u64> {
        self.clock.waits().iter().map(Duration::as_secs).collect()
    }

    pub(crate) fn status(&self) -> ReflectorStatus {
        self.reflector.status()
    }

    /// Returns the last error.
    #[track_caller]
    pub(crate) fn last_error(&self) -> Error {
        self.status().last_error.expect("no error was recorded")
    }

    /// Returns the number of errors that the watch error handler received.
    pub(crate) fn handled_errors(&self) -> usize {
        self.errors.lock().len()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(thread::panicking() || ended.is_ok());
        }
    }
}

/// Runs a reflector on any store until `bodies` bodies were read and processed, and returns its
/// status. The back-off is zero.
pub(crate) fn run_until_read<T, S>(
    store: &Arc<S>,
    script: &ScriptedListerWatcher,
    bodies: usize,
) -> ReflectorStatus
where
    S: ReflectorStore<T> + 'static,
    T: Object + DeserializeOwned,
{
    run_until_read_with(store, script, bodies, |_| {})
}

/// Like [`run_until_read`], with options.
pub(crate) fn run_until_read_with<T, S>(
    store: &Arc<S>,
    script: &ScriptedListerWatcher,
    bodies: usize,
    set: impl FnOnce(&mut ReflectorOptions),
) -> ReflectorStatus
where
    S: ReflectorStore<T> + 'static,
    T: Object + DeserializeOwned,
{
    let mut options = ReflectorOptions::default();
    // The clock stands still, so the relists that would fetch missing objects never become due.
    options.clock = Arc::new(FakeClock::new());
    options.backoff = Backoff::new(Duration::ZERO);
    set(&mut options);
    let reflector = Reflector::new(Arc::new(script.clone()), Arc::<S>::clone(store), options);
    let stop = Stopper::new();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&stop));
        let read = script.wait_for_bodies(bodies, TIMEOUT);
        stop.stop();
        assert!(read.is_ok(), "{read:?}: {:?}", script.requests());
    });
    reflector.status()
}

pub(crate) fn describe(request: &ScriptedRequest) -> String {
    let (kind, options) = match request {
        ScriptedRequest::List(options) => ("list", options),
        ScriptedRequest::Watch(options) if options.send_initial_events => ("watch-list", options),
        ScriptedRequest::Watch(options) => ("watch", options),
        _ => unreachable!(),
    };
    let version = options.resource_version.as_ref();
    let version = version.map_or("most recent".to_owned(), ToString::to_string);
    let mut text = format!("{kind} {version}");
    if let Some(limit) = options.limit {
        text += &format!(" limit {limit}");
    }
    if let (ScriptedRequest::List(_), Some(rule)) = (request, options.resource_version_match) {
        text += &format!(" {}", rule.as_str());
    }
    if let Some(token) = &options.continue_token {
        text += &format!(" continue {token}");
    }
    text
}

pub(crate) fn object(name: &str, version: &str) -> String {
    format!(r#"{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}}}}"#)
}

pub(crate) fn list(version: &str, names: &[&str]) -> Answer {
    page(version, names, "")
}

pub(crate) fn page(version: &str, names: &[&str], continue_token: &str) -> Answer {
    let items: Vec<_> = names.iter().map(|name| object(name, "1")).collect();
    Answer::body(format!(
        r#"{{"kind":"PodList","metadata":{{"resourceVersion":"{version}","continue":"{continue_token}"}},"items":[{}]}}"#,
        items.join(","),
    ))
}

pub(crate) fn event(kind: &str, name: &str, version: &str) -> String {
    format!(
        "{{\"type\":\"{kind}\",\"object\":{}}}\n",
        object(name, version)
    )
}

/// The bookmark that ends the initial events of a watch-list.
pub(crate) fn initial_events_end(version: &str) -> String {
    bookmark(version, r#"{"k8s.io/initial-events-end":"true"}"#)
}

pub(crate) fn bookmark(version: &str, annotations: &str) -> String {
    let meta = format!(r#"{{"resourceVersion":"{version}","annotations":{annotations}}}"#);
    format!("{{\"type\":\"BOOKMARK\",\"object\":{{\"metadata\":{meta}}}}}\n")
}

pub(crate) fn error_event(code: u16, reason: &str) -> String {
    error_event_of(&status_json(code, reason))
}

pub(crate) fn error_event_of(status: &serde_json::Value) -> String {
    format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n")
}

pub(crate) fn status_json(code: u16, reason: &str) -> serde_json::Value {
    serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "reason": reason})
}

/// A status that requests a retry after `seconds`.
pub(crate) fn status_with_retry_after(code: u16, reason: &str, seconds: u32) -> serde_json::Value {
    let mut status = status_json(code, reason);
    status["details"] = serde_json::json!({ "retryAfterSeconds": seconds });
    status
}

/// Returns the status of a request at a version in the future.
pub(crate) fn too_large_version() -> serde_json::Value {
    let mut status = status_json(504, "Timeout");
    status["details"] = serde_json::json!({ "causes": [{ "reason": "ResourceVersionTooLarge" }] });
    status
}

pub(crate) fn refused(code: u16, reason: &str) -> Answer {
    refused_with(status_json(code, reason))
}

pub(crate) fn refused_with(status: serde_json::Value) -> Answer {
    let status: Status = serde_json::from_value(status).unwrap();
    Answer::error(Error::from_status(status))
}

/// Returns the error of a connection attempt when no server listens.
pub(crate) fn connection_refused() -> Answer {
    Answer::error(io::Error::from(io::ErrorKind::ConnectionRefused).into())
}

/// Starts to collect log lines.
pub(crate) fn logging() {
    log_capture::start();
}

/// Returns the log lines that contain `part`, without debug and trace lines.
pub(crate) fn logged(part: &str) -> Vec<String> {
    let mut lines = log_capture::lines_with(&[part]);
    lines.retain(|line| !line.starts_with("DEBUG ") && !line.starts_with("TRACE "));
    lines
}

use std::fmt::Debug;
use std::io::{self, Cursor, Read};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, bounded, select, unbounded};
use k8s_informer::error::Status;
use k8s_informer::handler::{HandlerOptions, HandlerRegistration, ResourceEventHandler};
use k8s_informer::informer::InformerError;
use k8s_informer::object::ResourceVersion;
use k8s_informer::reflector::{Body, ListOptions, ListerWatcher, ReflectorOptions, TimedRead};
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::{Deleted, DynamicObject, Error, Object, SharedIndexInformer, Stop, Stopper};
use k8s_informer_testing::FakeClock;
use parking_lot::{Condvar, Mutex};
use serde_json::json;

use crate::log_capture;

/// The longest time that a test waits for an event.
pub(crate) const SOON: Duration = Duration::from_secs(60);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) type Informer = SharedIndexInformer<DynamicObject>;

/// A server that the test controls. Each LIST takes the next list from the test. A WATCH stays open
/// and delivers the frames that the test sends.
#[derive(Clone)]
pub(crate) struct Feed {
    lists: (Sender<List>, Receiver<List>),
    frames: (Sender<Vec<u8>>, Receiver<Vec<u8>>),
    requests: Arc<Mutex<Vec<(&'static str, ListOptions)>>>,
    name: &'static str,
    /// Measures the time limits of reads. Without a clock, they are measured in real time.
    clock: Option<FakeClock>,
    /// Ends the wait of the current read on this clock.
    wakes: Arc<Mutex<Option<Stopper>>>,
}

type List = Result<String, Error>;

impl Feed {
    pub(crate) fn new(name: &'static str) -> Self {
        Self {
            lists: unbounded(),
            frames: unbounded(),
            requests: Arc::default(),
            name,
            clock: None,
            wakes: Arc::default(),
        }
    }

    /// A server whose reads wait on this clock. The resyncs of an informer are reads that end.
    pub(crate) fn on_clock(name: &'static str, clock: &FakeClock) -> Self {
        Self {
            clock: Some(clock.clone()),
            ..Self::new(name)
        }
    }

    /// Answers the next LIST with objects, given by name and resource version.
    pub(crate) fn list(&self, version: &str, objects: &[(&str, &str)]) {
        let objects = objects
            .iter()
            .map(|(name, version)| object(name, version))
            .collect::<Vec<_>>();
        self.list_of(version, &objects);
    }

    pub(crate) fn list_of(&self, version: &str, objects: &[serde_json::Value]) {
        let list =
            json!({ "kind": "List", "metadata": { "resourceVersion": version }, "items": objects });
        self.lists.0.send(Ok(list.to_string())).unwrap();
    }

    pub(crate) fn fail_list(&self, error: Error) {
        self.lists.0.send(Err(error)).unwrap();
    }

    /// Sends a watch event.
    pub(crate) fn event(&self, kind: &str, name: &str, version: &str) {
        self.event_of(kind, object(name, version));
    }

    pub(crate) fn event_of(&self, kind: &str, object: serde_json::Value) {
        self.frame(json!({ "type": kind, "object": object }));
    }

    /// Sends several watch events, which the informer reads at once.
    pub(crate) fn events(&self, events: &[(&str, serde_json::Value)]) {
        let frame = |(kind, object): &(&str, serde_json::Value)| {
            format!("{}\n", json!({ "type": kind, "object": object }))
        };
        let frames: String = events.iter().map(frame).collect();
        self.frames.0.send(frames.into()).unwrap();
    }

    /// Ends the watch with a 410 status, so that a LIST follows.
    pub(crate) fn expire(&self) {
        let status =
            json!({ "kind": "Status", "status": "Failure", "code": 410, "reason": "Expired" });
        self.frame(json!({ "type": "ERROR", "object": status }));
    }

    /// Sends several watch events that arrive in one read.
    pub(crate) fn events_together(&self, events: &[(&str, &str, &str)]) {
        let line = |(kind, name, version): &(&str, &str, &str)| {
            format!(
                "{}\n",
                json!({ "type": kind, "object": object(name, version) })
            )
        };
        self.send(events.iter().map(line).collect());
    }

    fn frame(&self, frame: serde_json::Value) {
        self.send(format!("{frame}\n"));
    }

    fn send(&self, frames: String) {
        self.frames.0.send(frames.into()).unwrap();
        if let Some(wake) = self.wakes.lock().take() {
            wake.stop();
        }
    }

    pub(crate) fn requests(&self) -> Vec<(&'static str, ListOptions)> {
        self.requests.lock().clone()
    }

    /// Returns the number of frames that the informer has not read.
    pub(crate) fn unread(&self) -> usize {
        self.frames.0.len()
    }
}

/// Returns the resource version with this text.
pub(crate) fn version(text: &str) -> ResourceVersion {
    ResourceVersion::new(text).unwrap()
}

pub(crate) fn object(name: &str, version: &str) -> serde_json::Value {
    json!({ "metadata": { "name": name, "resourceVersion": version } })
}

/// Receives the next message, or fails when `stop` is set.
fn receive<M>(channel: &Receiver<M>, stop: &Stop) -> Result<M, Error> {
    let (wake, woken) = bounded(1);
    let _wakes = stop.on_stop(move || {
        let _ = wake.send(());
    });
    select! {
        recv(woken) -> _ => Err(Error::stopped()),
        recv(channel) -> message => message.map_err(|_| Error::other("the test has ended")),
    }
}

impl ListerWatcher for Feed {
    fn list(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.requests.lock().push(("list", options.clone()));
        Ok(Body::from(receive(&self.lists.1, stop)??))
    }

    fn watch(&self, options: &ListOptions, stop: &Stop) -> Result<Body, Error> {
        self.requests.lock().push(("watch", options.clone()));
        let Some(clock) = self.clock.clone() else {
            return Ok(Body::from_channel(self.frames.1.clone(), stop));
        };
        Ok(Body::timed(ClockBody {
            began: clock.now(),
            feed: self.clone(),
            clock,
            message: Cursor::default(),
            stop: stop.clone(),
        }))
    }

    fn description(&self) -> String {
        self.name.to_owned()
    }
}

/// The frames of a [`Feed`]. Reads wait on a fake clock.
struct ClockBody {
    feed: Feed,
    clock: FakeClock,
    /// When the current wait began: at the end of the previous read, so that the wait includes the
    /// time in between.
    began: Instant,
    message: Cursor<Vec<u8>>,
    stop: Stop,
}

impl TimedRead for ClockBody {
    fn read_within(&mut self, buffer: &mut [u8], timeout: Option<Duration>) -> io::Result<usize> {
        let timeout = timeout.unwrap_or(Duration::MAX);
        loop {
            let count = self.message.read(buffer)?;
            if count > 0 {
                return Ok(count);
            }
            if self.stop.is_stopped() {
                return Err(io::Error::other(Error::stopped()));
            }
            // A limit that has passed ends the read even if there is a frame, so the order of an
            // advance and a frame is that of the test.
            let left = timeout.saturating_sub(self.clock.now() - self.began);
            if left.is_zero() {
                self.began = self.clock.now();
                return Err(io::ErrorKind::TimedOut.into());
            }
            let wake = self.stop.child();
            *self.feed.wakes.lock() = Some(wake.clone());
            match self.feed.frames.1.try_recv() {
                Ok(message) => {
                    self.began = self.clock.now();
                    self.message = Cursor::new(message);
                }
                Err(_) => drop(self.clock.wait(left, &wake)),
            }
        }
    }
}

pub(crate) fn status(code: u16, reason: &str, message: &str) -> Error {
    let status = json!({
        "kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message
    });
    Error::from_status(serde_json::from_value::<Status>(status).unwrap())
}

/// Reflector options on this clock, without back-off delays.
pub(crate) fn options(clock: &FakeClock) -> ReflectorOptions {
    let mut options = ReflectorOptions::default();
    options.clock = Arc::new(clock.clone());
    options.backoff = Backoff::new(Duration::ZERO);
    options
}

/// A function that runs on its own thread. Dropping this value stops the function.
pub(crate) struct Running<R> {
    pub stop: Stopper,
    ended: mpsc::Receiver<R>,
    thread: Option<thread::JoinHandle<()>>,
}

impl<R: Send + 'static> Running<R> {
    pub(crate) fn new(run: impl FnOnce(&Stop) -> R + Send + 'static) -> Self {
        let stop = Stopper::new();
        let (end, ended) = mpsc::channel();
        let thread = thread::spawn({
            let stop = stop.clone();
            move || {
                let _ = end.send(run(&stop));
            }
        });
        Self {
            stop,
            ended,
            thread: Some(thread),
        }
    }

    /// Waits until the function returns.
    pub(crate) fn ended(&self) -> R {
        self.ended
            .recv_timeout(SOON)
            .expect("the function did not return")
    }

    pub(crate) fn end(&self) -> R {
        self.stop.stop();
        self.ended()
    }
}

impl<R> Drop for Running<R> {
    fn drop(&mut self) {
        self.stop.stop();
        // The thread drops its sender when it ends.
        let deadline = Instant::now() + SOON;
        loop {
            match self
                .ended
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(_) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) if thread::panicking() => return,
                Err(mpsc::RecvTimeoutError::Timeout) => panic!("the function did not stop"),
            }
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) fn run(informer: &Informer) -> Running<Result<(), InformerError>> {
    let informer = informer.clone();
    Running::new(move |stop| informer.run(stop))
}

/// Runs the informer, and waits until its initial list is in the cache.
pub(crate) fn run_synced(informer: &Informer) -> Running<Result<(), InformerError>> {
    let running = run(informer);
    assert!(
        informer.synced().wait_timeout(SOON),
        "not synced: {:?}",
        informer.status()
    );
    running
}

/// The notifications of a handler, in order.
pub(crate) struct Events(mpsc::Receiver<String>);

impl Events {
    pub(crate) fn next(&self) -> String {
        self.0.recv_timeout(SOON).expect("no event arrived")
    }

    pub(crate) fn take(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next()).collect()
    }

    /// Waits until the handler is dropped. Panics on a notification.
    pub(crate) fn is_disconnected(&self) -> bool {
        match self.0.recv_timeout(SOON) {
            Ok(event) => panic!("{event}"),
            Err(error) => error == mpsc::RecvTimeoutError::Disconnected,
        }
    }

    /// Returns the next notification, or `None` if the handler has been dropped.
    pub(crate) fn next_or_disconnected(&self) -> Option<String> {
        match self.0.recv_timeout(SOON) {
            Err(mpsc::RecvTimeoutError::Timeout) => {
                panic!("no event arrived, and the handler was not dropped")
            }
            event => event.ok(),
        }
    }

    /// Returns the notifications that are available without waiting.
    pub(crate) fn rest(&self) -> Vec<String> {
        self.0.try_iter().collect()
    }

    /// Takes all notifications up to `last`, and returns those before it.
    pub(crate) fn until(&self, last: &str) -> Vec<String> {
        let mut events = Vec::new();
        loop {
            match self.next() {
                event if event == last => return events,
                event => events.push(event),
            }
        }
    }
}

/// A handler that sends its notifications to the test.
#[derive(Clone)]
pub(crate) struct Recorder(mpsc::Sender<String>);

pub(crate) fn recorder() -> (Recorder, Events) {
    let (sender, receiver) = mpsc::channel();
    (Recorder(sender), Events(receiver))
}

impl ResourceEventHandler<DynamicObject> for Recorder {
    fn on_add(&mut self, object: &Arc<DynamicObject>, is_in_initial_list: bool) {
        let initial = if is_in_initial_list { " initial" } else { "" };
        let _ = self.0.send(format!(
            "add {}@{}{initial}",
            object.name(),
            object.resource_version()
        ));
    }

    fn on_update(&mut self, old: &Arc<DynamicObject>, new: &Arc<DynamicObject>) {
        let (before, after) = (old.resource_version(), new.resource_version());
        let _ = self
            .0
            .send(format!("update {}@{before}-{after}", new.name()));
    }

    fn on_delete(&mut self, object: &Deleted<DynamicObject>) {
        let _ = self.0.send(match object {
            Deleted::FinalStateUnknown { key, last_known } => {
                let version = last_known
                    .as_ref()
                    .map_or("", |object| object.resource_version());
                format!("gone {key}@{version}")
            }
            deleted => {
                format!(
                    "delete {}@{}",
                    deleted.name(),
                    deleted.object().unwrap().resource_version()
                )
            }
        });
    }
}

pub(crate) fn record(informer: &Informer) -> (HandlerRegistration, Events) {
    let (recorder, events) = recorder();
    (informer.add_handler(recorder).unwrap(), events)
}

pub(crate) fn record_with_resync(
    informer: &Informer,
    period: Duration,
) -> (HandlerRegistration, Events) {
    let (recorder, events) = recorder();
    let mut options = HandlerOptions::default();
    options.resync_period = Some(period);
    (
        informer
            .add_handler_with_options(recorder, options)
            .unwrap(),
        events,
    )
}

/// A door that blocks callbacks until the test opens it. It counts the arrivals.
#[derive(Clone)]
pub(crate) struct Door {
    state: Arc<(Mutex<(usize, bool)>, Condvar)>,
}

impl Door {
    pub(crate) fn new() -> Self {
        Self {
            state: Arc::new((Mutex::new((0, false)), Condvar::new())),
        }
    }

    pub(crate) fn pass(&self) {
        let (state, changed) = &*self.state;
        let mut state = state.lock();
        state.0 += 1;
        changed.notify_all();
        let deadline = Instant::now() + 2 * SOON;
        while !state.1 {
            assert!(
                !changed.wait_until(&mut state, deadline).timed_out(),
                "the door was not opened in time"
            );
        }
    }

    /// Waits until `count` callbacks have arrived.
    pub(crate) fn wait_for_arrivals(&self, count: usize) {
        let (state, changed) = &*self.state;
        let mut state = state.lock();
        let deadline = Instant::now() + SOON;
        while state.0 < count {
            assert!(
                !changed.wait_until(&mut state, deadline).timed_out(),
                "too few callbacks arrived at the door"
            );
        }
    }

    pub(crate) fn open(&self) {
        self.state.0.lock().1 = true;
        self.state.1.notify_all();
    }
}

/// When the test panics, the door opens, so that blocked callbacks can return.
impl Drop for Door {
    fn drop(&mut self) {
        if thread::panicking() {
            self.open();
        }
    }
}

/// Polls until `condition` returns `true`, for conditions without a notification.
pub(crate) fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !condition() {
        assert!(Instant::now() < deadline, "timed out waiting for: {what}");
        thread::yield_now();
    }
}

/// Runs `work` on another thread, and panics if it takes longer than [`SOON`].
pub(crate) fn soon<R: Send + Debug + 'static>(
    what: &str,
    work: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let _ = done.send(work());
    });
    finished
        .recv_timeout(SOON)
        .unwrap_or_else(|error| panic!("{what}: {error}"))
}

/// Starts to collect log lines.
pub(crate) fn logging() {
    log_capture::start();
}

/// Waits for a log line that contains all `parts`.
pub(crate) fn logged(parts: &[&str]) -> String {
    log_capture::wait_for(parts)
}

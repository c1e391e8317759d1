//! A server in memory that keeps events, and fails or hangs on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use k8s_informer::error::Status;
use k8s_informer::object::ObjectReference;
use k8s_informer::{Error, Stop};
use k8s_informer_controller::events::{EventRecorder, EventRecorderBuilder, EventSink};
use serde_json::{Value, json};

/// The time limit for everything that is expected to happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);

#[derive(Default)]
pub(crate) struct Sink {
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    /// Notified of each change and of stops.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    events: BTreeMap<String, Value>,
    /// The verbs and names of all requests.
    requests: Vec<(&'static str, String)>,
    /// The answers to the next requests; then they succeed.
    answers: Vec<Reply>,
    hangs: bool,
}

pub(crate) enum Reply {
    /// Fails without effect.
    Fail(Error),
    /// Takes effect, and then fails.
    Lose(Error),
    Panic,
}

impl Sink {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn recorder(self: &Arc<Self>) -> EventRecorderBuilder {
        EventRecorder::with_sink(self.clone(), "example.com/ctl").instance("ctl-0")
    }

    /// Sets the answers to the next requests.
    pub(crate) fn answer(&self, answers: impl IntoIterator<Item = Reply>) {
        self.change(|state| state.answers.extend(answers));
    }

    /// Lets requests hang, until the next call of this method or their stop.
    pub(crate) fn hang(&self, hangs: bool) {
        self.change(|state| state.hangs = hangs);
    }

    pub(crate) fn requests(&self) -> Vec<(&'static str, String)> {
        self.shared.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn verbs(&self) -> Vec<&'static str> {
        self.requests().into_iter().map(|(verb, _)| verb).collect()
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.shared
            .state
            .lock()
            .unwrap()
            .events
            .values()
            .cloned()
            .collect()
    }

    /// Returns the counts of all events, by note.
    pub(crate) fn counts(&self) -> BTreeMap<String, u64> {
        let count = |event: &Value| {
            let count = event["series"].get("count");
            count.map_or(1, |count| count.as_u64().unwrap())
        };
        let note = |event: &Value| event["note"].as_str().unwrap().to_owned();
        let events = self.events();
        events
            .iter()
            .map(|event| (note(event), count(event)))
            .collect()
    }

    /// Deletes all events, as if they had expired.
    pub(crate) fn expire(&self) {
        self.change(|state| state.events.clear());
    }

    /// Blocks until this many requests have begun.
    pub(crate) fn until_requests(&self, number: usize) {
        let deadline = Instant::now() + SOON;
        let mut state = self.shared.state.lock().unwrap();
        while state.requests.len() < number {
            let left = deadline.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "only {} requests", state.requests.len());
            state = self.shared.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state.lock().unwrap());
        self.shared.changed.notify_all();
    }

    fn perform(
        &self,
        verb: &'static str,
        name: &str,
        stop: &Stop,
        effect: impl FnOnce(&mut State) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.change(|state| state.requests.push((verb, name.to_owned())));
        let shared = Arc::clone(&self.shared);
        let _wakes = stop.on_stop(move || {
            // Takes the lock, so that the wake-up cannot fall between check and wait.
            let _state = shared.state.lock().unwrap();
            shared.changed.notify_all();
        });
        let mut state = self.shared.state.lock().unwrap();
        while state.hangs && !stop.is_stopped() {
            state = self.shared.changed.wait(state).unwrap();
        }
        if state.hangs {
            return Err(connection());
        }
        let answer = match state.answers.is_empty() {
            true => None,
            false => Some(state.answers.remove(0)),
        };
        match answer {
            None => effect(&mut state),
            Some(Reply::Fail(error)) => Err(error),
            Some(Reply::Lose(error)) => effect(&mut state).and(Err(error)),
            Some(Reply::Panic) => {
                drop(state);
                panic!("boom");
            }
        }
    }
}

impl EventSink for Sink {
    fn create(&self, namespace: &str, event: &Value, stop: &Stop) -> Result<(), Error> {
        let name = event["metadata"]["name"].as_str().unwrap();
        assert_eq!(event["metadata"]["namespace"], namespace);
        self.perform("create", name, stop, |state| {
            let key = format!("{namespace}/{name}");
            if state.events.contains_key(&key) {
                return Err(status(409, "AlreadyExists"));
            }
            state.events.insert(key, event.clone());
            Ok(())
        })
    }

    fn patch(&self, namespace: &str, name: &str, patch: &Value, stop: &Stop) -> Result<(), Error> {
        self.perform("patch", name, stop, |state| {
            let Some(event) = state.events.get_mut(&format!("{namespace}/{name}")) else {
                return Err(status(404, "NotFound"));
            };
            for (field, value) in patch.as_object().unwrap() {
                event[field] = value.clone();
            }
            Ok(())
        })
    }
}

pub(crate) fn status(code: u16, reason: &str) -> Error {
    let json = json!({"status": "Failure", "code": code, "reason": reason});
    Error::from_status(serde_json::from_value::<Status>(json).unwrap())
}

pub(crate) fn connection() -> Error {
    std::io::Error::from(std::io::ErrorKind::ConnectionReset).into()
}

pub(crate) fn pod(name: &str) -> ObjectReference {
    let mut pod = ObjectReference::default();
    pod.api_version = "v1".to_owned();
    pod.kind = "Pod".to_owned();
    pod.namespace = "shop".to_owned();
    pod.name = name.to_owned();
    pod.uid = format!("uid-{name}");
    pod
}

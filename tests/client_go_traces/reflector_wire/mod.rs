//! A whole reflector against a scripted server. This module runs in virtual time and without
//! sockets; `sockets` runs over TCP.

mod clock;
mod deviations;
mod gzip;
mod informer;
mod observe;
mod response;
mod script;
#[cfg(feature = "client")]
mod sockets;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use k8s_informer::object::GroupVersionKind;
use k8s_informer::reflector::{Reflector, ReflectorOptions};
use k8s_informer::store::ReflectorStore;
use k8s_informer::time::{Backoff, Clock};
use k8s_informer::{DynamicObject, Error};
use serde_json::{Map, Value, json};

use self::observe::Recorder;
pub(crate) use self::observe::class;
use self::script::Script;
use super::Replay;
use super::object::{text, version_text};

pub(crate) fn build(config: &Value) -> Box<dyn Replay> {
    Box::new(Subject {
        config: config.clone(),
        deviations: Vec::new(),
        answers: Vec::new(),
        done: 0,
    })
}

/// One run covers a whole trace. The steps only return what the run observed.
struct Subject {
    config: Value,
    deviations: Vec<Option<&'static str>>,
    answers: Vec<Value>,
    done: usize,
}

impl Replay for Subject {
    fn begin(&mut self, steps: &[Value], listed: &BTreeSet<String>) {
        self.deviations = deviations::own(steps);
        let script = Script::new(
            &self.config,
            steps,
            deviations::cut(steps, &self.deviations, listed),
        );
        let more = match text(&self.config["sink"]) {
            "store" => run_reflector(&self.config, &script),
            "informer" => informer::run(&self.config, &script),
            other => panic!("sink {other}"),
        };
        self.answers = script.answers();
        if let Some(last) = self.answers.last_mut().filter(|_| !more.is_empty()) {
            last["more"] = json!(more);
        }
    }

    fn deviates(&self, _: &Value) -> Option<&'static str> {
        self.deviations[self.done]
    }

    fn step(&mut self, _: &str, _: &Value) -> Value {
        let reply = self.answers.get(self.done).cloned();
        self.done += 1;
        reply.unwrap_or_else(|| json!("the reflector made no such request"))
    }

    fn checked(&self, want: &Value) -> Value {
        checked(want)
    }
}

/// Returns the compared part of `want`. The log and the header `accept` are not compared. Neither
/// are the calls that give a store the last version, because this crate has no such call.
fn checked(want: &Value) -> Value {
    let mut want = want.clone();
    for (of, field) in [("", "notes"), ("/request", "accept")] {
        if let Some(map) = want.pointer_mut(of).and_then(Value::as_object_mut) {
            map.remove(field);
        }
    }
    if let Some(calls) = want.get_mut("store").and_then(Value::as_array_mut) {
        calls.retain(|call| call["call"] != "rv");
    }
    want
}

/// Returns the store calls that the run made after the last step.
fn run_reflector(config: &Value, script: &Arc<Script>) -> Vec<Value> {
    let options = options(config, Arc::new(script.clock.clone()), &script.recorder);
    let store: Arc<dyn ReflectorStore<DynamicObject>> = script.recorder.clone();
    let reflector = Arc::new(Reflector::new(script.lister_watcher(), store, options));
    let looked_at = Arc::downgrade(&reflector);
    script.look(move |_| {
        let version = looked_at
            .upgrade()
            .map(|reflector| version_text(reflector.last_sync_resource_version()));
        Map::from_iter([("last_rv".to_owned(), json!(version))])
    });
    reflector.run(&script.stop);
    script.recorder.take()["store"]
        .as_array()
        .cloned()
        .unwrap_or_default()
}

/// Returns the options that a trace configures.
fn options(config: &Value, clock: Arc<dyn Clock>, recorder: &Arc<Recorder>) -> ReflectorOptions {
    let millis = |field: &str| config[field].as_u64().map(Duration::from_millis);
    let mut options = ReflectorOptions::default();
    options.watch_list = config["watch_list"] == true;
    options.resync_period = millis("resync_ms").unwrap_or_default();
    options.page_size = config["page_size"]
        .as_u64()
        .map(|size| size.try_into().unwrap());
    if let Some(backoff) = millis("backoff_ms") {
        options.backoff = Backoff::new(backoff);
    }
    if let Some(reply) = config["should_resync"].as_bool() {
        options.should_resync = Some(Arc::new(move || reply));
    }
    if let Some((version, kind)) = text(&config["expect"]).rsplit_once('/') {
        let (group, version) = version.rsplit_once('/').unwrap_or(("", version));
        options.expected_kind = Some(GroupVersionKind::new(group, version, kind));
    }
    options.clock = clock;
    let recorder = Arc::clone(recorder);
    options.watch_error_handler = Some(Arc::new(move |error: &Error| recorder.error(error)));
    options
}

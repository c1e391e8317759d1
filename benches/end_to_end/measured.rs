//! The measured process: this program again, as an informer or as a bare loop.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::Duration;

use k8s_informer::reflector::ReflectorStatus;
use k8s_informer::{Config, DynamicObject, Object, Stopper};
use k8s_openapi::api::core::v1::Pod;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::common::bare::{Bare, Decoder, ends_initial_events};
use super::measure::custom;
use super::measure::meter::Reading;
use super::measure::report::Report;
use super::measure::run::{ProgressObserver, Run, Settings};
use super::measure::types;

/// The first argument of a measured process. The second argument is the case, and the third is the
/// URL of the server.
const ARGUMENT: &str = "--measured";

#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) enum Who {
    Informer,
    /// Decodes the events after the first list and drops them.
    Bare,
    /// Decodes the objects and keeps the newest state of each. This is the minimum work of a cache.
    Keeping,
}

/// A measurement.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Case<'a> {
    pub(crate) who: Who,
    pub(crate) r#type: &'a str,
    pub(crate) events: Option<usize>,
    pub(crate) seconds: Option<f64>,
    pub(crate) handlers: usize,
    pub(crate) latency: bool,
}

impl<'a> Case<'a> {
    pub(crate) fn new(who: Who, r#type: &'a str) -> Self {
        Self {
            who,
            r#type,
            events: None,
            seconds: None,
            handlers: 1,
            latency: false,
        }
    }

    /// Measures this case in its own process. `then` is called after the sync.
    pub(crate) fn measure(&self, url: &str, then: impl FnOnce()) -> Report {
        self.run(&[], url, then).0
    }

    /// Measures this case under a tool of valgrind. Also returns the output of the tool.
    pub(crate) fn measure_under(
        &self,
        tool: &[&str],
        url: &str,
        then: impl FnOnce(),
    ) -> (Report, String) {
        self.run(&[&["valgrind"], tool].concat(), url, then)
    }

    fn run(&self, wrapper: &[&str], url: &str, then: impl FnOnce()) -> (Report, String) {
        // Another build of this program can be measured with the same server and reports.
        let program = std::env::var("MEASURED_PROGRAM").unwrap_or_else(|_| {
            let this = std::env::current_exe().expect("Linux");
            this.to_str().expect("the path is UTF-8").to_owned()
        });
        let case = serde_json::to_string(self).expect("it can be serialized");
        let words = [wrapper, &[&program, ARGUMENT, &case, url]].concat();
        let is_wrapped = !wrapper.is_empty();
        let mut child = Command::new(words[0])
            .args(&words[1..])
            .stdout(Stdio::piped())
            .stderr(if is_wrapped {
                Stdio::piped()
            } else {
                Stdio::inherit()
            })
            .spawn()
            .unwrap_or_else(|error| panic!("can't run {}: {error}", words[0]));
        let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
        let mut line = || {
            lines
                .next()
                .and_then(Result::ok)
                .unwrap_or_else(|| panic!("the measured process failed: {case}"))
        };
        assert_eq!(line(), "synced");
        then();
        let report = serde_json::from_str(&line()).expect("a report");
        let mut written = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            stderr.read_to_string(&mut written).expect("UTF-8");
        }
        child.wait().expect("the process ends");
        (report, written)
    }
}

/// If this process is a measured process, runs the measurement. Returns whether this process is a
/// measured process.
pub(crate) fn run_if_child() -> bool {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() != Some(ARGUMENT) {
        return false;
    }
    let (Some(case), Some(url)) = (arguments.next(), arguments.next()) else {
        panic!("expected the case and the URL of the server")
    };
    let case: Case<'_> = serde_json::from_str(&case).expect("a case");
    let report = match (case.who, case.r#type) {
        (Who::Informer, _) => informer(&case, url),
        (_, "custom") => bare::<custom::Pod>(&case, &url),
        (_, "dynamic") => bare::<DynamicObject>(&case, &url),
        _ => bare::<Pod>(&case, &url),
    };
    println!(
        "{}",
        serde_json::to_string(&report).expect("it can be serialized")
    );
    true
}

struct Parent;

impl ProgressObserver for Parent {
    fn progress(&mut self, _: &ReflectorStatus) {}

    fn synced(&mut self, _: &Report) {
        println!("synced");
    }
}

fn informer(case: &Case<'_>, url: String) -> Report {
    let settings = Settings {
        handlers: case.handlers,
        latency: case.latency,
        events: case.events.map(|events| events as u64),
        time: case.seconds.map(Duration::from_secs_f64),
        ..Settings::default()
    };
    let stop = Stopper::new();
    let run = Run {
        config: Config::new(url),
        settings: &settings,
        stop: &stop,
        observer: &mut Parent,
    };
    types::measure(case.r#type, "pods", run).expect("the measurement succeeds")
}

fn bare<T: Object + DeserializeOwned>(case: &Case<'_>, url: &str) -> Report {
    let before = Reading::now();
    let target = "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true";
    let mut server = Bare::open(url, target).expect("the server accepts connections");
    let mut decoder = Decoder::new(true);
    let mut kept: Vec<T> = Vec::new();
    loop {
        let frame = server
            .frame()
            .expect("the watch is readable")
            .expect("the initial events end with a bookmark");
        if ends_initial_events(frame) {
            break;
        }
        kept.push(decoder.object(frame).expect("the object is a Pod"));
    }
    let synced = Reading::now();
    Parent.synced(&Report::default());
    let (events, objects) = (case.events.unwrap_or(0), kept.len());
    let key = |pod: &T| format!("{}/{}", pod.namespace(), pod.name());
    let keeps = matches!(case.who, Who::Keeping);
    let mut cache: HashMap<String, T> = if keeps {
        kept.drain(..).map(|pod| (key(&pod), pod)).collect()
    } else {
        HashMap::new()
    };
    // The time to fill the map is not included.
    let begin = Reading::now();
    for _ in 0..events {
        let frame = server
            .frame()
            .expect("the watch is readable")
            .expect("the watch has more events");
        let is_gone = frame.starts_with(br#"{"type":"DELETED""#);
        let pod: T = std::hint::black_box(decoder.object(frame).expect("the object is a Pod"));
        match keeps {
            false => drop(pod),
            true if is_gone => drop(cache.remove(&key(&pod))),
            true => drop(cache.insert(key(&pod), pod)),
        }
    }
    let end = Reading::now();
    Report {
        r#type: case.r#type.to_owned(),
        objects,
        sync_seconds: (synced.at - before.at).as_secs_f64(),
        sync_cpu_seconds: (synced.cpu - before.cpu).as_secs_f64(),
        resident_before_bytes: before.resident,
        resident_bytes: synced.resident,
        peak_bytes: synced.peak,
        threads: synced.threads,
        events: events as u64,
        events_seconds: (end.at - begin.at).as_secs_f64(),
        events_cpu_seconds: (end.cpu - begin.cpu).as_secs_f64(),
        wakeups: end.wakeups - begin.wakeups,
        ..Report::default()
    }
}

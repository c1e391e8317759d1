//! Replays client-go's recorder for events.k8s.io/v1 with the core of this crate's recorder.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_informer::object::ObjectReference;
use k8s_informer_controller::__private::events::delivery::{Answer, Next, Verb, next};
use k8s_informer_controller::__private::events::event::{Event, plain_name};
use k8s_informer_controller::__private::events::series::SeriesCache;
use serde_json::{Value, json};

use super::Replay;

const EPOCH: Duration = Duration::from_secs(946_684_800);

pub(crate) fn build(_config: &Value) -> Box<dyn Replay> {
    Box::new(Subject {
        cache: SeriesCache::new(1_000_000),
        now: EPOCH,
    })
}

struct Subject {
    cache: SeriesCache,
    now: Duration,
}

impl Replay for Subject {
    /// client-go's series are refreshed (ER3).
    fn deviates(&self, step: &Value) -> Option<&'static str> {
        let mut cache = self.cache.clone();
        let has_series = cache.entries_mut().any(|entry| entry.event.count > 1);
        (step["op"] == "refresh" && has_series).then_some("ER3")
    }

    fn step(&mut self, op: &str, step: &Value) -> Value {
        match op {
            "emit" => self.emit(step),
            "event" => {
                let calls = self.record(event(&step["event"]), Answers::new(&step["answers"]));
                json!({"calls": calls})
            }
            "finish" => self.finish(&step["fail"]),
            // Nothing is refreshed if there is no series. Otherwise, the replay has ended (ER3).
            "refresh" => json!({"calls": []}),
            "cache" => {
                let mut events: Vec<Value> = self
                    .cache
                    .entries_mut()
                    .map(|entry| want(&entry.event))
                    .collect();
                events.sort_by_key(Value::to_string);
                json!({"events": events})
            }
            "advance_ms" => {
                self.now += Duration::from_millis(step["ms"].as_u64().unwrap());
                json!({})
            }
            other => panic!("op {other}"),
        }
    }
}

impl Subject {
    fn emit(&mut self, step: &Value) -> Value {
        let kind = step["type"].as_str().unwrap();
        if !["Normal", "Warning"].contains(&kind) {
            return json!({"made": null, "calls": []});
        }
        let text = |field: &str| step[field].as_str().unwrap_or_default().to_owned();
        let regarding = reference(&step["regarding"]);
        let made = Event {
            name: name(&regarding.name, self.now),
            namespace: match &*regarding.namespace {
                "" => "default".to_owned(),
                namespace => namespace.to_owned(),
            },
            regarding,
            related: step.get("related").map(reference),
            kind: kind.to_owned(),
            reason: text("reason"),
            action: text("action"),
            note: text("note"),
            controller: "ctl".to_owned(),
            instance: "ctl-host".to_owned(),
            count: 1,
            first: self.now,
            last: self.now,
            ..Event::default()
        };
        let json = want(&made);
        let calls = self.record(made, Answers::new(&step["answers"]));
        json!({"made": json, "calls": calls})
    }

    fn record(&mut self, event: Event, mut answers: Answers) -> Vec<Value> {
        let brings_series = event.count > 1;
        let last = event.last;
        let (entry, None) = self.cache.observe(event, self.now) else {
            panic!("the cache is full");
        };
        let is_new = entry.written == 0;
        entry.written = 1;
        match is_new {
            true => entry.seen = last,
            false => entry.event.last = self.now,
        }
        // Later occurrences are only counted (ER2). When this crate writes them is not part of the
        // core.
        let is_second = !is_new && entry.event.count == 2;
        if !is_new && !is_second {
            return Vec::new();
        }
        let event = entry.event.clone();
        let mut calls = Vec::new();
        for _ in 0..12 {
            if !self.attempt(&event, is_second || brings_series, &mut answers, &mut calls) {
                break;
            }
        }
        calls
    }

    /// Sends an event once. Returns whether client-go tries again (ER6).
    fn attempt(
        &self,
        event: &Event,
        is_series: bool,
        answers: &mut Answers,
        calls: &mut Vec<Value>,
    ) -> bool {
        let mut verb = match is_series {
            true => Verb::Patch,
            false => Verb::Create,
        };
        loop {
            calls.push(match verb {
                Verb::Create => json!({"create": want(event)}),
                Verb::Patch => {
                    json!({"patch": event.patch(), "ns": event.namespace, "name": event.name})
                }
            });
            let class = answers.next();
            match next(verb, answer(&class), event.count, false) {
                Next::Send(other) => verb = other,
                // The retries of this crate differ (ER6): it also retries a `Status`.
                Next::Retry(_) => return class != "internal",
                Next::Written | Next::Failed => return false,
            }
        }
    }

    fn finish(&mut self, fail: &Value) -> Value {
        let mut calls: Vec<(String, Vec<Value>)> = Vec::new();
        for entry in self.cache.finish(self.now) {
            let event = entry.event;
            if event.count < 2 {
                continue;
            }
            let class = fail.get(&event.name);
            let mut answers = Answers::new(&class.map_or(json!([]), |class| json!([class, class])));
            let mut sent = Vec::new();
            if self.attempt(&event, true, &mut answers, &mut sent) {
                let (name, last) = (event.name.clone(), event.last);
                self.cache.observe(event, last).0.written = 1;
                calls.push((name, sent));
            } else {
                calls.push((event.name.clone(), sent));
            }
        }
        calls.sort_by(|a, b| a.0.cmp(&b.0));
        json!({"calls": calls.into_iter().flat_map(|(_, sent)| sent).collect::<Vec<_>>()})
    }
}

/// Decodes an event.
fn event(json: &Value) -> Event {
    let text = |field: &str| text(&json[field]);
    let metadata = |field: &str| self::text(&json["metadata"][field]);
    let first = time(&json["eventTime"]);
    let series = &json["series"];
    Event {
        name: metadata("name"),
        namespace: metadata("namespace"),
        annotations: annotations(&json["metadata"]["annotations"]),
        regarding: reference(&json["regarding"]),
        related: json.get("related").map(reference),
        kind: text("type"),
        reason: text("reason"),
        action: text("action"),
        note: text("note"),
        controller: text("reportingController"),
        instance: text("reportingInstance"),
        count: series["count"].as_u64().unwrap_or(1).try_into().unwrap(),
        first,
        last: match series.is_null() {
            true => first,
            false => time(&series["lastObservedTime"]),
        },
    }
}

/// Encodes an event like a trace does: without apiVersion, kind and empty fields.
fn want(event: &Event) -> Value {
    let mut json = event.create();
    let fields = json.as_object_mut().unwrap();
    fields.remove("apiVersion");
    fields.remove("kind");
    json
}

fn reference(json: &Value) -> ObjectReference {
    let text = |field: &str| text(&json[field]);
    let mut reference = ObjectReference::default();
    reference.api_version = text("apiVersion");
    reference.kind = text("kind");
    reference.namespace = text("namespace");
    reference.name = text("name");
    reference.uid = text("uid");
    reference.resource_version = text("resourceVersion");
    reference.field_path = text("fieldPath");
    reference
}

fn annotations(json: &Value) -> BTreeMap<String, String> {
    let fields = json.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Returns the name of an event about this object. A random name is `<uuid>`.
fn name(object: &str, now: Duration) -> String {
    let is_name = |part: &str| {
        !part.is_empty()
            && !part.starts_with('-')
            && !part.ends_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    let name = plain_name(object, now);
    match name.len() <= 253 && name.split('.').all(is_name) {
        true => name,
        false => "<uuid>".to_owned(),
    }
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

/// Decodes a time of the form `2000-01-01T00:00:00.000000Z`.
fn time(json: &Value) -> Duration {
    let Some(text) = json.as_str() else {
        return Duration::ZERO;
    };
    let numbers: Vec<u64> = text
        .trim_end_matches('Z')
        .split(['-', 'T', ':', '.'])
        .map(|number| number.parse().unwrap())
        .collect();
    let [year, month, day, hour, minute, second, ..] = numbers[..] else {
        panic!("time {text}");
    };
    // Years begin in March, so that a leap day is the last day of a year.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day;
    let seconds = (days - 719_469) * 86_400 + hour * 3600 + minute * 60 + second;
    Duration::from_secs(seconds) + Duration::from_micros(numbers.get(6).copied().unwrap_or(0))
}

/// The answers of the sink to the calls of one step, and then `ok`.
struct Answers(std::vec::IntoIter<String>);

impl Answers {
    fn new(json: &Value) -> Self {
        let classes = json.as_array().into_iter().flatten().map(text);
        Self(classes.collect::<Vec<_>>().into_iter())
    }

    fn next(&mut self) -> String {
        self.0.next().unwrap_or_else(|| "ok".to_owned())
    }
}

/// Returns the answer that this crate's recorder sees.
fn answer(class: &str) -> Answer {
    match class {
        "ok" => Answer::Accepted,
        "not_found" => Answer::NotFound,
        "already_exists" => Answer::AlreadyExists,
        "connection" | "unexpected_object" | "internal" => Answer::Later,
        "construction" | "invalid" | "forbidden" => Answer::Refused,
        other => panic!("answer {other}"),
    }
}

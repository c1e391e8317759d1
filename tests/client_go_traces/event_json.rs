//! Events and answers of the traces about event recording.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::events_core::delivery::Answer;
use super::events_core::event::{Event, plain_name};
use super::events_core::json::EventApi;
use super::events_core::reference::ObjectReference;

/// Decodes an event.
pub(crate) fn event(api: EventApi, json: &Value) -> Event {
    let text = |field: &str| text(&json[field]);
    let metadata = |field: &str| self::text(&json["metadata"][field]);
    let mut event = Event {
        name: metadata("name"),
        namespace: metadata("namespace"),
        resource_version: metadata("resourceVersion"),
        annotations: annotations(&json["metadata"]["annotations"]),
        kind: text("type"),
        reason: text("reason"),
        action: text("action"),
        instance: text("reportingInstance"),
        related: json.get("related").map(reference),
        ..Event::default()
    };
    match api {
        EventApi::CoreV1 => {
            event.regarding = reference(&json["involvedObject"]);
            event.note = text("message");
            event.controller = text("reportingComponent");
            let source = |field: &str| self::text(&json["source"][field]);
            event.source = (source("component"), source("host"));
            event.count = json["count"].as_u64().unwrap_or(0).try_into().unwrap();
            event.first = time(&json["firstTimestamp"]);
            event.last = time(&json["lastTimestamp"]);
        }
        EventApi::EventsV1 => {
            event.regarding = reference(&json["regarding"]);
            event.note = text("note");
            event.controller = text("reportingController");
            event.first = time(&json["eventTime"]);
            let series = &json["series"];
            event.count = series["count"].as_u64().unwrap_or(1).try_into().unwrap();
            event.last = match series.is_null() {
                true => event.first,
                false => time(&series["lastObservedTime"]),
            };
        }
    }
    event
}

/// Encodes an event like a trace does: without apiVersion, kind and empty fields.
pub(crate) fn want(api: EventApi, event: &Event) -> Value {
    let mut json = api.create(event);
    let fields = json.as_object_mut().unwrap();
    fields.remove("apiVersion");
    fields.remove("kind");
    json
}

pub(crate) fn reference(json: &Value) -> ObjectReference {
    let text = |field: &str| text(&json[field]);
    ObjectReference {
        api_version: text("apiVersion"),
        kind: text("kind"),
        namespace: text("namespace"),
        name: text("name"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        field_path: text("fieldPath"),
    }
}

pub(crate) fn annotations(json: &Value) -> BTreeMap<String, String> {
    let fields = json.as_object().into_iter().flatten();
    fields
        .map(|(key, value)| (key.clone(), text(value)))
        .collect()
}

/// Returns the name of an event about this object. A random name is `<uuid>`.
pub(crate) fn name(object: &str, now: Duration) -> String {
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

pub(crate) fn optional(text: &str, default: &str) -> String {
    match text {
        "" => default.to_owned(),
        text => text.to_owned(),
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
pub(crate) struct Answers(std::vec::IntoIter<String>);

impl Answers {
    pub(crate) fn new(json: &Value) -> Self {
        let classes = json.as_array().into_iter().flatten().map(text);
        Self(classes.collect::<Vec<_>>().into_iter())
    }

    pub(crate) fn next(&mut self) -> String {
        self.0.next().unwrap_or_else(|| "ok".to_owned())
    }
}

/// Returns the answer that this crate's recorder sees.
pub(crate) fn answer(class: &str) -> Answer {
    match class {
        "ok" => Answer::Accepted,
        "not_found" => Answer::NotFound,
        "already_exists" => Answer::AlreadyExists,
        "connection" | "unexpected_object" | "internal" => Answer::Later,
        "construction" | "invalid" | "forbidden" => Answer::Refused,
        other => panic!("answer {other}"),
    }
}

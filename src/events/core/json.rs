//! Events as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::event::Event;
use super::reference::ObjectReference;
use super::rfc3339;

fn seconds(time: Duration) -> String {
    rfc3339::seconds(time.as_secs().cast_signed())
}

fn microseconds(time: Duration) -> String {
    rfc3339::microseconds(time.as_secs().cast_signed(), time.subsec_nanos())
}

/// The two APIs that serve the same events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum EventApi {
    /// The `v1` of the core group.
    CoreV1,
    /// `events.k8s.io/v1`.
    #[default]
    EventsV1,
}

impl EventApi {
    /// Returns the body that creates an event. Empty fields are left out.
    pub(crate) fn create(self, event: &Event) -> Value {
        let metadata = object([
            ("name", text(&event.name)),
            ("namespace", text(&event.namespace)),
            ("resourceVersion", text(&event.resource_version)),
            ("annotations", annotations(&event.annotations)),
        ]);
        let regarding = reference(&event.regarding);
        let related = event.related.as_ref().map_or(Value::Null, reference);
        match self {
            Self::CoreV1 => object([
                ("apiVersion", "v1".into()),
                ("kind", "Event".into()),
                ("metadata", metadata),
                ("involvedObject", regarding),
                ("related", related),
                ("type", text(&event.kind)),
                ("reason", text(&event.reason)),
                ("action", text(&event.action)),
                ("message", text(&event.note)),
                ("source", {
                    let (component, host) = &event.source;
                    object([("component", text(component)), ("host", text(host))])
                }),
                ("reportingComponent", text(&event.controller)),
                ("reportingInstance", text(&event.instance)),
                ("count", number(event.count)),
                ("firstTimestamp", seconds(event.first).into()),
                ("lastTimestamp", seconds(event.last).into()),
            ]),
            Self::EventsV1 => object([
                ("apiVersion", "events.k8s.io/v1".into()),
                ("kind", "Event".into()),
                ("metadata", metadata),
                ("regarding", regarding),
                ("related", related),
                ("type", text(&event.kind)),
                ("reason", text(&event.reason)),
                ("action", text(&event.action)),
                ("note", text(&event.note)),
                ("reportingController", text(&event.controller)),
                ("reportingInstance", text(&event.instance)),
                ("eventTime", microseconds(event.first).into()),
                ("series", series(event)),
            ]),
        }
    }

    /// Returns the patch that updates the count of an event (EC1, ER6).
    pub(crate) fn patch(self, event: &Event) -> Value {
        match self {
            Self::CoreV1 => object([
                ("count", number(event.count)),
                ("lastTimestamp", seconds(event.last).into()),
                ("message", text(&event.note)),
            ]),
            Self::EventsV1 => json!({"series": series(event)}),
        }
    }
}

fn series(event: &Event) -> Value {
    match event.count {
        // The server refuses a series of one.
        0 | 1 => Value::Null,
        count => json!({"count": count, "lastObservedTime": microseconds(event.last)}),
    }
}

fn reference(reference: &ObjectReference) -> Value {
    object([
        ("apiVersion", text(&reference.api_version)),
        ("kind", text(&reference.kind)),
        ("namespace", text(&reference.namespace)),
        ("name", text(&reference.name)),
        ("uid", text(&reference.uid)),
        ("resourceVersion", text(&reference.resource_version)),
        ("fieldPath", text(&reference.field_path)),
    ])
}

fn annotations(annotations: &BTreeMap<String, String>) -> Value {
    let fields = annotations
        .iter()
        .map(|(key, value)| (key.clone(), value.as_str().into()));
    match annotations.is_empty() {
        true => Value::Null,
        false => Value::Object(fields.collect()),
    }
}

/// Returns an object of the fields that are not null.
fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null());
    let fields: Map<String, Value> = fields.map(|(key, value)| (key.to_owned(), value)).collect();
    match fields.is_empty() {
        true => Value::Null,
        false => Value::Object(fields),
    }
}

fn text(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => text.into(),
    }
}

fn number(number: u32) -> Value {
    match number {
        0 => Value::Null,
        // The server has a signed number of 32 bits.
        number => number.min(i32::MAX as u32).into(),
    }
}

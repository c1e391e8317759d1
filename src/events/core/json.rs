//! Events as JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::event::Event;
use super::reference::ObjectReference;

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

/// Formats a `metav1.Time`: whole seconds.
fn seconds(time: Duration) -> String {
    format!("{}Z", date_and_time(time))
}

/// Formats a `metav1.MicroTime`: always six digits.
fn microseconds(time: Duration) -> String {
    format!("{}.{:06}Z", date_and_time(time), time.subsec_micros())
}

/// Formats a time in UTC without jiff, which programs without a client do not have. The algorithm
/// is `civil_from_days` of Howard Hinnant.
fn date_and_time(time: Duration) -> String {
    let (days, rest) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        let at = |secs, micros| Duration::from_secs(secs) + Duration::from_micros(micros);
        assert_eq!(seconds(at(0, 999_999)), "1970-01-01T00:00:00Z");
        assert_eq!(seconds(at(951_782_399, 0)), "2000-02-28T23:59:59Z");
        assert_eq!(seconds(at(951_868_799, 0)), "2000-02-29T23:59:59Z");
        assert_eq!(seconds(at(4_107_542_400, 0)), "2100-03-01T00:00:00Z");
        assert_eq!(
            microseconds(at(1_735_689_599, 42)),
            "2024-12-31T23:59:59.000042Z"
        );
    }
}

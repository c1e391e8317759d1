use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::rfc3339;
use k8s_informer::object::ObjectReference;

/// An event of `events.k8s.io/v1`. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Event {
    pub name: String,
    pub namespace: String,
    pub annotations: BTreeMap<String, String>,
    pub regarding: ObjectReference,
    pub related: Option<ObjectReference>,
    pub kind: String,
    pub reason: String,
    pub action: String,
    pub note: String,
    pub controller: String,
    pub instance: String,
    /// The number of occurrences. An event with a count of 2 or more is a series.
    pub count: u32,
    /// The wall-clock times of the first and the last occurrence, since 1970.
    pub first: Duration,
    pub last: Duration,
}

/// Events with the same key are one series (ER1).
pub type Key = ([String; 5], ObjectReference, Option<ObjectReference>);

impl Event {
    pub fn key(&self) -> Key {
        let texts = [
            &self.kind,
            &self.action,
            &self.reason,
            &self.controller,
            &self.instance,
        ];
        (
            texts.map(String::clone),
            self.regarding.clone(),
            self.related.clone(),
        )
    }

    /// Returns the body that creates the event. Empty fields are left out.
    pub fn create(&self) -> Value {
        object([
            ("apiVersion", "events.k8s.io/v1".into()),
            ("kind", "Event".into()),
            (
                "metadata",
                object([
                    ("name", text(&self.name)),
                    ("namespace", text(&self.namespace)),
                    ("annotations", annotations(&self.annotations)),
                ]),
            ),
            ("regarding", reference(&self.regarding)),
            (
                "related",
                self.related.as_ref().map_or(Value::Null, reference),
            ),
            ("type", text(&self.kind)),
            ("reason", text(&self.reason)),
            ("action", text(&self.action)),
            ("note", text(&self.note)),
            ("reportingController", text(&self.controller)),
            ("reportingInstance", text(&self.instance)),
            ("eventTime", time(self.first)),
            ("series", self.series()),
        ])
    }

    /// Returns the patch that updates the count of the event (ER6).
    pub fn patch(&self) -> Value {
        json!({"series": self.series()})
    }

    fn series(&self) -> Value {
        match self.count {
            // The server refuses a series of one.
            0 | 1 => Value::Null,
            // The server has a signed number of 32 bits.
            count => json!({
                "count": count.min(i32::MAX as u32), "lastObservedTime": time(self.last),
            }),
        }
    }
}

/// Returns the name of an event about this object: the name of the object and the time in
/// hexadecimal nanoseconds (ER5). The result can be an invalid name.
pub fn plain_name(object: &str, now: Duration) -> String {
    format!("{object}.{:x}", now.as_nanos())
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
    match annotations.is_empty() {
        true => Value::Null,
        false => json!(annotations),
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

fn time(time: Duration) -> Value {
    rfc3339::microseconds(time.as_secs().cast_signed(), time.subsec_nanos()).into()
}

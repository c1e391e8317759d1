use std::collections::BTreeMap;
use std::time::Duration;

use super::reference::ObjectReference;

/// The parts of a key. A list keeps neighboring parts apart, unlike client-go's keys, which are one
/// string without separators (EC8).
pub(crate) type Key = Vec<String>;

/// An event of either API. Absent fields are empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Event {
    pub(crate) name: String,
    pub(crate) namespace: String,
    pub(crate) resource_version: String,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) regarding: ObjectReference,
    pub(crate) related: Option<ObjectReference>,
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) action: String,
    pub(crate) note: String,
    pub(crate) controller: String,
    pub(crate) instance: String,
    /// The component and host of core v1.
    pub(crate) source: (String, String),
    /// The number of occurrences. In events.k8s.io/v1, an event with a count of 2 or more is a
    /// series.
    pub(crate) count: u32,
    /// The wall-clock times of the first and the last occurrence, since 1970.
    pub(crate) first: Duration,
    pub(crate) last: Duration,
}

impl Event {
    /// Returns the key under which core v1 counts equal events (EC8).
    pub(crate) fn key(&self) -> Key {
        let object = &self.regarding;
        let parts = [
            "event",
            &self.source.0,
            &self.source.1,
            &object.kind,
            &object.namespace,
            &object.name,
            &object.field_path,
            &object.uid,
            &object.api_version,
            &self.kind,
            &self.reason,
            &self.note,
        ];
        parts.map(str::to_owned).into()
    }

    /// Returns the key of events that may be combined, without the note that tells them apart
    /// (EC8). It has the reason, but no part of the object that changes.
    pub(crate) fn aggregate_key(&self) -> Key {
        let object = &self.regarding;
        let parts = [
            "aggregate",
            &self.source.0,
            &self.source.1,
            &object.kind,
            &object.namespace,
            &object.name,
            &object.uid,
            &object.api_version,
            &self.kind,
            &self.reason,
            &self.controller,
            &self.instance,
        ];
        parts.map(str::to_owned).into()
    }

    /// Returns the key of the events that share one token bucket (EC8).
    pub(crate) fn spam_key(&self) -> Key {
        let object = &self.regarding;
        let parts = [
            &*self.source.0,
            &self.source.1,
            &object.kind,
            &object.namespace,
            &object.name,
            &object.uid,
            &object.api_version,
            &self.kind,
        ];
        parts.map(str::to_owned).into()
    }

    /// Returns the key of a series, without the note. Unlike client-go's, it has no
    /// resourceVersion: the object changes while it has trouble, and the series must go on (ER1).
    pub(crate) fn series_key(&self) -> Key {
        let mut key: Key = [
            "series",
            &self.kind,
            &self.action,
            &self.reason,
            &self.controller,
            &self.instance,
        ]
        .map(str::to_owned)
        .into();
        for object in [Some(&self.regarding), self.related.as_ref()]
            .into_iter()
            .flatten()
        {
            let parts = [
                &object.api_version,
                &object.kind,
                &object.namespace,
                &object.name,
                &object.uid,
                &object.field_path,
            ];
            key.extend(parts.map(Clone::clone));
        }
        key
    }
}

/// Returns the name of an event about this object: the name of the object and the time in
/// hexadecimal nanoseconds (EC10). The result can be an invalid name.
pub(crate) fn plain_name(object: &str, now: Duration) -> String {
    format!("{object}.{:x}", now.as_nanos())
}

//! What kube-apiserver calls a strategy: the rules for creates and updates of one kind. Leases and
//! Events have rules of their own. For all other kinds, only the metadata is checked.

use serde_json::Value;

use super::finalizers::finalizer_causes;
use super::garbage::owner_causes;
use super::object::{Content, meta_str};
use super::resources::ApiResource;
use super::status::{Cause, StatusError};
use super::validate::{key_cause, label_causes, name_causes};

/// The required texts of an Event and `message`, with their limits in bytes.
const EVENT_TEXTS: [(&str, usize); 4] = [
    ("reportingInstance", 128),
    ("action", 128),
    ("reason", 128),
    ("message", 1024),
];

/// The fields of an Event that `events.k8s.io/v1` never changes.
const IMMUTABLE: [&str; 13] = [
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "type",
    "eventTime",
    "action",
    "related",
    "reportingComponent",
    "reportingInstance",
];

/// Checks a new object, or the new state of `old`, in the stored form.
pub(crate) fn check(
    resource: &ApiResource,
    name: &str,
    new: &Content,
    old: Option<&Content>,
) -> Result<(), StatusError> {
    let mut causes = match (&*resource.group, &*resource.plural) {
        _ if resource.custom => Vec::new(),
        ("coordination.k8s.io", "leases") => lease_causes(new),
        ("", "events") => event_causes(new),
        ("events.k8s.io", "events") => [event_causes(new), strict_event_causes(new, old)].concat(),
        _ => Vec::new(),
    };
    if old.is_none() {
        causes.extend(name_causes(resource, new));
    }
    causes.extend(label_causes(new));
    causes.extend(finalizer_causes(resource, new, old));
    causes.extend(owner_causes(new));
    if causes.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(
        name,
        &resource.group,
        &resource.kind,
        &causes,
    ))
}

fn lease_causes(content: &Content) -> Vec<Cause> {
    [
        ("leaseDurationSeconds", "spec.leaseDurationSeconds", 1),
        ("leaseTransitions", "spec.leaseTransitions", 0),
    ]
    .into_iter()
    .filter_map(|(name, field, least)| {
        let number = content.get("spec")?.get(name)?.as_i64()?;
        (number < least).then(|| {
            let why = format_args!("{number}: must be at least {least}");
            Cause::invalid(field, why)
        })
    })
    .collect()
}

fn is_set(event: &Content, field: &str) -> bool {
    match event.get(field) {
        None | Some(Value::Null) => false,
        Some(Value::Object(fields)) => !fields.is_empty(),
        Some(_) => true,
    }
}

fn text<'a>(event: &'a Content, field: &str) -> &'a str {
    let value = event.get(field);
    value.and_then(Value::as_str).unwrap_or_default()
}

/// The rules of both APIs for Events. Those with an `eventTime` are checked further.
fn event_causes(event: &Content) -> Vec<Cause> {
    let mut causes = Vec::new();
    let involved = event.get("involvedObject");
    let involved = involved
        .and_then(|object| object.get("namespace")?.as_str())
        .unwrap_or_default();
    let namespace = meta_str(event, "namespace");
    let is_timed = is_set(event, "eventTime");
    let fits = match involved {
        "" => namespace == "default" || is_timed && namespace == "kube-system",
        involved => is_timed || involved == namespace,
    };
    if !fits {
        let why = format_args!("{involved:?}: does not match event.namespace");
        causes.push(Cause::invalid("involvedObject.namespace", why));
    }
    if !is_timed {
        return causes;
    }
    match text(event, "reportingComponent") {
        "" => causes.push(Cause::required("reportingComponent")),
        controller => causes.extend(key_cause("reportingComponent", controller)),
    }
    for (field, limit) in EVENT_TEXTS {
        match text(event, field).len() {
            0 if field != "message" => causes.push(Cause::required(field)),
            length if length > limit => {
                let why = format_args!("can have at most {limit} characters");
                causes.push(Cause::invalid(field, why));
            }
            _ => {}
        }
    }
    causes
}

/// The further rules of creates and updates with `events.k8s.io/v1`.
fn strict_event_causes(event: &Content, old: Option<&Content>) -> Vec<Cause> {
    let mut causes = Vec::new();
    if let Some(series) = event.get("series")
        && old.is_none_or(|old| old.get("series") != Some(series))
    {
        if series["count"].as_i64().unwrap_or(0) < 2 {
            causes.push(Cause::invalid("series.count", "should be at least 2"));
        }
        if series["lastObservedTime"].is_null() {
            causes.push(Cause::required("series.lastObservedTime"));
        }
    }
    if let Some(old) = old {
        let changed = IMMUTABLE
            .into_iter()
            .filter(|field| event.get(*field) != old.get(*field));
        causes.extend(changed.map(|field| Cause::invalid(field, "field is immutable")));
        return causes;
    }
    if !is_set(event, "eventTime") {
        causes.push(Cause::required("eventTime"));
    }
    let type_ = text(event, "type");
    if !matches!(type_, "Normal" | "Warning") {
        causes.push(Cause::not_supported("type", type_));
    }
    for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
        if is_set(event, field) {
            causes.push(Cause::invalid(field, "needs to be unset"));
        }
    }
    causes
}

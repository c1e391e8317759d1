//! What kube-apiserver calls a strategy: the rules for creates and updates of one kind. Leases and
//! Events have rules of their own. For all other kinds, only the metadata is checked.

use serde_json::Value;

use super::finalizers::finalizer_causes;
use super::garbage::owner_causes;
use super::object::{Content, meta_str};
use super::resources::ApiResource;
use super::schema::Schema;
use super::status::{Cause, StatusError};
use super::validate::{label_causes, label_key_errors, name_causes};

/// The limit of `action`, `reason` and `reportingInstance` in bytes.
const TEXT_LIMIT: usize = 128;
/// The limit of `note` in bytes.
const NOTE_LIMIT: usize = 1024;

/// The fields of an Event that `events.k8s.io/v1` never changes, in the order of their errors.
/// `reason` is there twice, as in kube-apiserver.
const IMMUTABLE: &[&str] = &[
    "involvedObject",
    "reason",
    "message",
    "source",
    "firstTimestamp",
    "lastTimestamp",
    "count",
    "reason",
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
    let name_causes = || match old {
        None => name_causes(resource, new),
        Some(_) => Vec::new(),
    };
    let event = Event {
        resource,
        content: new,
    };
    let mut causes = match (&*resource.group, &*resource.plural) {
        ("coordination.k8s.io", "leases") if !resource.custom => {
            [name_causes(), lease(new)].concat()
        }
        ("events.k8s.io", "events") if !resource.custom => {
            let strict = match old {
                None => event.strict(),
                Some(old) => event.changes_of(old),
            };
            [event.legacy(), name_causes(), strict].concat()
        }
        ("", "events") if !resource.custom => match event.legacy() {
            causes if causes.is_empty() => name_causes(),
            causes => causes,
        },
        _ => name_causes(),
    };
    causes.extend(label_causes(new));
    causes.extend(finalizer_causes(resource, new, old));
    causes.extend(owner_causes(new));
    if causes.is_empty() {
        return Ok(());
    }
    Err(StatusError::invalid(
        name,
        // Events of both APIs are validated in the internal form, which has no group.
        if resource.plural == "events" && !resource.custom {
            ""
        } else {
            &resource.group
        },
        &resource.kind,
        &causes,
    ))
}

fn lease(content: &Content) -> Vec<Cause> {
    [
        (
            "leaseDurationSeconds",
            "spec.leaseDurationSeconds",
            1,
            "must be greater than 0",
        ),
        (
            "leaseTransitions",
            "spec.leaseTransitions",
            0,
            "must be greater than or equal to 0",
        ),
    ]
    .into_iter()
    .filter_map(|(name, field, least, why)| {
        let number = content.get("spec")?.get(name)?.as_i64()?;
        (number < least).then(|| invalid(field, number, why))
    })
    .collect()
}

/// An Event in the stored form, and the API that it was written with.
struct Event<'a> {
    resource: &'a ApiResource,
    content: &'a Content,
}

impl Event<'_> {
    /// The rules of both APIs.
    fn legacy(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        let involved = self.content.get("involvedObject");
        let involved = involved
            .and_then(|object| object.get("namespace")?.as_str())
            .unwrap_or_default();
        let namespace = meta_str(self.content, "namespace");
        let timed = self.is_set("eventTime");
        let fits = match involved {
            "" => namespace == "default" || timed && namespace == "kube-system",
            involved => timed || involved == namespace,
        };
        if !fits {
            let field = "involvedObject.namespace";
            causes.push(invalid(
                field,
                format!("{involved:?}"),
                "does not match event.namespace",
            ));
        }
        if !timed {
            return causes;
        }
        let controller = self.text("reportingComponent");
        let field = self.field("reportingComponent");
        if controller.is_empty() {
            causes.push(required(field));
        }
        causes.extend(
            label_key_errors(controller)
                .iter()
                .map(|why| invalid(field, format!("{controller:?}"), why)),
        );
        for (field, limit) in [
            ("reportingInstance", TEXT_LIMIT),
            ("action", TEXT_LIMIT),
            ("reason", TEXT_LIMIT),
            ("message", NOTE_LIMIT),
        ] {
            match self.text(field).len() {
                0 if limit == TEXT_LIMIT => causes.push(required(field)),
                length if length > limit => {
                    let why = format!("can have at most {limit} characters");
                    causes.push(invalid(field, "\"\"", &why));
                }
                _ => {}
            }
        }
        causes
    }

    /// The further rules of a create with `events.k8s.io/v1`.
    fn strict(&self) -> Vec<Cause> {
        let mut causes = self.series();
        if !self.is_set("eventTime") {
            causes.push(required("eventTime"));
        }
        let kind = self.text("type");
        if !matches!(kind, "Normal" | "Warning") {
            causes.push(invalid(
                "type",
                "\"\"",
                &format!("has invalid value: {kind}"),
            ));
        }
        for field in ["firstTimestamp", "lastTimestamp", "count", "source"] {
            if self.is_set(field) {
                causes.push(invalid(field, "\"\"", "needs to be unset"));
            }
        }
        causes
    }

    /// The further rules of an update with `events.k8s.io/v1`.
    fn changes_of(&self, old: &Content) -> Vec<Cause> {
        let mut causes = Vec::new();
        if self.content.get("series") != old.get("series") {
            causes.extend(self.series());
        }
        let changed = |field: &&&str| self.content.get(**field) != old.get(**field);
        causes.extend(IMMUTABLE.iter().filter(changed).map(|field| {
            let value = Schema::of(self.resource)
                .map(|schema| schema.shown(field, self.content.get(*field)));
            invalid(
                self.field(field),
                value.unwrap_or_default(),
                "field is immutable",
            )
        }));
        causes
    }

    fn series(&self) -> Vec<Cause> {
        let mut causes = Vec::new();
        if let Some(series) = self.content.get("series") {
            if series.get("count").and_then(Value::as_i64).unwrap_or(0) < 2 {
                causes.push(invalid("series.count", "\"\"", "should be at least 2"));
            }
            if series.get("lastObservedTime").is_none_or(Value::is_null) {
                causes.push(required("series.lastObservedTime"));
            }
        }
        causes
    }

    fn text(&self, field: &str) -> &str {
        let value = self.content.get(field);
        value.and_then(Value::as_str).unwrap_or_default()
    }

    fn is_set(&self, field: &str) -> bool {
        match self.content.get(field) {
            None | Some(Value::Null) => false,
            Some(Value::Object(fields)) => !fields.is_empty(),
            Some(_) => true,
        }
    }

    /// Returns the name of a field in errors: only this field has the name of its API.
    fn field(&self, stored: &'static str) -> &'static str {
        match stored {
            "reportingComponent" if !self.resource.group.is_empty() => "reportingController",
            other => other,
        }
    }
}

fn required(field: &'static str) -> Cause {
    Cause {
        reason: "FieldValueRequired",
        message: "Required value".to_owned(),
        field,
    }
}

fn invalid(field: &'static str, value: impl std::fmt::Display, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {value}: {why}"),
        field,
    }
}

//! The options of a deletion: preconditions, and the fate of the dependents.

use serde_json::{Map, Value};

use super::http::Head;
use super::status::{Cause, StatusError};
use super::validate::{go_error, type_name};

/// The conditions that an object must meet to be deleted, and the propagation policy. Grace periods
/// have no effect.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct DeleteOptions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    pub(crate) propagation: Option<Propagation>,
}

/// What happens to the dependents of a deleted object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Propagation {
    Foreground,
    Background,
    Orphan,
}

impl DeleteOptions {
    /// Parses the options of a request. If it has a body, the query is ignored.
    pub(crate) fn of_request(head: &Head, body: &[u8]) -> Result<Self, StatusError> {
        if !body.is_empty() {
            return Self::parse(body);
        }
        let mut options = Map::new();
        if let Some(policy) = head.param("propagationPolicy") {
            options.insert("propagationPolicy".to_owned(), policy.into());
        }
        if let Some(orphan) = head.flag("orphanDependents") {
            options.insert("orphanDependents".to_owned(), orphan.into());
        }
        Self::of(&Value::Object(options))
    }

    /// Parses a body, which may be empty.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, StatusError> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let options: Value = serde_json::from_slice(body).map_err(|error| {
            StatusError::bad_request(format!(
                "couldn't get version/kind; json parse error: {}",
                go_error(&error)
            ))
        })?;
        Self::of(&options)
    }

    fn of(options: &Value) -> Result<Self, StatusError> {
        let preconditions = options.get("preconditions");
        let text = |field: &str| Some(preconditions?.get(field)?.as_str()?.to_owned());
        Ok(Self {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            propagation: propagation(options)?,
        })
    }
}

fn propagation(options: &Value) -> Result<Option<Propagation>, StatusError> {
    // The predecessor of the policy.
    let orphan = options.get("orphanDependents").and_then(Value::as_bool);
    let policy = match options.get("propagationPolicy") {
        None | Some(Value::Null) => {
            return Ok(orphan.map(|orphan| match orphan {
                true => Propagation::Orphan,
                false => Propagation::Background,
            }));
        }
        Some(Value::String(policy)) => policy,
        Some(other) => {
            return Err(StatusError::bad_request(format!(
                "json: cannot unmarshal {} into Go struct field DeleteOptions.propagationPolicy of type \
                 v1.DeletionPropagation",
                type_name(other)
            )));
        }
    };
    let refused = |reason, message| {
        let field = "propagationPolicy";
        let cause = Cause {
            reason,
            message,
            field,
        };
        StatusError::invalid("", "meta.k8s.io", "DeleteOptions", &[cause])
    };
    if orphan.is_some() {
        return Err(refused(
            "FieldValueInvalid",
            format!(
                "Invalid value: \"{policy}\": orphanDependents and deletionPropagation cannot be both set"
            ),
        ));
    }
    match &**policy {
        "Foreground" => Ok(Some(Propagation::Foreground)),
        "Background" => Ok(Some(Propagation::Background)),
        "Orphan" => Ok(Some(Propagation::Orphan)),
        _ => Err(refused(
            "FieldValueNotSupported",
            format!(
                "Unsupported value: \"{policy}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \
                 \"nil\""
            ),
        )),
    }
}

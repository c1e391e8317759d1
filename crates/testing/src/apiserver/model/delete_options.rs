//! The options of a deletion: preconditions, and the fate of the dependents.

use serde_json::{Value, json};

use super::http::Head;
use super::status::{Cause, StatusError};
use super::validate::parse_json;

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
        let policy = head.param("propagationPolicy");
        Self::of(&json!({ "propagationPolicy": policy }))
    }

    /// Parses a body, which may be empty.
    pub(crate) fn parse(body: &[u8]) -> Result<Self, StatusError> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        Self::of(&parse_json(body)?)
    }

    fn of(options: &Value) -> Result<Self, StatusError> {
        let preconditions = options.get("preconditions");
        let text = |field: &str| Some(preconditions?.get(field)?.as_str()?.to_owned());
        let policy = options.get("propagationPolicy").unwrap_or(&Value::Null);
        let propagation = match policy.as_str() {
            None if policy.is_null() => None,
            Some("Foreground") => Some(Propagation::Foreground),
            Some("Background") => Some(Propagation::Background),
            Some("Orphan") => Some(Propagation::Orphan),
            other => {
                let cause = Cause::not_supported("propagationPolicy", other.unwrap_or_default());
                return Err(StatusError::invalid_options(&[cause]));
            }
        };
        Ok(Self {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            propagation,
        })
    }
}

use serde_json::Value;

use super::status::{Cause, StatusError};
use super::validate::go_error;

/// The conditions that an object must meet to be deleted.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl Preconditions {
    /// Parses `DeleteOptions`. Only the preconditions have an effect, but the propagation policy
    /// must be valid.
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
        let policy = options
            .get("propagationPolicy")
            .and_then(Value::as_str)
            .unwrap_or("Background");
        if !["Foreground", "Background", "Orphan"].contains(&policy) {
            let cause = Cause {
                reason: "FieldValueNotSupported",
                message: format!(
                    "Unsupported value: \"{policy}\": supported values: \"Foreground\", \"Background\", \"Orphan\", \
                     \"nil\""
                ),
                field: "propagationPolicy",
            };
            return Err(StatusError::invalid(
                "",
                "meta.k8s.io",
                "DeleteOptions",
                &[cause],
            ));
        }
        let preconditions = options.get("preconditions");
        let text = |field: &str| Some(preconditions?.get(field)?.as_str()?.to_owned());
        Ok(Self {
            uid: text("uid"),
            resource_version: text("resourceVersion"),
        })
    }
}

use serde_json::Value;

use super::status::{Cause, StatusError};
use super::validate::go_error;

/// What must be true of an object for it to be deleted.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl Preconditions {
    /// Reads `DeleteOptions`. Nothing but the preconditions matters here, but the rest must be right.
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

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

use crate::base::text::EscapedText;
use crate::json::{null_is_default, null_items_are_default};

/// The API server's description of a failed request: `metav1.Status`.
///
/// The fields contain what the server sent. `Display` and `Debug` escape control characters and
/// show at most 1024 characters of each field, so a server cannot forge log lines.
///
/// ```
/// use k8s_informer::error::Status;
///
/// let status: Status = serde_json::from_str(
///     r#"{"kind": "Status", "status": "Failure", "message": "pods \"a\" not found", "reason": "NotFound", "code": 404}"#,
/// )?;
/// assert_eq!((status.code, status.reason.as_str()), (404, "NotFound"));
/// assert_eq!(status.to_string(), "pods \"a\" not found (404 NotFound)");
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct Status {
    /// `Success` or `Failure`.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub status: String,
    /// A description for humans.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// The reason for programs: `NotFound`, `Expired`, `Conflict` …
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub reason: String,
    /// Details of the reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code, or 0 if the server did not send one.
    #[serde(deserialize_with = "number", skip_serializing_if = "is_zero")]
    pub code: u16,
}

impl Status {
    /// Creates the description of a failure.
    ///
    /// ```
    /// use k8s_informer::error::Status;
    /// use k8s_informer::Error;
    ///
    /// let error = Error::from_status(Status::failure(410, "Expired", "too old resource version: 5 (9)"));
    /// assert!(error.is_gone());
    /// ```
    pub fn failure(code: u16, reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            status: "Failure".to_owned(),
            message: message.into(),
            reason: reason.into(),
            code,
            ..Self::default()
        }
    }
}

/// Details of the reason of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub name: String,
    /// The API group of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub group: String,
    /// The kind or the resource of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub kind: String,
    /// The UID of the object.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub uid: String,
    /// The individual causes, for example one for each invalid field.
    #[serde(
        deserialize_with = "null_items_are_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub causes: Vec<StatusCause>,
    /// The delay before the next attempt, in seconds, or 0 if the server did not send one.
    #[serde(deserialize_with = "number", skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One cause of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StatusCause {
    /// The reason for programs: `FieldValueInvalid`, `ResourceVersionTooLarge` …
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub reason: String,
    /// A description for humans.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub message: String,
    /// The path of the field that caused the failure: `metadata.name`.
    #[serde(
        deserialize_with = "null_is_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub field: String,
}

/// Decodes an integer. One that `T` does not have, such as a negative one, means nothing, as 0.
fn number<'de, D: Deserializer<'de>, T: TryFrom<i64> + Default>(d: D) -> Result<T, D::Error> {
    let number: i64 = null_is_default(d)?;
    Ok(T::try_from(number).unwrap_or_default())
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (message, reason) = (EscapedText(&self.message), EscapedText(&self.reason));
        match (self.message.is_empty(), self.reason.is_empty()) {
            (true, true) => write!(f, "status {}", self.code),
            (true, false) => write!(f, "{reason} ({})", self.code),
            (false, true) => write!(f, "{message} ({})", self.code),
            (false, false) => write!(f, "{message} ({} {reason})", self.code),
        }
    }
}

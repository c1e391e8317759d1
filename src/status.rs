use std::fmt;

use serde::{Deserialize, Serialize};

/// What the API server says about a request that failed: `metav1.Status`.
///
/// ```
/// use k8s_informer::Status;
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
    #[serde(skip_serializing_if = "String::is_empty")]
    pub status: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// For programs: `NotFound`, `Expired`, `Conflict` …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What the reason is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<StatusDetails>,
    /// The HTTP status code, 0 if the server did not give one.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
}

/// What the reason of a [`Status`] is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StatusDetails {
    /// The name of the object.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its API group.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Its kind or resource.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kind: String,
    /// Its UID.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// The single causes, for example each invalid field.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<StatusCause>,
    /// After how many seconds to try again, 0 if not said.
    #[serde(skip_serializing_if = "is_zero")]
    pub retry_after_seconds: u32,
}

/// One cause of a [`Status`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct StatusCause {
    /// For programs: `FieldValueInvalid`, `ResourceVersionTooLarge` …
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// For people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The field it is about: `metadata.name`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub field: String,
}

fn is_zero<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.message.as_str(), self.reason.as_str()) {
            ("", "") => write!(f, "status {}", self.code),
            ("", reason) => write!(f, "{reason} ({})", self.code),
            (message, "") => write!(f, "{message} ({})", self.code),
            (message, reason) => write!(f, "{message} ({} {reason})", self.code),
        }
    }
}

//! The `Status` objects of error responses, with the codes and reasons of kube-apiserver.

use std::fmt;

use serde_json::{Map, Value, json};

use k8s_informer::__private::debug_as_display;

/// An error response of the server: an HTTP status and a Kubernetes `Status` object.
///
/// The methods of [`ApiServer`](crate::ApiServer) return it as their error. Over HTTP it
/// is the body of the response.
#[derive(Clone, PartialEq)]
pub struct StatusError(Box<Inner>);

#[derive(Clone, PartialEq)]
struct Inner {
    code: u16,
    reason: &'static str,
    message: String,
    details: Option<Map<String, Value>>,
    /// The token to continue with, in a 410 for an expired continue token.
    continue_token: Option<String>,
    retry_after: Option<u32>,
}

/// One entry of `details.causes`.
#[derive(Clone)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: &'static str,
}

impl Cause {
    fn new(reason: &'static str, field: &'static str, message: String) -> Self {
        Self {
            reason,
            message,
            field,
        }
    }

    pub(crate) fn invalid(field: &'static str, why: impl fmt::Display) -> Self {
        Self::new("FieldValueInvalid", field, format!("Invalid value: {why}"))
    }

    pub(crate) fn required(field: &'static str) -> Self {
        Self::new("FieldValueRequired", field, "Required value".to_owned())
    }

    pub(crate) fn forbidden(field: &'static str, why: &str) -> Self {
        Self::new("FieldValueForbidden", field, format!("Forbidden: {why}"))
    }

    pub(crate) fn not_supported(field: &'static str, value: &str) -> Self {
        let message = format!("Unsupported value: {value:?}");
        Self::new("FieldValueNotSupported", field, message)
    }
}

impl StatusError {
    /// Returns the HTTP status, which is also `code` in the body.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Returns the machine-readable reason, such as `NotFound` or `Conflict`. It is empty if the
    /// error has none.
    pub fn reason(&self) -> &str {
        self.0.reason
    }

    /// The value of the `Retry-After` header in seconds, if the response has one.
    pub(crate) fn retry_after(&self) -> Option<u32> {
        self.0.retry_after
    }

    /// Requests a retry after this time, in the header and in the details.
    pub(crate) fn set_retry_after(&mut self, seconds: u32) {
        self.0
            .details
            .get_or_insert_default()
            .insert("retryAfterSeconds".to_owned(), seconds.into());
        self.0.retry_after = Some(seconds);
    }

    /// Returns the body with its fields in the order of kube-apiserver.
    pub(crate) fn body(&self) -> Vec<u8> {
        let Inner {
            code,
            reason,
            message,
            details,
            continue_token,
            retry_after: _,
        } = &*self.0;
        let metadata = match continue_token {
            Some(token) => json!({ "continue": token }),
            None => json!({}),
        };
        let message = Value::from(message.as_str());
        let mut text = format!(
            r#"{{"kind":"Status","apiVersion":"v1","metadata":{metadata},"status":"Failure","message":{message}"#
        );
        if !reason.is_empty() {
            text.push_str(&format!(r#","reason":"{reason}""#));
        }
        if let Some(details) = details {
            text.push_str(&format!(r#","details":{}"#, Value::Object(details.clone())));
        }
        text.push_str(&format!(r#","code":{code}}}"#));
        text.into_bytes()
    }

    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self(Box::new(Inner {
            code,
            reason,
            message,
            details: None,
            continue_token: None,
            retry_after: None,
        }))
    }

    fn detail(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0
            .details
            .get_or_insert_default()
            .insert(key.to_owned(), value.into());
        self
    }

    /// Sets `details.name`, `details.group` and `details.kind`. Empty values are omitted, as with
    /// Go's `omitempty`.
    fn about(self, name: &str, group: &str, kind: &str) -> Self {
        [("name", name), ("group", group), ("kind", kind)]
            .into_iter()
            .filter(|(_, value)| !value.is_empty())
            .fold(self, |status, (key, value)| status.detail(key, value))
    }

    /// Returns a status with the reason of an HTTP status.
    pub(crate) fn plain(code: u16, message: Option<String>) -> Self {
        let reason = match code {
            400 => "BadRequest",
            401 => "Unauthorized",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            406 => "NotAcceptable",
            409 => "Conflict",
            410 => "Expired",
            413 => "RequestEntityTooLarge",
            415 => "UnsupportedMediaType",
            422 => "Invalid",
            429 => "TooManyRequests",
            500 => "InternalError",
            503 => "ServiceUnavailable",
            504 => "Timeout",
            _ => "",
        };
        let message =
            message.unwrap_or_else(|| format!("the server has responded with {code} {reason}"));
        Self::new(code, reason, message)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// An error without a reason. kube-apiserver returns this for unexpected errors.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn forbidden(name: &str, group: &str, plural: &str, why: &str) -> Self {
        let subject = if name.is_empty() {
            qualified(plural, group)
        } else {
            quoted(plural, group, name)
        };
        Self::new(403, "Forbidden", format!("{subject} is forbidden: {why}"))
            .about(name, group, plural)
    }

    pub(crate) fn namespace_terminating(
        name: &str,
        group: &str,
        plural: &str,
        namespace: &str,
    ) -> Self {
        let why = format!(
            "unable to create new content in namespace {namespace} because it is being terminated"
        );
        let cause = json!([{
            "reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"),
            "field": "metadata.namespace",
        }]);
        Self::forbidden(name, group, plural, &why).detail("causes", cause)
    }

    pub(crate) fn not_found(name: &str, group: &str, plural: &str) -> Self {
        let message = format!("{} not found", quoted(plural, group, name));
        Self::plain(404, Some(message)).about(name, group, plural)
    }

    /// The group and version exist, but not the resource.
    pub(crate) fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self::plain(404, Some(message.to_owned()))
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::plain(405, None)
    }

    pub(crate) fn already_exists(name: &str, group: &str, plural: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} already exists", quoted(plural, group, name)),
        )
        .about(name, group, plural)
    }

    pub(crate) fn conflict(name: &str, group: &str, plural: &str, why: &str) -> Self {
        let subject = quoted(plural, group, name);
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {subject}: {why}"),
        )
        .about(name, group, plural)
    }

    pub(crate) fn invalid(name: &str, group: &str, kind: &str, causes: &[Cause]) -> Self {
        let each = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message));
        let why = match &*each.collect::<Vec<_>>() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = causes
            .iter()
            .map(|c| json!({ "reason": c.reason, "message": c.message, "field": c.field }))
            .collect();
        Self::new(
            422,
            "Invalid",
            format!("{} is invalid: {why}", quoted(kind, group, name)),
        )
        .about(name, group, kind)
        .detail("causes", causes)
    }

    /// Options of a request that are missing or incompatible.
    pub(crate) fn invalid_options(causes: &[Cause]) -> Self {
        Self::invalid("", "meta.k8s.io", "Options", causes)
    }

    /// The error for applying fields that other managers own with other values. `conflicts` has the
    /// quoted manager and the field of each conflict.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let each = conflicts
            .iter()
            .map(|(manager, field)| format!("conflict with {manager}: {field}"));
        let plural = if conflicts.len() == 1 { "" } else { "s" };
        let message = format!(
            "Apply failed with {} conflict{plural}: {}",
            conflicts.len(),
            each.collect::<Vec<_>>().join(", ")
        );
        let cause = |(manager, field): &(String, String)| {
            let message = format!("conflict with {manager}");
            json!({ "reason": "FieldManagerConflict", "message": message, "field": field })
        };
        let causes: Vec<Value> = conflicts.iter().map(cause).collect();
        Self::new(409, "Conflict", message).detail("causes", causes)
    }

    pub(crate) fn watch_expired(requested: u64, oldest: u64) -> Self {
        Self::new(
            410,
            "Expired",
            format!("too old resource version: {requested} ({oldest})"),
        )
    }

    pub(crate) fn continue_expired(inconsistent: String) -> Self {
        let mut status = Self::new(
            410,
            "Expired",
            "The provided continue parameter is too old to display a consistent list result.",
        );
        status.0.continue_token = Some(inconsistent);
        status
    }

    pub(crate) fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let why = "Too large resource version";
        let message = format!("Timeout: {why}: {requested}, current: {current}");
        let cause = json!([{ "reason": "ResourceVersionTooLarge", "message": why }]);
        let mut status = Self::new(504, "Timeout", message).detail("causes", cause);
        status.set_retry_after(1);
        status
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        let message = format!("Request entity too large: limit is {limit}");
        Self::plain(413, Some(message))
    }
}

/// Returns the watch event that reports an error.
pub(crate) fn error_line(status: &StatusError) -> Vec<u8> {
    let mut line = br#"{"type":"ERROR","object":"#.to_vec();
    line.extend_from_slice(&status.body());
    line.extend_from_slice(b"}\n");
    line
}

/// Returns `pods` or `widgets.sample.example.com`, for example.
fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// Returns `pods "a"` or `widgets.sample.example.com "a"`, for example.
fn quoted(plural: &str, group: &str, name: &str) -> String {
    format!("{} \"{name}\"", qualified(plural, group))
}

impl fmt::Display for StatusError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for StatusError {}

debug_as_display!(StatusError);

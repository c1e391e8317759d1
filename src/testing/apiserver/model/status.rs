//! The `Status` objects of error responses, with the same text as in kube-apiserver.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value, json};

use crate::error::debug_as_display;

/// An error response of the server: an HTTP status and a Kubernetes `Status` object.
///
/// The methods of [`ApiServer`](crate::testing::ApiServer) return it as their error. Over HTTP it
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

/// The media types that kube-apiserver lists. This server supports only JSON.
const MEDIA_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// One entry of `details.causes`.
#[derive(Clone)]
pub(crate) struct Cause {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    pub(crate) field: &'static str,
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

    fn empty_details(mut self) -> Self {
        self.0.details.get_or_insert_default();
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

    /// Returns a status with the default reason and message of an HTTP status, for injected faults.
    pub(crate) fn plain(code: u16, message: Option<String>) -> Self {
        let (reason, default) = match code {
            400 => (
                "BadRequest",
                "the server rejected our request for an unknown reason",
            ),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "forbidden: the server does not allow this"),
            404 => (
                "NotFound",
                "the server could not find the requested resource",
            ),
            405 => (
                "MethodNotAllowed",
                "the server does not allow this method on the requested resource",
            ),
            406 => (
                "NotAcceptable",
                "only the following media types are accepted: application/json",
            ),
            409 => ("Conflict", "the server reported a conflict"),
            410 => (
                "Expired",
                "The resourceVersion for the provided list is too old.",
            ),
            413 => ("RequestEntityTooLarge", "the request is too large"),
            415 => ("UnsupportedMediaType", "415: Unsupported Media Type"),
            422 => (
                "Invalid",
                "the server rejected our request due to an error in our request",
            ),
            429 => (
                "TooManyRequests",
                "Too many requests, please try again later.",
            ),
            500 => ("InternalError", "Internal error occurred: injected"),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => (
                "Timeout",
                "the server was unable to return a response in the time allotted",
            ),
            _ => ("", "the server returned an injected status"),
        };
        Self::new(code, reason, message.unwrap_or_else(|| default.to_owned()))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// An error without a reason. kube-apiserver returns this for unexpected errors.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }

    pub(crate) fn unauthorized() -> Self {
        Self::plain(401, None)
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
        Self::new(
            404,
            "NotFound",
            format!("{} not found", quoted(plural, group, name)),
        )
        .about(name, group, plural)
    }

    /// The group and version exist, but not the resource.
    pub(crate) fn no_such_resource() -> Self {
        Self::plain(404, None).empty_details()
    }

    pub(crate) fn method_not_allowed() -> Self {
        Self::plain(405, None).empty_details()
    }

    pub(crate) fn not_acceptable() -> Self {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {MEDIA_TYPES}");
        Self::new(406, "NotAcceptable", message).empty_details()
    }

    pub(crate) fn unsupported_media_type() -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {MEDIA_TYPES}"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(crate) fn unsupported_patch() -> Self {
        Self::plain(415, None).empty_details()
    }

    pub(crate) fn already_exists(name: &str, group: &str, plural: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} already exists", quoted(plural, group, name)),
        )
        .about(name, group, plural)
    }

    /// Returns the error for a conflict. `kind` is the plural name of the resource for updates, and
    /// its kind for deletions, as in kube-apiserver.
    pub(crate) fn conflict(name: &str, group: &str, kind: &str, why: &str) -> Self {
        let subject = quoted(kind, group, name);
        Self::new(
            409,
            "Conflict",
            format!("Operation cannot be fulfilled on {subject}: {why}"),
        )
        .about(name, group, kind)
    }

    pub(crate) fn invalid(name: &str, group: &str, kind: &str, causes: &[Cause]) -> Self {
        let mut each: Vec<String> = Vec::new();
        // The message names equal causes once, as in kube-apiserver.
        for cause in causes {
            let text = format!("{}: {}", cause.field, cause.message);
            if !each.contains(&text) {
                each.push(text);
            }
        }
        let why = match each.as_slice() {
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

    /// Options of a list or watch that are incompatible.
    pub(crate) fn invalid_options(causes: &[Cause]) -> Self {
        Self::invalid("", "meta.k8s.io", "ListOptions", causes)
    }

    /// Options of a patch that are missing or incompatible with its kind.
    pub(crate) fn invalid_patch_options(cause: Cause) -> Self {
        Self::invalid("", "meta.k8s.io", "PatchOptions", &[cause])
    }

    /// The patch, or the patched object, has a value that does not have the type of its field.
    pub(crate) fn invalid_patch(shown: &Value, why: &str) -> Self {
        let shown = shown.to_string();
        let cause = Cause {
            reason: "FieldValueInvalid",
            message: format!("Invalid value: \"{}\": {why}", shown.escape_default()),
            field: "patch",
        };
        Self::invalid("", "", "", &[cause])
    }

    /// The error for applying fields that other managers own with other values. `conflicts` has the
    /// quoted manager and the field of each conflict.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(manager, field)| {
                json!({
                    "reason": "FieldManagerConflict",
                    "message": format!("conflict with {manager}"),
                    "field": field,
                })
            })
            .collect();
        let message = match conflicts {
            [(manager, field)] => {
                format!("Apply failed with 1 conflict: conflict with {manager}: {field}")
            }
            many => {
                let mut managers: BTreeMap<&str, String> = BTreeMap::new();
                for (manager, field) in many {
                    managers
                        .entry(manager)
                        .or_default()
                        .push_str(&format!("\n- {field}"));
                }
                let each = managers
                    .iter()
                    .map(|(manager, fields)| format!("conflicts with {manager}:{fields}"));
                let each: Vec<String> = each.collect();
                format!(
                    "Apply failed with {} conflicts: {}",
                    many.len(),
                    each.join("\n")
                )
            }
        };
        Self::new(409, "Conflict", message).detail("causes", causes)
    }

    /// The requested metadata form does not exist for this kind of response.
    pub(crate) fn not_acceptable_form(requested: &str, is_list: bool, go_type: &str) -> Self {
        let what = if is_list {
            "is a list"
        } else {
            "is not a list"
        };
        let message =
            format!("you requested {requested}, but the requested object {what} ({go_type})");
        Self::new(406, "NotAcceptable", message)
    }

    /// The patch is well-formed but cannot be applied.
    pub(crate) fn unprocessable_patch() -> Self {
        Self::plain(422, None).empty_details()
    }

    /// The pod's disruption budget allows no eviction.
    pub(crate) fn disruption_budget(why: &str, retry_after: Option<u32>) -> Self {
        let message =
            "Cannot evict pod as it would violate the pod's disruption budget.".to_owned();
        let causes = json!([{ "reason": "DisruptionBudget", "message": why }]);
        let mut status = Self::plain(429, Some(message)).detail("causes", causes);
        if let Some(seconds) = retry_after {
            status.set_retry_after(seconds);
        }
        status
    }

    pub(crate) fn list_expired() -> Self {
        Self::plain(410, None)
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
            "The provided continue parameter is too old to display a consistent list result. You can start a new \
             list without the continue parameter, or use the continue token in this response to retrieve the \
             remainder of the results. Continuing with the provided token results in an inconsistent list - \
             objects that were created, modified, or deleted between the time the first chunk was returned and \
             now may show up in the list.",
        );
        status.0.continue_token = Some(inconsistent);
        status
    }

    pub(crate) fn too_large_resource_version(requested: u64, current: u64) -> Self {
        let message =
            format!("Timeout: Too large resource version: {requested}, current: {current}");
        let mut status = Self::new(504, "Timeout", message).detail(
            "causes",
            json!([{ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" }]),
        );
        status.set_retry_after(1);
        status
    }

    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
        .empty_details()
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

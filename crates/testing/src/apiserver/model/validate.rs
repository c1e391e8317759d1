//! Validation of objects of any kind before they are stored: names, labels, and the types within
//! `metadata`.

use serde_json::{Map, Value};

use super::object::{Content, meta, meta_str};
use super::resources::{ApiResource, Target};
use super::status::{Cause, StatusError};

/// Parses the body of a request.
pub(crate) fn parse_json(body: &[u8]) -> Result<Value, StatusError> {
    serde_json::from_slice(body)
        .map_err(|error| StatusError::bad_request(format!("the body is not valid JSON: {error}")))
}

/// Checks the parts of an object that the server uses, and removes `kind` and `apiVersion`.
pub(crate) fn check_object(
    resource: &ApiResource,
    target: &Target,
    body: Value,
) -> Result<Content, StatusError> {
    let (kind, version) = (&resource.kind, resource.api_version());
    let Value::Object(mut content) = body else {
        return Err(StatusError::bad_request(format!(
            "the body is not an object of type {kind}"
        )));
    };
    for (field, expected, what) in [
        ("apiVersion", &version, "API version"),
        ("kind", kind, "kind"),
    ] {
        let given = content.remove(field).unwrap_or_default();
        if !given.is_null() && given != "" && given != **expected {
            let given = given.as_str().unwrap_or_default();
            return Err(StatusError::bad_request(format!(
                "the {what} in the data ({given}) does not match the expected {what} ({expected})"
            )));
        }
    }
    check_metadata(&mut content)
        .map_err(|wrong| not_decodable(resource, &wrong_type(&wrong.field)))?;
    let namespace = meta_str(&content, "namespace");
    if !namespace.is_empty() && target.namespace.as_deref() != Some(namespace) {
        let what =
            "the namespace of the provided object does not match the namespace sent on the request";
        return Err(StatusError::bad_request(what));
    }
    Ok(content)
}

/// The error for an object with a field that is unknown or does not have its type.
pub(crate) fn not_decodable(resource: &ApiResource, why: &str) -> StatusError {
    let (kind, version) = (&resource.kind, &resource.version);
    StatusError::bad_request(format!(
        "{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"
    ))
}

pub(crate) fn wrong_type(field: &str) -> String {
    format!("the field {field} has the wrong type")
}

/// A field that does not have its type.
struct WrongType {
    field: String,
}

/// Checks the types within `metadata`.
fn check_metadata(content: &mut Content) -> Result<(), WrongType> {
    let metadata = content.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(fields) = metadata else {
        let field = "metadata".to_owned();
        return Err(WrongType { field });
    };
    // In a map of strings, null is an empty string.
    for field in ["labels", "annotations"] {
        let entries = fields.get_mut(field).and_then(Value::as_object_mut);
        for value in entries.into_iter().flat_map(Map::values_mut) {
            if value.is_null() {
                *value = "".into();
            }
        }
    }
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let (entries, items) = (value.as_object(), value.as_array());
        let is_valid = match name.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion"
            | "creationTimestamp" | "deletionTimestamp" => value.is_string(),
            "labels" | "annotations" => {
                entries.is_some_and(|entries| entries.values().all(Value::is_string))
            }
            "finalizers" => items.is_some_and(|items| items.iter().all(Value::is_string)),
            "ownerReferences" => items.is_some_and(|items| items.iter().all(Value::is_object)),
            "generation" => value.is_u64(),
            _ => true,
        };
        if !is_valid {
            let field = format!("metadata.{name}");
            return Err(WrongType { field });
        }
    }
    Ok(())
}

/// Returns what is wrong with the name of a new object.
pub(crate) fn name_causes(resource: &ApiResource, content: &Content) -> Vec<Cause> {
    let name = meta_str(content, "name");
    let is_valid: fn(&str) -> bool = match (&*resource.group, &*resource.plural) {
        _ if resource.custom => is_subdomain,
        ("", "namespaces" | "services") | ("apps", "statefulsets") => is_label,
        ("", "events") | ("policy", "poddisruptionbudgets") | ("rbac.authorization.k8s.io", _) => {
            is_path_segment
        }
        // The names of its Jobs have eleven more characters.
        ("batch", "cronjobs") => |name| name.len() <= 52 && is_subdomain(name),
        // The Pods have the name in a label.
        ("batch", "jobs") => |name| is_subdomain(name) && is_label_value(name),
        _ => is_subdomain,
    };
    if name.is_empty() {
        return vec![Cause::required("metadata.name")];
    }
    let is_invalid = !is_valid(name);
    let cause = is_invalid.then(|| invalid("metadata.name", name, "this kind does not allow it"));
    cause.into_iter().collect()
}

fn invalid(field: &'static str, value: &str, why: &str) -> Cause {
    Cause::invalid(field, format_args!("{value:?}: {why}"))
}

/// Returns what is wrong with the labels and the annotations.
pub(crate) fn label_causes(content: &Content) -> Vec<Cause> {
    let entries = |field| {
        let map = meta(content, field).and_then(Value::as_object);
        let texts = map.into_iter().flatten();
        texts.map(|(key, value)| (key, value.as_str().unwrap_or_default()))
    };
    let (labels, annotations) = ("metadata.labels", "metadata.annotations");
    let mut causes = Vec::new();
    for (key, value) in entries("labels") {
        causes.extend(key_cause(labels, key));
        if !is_label_value(value) {
            causes.push(invalid(labels, value, "not a valid label"));
        }
    }
    for (key, _) in entries("annotations") {
        causes.extend(key_cause(annotations, &key.to_lowercase()));
    }
    let sizes = entries("annotations").map(|(key, value)| key.len() + value.len());
    if sizes.sum::<usize>() > 256 << 10 {
        causes.push(invalid(
            annotations,
            "",
            "may not be more than 262144 bytes",
        ));
    }
    causes
}

/// Returns what is wrong with a key of labels or annotations, a finalizer, or the name of a
/// controller: a name of at most 63 bytes, after an optional domain and a slash.
pub(crate) fn key_cause(field: &'static str, key: &str) -> Option<Cause> {
    let (domain, name) = match key.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, key),
    };
    let is_valid = !name.is_empty() && is_label_value(name) && domain.is_none_or(is_subdomain);
    (!is_valid).then(|| invalid(field, key, "not a valid qualified name"))
}

/// Whether a name only has to fit into a path.
fn is_path_segment(name: &str) -> bool {
    !matches!(name, "." | "..") && !name.contains(['/', '%'])
}

/// Whether this is a label of RFC 1123, apart from its length.
fn is_part(label: &str) -> bool {
    let outer = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let bytes = label.as_bytes();
    bytes.iter().all(|b| outer(Some(b)) || *b == b'-')
        && outer(bytes.first())
        && outer(bytes.last())
}

fn is_label(name: &str) -> bool {
    name.len() <= 63 && is_part(name)
}

/// Kubernetes does not limit the length of the labels in a name.
fn is_subdomain(name: &str) -> bool {
    name.len() <= 253 && name.split('.').all(is_part)
}

fn is_label_value(value: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let outer = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = value.as_bytes();
    value.len() <= 63 && outer(bytes.first()) && outer(bytes.last()) && value.bytes().all(inner)
}

//! Validation of objects of any kind before they are stored: names, and the types within
//! `metadata`.

use serde_json::{Map, Value};

use super::garbage::owner_references;
use super::object::{Content, meta_str};
use super::resources::{ApiResource, Target, is_built_in};
use super::status::{Cause, StatusError};

/// Parses the body of a create or update.
pub(crate) fn parse_object(body: &[u8], resource: &ApiResource) -> Result<Value, StatusError> {
    serde_json::from_slice(body).map_err(|error| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse \
             error: {} ({})",
            resource.kind,
            go_error(&error),
            String::from_utf8_lossy(&body[..body.len().min(1024)])
        ))
    })
}

pub(crate) fn go_error(error: &serde_json::Error) -> String {
    if error.is_eof() {
        "unexpected end of JSON input".to_owned()
    } else {
        error.to_string()
    }
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
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
             error: json: cannot unmarshal into Go value of type struct {{ APIVersion string; Kind string }}"
        )));
    };
    let cannot = |kind: &str, version: &str, why: String| {
        let what = format!(
            "{kind} in version \"{version}\" cannot be handled as a {}: {why}",
            resource.kind
        );
        Err(StatusError::bad_request(what))
    };
    let text = |value: Option<Value>| match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text).filter(|text| !text.is_empty())),
        Some(_) => Err(StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
             error: json: cannot unmarshal into Go struct field of type string"
        ))),
    };
    let given_kind = text(content.remove("kind"))?.unwrap_or_else(|| kind.clone());
    let given_version = text(content.remove("apiVersion"))?.unwrap_or_else(|| version.clone());
    let is_known = resource.custom || given_kind == *kind && is_built_in(&given_version, kind);
    if given_version != version && is_known {
        return Err(StatusError::bad_request(format!(
            "the API version in the data ({given_version}) does not match the expected API version ({version})"
        )));
    }
    if given_kind != *kind {
        let why =
            format!("converting ({given_version}.{given_kind}) to ({kind}): unknown conversion");
        return cannot(&given_kind, &given_version, why);
    }
    if given_version != version {
        let why = format!("no kind \"{given_kind}\" is registered for version \"{given_version}\"");
        return cannot(&given_kind, &given_version, why);
    }
    if let Err((field, wanted, found)) = check_metadata(&mut content) {
        let why =
            format!("json: cannot unmarshal {found} into Go struct field {field} of type {wanted}");
        return cannot(kind, &resource.version, why);
    }
    let namespace = meta_str(&content, "namespace");
    let expected = target.namespace.as_deref().unwrap_or_default();
    if !namespace.is_empty() && namespace != expected {
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

/// Checks the types within `metadata`. An error has the field, its expected type and its actual
/// type.
fn check_metadata(content: &mut Content) -> Result<(), (String, &'static str, &'static str)> {
    let metadata = content.entry("metadata").or_insert(Value::Null);
    if metadata.is_null() {
        *metadata = Value::Object(Map::new());
    }
    let Value::Object(fields) = metadata else {
        return Err(("metadata".to_owned(), "v1.ObjectMeta", type_name(metadata)));
    };
    for (name, value) in fields.iter().filter(|(_, value)| !value.is_null()) {
        let (wanted, found) = match name.as_str() {
            "name" | "generateName" | "namespace" | "uid" | "resourceVersion"
            | "creationTimestamp" | "deletionTimestamp" => {
                ("string", Some(value).filter(|v| !v.is_string()))
            }
            "labels" | "annotations" => (
                "map[string]string",
                match value {
                    Value::Object(entries) => entries.values().find(|v| !v.is_string()),
                    other => Some(other),
                },
            ),
            "finalizers" => (
                "[]string",
                match value {
                    Value::Array(items) => items.iter().find(|v| !v.is_string()),
                    other => Some(other),
                },
            ),
            "ownerReferences" => match value {
                Value::Array(items) => ("v1.OwnerReference", items.iter().find(|v| !v.is_object())),
                other => ("[]v1.OwnerReference", Some(other)),
            },
            "generation" => ("int64", Some(value).filter(|v| v.as_u64().is_none())),
            _ => continue,
        };
        if let Some(found) = found {
            return Err((
                format!("ObjectMeta.metadata.{name}"),
                wanted,
                type_name(found),
            ));
        }
    }
    for (name, value) in
        owner_references(content).flat_map(|one| one.as_object().into_iter().flatten())
    {
        let (wanted, is_valid) = match name.as_str() {
            "apiVersion" | "kind" | "name" | "uid" => ("string", value.is_string()),
            "controller" | "blockOwnerDeletion" => ("bool", value.is_boolean()),
            _ => continue,
        };
        if !is_valid && !value.is_null() {
            let field = format!("OwnerReference.metadata.ownerReferences.{name}");
            return Err((field, wanted, type_name(value)));
        }
    }
    Ok(())
}

pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// Returns what is wrong with the name of a new object.
pub(crate) fn name_causes(resource: &ApiResource, name: &str) -> Vec<Cause> {
    if name.is_empty() || resource.group == "rbac.authorization.k8s.io" {
        return path_segment_causes(name);
    }
    let invalid = |rule| Cause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: \"{name}\": {rule}"),
        field: "metadata.name",
    };
    subdomain_errors(name).into_iter().map(invalid).collect()
}

/// Returns what is wrong with a name that only has to fit into a path.
pub(crate) fn path_segment_causes(name: &str) -> Vec<Cause> {
    let (reason, message) = match name {
        "" => (
            "FieldValueRequired",
            "Required value: name or generateName is required".to_owned(),
        ),
        "." | ".." => (
            "FieldValueInvalid",
            format!("Invalid value: \"{name}\": may not be '{name}'"),
        ),
        _ => {
            let found = ['/', '%'].into_iter().filter(|&c| name.contains(c));
            return found
                .map(|c| Cause {
                    reason: "FieldValueInvalid",
                    message: format!("Invalid value: \"{name}\": may not contain '{c}'"),
                    field: "metadata.name",
                })
                .collect();
        }
    };
    vec![Cause {
        reason,
        message,
        field: "metadata.name",
    }]
}

/// Returns the errors of Go's `IsDNS1123Subdomain`.
pub(crate) fn subdomain_errors(name: &str) -> Vec<&'static str> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push("must be no more than 253 bytes");
    }
    let end = |b: Option<&u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    let inner = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit() || *b == b'-';
    let is_label =
        |label: &[u8]| label.iter().all(inner) && end(label.first()) && end(label.last());
    if !name.as_bytes().split(|&b| b == b'.').all(is_label) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
             start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
             '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
        );
    }
    errors
}

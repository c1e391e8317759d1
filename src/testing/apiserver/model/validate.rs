//! Validation of objects of any kind before they are stored: names, and the types within
//! `metadata`.

use serde_json::{Map, Value};

use super::garbage::owner_references;
use super::object::{Content, meta, meta_str};
use super::resources::{ApiResource, Target, is_built_in};
use super::status::{Cause, StatusError};

/// Parses the body of a create or update.
pub(crate) fn parse_object(body: &[u8], resource: &ApiResource) -> Result<Value, StatusError> {
    decode_json(body).map_err(|error| {
        StatusError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): couldn't get version/kind; json parse \
             error: {} ({})",
            resource.kind,
            go_error(&error),
            String::from_utf8_lossy(&body[..body.len().min(1024)])
        ))
    })
}

/// Decodes JSON. Like Go, it reads invalid UTF-8 and halves of surrogate pairs as U+FFFD.
pub(crate) fn decode_json(body: &[u8]) -> Result<Value, serde_json::Error> {
    serde_json::from_slice(body).or_else(|error| {
        let text = String::from_utf8_lossy(body);
        let (mut rest, mut valid) = (&*text, String::with_capacity(text.len()));
        while let Some(at) = rest.find('\\') {
            let unit = |at: usize| {
                let digits = rest.get(at..)?.strip_prefix("\\u")?.get(..4)?;
                u16::from_str_radix(digits, 16).ok()
            };
            let end = match (unit(at), unit(at + 6)) {
                (Some(0xd800..0xdc00), Some(0xdc00..0xe000)) => at + 12,
                (Some(0xd800..0xe000), _) => {
                    valid.push_str(&rest[..at]);
                    valid.push(char::REPLACEMENT_CHARACTER);
                    rest = &rest[at + 6..];
                    continue;
                }
                // An escaped character can have several bytes.
                _ => at + 1 + rest[at + 1..].chars().next().map_or(0, char::len_utf8),
            };
            valid.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        serde_json::from_str(&(valid + rest)).map_err(|_| error)
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
    // In Go, null is the zero value of a string.
    for field in ["labels", "annotations"] {
        let entries = fields.get_mut(field).and_then(Value::as_object_mut);
        for value in entries.into_iter().flat_map(Map::values_mut) {
            if value.is_null() {
                *value = "".into();
            }
        }
    }
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

/// Returns what is wrong with the name of a new object, and with the prefix of a generated name.
pub(crate) fn name_causes(resource: &ApiResource, content: &Content) -> Vec<Cause> {
    let errors: fn(&str) -> Vec<String> = match (&*resource.group, &*resource.plural) {
        _ if resource.custom => subdomain_errors,
        ("", "namespaces" | "services") | ("apps", "statefulsets") => label_errors,
        ("", "events") | ("policy", "poddisruptionbudgets") | ("rbac.authorization.k8s.io", _) => {
            path_segment_errors
        }
        _ => subdomain_errors,
    };
    let (name, prefix) = (meta_str(content, "name"), meta_str(content, "generateName"));
    if name.is_empty() {
        return vec![Cause {
            reason: "FieldValueRequired",
            message: "Required value: name or generateName is required".to_owned(),
            field: "metadata.name",
        }];
    }
    // As in Go, a dash at the end is valid, whatever precedes it.
    let mut masked = prefix.to_owned();
    if masked.len() > 1 && masked.ends_with('-') {
        masked.pop();
        masked.pop();
        masked.push('a');
    }
    let mut causes = Vec::new();
    if !prefix.is_empty() {
        let errors = errors(&masked).into_iter();
        causes.extend(errors.map(|why| invalid("metadata.generateName", prefix, &why)));
    }
    let mut errors = errors(name);
    // The names of its Jobs have eleven more characters.
    if resource.plural == "cronjobs" && !resource.custom && name.len() > 52 {
        errors.push("must be no more than 52 characters".to_owned());
    }
    let errors = errors.into_iter();
    causes.extend(errors.map(|why| invalid("metadata.name", name, &why)));
    if resource.plural == "jobs" && !resource.custom {
        // The Pods have the name in two labels.
        for why in label_value_errors(name).repeat(2) {
            causes.push(invalid("spec.template.labels", name, why));
        }
    }
    causes
}

fn invalid(field: &'static str, value: &str, why: &str) -> Cause {
    Cause {
        reason: "FieldValueInvalid",
        message: format!("Invalid value: \"{value}\": {why}"),
        field,
    }
}

/// Returns what is wrong with the labels and the annotations.
pub(crate) fn label_causes(content: &Content) -> Vec<Cause> {
    let map = |field| meta(content, field).and_then(Value::as_object);
    let entries = |field| map(field).into_iter().flatten();
    let mut causes = Vec::new();
    for (key, value) in entries("labels") {
        let value = value.as_str().unwrap_or_default();
        let errors = label_key_errors(key).into_iter();
        causes.extend(errors.map(|why| invalid("metadata.labels", key, &why)));
        let errors = label_value_errors(value).into_iter();
        causes.extend(errors.map(|why| invalid("metadata.labels", value, why)));
    }
    for (key, _) in entries("annotations") {
        let errors = label_key_errors(&key.to_lowercase()).into_iter();
        causes.extend(errors.map(|why| invalid("metadata.annotations", key, &why)));
    }
    let size = |(key, value): (&String, &Value)| key.len() + value.as_str().map_or(0, str::len);
    if entries("annotations").map(size).sum::<usize>() > 256 << 10 {
        causes.push(Cause {
            reason: "FieldValueTooLong",
            message: "Too long: may not be more than 262144 bytes".to_owned(),
            field: "metadata.annotations",
        });
    }
    causes
}

/// Returns what is wrong with a name that only has to fit into a path.
fn path_segment_errors(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let found = ['/', '%'].into_iter().filter(|&c| name.contains(c));
    found.map(|c| format!("may not contain '{c}'")).collect()
}

fn is_dns_label(label: &[u8]) -> bool {
    let outer = |b: &u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    label.iter().all(|b| outer(b) || *b == b'-')
        && label.first().is_some_and(outer)
        && label.last().is_some_and(outer)
}

/// Returns the errors of Go's `IsDNS1123Label`.
fn label_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 63 {
        errors.push("must be no more than 63 characters".to_owned());
    }
    if !is_dns_label(name.as_bytes()) {
        errors.push(match is_subdomain(name) {
            true => "must not contain dots".to_owned(),
            false => "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must \
                start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for \
                validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
                .to_owned(),
        });
    }
    errors
}

fn is_subdomain(name: &str) -> bool {
    name.as_bytes().split(|&b| b == b'.').all(is_dns_label)
}

/// Returns the errors of Go's `IsDNS1123Subdomain`.
fn subdomain_errors(name: &str) -> Vec<String> {
    let mut errors = Vec::new();
    if name.len() > 253 {
        errors.push("must be no more than 253 characters".to_owned());
    }
    if !is_subdomain(name) {
        errors.push(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must \
            start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is \
            '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
                .to_owned(),
        );
    }
    errors
}

/// Returns the errors of Go's `IsLabelKey`, also called `IsQualifiedName`.
pub(crate) fn label_key_errors(key: &str) -> Vec<String> {
    let rule = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut errors = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                errors.push("prefix part must be non-empty".to_owned());
            } else {
                let why = subdomain_errors(prefix).into_iter();
                errors.extend(why.map(|why| {
                    format!("prefix part {why}").replace("253 characters", "253 bytes")
                }));
            }
            name
        }
        _ => {
            return vec![format!(
                "a valid label key {rule} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
            )];
        }
    };
    if name.is_empty() {
        errors.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        errors.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_name(name) {
        errors.push(format!("name part {rule}"));
    }
    errors
}

/// Returns the errors of Go's `IsValidLabelValue`.
fn label_value_errors(value: &str) -> Vec<&'static str> {
    let mut errors = Vec::new();
    if value.len() > 63 {
        errors.push("must be no more than 63 bytes");
    }
    if !value.is_empty() && !is_name(value) {
        errors.push(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
            start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for \
            validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        );
    }
    errors
}

fn is_name(name: &str) -> bool {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let outer = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    outer(bytes.first()) && outer(bytes.last()) && name.bytes().all(inner)
}

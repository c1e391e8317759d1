//! Options of writes: dry runs, and the handling of unknown fields.

use serde_json::Value;

use super::http::{Head, Response};
use super::resources::ApiResource;
use super::schema::Schema;
use super::status::{Cause, StatusError};
use super::validate::not_decodable;

/// Whether the request is a dry run, which does everything except storing the result.
pub(crate) fn is_dry_run(head: &Head, options: &'static str) -> Result<bool, StatusError> {
    check_dry_run(
        head.query
            .iter()
            .filter(|(key, _)| key == "dryRun")
            .map(|(_, value)| &**value),
        options,
    )
}

/// Whether a deletion is a dry run. If the request has a body, the query is ignored.
pub(crate) fn is_dry_deletion(head: &Head, body: &[u8]) -> Result<bool, StatusError> {
    // Ignore invalid JSON here: `DeleteOptions::parse` reports it.
    let options: Value = serde_json::from_slice(body).unwrap_or_default();
    if options.is_null() {
        return is_dry_run(head, "DeleteOptions");
    }
    let all = options["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap_or_default());
    check_dry_run(all, "DeleteOptions")
}

fn check_dry_run<'a>(
    all: impl Iterator<Item = &'a str>,
    options: &'static str,
) -> Result<bool, StatusError> {
    let mut dry = false;
    for one in all.filter(|one| !one.is_empty()) {
        if one != "All" {
            return Err(unsupported(
                options,
                "dryRun",
                &format!("[\"{one}\"]"),
                "\"All\"",
            ));
        }
        dry = true;
    }
    Ok(dry)
}

fn unsupported(options: &str, field: &'static str, value: &str, supported: &str) -> StatusError {
    let message = format!("Unsupported value: {value}: supported values: {supported}");
    let cause = Cause {
        reason: "FieldValueNotSupported",
        message,
        field,
    };
    StatusError::invalid("", "meta.k8s.io", options, &[cause])
}

/// The handling of unknown fields.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// The `Warning` headers of a response.
pub(crate) struct Warnings(Vec<String>);

impl Validation {
    pub(crate) fn parse(head: &Head, options: &'static str) -> Result<Self, StatusError> {
        match head.param("fieldValidation").unwrap_or_default() {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => {
                let supported = "\"\", \"Ignore\", \"Strict\", \"Warn\"";
                Err(unsupported(
                    options,
                    "fieldValidation",
                    &format!("\"{other}\""),
                    supported,
                ))
            }
        }
    }

    /// Removes unknown fields from an object that is created or replaces another one.
    pub(crate) fn of_object(
        self,
        resource: &ApiResource,
        object: &mut Value,
    ) -> Result<Warnings, StatusError> {
        let unknown = take_unknown(resource, object, false);
        self.judge(&unknown, |why| not_decodable(resource, &why))
    }

    /// Removes unknown fields from a merge patch, which has directives if it is strategic.
    pub(crate) fn of_patch(
        self,
        resource: &ApiResource,
        patch: &mut Value,
        is_strategic: bool,
    ) -> Result<Warnings, StatusError> {
        let shown = patch.clone();
        let unknown = take_unknown(resource, patch, is_strategic);
        self.judge(&unknown, |why| StatusError::invalid_patch(&shown, &why))
    }

    fn judge(
        self,
        unknown: &[String],
        refused: impl FnOnce(String) -> StatusError,
    ) -> Result<Warnings, StatusError> {
        let messages: Vec<String> = unknown
            .iter()
            .map(|field| format!("unknown field \"{field}\""))
            .collect();
        match self {
            Self::Strict if !messages.is_empty() => Err(refused(format!(
                "strict decoding error: {}",
                messages.join(", ")
            ))),
            Self::Ignore => Ok(Warnings(Vec::new())),
            _ => Ok(Warnings(messages)),
        }
    }
}

impl Warnings {
    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn add_to(self, response: &mut Response) {
        for warning in self.0 {
            let escaped = warning.replace('\\', "\\\\").replace('"', "\\\"");
            response
                .headers
                .push(("Warning".to_owned(), format!("299 - \"{escaped}\"")));
        }
    }
}

const METADATA: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Returns the fields of a built-in kind without a schema, besides apiVersion, kind and metadata.
/// The server does not check their nested fields, or the fields of custom resources.
fn fields(resource: &ApiResource) -> &'static [&'static str] {
    match resource.plural.as_str() {
        "configmaps" => &["binaryData", "data", "immutable"],
        "secrets" => &["data", "immutable", "stringData", "type"],
        "serviceaccounts" => &[
            "automountServiceAccountToken",
            "imagePullSecrets",
            "secrets",
        ],
        "endpoints" => &["subsets"],
        "controllerrevisions" => &["data", "revision"],
        "endpointslices" => &["addressType", "endpoints", "ports"],
        "storageclasses" => &[
            "allowVolumeExpansion",
            "allowedTopologies",
            "mountOptions",
            "parameters",
            "provisioner",
            "reclaimPolicy",
            "volumeBindingMode",
        ],
        "roles" => &["rules"],
        "clusterroles" => &["aggregationRule", "rules"],
        "rolebindings" | "clusterrolebindings" => &["roleRef", "subjects"],
        "limitranges" | "networkpolicies" => &["spec"],
        _ => &["spec", "status"],
    }
}

/// Removes unknown fields and returns their paths. A null field is removed without being returned.
fn take_unknown(resource: &ApiResource, object: &mut Value, is_strategic: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    let Value::Object(content) = object else {
        return unknown;
    };
    if resource.custom {
        return unknown;
    }
    let (schema, fields) = (Schema::of(resource), fields(resource));
    let has_field = |field: &str| match schema {
        Some(schema) => schema.has(field),
        None => fields.contains(&field),
    };
    content.retain(|field, value| {
        let is_known =
            matches!(field.as_str(), "apiVersion" | "kind" | "metadata") || has_field(field);
        if !is_known && !value.is_null() {
            unknown.push(field.clone());
        }
        is_known
    });
    if let Some(Value::Object(metadata)) = content.get_mut("metadata") {
        metadata.retain(|field, value| {
            let is_known = METADATA.contains(&&**field) || is_strategic && field.starts_with('$');
            if !is_known && !value.is_null() {
                unknown.push(format!("metadata.{field}"));
            }
            is_known
        });
    }
    if let Some(schema) = schema {
        schema.take_unknown(content, &mut unknown);
    }
    unknown
}

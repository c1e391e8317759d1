//! Options of writes: dry runs, and the handling of unknown fields.

use serde_json::{Map, Value};

use super::http::{Head, Response};
use super::resources::ApiResource;
use super::status::{Cause, StatusError};
use super::validate::not_decodable;

/// Whether the request is a dry run, which does everything except storing the result.
pub(crate) fn is_dry_run(head: &Head) -> Result<bool, StatusError> {
    check_dry_run(
        head.query
            .iter()
            .filter(|(key, _)| key == "dryRun")
            .map(|(_, value)| &**value),
    )
}

/// Whether a deletion is a dry run. If the request has a body, the query is ignored.
pub(crate) fn is_dry_deletion(head: &Head, body: &[u8]) -> Result<bool, StatusError> {
    // Ignore invalid JSON here: `DeleteOptions::parse` reports it.
    let options: Value = serde_json::from_slice(body).unwrap_or_default();
    if options.is_null() {
        return is_dry_run(head);
    }
    let all = options["dryRun"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| one.as_str().unwrap_or_default());
    check_dry_run(all)
}

fn check_dry_run<'a>(all: impl Iterator<Item = &'a str>) -> Result<bool, StatusError> {
    let mut dry = false;
    for one in all.filter(|one| !one.is_empty()) {
        if one != "All" {
            let cause = Cause::not_supported("dryRun", one);
            return Err(StatusError::invalid_options(&[cause]));
        }
        dry = true;
    }
    Ok(dry)
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
    pub(crate) fn parse(head: &Head) -> Result<Self, StatusError> {
        match head.param("fieldValidation").unwrap_or_default() {
            "" | "Warn" => Ok(Self::Warn),
            "Ignore" => Ok(Self::Ignore),
            "Strict" => Ok(Self::Strict),
            other => {
                let cause = Cause::not_supported("fieldValidation", other);
                Err(StatusError::invalid_options(&[cause]))
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
        let unknown = take_unknown(resource, patch, is_strategic);
        let invalid = |why| StatusError::invalid("", "", "", &[Cause::invalid("patch", why)]);
        self.judge(&unknown, invalid)
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

/// The fields of built-in kinds, besides apiVersion, kind and metadata. One list for all kinds is
/// enough to find misspelt names. The server does not check nested fields, or the fields of custom
/// resources.
const FIELDS: &[&str] = &[
    "action",
    "addressType",
    "aggregationRule",
    "allowVolumeExpansion",
    "allowedTopologies",
    "automountServiceAccountToken",
    "binaryData",
    "count",
    "data",
    "deprecatedCount",
    "deprecatedFirstTimestamp",
    "deprecatedLastTimestamp",
    "deprecatedSource",
    "endpoints",
    "eventTime",
    "firstTimestamp",
    "imagePullSecrets",
    "immutable",
    "involvedObject",
    "lastTimestamp",
    "message",
    "mountOptions",
    "note",
    "parameters",
    "ports",
    "provisioner",
    "reason",
    "reclaimPolicy",
    "regarding",
    "related",
    "reportingComponent",
    "reportingController",
    "reportingInstance",
    "revision",
    "roleRef",
    "rules",
    "secrets",
    "series",
    "source",
    "spec",
    "status",
    "stringData",
    "subjects",
    "subsets",
    "type",
    "volumeBindingMode",
];

/// Removes unknown fields and returns their paths. A null field is removed without being returned.
fn take_unknown(resource: &ApiResource, object: &mut Value, is_strategic: bool) -> Vec<String> {
    let mut unknown = Vec::new();
    let Value::Object(content) = object else {
        return unknown;
    };
    if resource.custom {
        return unknown;
    }
    let mut retain = |fields: &mut Map<String, Value>, prefix: &str, known: &[&str]| {
        fields.retain(|field, value| {
            let is_known = known.contains(&&**field) || is_strategic && field.starts_with('$');
            if !is_known && !value.is_null() {
                unknown.push(format!("{prefix}{field}"));
            }
            is_known
        });
    };
    retain(
        content,
        "",
        &[FIELDS, &["apiVersion", "kind", "metadata"]].concat(),
    );
    if let Some(Value::Object(metadata)) = content.get_mut("metadata") {
        retain(metadata, "metadata.", METADATA);
    }
    unknown
}

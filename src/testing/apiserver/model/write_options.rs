//! What goes with a write: dry runs, and what is done about fields that nobody knows.

use serde_json::Value;

use super::http::{Head, Response};
use super::resources::ApiResource;
use super::status::{Cause, StatusError};

/// Whether all is to be done but the storing.
pub(crate) fn is_dry_run(head: &Head, options: &'static str) -> Result<bool, StatusError> {
    check_dry_run(
        head.query
            .iter()
            .filter(|(key, _)| key == "dryRun")
            .map(|(_, value)| &**value),
        options,
    )
}

/// The same of a deletion: if it has a body, that is all that counts.
pub(crate) fn is_dry_deletion(head: &Head, body: &[u8]) -> Result<bool, StatusError> {
    // What is no JSON is told elsewhere.
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

/// What is done about fields that a kind has not.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Validation {
    Ignore,
    Warn,
    Strict,
}

/// The `Warning` headers of an answer.
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

    /// Takes what is unknown off an object that is created or put in the place of another.
    pub(crate) fn of_object(
        self,
        resource: &ApiResource,
        object: &mut Value,
    ) -> Result<Warnings, StatusError> {
        self.of(resource, object, |why| {
            let (kind, version) = (&resource.kind, resource.api_version());
            let what =
                format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}");
            StatusError::bad_request(what)
        })
    }

    /// The same of a merge patch.
    pub(crate) fn of_patch(
        self,
        resource: &ApiResource,
        patch: &mut Value,
    ) -> Result<Warnings, StatusError> {
        let shown = patch.to_string();
        self.of(resource, patch, |why| {
            let message = format!("Invalid value: \"{}\": {why}", shown.escape_default());
            StatusError::invalid(
                "",
                "",
                "",
                &[Cause {
                    reason: "FieldValueInvalid",
                    message,
                    field: "patch",
                }],
            )
        })
    }

    fn of(
        self,
        resource: &ApiResource,
        object: &mut Value,
        refused: impl FnOnce(String) -> StatusError,
    ) -> Result<Warnings, StatusError> {
        let unknown = take_unknown(resource, object);
        let told: Vec<String> = unknown
            .iter()
            .map(|field| format!("unknown field \"{field}\""))
            .collect();
        match self {
            Self::Strict if !told.is_empty() => Err(refused(format!(
                "strict decoding error: {}",
                told.join(", ")
            ))),
            Self::Ignore => Ok(Warnings(Vec::new())),
            _ => Ok(Warnings(told)),
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

/// The fields of a built-in kind beside apiVersion, kind and metadata. What is below them, and custom
/// resources, the server knows nothing of.
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
        "events" => &[
            "action",
            "count",
            "eventTime",
            "firstTimestamp",
            "involvedObject",
            "lastTimestamp",
            "message",
            "reason",
            "related",
            "reportingComponent",
            "reportingInstance",
            "series",
            "source",
            "type",
        ],
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
        "leases" | "limitranges" | "networkpolicies" => &["spec"],
        _ => &["spec", "status"],
    }
}

/// Takes off what the kind has not, and tells their paths. A null is none: it takes away.
fn take_unknown(resource: &ApiResource, object: &mut Value) -> Vec<String> {
    let mut unknown = Vec::new();
    let Value::Object(content) = object else {
        return unknown;
    };
    if resource.custom {
        return unknown;
    }
    let known = fields(resource);
    content.retain(|field, value| {
        let is_known = matches!(field.as_str(), "apiVersion" | "kind" | "metadata")
            || known.contains(&&**field);
        if !is_known && !value.is_null() {
            unknown.push(field.clone());
        }
        is_known
    });
    if let Some(Value::Object(metadata)) = content.get_mut("metadata") {
        metadata.retain(|field, value| {
            let is_known = METADATA.contains(&&**field);
            if !is_known && !value.is_null() {
                unknown.push(format!("metadata.{field}"));
            }
            is_known
        });
    }
    unknown
}

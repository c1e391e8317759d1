//! The rules for finalizers, which hold for every kind.

use super::object::{Content, meta};
use super::resources::ApiResource;
use super::status::Cause;
use super::validate::label_key_errors;

/// The finalizers without a domain that every kind accepts.
const STANDARD: &[&str] = &["foregroundDeletion", "kubernetes", "orphan"];
/// The built-in groups that accept any finalizer without a domain, like custom resources.
const LENIENT: &[&str] = &[
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "coordination.k8s.io",
];

/// Returns what is wrong with the finalizers of a new object, or of the new state of `old`.
pub(super) fn finalizer_causes(
    resource: &ApiResource,
    new: &Content,
    old: Option<&Content>,
) -> Vec<Cause> {
    let cause = |reason, message| Cause {
        reason,
        message,
        field: "metadata.finalizers",
    };
    let invalid = |name: &str, why: &str| {
        cause(
            "FieldValueInvalid",
            format!("Invalid value: {name:?}: {why}"),
        )
    };
    let mut causes = Vec::new();
    let finalizers = names(new);
    if let Some(old) = old.filter(|old| meta(old, "deletionTimestamp").is_some()) {
        let before = names(old);
        let mut added = finalizers.clone();
        added.retain(|name| !before.contains(name));
        added.sort_unstable();
        added.dedup();
        if !added.is_empty() {
            let added: Vec<String> = added.iter().map(|name| format!("{name:?}")).collect();
            let message = format!(
                "Forbidden: no new finalizers can be added if the object is being deleted, \
                 found new finalizers []string{{{}}}",
                added.join(", ")
            );
            causes.push(cause("FieldValueForbidden", message));
        }
    }
    for name in &finalizers {
        let errors = label_key_errors(name).into_iter();
        causes.extend(errors.map(|why| invalid(name, &why)));
    }
    if !resource.custom && !LENIENT.contains(&&*resource.group) {
        let unqualified = finalizers
            .iter()
            .filter(|name| !name.contains('/') && !STANDARD.contains(name));
        causes.extend(unqualified.map(|name| {
            invalid(
                name,
                "name is neither a standard finalizer name nor is it fully qualified",
            )
        }));
    }
    causes
}

fn names(content: &Content) -> Vec<&str> {
    let finalizers = meta(content, "finalizers").and_then(|list| list.as_array());
    let names = finalizers.into_iter().flatten();
    names.filter_map(|name| name.as_str()).collect()
}

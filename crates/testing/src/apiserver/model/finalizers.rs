//! The rules for finalizers, which hold for every kind.

use super::object::{Content, meta};
use super::resources::ApiResource;
use super::status::Cause;
use super::validate::key_cause;

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
    const FIELD: &str = "metadata.finalizers";
    let mut causes = Vec::new();
    let finalizers = names(new);
    if let Some(old) = old.filter(|old| meta(old, "deletionTimestamp").is_some()) {
        let before = names(old);
        if finalizers.iter().any(|name| !before.contains(name)) {
            let why = "no new finalizers can be added if the object is being deleted";
            causes.push(Cause::forbidden(FIELD, why));
        }
    }
    let is_lenient = resource.custom || LENIENT.contains(&&*resource.group);
    for name in finalizers {
        causes.extend(key_cause(FIELD, name));
        if !is_lenient && !name.contains('/') && !STANDARD.contains(&name) {
            let why = format_args!(
                "{name:?}: name is neither a standard finalizer name nor is it fully qualified"
            );
            causes.push(Cause::invalid(FIELD, why));
        }
    }
    causes
}

fn names(content: &Content) -> Vec<&str> {
    let finalizers = meta(content, "finalizers").and_then(|list| list.as_array());
    let names = finalizers.into_iter().flatten();
    names.filter_map(|name| name.as_str()).collect()
}

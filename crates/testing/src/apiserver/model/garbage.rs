//! Owner references, and the finalizers of the garbage collector.

use serde_json::Value;

use super::definitions;
use super::delete_options::Propagation;
use super::object::{Content, finalizers, meta};
use super::object_rules::is_namespace;
use super::resources::ApiResource;
use super::status::Cause;

/// Requests that the dependents lose their owner.
pub(crate) const ORPHAN: &str = "orphan";

/// Requests that the dependents are deleted before their owner.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";

/// The resources whose dependents are orphaned by default, for compatibility with old clients.
const ORPHANED: &[(&str, &str)] = &[("", "replicationcontrollers"), ("batch", "jobs")];

pub(crate) fn owner_references(content: &Content) -> impl Iterator<Item = &Value> {
    let references = meta(content, "ownerReferences").and_then(Value::as_array);
    references.into_iter().flatten()
}

pub(crate) fn uid_of(reference: &Value) -> &str {
    reference["uid"].as_str().unwrap_or_default()
}

/// Returns what is wrong with the owner references.
pub(crate) fn owner_causes(content: &Content) -> Vec<Cause> {
    const FIELD: &str = "metadata.ownerReferences";
    let mut causes = Vec::new();
    for reference in owner_references(content) {
        let text = |field: &str| reference[field].as_str().unwrap_or_default();
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(field).is_empty() {
                let why = format_args!("{field} must not be empty");
                causes.push(Cause::invalid(FIELD, why));
            }
        }
        if (text("apiVersion"), text("kind")) == ("v1", "Event") {
            causes.push(Cause::invalid(FIELD, "an Event must not be an owner"));
        }
    }
    let controllers = owner_references(content).filter(|one| one["controller"] == true);
    if controllers.count() > 1 {
        let why = "Only one reference can have Controller set to true";
        causes.push(Cause::invalid(FIELD, why));
    }
    causes
}

/// Whether the object is being deleted with this policy.
pub(crate) fn is_deleted_with(finalizer: &str, content: &Content) -> bool {
    meta(content, "deletionTimestamp").is_some()
        && finalizers(content).iter().any(|one| one == finalizer)
}

/// Whether the collector ignores a resource, and its finalizers are never set.
pub(crate) fn is_ignored(resource: &ApiResource) -> bool {
    !resource.custom && resource.plural == "events"
}

/// Returns the finalizers of an object after a deletion. Those of the collector express the policy:
/// the one of the request, of the finalizers that the object has, or of its resource.
pub(crate) fn finalizers_for_deletion(
    resource: &ApiResource,
    content: &Content,
    propagation: Option<Propagation>,
) -> Vec<String> {
    let old = finalizers(content);
    let is_deleted = meta(content, "deletionTimestamp").is_some();
    if is_ignored(resource)
        || definitions::is_definition(resource) && !is_deleted
        || is_namespace(resource) && is_deleted
    {
        return old;
    }
    let has = |finalizer: &str| old.iter().any(|one| one == finalizer);
    let by_default = (&*resource.group, &*resource.plural);
    let wanted = match propagation {
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Background) => None,
        None if has(ORPHAN) => Some(ORPHAN),
        None if has(FOREGROUND) => Some(FOREGROUND),
        None if !resource.custom && ORPHANED.contains(&by_default) => Some(ORPHAN),
        None => None,
    };
    let mut new = old.clone();
    new.retain(|one| Some(&**one) == wanted || one != ORPHAN && one != FOREGROUND);
    if let Some(wanted) = wanted.filter(|wanted| !has(wanted)) {
        new.push(wanted.to_owned());
    }
    new
}

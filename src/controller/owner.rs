use serde_json::Value;
use crate::error::Error;
use crate::object::{FullObjectMeta, Key, OwnerReference, namespaced_key};
pub(super) fn controller_key(metadata: &FullObjectMeta, group: &str, kind: &str, owner_is_namespaced: bool) -> Option<Key> {
    let owner = metadata.controller()?;
    let of = crate::object::GroupVersionKind::of(&owner.api_version, "").group;
    (of == group && owner.kind == kind).then(|| namespaced_key(if owner_is_namespaced { &metadata.namespace } else { "" }, &owner.name))
}
pub(super) fn owned(mut child: Value, owner: &OwnerReference, _namespace: &str) -> Result<Value, Error> {
    let mut owner = owner.clone();
    owner.controller = true;
    owner.block_owner_deletion = true;
    child["metadata"]["ownerReferences"] = serde_json::json!([owner]);
    Ok(child)
}

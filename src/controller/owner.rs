//! Controller references: finding the owner of a child, and adding an owner to it.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::error::debug_as_display;
use crate::object::{FullObjectMeta, GroupVersionKind, Key, OwnerReference, namespaced_key};
use crate::text::EscapedName;

/// Returns the key of the owner that manages the object, if the owner has this group and kind.
///
/// The version is not compared, because the references of existing objects keep the version in
/// which they were written. A namespaced owner of a cluster-scoped object does not exist: the
/// garbage collector treats it as absent.
pub(crate) fn controller_key(
    metadata: &FullObjectMeta,
    group: &str,
    kind: &str,
    owner_is_namespaced: bool,
) -> Option<Key> {
    let owner = metadata.controller()?;
    let owner_kind = GroupVersionKind::of(&owner.api_version, owner.kind.as_str());
    let is_absent = owner.name.is_empty() || owner_is_namespaced && metadata.namespace.is_empty();
    if owner_kind.group != group || owner_kind.kind != kind || is_absent {
        return None;
    }
    let namespace = match owner_is_namespaced {
        true => metadata.namespace.as_str(),
        false => "",
    };
    Some(namespaced_key(namespace, &owner.name))
}

/// Adds a controller reference to `child`, which is a JSON object, and returns it.
///
/// `owner` needs an `apiVersion`, a kind, a name and a UID. `owner_namespace` is empty for a
/// cluster-scoped owner. A child without a namespace gets the one of its owner, so that the server
/// rejects a create in another namespace: the garbage collector would delete the child there. The
/// caller rejects a cluster-scoped child of a namespaced owner, because the JSON does not show the
/// scope, and the server ignores the namespace.
///
/// It corresponds to controller-runtime's `SetControllerReference`.
///
/// # Errors
///
/// Returns an error if another object controls the child, the child is in another namespace than
/// its namespaced owner, the owner is incomplete, or the child is not a Kubernetes object.
pub(crate) fn owned(
    mut child: Value,
    owner: &OwnerReference,
    owner_namespace: &str,
) -> Result<Value, OwnerError> {
    for (field, value) in [
        ("apiVersion", &owner.api_version),
        ("kind", &owner.kind),
        ("name", &owner.name),
        ("uid", &owner.uid),
    ] {
        if value.is_empty() {
            return Err(OwnerError(format!(
                "the owner has no {field}: use an object that was read from the server"
            )));
        }
    }
    let Value::Object(fields) = &mut child else {
        return Err(OwnerError::wrong_type("the child", "an object"));
    };
    let metadata = or_insert(fields, "metadata", Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else {
        return Err(OwnerError::wrong_type("metadata of the child", "an object"));
    };
    if !owner_namespace.is_empty() {
        match or_insert(metadata, "namespace", owner_namespace.into()) {
            Value::String(namespace) if namespace == owner_namespace => {}
            Value::String(namespace) if namespace.is_empty() => {
                owner_namespace.clone_into(namespace);
            }
            Value::String(namespace) => {
                return Err(OwnerError(format!(
                    "the child is in namespace \"{}\" but its owner, {}, is in namespace \"{}\": \
                     create the child in the namespace of its owner, or use a cluster-scoped owner",
                    EscapedName(namespace),
                    Named(owner),
                    EscapedName(owner_namespace),
                )));
            }
            _ => {
                let field = "metadata.namespace of the child";
                return Err(OwnerError::wrong_type(field, "a string"));
            }
        }
    }
    let references = or_insert(metadata, "ownerReferences", Value::Array(Vec::new()));
    let Value::Array(references) = references else {
        let field = "metadata.ownerReferences of the child";
        return Err(OwnerError::wrong_type(field, "an array"));
    };
    let mut existing = None;
    for (index, reference) in references.iter().enumerate() {
        let decoded: OwnerReference = match reference {
            Value::Object(_) => OwnerReference::deserialize(reference).ok(),
            _ => None,
        }
        .ok_or_else(|| {
            let field = format!("metadata.ownerReferences[{index}] of the child");
            OwnerError::wrong_type(&field, "an owner reference")
        })?;
        if decoded.uid == owner.uid {
            // The list may contain the owner twice.
            if !matches!(existing, Some((_, true))) {
                existing = Some((index, decoded.controller));
            }
        } else if decoded.controller {
            return Err(OwnerError(format!(
                "{} can't control the child, because {} does: an object has at most one \
                 controller; give the child another name, or remove the other reference",
                Named(owner),
                Named(&decoded),
            )));
        }
    }
    match existing {
        Some((_, true)) => {}
        Some((index, false)) => {
            references[index]["controller"] = true.into();
            references[index]["blockOwnerDeletion"] = true.into();
        }
        None => references.push(json!({
            "apiVersion": owner.api_version,
            "kind": owner.kind,
            "name": owner.name,
            "uid": owner.uid,
            "controller": true,
            "blockOwnerDeletion": true,
        })),
    }
    Ok(child)
}

/// Returns the field, which becomes `default` if it is absent or `null`.
fn or_insert<'a>(fields: &'a mut Map<String, Value>, field: &str, default: Value) -> &'a mut Value {
    let value = fields.entry(field).or_insert(Value::Null);
    if value.is_null() {
        *value = default;
    }
    value
}

/// Writes an owner for messages: `Team "a" (uid "…")`.
struct Named<'a>(&'a OwnerReference);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OwnerReference {
            kind, name, uid, ..
        } = self.0;
        let [kind, name, uid] = [kind, name, uid].map(|text| EscapedName(text));
        write!(f, "{kind} \"{name}\" (uid \"{uid}\")")
    }
}

/// The reason why an owner was not added to an object.
///
/// The message has a remedy, and names of objects but none of their content.
#[derive(Clone, PartialEq, Eq)]
pub struct OwnerError(String);

impl OwnerError {
    fn wrong_type(field: &str, expected: &str) -> Self {
        Self(format!(
            "{field} is not {expected}: build the child as a Kubernetes object"
        ))
    }
}

impl fmt::Display for OwnerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the owner was not added: {}", self.0)
    }
}

debug_as_display!(OwnerError);

impl std::error::Error for OwnerError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(api_version: &str, kind: &str, name: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: uid.into(),
            ..OwnerReference::default()
        }
    }

    fn team() -> OwnerReference {
        reference("example.com/v1", "Team", "a", "u1")
    }

    fn metadata(metadata: Value) -> FullObjectMeta {
        serde_json::from_value(metadata).unwrap()
    }

    fn child(references: Value) -> Value {
        json!({"metadata": {"name": "c", "namespace": "n", "ownerReferences": references}})
    }

    fn expected_reference() -> Value {
        json!({
            "apiVersion": "example.com/v1", "kind": "Team", "name": "a", "uid": "u1",
            "controller": true, "blockOwnerDeletion": true,
        })
    }

    #[track_caller]
    fn assert_refused(child: Value, owner: &OwnerReference, namespace: &str, messages: &[&str]) {
        let error = owned(child, owner, namespace).unwrap_err().to_string();
        for message in messages {
            assert!(error.contains(message), "{error}");
        }
        assert!(!error.contains("hunter2"), "{error}");
    }

    #[test]
    fn cr4_controller_is_matched_by_group_and_kind() {
        let child = |api_version: &str| {
            metadata(json!({"namespace": "n", "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "m", "uid": "u0"},
                {"apiVersion": api_version, "kind": "Team", "name": "a", "uid": "u1", "controller": true},
            ]}))
        };
        let key = |metadata: &FullObjectMeta, group, kind, namespaced| {
            controller_key(metadata, group, kind, namespaced).map(|key| key.to_string())
        };
        for version in ["example.com/v1", "example.com/v2beta1"] {
            let child = child(version);
            let found = key(&child, "example.com", "Team", true);
            assert_eq!(found.as_deref(), Some("n/a"));
            let found = key(&child, "example.com", "Team", false);
            assert_eq!(found.as_deref(), Some("a"));
            for (group, kind) in [("example.com", "Other"), ("", "Team"), ("v1", "Team")] {
                assert_eq!(key(&child, group, kind, true), None, "{group} {kind}");
            }
            assert_eq!(
                key(&child, "", "Node", false),
                None,
                "is not the controller"
            );
        }
        let core = child("v1");
        assert_eq!(key(&core, "", "Team", true).as_deref(), Some("n/a"));
        let mut cluster_scoped = core.clone();
        cluster_scoped.namespace.clear();
        assert_eq!(key(&cluster_scoped, "", "Team", true), None);
        assert_eq!(
            key(&cluster_scoped, "", "Team", false).as_deref(),
            Some("a")
        );
        assert_eq!(key(&FullObjectMeta::default(), "", "Team", true), None);
    }

    #[test]
    fn owned_adds_a_controller_reference() {
        for metadata in [json!({}), json!({"ownerReferences": null}), json!(null)] {
            let owned = owned(json!({"metadata": metadata, "data": {}}), &team(), "n").unwrap();
            let expected = json!({"namespace": "n", "ownerReferences": [expected_reference()]});
            assert_eq!(owned, json!({"metadata": expected, "data": {}}));
        }
        let owned = owned(json!({}), &team(), "").unwrap();
        let expected = json!({"metadata": {"ownerReferences": [expected_reference()]}});
        assert_eq!(owned, expected, "a cluster-scoped owner sets no namespace");
    }

    #[test]
    fn owned_keeps_other_owners() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "name": "m", "uid": "u0"});
        let owned = owned(child(json!([node])), &team(), "n").unwrap();
        assert_eq!(owned, child(json!([node, expected_reference()])));
    }

    #[test]
    fn owned_does_not_change_a_controlled_child() {
        // An older version, and no blockOwnerDeletion.
        let team_v0 = json!({"apiVersion": "example.com/v0", "kind": "Team", "name": "a", "uid": "u1", "controller": true});
        let child = child(json!([team_v0, {"uid": "u1", "kind": "Team"}]));
        assert_eq!(owned(child.clone(), &team(), "n").unwrap(), child);
    }

    #[test]
    fn owned_upgrades_a_reference_to_the_same_owner() {
        let plain = json!({"apiVersion": "example.com/v1", "kind": "Team", "name": "a", "uid": "u1", "controller": false});
        let upgraded = owned(child(json!([plain])), &team(), "n").unwrap();
        assert_eq!(upgraded, child(json!([expected_reference()])));
    }

    #[test]
    fn second_controller_is_refused_with_both_names() {
        let other = json!({"apiVersion": "v1", "kind": "Other", "name": "b", "uid": "u2", "controller": true});
        let names = [
            r#"Team "a" (uid "u1")"#,
            r#"Other "b" (uid "u2")"#,
            "another name",
        ];
        assert_refused(child(json!([other])), &team(), "n", &names);
        // The owner was deleted and created again.
        let mut before = expected_reference();
        before["uid"] = "u0".into();
        assert_refused(child(json!([before])), &team(), "n", &[r#"(uid "u0")"#]);
    }

    #[test]
    fn owner_in_another_namespace_is_refused() {
        let child = child(json!(null));
        let message = r#"the child is in namespace "n" but its owner, Team "a" (uid "u1"), is in namespace "other""#;
        assert_refused(
            child.clone(),
            &team(),
            "other",
            &[message, "cluster-scoped owner"],
        );
        assert!(owned(child, &team(), "").is_ok());
    }

    #[test]
    fn incomplete_owner_is_refused() {
        for (field, owner) in [
            ("apiVersion", reference("", "Team", "a", "u1")),
            ("kind", reference("v1", "", "a", "u1")),
            ("name", reference("v1", "Team", "", "u1")),
            ("uid", reference("v1", "Team", "a", "")),
        ] {
            let message = format!("the owner has no {field}: use an object that was read");
            assert_refused(child(json!([])), &owner, "n", &[&message]);
        }
    }

    #[test]
    fn malformed_child_is_refused() {
        let in_references = |reference| child(json!([{"uid": "u9"}, reference]));
        for (child, field) in [
            (json!("hunter2"), "the child is not an object"),
            (
                json!({"metadata": ["hunter2"]}),
                "metadata of the child is not an object",
            ),
            (
                json!({"metadata": {"namespace": 7}}),
                "metadata.namespace of the child is not",
            ),
            (
                child(json!("hunter2")),
                "metadata.ownerReferences of the child is not an array",
            ),
            (
                in_references(json!("hunter2")),
                "metadata.ownerReferences[1] of the child",
            ),
            (
                in_references(json!({"uid": ["hunter2"]})),
                "metadata.ownerReferences[1] of the child",
            ),
        ] {
            assert_refused(child, &team(), "n", &[field, "build the child"]);
        }
    }
}

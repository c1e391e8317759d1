//! Controller references: finding the owner of a child, and adding an owner to it.

use std::fmt;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use k8s_informer::__private::EscapedName;
use k8s_informer::__private::debug_as_display;
use k8s_informer::object::{
    FullObjectMeta, GroupVersionKind, Key, ObjectName, OwnerReference, Scope,
};

/// Returns the key of the owner that manages the object, if the owner has the group and kind of
/// `kind`, whose objects have this scope.
///
/// The version is not compared, because the references of existing objects keep the version in
/// which they were written. A namespaced owner of a cluster-scoped object does not exist: the
/// garbage collector treats it as absent.
pub(crate) fn controller_key(
    metadata: &FullObjectMeta,
    kind: &GroupVersionKind,
    scope: Scope,
) -> Option<Key> {
    let owner = metadata.controller()?;
    let owner_kind = GroupVersionKind::of(&owner.api_version, owner.kind.as_str());
    let is_namespaced = scope == Scope::Namespaced;
    let is_absent = owner.name.is_empty() || is_namespaced && metadata.namespace.is_empty();
    if (&owner_kind.group, &owner_kind.kind) != (&kind.group, &kind.kind) || is_absent {
        return None;
    }
    let namespace = match is_namespaced {
        true => metadata.namespace.as_str(),
        false => "",
    };
    Some(ObjectName::new(namespace, &owner.name).to_key())
}

/// Adds a controller reference to `child`, which is a JSON object, and returns it.
///
/// `owner` needs an `apiVersion`, a kind, a name and a UID. `owner_namespace` is empty for a
/// cluster-scoped owner. A child without a namespace gets the one of its owner, so that the server
/// rejects a create in another namespace: the garbage collector would delete the child there. The
/// caller rejects a cluster-scoped child of a namespaced owner, because the JSON does not show the
/// scope, and the server ignores the namespace.
///
/// A reference to the same object is replaced, because its version or its UID may be old. It
/// corresponds to controller-runtime's `SetControllerReference`.
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
    check_owner(owner)?;
    let Value::Object(fields) = &mut child else {
        return Err(OwnerError::wrong_type("the child", "an object"));
    };
    let metadata = or_insert(fields, "metadata", Value::Object(Map::new()));
    let Value::Object(metadata) = metadata else {
        return Err(OwnerError::wrong_type("metadata of the child", "an object"));
    };
    if !owner_namespace.is_empty() {
        set_namespace(metadata, owner, owner_namespace)?;
    }
    let references = or_insert(metadata, "ownerReferences", Value::Array(Vec::new()));
    let Value::Array(references) = references else {
        let field = "metadata.ownerReferences of the child";
        return Err(OwnerError::wrong_type(field, "an array"));
    };
    let existing = find_reference(references, owner)?;
    let reference = json!({
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    });
    match existing {
        Some(index) => references[index] = reference,
        None => references.push(reference),
    }
    Ok(child)
}

/// Rejects an owner that no reference can name.
fn check_owner(owner: &OwnerReference) -> Result<(), OwnerError> {
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
    Ok(())
}

/// Gives a child the namespace of its owner, and rejects one in another namespace.
fn set_namespace(
    metadata: &mut Map<String, Value>,
    owner: &OwnerReference,
    owner_namespace: &str,
) -> Result<(), OwnerError> {
    let Value::String(namespace) = or_insert(metadata, "namespace", owner_namespace.into()) else {
        let field = "metadata.namespace of the child";
        return Err(OwnerError::wrong_type(field, "a string"));
    };
    if namespace.is_empty() {
        owner_namespace.clone_into(namespace);
    }
    if namespace == owner_namespace {
        return Ok(());
    }
    Err(OwnerError(format!(
        "the child is in namespace \"{}\" but its owner, {}, is in namespace \"{}\": \
         create the child in the namespace of its owner, or use a cluster-scoped owner",
        EscapedName(namespace),
        Named(owner),
        EscapedName(owner_namespace),
    )))
}

/// Returns the position of the reference to replace, if the child has one to the same owner. Rejects a
/// child that another object controls.
fn find_reference(
    references: &[Value],
    owner: &OwnerReference,
) -> Result<Option<usize>, OwnerError> {
    let mut existing = None;
    for (index, reference) in references.iter().enumerate() {
        let decoded: OwnerReference = match reference {
            Value::Object(_) => OwnerReference::deserialize(reference).ok(),
            Value::Null => Some(OwnerReference::default()),
            _ => None,
        }
        .ok_or_else(|| {
            let field = format!("metadata.ownerReferences[{index}] of the child");
            OwnerError::wrong_type(&field, "an owner reference")
        })?;
        if is_same_object(&decoded, owner) {
            // The list may contain the owner twice.
            if decoded.controller || existing.is_none() {
                existing = Some(index);
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
    Ok(existing)
}

/// Whether both references are to the same object: controller-runtime's `referSameObject`. The owner
/// can have another UID, because it was created again, and another version. An object with the same
/// UID is the same, also if its kind has moved to another group.
pub(crate) fn is_same_object(a: &OwnerReference, b: &OwnerReference) -> bool {
    let is_same_group = group(&a.api_version) == group(&b.api_version);
    a.uid == b.uid || is_same_group && a.kind == b.kind && a.name == b.name
}

/// Returns the group, or the whole text if it is not an `apiVersion`.
fn group(api_version: &str) -> &str {
    match api_version.split_once('/') {
        Some((group, version)) if !version.contains('/') => group,
        Some(_) => api_version,
        None => "",
    }
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
pub(crate) struct Named<'a>(pub(crate) &'a OwnerReference);

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
        OwnerReference::new(&GroupVersionKind::of(api_version, kind), name, uid)
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
        let key = |metadata: &FullObjectMeta, group, kind, scope| {
            let kind = GroupVersionKind::new(group, "v1", kind);
            controller_key(metadata, &kind, scope).map(|key| key.to_string())
        };
        for version in ["example.com/v1", "example.com/v2beta1"] {
            let child = child(version);
            let found = key(&child, "example.com", "Team", Scope::Namespaced);
            assert_eq!(found.as_deref(), Some("n/a"));
            let found = key(&child, "example.com", "Team", Scope::Cluster);
            assert_eq!(found.as_deref(), Some("a"));
            for (group, kind) in [("example.com", "Other"), ("", "Team"), ("v1", "Team")] {
                assert_eq!(
                    key(&child, group, kind, Scope::Namespaced),
                    None,
                    "{group} {kind}"
                );
            }
            assert_eq!(
                key(&child, "", "Node", Scope::Cluster),
                None,
                "is not the controller"
            );
        }
        let core = child("v1");
        assert_eq!(
            key(&core, "", "Team", Scope::Namespaced).as_deref(),
            Some("n/a")
        );
        let mut cluster_scoped = core.clone();
        cluster_scoped.namespace.clear();
        assert_eq!(key(&cluster_scoped, "", "Team", Scope::Namespaced), None);
        assert_eq!(
            key(&cluster_scoped, "", "Team", Scope::Cluster).as_deref(),
            Some("a")
        );
        assert_eq!(
            key(&FullObjectMeta::default(), "", "Team", Scope::Namespaced),
            None
        );
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

    /// The table of controller-runtime's `SetControllerReference`: the references of a child, and
    /// the one that is replaced, or that follows them.
    #[test]
    fn owned_replaces_the_reference_to_the_same_object() {
        let node = json!({"apiVersion": "v1", "kind": "Node", "name": "m", "uid": "u0"});
        let team = |version: &str, uid: &str| json!({"apiVersion": version, "kind": "Team", "name": "a", "uid": uid});
        let with = |mut reference: Value, field: &str, value: Value| {
            reference[field] = value;
            reference
        };
        let controlling = |version, uid| with(team(version, uid), "controller", json!(true));
        let [v0, v1, v2] = ["v0", "v1", "v2"].map(|version| format!("example.com/{version}"));
        for (references, replaced) in [
            // The same reference, and one without blockOwnerDeletion.
            (vec![expected_reference()], 0),
            (vec![controlling(&v1, "u1")], 0),
            (
                vec![with(
                    expected_reference(),
                    "blockOwnerDeletion",
                    json!(false),
                )],
                0,
            ),
            // Not the controller yet.
            (vec![team(&v1, "u1")], 0),
            (vec![with(team(&v1, "u1"), "controller", json!(false))], 0),
            (vec![with(team(&v1, "u1"), "controller", Value::Null)], 0),
            // Another version.
            (vec![controlling(&v0, "u1")], 0),
            (
                vec![
                    node.clone(),
                    with(team(&v2, "u1"), "controller", json!(false)),
                ],
                1,
            ),
            // The owner was deleted and created again.
            (vec![controlling(&v1, "u0")], 0),
            (vec![team(&v0, "u0"), node.clone()], 0),
            // The list contains the owner twice: the controller is replaced, so that there is one.
            (vec![team(&v1, "u0"), controlling(&v0, "u1")], 1),
            (vec![team(&v1, "u0"), team(&v0, "u1")], 0),
            // The same object under another group.
            (vec![controlling("old.example.com/v1", "u1")], 0),
            // Other owners: another group, kind or name.
            (vec![node], 1),
            (vec![team("v1", "u2")], 1),
            (vec![team("other.com/v1", "u2")], 1),
            (vec![with(team(&v1, "u2"), "kind", json!("Crew"))], 1),
            (vec![with(team(&v1, "u2"), "name", json!("b"))], 1),
            // A version that Go cannot parse belongs to no group.
            (vec![team("example.com/v1/x", "u2")], 1),
            (vec![Value::Null], 1),
            (
                vec![json!({"apiVersion": null, "kind": null, "name": null, "uid": null})],
                1,
            ),
        ] {
            let mut expected = references.clone();
            expected.splice(
                replaced..(replaced + 1).min(expected.len()),
                [expected_reference()],
            );
            let owned = owned(child(json!(references)), &self::team(), "n").unwrap();
            assert_eq!(owned, child(json!(expected)), "{references:?}");
        }
    }

    #[test]
    fn second_controller_is_refused_with_both_names() {
        let controller = |version: &str, kind: &str, name: &str| json!({"apiVersion": version, "kind": kind, "name": name, "uid": "u2", "controller": true});
        let names = [
            r#"Team "a" (uid "u1")"#,
            r#"Other "b" (uid "u2")"#,
            "another name",
        ];
        let other = controller("v1", "Other", "b");
        assert_refused(child(json!([other])), &team(), "n", &names);
        assert_refused(
            child(json!([expected_reference(), other])),
            &team(),
            "n",
            &names,
        );
        for other in [
            controller("other.com/v1", "Team", "a"),
            controller("v1", "Team", "a"),
            controller("example.com/v1", "Crew", "a"),
            controller("example.com/v1", "Team", "b"),
            controller("example.com/v1/x", "Team", "a"),
        ] {
            assert_refused(child(json!([other])), &team(), "n", &["another name"]);
        }
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

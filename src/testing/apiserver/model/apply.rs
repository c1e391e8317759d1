//! Server-side apply without schemas. Lists are replaced as a whole. Only applied fields have an
//! owner, not fields that were created, updated or patched.

use serde_json::{Map, Value, json};

use super::http::Head;
use super::object::{Content, meta_str};
use super::resources::{ApiResource, Target};
use super::status::{Cause, StatusError};
use super::validate::go_error;

/// The configuration that one manager applies.
#[derive(Debug)]
pub(crate) struct Apply {
    wanted: Content,
    manager: String,
    force: bool,
}

/// Fields of the metadata that cannot be owned.
const NOT_OWNED: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

impl Apply {
    /// Parses the body and the query of a patch of type `application/apply-patch+yaml`. The body
    /// must be JSON.
    pub(crate) fn parse(head: &Head, body: &[u8]) -> Result<Self, StatusError> {
        let wanted: Content = serde_json::from_slice(body).map_err(|error| {
            StatusError::bad_request(format!(
                "error decoding YAML: error unmarshaling JSON: {}",
                go_error(&error)
            ))
        })?;
        let manager = head.param("fieldManager").unwrap_or_default().to_owned();
        if manager.is_empty() {
            return Err(StatusError::invalid_patch_options(Cause {
                reason: "FieldValueRequired",
                message: "Required value: is required for apply patch".to_owned(),
                field: "fieldManager",
            }));
        }
        Ok(Self {
            wanted,
            manager,
            force: head.flag("force").unwrap_or(false),
        })
    }

    /// Checks the version, kind, name and managed fields in the body.
    pub(crate) fn check(&self, resource: &ApiResource, name: &str) -> Result<(), StatusError> {
        let text = |field: &str| {
            self.wanted
                .get(field)
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != resource.api_version() || kind != resource.kind {
            let slash = if version.contains('/') { "" } else { "/" };
            return Err(StatusError::bad_request(format!(
                "invalid object type: {slash}{version}, Kind={kind}"
            )));
        }
        if self
            .wanted
            .get("metadata")
            .and_then(|metadata| metadata.get("managedFields"))
            .is_some()
        {
            return Err(StatusError::bad_request(
                "metadata.managedFields must be nil",
            ));
        }
        match meta_str(&self.wanted, "name") {
            "" => Err(StatusError::bad_request(format!(
                "the name of the object ({name} based on URL) was undeterminable: name must be provided"
            ))),
            other if other != name => Err(StatusError::bad_request(format!(
                "the name of the object ({other}) does not match the name on the URL ({name})"
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the result of applying to `live`, which is empty for a new object. The result
    /// includes `kind` and `apiVersion`.
    pub(crate) fn apply(
        self,
        live: Content,
        target: &Target,
        resource: &ApiResource,
        now: String,
    ) -> Result<Value, StatusError> {
        let Self {
            mut wanted,
            manager,
            force,
        } = self;
        remove_nulls(&mut wanted);
        let subresource = if target.status { "status" } else { "" };
        // The main resource and the `status` subresource each change only their own part.
        if target.status {
            wanted.retain(|field, _| {
                ["apiVersion", "kind", "metadata", "status"].contains(&&**field)
            });
            if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
                metadata.retain(|field, _| NOT_OWNED.contains(&&**field));
            }
        } else if resource.status {
            wanted.remove("status");
        }
        let mut object = Value::Object(live);
        let mut managers = Managers::of(&object);
        let new = owned_of(&wanted);
        let leaves = leaves(&new);
        let (place, old) = managers.take(&manager, subresource);

        let taken: Vec<&Vec<String>> = leaves
            .iter()
            .filter(|leaf| !is_same(&object, &wanted, leaf))
            .collect();
        let conflicts = managers.conflicts(&taken);
        if !conflicts.is_empty() && !force {
            return Err(StatusError::apply_conflict(&conflicts));
        }
        managers.release(&taken);
        // Remove fields that this manager applied before and omits now, unless another manager
        // applies them.
        for leaf in old
            .iter()
            .flat_map(|entry| self::leaves(&entry["fieldsV1"]))
        {
            let holds_more =
                at(&object, &leaf).is_some_and(|value| value.is_object() && !is_empty(value));
            if !holds_more && !owns(&new, &leaf) && !managers.own(&leaf) {
                remove(&mut object, &leaf);
            }
        }
        merge(&mut object, Value::Object(wanted));
        let entry = match old {
            // Applying the same configuration again changes nothing, not even the time.
            Some(old) if old["fieldsV1"] == new => old,
            _ => entry(&manager, subresource, resource, new, now),
        };
        managers.put(place, entry);
        object["metadata"]["managedFields"] = Value::Array(managers.0);
        Ok(object)
    }
}

/// The entries of `metadata.managedFields`.
struct Managers(Vec<Value>);

impl Managers {
    fn of(object: &Value) -> Self {
        Self(
            object
                .pointer("/metadata/managedFields")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default(),
        )
    }

    /// Removes the entry of a manager. Returns its index, and the entry if it existed.
    fn take(&mut self, manager: &str, subresource: &str) -> (usize, Option<Value>) {
        let is_it = |entry: &Value| {
            entry["manager"] == manager
                && entry["operation"] == "Apply"
                && entry["subresource"].as_str().unwrap_or_default() == subresource
        };
        match self.0.iter().position(is_it) {
            Some(at) => (at, Some(self.0.remove(at))),
            None => (self.0.len(), None),
        }
    }

    fn applied(&self) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(|entry| entry["operation"] == "Apply")
    }

    fn own(&self, leaf: &[String]) -> bool {
        self.applied().any(|entry| owns(&entry["fieldsV1"], leaf))
    }

    /// Returns the conflicts: the manager and the field, for each of these fields that a manager
    /// owns.
    fn conflicts(&self, leaves: &[&Vec<String>]) -> Vec<(String, String)> {
        let mut conflicts = Vec::new();
        for entry in self.applied() {
            for leaf in leaves.iter().filter(|leaf| owns(&entry["fieldsV1"], leaf)) {
                let manager = entry["manager"].as_str().unwrap_or_default().to_owned();
                conflicts.push((manager, format!(".{}", leaf.join("."))));
            }
        }
        conflicts
    }

    /// Removes all owners of these fields.
    fn release(&mut self, leaves: &[&Vec<String>]) {
        for entry in self
            .0
            .iter_mut()
            .filter(|entry| entry["operation"] == "Apply")
        {
            for leaf in leaves {
                remove_ownership(&mut entry["fieldsV1"], leaf);
            }
        }
        self.0
            .retain(|entry| entry["operation"] != "Apply" || !is_empty(&entry["fieldsV1"]));
    }

    fn put(&mut self, place: usize, entry: Value) {
        if !is_empty(&entry["fieldsV1"]) {
            self.0.insert(place.min(self.0.len()), entry);
        }
    }
}

fn entry(
    manager: &str,
    subresource: &str,
    resource: &ApiResource,
    fields: Value,
    now: String,
) -> Value {
    let mut entry = json!({
        "manager": manager,
        "operation": "Apply",
        "apiVersion": resource.api_version(),
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    });
    if !subresource.is_empty() {
        entry["subresource"] = subresource.into();
    }
    entry
}

/// Returns the fields of an applied object in the format of `fieldsV1`: a tree of `f:NAME` keys
/// with empty leaves.
fn owned_of(wanted: &Content) -> Value {
    let mut fields = Map::new();
    for (name, value) in wanted {
        match (name.as_str(), value) {
            ("apiVersion" | "kind", _) => {}
            ("metadata", Value::Object(metadata)) => {
                let owned = metadata
                    .iter()
                    .filter(|(name, _)| !NOT_OWNED.contains(&name.as_str()));
                let owned: Map<_, _> = owned
                    .map(|(name, value)| (format!("f:{name}"), tree(value)))
                    .collect();
                if !owned.is_empty() {
                    fields.insert("f:metadata".to_owned(), Value::Object(owned));
                }
            }
            _ => {
                fields.insert(format!("f:{name}"), tree(value));
            }
        }
    }
    Value::Object(fields)
}

fn tree(value: &Value) -> Value {
    match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (format!("f:{name}"), tree(value)))
            .collect(),
        _ => json!({}),
    }
}

fn is_empty(tree: &Value) -> bool {
    tree.as_object().is_none_or(Map::is_empty)
}

fn leaves(tree: &Value) -> Vec<Vec<String>> {
    fn walk(tree: &Value, path: &mut Vec<String>, leaves: &mut Vec<Vec<String>>) {
        for (key, below) in tree.as_object().into_iter().flatten() {
            let Some(name) = key.strip_prefix("f:") else {
                continue;
            };
            path.push(name.to_owned());
            if is_empty(below) {
                leaves.push(path.clone());
            } else {
                walk(below, path, leaves);
            }
            path.pop();
        }
    }
    let mut all = Vec::new();
    walk(tree, &mut Vec::new(), &mut all);
    all
}

/// Whether the tree has this field as a leaf. Owning a field does not include its children.
fn owns(tree: &Value, path: &[String]) -> bool {
    let below = path
        .iter()
        .try_fold(tree, |tree, name| tree.get(format!("f:{name}")));
    !path.is_empty() && below.is_some_and(is_empty)
}

fn remove_ownership(tree: &mut Value, path: &[String]) {
    let (Some((first, rest)), Value::Object(fields)) = (path.split_first(), tree) else {
        return;
    };
    let key = format!("f:{first}");
    let Some(below) = fields.get_mut(&key) else {
        return;
    };
    // An empty node is a leaf. Remove it only if the path ends there.
    if is_empty(below) != rest.is_empty() {
        return;
    }
    remove_ownership(below, rest);
    if is_empty(below) {
        fields.remove(&key);
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, name| value.get(name))
}

/// Whether the object already has the wanted value. If the wanted value is an object, any object
/// counts as the same value.
fn is_same(object: &Value, wanted: &Content, leaf: &[String]) -> bool {
    let wanted = leaf
        .split_first()
        .and_then(|(first, rest)| at(wanted.get(first)?, rest));
    match (at(object, leaf), wanted) {
        (Some(Value::Object(_)), Some(Value::Object(_))) => true,
        (live, wanted) => live == wanted,
    }
}

/// Removes nulls. Without a schema, their meaning is undefined, so they count as absent.
fn remove_nulls(fields: &mut Content) {
    fields.retain(|_, value| !value.is_null());
    for value in fields.values_mut() {
        if let Value::Object(fields) = value {
            remove_nulls(fields);
        }
    }
}

/// Removes a field, and its parents if they become empty.
fn remove(value: &mut Value, path: &[String]) {
    let (Some((first, rest)), Value::Object(fields)) = (path.split_first(), value) else {
        return;
    };
    if rest.is_empty() {
        fields.remove(first);
    } else if let Some(below) = fields.get_mut(first) {
        remove(below, rest);
        if is_empty(below) {
            fields.remove(first);
        }
    }
}

fn merge(live: &mut Value, wanted: Value) {
    match (live, wanted) {
        (Value::Object(live), Value::Object(wanted)) => {
            for (name, value) in wanted {
                merge(live.entry(name).or_insert(Value::Null), value);
            }
        }
        (live, wanted) => *live = wanted,
    }
}

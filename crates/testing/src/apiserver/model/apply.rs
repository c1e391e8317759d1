//! Server-side apply without schemas. Keyed lists are merged item by item, other lists are replaced
//! as a whole. Only applied fields have an owner, not fields that were created, updated or patched.

use serde_json::{Map, Value, json};

use super::http::Head;
use super::keyed_lists::{KeyedLists, child, has_key, key_of, key_segment, merge};
use super::object::{Content, meta};
use super::resources::{ApiResource, Target};
use super::schema::remove_nulls;
use super::status::{Cause, StatusError};
use super::validate::parse_json;

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
        let Value::Object(wanted) = parse_json(body)? else {
            return Err(StatusError::bad_request("the body is not an object"));
        };
        let manager = head.param("fieldManager").unwrap_or_default().to_owned();
        if manager.is_empty() {
            let cause = Cause::required("fieldManager");
            return Err(StatusError::invalid_options(&[cause]));
        }
        Ok(Self {
            wanted,
            manager,
            force: head.flag("force").unwrap_or(false),
        })
    }

    /// Checks the version, kind and managed fields in the body.
    pub(crate) fn check(&self, resource: &ApiResource) -> Result<(), StatusError> {
        let text = |field: &str| self.wanted.get(field).and_then(Value::as_str);
        let (version, kind) = (text("apiVersion"), text("kind"));
        if version != Some(&resource.api_version()) || kind != Some(&resource.kind) {
            let (version, kind) = (version.unwrap_or_default(), kind.unwrap_or_default());
            return Err(StatusError::bad_request(format!(
                "invalid object type: {version}, Kind={kind}"
            )));
        }
        if meta(&self.wanted, "managedFields").is_some() {
            let why = "metadata.managedFields must be nil";
            return Err(StatusError::bad_request(why));
        }
        Ok(())
    }

    pub(crate) fn wanted(&self) -> &Content {
        &self.wanted
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
        // Without a schema, the meaning of nulls is undefined, so they count as absent.
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
        let lists = keyed_lists(resource);
        let new = owned_of(&wanted, &lists).map_err(|path| {
            StatusError::internal(format!(
                "failed to create typed patch object: .{path} is not a list with unique keys"
            ))
        })?;
        let wanted = Value::Object(wanted);
        let mut object = Value::Object(live);
        let mut managers = Managers::of(&object);
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
        let old_leaves = old
            .iter()
            .flat_map(|entry| self::leaves(&entry["fieldsV1"]));
        // An item of a list comes before its fields, and goes after them.
        for leaf in old_leaves.collect::<Vec<_>>().iter().rev() {
            if !owns(&new, leaf) && !managers.own(leaf) {
                remove(&mut object, leaf);
            }
        }
        merge(&mut object, wanted, &lists, "");
        let entry = match old {
            // Applying the same configuration again does not change the time.
            Some(mut old) if old["fieldsV1"] == new => {
                old["apiVersion"] = resource.api_version().into();
                old
            }
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

    /// Returns the conflicts: the quoted manager and the field, for each of these fields that a
    /// manager owns.
    fn conflicts(&self, leaves: &[&Vec<String>]) -> Vec<(String, String)> {
        let mut conflicts = Vec::new();
        for entry in self.applied() {
            for leaf in leaves.iter().filter(|leaf| owns(&entry["fieldsV1"], leaf)) {
                let mut manager = entry["manager"].to_string();
                if let Some(subresource) = entry.get("subresource") {
                    manager.push_str(&format!(" with subresource {subresource}"));
                }
                conflicts.push((manager, leaf.iter().map(|part| part_text(part)).collect()));
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

fn keyed_lists(resource: &ApiResource) -> KeyedLists {
    let lists = match resource.custom {
        true => resource.keyed_lists.clone(),
        false => KeyedLists::conditions(),
    };
    lists.and_owners()
}

/// Returns the fields of an applied object in the format of `fieldsV1`: a tree of `f:NAME` keys
/// with empty leaves. An item of a keyed list is `k:KEY`, and has a leaf `.`. An error is the path of
/// an invalid list.
fn owned_of(wanted: &Content, lists: &KeyedLists) -> Result<Value, String> {
    let mut wanted = wanted.clone();
    wanted.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
    if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
        metadata.retain(|name, _| !NOT_OWNED.contains(&name.as_str()));
        if metadata.is_empty() {
            wanted.remove("metadata");
        }
    }
    let owned = fields_of(&wanted, lists, "")?;
    Ok(Value::Object(owned))
}

fn fields_of(
    fields: &Content,
    lists: &KeyedLists,
    path: &str,
) -> Result<Map<String, Value>, String> {
    let mut owned = Map::new();
    for (name, value) in fields {
        if let Some(tree) = tree(value, lists, &child(path, name))? {
            owned.insert(format!("f:{name}"), tree);
        }
    }
    Ok(owned)
}

/// Returns the tree of a value. It is `None` for an empty keyed list, which owns nothing.
fn tree(value: &Value, lists: &KeyedLists, path: &str) -> Result<Option<Value>, String> {
    let tree = match (value, lists.keys(path)) {
        (Value::Array(items), Some(keys)) => items_of(items, keys, lists, path)?,
        (_, Some(_)) => return Err(path.to_owned()),
        (Value::Object(fields), _) => fields_of(fields, lists, path)?,
        _ => return Ok(Some(json!({}))),
    };
    let owns_nothing = tree.is_empty() && !is_empty(value);
    let is_empty_list = value.as_array().is_some_and(Vec::is_empty);
    Ok((!owns_nothing && !is_empty_list).then_some(Value::Object(tree)))
}

fn items_of(
    items: &[Value],
    keys: &[String],
    lists: &KeyedLists,
    path: &str,
) -> Result<Map<String, Value>, String> {
    let mut owned = Map::new();
    for item in items {
        let invalid = || path.to_owned();
        let fields = item.as_object().ok_or_else(invalid)?;
        let key = key_of(item, keys).ok_or_else(invalid)?;
        let mut tree = fields_of(fields, lists, path)?;
        tree.insert(".".to_owned(), json!({}));
        let segment = key_segment(key);
        if owned.insert(segment, Value::Object(tree)).is_some() {
            return Err(invalid());
        }
    }
    Ok(owned)
}

/// Formats a part of the path of a field for a message.
fn part_text(part: &str) -> String {
    match (part.strip_prefix("f:"), part_key(part)) {
        (Some(name), _) => format!(".{name}"),
        (None, Some(key)) => {
            let pairs = key.iter().map(|(name, value)| format!("{name}={value}"));
            format!("[{}]", pairs.collect::<Vec<_>>().join(","))
        }
        (None, None) => String::new(),
    }
}

/// Returns the key of an item in the path of a field.
fn part_key(part: &str) -> Option<Content> {
    serde_json::from_str(part.strip_prefix("k:")?).ok()
}

fn is_empty(tree: &Value) -> bool {
    tree.as_object().is_none_or(Map::is_empty)
}

/// Returns the paths of the leaves. Their parts are the keys of the tree.
fn leaves(tree: &Value) -> Vec<Vec<String>> {
    fn walk(tree: &Value, path: &mut Vec<String>, leaves: &mut Vec<Vec<String>>) {
        for (part, below) in tree.as_object().into_iter().flatten() {
            path.push(part.clone());
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
    let below = path.iter().try_fold(tree, |tree, part| tree.get(part));
    !path.is_empty() && below.is_some_and(is_empty)
}

fn remove_ownership(tree: &mut Value, path: &[String]) {
    let (Some((first, rest)), Value::Object(fields)) = (path.split_first(), tree) else {
        return;
    };
    let Some(below) = fields.get_mut(first) else {
        return;
    };
    // An empty node is a leaf. Remove it only if the path ends there.
    if is_empty(below) != rest.is_empty() {
        return;
    }
    remove_ownership(below, rest);
    if is_empty(below) {
        fields.remove(first);
    }
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, part| {
        match (part.strip_prefix("f:"), part_key(part)) {
            (Some(name), _) => value.get(name),
            (None, Some(key)) => value.as_array()?.iter().find(|item| has_key(item, &key)),
            (None, None) => Some(value),
        }
    })
}

/// Whether the object already has the wanted value. If the wanted value is an object, any object
/// counts as the same value.
fn is_same(object: &Value, wanted: &Value, leaf: &[String]) -> bool {
    match (at(object, leaf), at(wanted, leaf)) {
        (Some(Value::Object(_)), Some(Value::Object(_))) => true,
        (live, wanted) => live == wanted,
    }
}

/// Removes a field, unless it is an object with other fields. Removes its parents if they become
/// empty. An item of a list goes when only its key is left.
fn remove(value: &mut Value, path: &[String]) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match (value, part_key(first)) {
        (Value::Object(fields), None) => {
            let name = first.strip_prefix("f:").unwrap_or_default();
            let Some(below) = fields.get_mut(name) else {
                return;
            };
            if rest.is_empty() && below.is_object() && !is_empty(below) {
                return;
            }
            remove(below, rest);
            let is_empty = match below {
                Value::Array(items) => items.is_empty(),
                Value::Object(fields) => fields.is_empty(),
                _ => false,
            };
            if rest.is_empty() || is_empty {
                fields.remove(name);
            }
        }
        (Value::Array(items), Some(key)) => {
            let is_key = |name: &String| {
                name.strip_prefix("f:")
                    .is_some_and(|name| key.contains_key(name))
            };
            let Some(index) = items.iter().position(|item| has_key(item, &key)) else {
                return;
            };
            match rest {
                [last] if last == "." => {
                    let fields = items[index].as_object().map_or(0, Map::len);
                    if fields == key.len() {
                        items.remove(index);
                    }
                }
                // The key stays as long as the item.
                [last] if is_key(last) => {}
                rest => remove(&mut items[index], rest),
            }
        }
        _ => {}
    }
}

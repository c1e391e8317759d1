//! Server-side apply without schemas. Keyed lists and sets are merged item by item, other lists are
//! replaced as a whole.

use serde_json::{Map, Value};

use super::field_set::{FieldSet, Path, item_part};
use super::http::Head;
use super::keyed_lists::{KeyedLists, child, has_key, merge};
use super::managers::{Authorship, Entry, Managers, NOT_OWNED, keyed_lists};
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
        let new = owned_of(&wanted, &lists).map_err(|InvalidList { path }| {
            StatusError::internal(format!(
                "failed to create typed patch object: .{path} is not a list with unique keys"
            ))
        })?;
        let wanted = Value::Object(wanted);
        let by = Authorship {
            manager: &manager,
            subresource,
            resource,
            now: &now,
        };
        let mut managers = Managers::of(meta(&live, "managedFields"));
        if managers.is_empty() {
            managers.begin(&live, &lists, &by);
        }
        let old = managers.take_applied(&by);
        let mut object = Value::Object(live);

        // The fields that get another value. Their owners conflict, also this manager if it has
        // updated them.
        let paths = new.paths();
        let taken = paths.iter().filter(|path| !is_same(&object, &wanted, path));
        let taken: Vec<&Path> = taken.collect();
        let conflicts = managers.owners(&taken).into_iter().map(|(owner, path)| {
            let field = path.iter().map(|part| part_text(part)).collect();
            (owner, field)
        });
        let conflicts: Vec<(String, String)> = conflicts.collect();
        if !conflicts.is_empty() && !force {
            return Err(StatusError::apply_conflict(&conflicts));
        }
        let mut released = FieldSet::default();
        taken.iter().for_each(|path| released.add_path(path));
        managers.release(&released);
        // Remove fields that this manager applied before and omits now, unless another manager owns
        // them. A list and its items come before their fields, and go after them.
        let old_paths = old.map(|entry| entry.fields.paths()).unwrap_or_default();
        for path in old_paths.iter().rev() {
            let has_items = || is_merged(path, &lists) && !is_empty_list(at(&object, path));
            if !new.contains(path) && !managers.own(path) && !has_items() {
                remove(&mut object, path);
            }
        }
        merge(&mut object, wanted, &lists, "");
        managers.put(Entry::applied(&by, new));
        object["metadata"]["managedFields"] = Value::Array(managers.encode());
        Ok(object)
    }
}

/// A field that should be a list with unique keys.
struct InvalidList {
    path: String,
}

impl InvalidList {
    fn at(path: &str) -> Self {
        let path = path.to_owned();
        Self { path }
    }
}

/// Returns the fields of an applied object. A map with fields is not one of them, but an item of a
/// keyed list is.
fn owned_of(wanted: &Content, lists: &KeyedLists) -> Result<FieldSet, InvalidList> {
    let mut wanted = wanted.clone();
    wanted.retain(|name, _| !matches!(name.as_str(), "apiVersion" | "kind"));
    if let Some(Value::Object(metadata)) = wanted.get_mut("metadata") {
        metadata.retain(|name, _| !NOT_OWNED.contains(&name.as_str()));
        if metadata.is_empty() {
            wanted.remove("metadata");
        }
    }
    fields_of(&wanted, lists, "")
}

fn fields_of(fields: &Content, lists: &KeyedLists, path: &str) -> Result<FieldSet, InvalidList> {
    let mut owned = FieldSet::default();
    for (name, value) in fields {
        owned.insert(
            format!("f:{name}"),
            set_of(value, lists, &child(path, name))?,
        );
    }
    Ok(owned)
}

/// Returns the fields of a value. A list that is merged owns nothing if it is empty.
fn set_of(value: &Value, lists: &KeyedLists, path: &str) -> Result<FieldSet, InvalidList> {
    match (value, is_merged_list(lists, path)) {
        (Value::Array(items), true) => items_of(items, lists, path),
        (_, true) => Err(InvalidList::at(path)),
        (Value::Object(fields), false) if !fields.is_empty() => fields_of(fields, lists, path),
        (_, false) => Ok(FieldSet::leaf()),
    }
}

fn items_of(items: &[Value], lists: &KeyedLists, path: &str) -> Result<FieldSet, InvalidList> {
    let mut owned = FieldSet::default();
    for item in items {
        let part = item_part(item, lists, path).ok_or_else(|| InvalidList::at(path))?;
        if owned.contains(std::slice::from_ref(&part)) {
            return Err(InvalidList::at(path));
        }
        let mut set = FieldSet::leaf();
        if let Value::Object(fields) = item {
            set.add(&fields_of(fields, lists, path)?);
        }
        owned.insert(part, set);
    }
    Ok(owned)
}

fn is_merged_list(lists: &KeyedLists, path: &str) -> bool {
    lists.keys(path).is_some() || lists.is_set(path)
}

/// Whether the field is a list whose items have owners of their own.
fn is_merged(path: &[String], lists: &KeyedLists) -> bool {
    let names = path.iter().filter_map(|part| part.strip_prefix("f:"));
    let is_field = path.last().is_some_and(|part| part.starts_with("f:"));
    is_field && is_merged_list(lists, &names.collect::<Vec<_>>().join("."))
}

fn is_empty_list(value: Option<&Value>) -> bool {
    value
        .and_then(Value::as_array)
        .is_none_or(|items| items.is_empty())
}

/// Formats a part of the path of a field for a message.
fn part_text(part: &str) -> String {
    if let Some(name) = part.strip_prefix("f:") {
        format!(".{name}")
    } else if let Some(key) = part_key(part) {
        let pairs = key.iter().map(|(name, value)| format!("{name}={value}"));
        format!("[{}]", pairs.collect::<Vec<_>>().join(","))
    } else {
        format!("[={}]", part.trim_start_matches("v:"))
    }
}

/// Returns the key of an item in the path of a field.
fn part_key(part: &str) -> Option<Content> {
    serde_json::from_str(part.strip_prefix("k:")?).ok()
}

/// Returns the item of a set in the path of a field.
fn part_item(part: &str) -> Option<Value> {
    serde_json::from_str(part.strip_prefix("v:")?).ok()
}

fn at<'a>(value: &'a Value, path: &[String]) -> Option<&'a Value> {
    path.iter().try_fold(value, |value, part| {
        if let Some(name) = part.strip_prefix("f:") {
            return value.get(name);
        }
        let mut items = value.as_array()?.iter();
        match part_key(part) {
            Some(key) => items.find(|item| has_key(item, &key)),
            None => part_item(part).and_then(|wanted| items.find(|item| **item == wanted)),
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
/// empty. An item of a keyed list goes when only its key is left.
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
            let has_fields = below.as_object().is_some_and(|below| !below.is_empty());
            if rest.is_empty() && has_fields {
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
                [] => {
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
        (Value::Array(items), None) => {
            let item = part_item(first);
            items.retain(|kept| Some(kept) != item.as_ref());
        }
        _ => {}
    }
}

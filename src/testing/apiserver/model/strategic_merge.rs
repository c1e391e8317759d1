//! Strategic merge patches. Keyed lists are merged item by item; other lists are not supported,
//! because their strategy depends on a schema.

use serde_json::{Map, Value};

use super::keyed_lists::{KeyedLists, child, go_text, has_key, key_of};
use super::status::StatusError;

const ORDER: &str = "$setElementOrder/";

/// Whether the patch contains only supported lists and directives.
pub(crate) fn is_supported(patch: &Value, lists: &KeyedLists, path: &str) -> bool {
    let Value::Object(fields) = patch else {
        return !patch.is_array();
    };
    fields.iter().all(|(name, value)| {
        let path = child(path, name.strip_prefix(ORDER).unwrap_or(name));
        match value {
            Value::Array(_) => lists.keys(&path).is_some(),
            _ => !name.starts_with('$') && is_supported(value, lists, &path),
        }
    })
}

/// Merges `patch` into `target`.
pub(crate) fn merge(
    target: &mut Value,
    patch: Value,
    lists: &KeyedLists,
    path: &str,
) -> Result<(), StatusError> {
    let Value::Object(mut fields) = patch else {
        *target = patch;
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return Ok(());
    };
    let ordered = fields.keys().filter_map(|name| name.strip_prefix(ORDER));
    for name in ordered.map(str::to_owned).collect::<Vec<_>>() {
        fields
            .entry(name)
            .or_insert_with(|| Value::Array(Vec::new()));
    }
    let orders: Map<_, _> = fields.clone();
    fields.retain(|name, _| !name.starts_with(ORDER));
    for (name, value) in fields {
        let path = child(path, &name);
        match (value, lists.keys(&path)) {
            (Value::Null, _) => {
                target.remove(&name);
            }
            (Value::Array(items), Some([key])) => {
                let live = match target.remove(&name) {
                    Some(Value::Array(live)) => live,
                    _ => Vec::new(),
                };
                let order = orders.get(&format!("{ORDER}{name}"));
                let order = order.and_then(Value::as_array);
                let merged = merge_list(live, items, order, key, lists, &path)?;
                target.insert(name, Value::Array(merged));
            }
            (value, _) => merge(
                target.entry(name).or_insert(Value::Null),
                value,
                lists,
                &path,
            )?,
        }
    }
    Ok(())
}

fn merge_list(
    mut live: Vec<Value>,
    patch: Vec<Value>,
    order: Option<&Vec<Value>>,
    key: &str,
    lists: &KeyedLists,
    path: &str,
) -> Result<Vec<Value>, StatusError> {
    let before = live.clone();
    let keys = [key.to_owned()];
    let (mut items, mut is_replaced) = (Vec::new(), false);
    for mut item in patch {
        let directive = item.as_object_mut().and_then(|item| item.remove("$patch"));
        let directive = directive
            .as_ref()
            .map(|name| name.as_str().unwrap_or_default());
        if directive == Some("replace") {
            is_replaced = true;
            continue;
        }
        let Some(key_of_item) = key_of(&item, &keys) else {
            let item = go_text(&item);
            let why = format!("map: {item} does not contain declared merge key: {key}");
            return Err(StatusError::internal(why));
        };
        match directive {
            None => items.push((key_of_item, item)),
            Some("delete") => live.retain(|live| !has_key(live, &key_of_item)),
            Some("merge") => {
                let why = "merging lists cannot yet be specified in the patch";
                return Err(StatusError::internal(why));
            }
            Some(other) => {
                item["$patch"] = other.into();
                let item = go_text(&item);
                let why = format!("unknown patch type: {other} in map: {item}");
                return Err(StatusError::internal(why));
            }
        }
    }
    if is_replaced {
        return Ok(items.into_iter().map(|(_, item)| item).collect());
    }
    let patch_order: Vec<_> = match order {
        Some(order) => order
            .iter()
            .filter_map(|item| key_of(item, &keys))
            .collect(),
        None => items.iter().map(|(key, _)| key.clone()).collect(),
    };
    for (key, item) in items {
        let at = live.iter().position(|live| has_key(live, &key));
        let at = at.unwrap_or_else(|| {
            live.push(Value::Null);
            live.len() - 1
        });
        merge(&mut live[at], item, lists, path)?;
    }
    let place = |item: &Value| patch_order.iter().position(|key| has_key(item, key));
    let (mut patched, others): (Vec<_>, Vec<_>) =
        live.into_iter().partition(|item| place(item).is_some());
    patched.sort_by_key(place);
    Ok(interleave(others, patched, &before, &keys))
}

/// Merges two lists and keeps their orders. An item of `others` goes before the first patched item
/// that was behind it. apimachinery's `mergeSortedSlice`.
fn interleave(
    others: Vec<Value>,
    patched: Vec<Value>,
    before: &[Value],
    keys: &[String],
) -> Vec<Value> {
    let place = |item: &Value| {
        let key = key_of(item, keys)?;
        before.iter().position(|one| has_key(one, &key))
    };
    let mut merged = Vec::with_capacity(others.len() + patched.len());
    let mut others = others.into_iter().peekable();
    for item in patched {
        while let Some(other) = others.next_if(|other| {
            matches!((place(other), place(&item)), (Some(other), Some(item)) if other < item)
        }) {
            merged.push(other);
        }
        merged.push(item);
    }
    merged.extend(others);
    merged
}

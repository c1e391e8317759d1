//! Strategic merge patches. Keyed lists are merged item by item; other lists are not supported,
//! because their strategy depends on a schema.

use serde_json::{Map, Value};

use super::keyed_lists::{KeyedLists, child, has_key, key_of};
use super::status::StatusError;

/// Directives with the order of a list, which is ignored.
const ORDER: &str = "$setElementOrder/";

/// Merges `patch` into `target`. Lists without keys, and directives outside of lists, fail with 415.
pub(crate) fn merge(
    target: &mut Value,
    patch: Value,
    lists: &KeyedLists,
    path: &str,
) -> Result<(), StatusError> {
    let Value::Object(fields) = patch else {
        *target = patch;
        return Ok(());
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return Ok(());
    };
    for (name, value) in fields {
        let path = child(path, &name);
        match (value, lists.keys(&path)) {
            _ if name.starts_with(ORDER) => {}
            (Value::Null, _) => {
                target.remove(&name);
            }
            (Value::Array(items), Some(keys)) => {
                let live = target.entry(name).or_insert(Value::Null);
                merge_list(live, items, keys, lists, &path)?;
            }
            (Value::Array(_), None) => return Err(StatusError::plain(415, None)),
            _ if name.starts_with('$') => return Err(StatusError::plain(415, None)),
            (value, _) => {
                let live = target.entry(name).or_insert(Value::Null);
                merge(live, value, lists, &path)?;
            }
        }
    }
    Ok(())
}

/// Merges the items of a keyed list. New items come last.
fn merge_list(
    live: &mut Value,
    patch: Vec<Value>,
    keys: &[String],
    lists: &KeyedLists,
    path: &str,
) -> Result<(), StatusError> {
    if !live.is_array() {
        *live = Value::Array(Vec::new());
    }
    let Value::Array(live) = live else {
        return Ok(());
    };
    for mut item in patch {
        let directive = item.as_object_mut().and_then(|item| item.remove("$patch"));
        match (directive.as_ref().map(Value::as_str), key_of(&item, keys)) {
            (Some(Some("replace")), _) => live.clear(),
            (Some(Some("delete")), Some(key)) => live.retain(|live| !has_key(live, &key)),
            (None, Some(key)) => {
                let at = live.iter().position(|live| has_key(live, &key));
                let at = at.unwrap_or_else(|| {
                    live.push(Value::Null);
                    live.len() - 1
                });
                merge(&mut live[at], item, lists, path)?;
            }
            _ => {
                let why =
                    format!("the patch of {path} has an item without key, or an unknown directive");
                return Err(StatusError::internal(why));
            }
        }
    }
    Ok(())
}

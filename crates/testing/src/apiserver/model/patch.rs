//! JSON merge patches (RFC 7386), JSON patches (RFC 6902), and strategic merge patches.

use serde_json::{Map, Value};

use super::keyed_lists::KeyedLists;
use super::resources::ApiResource;
use super::status::StatusError;
use super::strategic_merge;
use super::validate::parse_json;

/// The maximum number of operations, as in kube-apiserver.
const MAX_OPERATIONS: usize = 10_000;
/// The maximum nesting of values that a JSON patch may create. serde_json itself parses 128 levels.
const MAX_DEPTH: usize = 120;
/// The maximum size that all `copy` operations of one patch may add. Copies of copies would grow
/// without bound.
const MAX_COPIED: usize = 3 << 20;

#[derive(Debug)]
pub(crate) enum Patch {
    Merge(Value),
    Strategic(Value, KeyedLists),
    Json(Vec<Operation>),
}

#[derive(Debug)]
pub(crate) struct Operation {
    action: Action,
    path: Vec<String>,
}

#[derive(Debug)]
enum Action {
    Add(Value),
    Remove,
    Replace(Value),
    Move(Vec<String>),
    Copy(Vec<String>),
    Test(Value),
}

impl Patch {
    /// Parses a patch of this media type.
    pub(crate) fn parse(
        media: &str,
        body: &[u8],
        resource: &ApiResource,
    ) -> Result<Self, StatusError> {
        match media {
            "application/merge-patch+json" => Ok(Self::Merge(parse_json(body)?)),
            "application/strategic-merge-patch+json" if !resource.custom => {
                let lists = KeyedLists::conditions().and_owners();
                Ok(Self::Strategic(parse_json(body)?, lists))
            }
            "application/json-patch+json" => Self::json_patch(parse_json(body)?),
            _ => Err(StatusError::plain(415, None)),
        }
    }

    fn json_patch(patch: Value) -> Result<Self, StatusError> {
        let Value::Array(operations) = patch else {
            return Err(StatusError::bad_request("a JSON patch is a list"));
        };
        if operations.len() > MAX_OPERATIONS {
            return Err(StatusError::too_large(MAX_OPERATIONS));
        }
        let operations: Option<Vec<Operation>> = operations.into_iter().map(operation).collect();
        operations.map(Self::Json).ok_or_else(unprocessable)
    }

    /// Returns the patched `target`.
    pub(crate) fn apply(self, mut target: Value) -> Result<Value, StatusError> {
        match self {
            Self::Merge(patch) => merge(&mut target, patch),
            Self::Strategic(patch, lists) => {
                strategic_merge::merge(&mut target, patch, &lists, "")?;
            }
            Self::Json(operations) => {
                let mut copied = 0;
                for operation in operations {
                    operation
                        .apply(&mut target, &mut copied)
                        .ok_or_else(unprocessable)?;
                }
            }
        }
        Ok(target)
    }
}

/// The error of a patch that is well-formed but cannot be applied.
fn unprocessable() -> StatusError {
    let message = "the server rejected our request due to an error in our request";
    StatusError::plain(422, Some(message.to_owned()))
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(fields) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(target) = target else {
        return;
    };
    for (key, value) in fields {
        if value.is_null() {
            target.remove(&key);
        } else {
            merge(target.entry(key).or_insert(Value::Null), value);
        }
    }
}

fn operation(value: Value) -> Option<Operation> {
    let Value::Object(mut fields) = value else {
        return None;
    };
    let path = pointer(fields.get("path")?.as_str()?)?;
    let from = |fields: &Map<String, Value>| pointer(fields.get("from")?.as_str()?);
    let action = match fields.get("op")?.as_str()? {
        "add" => Action::Add(fields.remove("value")?),
        "remove" => Action::Remove,
        "replace" => Action::Replace(fields.remove("value")?),
        "move" => Action::Move(from(&fields)?),
        "copy" => Action::Copy(from(&fields)?),
        "test" => Action::Test(fields.remove("value").unwrap_or_default()),
        _ => return None,
    };
    Some(Operation { action, path })
}

/// Splits a JSON pointer into keys.
fn pointer(text: &str) -> Option<Vec<String>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let keys = text.strip_prefix('/')?.split('/');
    Some(
        keys.map(|key| key.replace("~1", "/").replace("~0", "~"))
            .collect(),
    )
}

impl Operation {
    fn apply(self, target: &mut Value, copied: &mut usize) -> Option<()> {
        let Self { action, path } = self;
        match action {
            Action::Add(value) => add(target, &path, value),
            Action::Remove => remove(target, &path).map(drop),
            Action::Replace(value) => {
                let place = find(target, &path)?;
                fits(&path, &value)?;
                *place = value;
                Some(())
            }
            Action::Move(from) if path.starts_with(&from) && path != from => None,
            Action::Move(from) => {
                let value = remove(target, &from)?;
                add(target, &path, value)
            }
            Action::Copy(from) => {
                let value = find(target, &from)?.clone();
                *copied += value.to_string().len();
                if *copied > MAX_COPIED {
                    return None;
                }
                add(target, &path, value)
            }
            // An absent field of an object passes a test for `null`, as in kube-apiserver.
            Action::Test(Value::Null) if is_absent_field(target, &path) => Some(()),
            Action::Test(value) => {
                (find(target, &path).map(|found| &*found) == Some(&value)).then_some(())
            }
        }
    }
}

fn index(key: &str, length: usize) -> Option<usize> {
    let plain = key == "0" || !key.starts_with('0') && key.bytes().all(|b| b.is_ascii_digit());
    let index = key.parse().ok().filter(|_| plain)?;
    (index < length).then_some(index)
}

fn find<'a>(target: &'a mut Value, path: &[String]) -> Option<&'a mut Value> {
    path.iter().try_fold(target, |value, key| match value {
        Value::Object(fields) => fields.get_mut(key),
        Value::Array(items) => {
            let index = index(key, items.len())?;
            items.get_mut(index)
        }
        _ => None,
    })
}

fn is_absent_field(target: &mut Value, path: &[String]) -> bool {
    path.split_last().is_some_and(|(last, parents)| {
        matches!(find(target, parents), Some(Value::Object(fields)) if !fields.contains_key(last))
    })
}

fn add(target: &mut Value, path: &[String], value: Value) -> Option<()> {
    fits(path, &value)?;
    let Some((last, parents)) = path.split_last() else {
        *target = value;
        return Some(());
    };
    match find(target, parents)? {
        Value::Object(fields) => {
            fields.insert(last.clone(), value);
        }
        Value::Array(items) if last == "-" => items.push(value),
        Value::Array(items) => {
            let index = index(last, items.len() + 1)?;
            items.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(target: &mut Value, path: &[String]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    match find(target, parents)? {
        Value::Object(fields) => fields.remove(last),
        Value::Array(items) => {
            let index = index(last, items.len())?;
            Some(items.remove(index))
        }
        _ => None,
    }
}

/// Returns `Some` if `value` at `path` does not nest too deep. The nesting is limited because
/// serializing and dropping a value are recursive.
fn fits(path: &[String], value: &Value) -> Option<()> {
    fn within(value: &Value, depth: usize) -> bool {
        match value {
            Value::Array(items) => depth > 0 && items.iter().all(|item| within(item, depth - 1)),
            Value::Object(fields) => {
                depth > 0 && fields.values().all(|field| within(field, depth - 1))
            }
            _ => true,
        }
    }
    within(value, MAX_DEPTH.checked_sub(path.len())?).then_some(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use serde_json::json;

    fn apply(kind: &str, patch: Value, target: Value) -> Result<Value, u16> {
        let resource = ApiResource {
            custom: false,
            ..ApiResource::new("", "v1", "things", "Thing")
        };
        Patch::parse(
            &format!("application/{kind}+json"),
            patch.to_string().as_bytes(),
            &resource,
        )
        .and_then(|patch| patch.apply(target))
        .map_err(|error| error.code())
    }

    #[test]
    fn merge_patch_matches_rfc_7386_examples() {
        let cases = json!([
            [{"a": "b"}, {"a": "c"}, {"a": "c"}],
            [{"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}],
            [{"a": "b"}, {"a": null}, {}],
            [{"a": "b", "b": "c"}, {"a": null}, {"b": "c"}],
            [{"a": ["b"]}, {"a": "c"}, {"a": "c"}],
            [{"a": "c"}, {"a": ["b"]}, {"a": ["b"]}],
            [{"a": {"b": "c"}}, {"a": {"b": "d", "c": null}}, {"a": {"b": "d"}}],
            [{"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}],
            [["a", "b"], ["c", "d"], ["c", "d"]],
            [{"a": "b"}, ["c"], ["c"]],
            [{"a": "foo"}, null, null],
            [{"e": null}, {"a": 1}, {"e": null, "a": 1}],
            [[1, 2], {"a": "b", "c": null}, {"a": "b"}],
            [{}, {"a": {"bb": {"ccc": null}}}, {"a": {"bb": {}}}],
        ]);
        for case in cases.as_array().unwrap() {
            assert_eq!(
                apply("merge-patch", case[1].clone(), case[0].clone()),
                Ok(case[2].clone()),
                "{case}"
            );
        }
    }

    #[test]
    fn json_patch_supports_all_six_operations() {
        let target = json!({ "a": { "b/c": 1 }, "list": [1, 2] });
        let patch = json!([
            { "op": "test", "path": "/a/b~1c", "value": 1 },
            { "op": "add", "path": "/list/1", "value": 9 },
            { "op": "add", "path": "/list/-", "value": 3 },
            { "op": "replace", "path": "/a/b~1c", "value": 7 },
            { "op": "copy", "from": "/a", "path": "/d" },
            { "op": "move", "from": "/list/0", "path": "/first" },
            { "op": "remove", "path": "/a" },
        ]);
        let expected = json!({ "d": { "b/c": 7 }, "first": 1, "list": [9, 2, 3] });
        assert_eq!(apply("json-patch", patch, target), Ok(expected));
    }

    #[test]
    fn json_patches_that_cannot_apply_return_422() {
        for operation in [
            json!({ "op": "test", "path": "/a", "value": 2 }),
            json!({ "op": "test", "path": "/missing", "value": 2 }),
            json!({ "op": "remove", "path": "/missing" }),
            json!({ "op": "remove", "path": "" }),
            json!({ "op": "replace", "path": "/missing", "value": 1 }),
            json!({ "op": "add", "path": "/missing/x", "value": 1 }),
            json!({ "op": "add", "path": "/l/9", "value": 1 }),
            json!({ "op": "add", "path": "/l/01", "value": 1 }),
            json!({ "op": "move", "from": "/l", "path": "/l/0" }),
            json!({ "op": "add", "path": "x", "value": 1 }),
            json!({ "op": "nonsense", "path": "/a" }),
            json!({ "path": "/a" }),
            json!(3),
        ] {
            let target = json!({ "a": 1, "l": [1] });
            assert_eq!(
                apply("json-patch", json!([operation]), target),
                Err(422),
                "{operation}"
            );
        }
        assert_eq!(apply("json-patch", json!({}), json!({})), Err(400));
    }

    #[test]
    fn json_patch_depth_and_copied_size_are_limited() {
        let copy = json!({ "op": "copy", "from": "/a", "path": "/a/-" });
        assert_eq!(
            apply(
                "json-patch",
                Value::Array(vec![copy; 64]),
                json!({ "a": ["x"] })
            ),
            Err(422)
        );
        let mut nest = Vec::new();
        for _ in 0..MAX_DEPTH {
            nest.push(json!({ "op": "add", "path": "/b", "value": {} }));
            nest.push(json!({ "op": "move", "from": "/a", "path": "/b/a" }));
            nest.push(json!({ "op": "move", "from": "/b", "path": "/a" }));
        }
        assert_eq!(
            apply("json-patch", Value::Array(nest), json!({ "a": {} })),
            Err(422)
        );
    }

    #[test]
    fn strategic_patch_merges_maps_and_rejects_lists_with_415() {
        assert_eq!(
            apply(
                "strategic-merge-patch",
                json!({ "a": { "b": 1 } }),
                json!({})
            ),
            Ok(json!({ "a": { "b": 1 } }))
        );
        assert_eq!(
            apply("strategic-merge-patch", json!({ "a": [1] }), json!({})),
            Err(415)
        );
        assert_eq!(
            apply(
                "strategic-merge-patch",
                json!({ "a": { "$patch": "delete" } }),
                json!({})
            ),
            Err(415)
        );
        assert_eq!(apply("unknown", json!({}), json!({})), Err(415));
    }
}

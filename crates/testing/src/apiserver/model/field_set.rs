//! Sets of fields in the form of `fieldsV1`, and the difference between two states of an object.
//!
//! Without schemas, every map counts as a map whose fields have owners of their own. The `.` of a
//! struct of a built-in kind, which kube-apiserver leaves out, is therefore in the set.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::keyed_lists::{KeyedLists, child, key_of, key_segment};
use super::object::Content;

/// A set of fields. A map or a list item can be in it without its fields, and the other way round.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    /// Whether this field itself is in the set: `.` if it has children.
    is_member: bool,
    /// The sets below this field. Their names are `f:NAME`, `k:KEY` for an item of a keyed list, and
    /// `v:VALUE` for an item of a set. None of them is empty.
    children: BTreeMap<String, Self>,
}

/// The names of the fields from the root of an object.
pub(crate) type Path = Vec<String>;

impl FieldSet {
    /// Returns the set of one field without children.
    pub(crate) fn leaf() -> Self {
        Self {
            is_member: true,
            children: BTreeMap::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.is_member && self.children.is_empty()
    }

    /// Adds a child, unless it is empty.
    pub(crate) fn insert(&mut self, part: String, below: Self) {
        if !below.is_empty() {
            self.children.insert(part, below);
        }
    }

    pub(crate) fn take_child(&mut self, part: &str) -> Self {
        self.children.remove(part).unwrap_or_default()
    }

    /// Returns the set with only the children of this field.
    pub(crate) fn without_itself(self) -> Self {
        Self {
            is_member: false,
            ..self
        }
    }

    /// Parses the `fieldsV1` of an object.
    pub(crate) fn of_object(tree: &Value) -> Self {
        Self {
            // `{}` is an empty set here, and a field below.
            is_member: false,
            ..Self::of_field(tree)
        }
    }

    fn of_field(tree: &Value) -> Self {
        let mut set = Self::default();
        for (part, below) in tree.as_object().into_iter().flatten() {
            match &**part {
                "." => set.is_member = true,
                _ => set.insert(part.clone(), Self::of_field(below)),
            }
        }
        set.is_member |= set.children.is_empty();
        set
    }

    /// Returns the set as `fieldsV1`.
    pub(crate) fn to_json(&self) -> Value {
        let mut tree = Map::new();
        if self.is_member && !self.children.is_empty() {
            tree.insert(".".to_owned(), json!({}));
        }
        for (part, below) in &self.children {
            tree.insert(part.clone(), below.to_json());
        }
        Value::Object(tree)
    }

    /// Adds the fields of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.is_member |= other.is_member;
        for (part, below) in &other.children {
            self.children.entry(part.clone()).or_default().add(below);
        }
    }

    /// Removes the fields of `other`. Returns whether there was one.
    pub(crate) fn remove(&mut self, other: &Self) -> bool {
        let mut is_changed = self.is_member && other.is_member;
        self.is_member &= !other.is_member;
        for (part, below) in &other.children {
            if let Some(own) = self.children.get_mut(part) {
                is_changed |= own.remove(below);
                if own.is_empty() {
                    self.children.remove(part);
                }
            }
        }
        is_changed
    }

    /// Whether this field is in the set. It can be there without its children.
    pub(crate) fn contains(&self, path: &[String]) -> bool {
        let below = path
            .iter()
            .try_fold(self, |set, part| set.children.get(part));
        below.is_some_and(|set| set.is_member)
    }

    /// Adds a field.
    pub(crate) fn add_path(&mut self, path: &[String]) {
        match path.split_first() {
            Some((part, rest)) => {
                let below = self.children.entry(part.clone()).or_default();
                below.add_path(rest);
            }
            None => self.is_member = true,
        }
    }

    /// Returns the fields of the set, each before its children.
    pub(crate) fn paths(&self) -> Vec<Path> {
        fn walk(set: &FieldSet, path: &mut Path, paths: &mut Vec<Path>) {
            if set.is_member {
                paths.push(path.clone());
            }
            for (part, below) in &set.children {
                path.push(part.clone());
                walk(below, path, paths);
                path.pop();
            }
        }
        let mut paths = Vec::new();
        walk(self, &mut Path::new(), &mut paths);
        paths
    }
}

/// What a write has changed.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Changes {
    /// The fields that are new or have another value.
    pub(crate) set: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Changes {
    /// Compares two states of an object.
    pub(crate) fn of_object(before: &Content, after: &Content, lists: &KeyedLists) -> Self {
        let mut changes = Self::default();
        let [old, new] = [before, after].map(|object| fields_of(object, ""));
        changes.add_children(Some(&old), Some(&new), lists);
        changes
    }

    /// Compares two states of a field. `None` is an absent one.
    fn between(
        before: Option<&Value>,
        after: Option<&Value>,
        lists: &KeyedLists,
        path: &str,
    ) -> Self {
        let mut changes = Self::default();
        // A null is an absent field.
        let is_present = |value: &&Value| !value.is_null();
        let (before, after) = (before.filter(is_present), after.filter(is_present));
        if before == after {
            return changes;
        }
        let [old, new] = [before, after].map(|value| parts_of(value?, lists, path));
        changes.add_children(old.as_ref(), new.as_ref(), lists);
        // A map with other fields is the same map. A leaf with another value is set.
        let is_leaf = old.is_none() || new.is_none();
        changes.set.is_member = after.is_some() && is_leaf;
        changes.removed.is_member = before.is_some() && after.is_none();
        changes
    }

    fn add_children(
        &mut self,
        old: Option<&Parts<'_>>,
        new: Option<&Parts<'_>>,
        lists: &KeyedLists,
    ) {
        for (part, (path, value)) in new.into_iter().flatten() {
            let before = old.and_then(|old| old.get(part));
            let before = before.map(|(_, value)| *value);
            let below = Self::between(before, Some(value), lists, path);
            self.set.insert(part.clone(), below.set);
            self.removed.insert(part.clone(), below.removed);
        }
        for (part, (path, value)) in old.into_iter().flatten() {
            if new.is_none_or(|new| !new.contains_key(part)) {
                let below = Self::between(Some(value), None, lists, path);
                self.removed.insert(part.clone(), below.removed);
            }
        }
    }

    /// Moves the changes of a child of the root.
    pub(crate) fn take(&mut self, part: &str) -> Self {
        let mut taken = Self::default();
        for (from, to) in [
            (&mut self.set, &mut taken.set),
            (&mut self.removed, &mut taken.removed),
        ] {
            to.insert(part.to_owned(), from.take_child(part));
        }
        taken
    }
}

/// The children of a field by their names in `fieldsV1`, each with its path in the schema.
type Parts<'a> = BTreeMap<String, (String, &'a Value)>;

fn fields_of<'a>(fields: &'a Content, path: &str) -> Parts<'a> {
    let fields = fields.iter();
    fields
        .map(|(name, value)| (format!("f:{name}"), (child(path, name), value)))
        .collect()
}

/// Returns the children of a map, of a keyed list and of a set. `None` for a leaf, and for a list
/// with an item without a key or with the key of another one, which is a leaf then.
fn parts_of<'a>(value: &'a Value, lists: &KeyedLists, path: &str) -> Option<Parts<'a>> {
    match value {
        Value::Object(fields) => Some(fields_of(fields, path)),
        Value::Array(items) => {
            let mut parts = Parts::new();
            for item in items {
                let part = item_part(item, lists, path)?;
                if parts.insert(part, (path.to_owned(), item)).is_some() {
                    return None;
                }
            }
            Some(parts)
        }
        _ => None,
    }
}

/// Returns the name of a list item in `fieldsV1`, or `None` if the items have no owners of their own
/// or this one has no key.
pub(crate) fn item_part(item: &Value, lists: &KeyedLists, path: &str) -> Option<String> {
    if lists.is_set(path) {
        let is_scalar = !item.is_object() && !item.is_array();
        return is_scalar.then(|| format!("v:{item}"));
    }
    Some(key_segment(key_of(item, lists.keys(path)?)?))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn between(before: &Value, after: &Value) -> [Value; 2] {
        let lists = KeyedLists::conditions().and_metadata();
        let object = |value: &Value| value.as_object().unwrap().clone();
        let changes = Changes::of_object(&object(before), &object(after), &lists);
        [changes.set.to_json(), changes.removed.to_json()]
    }

    #[test]
    fn changes_have_leaves_and_new_maps() {
        let before = json!({"a": {"b": 1, "c": 1, "gone": {"x": 1}}, "same": [1], "list": [1]});
        let after = json!({"a": {"b": 2, "c": 1, "new": {"x": {}, "y": null}}, "same": [1], "list": [1, 2]});
        let set = json!({"f:a": {"f:b": {}, "f:new": {".": {}, "f:x": {}}}, "f:list": {}});
        let removed = json!({"f:a": {"f:gone": {".": {}, "f:x": {}}}});
        assert_eq!(between(&before, &after), [set, removed]);
        assert_eq!(between(&before, &before), [json!({}), json!({})]);
    }

    #[test]
    fn items_of_keyed_lists_and_sets_change_one_by_one() {
        let condition = |name: &str, status: &str| json!({"type": name, "status": status});
        let object = |finalizers: Value, conditions: Value| json!({"metadata": {"finalizers": finalizers}, "status": {"conditions": conditions}});
        let before = object(
            json!(["a", "b"]),
            json!([condition("A", "1"), condition("B", "1")]),
        );
        let after = object(
            json!(["b", "c"]),
            json!([condition("B", "2"), condition("C", "1")]),
        );
        let keyed = |name: &str| format!("k:{{\"type\":\"{name}\"}}");
        let whole = json!({".": {}, "f:type": {}, "f:status": {}});
        let set = json!({
            "f:metadata": {"f:finalizers": {"v:\"c\"": {}}},
            "f:status": {"f:conditions": {keyed("B"): {"f:status": {}}, keyed("C"): whole}},
        });
        let removed = json!({
            "f:metadata": {"f:finalizers": {"v:\"a\"": {}}},
            "f:status": {"f:conditions": {keyed("A"): whole}},
        });
        assert_eq!(between(&before, &after), [set, removed]);
        // A list with the same key twice is a leaf.
        let twice = object(json!(["a", "a"]), json!([{"status": "1"}]));
        let leaves = json!({"f:metadata": {"f:finalizers": {}}, "f:status": {"f:conditions": {}}});
        assert_eq!(
            between(&json!({"metadata": {}, "status": {}}), &twice)[0],
            leaves
        );
    }

    #[test]
    fn map_and_its_fields_are_separate_members() {
        let tree = json!({"f:a": {".": {}, "f:x": {}, "f:y": {}}, "f:b": {"f:z": {}}});
        let mut set = FieldSet::of_object(&tree);
        assert_eq!(set.to_json(), tree);
        assert_eq!(set.paths().len(), 4);
        let path = |path: &str| path.split('/').map(str::to_owned).collect::<Path>();
        assert!(set.contains(&path("f:a")) && !set.contains(&path("f:b")));
        assert!(set.contains(&path("f:b/f:z")) && !set.contains(&path("f:b/f:z/f:w")));
        assert!(!set.remove(&FieldSet::of_object(&json!({"f:b": {}, "f:c": {}}))));
        assert!(set.remove(&FieldSet::of_object(
            &json!({"f:a": {}, "f:b": {"f:z": {}}})
        )));
        assert_eq!(set.to_json(), json!({"f:a": {"f:x": {}, "f:y": {}}}));
        set.add(&FieldSet::of_object(
            &json!({"f:a": {"f:x": {"f:w": {}}}, "f:d": {}}),
        ));
        let tree = json!({"f:a": {"f:x": {".": {}, "f:w": {}}, "f:y": {}}, "f:d": {}});
        assert_eq!(set.to_json(), tree);
        assert!(FieldSet::of_object(&json!({})).is_empty());
    }
}

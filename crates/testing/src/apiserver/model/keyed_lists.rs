//! Lists whose items have a key, such as the conditions of a status, and sets, such as the
//! finalizers. Server-side apply merges these lists item by item, and strategic merge patches those
//! with a key.

use serde_json::{Map, Value, json};

/// The lists of a resource whose items have owners of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct KeyedLists {
    /// The paths of the lists, with the fields that are the key of an item.
    keyed: Vec<(String, Vec<String>)>,
    /// The paths of the sets, whose items are scalars and their own keys.
    sets: Vec<String>,
}

impl KeyedLists {
    /// The conditions, with their type as the key.
    pub(crate) fn conditions() -> Self {
        Self {
            keyed: vec![("status.conditions".to_owned(), vec!["type".to_owned()])],
            sets: Vec::new(),
        }
    }

    /// Adds the owner references, which every kind has.
    pub(crate) fn and_owners(mut self) -> Self {
        let key = vec!["uid".to_owned()];
        self.keyed
            .push(("metadata.ownerReferences".to_owned(), key));
        self
    }

    /// Adds the lists in the metadata, which every kind has.
    pub(crate) fn and_metadata(mut self) -> Self {
        self.sets.push("metadata.finalizers".to_owned());
        self.and_owners()
    }

    /// Returns the lists of `x-kubernetes-list-type: map` and `set` in the schema of a definition.
    pub(crate) fn of_schema(schema: &Value) -> Self {
        let mut lists = Self::default();
        lists.add_schema(schema, "");
        lists
    }

    fn add_schema(&mut self, schema: &Value, path: &str) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            self.add_schema(property, &child(path, name));
        }
        if schema["x-kubernetes-list-type"] == "map" {
            let keys = schema["x-kubernetes-list-map-keys"].as_array();
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            self.keyed
                .push((path.to_owned(), keys.map(str::to_owned).collect()));
        }
        if schema["x-kubernetes-list-type"] == "set" {
            self.sets.push(path.to_owned());
        }
        if schema["items"].is_object() {
            self.add_schema(&schema["items"], path);
        }
    }

    /// Returns the keys of the list at this path, if it is a keyed list. The names in the path are
    /// separated by dots, without the keys of items.
    pub(crate) fn keys(&self, path: &str) -> Option<&[String]> {
        let found = self.keyed.iter().find(|(list, _)| list == path);
        found.map(|(_, keys)| &**keys)
    }

    /// Whether the list at this path is a set.
    pub(crate) fn is_set(&self, path: &str) -> bool {
        self.sets.iter().any(|set| set == path)
    }
}

/// Returns the path of a field.
pub(crate) fn child(path: &str, name: &str) -> String {
    match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    }
}

/// Returns the key fields of an item, or `None` if it has none of them.
pub(crate) fn key_of(item: &Value, keys: &[String]) -> Option<Map<String, Value>> {
    let fields = item.as_object()?;
    let entry = |key: &String| Some((key.clone(), fields.get(key)?.clone()));
    let key: Map<_, _> = keys.iter().filter_map(entry).collect();
    (!key.is_empty()).then_some(key)
}

/// Whether the item has these key fields.
pub(crate) fn has_key(item: &Value, key: &Map<String, Value>) -> bool {
    key.iter()
        .all(|(name, value)| item.get(name) == Some(value))
}

/// Merges `wanted` into `live`: objects field by field, keyed lists and sets item by item. New items
/// of a list come last. Other values are replaced.
pub(crate) fn merge(live: &mut Value, wanted: Value, lists: &KeyedLists, path: &str) {
    match (live, wanted, lists.keys(path)) {
        (Value::Object(live), Value::Object(wanted), _) => {
            for (name, value) in wanted {
                let path = child(path, &name);
                merge(live.entry(name).or_insert(Value::Null), value, lists, &path);
            }
        }
        (Value::Array(live), Value::Array(wanted), Some(keys)) => {
            for item in wanted {
                let key = key_of(&item, keys).unwrap_or_default();
                match live.iter_mut().find(|live| has_key(live, &key)) {
                    Some(live) => merge(live, item, lists, path),
                    None => live.push(item),
                }
            }
        }
        (Value::Array(live), Value::Array(wanted), None) if lists.is_set(path) => {
            for item in wanted {
                if !live.contains(&item) {
                    live.push(item);
                }
            }
        }
        (live, wanted, _) => *live = wanted,
    }
}

/// Returns the key in the format of `fieldsV1`.
pub(crate) fn key_segment(key: Map<String, Value>) -> String {
    format!("k:{}", json!(key))
}

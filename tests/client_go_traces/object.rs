//! Shared parts of all suites: objects, transforms, index functions and the format of results.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_informer::object::{Accessor, KeyError, ResourceVersion};
use k8s_informer::store::{IndexError, IndexFunc, Indexers, StoreError, Transform};
use k8s_informer::{Deleted, Object};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Obj {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) ns: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) rv: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) uid: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) val: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) unkeyable: bool,
}

impl Object for Obj {
    fn name(&self) -> &str {
        &self.name
    }

    fn namespace(&self) -> &str {
        &self.ns
    }

    fn uid(&self) -> &str {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.rv
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key).map(String::as_str)
    }
}

pub(crate) fn accessor() -> Accessor<Obj> {
    Accessor::new(|object: &Obj| match object.unkeyable {
        true => Err(KeyError::new("no metadata")),
        false => Ok(k8s_informer::object::meta_namespace_key(object)),
    })
    .with_resource_version(|object| (!object.unkeyable).then_some(object.rv.as_str()))
}

pub(crate) fn obj(value: &Value) -> Arc<Obj> {
    Arc::new(Obj::deserialize(value).unwrap())
}

pub(crate) fn objs(value: &Value) -> Vec<Arc<Obj>> {
    value.as_array().unwrap().iter().map(obj).collect()
}

pub(crate) fn tombstone(value: &Value) -> Deleted<Obj> {
    let last_known = (!value["obj"].is_null()).then(|| obj(&value["obj"]));
    Deleted::FinalStateUnknown {
        key: text(&value["key"]).into(),
        last_known,
    }
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// Returns the resource version of a step.
pub(crate) fn version(step: &Value) -> Option<ResourceVersion> {
    ResourceVersion::new(text(&step["rv"]))
}

/// Returns a version as client-go writes it: empty if there is none.
pub(crate) fn version_text(version: Option<ResourceVersion>) -> String {
    version.map_or(String::new(), |version| version.to_string())
}

pub(crate) fn transform(name: &Value) -> Option<Transform<Obj>> {
    match name.as_str().unwrap_or("none") {
        "none" => None,
        "tag" => Some(Transform::in_place(|object: &mut Obj| {
            if !object.val.starts_with("t:") {
                object.val.insert_str(0, "t:");
            }
        })),
        "fail" => Some(Transform::new(|object: Arc<Obj>| {
            match object.val.as_str() {
                "bad" => Err("bad"),
                _ => Ok(object),
            }
        })),
        "unkey" => Some(Transform::in_place(|object: &mut Obj| {
            object.unkeyable |= object.val == "strip";
        })),
        other => panic!("transform {other}"),
    }
}

pub(crate) fn index_func(name: &str) -> IndexFunc<Obj> {
    match name {
        "ns" => IndexFunc::new(|object: &Obj| vec![object.ns.clone()]),
        "val" => IndexFunc::new(|object: &Obj| vec![object.val.clone()]),
        "labels" => IndexFunc::new(|object: &Obj| object.labels.values().cloned().collect()),
        "fail" => IndexFunc::fallible(|object: &Obj| match object.val.as_str() {
            "bad" => Err("bad"),
            value => Ok(vec![value.to_owned()]),
        }),
        other => panic!("index function {other}"),
    }
}

pub(crate) fn indexers(names: &Value) -> Indexers<Obj> {
    names
        .as_array()
        .into_iter()
        .flatten()
        .fold(Indexers::new(), |indexers, name| {
            indexers.with(text(name), index_func(text(name)))
        })
}

pub(crate) fn sorted(mut objects: Vec<Arc<Obj>>) -> Value {
    objects.sort_by_cached_key(|object| {
        (
            k8s_informer::object::meta_namespace_key(&**object),
            object.rv.clone(),
        )
    });
    json!(objects.iter().map(|object| &**object).collect::<Vec<_>>())
}

/// Returns keys or values in the order of their texts.
pub(crate) fn keys(mut keys: Vec<impl AsRef<str> + Ord>) -> Value {
    keys.sort();
    json!(keys.iter().map(AsRef::as_ref).collect::<Vec<_>>())
}

pub(crate) fn found(object: Option<Arc<Obj>>) -> Value {
    match object {
        None => json!({"exists": false}),
        Some(object) => json!({"exists": true, "obj": *object}),
    }
}

pub(crate) fn class(error: &StoreError) -> &'static str {
    match error {
        StoreError::Key(_) => "key",
        StoreError::Transform { .. } => "transform",
        StoreError::Index { .. } => "index",
        _ => "other",
    }
}

pub(crate) fn done(result: Result<(), StoreError>) -> Value {
    match result {
        Ok(()) => json!({}),
        Err(error) => json!({"error": class(&error)}),
    }
}

pub(crate) fn index_answer<R>(
    field: &str,
    result: Result<R, IndexError>,
    write: impl FnOnce(R) -> Value,
) -> Value {
    match result {
        Ok(found) => json!({field: write(found)}),
        Err(IndexError::NoIndex { .. }) => json!({"error": "no_index"}),
        Err(_) => json!({"error": "index"}),
    }
}

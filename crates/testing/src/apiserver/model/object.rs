//! One object at one version, and its metadata.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::resources::ApiResource;
use super::schema;

/// The content of an object without `kind` and `apiVersion`, which its resource provides.
pub(crate) type Content = Map<String, Value>;

/// The key of an object, which sorts as in etcd: the prefix of its
/// [collection](ApiResource::prefix) in its namespace, and its name.
pub(crate) type Key = Arc<str>;

/// An object at one resourceVersion. It is immutable, so lists and watches share it.
#[derive(Debug)]
pub(crate) struct Object {
    content: Content,
    /// `content` as JSON without the opening brace. Serialized once for all readers.
    tail: String,
}

/// The requested representation of an object.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Form {
    Full,
    /// `PartialObjectMetadata`: only `metadata`.
    Metadata,
}

impl Object {
    pub(crate) fn new(content: Content) -> Self {
        // A map of JSON values with string keys always serializes, and its first byte is the brace.
        let mut tail = serde_json::to_string(&content).unwrap_or_else(|_| "{}".to_owned());
        tail.remove(0);
        Self { content, tail }
    }

    pub(crate) fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the content in the form of this resource, if the stored form is another one.
    fn converted(&self, resource: &ApiResource) -> Option<Content> {
        schema::is_converted(resource).then(|| schema::encode(&self.content))
    }

    /// Returns the content as clients of this resource see it.
    pub(crate) fn content_of(&self, resource: &ApiResource) -> Content {
        self.converted(resource)
            .unwrap_or_else(|| self.content.clone())
    }

    /// Returns the whole object, including `kind` and `apiVersion`.
    pub(crate) fn to_value(&self, resource: &ApiResource) -> Value {
        let mut content = self.content_of(resource);
        content.insert("kind".to_owned(), resource.kind.clone().into());
        content.insert("apiVersion".to_owned(), resource.api_version().into());
        Value::Object(content)
    }

    /// Writes the object as JSON, with `kind` and `apiVersion` first.
    pub(crate) fn write(&self, resource: &ApiResource, form: Form, out: &mut Vec<u8>) {
        let (kind, version) = match form {
            Form::Full => (resource.kind.as_str(), resource.api_version()),
            Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
        };
        out.extend_from_slice(format!(r#"{{"kind":"{kind}","apiVersion":"{version}","#).as_bytes());
        match (form, self.content.get("metadata")) {
            (Form::Metadata, Some(metadata)) => {
                out.extend_from_slice(format!(r#""metadata":{metadata}}}"#).as_bytes());
            }
            _ => self.write_tail(resource, out),
        }
    }

    fn write_tail(&self, resource: &ApiResource, out: &mut Vec<u8>) {
        match self.converted(resource) {
            Some(content) => out.extend_from_slice(Self::new(content).tail.as_bytes()),
            None => out.extend_from_slice(self.tail.as_bytes()),
        }
    }

    /// Writes the object as an item of a list. Items of built-in resources do not repeat `kind` and
    /// `apiVersion`.
    pub(crate) fn write_item(&self, resource: &ApiResource, form: Form, out: &mut Vec<u8>) {
        if form == Form::Full && !resource.custom {
            out.push(b'{');
            self.write_tail(resource, out);
        } else {
            self.write(resource, form, out);
        }
    }

    /// Returns the same object with another resourceVersion.
    pub(crate) fn at_version(&self, version: u64) -> Self {
        let mut content = self.content.clone();
        set_meta(&mut content, "resourceVersion", version.to_string());
        Self::new(content)
    }
}

/// Returns a string field of `metadata`, or an empty string if it is absent.
pub(crate) fn meta_str<'a>(content: &'a Content, field: &str) -> &'a str {
    content
        .get("metadata")
        .and_then(|m| m.get(field))
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns a field of `metadata`, unless it is absent or null.
pub(crate) fn meta<'a>(content: &'a Content, field: &str) -> Option<&'a Value> {
    content
        .get("metadata")
        .and_then(|m| m.get(field))
        .filter(|value| !value.is_null())
}

/// Sets a field of `metadata`. Creates `metadata` if necessary.
pub(crate) fn set_meta(content: &mut Content, field: &str, value: impl Into<Value>) {
    let metadata = content
        .entry("metadata")
        .or_insert_with(|| Value::Object(Map::new()));
    if let Value::Object(metadata) = metadata {
        metadata.insert(field.to_owned(), value.into());
    }
}

/// Sets a list in `metadata`, or removes it if it is empty.
pub(crate) fn set_list(content: &mut Content, field: &str, items: Vec<Value>) {
    if items.is_empty() {
        remove_meta(content, field);
    } else {
        set_meta(content, field, items);
    }
}

pub(crate) fn finalizers(content: &Content) -> Vec<String> {
    let finalizers = meta(content, "finalizers").and_then(Value::as_array);
    let finalizers = finalizers.into_iter().flatten();
    finalizers
        .filter_map(Value::as_str)
        .map(str::to_owned)
        .collect()
}

pub(crate) fn remove_meta(content: &mut Content, field: &str) {
    take_meta(content, field);
}

/// Removes a field of `metadata`. Returns it, unless it was absent or null.
pub(crate) fn take_meta(content: &mut Content, field: &str) -> Option<Value> {
    let metadata = content.get_mut("metadata")?.as_object_mut()?;
    metadata.remove(field).filter(|value| !value.is_null())
}

/// Removes empty lists and maps from the metadata: they are the same as absent ones.
pub(crate) fn remove_empty_meta(content: &mut Content) {
    for field in [
        "finalizers",
        "labels",
        "annotations",
        "ownerReferences",
        "managedFields",
    ] {
        let empty = match meta(content, field) {
            None => true,
            Some(Value::Array(items)) => items.is_empty(),
            Some(Value::Object(fields)) => fields.is_empty(),
            Some(_) => false,
        };
        if empty {
            remove_meta(content, field);
        }
    }
}

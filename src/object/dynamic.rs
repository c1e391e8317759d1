use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{GroupVersionKind, Object};
use crate::decode_error::explained;
use crate::stack;

/// An object of any kind, as its JSON tree: nothing of it is lost. client-go's `Unstructured`.
///
/// It costs several times the memory of a struct with just the fields that you need, see
/// [`impl_object!`](crate::impl_object).
///
/// ```
/// use k8s_informer::{DynamicObject, Object};
///
/// let object: DynamicObject = serde_json::from_str(
///     r#"{"kind": "Widget", "metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"size": 3}}"#,
/// )?;
/// assert_eq!((object.kind(), object.name(), object.label("app")), ("Widget", "a", Some("x")));
/// assert_eq!(object.pointer("/spec/size").and_then(|size| size.as_u64()), Some(3));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
#[doc(alias = "Unstructured")]
pub struct DynamicObject(Map<String, Value>);

impl DynamicObject {
    /// `apiVersion`, empty if absent. What comes from a list has it from there if it doesn't say it itself.
    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    /// `kind`, empty if absent, as [`api_version`](Self::api_version).
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// What it says it is, of which any part may be empty: what
    /// `Client::discover_kind` finds the resource of. client-go's `Unstructured.GroupVersionKind`.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::object::GroupVersionKind;
    ///
    /// let web = r#"{"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}}"#;
    /// let web: DynamicObject = serde_json::from_str(web)?;
    /// assert_eq!(web.group_version_kind(), GroupVersionKind::new("apps", "v1", "Deployment"));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn group_version_kind(&self) -> GroupVersionKind {
        GroupVersionKind::of(self.api_version(), self.kind())
    }

    /// A field of the top level: `spec`, `status`, `data`.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// Any value by JSON pointer (RFC 6901): `/spec/containers/0/image`.
    pub fn pointer(&self, pointer: &str) -> Option<&Value> {
        let mut rest = pointer.strip_prefix('/')?.splitn(2, '/');
        let field = rest.next()?.replace("~1", "/").replace("~0", "~");
        let value = self.0.get(&field)?;
        match rest.next() {
            None => Some(value),
            Some(inner) => value.pointer(&format!("/{inner}")),
        }
    }

    /// The whole tree.
    pub fn as_map(&self) -> &Map<String, Value> {
        &self.0
    }

    /// The whole tree, to be changed: by a transform, for example.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::store::Transform;
    ///
    /// let transform = Transform::in_place(|object: &mut DynamicObject| {
    ///     object.as_map_mut().remove("spec");
    /// });
    /// let pod = serde_json::from_str::<DynamicObject>(r#"{"metadata": {"name": "a"}, "spec": {}}"#)?;
    /// assert!(transform.apply(std::sync::Arc::new(pod))?.get("spec").is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn as_map_mut(&mut self) -> &mut Map<String, Value> {
        &mut self.0
    }

    /// Takes the tree out.
    pub fn into_map(self) -> Map<String, Value> {
        self.0
    }

    /// Decodes the object into a type: on a thread with more stack, if it is nested deeply.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let pod = r#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "app", "ports": "hunter2"}]}}"#;
    /// let error = serde_json::from_str::<DynamicObject>(pod)?.decode::<Pod>().unwrap_err();
    /// assert_eq!(error.to_string(), "spec.containers[0].ports: invalid type: string, expected a sequence");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The object does not have the type's form. The message has the path of the field, but no values. The keys of maps
    /// are shown as `[…]`, and the text of a custom deserializer is hidden.
    pub fn decode<T: DeserializeOwned + Send>(&self) -> Result<T, serde_json::Error> {
        let decode = || T::deserialize(Value::Object(self.0.clone()));
        let decoded = match self
            .0
            .values()
            .all(|value| is_within(value, stack::SHALLOW))
        {
            true => decode(),
            false => stack::roomy(decode).unwrap_or_else(|error| Err(stack::no_thread(&error))),
        };
        decoded.map_err(|error| match serde_json::to_vec(&self.0) {
            Ok(json) => explained::<T>(&json, error),
            Err(_) => error,
        })
    }

    fn text(&self, field: &str) -> &str {
        self.0
            .get(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }

    fn metadata(&self, field: &str) -> Option<&Value> {
        self.0.get("metadata")?.get(field)
    }

    fn metadata_text(&self, field: &str) -> &str {
        self.metadata(field)
            .and_then(Value::as_str)
            .unwrap_or_default()
    }
}

/// Whether it is nested no deeper than this.
fn is_within(value: &Value, levels: usize) -> bool {
    let below = |value| {
        levels
            .checked_sub(1)
            .is_some_and(|levels| is_within(value, levels))
    };
    match value {
        Value::Array(values) => values.iter().all(below),
        Value::Object(fields) => fields.values().all(below),
        _ => true,
    }
}

impl From<Map<String, Value>> for DynamicObject {
    fn from(map: Map<String, Value>) -> Self {
        Self(map)
    }
}

impl Object for DynamicObject {
    fn name(&self) -> &str {
        self.metadata_text("name")
    }

    fn namespace(&self) -> &str {
        self.metadata_text("namespace")
    }

    fn uid(&self) -> &str {
        self.metadata_text("uid")
    }

    fn resource_version(&self) -> &str {
        self.metadata_text("resourceVersion")
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.metadata("labels")?.get(key)?.as_str()
    }

    fn set_type_meta(&mut self, api_version: &str, kind: &str) {
        if !self.api_version().is_empty() || !self.kind().is_empty() {
            return;
        }
        for (field, value) in [("apiVersion", api_version), ("kind", kind)] {
            if !value.is_empty() {
                self.0.insert(field.to_owned(), value.into());
            }
        }
    }
}

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::pointer::at_pointer;
use super::{GroupVersionKind, Object};
use crate::decode_error::explained;
use crate::stack;

/// An object of any kind, with all of its fields. client-go's `Unstructured`.
///
/// [`read`](Self::read) decodes one place, [`decode`](Self::decode) the whole object, and [`edit`](Self::edit) changes
/// it. [`Compact`](super::Compact) has the same methods for reading.
///
/// It takes several times the memory of a struct with just the fields that you need, see
/// [`impl_object!`](crate::impl_object).
///
/// ```
/// use k8s_informer::{DynamicObject, Object};
///
/// let object: DynamicObject = serde_json::from_str(
///     r#"{"kind": "Widget", "metadata": {"name": "a", "labels": {"app": "x"}}, "spec": {"size": 3}}"#,
/// )?;
/// assert_eq!((object.kind(), object.name(), object.label("app")), ("Widget", "a", Some("x")));
/// assert_eq!(object.read("/spec/size")?, Some(3));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(transparent)]
#[doc(alias = "Unstructured")]
pub struct DynamicObject(Map<String, Value>);

impl DynamicObject {
    /// Returns `apiVersion`, empty if absent. An item of a list that has none gets it from the list.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    ///
    /// let widget: DynamicObject = serde_json::from_str(r#"{"apiVersion": "example.com/v1"}"#)?;
    /// assert_eq!((widget.api_version(), widget.kind()), ("example.com/v1", ""));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn api_version(&self) -> &str {
        self.text("apiVersion")
    }

    /// Returns `kind`, empty if absent, like [`api_version`](Self::api_version).
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    ///
    /// let widget: DynamicObject = serde_json::from_str(r#"{"kind": "Widget"}"#)?;
    /// assert_eq!(widget.kind(), "Widget");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn kind(&self) -> &str {
        self.text("kind")
    }

    /// Returns group, version and kind, any of which may be empty. `Client::discover_kind` finds the resource of it.
    /// client-go's `Unstructured.GroupVersionKind`.
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

    /// Returns `metadata.labels`, in no particular order.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    ///
    /// let pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"labels": {"app": "web", "tier": "1"}}}"#)?;
    /// assert_eq!(pod.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "1")]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        let labels = self.metadata("labels").and_then(Value::as_object);
        labels
            .into_iter()
            .flatten()
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
    }

    /// Decodes the value at a JSON pointer (RFC 6901), and nothing else. Returns `None` if the value is absent or
    /// `null`: to Kubernetes, these are the same. The empty pointer is the whole object.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    ///
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::object::FullObjectMeta;
    ///
    /// let pod: DynamicObject = serde_json::from_str(
    ///     r#"{"metadata": {"name": "a", "annotations": {"example.com/size": "3"}, "finalizers": ["example.com/x"]},
    ///         "spec": {"priority": 7, "containers": [{"name": "app", "image": "app:v1"}], "hostname": null}}"#,
    /// )?;
    /// assert_eq!(pod.read::<String>("/spec/containers/0/image")?.as_deref(), Some("app:v1"));
    /// assert_eq!(pod.read::<String>("/metadata/annotations/example.com~1size")?.as_deref(), Some("3"));
    /// assert_eq!(pod.read::<u32>("/spec/priority")?, Some(7));
    /// assert_eq!(pod.read::<String>("/spec/hostname")?, None);
    /// assert_eq!(pod.read::<String>("/spec/containers/1/image")?, None);
    /// let error = pod.read::<String>("/spec/priority").unwrap_err().to_string();
    /// assert!(error.starts_with("/spec/priority: invalid type: integer"), "{error}");
    ///
    /// // All of the metadata, or all annotations.
    /// let metadata: FullObjectMeta = pod.read("/metadata")?.unwrap_or_default();
    /// assert_eq!(metadata.finalizers, ["example.com/x"]);
    /// let annotations: BTreeMap<String, String> = pod.read("/metadata/annotations")?.unwrap_or_default();
    /// assert_eq!(annotations.len(), 1);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The value does not have the type's form. The message starts with the pointer and has the path from there, as
    /// with [`decode`](Self::decode).
    pub fn read<T: DeserializeOwned + Send>(
        &self,
        pointer: &str,
    ) -> Result<Option<T>, serde_json::Error> {
        if pointer.is_empty() {
            return self.decode().map(Some);
        }
        match self.find(pointer) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => decoded(value)
                .map(Some)
                .map_err(|error| at_pointer(pointer, error)),
        }
    }

    fn find(&self, pointer: &str) -> Option<&Value> {
        let mut rest = pointer.strip_prefix('/')?.splitn(2, '/');
        let field = rest.next()?.replace("~1", "/").replace("~0", "~");
        let value = self.0.get(&field)?;
        match rest.next() {
            None => Some(value),
            Some(inner) => value.pointer(&format!("/{inner}")),
        }
    }

    /// Returns a copy of all fields, as a tree.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use serde_json::json;
    ///
    /// let pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "a"}, "spec": {"priority": 7}}"#)?;
    /// assert_eq!(pod.to_map()["spec"], json!({"priority": 7}));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn to_map(&self) -> Map<String, Value> {
        self.0.clone()
    }

    /// Changes the fields, as a tree. Returns the result of `change`.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::store::Transform;
    /// use serde_json::{Value, json};
    ///
    /// let mut pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "a"}, "spec": {"priority": 7}}"#)?;
    /// let old = pod.edit(|fields| std::mem::replace(&mut fields["spec"]["priority"], json!(8)));
    /// assert_eq!((old, pod.read("/spec/priority")?), (json!(7), Some(8)));
    ///
    /// // A transform that drops a field.
    /// let transform = Transform::in_place(|object: &mut DynamicObject| {
    ///     object.edit(|fields| fields.remove("spec"));
    /// });
    /// assert_eq!(transform.apply(std::sync::Arc::new(pod))?.read::<Value>("/spec")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn edit<R>(&mut self, change: impl FnOnce(&mut Map<String, Value>) -> R) -> R {
        change(&mut self.0)
    }

    /// Decodes the whole object into a type. An object nested more than 32 levels deep is decoded on a thread of its own,
    /// with a larger stack. [`Compact::decode_as`](super::Compact::decode_as) does the same.
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
        decoded(&self.0)
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

/// Decodes the object or one of its values.
fn decoded<T: DeserializeOwned + Send>(
    value: &(impl Clone + Into<Value> + Serialize),
) -> Result<T, serde_json::Error> {
    let tree = value.clone().into();
    let is_shallow = is_within(&tree, stack::SHALLOW + 1);
    let decode = || T::deserialize(tree);
    let decoded = match is_shallow {
        true => decode(),
        false => stack::roomy(decode).unwrap_or_else(|error| Err(stack::no_thread(&error))),
    };
    decoded.map_err(|error| match serde_json::to_vec(value) {
        Ok(json) => explained::<T>(&json, error),
        Err(_) => error,
    })
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

/// ```
/// use k8s_informer::{DynamicObject, Object};
/// use serde_json::json;
///
/// let fields = serde_json::Map::from_iter([("metadata".to_owned(), json!({"name": "a"}))]);
/// assert_eq!(DynamicObject::from(fields).name(), "a");
/// ```
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

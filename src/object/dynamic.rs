use std::borrow::Cow;
use std::fmt;

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use super::outline::{Field, Outline};
use super::pointer::at_pointer;
use super::{GroupVersionKind, Object};
use crate::base::derive::debug_fields;
use crate::decode_error::{DYNAMIC_OBJECT, TEXT, explained};
use crate::json::stack;
use crate::json::{self, Cursor};

/// An object of any kind with all of its fields.
///
/// It corresponds to client-go's `Unstructured`.
///
/// The object is stored as JSON. Its name, namespace, UID, resource version, `apiVersion`, `kind`
/// and labels are located once, when the object is created. For the other fields, call
/// [`read`](Self::read) to decode one value, [`decode`](Self::decode) to decode the whole object,
/// or [`edit`](Self::edit) to change it. Each call decodes again; decoded values are not kept.
///
/// Creating an object checks the JSON: its syntax, UTF-8, the types of the fields above, and a
/// nesting of at most 127 levels. An object that contains one of these fields twice is rejected. If
/// any other key occurs several times, its last value counts.
///
/// A [`Compact`](super::Compact) wraps a dynamic object and adds a static type. A custom struct
/// with only the fields that you need uses less memory; see [`impl_object!`](crate::impl_object).
///
/// Two objects are equal if they have the same fields. `Debug` shows only the namespace, name,
/// version and size, because the other fields may be secret.
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
#[derive(Clone)]
#[doc(alias = "Unstructured")]
pub struct DynamicObject {
    json: Box<str>,
    outline: Outline,
}

impl DynamicObject {
    /// Creates an object from any value that serializes to a JSON object.
    ///
    /// ```
    /// use k8s_informer::{DynamicObject, Object};
    /// use serde_json::json;
    ///
    /// let widget = DynamicObject::new(&json!({"metadata": {"name": "a"}, "spec": {"size": 3}}))?;
    /// assert_eq!((widget.name(), widget.read("/spec/size")?), ("a", Some(3)));
    /// assert!(DynamicObject::new(&["no object"]).is_err());
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the value does not serialize to a JSON object, or if the object is
    /// rejected for one of the [reasons above](Self).
    pub fn new(object: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Self::from_valid_json(serde_json::to_string(object)?.into())
    }

    fn from_valid_json(json: Box<str>) -> Result<Self, serde_json::Error> {
        let outline = Outline::of(&json)?;
        Ok(Self { json, outline })
    }

    /// Returns the object as JSON.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    ///
    /// let pod: DynamicObject = serde_json::from_str(r#" {"metadata":{"name":"a"}} "#)?;
    /// assert_eq!(pod.json(), r#"{"metadata":{"name":"a"}}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Returns `apiVersion`, which is empty if absent. A list item with neither `apiVersion` nor
    /// `kind` gets both from the list.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    ///
    /// let widget: DynamicObject = serde_json::from_str(r#"{"apiVersion": "example.com/v1"}"#)?;
    /// assert_eq!((widget.api_version(), widget.kind()), ("example.com/v1", ""));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn api_version(&self) -> &str {
        self.outline.text(&self.json, Field::ApiVersion)
    }

    /// Returns `kind`, which is empty if absent. A list item with neither `apiVersion` nor `kind`
    /// gets both from the list.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    ///
    /// let widget: DynamicObject = serde_json::from_str(r#"{"kind": "Widget"}"#)?;
    /// assert_eq!(widget.kind(), "Widget");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn kind(&self) -> &str {
        self.outline.text(&self.json, Field::Kind)
    }

    /// Returns the group, version and kind. Any of them may be empty.
    ///
    /// `Client::discover_kind` finds the resource of this kind. This method corresponds to
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
        self.outline.labels(&self.json)
    }

    /// Decodes only the value at a JSON pointer (RFC 6901).
    ///
    /// Returns `None` if the value is absent or `null`, which mean the same in Kubernetes. The
    /// empty pointer refers to the whole object.
    ///
    /// A `&str` is borrowed from the object, so it cannot be read from a string with escapes.
    /// Names, phases and timestamps have no escapes. For other text, read a `Cow<str>` or a
    /// `String`.
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
    /// assert_eq!(pod.read("/spec/containers/0/image")?, Some("app:v1"));
    /// assert_eq!(pod.read("/metadata/annotations/example.com~1size")?, Some("3"));
    /// assert_eq!(pod.read::<u32>("/spec/priority")?, Some(7));
    /// assert_eq!(pod.read::<&str>("/spec/hostname")?, None);
    /// assert_eq!(pod.read::<&str>("/spec/containers/1/image")?, None);
    /// let error = pod.read::<&str>("/spec/priority").unwrap_err().to_string();
    /// assert!(error.starts_with("/spec/priority: invalid type: integer"), "{error}");
    ///
    /// // Reads the whole metadata, or all annotations.
    /// let metadata: FullObjectMeta = pod.read("/metadata")?.unwrap_or_default();
    /// assert_eq!(metadata.finalizers, ["example.com/x"]);
    /// let annotations: BTreeMap<String, String> = pod.read("/metadata/annotations")?.unwrap_or_default();
    /// assert_eq!(annotations.len(), 1);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the value does not match the type. The message starts with the pointer
    /// and contains the path from there, as with [`decode`](Self::decode). Line and column are
    /// relative to the start of the value.
    pub fn read<'a, T: Deserialize<'a> + Send>(
        &'a self,
        pointer: &str,
    ) -> Result<Option<T>, serde_json::Error> {
        match json::find(&self.json, pointer) {
            None | Some("null") => Ok(None),
            Some(value) => decoded(value)
                .map(Some)
                .map_err(|error| at_pointer(pointer, error)),
        }
    }

    /// Decodes all fields into a tree.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use serde_json::json;
    ///
    /// let pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "a"}, "spec": {"priority": 7}}"#)?;
    /// assert_eq!(pod.to_map()?["spec"], json!({"priority": 7}));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error in these cases:
    ///
    /// - A number is too large for an `f64`.
    /// - A string has an escape that is not a Unicode character.
    /// - The object is deeply nested, and the thread to decode it could not be started.
    pub fn to_map(&self) -> Result<Map<String, Value>, serde_json::Error> {
        self.decode()
    }

    /// Changes the fields and returns the result of `change`.
    ///
    /// This method decodes and encodes the whole object. For a Pod, this costs more than receiving
    /// it from the server. To drop fields in an informer, prefer
    /// [`ReflectorOptions::skip`](crate::reflector::ReflectorOptions::skip) where possible.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::store::Transform;
    /// use serde_json::{Value, json};
    ///
    /// let mut pod: DynamicObject = serde_json::from_str(r#"{"metadata": {"name": "a"}, "spec": {"priority": 7}}"#)?;
    /// let old = pod.edit(|fields| std::mem::replace(&mut fields["spec"]["priority"], json!(8)))?;
    /// assert_eq!((old, pod.read("/spec/priority")?), (json!(7), Some(8)));
    /// assert!(pod.edit(|fields| fields["metadata"] = json!("no object")).is_err());
    ///
    /// // This transform drops a field.
    /// let transform = Transform::try_in_place(|object: &mut DynamicObject| {
    ///     object.edit(|fields| drop(fields.remove("spec")))
    /// });
    /// assert_eq!(transform.apply(std::sync::Arc::new(pod))?.read::<Value>("/spec")?, None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns the errors of [`to_map`](Self::to_map), and those of [`new`](Self::new) for the
    /// changed fields. After an error, the object is unchanged.
    pub fn edit<R>(
        &mut self,
        change: impl FnOnce(&mut Map<String, Value>) -> R,
    ) -> Result<R, serde_json::Error> {
        let mut fields = self.to_map()?;
        let result = change(&mut fields);
        *self = Self::new(&fields)?;
        Ok(result)
    }

    /// Decodes the whole object into a type, which may borrow from the object.
    ///
    /// An object with more than 32 nested levels is decoded on a separate thread with a larger
    /// stack.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// let pod = r#"{"metadata": {"name": "a"}, "spec": {"containers": [{"name": "app", "ports": "hunter2"}]}}"#;
    /// let error = serde_json::from_str::<DynamicObject>(pod)?.decode::<Pod>().unwrap_err();
    /// assert_eq!(error.to_string(), "spec.containers[0].ports: invalid type: string, expected a sequence at line 1 column 86");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Returns an error if the object does not match the type. The message contains the path of the
    /// field but no values. It shows the keys of maps as `[…]` and hides the text of custom
    /// deserializers.
    pub fn decode<'a, T: Deserialize<'a> + Send>(&'a self) -> Result<T, serde_json::Error> {
        decoded(&self.json)
    }
}

fn decoded<'a, T: Deserialize<'a> + Send>(json: &'a str) -> Result<T, serde_json::Error> {
    stack::decoded(json.as_bytes(), || serde_json::from_str(json))
        .map_err(|error| explained::<T>(json.as_bytes(), error))
}

impl Object for DynamicObject {
    fn name(&self) -> &str {
        self.outline.text(&self.json, Field::Name)
    }

    fn namespace(&self) -> &str {
        self.outline.text(&self.json, Field::Namespace)
    }

    fn uid(&self) -> &str {
        self.outline.text(&self.json, Field::Uid)
    }

    fn resource_version(&self) -> &str {
        self.outline.text(&self.json, Field::ResourceVersion)
    }

    fn label(&self, key: &str) -> Option<&str> {
        self.labels()
            .find_map(|(label, value)| (label == key).then_some(value))
    }

    fn set_type_meta(&mut self, api_version: &str, kind: &str) {
        if !self.api_version().is_empty() || !self.kind().is_empty() {
            return;
        }
        // API servers write the fields in this order, so the text is the same as in a watch.
        let given = [("kind", kind), ("apiVersion", api_version)];
        let text: String = given
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(field, value)| format!("\"{field}\":{},", Value::from(*value)))
            .collect();
        if text.is_empty() || u32::try_from(self.json.len() + text.len()).is_err() {
            return;
        }
        if let Some(outline) = self.outline.with_type_meta(&self.json, &text) {
            let mut json = String::from(std::mem::take(&mut self.json));
            json.reserve_exact(text.len());
            json.insert_str(1, &text);
            (self.json, self.outline) = (json.into_boxed_str(), outline);
            return;
        }
        // Otherwise write the object again: the fields are present but empty, the object has no
        // fields, or a located field has escapes.
        let mut json = format!("{{{text}");
        let mut cursor = Cursor::new(self.json.as_bytes());
        cursor.enter(b'{');
        while let Some(Some(key)) = cursor.key()
            && let Some(value) = cursor.value()
        {
            let is_given = |(field, value): &(&str, &str)| !value.is_empty() && key.is(field);
            if !given.iter().any(is_given) {
                json.push_str(&self.json[key.start..value.end]);
                json.push(',');
            }
        }
        json.pop();
        json.push('}');
        if let Ok(new) = Self::from_valid_json(json.into_boxed_str()) {
            *self = new;
        }
    }
}

impl<'de> Deserialize<'de> for DynamicObject {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Marked;
        struct Text;

        impl<'de> Visitor<'de> for Marked {
            type Value = DynamicObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<DynamicObject, D::Error> {
                deserializer.deserialize_newtype_struct(TEXT, Text)
            }
        }

        impl<'de> Visitor<'de> for Text {
            type Value = DynamicObject;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut text: A) -> Result<DynamicObject, A::Error> {
                if text.next_key::<Cow<'_, str>>()?.as_deref() != Some(TEXT) {
                    return Err(A::Error::custom(
                        "the deserializer did not pass the JSON text",
                    ));
                }
                // The box has exactly the size of the text and is kept without a copy.
                let json: Box<str> = text.next_value()?;
                DynamicObject::from_valid_json(json).map_err(A::Error::custom)
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<DynamicObject, D::Error> {
                let fields = Map::<String, Value>::deserialize(deserializer)?;
                DynamicObject::new(&fields).map_err(D::Error::custom)
            }
        }

        // This name marks the errors of this type. They contain no values, so error messages may
        // quote them.
        deserializer.deserialize_newtype_struct(DYNAMIC_OBJECT, Marked)
    }
}

/// Serializes a tree, which every format supports.
impl Serialize for DynamicObject {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_map()
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

/// Creates an object without fields.
impl Default for DynamicObject {
    fn default() -> Self {
        Self {
            json: "{}".into(),
            outline: Outline::default(),
        }
    }
}

impl PartialEq for DynamicObject {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
            || matches!((self.to_map(), other.to_map()), (Ok(this), Ok(other)) if this == other)
    }
}

impl Eq for DynamicObject {}

debug_fields!(DynamicObject, this,
    namespace: this.namespace(),
    name: this.name(),
    resource_version: this.resource_version(),
    bytes: this.json.len()
);

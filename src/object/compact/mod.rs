//! An object as the bytes that it came in.

mod outline;

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, Error as _, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use self::outline::{Field, Outline};
use super::pointer::at_pointer;
use super::{DynamicObject, Object, Resource, Scope, WholeObject};
use crate::decode_error::{COMPACT, explained};
use crate::json::{self, Cursor};
use crate::stack;

/// An object that stays the JSON that it came in, and is decoded when it is read: a cache of them costs
/// little more than their bytes, and taking one in little more than looking for its end.
///
/// Only what a cache asks for is known beforehand: name, namespace, UID, resourceVersion and labels. The rest
/// is there as a whole, by [`decode`](Self::decode), or place by place, by [`read`](Self::read).
/// `Compact<Pod>` is a [`Resource`] and goes wherever `Pod` goes; a plain `Compact` decodes to a
/// [`DynamicObject`] and goes with [`Source::dynamic_as`](crate::informer::Source::dynamic_as).
///
/// Which type for which cache?
///
/// - Handlers and listers always want the same few fields: a struct of your own with just those
///   ([`impl_object!`](crate::impl_object)). Nothing is cheaper.
/// - They want everything, but of few of the objects, or now and then: `Compact`. Leave out what nobody wants
///   by [`ReflectorOptions::skip`](crate::reflector::ReflectorOptions::skip): what is skipped is not in the bytes.
/// - They go through all of each object at each event: the type itself, which is decoded once.
///
/// ```
/// use k8s_informer::testing::ApiServer;
/// use k8s_informer::{Client, Config, Object, SharedInformerFactory, Stop};
/// use k8s_informer::object::Compact;
/// use k8s_openapi::api::core::v1::Pod;
/// use serde_json::json;
///
/// let server = ApiServer::start()?;
/// let pod = json!({"metadata": {"name": "web-0", "labels": {"app": "web"}}, "spec": {"nodeName": "worker-1"}});
/// server.create("/api/v1/namespaces/default/pods", pod)?;
///
/// let factory = SharedInformerFactory::builder(Client::new(Config::new(server.url()))?).build();
/// let pods = factory.informer::<Compact<Pod>>();
/// pods.add_index("node", |pod| pod.read("/spec/nodeName").into_iter().flatten().collect())?;
/// let stop = Stop::new();
/// factory.start(&stop)?;
/// factory.wait_for_cache_sync(&stop)?;
///
/// let pod = &pods.lister().by_index("node", "worker-1")?[0];
/// assert_eq!((pod.name(), pod.label("app")), ("web-0", Some("web")));
/// // Of all that it has, one place is decoded here ...
/// assert_eq!(pod.read::<&str>("/spec/nodeName")?, Some("worker-1"));
/// // ... and everything here.
/// let whole: Pod = pod.decode()?;
/// assert_eq!(whole.spec.and_then(|spec| spec.node_name).as_deref(), Some("worker-1"));
/// # factory.shutdown();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It is checked to be JSON as it comes in, and what a cache asks for to have the form that it must have;
/// the rest shows when it is decoded. White space is kept; API servers write none.
///
/// What a cache asks for must not be there twice; of other keys that are, the last one counts. It is made of
/// text that serde_json reads, so it can't stand in an untagged enum or below `#[serde(flatten)]`.
///
/// Two are equal if their JSON is, byte by byte. `Debug` shows name, version and size, and nothing of the
/// rest, which may be a secret.
pub struct Compact<T = DynamicObject> {
    json: Box<str>,
    outline: Outline,
    decodes_to: PhantomData<fn() -> T>,
}

impl<T> Compact<T> {
    /// From anything that is an object as JSON: a value of the type, a tree, another one that was changed.
    ///
    /// ```
    /// use k8s_informer::Object;
    /// use k8s_informer::object::Compact;
    /// use k8s_informer::store::Transform;
    /// use k8s_openapi::api::core::v1::Pod;
    ///
    /// // A transform that changes what it decodes.
    /// let transform = Transform::new(|pod: std::sync::Arc<Compact<Pod>>| {
    ///     let mut whole = pod.decode()?;
    ///     whole.status = None;
    ///     Ok::<_, serde_json::Error>(std::sync::Arc::new(Compact::new(&whole)?))
    /// });
    /// let pod = Compact::new(&serde_json::json!({"metadata": {"name": "a"}, "status": {"phase": "Running"}}))?;
    /// let pod = transform.apply(std::sync::Arc::new(pod))?;
    /// assert_eq!((pod.name(), pod.read::<String>("/status/phase")?), ("a", None));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// serde_json's, if it can't be written as JSON, or is no object.
    pub fn new(object: &(impl Serialize + ?Sized)) -> Result<Self, serde_json::Error> {
        Self::of(serde_json::value::to_raw_value(object)?.into())
    }

    /// From valid JSON.
    fn of(json: Box<str>) -> Result<Self, serde_json::Error> {
        let outline = Outline::of(&json)?;
        Ok(Self {
            json,
            outline,
            decodes_to: PhantomData,
        })
    }

    /// All of it, as JSON.
    ///
    /// ```
    /// use k8s_informer::object::Compact;
    ///
    /// let pod: Compact = serde_json::from_str(r#" {"metadata":{"name":"a"}} "#)?;
    /// assert_eq!(pod.json(), r#"{"metadata":{"name":"a"}}"#);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn json(&self) -> &str {
        &self.json
    }

    /// Decodes all of it into its type. An object that is nested more than 32 levels deep is decoded on a thread
    /// of its own, with more stack than a handler's has.
    ///
    /// ```
    /// use k8s_informer::DynamicObject;
    /// use k8s_informer::object::Compact;
    ///
    /// let pod: Compact = serde_json::from_str(r#"{"metadata": {"name": "a"}, "spec": {"priority": 3}}"#)?;
    /// let tree: DynamicObject = pod.decode()?;
    /// assert_eq!(tree.read("/spec/priority")?, Some(3));
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It does not have the type's form: that is checked here, and not as the object comes in. The message has the path
    /// of the field, but no values. The keys of maps are shown as `[…]`, and the text of a custom deserializer is
    /// hidden.
    pub fn decode(&self) -> Result<T, serde_json::Error>
    where
        T: DeserializeOwned + Send,
    {
        self.decode_as()
    }

    /// Decodes it into another type: a struct with just the fields that are needed here, which may borrow.
    ///
    /// ```
    /// use k8s_informer::object::Compact;
    /// use serde::Deserialize;
    ///
    /// #[derive(Deserialize)]
    /// struct Phase<'a> {
    ///     #[serde(borrow)]
    ///     status: Status<'a>,
    /// }
    /// #[derive(Deserialize)]
    /// struct Status<'a> {
    ///     phase: &'a str,
    /// }
    ///
    /// let pod: Compact = serde_json::from_str(r#"{"metadata": {"name": "a"}, "status": {"phase": "Running"}}"#)?;
    /// assert_eq!(pod.decode_as::<Phase>()?.status.phase, "Running");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// It does not have the type's form, as with [`decode`](Self::decode).
    pub fn decode_as<'a, U: Deserialize<'a> + Send>(&'a self) -> Result<U, serde_json::Error> {
        decoded(&self.json)
    }

    /// Decodes the value at a JSON pointer (RFC 6901), and nothing else. Returns `None` if the value is absent or
    /// `null`: to Kubernetes, these are the same. The empty pointer is the whole object.
    ///
    /// A `&str` is borrowed, which requires a text without escapes: names, phases and timestamps have none.
    /// A `Cow<str>` or a `String` can be any text.
    ///
    /// ```
    /// use k8s_informer::object::Compact;
    ///
    /// let pod: Compact = serde_json::from_str(
    ///     r#"{"metadata": {"name": "a", "annotations": {"example.com/size": "3"}},
    ///         "spec": {"priority": 7, "containers": [{"name": "app", "image": "app:v1"}], "hostname": null}}"#,
    /// )?;
    /// assert_eq!(pod.read::<&str>("/spec/containers/0/image")?, Some("app:v1"));
    /// assert_eq!(pod.read::<&str>("/metadata/annotations/example.com~1size")?, Some("3"));
    /// assert_eq!(pod.read::<u32>("/spec/priority")?, Some(7));
    /// assert_eq!(pod.read::<&str>("/spec/hostname")?, None);
    /// assert_eq!(pod.read::<&str>("/spec/containers/1/image")?, None);
    /// let error = pod.read::<&str>("/spec/priority").unwrap_err().to_string();
    /// assert!(error.starts_with("/spec/priority: invalid type: integer"), "{error}");
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The value does not have the form of a `U`. The message starts with the pointer and has the path from there, as
    /// with [`decode`](Self::decode). Line and column are counted from the start of the value.
    pub fn read<'a, U: Deserialize<'a> + Send>(
        &'a self,
        pointer: &str,
    ) -> Result<Option<U>, serde_json::Error> {
        match json::find(&self.json, pointer) {
            None | Some("null") => Ok(None),
            Some(value) => decoded(value)
                .map(Some)
                .map_err(|error| at_pointer(pointer, error)),
        }
    }

    /// `apiVersion`, empty if absent. What comes from a list has it from there if it doesn't say it itself.
    pub fn api_version(&self) -> &str {
        self.outline.text(&self.json, Field::ApiVersion)
    }

    /// `kind`, empty if absent, as [`api_version`](Self::api_version).
    pub fn kind(&self) -> &str {
        self.outline.text(&self.json, Field::Kind)
    }

    /// `metadata.labels`, in no particular order.
    ///
    /// ```
    /// use k8s_informer::object::Compact;
    ///
    /// let pod: Compact = serde_json::from_str(r#"{"metadata": {"labels": {"app": "web", "tier": "1"}}}"#)?;
    /// assert_eq!(pod.labels().collect::<Vec<_>>(), [("app", "web"), ("tier", "1")]);
    /// # Ok::<(), serde_json::Error>(())
    /// ```
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.outline.labels(&self.json)
    }
}

impl<T: 'static> Object for Compact<T> {
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
        // In the order of an API server, so that it is the same text as in a watch.
        let given = [("kind", kind), ("apiVersion", api_version)];
        let text: String = given
            .iter()
            .filter(|(_, value)| !value.is_empty())
            .map(|(field, value)| format!("\"{field}\":{},", serde_json::Value::from(*value)))
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
        // The fields are there and empty, or there are no fields at all.
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
        if let Ok(new) = Self::of(json.into_boxed_str()) {
            *self = new;
        }
    }
}

impl<T: Resource> Resource for Compact<T> {
    const GROUP: &'static str = T::GROUP;
    const VERSION: &'static str = T::VERSION;
    const KIND: &'static str = T::KIND;
    const PLURAL: &'static str = T::PLURAL;
    const SCOPE: Scope = T::SCOPE;
}

/// To change one is to decode it, and to encode what it was decoded to.
impl<T: WholeObject> WholeObject for Compact<T> {}

fn decoded<'a, U: Deserialize<'a> + Send>(json: &'a str) -> Result<U, serde_json::Error> {
    stack::decoded(json.as_bytes(), || serde_json::from_str(json))
        .map_err(|error| explained::<U>(json.as_bytes(), error))
}

/// From JSON that serde_json reads, or from one of its trees.
impl<'de, T> Deserialize<'de> for Compact<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Whole<T>(PhantomData<fn() -> T>);

        impl<'de, T> Visitor<'de> for Whole<T> {
            type Value = Compact<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a Kubernetes object")
            }

            fn visit_newtype_struct<D: Deserializer<'de>>(
                self,
                deserializer: D,
            ) -> Result<Compact<T>, D::Error> {
                // It has the size of its text, and stays what it is.
                let json = Box::<RawValue>::deserialize(deserializer)?;
                Compact::of(json.into()).map_err(D::Error::custom)
            }
        }

        // The name lets an explanation of the error trust its text.
        deserializer.deserialize_newtype_struct(COMPACT, Whole(PhantomData))
    }
}

/// As the JSON that it is, for serde_json to write.
impl<T> Serialize for Compact<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.decode_as::<&RawValue>()
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<T> Clone for Compact<T> {
    fn clone(&self) -> Self {
        let Self {
            json,
            outline,
            decodes_to,
        } = self;
        Self {
            json: json.clone(),
            outline: outline.clone(),
            decodes_to: *decodes_to,
        }
    }
}

impl<T> PartialEq for Compact<T> {
    fn eq(&self, other: &Self) -> bool {
        self.json == other.json
    }
}

impl<T> Eq for Compact<T> {}

impl<T> fmt::Debug for Compact<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { json, outline, .. } = self;
        f.debug_struct("Compact")
            .field("namespace", &outline.text(json, Field::Namespace))
            .field("name", &outline.text(json, Field::Name))
            .field(
                "resource_version",
                &outline.text(json, Field::ResourceVersion),
            )
            .field("bytes", &json.len())
            .finish_non_exhaustive()
    }
}

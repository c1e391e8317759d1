use std::collections::HashSet;
use std::fmt;
use std::iter;
use std::ops::Range;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use super::walk::Walk;
use crate::decode_error::explained;
use crate::object::ObjectMeta;
use crate::object::meta::null_is_default;

/// What is known of an object beforehand: where it stands in its JSON.
#[derive(Clone, Default)]
pub(super) struct Outline {
    api_version: Place,
    kind: Place,
    name: Place,
    namespace: Place,
    uid: Place,
    resource_version: Place,
    /// The whole object, with its braces.
    labels: Place,
    /// Decoded, and then instead of all places: some of it is not written as it is meant.
    odd: Option<Box<Odd>>,
}

/// From where to where; not at 0 if it is there at all, as a brace stands there.
#[derive(Clone, Copy, Default)]
struct Place {
    start: u32,
    end: u32,
}

/// The same, decoded: that of an object that has escapes in its name, for example. Kubernetes allows none.
/// What is wrong with an object shows as this is read, too.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Odd {
    #[serde(deserialize_with = "null_is_default")]
    api_version: String,
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "only_object")]
    metadata: ObjectMeta,
}

impl Outline {
    /// Of valid JSON.
    ///
    /// # Errors
    ///
    /// It is no object, or some of this is not what it has to be, or is there twice.
    pub(super) fn of(json: &str) -> Result<Self, serde_json::Error> {
        if !json.starts_with('{') {
            let other = Unexpected::Other("something else");
            return Err(serde_json::Error::invalid_type(
                other,
                &"a Kubernetes object",
            ));
        }
        if u32::try_from(json.len()).is_err() {
            return Err(serde_json::Error::custom("an object of 4 GiB or more"));
        }
        if let Some(outline) = Self::plain(json) {
            return Ok(outline);
        }
        let odd =
            serde_json::from_str(json).map_err(|error| explained::<Odd>(json.as_bytes(), error))?;
        Ok(Self {
            odd: Some(Box::new(odd)),
            ..Self::default()
        })
    }

    /// What is plain to see; `None` if something is not.
    fn plain(json: &str) -> Option<Self> {
        let mut outline = Self::default();
        let mut has_metadata = false;
        let mut walk = Walk::from(json, 0);
        walk.enter(b'{');
        while let Some(key) = walk.key() {
            match &json[key] {
                "apiVersion" => outline.api_version.is_text(json, walk.value()?)?,
                "kind" => outline.kind.is_text(json, walk.value()?)?,
                "metadata" if has_metadata => return None,
                "metadata" => {
                    has_metadata = true;
                    outline.metadata(json, &mut walk)?;
                }
                other if other.contains('\\') => return None,
                _ => {
                    walk.value()?;
                }
            }
        }
        Some(outline)
    }

    fn metadata(&mut self, json: &str, walk: &mut Walk<'_>) -> Option<()> {
        if !walk.enter(b'{') {
            return is_null(json, walk.value()?);
        }
        while let Some(key) = walk.key() {
            match &json[key] {
                "name" => self.name.is_text(json, walk.value()?)?,
                "namespace" => self.namespace.is_text(json, walk.value()?)?,
                "uid" => self.uid.is_text(json, walk.value()?)?,
                "resourceVersion" => self.resource_version.is_text(json, walk.value()?)?,
                "labels" if self.labels.is_there() => return None,
                "labels" => {
                    let start = walk.at();
                    check_labels(json, walk)?;
                    self.labels = Place::of(start..walk.at())?;
                }
                other if other.contains('\\') => return None,
                _ => {
                    walk.value()?;
                }
            }
        }
        Some(())
    }

    /// The same when this has been inserted behind the first brace of the JSON; `None` if that can't be.
    pub(super) fn with_type_meta(&self, json: &str, text: &str) -> Option<Self> {
        if self.odd.is_some()
            || self.api_version.is_there()
            || self.kind.is_there()
            || json[1..].trim_start().starts_with('}')
        {
            return None;
        }
        let mut outline = Self::plain(&format!("{{{}}}", text.strip_suffix(',')?))?;
        let by = u32::try_from(text.len()).ok()?;
        outline.name = self.name.moved(by)?;
        outline.namespace = self.namespace.moved(by)?;
        outline.uid = self.uid.moved(by)?;
        outline.resource_version = self.resource_version.moved(by)?;
        outline.labels = self.labels.moved(by)?;
        Some(outline)
    }

    pub(super) fn api_version<'a>(&'a self, json: &'a str) -> &'a str {
        self.odd
            .as_ref()
            .map_or_else(|| self.api_version.text(json), |odd| &odd.api_version)
    }

    pub(super) fn kind<'a>(&'a self, json: &'a str) -> &'a str {
        self.odd
            .as_ref()
            .map_or_else(|| self.kind.text(json), |odd| &odd.kind)
    }

    pub(super) fn name<'a>(&'a self, json: &'a str) -> &'a str {
        self.odd
            .as_ref()
            .map_or_else(|| self.name.text(json), |odd| &odd.metadata.name)
    }

    pub(super) fn namespace<'a>(&'a self, json: &'a str) -> &'a str {
        self.odd
            .as_ref()
            .map_or_else(|| self.namespace.text(json), |odd| &odd.metadata.namespace)
    }

    pub(super) fn uid<'a>(&'a self, json: &'a str) -> &'a str {
        self.odd
            .as_ref()
            .map_or_else(|| self.uid.text(json), |odd| &odd.metadata.uid)
    }

    pub(super) fn resource_version<'a>(&'a self, json: &'a str) -> &'a str {
        self.odd.as_ref().map_or_else(
            || self.resource_version.text(json),
            |odd| &odd.metadata.resource_version,
        )
    }

    pub(super) fn labels<'a>(&'a self, json: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let odd = self.odd.iter().flat_map(|odd| &odd.metadata.labels);
        odd.chain(labels(self.labels.text(json)))
    }
}

/// The labels of an object that has no escapes.
fn labels(object: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = object.split('"');
    iter::from_fn(move || {
        parts.next()?;
        let key = parts.next()?;
        parts.next()?;
        Some((key, parts.next()?))
    })
}

/// Whether [`labels`] can read what comes: texts without escapes, under keys that are there once.
fn check_labels(json: &str, walk: &mut Walk<'_>) -> Option<()> {
    let start = walk.at();
    if !walk.enter(b'{') {
        return is_null(json, walk.value()?);
    }
    let mut last = "";
    let mut is_ascending = true;
    while let Some((key, value)) = walk.entry() {
        if !json[value].starts_with('"') {
            return None;
        }
        let key = &json[key];
        is_ascending &= last < key;
        last = key;
    }
    let text = json
        .get(start..walk.at())
        .filter(|text| !text.contains('\\'))?;
    // API servers sort them.
    let mut keys = HashSet::new();
    (is_ascending || labels(text).all(|(key, _)| keys.insert(key))).then_some(())
}

fn is_null(json: &str, value: Range<usize>) -> Option<()> {
    (&json[value] == "null").then_some(())
}

impl Place {
    fn of(range: Range<usize>) -> Option<Self> {
        Some(Self {
            start: range.start.try_into().ok()?,
            end: range.end.try_into().ok()?,
        })
    }

    fn is_there(self) -> bool {
        self.start > 0
    }

    /// This value is it. `None` if it is no text that means what is written, nor null, or is there already.
    fn is_text(&mut self, json: &str, value: Range<usize>) -> Option<()> {
        let text = &json[value.clone()];
        if self.is_there() {
            return None;
        }
        *self = match text.strip_prefix('"') {
            Some(text) if !text.contains('\\') => Self::of(value.start + 1..value.end - 1)?,
            None if text == "null" => Self::of(value.start..value.start)?,
            _ => return None,
        };
        Some(())
    }

    fn moved(self, by: u32) -> Option<Self> {
        if !self.is_there() {
            return Some(self);
        }
        Some(Self {
            start: self.start.checked_add(by)?,
            end: self.end.checked_add(by)?,
        })
    }

    fn text(self, json: &str) -> &str {
        json.get(self.start as usize..self.end as usize)
            .unwrap_or_default()
    }
}

/// Kubernetes writes an absent field as nothing or as `null`. serde would also make a struct of an array, field by
/// field.
fn only_object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    struct OnlyObject;

    impl<'de> Visitor<'de> for OnlyObject {
        type Value = ObjectMeta;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object as metadata")
        }

        fn visit_none<E>(self) -> Result<ObjectMeta, E> {
            Ok(ObjectMeta::default())
        }

        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<ObjectMeta, D::Error> {
            /// For the path in errors.
            const FIELDS: &[&str] = &["name", "namespace", "uid", "resourceVersion", "labels"];
            deserializer.deserialize_struct("ObjectMeta", FIELDS, self)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ObjectMeta, A::Error> {
            ObjectMeta::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_option(OnlyObject)
}

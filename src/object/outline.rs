use std::collections::HashSet;
use std::fmt;
use std::iter;
use std::ops::Range;

use serde::de::value::MapAccessDeserializer;
use serde::de::{Error as _, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer};

use crate::decode_error::explained;
use crate::json::{self, Cursor, MAX_NESTING, null_is_default};
use crate::object::ObjectMeta;

/// The positions of the fields that a cache needs in the JSON of an object.
#[derive(Clone, Default)]
pub(super) struct Outline {
    fields: [Span; 6],
    /// The whole JSON object of the labels, with its braces.
    labels: Span,
    /// Replaces all spans if a field contains escapes.
    decoded: Option<Box<Decoded>>,
}

/// A string field whose position an [`Outline`] stores. The labels are not a string and have their
/// own span.
#[derive(Clone, Copy)]
pub(super) enum Field {
    ApiVersion,
    Kind,
    Name,
    Namespace,
    Uid,
    ResourceVersion,
}

/// The byte range of a field in the JSON. `start` is 0 only if the field is absent, because
/// position 0 is the opening brace of the object.
#[derive(Clone, Copy, Default)]
struct Span {
    start: u32,
    end: u32,
}

/// The decoded fields, used if one of them contains escapes. This is rare: Kubernetes names, for
/// example, need no escapes. Decoding also produces the error for an invalid object.
#[derive(Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Decoded {
    #[serde(deserialize_with = "null_is_default")]
    api_version: String,
    #[serde(deserialize_with = "null_is_default")]
    kind: String,
    #[serde(deserialize_with = "only_object")]
    metadata: ObjectMeta,
}

impl Outline {
    /// Locates the fields in valid JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if the JSON is not an object, is 4 GiB or larger, or is nested too deeply.
    /// Also returns an error if one of the fields has the wrong type or occurs twice.
    pub(super) fn of(json: &str) -> Result<Self, serde_json::Error> {
        if !json.starts_with('{') {
            let other = Unexpected::Other("something else");
            return Err(serde_json::Error::invalid_type(
                other,
                &"a Kubernetes object",
            ));
        }
        if u32::try_from(json.len()).is_err() {
            return Err(serde_json::Error::custom("the object is 4 GiB or larger"));
        }
        let located = Self::located(json);
        let nesting = |(_, at_most): &(Self, usize)| *at_most;
        if located.as_ref().map_or(usize::MAX, nesting) > MAX_NESTING
            && json::nesting(json.as_bytes()) > MAX_NESTING
        {
            let error = format!("nested deeper than {MAX_NESTING} levels");
            return Err(serde_json::Error::custom(error));
        }
        if let Some((outline, _)) = located {
            return Ok(outline);
        }
        let decoded = serde_json::from_str(json)
            .map_err(|error| explained::<Decoded>(json.as_bytes(), error))?;
        Ok(Self {
            decoded: Some(Box::new(decoded)),
            ..Self::default()
        })
    }

    /// Returns the outline and an upper bound of the nesting depth. Returns `None` if the object
    /// must be decoded: a key or a field contains escapes, or a field is invalid or occurs twice.
    fn located(json: &str) -> Option<(Self, usize)> {
        let mut outline = Self::default();
        let mut has_metadata = false;
        let mut cursor = Cursor::new(json.as_bytes());
        cursor.enter(b'{');
        while let Some(key) = cursor.key()? {
            match key.verbatim()? {
                b"apiVersion" => outline.locate(Field::ApiVersion, json, &mut cursor)?,
                b"kind" => outline.locate(Field::Kind, json, &mut cursor)?,
                b"metadata" if has_metadata => return None,
                b"metadata" => {
                    has_metadata = true;
                    outline.locate_metadata(json, &mut cursor)?;
                }
                _ => {
                    cursor.value()?;
                }
            }
        }
        // The values in the metadata have two more levels around them.
        Some((outline, cursor.deepest() + 2))
    }

    fn locate_metadata(&mut self, json: &str, cursor: &mut Cursor<'_>) -> Option<()> {
        if !cursor.enter(b'{') {
            return is_null(json, cursor.value()?);
        }
        while let Some(key) = cursor.key()? {
            match key.verbatim()? {
                b"name" => self.locate(Field::Name, json, cursor)?,
                b"namespace" => self.locate(Field::Namespace, json, cursor)?,
                b"uid" => self.locate(Field::Uid, json, cursor)?,
                b"resourceVersion" => self.locate(Field::ResourceVersion, json, cursor)?,
                b"labels" if self.labels.is_present() => return None,
                b"labels" => {
                    let start = cursor.position();
                    check_labels(json, cursor)?;
                    self.labels = Span::new(start..cursor.position())?;
                }
                _ => {
                    cursor.value()?;
                }
            }
        }
        Some(())
    }

    /// Reads the value of a field: a string without escapes, or `null`. Returns `None` for any
    /// other value, and if the field occurs twice.
    fn locate(&mut self, field: Field, json: &str, cursor: &mut Cursor<'_>) -> Option<()> {
        let value = cursor.value()?;
        let span = &mut self.fields[field as usize];
        if span.is_present() {
            return None;
        }
        *span = match json[value.clone()].strip_prefix('"') {
            Some(text) if !text.contains('\\') => Span::new(value.start + 1..value.end - 1)?,
            None if &json[value.clone()] == "null" => Span::new(value.start..value.start)?,
            _ => return None,
        };
        Some(())
    }

    /// Returns the outline of the JSON with `text` inserted after its opening brace. `None` if the
    /// text cannot be inserted.
    pub(super) fn with_type_meta(&self, json: &str, text: &str) -> Option<Self> {
        let has = |field: Field| self.fields[field as usize].is_present();
        if self.decoded.is_some()
            || has(Field::ApiVersion)
            || has(Field::Kind)
            || json[1..].trim_start().starts_with('}')
        {
            return None;
        }
        let (mut outline, _) = Self::located(&format!("{{{}}}", text.strip_suffix(',')?))?;
        let by = u32::try_from(text.len()).ok()?;
        for (field, before) in outline.fields.iter_mut().zip(&self.fields) {
            if before.is_present() {
                *field = before.shifted(by)?;
            }
        }
        outline.labels = self.labels.shifted(by)?;
        Some(outline)
    }

    /// Returns a field of the object with this JSON, or `""` if the field is absent.
    pub(super) fn text<'a>(&'a self, json: &'a str, field: Field) -> &'a str {
        let Some(decoded) = &self.decoded else {
            return self.fields[field as usize].text(json);
        };
        match field {
            Field::ApiVersion => &decoded.api_version,
            Field::Kind => &decoded.kind,
            Field::Name => &decoded.metadata.name,
            Field::Namespace => &decoded.metadata.namespace,
            Field::Uid => &decoded.metadata.uid,
            Field::ResourceVersion => &decoded.metadata.resource_version,
        }
    }

    pub(super) fn labels<'a>(&'a self, json: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let decoded = self
            .decoded
            .iter()
            .flat_map(|decoded| &decoded.metadata.labels);
        decoded.chain(labels(self.labels.text(json)))
    }
}

/// Returns the labels of a JSON object that passes [`check_labels`].
fn labels(object: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut parts = object.split('"');
    iter::from_fn(move || {
        parts.next()?;
        let key = parts.next()?;
        parts.next()?;
        Some((key, parts.next()?))
    })
}

/// Moves the cursor past the labels. Returns `None` unless they are `null`, or strings without
/// escapes under different keys.
fn check_labels(json: &str, cursor: &mut Cursor<'_>) -> Option<()> {
    let start = cursor.position();
    if !cursor.enter(b'{') {
        return is_null(json, cursor.value()?);
    }
    let mut last: &[u8] = b"";
    let mut is_ascending = true;
    while let Some(key) = cursor.key()? {
        let key = key.verbatim()?;
        let value = &json[cursor.value()?];
        if !value.starts_with('"') || value.contains('\\') {
            return None;
        }
        is_ascending &= last < key;
        last = key;
    }
    // API servers sort labels, so this set usually remains empty.
    let mut keys = HashSet::new();
    let is_unique =
        is_ascending || labels(&json[start..cursor.position()]).all(|(key, _)| keys.insert(key));
    is_unique.then_some(())
}

fn is_null(json: &str, value: Range<usize>) -> Option<()> {
    (&json[value] == "null").then_some(())
}

impl Span {
    fn new(range: Range<usize>) -> Option<Self> {
        Some(Self {
            start: range.start.try_into().ok()?,
            end: range.end.try_into().ok()?,
        })
    }

    fn is_present(self) -> bool {
        self.start > 0
    }

    fn shifted(self, by: u32) -> Option<Self> {
        if !self.is_present() {
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

/// Accepts `null`, which Kubernetes treats as an absent field. Rejects an array, which serde
/// accepts for a struct.
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
            /// Lets errors name these fields in their path.
            const FIELDS: &[&str] = &["name", "namespace", "uid", "resourceVersion", "labels"];
            deserializer.deserialize_struct("ObjectMeta", FIELDS, self)
        }

        fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<ObjectMeta, A::Error> {
            ObjectMeta::deserialize(MapAccessDeserializer::new(map))
        }
    }

    deserializer.deserialize_option(OnlyObject)
}

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// What an object says of itself, read without decoding the rest. What is missing or no text is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek<'a> {
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    /// Whether there is a UID that is neither text nor null.
    pub(crate) has_odd_uid: bool,
    pub(crate) resource_version: Cow<'a, str>,
    /// Whether it is not clear which object it is: name, namespace or all of the metadata is there twice, or
    /// is neither text nor null.
    pub(crate) is_ambiguous: bool,
    /// Whether it has the annotation of the bookmark that ends the initial events of a watch-list (WL4).
    pub(crate) initial_events_end: bool,
}

impl<'a> Peek<'a> {
    /// Reads all of it.
    ///
    /// # Errors
    ///
    /// It is no JSON object.
    pub(crate) fn whole(object: &'a [u8]) -> Result<Self, serde_json::Error> {
        let mut peek = Self::default();
        let mut deserializer = serde_json::Deserializer::from_slice(object);
        deserializer.deserialize_map(Object {
            peek: &mut peek,
            identity_only: false,
        })?;
        deserializer.end()?;
        Ok(peek)
    }

    /// Reads no further than it takes to know which object it is, and in which version; what there is if that
    /// can't be read. API servers write the namespace before UID and resourceVersion.
    pub(crate) fn identity(object: &'a [u8]) -> Self {
        let mut peek = Self::default();
        let mut deserializer = serde_json::Deserializer::from_slice(object);
        // The end of the reading is an error, too.
        let _ = deserializer.deserialize_map(Object {
            peek: &mut peek,
            identity_only: true,
        });
        peek
    }

    fn is_identified(&self) -> bool {
        !self.name.is_empty() && !self.uid.is_empty() && !self.resource_version.is_empty()
    }
}

/// The outermost object.
struct Object<'p, 'a> {
    peek: &'p mut Peek<'a>,
    identity_only: bool,
}

impl<'de> Visitor<'de> for Object<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            peek,
            identity_only,
        } = self;
        let mut has_metadata = false;
        while let Some(Text(key)) = map.next_key_seed(TextSeed)? {
            match &*key {
                "apiVersion" => peek.api_version = map.next_value_seed(TextSeed)?.0,
                "kind" => peek.kind = map.next_value_seed(TextSeed)?.0,
                "metadata" => {
                    peek.is_ambiguous |= std::mem::replace(&mut has_metadata, true);
                    map.next_value_seed(Metadata {
                        peek,
                        identity_only,
                    })?;
                    if identity_only {
                        return Err(A::Error::custom("enough"));
                    }
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

struct Metadata<'p, 'a> {
    peek: &'p mut Peek<'a>,
    identity_only: bool,
}

impl<'de> DeserializeSeed<'de> for Metadata<'_, 'de> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(Lenient(self))
    }
}

impl<'de> OnMap<'de> for Metadata<'_, 'de> {
    type Value = ();

    fn on_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Self {
            peek,
            identity_only,
        } = self;
        let (mut has_name, mut has_namespace) = (false, false);
        while let Some(Text(key)) = map.next_key_seed(TextSeed)? {
            match &*key {
                "name" | "namespace" => {
                    let (place, has) = match &*key {
                        "name" => (&mut peek.name, &mut has_name),
                        _ => (&mut peek.namespace, &mut has_namespace),
                    };
                    let text = map.next_value_seed(NameSeed)?;
                    peek.is_ambiguous |= std::mem::replace(has, true) || text.is_none();
                    *place = text.unwrap_or_default();
                }
                "uid" => {
                    let text = map.next_value_seed(NameSeed)?;
                    peek.has_odd_uid = text.is_none();
                    peek.uid = text.unwrap_or_default();
                }
                "resourceVersion" => peek.resource_version = map.next_value_seed(TextSeed)?.0,
                "annotations" if !identity_only => {
                    peek.initial_events_end = map.next_value_seed(Annotations)?;
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
            if identity_only && peek.is_identified() {
                return Err(A::Error::custom("enough"));
            }
        }
        Ok(())
    }

    fn otherwise(self) {}
}

struct Annotations;

impl<'de> DeserializeSeed<'de> for Annotations {
    type Value = bool;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<bool, D::Error> {
        deserializer.deserialize_any(Lenient(self))
    }
}

impl<'de> OnMap<'de> for Annotations {
    type Value = bool;

    fn on_map<A: MapAccess<'de>>(self, mut map: A) -> Result<bool, A::Error> {
        let mut ends = false;
        while let Some(Text(key)) = map.next_key_seed(TextSeed)? {
            let Text(value) = map.next_value_seed(TextSeed)?;
            ends |= key == "k8s.io/initial-events-end" && value == "true";
        }
        Ok(ends)
    }

    fn otherwise(self) -> bool {
        false
    }
}

/// A string, borrowed where it stands without escapes; empty if it is something else.
struct Text<'a>(Cow<'a, str>);

struct TextSeed;

impl<'de> DeserializeSeed<'de> for TextSeed {
    type Value = Text<'de>;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Text<'de>, D::Error> {
        deserializer.deserialize_any(Lenient(self))
    }
}

impl<'de> OnMap<'de> for TextSeed {
    type Value = Text<'de>;

    fn on_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Text<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(self.otherwise())
    }

    fn on_text(self, text: Cow<'de, str>) -> Text<'de> {
        Text(text)
    }

    fn otherwise(self) -> Text<'de> {
        Text(Cow::Borrowed(""))
    }
}

/// A string, empty for `null`; `None` if it is something else.
struct NameSeed;

impl<'de> DeserializeSeed<'de> for NameSeed {
    type Value = Option<Cow<'de, str>>;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(Lenient(self))
    }
}

impl<'de> OnMap<'de> for NameSeed {
    type Value = Option<Cow<'de, str>>;

    fn on_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(None)
    }

    fn on_text(self, text: Cow<'de, str>) -> Self::Value {
        Some(text)
    }

    fn on_null(self) -> Self::Value {
        Some(Cow::Borrowed(""))
    }

    fn otherwise(self) -> Self::Value {
        None
    }
}

/// What is wanted of a value that may be anything.
trait OnMap<'de>: Sized {
    type Value;

    fn on_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error>;

    fn on_text(self, _: Cow<'de, str>) -> Self::Value {
        self.otherwise()
    }

    fn on_null(self) -> Self::Value {
        self.otherwise()
    }

    fn otherwise(self) -> Self::Value;
}

/// Takes whatever comes.
struct Lenient<W>(W);

impl<'de, W: OnMap<'de>> Visitor<'de> for Lenient<W> {
    type Value = W::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<W::Value, A::Error> {
        self.0.on_map(map)
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<W::Value, E> {
        Ok(self.0.on_text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<W::Value, E> {
        Ok(self.0.on_text(Cow::Owned(text.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<W::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(self.0.otherwise())
    }

    fn visit_unit<E>(self) -> Result<W::Value, E> {
        Ok(self.0.on_null())
    }

    fn visit_bool<E>(self, _: bool) -> Result<W::Value, E> {
        Ok(self.0.otherwise())
    }

    fn visit_i64<E>(self, _: i64) -> Result<W::Value, E> {
        Ok(self.0.otherwise())
    }

    fn visit_u64<E>(self, _: u64) -> Result<W::Value, E> {
        Ok(self.0.otherwise())
    }

    fn visit_f64<E>(self, _: f64) -> Result<W::Value, E> {
        Ok(self.0.otherwise())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peek(json: &str) -> String {
        let peek = Peek::whole(json.as_bytes()).unwrap();
        let Peek {
            api_version,
            kind,
            name,
            namespace,
            uid,
            resource_version,
            ..
        } = &peek;
        let ambiguous = if peek.is_ambiguous { "?" } else { "" };
        let end = peek.initial_events_end;
        format!("{api_version}|{kind}|{namespace}/{name}{ambiguous}|{uid}@{resource_version}|{end}")
    }

    #[test]
    fn what_an_object_says_of_itself_wherever_it_stands() {
        let object = r#"{"spec":{"metadata":{"name":"no"}},"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},
            "labels":{"name":"no"},"name":"a","namespace":"n\u0073","resourceVersion":"7","uid":"u"},"kind":"Pod","apiVersion":"v1"}"#;
        assert_eq!(peek(object), "v1|Pod|ns/a|u@7|true");
        let identity = Peek::identity(object.as_bytes());
        assert_eq!(
            (&*identity.name, &*identity.uid, &*identity.kind),
            ("a", "u", "")
        );
    }

    #[test]
    fn what_is_no_text_is_empty() {
        for metadata in [
            "null",
            "7",
            "[{}]",
            "\"x\"",
            "{}",
            r#"{"name":null,"uid":[1],"annotations":null}"#,
        ] {
            assert_eq!(
                peek(&format!(r#"{{"metadata":{metadata},"kind":1.5}}"#)),
                "||/|@|false"
            );
        }
        let some = r#"{"metadata":{"name":7,"namespace":"ns","resourceVersion":-7,"uid":true}}"#;
        assert_eq!(peek(some), "||ns/?|@|false");
    }

    #[test]
    fn a_uid_that_is_no_text_is_told_from_none() {
        for (uid, odd) in [
            ("null", false),
            ("\"u\"", false),
            ("7", true),
            ("[\"u\"]", true),
            ("{}", true),
        ] {
            let object = format!(r#"{{"metadata":{{"uid":{uid},"name":"a"}}}}"#);
            assert_eq!(
                Peek::whole(object.as_bytes()).unwrap().has_odd_uid,
                odd,
                "{uid}"
            );
            assert_eq!(Peek::identity(object.as_bytes()).has_odd_uid, odd, "{uid}");
        }
        assert!(!Peek::identity(b"{}").has_odd_uid);
    }

    #[test]
    fn repeated_or_missing_identity_is_ambiguous() {
        for (metadata, name) in [
            (r#"{"name":"a","namespace":"ns","name":"b"}"#, "ns/b"),
            (r#"{"name":"a","namespace":"ns","namespace":"ns"}"#, "ns/a"),
            (r#"{"name":"a","namespace":7}"#, "/a"),
            (r#"{"name":["a"],"namespace":"ns"}"#, "ns/"),
            (r#"{"name":{"a":[1]},"namespace":"ns"}"#, "ns/"),
            (r#"{"name":"a"},"metadata":{}"#, "/a"),
        ] {
            assert_eq!(
                peek(&format!(r#"{{"metadata":{metadata}}}"#)),
                format!("||{name}?|@|false")
            );
        }
        assert_eq!(
            peek(r#"{"metadata":{"name":"a","namespace":null}}"#),
            "||/a|@|false"
        );
    }

    #[test]
    fn the_identity_is_read_as_far_as_it_goes() {
        let cut = br#"{"metadata":{"name":"a","namespace":"ns","resourceVersion":"7","labels":{"x"#;
        let identity = Peek::identity(cut);
        assert_eq!((&*identity.namespace, &*identity.name), ("ns", "a"));
        assert!(Peek::whole(cut).is_err());
        for no_object in ["", "null", "[]", "7", "{}x"] {
            assert!(Peek::whole(no_object.as_bytes()).is_err(), "{no_object}");
            assert_eq!(Peek::identity(no_object.as_bytes()), Peek::default());
        }
    }
}

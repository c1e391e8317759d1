use std::borrow::Cow;

use serde::de::{Error as _, IgnoredAny};

use super::cursor::Cursor;

/// The identity of an object, read without decoding the rest. Fields that are missing or not
/// strings are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Peek<'a> {
    pub(crate) api_version: Cow<'a, str>,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) name: Cow<'a, str>,
    pub(crate) namespace: Cow<'a, str>,
    pub(crate) uid: Cow<'a, str>,
    pub(crate) resource_version: Cow<'a, str>,
    /// Whether name and namespace do not identify an object. This is the case if one of them or the
    /// metadata is repeated, or if one of them is neither a string nor null.
    pub(crate) is_ambiguous: bool,
    /// Whether the object has the annotation that ends the initial events of a watch-list.
    pub(crate) initial_events_end: bool,
}

impl<'a> Peek<'a> {
    /// Reads the identity and validates the JSON of the whole object.
    ///
    /// # Errors
    ///
    /// Returns an error if the bytes are not a JSON object, or if its metadata has invalid Unicode.
    pub(crate) fn whole(object: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice::<IgnoredAny>(object)?;
        Self::of_valid(object)
    }

    /// Like [`whole`](Self::whole), but for JSON that serde_json has validated before.
    pub(crate) fn of_valid(object: &'a [u8]) -> Result<Self, serde_json::Error> {
        let mut peek = Self::default();
        match peek.read(object, false) {
            Some(()) => Ok(peek),
            // serde_json validates Unicode only in strings that it decodes.
            None => Err(serde_json::Error::custom(
                "not a JSON object, or its metadata has invalid Unicode",
            )),
        }
    }

    /// Reads until name, UID and resource version are found, or as far as the bytes can be parsed.
    /// API servers write the namespace before UID and resource version, so the namespace is found
    /// too.
    pub(crate) fn identity(object: &'a [u8]) -> Self {
        let mut peek = Self::default();
        // `None` is not an error here: it may also mean that the identity is complete.
        let _ = peek.read(object, true);
        peek
    }

    fn read(&mut self, object: &'a [u8], identity_only: bool) -> Option<()> {
        let mut cursor = Cursor::new(object);
        if !cursor.enter(b'{') {
            return None;
        }
        let mut has_metadata = false;
        while let Some(key) = cursor.key()? {
            match &*key.unescaped()? {
                "apiVersion" => self.api_version = cursor.string_or_null()?.unwrap_or_default(),
                "kind" => self.kind = cursor.string_or_null()?.unwrap_or_default(),
                "metadata" => {
                    self.is_ambiguous |= std::mem::replace(&mut has_metadata, true);
                    self.read_metadata(&mut cursor, identity_only)?;
                    if identity_only {
                        return None;
                    }
                }
                _ => {
                    cursor.value()?;
                }
            }
        }
        Some(())
    }

    fn read_metadata(&mut self, cursor: &mut Cursor<'a>, identity_only: bool) -> Option<()> {
        if !cursor.enter(b'{') {
            return cursor.value().map(drop);
        }
        let (mut has_name, mut has_namespace) = (false, false);
        while let Some(key) = cursor.key()? {
            match &*key.unescaped()? {
                key @ ("name" | "namespace") => {
                    let (field, is_repeated) = match key {
                        "name" => (&mut self.name, std::mem::replace(&mut has_name, true)),
                        _ => (
                            &mut self.namespace,
                            std::mem::replace(&mut has_namespace, true),
                        ),
                    };
                    let text = cursor.string_or_null()?;
                    self.is_ambiguous |= is_repeated || text.is_none();
                    *field = text.unwrap_or_default();
                }
                "uid" => self.uid = cursor.string_or_null()?.unwrap_or_default(),
                "resourceVersion" => {
                    self.resource_version = cursor.string_or_null()?.unwrap_or_default();
                }
                "annotations" if !identity_only => {
                    self.initial_events_end = ends_initial_events(cursor)?;
                }
                _ => {
                    cursor.value()?;
                }
            }
            if identity_only && self.is_identified() {
                return None;
            }
        }
        Some(())
    }

    fn is_identified(&self) -> bool {
        !self.name.is_empty() && !self.uid.is_empty() && !self.resource_version.is_empty()
    }
}

fn ends_initial_events(cursor: &mut Cursor<'_>) -> Option<bool> {
    if !cursor.enter(b'{') {
        return cursor.value().map(|_| false);
    }
    let mut ends = false;
    while let Some(key) = cursor.key()? {
        let key = key.unescaped()?;
        let value = cursor.string_or_null()?;
        ends |= key == "k8s.io/initial-events-end" && value.is_some_and(|value| value == "true");
    }
    Some(ends)
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
    fn identity_is_read_at_any_position() {
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
    fn non_string_identity_fields_read_as_empty() {
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
    fn identity_is_read_from_truncated_object() {
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

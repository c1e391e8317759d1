use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::{DecodeLimits, EscapedName, Event, EventKind, FieldPaths, ListMeta, Shard};
use crate::base::adaptive_buffer::AdaptiveBuffer;
use crate::base::digest::Digest;
use crate::base::panic;
use crate::decode_error::{DecodeError, explain};
use crate::error::Error;
use crate::json::Peek;
use crate::json::{self, stack};
use crate::object::{GroupVersionKind, Key, Object, namespaced_key};
use crate::wire;

/// The functions that decode a `T`. The `Deserialize` implementation of `T` is only instantiated
/// here.
pub(crate) struct Decode<T> {
    decode: fn(&[u8]) -> Result<T, serde_json::Error>,
    /// Explains an error of `decode`.
    explain: fn(&[u8], &serde_json::Error) -> DecodeError,
}

impl<T: DeserializeOwned + Send> Decode<T> {
    pub(crate) fn new() -> Self {
        Self {
            // Validates UTF-8 once. serde_json would validate each string separately.
            decode: |json| match str::from_utf8(json) {
                Ok(text) => json::from_str(text),
                // This succeeds if `T` ignores the invalid text.
                Err(_) => serde_json::from_slice(json),
            },
            explain: |json, error| explain::<T>(json, error),
        }
    }
}

impl<T> Copy for Decode<T> {}

impl<T> Clone for Decode<T> {
    fn clone(&self) -> Self {
        *self
    }
}

/// Options for a [`Decoder`].
#[derive(Clone, Debug, Default)]
pub(crate) struct DecodeOptions {
    pub(crate) skip: FieldPaths,
    pub(crate) limits: DecodeLimits,
    /// Whether errors include the messages of custom `Deserialize` implementations, which may
    /// contain values.
    pub(crate) show_custom_errors: bool,
    /// The kind of the objects. `None` accepts every kind.
    pub(crate) expected_kind: Option<GroupVersionKind>,
    /// The shard whose objects are decoded. Other objects are skipped.
    pub(crate) shard: Option<Shard>,
    /// Whether the decoder runs on threads whose stack may be too small for deeply nested objects.
    pub(crate) small_stack: bool,
}

/// Decodes objects, list items and watch events.
pub(crate) struct Decoder<T> {
    decode: Decode<T>,
    options: DecodeOptions,
    /// Whether `apiVersion` and `kind` are skipped.
    skips_type_meta: [bool; 2],
    expected: Option<Expected>,
    /// The JSON of an object without its skipped fields.
    buffer: AdaptiveBuffer,
}

struct Expected {
    kind: GroupVersionKind,
    api_version: String,
    /// The first bytes of an object of this kind, as API servers write it. They are compared first,
    /// because they nearly always match and the kind then needs no parsing.
    prefixes: [Vec<u8>; 2],
}

/// An object that could not be decoded, keyed or transformed.
#[derive(Debug)]
pub(crate) struct Unreadable {
    namespace: String,
    name: String,
    /// Whether namespace and name identify the object.
    is_identified: bool,
    /// The key of the object in the store, if the store returned it.
    pub(crate) key: Option<Key>,
    pub(crate) resource_version: String,
    /// The error, without the name of the object.
    error: Error,
}

/// The result of decoding a watch event.
pub(crate) enum Decoded<T> {
    Object(T, Digest),
    /// The caller already has this object.
    Unchanged(Key, Arc<T>, Digest),
    /// The object belongs to another shard.
    OtherShard {
        resource_version: String,
    },
    /// The frame is valid, but its object cannot be decoded.
    Unreadable(Unreadable),
    /// The object does not have the expected kind (W9).
    OtherKind(Unreadable),
    Bookmark {
        resource_version: String,
        initial_events_end: bool,
    },
    Error(Error),
}

/// The result of decoding a list item.
pub(crate) enum DecodedItem<T> {
    Object(T, Digest),
    /// An object without a kind, in a list that has not sent its own kind before the items.
    WithoutKind(T, Digest),
    /// The caller already has this object.
    Unchanged(Key, Arc<T>, Digest),
    /// The object belongs to another shard.
    OtherShard,
}

/// The reason why a frame is not an event.
pub(crate) enum BadFrame {
    /// The frame contains several events.
    Several,
    Malformed(Error),
}

/// Returns the object with this identity if the caller already has it with this digest.
pub(crate) type Unchanged<'a, T> = dyn Fn(&Peek<'_>, Digest) -> Option<(Key, Arc<T>)> + 'a;

impl<T> Decoder<T> {
    pub(crate) fn new(decode: Decode<T>, options: DecodeOptions) -> Self {
        let expected = options.expected_kind.clone().map(|kind| {
            let (name, api_version) = (&*kind.kind, kind.api_version());
            let prefixes = [
                format!(r#"{{"kind":"{name}","apiVersion":"{api_version}","#).into_bytes(),
                format!(r#"{{"apiVersion":"{api_version}","kind":"{name}","#).into_bytes(),
            ];
            Expected {
                api_version,
                prefixes,
                kind,
            }
        });
        Self {
            decode,
            skips_type_meta: ["apiVersion", "kind"].map(|field| options.skip.has_field(field)),
            options,
            expected,
            buffer: AdaptiveBuffer::default(),
        }
    }

    pub(crate) fn limits(&self) -> DecodeLimits {
        self.options.limits
    }

    /// Checks that a list of this kind can contain the expected objects. Custom resources may use
    /// any list kind.
    pub(crate) fn check_list(&self, api_version: &str, kind: &str) -> Result<(), Error> {
        let Some(Expected {
            kind: expected,
            api_version: expected_version,
            ..
        }) = &self.expected
        else {
            return Ok(());
        };
        let group = &*expected.group;
        let free = group.contains('.') && !group.ends_with(".k8s.io");
        let fits = kind
            .strip_suffix("List")
            .is_some_and(|of| of.is_empty() || of == expected.kind);
        if api_version.is_empty()
            || kind == "List"
            || api_version == expected_version && (free || fits)
        {
            return Ok(());
        }
        let (api_version, kind) = (EscapedName(api_version), EscapedName(kind));
        Err(Error::invalid(format!(
            "expected a list of {expected}, found \"{api_version}\" \"{kind}\""
        )))
    }

    /// Decodes one object.
    fn object(&mut self, bytes: &[u8]) -> Result<T, Error>
    where
        T: Send,
    {
        // Reject an array here, because serde accepts an array for a struct, field by field.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Error::invalid("not a JSON object"));
        }
        self.options.limits.check_nesting(bytes)?;
        let Decode { decode, explain } = self.decode;
        let decode = |bytes| {
            panic::catch(|| match self.options.small_stack {
                true => stack::decoded(bytes, || decode(bytes)),
                false => decode(bytes),
            })
        };
        let cut = self.options.skip.cut(bytes, self.buffer.bytes());
        let decoded = match decode(cut) {
            // Decode the whole object: the type may require a skipped field. If decoding fails
            // again, the error has the right position.
            Err(_) | Ok(Err(_)) if cut.len() < bytes.len() => decode(bytes),
            decoded => decoded,
        };
        self.buffer.clear();
        let error = match decoded {
            Ok(Ok(object)) => return Ok(object),
            Ok(Err(error)) => explain(bytes, &error),
            Err(panic) => {
                return Err(Error::invalid(format!(
                    "the type's Deserialize implementation {panic}"
                )));
            }
        };
        Err(Error::invalid(match self.options.show_custom_errors {
            true => error.with_custom_text(),
            false => error.to_string(),
        }))
    }
}

impl<T: Object> Decoder<T> {
    /// Decodes a list item. `head` is the metadata that the list sent before its items.
    pub(crate) fn list_item(
        &mut self,
        bytes: &[u8],
        head: &ListMeta,
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Result<DecodedItem<T>, Unreadable> {
        let digest = Digest::of(bytes);
        match self.peek_identity(bytes, digest, unchanged) {
            Some(Decoded::Unchanged(key, object, digest)) => {
                return Ok(DecodedItem::Unchanged(key, object, digest));
            }
            Some(Decoded::OtherShard { .. }) => return Ok(DecodedItem::OtherShard),
            Some(Decoded::Unreadable(unreadable)) => return Err(unreadable),
            _ => {}
        }
        let mut object = self.item(bytes)?;
        if object.name().is_empty() {
            return Err(Unreadable::nameless(&object));
        }
        if head.api_version_and_kind().1.is_empty() && !has_type_meta(bytes) {
            return Ok(DecodedItem::WithoutKind(object, digest));
        }
        self.set_type_meta(&mut object, head);
        Ok(DecodedItem::Object(object, digest))
    }

    /// Sets `apiVersion` and `kind` of a list item from its list, if the item has none.
    pub(crate) fn set_type_meta(&self, item: &mut T, list: &ListMeta) {
        if let Some((api_version, kind)) = list.type_meta_of_items() {
            let [no_api_version, no_kind] = self.skips_type_meta;
            let unless_skipped = |skipped, text| if skipped { "" } else { text };
            item.set_type_meta(
                unless_skipped(no_api_version, api_version),
                unless_skipped(no_kind, kind),
            );
        }
    }

    /// Decodes one object of a list.
    pub(crate) fn item(&mut self, bytes: &[u8]) -> Result<T, Unreadable> {
        self.object(bytes)
            .map_err(|error| match Peek::whole(bytes) {
                Ok(peek) => Unreadable::undecoded(&peek, error),
                // Invalid JSON may contain parts of several objects, so the name that `identity`
                // finds may belong to another object.
                Err(_) => Unreadable {
                    is_identified: false,
                    ..Unreadable::undecoded(&Peek::identity(bytes), error)
                },
            })
    }

    /// Decodes the response to a request for one object.
    #[cfg(feature = "client")]
    pub(crate) fn response(&mut self, bytes: &[u8]) -> Result<T, Error> {
        if !self.has_expected_prefix(bytes)
            && let Ok(peek) = Peek::whole(bytes)
        {
            self.check_kind(&peek)?;
        }
        self.object(bytes)
    }

    /// Decodes a watch event. `unchanged` is only called for ADDED events.
    pub(crate) fn event(
        &mut self,
        frame: &[u8],
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Result<(EventKind, Decoded<T>), BadFrame> {
        let event = Event::parse(frame).map_err(|error| bad_frame(frame, &error))?;
        let decoded = match event.kind {
            EventKind::Error => {
                Decoded::Error(Error::from_status(wire::error_status(event.object)))
            }
            EventKind::Bookmark => {
                let peek = Peek::whole(event.object).map_err(|error| bad_frame(frame, &error))?;
                match self.check_kind(&peek) {
                    Err(error) => Decoded::OtherKind(Unreadable::undecoded(&peek, error)),
                    Ok(()) => Decoded::Bookmark {
                        resource_version: peek.resource_version.into_owned(),
                        initial_events_end: peek.initial_events_end,
                    },
                }
            }
            _ => return self.change(frame, event, unchanged),
        };
        Ok((event.kind, decoded))
    }

    /// Decodes an ADDED, MODIFIED or DELETED event.
    fn change(
        &mut self,
        frame: &[u8],
        event: Event<'_>,
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Result<(EventKind, Decoded<T>), BadFrame> {
        let mut failed = None;
        let digest = Digest::of(event.object);
        if self.has_expected_prefix(event.object) {
            let unchanged = unchanged.filter(|_| event.kind == EventKind::Added);
            if let Some(decoded) = self.peek_identity(event.object, digest, unchanged)
                // An unchanged object has been parsed before. Otherwise check that nothing follows
                // the object in the frame.
                && (matches!(decoded, Decoded::Unchanged(..)) || json::is_one_value(event.object))
            {
                return Ok((event.kind, decoded));
            }
            match self.object(event.object) {
                Ok(object) => return Ok((event.kind, Decoded::Object(object, digest))),
                Err(error) => failed = Some((event.object, error)),
            }
        }
        // The fast path failed, so parse the whole frame. Another field may follow the object, the
        // object may not begin with one of the expected prefixes, or the frame may be broken.
        let event = Event::parse_slowly(frame).map_err(|error| bad_frame(frame, &error))?;
        let peek = Peek::whole(event.object).map_err(|error| bad_frame(frame, &error))?;
        if let Err(error) = self.check_kind(&peek) {
            let other = Unreadable::undecoded(&peek, error);
            return Ok((event.kind, Decoded::OtherKind(other)));
        }
        let digest = Digest::of(event.object);
        if let Some(decoded) = self.peek_identity(event.object, digest, None) {
            return Ok((event.kind, decoded));
        }
        let decoded = match failed {
            Some((object, error)) if std::ptr::eq(object, event.object) => Err(error),
            _ => self.object(event.object),
        };
        let decoded = match decoded {
            Ok(object) => Decoded::Object(object, digest),
            Err(error) => Decoded::Unreadable(Unreadable::undecoded(&peek, error)),
        };
        Ok((event.kind, decoded))
    }

    /// Reads the identity of an object, and returns the outcome if the object need not be decoded:
    /// it belongs to another shard, its shard cannot be determined, or it is unchanged.
    fn peek_identity(
        &self,
        object: &[u8],
        digest: Digest,
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Option<Decoded<T>> {
        if self.options.shard.is_none() && unchanged.is_none() {
            return None;
        }
        let identity = Peek::identity(object);
        match self.is_of_other_shard(&identity, object) {
            Err(unreadable) => Some(Decoded::Unreadable(unreadable)),
            Ok(true) => Some(Decoded::OtherShard {
                resource_version: identity.resource_version.into_owned(),
            }),
            Ok(false) => unchanged
                .and_then(|unchanged| unchanged(&identity, digest))
                .map(|(key, object)| Decoded::Unchanged(key, object, digest)),
        }
    }

    /// Whether the object belongs to another shard. Fails if its shard cannot be determined.
    fn is_of_other_shard(&self, identity: &Peek<'_>, object: &[u8]) -> Result<bool, Unreadable> {
        let Some(shard) = &self.options.shard else {
            return Ok(false);
        };
        let (field, value) = match shard.is_by_namespace() {
            true => ("namespace", &identity.namespace),
            false => ("uid", &identity.uid),
        };
        if !value.is_empty() {
            return Ok(!shard.contains(value));
        }
        // The field is missing or not in its usual place, so search the whole object. Nameless and
        // invalid objects count as objects of this shard: decoding them reports the error.
        let Ok(peek) = Peek::whole(object) else {
            return Ok(false);
        };
        let (value, is_unclear) = match shard.is_by_namespace() {
            true => (&peek.namespace, peek.is_ambiguous),
            false => (&peek.uid, peek.has_invalid_uid),
        };
        match peek.name.is_empty() {
            true => Ok(false),
            false if is_unclear => {
                let error =
                    Error::invalid(format!("the shard can't be determined from the {field}"));
                Err(Unreadable::undecoded(&peek, error))
            }
            false => Ok(!shard.contains(value)),
        }
    }

    fn has_expected_prefix(&self, object: &[u8]) -> bool {
        let Some(Expected { prefixes, .. }) = &self.expected else {
            return true;
        };
        prefixes.iter().any(|prefix| object.starts_with(prefix))
    }

    fn check_kind(&self, peek: &Peek<'_>) -> Result<(), Error> {
        match &self.expected {
            Some(Expected {
                kind, api_version, ..
            }) if !peek.kind.is_empty()
                && (peek.kind != kind.kind || *peek.api_version != **api_version) =>
            {
                let (api_version, other) =
                    (EscapedName(&peek.api_version), EscapedName(&peek.kind));
                Err(Error::invalid(format!(
                    "expected {kind}, found \"{api_version}\" \"{other}\""
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Whether the object has an `apiVersion` or a `kind`. Custom resources have both, but their lists
/// may send the kind only after the items.
fn has_type_meta(object: &[u8]) -> bool {
    let begins = |with: &[u8]| {
        object
            .strip_prefix(with)
            .is_some_and(|rest| !rest.starts_with(b"\""))
    };
    begins(br#"{"apiVersion":""#)
        || begins(br#"{"kind":""#)
        || Peek::whole(object)
            .is_ok_and(|peek| !peek.api_version.is_empty() || !peek.kind.is_empty())
}

impl Unreadable {
    fn undecoded(peek: &Peek<'_>, error: Error) -> Self {
        Self {
            namespace: peek.namespace.clone().into_owned(),
            name: peek.name.clone().into_owned(),
            is_identified: !peek.is_ambiguous && !peek.name.is_empty(),
            key: None,
            resource_version: peek.resource_version.clone().into_owned(),
            error,
        }
    }

    /// Creates the error of a decoded object that cannot be used.
    pub(crate) fn of<T: Object>(object: &T, error: Error) -> Self {
        Self {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            is_identified: !object.name().is_empty(),
            key: None,
            resource_version: object.resource_version().to_owned(),
            error,
        }
    }

    pub(crate) fn nameless<T: Object>(object: &T) -> Self {
        Self::of(object, Error::invalid("the object has no name"))
    }

    /// Returns namespace and name, if they identify the object.
    pub(crate) fn identity(&self) -> Option<(&str, &str)> {
        self.is_identified
            .then_some((&*self.namespace, &*self.name))
    }

    /// Returns the key `namespace/name`, if it identifies the object.
    pub(crate) fn namespaced_key(&self) -> Option<Key> {
        self.identity()
            .map(|(namespace, name)| namespaced_key(namespace, name))
    }

    /// Returns the error with `place` as its context.
    pub(crate) fn into_error(self, place: String) -> Error {
        self.error.context(place)
    }

    /// Returns the error with the name of the object as its context. Without a name, the context is
    /// `place`.
    pub(crate) fn error_at(&self, place: impl FnOnce() -> String) -> Error {
        let error = self.error.clone();
        match (self.namespace.as_str(), self.name.as_str()) {
            (_, "") => error.context(place()),
            ("", name) => error.context(EscapedName(name).to_string()),
            (namespace, name) => {
                error.context(format!("{}/{}", EscapedName(namespace), EscapedName(name)))
            }
        }
    }
}

fn bad_frame(frame: &[u8], error: &serde_json::Error) -> BadFrame {
    if wire::has_several(frame) {
        return BadFrame::Several;
    }
    BadFrame::Malformed(Error::invalid(error.to_string()))
}

use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::shard::ShardBy;
use super::{DecodeLimits, EscapedName, Event, EventKind, FieldPaths, ListMeta, Shard, SplitError};
use crate::base::adaptive_buffer::AdaptiveBuffer;
use crate::base::digest::Digest;
use crate::base::panic;
use crate::decode_error::{DecodeError, explain};
use crate::error::Error;
use crate::json::Peek;
use crate::json::{self, stack};
use crate::object::{GroupVersionKind, Key, Object, PartialObjectMetadata, namespaced_key};
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
    expected: Option<Expected>,
    /// The JSON of an object without its skipped fields. Taken while an object is decoded.
    buffer: AdaptiveBuffer,
}

/// The JSON of one object.
struct ObjectJson<'a> {
    /// As the server sent it.
    sent: &'a [u8],
    /// Without the skipped fields. The same bytes if it has none of them.
    kept: &'a [u8],
    /// The digest of `kept`.
    digest: Digest,
}

struct Expected {
    kind: GroupVersionKind,
    api_version: String,
    /// The first bytes of an object of this kind, as API servers write it. They are compared first,
    /// because they nearly always match and the kind then needs no parsing.
    prefixes: [Vec<u8>; 2],
}

/// An object that is too large, or that could not be decoded, keyed or transformed.
#[derive(Debug)]
pub(crate) struct Unreadable {
    namespace: String,
    name: String,
    /// Whether namespace and name identify the object.
    is_identified: bool,
    /// The key of the object in the store, if the store returned it.
    pub(crate) key: Option<Key>,
    /// The version of the object. `None` if an event with it does not count as one (W9).
    pub(crate) resource_version: Option<String>,
    /// The error, without the name of the object.
    pub(crate) error: Error,
}

/// The result of decoding a watch event.
pub(crate) enum Decoded<T> {
    /// The object was added, modified or deleted.
    Change(EventKind, DecodedObject<T>),
    /// The object does not have the expected kind (W9).
    OtherKind(EventKind, Unreadable),
    Bookmark {
        resource_version: String,
        initial_events_end: bool,
    },
    Error(Error),
}

/// The result of decoding an object of a list or of a watch event.
pub(crate) enum DecodedObject<T> {
    Object(T, Digest),
    /// The caller already has this object.
    Unchanged(Key, Arc<T>, Digest),
    /// The object belongs to another shard. It may have been in this one before.
    OtherShard {
        resource_version: String,
        key: Key,
    },
    /// The object is too large, cannot be decoded, or has no name.
    Unreadable(Unreadable),
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
            options,
            expected,
            buffer: AdaptiveBuffer::default(),
        }
    }

    #[cfg(feature = "client")]
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

    /// Cuts the skipped fields from an object and passes it to `decode`.
    fn without_skipped<R>(
        &mut self,
        object: &[u8],
        decode: impl FnOnce(&Self, &ObjectJson<'_>) -> R,
    ) -> R {
        let mut buffer = std::mem::take(&mut self.buffer);
        let kept = self.options.skip.cut(object, buffer.bytes());
        let json = ObjectJson {
            sent: object,
            kept,
            digest: Digest::of(kept),
        };
        let decoded = decode(self, &json);
        buffer.clear();
        self.buffer = buffer;
        decoded
    }

    /// Decodes one object, and returns the digest of the JSON from which it was decoded.
    fn object(&self, json: &ObjectJson<'_>) -> Result<(T, Digest), Error>
    where
        T: Send,
    {
        let &ObjectJson { sent, kept, digest } = json;
        // Reject an array here, because serde accepts an array for a struct, field by field.
        if sent.trim_ascii_start().first() != Some(&b'{') {
            return Err(Error::invalid("not a JSON object"));
        }
        self.options.limits.check_nesting(sent)?;
        let Decode { decode, explain } = self.decode;
        let decode = |bytes| {
            panic::catch(|| match self.options.small_stack {
                true => stack::decoded(bytes, || decode(bytes)),
                false => decode(bytes),
            })
        };
        let (decoded, digest) = match decode(kept) {
            // Decode the whole object: the type may require a skipped field. Then the digest covers
            // that field as well. If decoding fails again, the error has the right position.
            Err(_) | Ok(Err(_)) if kept.len() < sent.len() => (decode(sent), Digest::of(sent)),
            decoded => (decoded, digest),
        };
        let error = match decoded {
            Ok(Ok(object)) => return Ok((object, digest)),
            Ok(Err(error)) => explain(sent, &error),
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
    ) -> DecodedObject<T> {
        let identity = self.peek_identity(bytes, unchanged);
        if let Some(skipped) = self.other_shard(identity.as_ref(), bytes) {
            return skipped;
        }
        self.without_skipped(bytes, |this, json| {
            if let Some(unchanged) = find_unchanged(identity.as_ref(), json, unchanged) {
                return unchanged;
            }
            match this.object(json) {
                Ok((mut object, digest)) => match this.set_type_meta(&mut object, head) {
                    Ok(()) => DecodedObject::named(object, digest, bytes),
                    Err(error) => DecodedObject::Unreadable(Unreadable::item(bytes, error)),
                },
                Err(error) => DecodedObject::Unreadable(Unreadable::item(bytes, error)),
            }
        })
    }

    /// Sets `apiVersion` and `kind` of a list item from its list, if the item has none. Fails if
    /// the type's method panics.
    pub(crate) fn set_type_meta(&self, item: &mut T, list: &ListMeta) -> Result<(), Error> {
        let Some((api_version, kind)) = list.type_meta_of_items() else {
            return Ok(());
        };
        let unless_skipped = |field, text| match self.options.skip.has_field(field) {
            true => "",
            false => text,
        };
        let (api_version, kind) = (
            unless_skipped("apiVersion", api_version),
            unless_skipped("kind", kind),
        );
        panic::catch(|| item.set_type_meta(api_version, kind))
            .map_err(|panic| Error::invalid(format!("the type's set_type_meta {panic}")))
    }

    /// Decodes one object of a list.
    #[cfg(feature = "client")]
    pub(crate) fn item(&mut self, bytes: &[u8]) -> Result<T, Unreadable> {
        let decoded = self.without_skipped(bytes, |this, json| this.object(json));
        match decoded {
            Ok((object, _)) => Ok(object),
            Err(error) => Err(Unreadable::item(bytes, error)),
        }
    }

    /// Decodes the response to a request for one object.
    #[cfg(feature = "client")]
    pub(crate) fn response(&mut self, bytes: &[u8]) -> Result<T, Error> {
        if !self.has_expected_prefix(bytes)
            && let Ok(peek) = Peek::whole(bytes)
        {
            self.check_kind(&peek)?;
        }
        let (object, _) = self.without_skipped(bytes, |this, json| this.object(json))?;
        Ok(object)
    }

    /// Decodes a watch event. `unchanged` is only called for ADDED events.
    pub(crate) fn event(
        &mut self,
        frame: &[u8],
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Result<Decoded<T>, BadFrame> {
        let mut failed = None;
        if let Some(Event { kind, object }) = Event::usual(frame)
            && self.has_expected_prefix(object)
        {
            let unchanged = unchanged.filter(|_| kind == EventKind::Added);
            match self.usual_object(object, unchanged) {
                Ok(decoded) => return Ok(Decoded::Change(kind, decoded)),
                Err(error) => failed = Some((object, error)),
            }
        }
        // Parse the whole frame if it is not a change in the usual form. Parse it a second time if
        // its object could not be decoded: the frame may be broken, another field may follow the
        // object, or the error needs the name of the object.
        let bad_frame = |error| bad_frame(frame, &error);
        let Event { kind, object } = Event::parse(frame).map_err(bad_frame)?;
        if kind == EventKind::Error {
            return Ok(Decoded::Error(Error::from_status(wire::error_status(
                object,
            ))));
        }
        let peek = Peek::of_valid(object).map_err(bad_frame)?;
        if let Err(error) = self.check_kind(&peek) {
            let other = Unreadable::of_other_kind(&peek, error);
            return Ok(Decoded::OtherKind(kind, other));
        }
        if kind == EventKind::Bookmark {
            return Ok(Decoded::Bookmark {
                resource_version: peek.resource_version.into_owned(),
                initial_events_end: peek.initial_events_end,
            });
        }
        let identity = self.peek_identity(object, None);
        if let Some(skipped) = self.other_shard(identity.as_ref(), object) {
            return Ok(Decoded::Change(kind, skipped));
        }
        let decoded = match failed {
            Some((same, error)) if std::ptr::eq(same, object) => Err(error),
            _ => self.without_skipped(object, |this, json| this.object(json)),
        };
        let decoded = match decoded {
            Ok((decoded, digest)) => DecodedObject::named(decoded, digest, object),
            Err(error) => DecodedObject::Unreadable(Unreadable::undecoded(&peek, error)),
        };
        Ok(Decoded::Change(kind, decoded))
    }

    /// Reads the beginning of a list item that is larger than the limit.
    pub(crate) fn large_item(&self, head: &[u8]) -> DecodedObject<T> {
        let limit = self.options.limits.object_bytes;
        let what = "the object";
        let error = Error::from(SplitError::TooLarge { what, limit });
        // With all of its metadata, the object is read like any other that cannot be decoded.
        if let Some(metadata) = json::first_member(head, "metadata") {
            let object = [br#"{"metadata":"#, metadata, b"}"].concat();
            let other_shard = self.other_shard(Some(&Peek::identity(&object)), &object);
            return other_shard
                .unwrap_or_else(|| DecodedObject::Unreadable(Unreadable::item(&object, error)));
        }
        let identity = Peek::identity(head);
        self.other_shard(Some(&identity), head).unwrap_or_else(|| {
            let mut unreadable = Unreadable::undecoded(&identity, error);
            // Otherwise, the rest of the metadata may have the namespace.
            unreadable.is_identified &= !identity.namespace.is_empty();
            DecodedObject::Unreadable(unreadable)
        })
    }

    /// Reads the beginning of a frame that is larger than the limit.
    pub(crate) fn large_event(&self, head: &[u8]) -> Result<Decoded<T>, BadFrame> {
        let event = Event::beginning(head);
        let Some(Event {
            kind: kind @ (EventKind::Added | EventKind::Modified | EventKind::Deleted),
            object,
        }) = event
        else {
            let limit = self.options.limits.object_bytes;
            let what = "a watch event";
            return Err(BadFrame::Malformed(
                SplitError::TooLarge { what, limit }.into(),
            ));
        };
        let identity = Peek::identity(object);
        Ok(match self.check_kind(&identity) {
            Ok(()) => Decoded::Change(kind, self.large_item(object)),
            Err(error) => Decoded::OtherKind(kind, Unreadable::of_other_kind(&identity, error)),
        })
    }

    /// Decodes the object of a change in the usual form.
    fn usual_object(
        &mut self,
        object: &[u8],
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Result<DecodedObject<T>, Error> {
        let identity = self.peek_identity(object, unchanged);
        // The object is not decoded, so check that nothing follows it in the frame.
        if let Some(skipped) = self.other_shard(identity.as_ref(), object)
            && json::is_one_value(object)
        {
            return Ok(skipped);
        }
        self.without_skipped(object, |this, json| {
            // An unchanged object has been parsed before.
            if let Some(unchanged) = find_unchanged(identity.as_ref(), json, unchanged) {
                return Ok(unchanged);
            }
            let (decoded, digest) = this.object(json)?;
            Ok(DecodedObject::named(decoded, digest, object))
        })
    }

    /// Reads the identity of an object if it is needed before the object is decoded.
    fn peek_identity<'a>(
        &self,
        object: &'a [u8],
        unchanged: Option<&Unchanged<'_, T>>,
    ) -> Option<Peek<'a>> {
        let is_needed = self.options.shard.is_some() || unchanged.is_some();
        is_needed.then(|| Peek::identity(object))
    }

    /// Returns the outcome if the object belongs to another shard, or if its shard cannot be
    /// determined.
    fn other_shard(&self, identity: Option<&Peek<'_>>, object: &[u8]) -> Option<DecodedObject<T>> {
        let identity = identity?;
        match self.is_of_other_shard(identity, object) {
            Err(unreadable) => Some(DecodedObject::Unreadable(unreadable)),
            Ok(true) => {
                // The identity ends with UID and version, which the namespace may follow.
                let whole = match &*identity.namespace {
                    "" => Peek::of_valid(object).ok(),
                    _ => None,
                };
                let Peek {
                    namespace,
                    name,
                    resource_version,
                    ..
                } = whole.as_ref().unwrap_or(identity);
                Some(DecodedObject::OtherShard {
                    key: namespaced_key(namespace, name),
                    resource_version: resource_version.clone().into_owned(),
                })
            }
            Ok(false) => None,
        }
    }

    /// Whether the object belongs to another shard. Fails if its shard cannot be determined.
    fn is_of_other_shard(&self, identity: &Peek<'_>, object: &[u8]) -> Result<bool, Unreadable> {
        let Some(shard) = &self.options.shard else {
            return Ok(false);
        };
        let value = match shard.by {
            ShardBy::Uid => &identity.uid,
            ShardBy::Namespace => &identity.namespace,
            ShardBy::Controller => "",
        };
        if !value.is_empty() {
            return Ok(!shard.contains(value));
        }
        // The field is missing or not in its usual place. Nameless and invalid objects count as
        // objects of this shard: decoding them reports the error.
        match serde_json::from_slice::<PartialObjectMetadata>(object) {
            Ok(object) => Ok(!object.name().is_empty() && !shard.contains_object(&object.metadata)),
            Err(_) => match Peek::whole(object) {
                Ok(peek) if !peek.name.is_empty() => {
                    let error = "the shard can't be determined from the metadata";
                    Err(Unreadable::undecoded(&peek, Error::invalid(error)))
                }
                _ => Ok(false),
            },
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

/// Returns the outcome if the caller already has this object.
fn find_unchanged<T>(
    identity: Option<&Peek<'_>>,
    json: &ObjectJson<'_>,
    unchanged: Option<&Unchanged<'_, T>>,
) -> Option<DecodedObject<T>> {
    let (key, object) = unchanged?(identity?, json.digest)?;
    Some(DecodedObject::Unchanged(key, object, json.digest))
}

/// Whether a list item has neither `apiVersion` nor `kind`. Custom resources have both, but their
/// lists may send the kind only after the items.
pub(crate) fn lacks_type_meta(object: &[u8]) -> bool {
    let begins = |with: &[u8]| {
        object
            .strip_prefix(with)
            .is_some_and(|rest| !rest.starts_with(b"\""))
    };
    !begins(br#"{"apiVersion":""#)
        && !begins(br#"{"kind":""#)
        && !Peek::whole(object)
            .is_ok_and(|peek| !peek.api_version.is_empty() || !peek.kind.is_empty())
}

impl<T: Object> DecodedObject<T> {
    /// Passes on an object that was decoded from `json`, if it has a name and its accessors work.
    fn named(object: T, digest: Digest, json: &[u8]) -> Self {
        // The accessors of a hand-written type are user code. Each one is called here once, so one
        // that panics costs this object, and not the list or the watch that it belongs to.
        let has_name = panic::catch(|| {
            for accessor in [T::namespace, T::uid, T::resource_version] {
                let _ = accessor(&object);
            }
            !object.name().is_empty()
        });
        match has_name {
            Ok(true) => Self::Object(object, digest),
            Ok(false) => Self::Unreadable(Unreadable::nameless(&object)),
            Err(panic) => {
                let error = Error::invalid(format!("an accessor of the type {panic}"));
                Self::Unreadable(Unreadable::item(json, error))
            }
        }
    }
}

impl Unreadable {
    fn undecoded(peek: &Peek<'_>, error: Error) -> Self {
        Self {
            namespace: peek.namespace.clone().into_owned(),
            name: peek.name.clone().into_owned(),
            is_identified: !peek.is_ambiguous && !peek.name.is_empty(),
            key: None,
            resource_version: Some(peek.resource_version.clone().into_owned()),
            error,
        }
    }

    fn of_other_kind(peek: &Peek<'_>, error: Error) -> Self {
        Self {
            resource_version: None,
            ..Self::undecoded(peek, error)
        }
    }

    /// Creates the error of an object whose JSON may be invalid.
    fn item(item: &[u8], error: Error) -> Self {
        let whole = Peek::whole(item);
        // Invalid JSON may contain parts of several objects, so the name that `identity` finds
        // may belong to another object.
        let is_valid = whole.is_ok();
        let peek = whole.unwrap_or_else(|_| Peek::identity(item));
        let mut unreadable = Self::undecoded(&peek, error);
        unreadable.is_identified &= is_valid;
        unreadable
    }

    /// Creates the error of a decoded object that cannot be used.
    pub(crate) fn of<T: Object>(object: &T, error: Error) -> Self {
        // The object may have been refused because its accessors panic. Nothing is known of it then.
        let read = panic::catch(|| {
            [T::namespace, T::name, T::resource_version].map(|accessor| accessor(object).to_owned())
        });
        let [namespace, name, resource_version] = read.unwrap_or_default();
        Self {
            is_identified: !name.is_empty(),
            namespace,
            name,
            key: None,
            resource_version: Some(resource_version),
            error,
        }
    }

    /// Creates the error of an object without a name.
    pub(crate) fn nameless<T: Object>(object: &T) -> Self {
        Self {
            resource_version: None,
            ..Self::of(object, Error::invalid("the object has no name"))
        }
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

    /// Returns the error with the name of the object as its context. Without a name, the context is
    /// `place`.
    pub(crate) fn error_at(&self, place: impl FnOnce() -> String) -> Error {
        let error = self.error.clone();
        error.context(match (self.namespace.as_str(), self.name.as_str()) {
            (_, "") => place(),
            ("", name) => EscapedName(name).to_string(),
            (namespace, name) => format!("{}/{}", EscapedName(namespace), EscapedName(name)),
        })
    }
}

fn bad_frame(frame: &[u8], error: &serde_json::Error) -> BadFrame {
    if wire::has_several(frame) {
        return BadFrame::Several;
    }
    BadFrame::Malformed(Error::invalid(error.to_string()))
}

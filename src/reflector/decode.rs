use std::sync::Arc;

use super::headroom::Headroom;
use super::{Decode, Recycle, ReflectorOptions};
use crate::error::Error;
use crate::object::{GroupVersionKind, Key, Object, meta_namespace_key, namespaced_key};
use crate::panic;
use crate::scan;
use crate::stack;
use crate::store::{ReflectorStore, StoreError};
use crate::wire::{
    self, DecodeLimits, Event, EventKind, FieldPaths, ListMeta, Peek, Room, Shard, Shown,
};

/// From bytes to objects: what is skipped, what is expected, whose it is, and what became of an object that
/// can't be read.
pub(crate) struct Decoder<T> {
    decode: Decode<T>,
    skip: FieldPaths,
    /// Whether apiVersion and kind are skipped.
    skips_type_meta: [bool; 2],
    limits: DecodeLimits,
    /// Whether it decodes on a thread whose stack may be too small for what is nested deeply.
    is_anywhere: bool,
    expected: Option<Expected>,
    shard: Option<Shard>,
    /// Where an object stands without what is skipped. Kept for the next one.
    room: Room,
    /// Asked before each object is made.
    recycle: Option<Arc<dyn Recycle>>,
    headroom: Headroom,
}

struct Expected {
    kind: GroupVersionKind,
    api_version: String,
    /// How an API server begins such an object: looked at first, since nearly all of them do.
    beginnings: [Vec<u8>; 2],
}

/// An object that can't be read: decoded, keyed or transformed.
#[derive(Debug)]
pub(crate) struct Unreadable {
    /// Which one it is, as far as that can be read.
    namespace: String,
    name: String,
    /// Whether that is all there is to say about it, so that it can be told from every other one.
    is_known: bool,
    /// Its key, where the store has told it.
    key: Option<Key>,
    pub(crate) resource_version: String,
    /// Says what is wrong, but not with which object.
    pub(crate) error: Error,
}

/// What an item of a list is.
pub(super) enum Item<T> {
    Object(Key, Arc<T>),
    /// One of another shard.
    Elsewhere,
    /// One that does not say of what kind it is, of a list that has not said it yet.
    Unnamed(T),
}

/// What an event is about.
pub(crate) enum Read<T> {
    Object(T),
    /// One that the store has already, in this version.
    Unchanged(Key, Arc<T>),
    /// One of another shard.
    Elsewhere {
        resource_version: String,
    },
    /// One that can't be decoded, in a frame that can.
    Unreadable(Unreadable),
    /// One that says that it is something else than expected (W9).
    OtherKind(Unreadable),
    Bookmark {
        resource_version: String,
        initial_events_end: bool,
    },
    Error(Error),
}

/// Why a frame could not be read at all.
pub(crate) enum BadFrame {
    /// It is more than one.
    Several,
    Malformed(Error),
}

impl<T> Decoder<T> {
    pub(crate) fn new(decode: Decode<T>, options: &ReflectorOptions) -> Self {
        let expected = options.expected_kind.clone().map(|kind| {
            let (name, api_version) = (kind.kind(), kind.api_version());
            let beginnings = [
                format!(r#"{{"kind":"{name}","apiVersion":"{api_version}","#).into_bytes(),
                format!(r#"{{"apiVersion":"{api_version}","kind":"{name}","#).into_bytes(),
            ];
            Expected {
                api_version,
                beginnings,
                kind,
            }
        });
        Self {
            decode,
            skip: options.skip.clone(),
            skips_type_meta: ["apiVersion", "kind"].map(|field| options.skip.has_field(field)),
            limits: options.limits,
            is_anywhere: false,
            expected,
            shard: options.shard.clone(),
            room: Room::default(),
            recycle: None,
            headroom: Headroom::default(),
        }
    }

    /// What is decoded next, from so many bytes, stays beside all that there is.
    pub(super) fn stays(&mut self, bytes: usize) {
        self.headroom.stays(bytes);
    }

    pub(super) fn recycle(&mut self, recycle: Option<Arc<dyn Recycle>>) {
        self.recycle = recycle;
    }

    /// Says that it may run on any thread, and not only on a reflector's.
    #[cfg(feature = "client")]
    pub(crate) fn anywhere(self) -> Self {
        Self {
            is_anywhere: true,
            ..self
        }
    }

    pub(crate) fn limits(&self) -> DecodeLimits {
        self.limits
    }

    /// Whether a list that says this of itself can be one of what is expected. What a custom resource calls
    /// its list is its author's choice.
    pub(crate) fn check_list(&self, api_version: &str, kind: &str) -> Result<(), Error> {
        let Some(Expected {
            kind: expected,
            api_version: expected_version,
            ..
        }) = &self.expected
        else {
            return Ok(());
        };
        let group = expected.group();
        let free = group.contains('.') && !group.ends_with(".k8s.io");
        let fits = kind
            .strip_suffix("List")
            .is_some_and(|of| of.is_empty() || of == expected.kind());
        if api_version.is_empty()
            || kind == "List"
            || api_version == expected_version && (free || fits)
        {
            return Ok(());
        }
        let (api_version, kind) = (Shown(api_version), Shown(kind));
        Err(Error::decode(format!(
            "a list of {expected} was expected, not \"{api_version}\" \"{kind}\""
        )))
    }

    /// Decodes one object.
    fn object(&mut self, bytes: &[u8]) -> Result<T, Error>
    where
        T: Send,
    {
        // A struct can be made of an array, too, field by field.
        if bytes.trim_ascii_start().first() != Some(&b'{') {
            return Err(Error::decode("it is no JSON object"));
        }
        self.limits.check_nesting(bytes)?;
        if let Some(recycle) = &self.recycle {
            recycle.one();
        }
        let (decode, is_anywhere) = (self.decode, self.is_anywhere);
        let decoded = |bytes| match is_anywhere {
            true => stack::decoded(bytes, || decode(bytes)),
            false => decode(bytes),
        };
        let decode = |bytes| match panic::catch(|| decoded(bytes)) {
            Ok(decoded) => decoded.map_err(|error| Error::decode(wire::describe(&error))),
            Err(panic) => Err(Error::decode(format!("decoding it {panic}"))),
        };
        let cut = self.skip.cut(bytes, self.room.bytes());
        let decoded = match decode(cut) {
            // If something is wrong with what is left, the whole tells where; if it was needed, there it is.
            Err(_) if cut.len() < bytes.len() => decode(bytes),
            decoded => decoded,
        };
        self.room.clear();
        decoded
    }
}

impl<T: Object> Decoder<T> {
    /// One object of a list that has said this of itself so far, as the store will keep it; the one that it
    /// has, if nothing has changed and `reuse` says so.
    pub(super) fn listed(
        &mut self,
        bytes: &[u8],
        list: &ListMeta,
        store: &dyn ReflectorStore<T>,
        reuse: bool,
    ) -> Result<Item<T>, Unreadable> {
        match self.at_a_glance(bytes, reuse.then_some(store)) {
            Some(Read::Unchanged(key, object)) => return Ok(Item::Object(key, object)),
            Some(Read::Elsewhere { .. }) => return Ok(Item::Elsewhere),
            Some(Read::Unreadable(unreadable)) => return Err(unreadable),
            _ => {}
        }
        self.stays(bytes.len());
        let mut object = self.item(bytes)?;
        if list.api_version_and_kind().1.is_empty() && !says_kind(bytes) {
            if object.name().is_empty() {
                return Err(Unreadable::nameless(&object));
            }
            return Ok(Item::Unnamed(object));
        }
        self.set_type_meta(&mut object, list);
        prepared(object, store).map(|(key, object)| Item::Object(key, object))
    }

    /// Tells an item of a list what it is, if it does not say so itself and the list does.
    pub(crate) fn set_type_meta(&self, item: &mut T, list: &ListMeta) {
        if let Some((api_version, kind)) = list.type_meta_of_items() {
            let [no_api_version, no_kind] = self.skips_type_meta;
            let unless = |skipped, text| if skipped { "" } else { text };
            item.set_type_meta(unless(no_api_version, api_version), unless(no_kind, kind));
        }
    }

    /// One object of a list, wherever it is to be kept.
    pub(crate) fn item(&mut self, bytes: &[u8]) -> Result<T, Unreadable> {
        self.object(bytes)
            .map_err(|error| match Peek::whole(bytes) {
                Ok(peek) => Unreadable::undecoded(&peek, error),
                // Of what is no JSON it can't be told where it ends: other objects may be in it.
                Err(_) => Unreadable {
                    is_known: false,
                    ..Unreadable::undecoded(&Peek::identity(bytes), error)
                },
            })
    }

    /// An object that has come by itself, in answer to a request for it.
    #[cfg(feature = "client")]
    pub(crate) fn answer(&mut self, bytes: &[u8]) -> Result<T, Error> {
        // What is no JSON can't be told apart, nor be decoded.
        if !self.begins_as_expected(bytes)
            && let Ok(peek) = Peek::whole(bytes)
        {
            self.check_kind(&peek)?;
        }
        self.object(bytes)
    }

    /// One event of a watch. What has been added and is in this store already, if one is given, is not
    /// decoded.
    pub(crate) fn event(
        &mut self,
        frame: &[u8],
        store: Option<&dyn ReflectorStore<T>>,
    ) -> Result<(EventKind, Read<T>), BadFrame> {
        let event = Event::parse(frame).map_err(|error| bad_frame(frame, &error))?;
        Ok((
            event.kind,
            match event.kind {
                EventKind::Error => {
                    Read::Error(Error::from_status(wire::error_status(event.object)))
                }
                EventKind::Bookmark => {
                    let peek =
                        Peek::whole(event.object).map_err(|error| bad_frame(frame, &error))?;
                    match self.check_kind(&peek) {
                        Err(error) => Read::OtherKind(Unreadable::undecoded(&peek, error)),
                        Ok(()) => Read::Bookmark {
                            resource_version: peek.resource_version.into_owned(),
                            initial_events_end: peek.initial_events_end,
                        },
                    }
                }
                _ => return self.changed(frame, event, store),
            },
        ))
    }

    fn changed(
        &mut self,
        frame: &[u8],
        event: Event<'_>,
        store: Option<&dyn ReflectorStore<T>>,
    ) -> Result<(EventKind, Read<T>), BadFrame> {
        if self.begins_as_expected(event.object) {
            let reuse = store.filter(|_| event.kind == EventKind::Added);
            if let Some(read) = self.at_a_glance(event.object, reuse)
                // It is not read to its end: is that where the frame ends? Of what has not changed it is enough
                // to know that no other frame is behind it.
                && match read {
                    Read::Unchanged(..) => !scan::may_be_several(event.object),
                    _ => scan::is_one_value(event.object),
                }
            {
                return Ok((event.kind, read));
            }
            if let Ok(object) = self.object(event.object) {
                return Ok((event.kind, Read::Object(object)));
            }
        }
        // Something may stand behind the object and belong to the frame, or the frame is broken.
        let event = Event::parse_slowly(frame).map_err(|error| bad_frame(frame, &error))?;
        let peek = Peek::whole(event.object).map_err(|error| bad_frame(frame, &error))?;
        if let Err(error) = self.check_kind(&peek) {
            return Ok((
                event.kind,
                Read::OtherKind(Unreadable::undecoded(&peek, error)),
            ));
        }
        if let Some(read) = self.at_a_glance(event.object, None) {
            return Ok((event.kind, read));
        }
        let read = match self.object(event.object) {
            Ok(object) => Read::Object(object),
            Err(error) => Read::Unreadable(Unreadable::undecoded(&peek, error)),
        };
        Ok((event.kind, read))
    }

    /// What can be told of an object before it is decoded: that it is one of another shard, or that it can't
    /// be told whose it is, or that this store, if one is given, has it already.
    fn at_a_glance(&self, object: &[u8], store: Option<&dyn ReflectorStore<T>>) -> Option<Read<T>> {
        if self.shard.is_none() && store.is_none() {
            return None;
        }
        let identity = Peek::identity(object);
        match self.is_elsewhere(&identity, object) {
            Err(unreadable) => Some(Read::Unreadable(unreadable)),
            Ok(true) => Some(Read::Elsewhere {
                resource_version: identity.resource_version.into_owned(),
            }),
            Ok(false) => store
                .and_then(|store| unchanged(&identity, store))
                .map(|(key, kept)| Read::Unchanged(key, kept)),
        }
    }

    /// Whether it is one of another shard; an error if that can't be told.
    fn is_elsewhere(&self, identity: &Peek<'_>, object: &[u8]) -> Result<bool, Unreadable> {
        let Some(shard) = &self.shard else {
            return Ok(false);
        };
        let (field, value) = match shard.is_by_namespace() {
            true => ("namespace", &identity.namespace),
            false => ("uid", &identity.uid),
        };
        if !value.is_empty() {
            return Ok(!shard.contains(value));
        }
        // It has none, or it stands where it was not looked for. What can't be read or has no name goes on,
        // and is told as such.
        let Ok(peek) = Peek::whole(object) else {
            return Ok(false);
        };
        let (value, is_odd) = match shard.is_by_namespace() {
            true => (&peek.namespace, peek.is_ambiguous),
            false => (&peek.uid, peek.has_odd_uid),
        };
        match peek.name.is_empty() {
            true => Ok(false),
            false if is_odd => {
                let error =
                    Error::decode(format!("whose shard it is can't be told by its {field}"));
                Err(Unreadable::undecoded(&peek, error))
            }
            false => Ok(!shard.contains(value)),
        }
    }

    /// Whether a list says of itself that the server has picked its items for this shard (SH3).
    pub(super) fn is_picked(&self, selector: Option<&str>) -> bool {
        self.shard
            .as_ref()
            .is_some_and(|shard| selector == Some(&*shard.selector()))
    }

    fn begins_as_expected(&self, object: &[u8]) -> bool {
        let Some(Expected { beginnings, .. }) = &self.expected else {
            return true;
        };
        beginnings
            .iter()
            .any(|beginning| object.starts_with(beginning))
    }

    fn check_kind(&self, peek: &Peek<'_>) -> Result<(), Error> {
        match &self.expected {
            Some(Expected {
                kind, api_version, ..
            }) if !peek.kind.is_empty()
                && (peek.kind != kind.kind() || *peek.api_version != **api_version) =>
            {
                let (api_version, other) = (Shown(&peek.api_version), Shown(&peek.kind));
                Err(Error::decode(format!(
                    "{kind} was expected, not \"{api_version}\" \"{other}\""
                )))
            }
            _ => Ok(()),
        }
    }
}

/// Whether an object says of what kind it is. Custom resources do, of which a list says it behind its items.
fn says_kind(object: &[u8]) -> bool {
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

/// The object that the store has already, if it is the same one in the same version.
fn unchanged<T: Object>(peek: &Peek<'_>, store: &dyn ReflectorStore<T>) -> Option<(Key, Arc<T>)> {
    let staging = store.staging().filter(|staging| staging.is_settled())?;
    if peek.is_ambiguous
        || peek.name.is_empty()
        || peek.uid.is_empty()
        || peek.resource_version.is_empty()
    {
        return None;
    }
    let key = staging.key_of_name(&peek.namespace, &peek.name)?;
    let cached = staging.cached(&key)?;
    let same = cached.uid() == peek.uid && cached.resource_version() == peek.resource_version;
    same.then_some((key, cached))
}

/// An object with its key, as the store will keep it.
pub(super) fn prepared<T: Object>(
    object: T,
    store: &dyn ReflectorStore<T>,
) -> Result<(Key, Arc<T>), Unreadable> {
    if object.name().is_empty() {
        return Err(Unreadable::nameless(&object));
    }
    let object = Arc::new(object);
    match store.staging() {
        None => Ok((meta_namespace_key(&*object), object)),
        Some(staging) => staging
            .prepare(Arc::clone(&object))
            .map_err(|error| Unreadable::refused(&*object, &error)),
    }
}

impl Unreadable {
    fn undecoded(peek: &Peek<'_>, error: Error) -> Self {
        Self {
            namespace: peek.namespace.clone().into_owned(),
            name: peek.name.clone().into_owned(),
            is_known: !peek.is_ambiguous && !peek.name.is_empty(),
            key: None,
            resource_version: peek.resource_version.clone().into_owned(),
            error,
        }
    }

    /// One that the store does not take.
    pub(super) fn refused<T: Object>(object: &T, error: &StoreError) -> Self {
        let key = match error {
            StoreError::Transform { key, .. } => key.clone(),
            _ => None,
        };
        Self {
            key,
            ..Self::of(object, Error::other(error.to_string()))
        }
    }

    pub(crate) fn nameless<T: Object>(object: &T) -> Self {
        Self::of(object, Error::decode("it has no name"))
    }

    fn of<T: Object>(object: &T, error: Error) -> Self {
        Self {
            namespace: object.namespace().to_owned(),
            name: object.name().to_owned(),
            is_known: !object.name().is_empty(),
            key: None,
            resource_version: object.resource_version().to_owned(),
            error,
        }
    }

    /// Under which key the store knows it, if that can be told.
    pub(super) fn key<T>(&self, store: &dyn ReflectorStore<T>) -> Option<Key> {
        let Self {
            namespace,
            name,
            is_known,
            key,
            ..
        } = self;
        if key.is_some() || !is_known {
            return key.clone();
        }
        match store.staging() {
            Some(staging) => staging.key_of_name(namespace, name),
            // What a store of the user's own goes by, unless it is told otherwise.
            None => Some(namespaced_key(namespace, name)),
        }
    }

    /// Its namespace and name as a key, if that can be told.
    pub(super) fn namespaced_key(&self) -> Option<Key> {
        self.is_known
            .then(|| namespaced_key(&self.namespace, &self.name))
    }

    /// With the words for where it stands: the object if it can be named, or else this place.
    pub(crate) fn at(&self, place: impl FnOnce() -> String) -> Error {
        let Self {
            namespace,
            name,
            error,
            ..
        } = self;
        let error = error.clone();
        match (namespace.as_str(), name.as_str()) {
            (_, "") => error.context(place()),
            ("", name) => error.context(Shown(name).to_string()),
            (namespace, name) => error.context(format!("{}/{}", Shown(namespace), Shown(name))),
        }
    }
}

fn bad_frame(frame: &[u8], error: &serde_json::Error) -> BadFrame {
    if wire::has_several(frame) {
        return BadFrame::Several;
    }
    BadFrame::Malformed(Error::decode(wire::describe(error)))
}

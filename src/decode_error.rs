//! Explains why JSON could not be decoded: which field is wrong and what was expected there, but never what is there.
//! A value may be a secret, and so may the key of a map.
//!
//! serde_json reports a position, and often the value. After such a failure, [`explain`] decodes the same bytes a second
//! time, through a wrapper of serde_json's deserializer that tracks the path. Only the names that a type declares,
//! of its fields and variants, are shown in it. The wrapper has an error type of its own: it distinguishes a custom text
//! from serde's messages, whatever the text looks like.

use std::cell::{Cell, RefCell};
use std::fmt::{self, Display};

use serde::de::{
    Deserialize, DeserializeSeed, Deserializer, EnumAccess, Error, Expected, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use crate::panic::catch;
use crate::stack;
use crate::text::Prose;

#[cfg(test)]
mod tests;

/// The name of a newtype that marks the errors of [`Compact`](crate::object::Compact): they are made here, without values.
pub(crate) const COMPACT: &str = "k8s_informer::object::Compact";

/// Why JSON could not be decoded.
pub(crate) struct DecodeError {
    path: String,
    fault: Fault,
    /// Of the failure, zero if it is not known.
    line: usize,
    column: usize,
}

impl DecodeError {
    /// The message, with the text of a custom deserializer. It may contain values.
    pub(crate) fn with_custom_text(&self) -> String {
        self.message(&self.fault.text)
    }

    fn message(&self, what: &str) -> String {
        let what = Prose(what);
        let path = if self.path.is_empty() {
            ""
        } else {
            &format!("{}: ", self.path)
        };
        match self.line {
            0 => format!("{path}{what}"),
            line => format!("{path}{what} at line {line} column {}", self.column),
        }
    }
}

/// Without the text of a custom deserializer.
impl Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message(match self.fault.is_custom {
            true => "rejected by a custom deserializer (message hidden)",
            false => &self.fault.text,
        }))
    }
}

/// Returns what is wrong with JSON that could not be decoded as a `T`.
pub(crate) fn explain<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: &serde_json::Error,
) -> DecodeError {
    /// The wrapper takes more stack for a level than serde_json alone.
    const LEVELS: usize = stack::SHALLOW / 2;
    let (line, column) = (error.line(), error.column());
    if !error.is_data() {
        // What is no JSON has no fields.
        let text = without_position(&error.to_string()).to_owned();
        return DecodeError {
            path: String::new(),
            fault: Fault::of_serde(text),
            line,
            column,
        };
    }
    let decode = || {
        let track = Track::default();
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let fault = T::deserialize(Tracked {
            inner: &mut deserializer,
            track: &track,
            names: &[],
        })
        .err()?;
        Some((track.path(), fault))
    };
    let (path, fault) = match catch(|| stack::with_room(json, LEVELS, decode)) {
        Ok(Ok(Some(found))) => found,
        Ok(Err(error)) => (
            String::new(),
            Fault::of_serde(stack::no_thread_text(&error)),
        ),
        // It does not fail each time, or not in the same way.
        Ok(Ok(None)) | Err(_) => (String::new(), Fault::unclear()),
    };
    DecodeError {
        path,
        fault,
        line,
        column,
    }
}

/// The same error, with the path and without values. An error of syntax stays as it is.
pub(crate) fn explained<'de, T: Deserialize<'de>>(
    json: &'de [u8],
    error: serde_json::Error,
) -> serde_json::Error {
    // serde_json takes the position out of the text.
    if error.is_data() {
        Error::custom(explain::<T>(json, &error))
    } else {
        error
    }
}

/// What serde_json says of bytes that are none of a user's types, without values.
pub(crate) fn describe(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let fault = if error.is_data() {
        Fault::of_serde_json(&text)
    } else {
        return text;
    };
    DecodeError {
        path: String::new(),
        fault,
        line: error.line(),
        column: error.column(),
    }
    .to_string()
}

/// What is wrong with a value.
#[derive(Debug)]
struct Fault {
    text: String,
    /// Whether the text is a type's own, and may contain values.
    is_custom: bool,
}

impl Fault {
    fn of_serde(text: String) -> Self {
        Self {
            text,
            is_custom: false,
        }
    }

    fn unclear() -> Self {
        Self::of_serde("not of the expected form".to_owned())
    }

    /// Of an error that serde_json made: `invalid type: string "hunter2", expected u32 at line 1 column 9`.
    fn of_serde_json(text: &str) -> Self {
        let text = without_position(text);
        let is_field = |rest: &str| {
            rest.strip_suffix('`')
                .is_some_and(|name| !name.contains(['`', ' ', '\n']))
        };
        if ["missing field `", "duplicate field `"]
            .iter()
            .any(|kind| text.strip_prefix(kind).is_some_and(is_field))
        {
            return Self::of_serde(text.to_owned());
        }
        let kind = ["invalid type", "invalid value", "invalid length"]
            .into_iter()
            .find_map(|kind| Some((kind, text.strip_prefix(kind)?)));
        match (kind, text.rsplit_once(", expected ")) {
            (Some((kind, rest)), Some((_, expected))) => {
                Self::unexpected(kind, rest.trim_start_matches(": "), &expected)
            }
            _ => Self::unclear(),
        }
    }

    /// With what kind of value was found, of what serde shows of it.
    fn unexpected(what: &str, found: &str, expected: &dyn Display) -> Self {
        const KINDS: [&str; 13] = [
            "boolean",
            "integer",
            "floating point",
            "character",
            "string",
            "byte array",
            "null",
            "unit value",
            "Option value",
            "newtype struct",
            "sequence",
            "map",
            "enum",
        ];
        let kind = KINDS.into_iter().find(|kind| found.starts_with(kind));
        let kind = kind.map(|kind| format!(": {kind}")).unwrap_or_default();
        Self::of_serde(format!("{what}{kind}, expected {expected}"))
    }

    fn unknown(what: &str, known: &[&str]) -> Self {
        match known {
            [] => Self::of_serde(format!("unknown {what}, expected none")),
            known => Self::of_serde(format!("unknown {what}, expected `{}`", known.join("`, `"))),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Fault {}

impl Error for Fault {
    fn custom<T: Display>(message: T) -> Self {
        let text = message.to_string();
        // `derive` has no other way to report this. The name is that of the type.
        let name = text.strip_prefix("data did not match any variant of untagged enum ");
        let is_derived = name.is_some_and(|name| {
            name.bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        });
        Self {
            text,
            is_custom: !is_derived,
        }
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unexpected("invalid type", &found.to_string(), &expected)
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::unexpected("invalid value", &found.to_string(), &expected)
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::unexpected("invalid length", "", &expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown("variant", expected)
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self::unknown("field", expected)
    }

    fn missing_field(field: &'static str) -> Self {
        Self::of_serde(format!("missing field `{field}`"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self::of_serde(format!("duplicate field `{field}`"))
    }
}

/// A text of serde_json's without ` at line 1 column 9`.
fn without_position(text: &str) -> &str {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match text.rsplit_once(" at line ") {
        Some((before, position)) if position.split(" column ").all(is_number) => before,
        _ => text,
    }
}

/// Where the decoding is, and what went wrong there. A part of the path stays once its value has failed.
#[derive(Default)]
struct Track {
    path: RefCell<Vec<Step>>,
    /// The last name of a field or variant that was read.
    name: Cell<Option<&'static str>>,
    /// An error on its way out through the methods of serde_json, which have errors of their own.
    fault: RefCell<Option<Fault>>,
}

#[derive(Clone, Copy)]
enum Step {
    Name(&'static str),
    Index(usize),
    /// A key that no type declares.
    Key,
}

impl Track {
    fn depth(&self) -> usize {
        self.path.borrow().len()
    }

    /// Decodes a value that is one step below `depth`.
    fn below<R>(
        &self,
        depth: usize,
        step: Step,
        decode: impl FnOnce() -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        self.path.borrow_mut().truncate(depth);
        self.path.borrow_mut().push(step);
        let decoded = decode()?;
        self.path.borrow_mut().truncate(depth);
        Ok(decoded)
    }

    fn path(&self) -> String {
        let mut path = String::new();
        for step in self.path.borrow().iter() {
            match step {
                Step::Name(name) => {
                    let dot = if path.is_empty() { "" } else { "." };
                    path += &format!("{dot}{name}");
                }
                Step::Index(index) => path += &format!("[{index}]"),
                Step::Key => path += "[…]",
            }
        }
        path
    }

    fn note(&self, names: &[&'static str], text: &str) {
        self.name
            .set(names.iter().copied().find(|name| *name == text));
    }

    fn outward<E: Error>(&self, fault: Fault) -> E {
        *self.fault.borrow_mut() = Some(fault);
        E::custom("")
    }

    fn back(&self, error: impl Error) -> Fault {
        self.fault
            .take()
            .unwrap_or_else(|| Fault::of_serde_json(&error.to_string()))
    }
}

/// A deserializer, or what it is given or gives, whose values are tracked.
struct Tracked<'t, X> {
    inner: X,
    track: &'t Track,
    /// Names of the type's that may be read here, as keys or variants.
    names: &'static [&'static str],
}

impl<'t, X> Tracked<'t, X> {
    fn value(inner: X, track: &'t Track) -> Self {
        Self {
            inner,
            track,
            names: &[],
        }
    }
}

/// Methods of a deserializer.
macro_rules! deserialize {
    ($($method:ident $(($($argument:ident: $type:ty),*))?)*) => {$(
        fn $method<V: Visitor<'de>>(self $($(, $argument: $type)*)?, visitor: V) -> Result<V::Value, Fault> {
            let Self { inner, track, names } = self;
            let visitor = Tracked { inner: visitor, track, names };
            inner.$method($($($argument,)*)? visitor).map_err(|error| track.back(error))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Tracked<'_, D> {
    type Error = Fault;

    deserialize! {
        deserialize_any deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_unit deserialize_identifier deserialize_ignored_any deserialize_option
        deserialize_seq deserialize_map
        deserialize_unit_struct(name: &'static str)
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Self {
            inner,
            track,
            names,
        } = self;
        let visitor = Tracked {
            inner: visitor,
            track,
            names,
        };
        inner
            .deserialize_newtype_struct(name, visitor)
            .map_err(|error| match track.back(error) {
                fault if name == COMPACT => {
                    Fault::of_serde(without_position(&fault.text).to_owned())
                }
                fault => fault,
            })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Self { inner, track, .. } = self;
        let visitor = Tracked {
            inner: visitor,
            track,
            names: fields,
        };
        inner
            .deserialize_struct(name, fields, visitor)
            .map_err(|error| track.back(error))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Self { inner, track, .. } = self;
        let visitor = Tracked {
            inner: visitor,
            track,
            names: variants,
        };
        inner
            .deserialize_enum(name, variants, visitor)
            .map_err(|error| track.back(error))
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Methods of a visitor: for values without parts, for texts, and for what has parts.
macro_rules! visit {
    (plain: $($method:ident($($type:ty)?))*) => {$(
        fn $method<E: Error>(self $(, value: $type)?) -> Result<V::Value, E> {
            self.inner.$method($(value as $type)?).map_err(|fault| self.track.outward(fault))
        }
    )*};
    (text: $($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, text: $type) -> Result<V::Value, E> {
            self.track.note(self.names, &text);
            self.inner.$method(text).map_err(|fault| self.track.outward(fault))
        }
    )*};
    (wrapper: $($method:ident)*) => {$(
        fn $method<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
            let Self { inner, track, .. } = self;
            inner.$method(Tracked::value(deserializer, track)).map_err(|fault| track.outward(fault))
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Tracked<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visit! {
        plain:
        visit_bool(bool) visit_char(char) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8])
        visit_byte_buf(Vec<u8>) visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128) visit_f32(f32)
        visit_f64(f64) visit_none() visit_unit()
    }
    visit! { text: visit_str(&str) visit_borrowed_str(&'de str) visit_string(String) }
    visit! { wrapper: visit_some visit_newtype_struct }

    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let Self { inner, track, .. } = self;
        let elements = Elements {
            inner: elements,
            track,
            depth: track.depth(),
            next: 0,
        };
        inner
            .visit_seq(elements)
            .map_err(|fault| track.outward(fault))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let Self {
            inner,
            track,
            names,
        } = self;
        let entries = Entries {
            inner: entries,
            track,
            depth: track.depth(),
            names,
            key: Step::Key,
        };
        inner
            .visit_map(entries)
            .map_err(|fault| track.outward(fault))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        let Self {
            inner,
            track,
            names,
        } = self;
        let variant = Tracked {
            inner: variant,
            track,
            names,
        };
        inner
            .visit_enum(variant)
            .map_err(|fault| track.outward(fault))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Tracked<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let Self {
            inner,
            track,
            names,
        } = self;
        inner
            .deserialize(Tracked {
                inner: deserializer,
                track,
                names,
            })
            .map_err(|fault| track.outward(fault))
    }
}

/// The elements of an array.
struct Elements<'t, A> {
    inner: A,
    track: &'t Track,
    /// That of the array.
    depth: usize,
    next: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let Self {
            inner,
            track,
            depth,
            next,
        } = self;
        let step = Step::Index(*next);
        *next += 1;
        track.below(*depth, step, || {
            inner
                .next_element_seed(Tracked::value(seed, track))
                .map_err(|error| track.back(error))
        })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

/// The entries of an object.
struct Entries<'t, A> {
    inner: A,
    track: &'t Track,
    /// That of the object.
    depth: usize,
    /// The fields of the type.
    names: &'static [&'static str],
    /// That of the next value.
    key: Step,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Entries<'_, A> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Self {
            inner,
            track,
            depth,
            names,
            key,
        } = self;
        track.path.borrow_mut().truncate(*depth);
        track.name.set(None);
        let seed = Tracked {
            inner: seed,
            track,
            names,
        };
        let decoded = inner
            .next_key_seed(seed)
            .map_err(|error| track.back(error))?;
        *key = track.name.take().map_or(Step::Key, Step::Name);
        Ok(decoded)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let Self {
            inner,
            track,
            depth,
            key,
            ..
        } = self;
        track.below(*depth, *key, || {
            inner
                .next_value_seed(Tracked::value(seed, track))
                .map_err(|error| track.back(error))
        })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, 't, A: EnumAccess<'de>> EnumAccess<'de> for Tracked<'t, A> {
    type Error = Fault;
    type Variant = Tracked<'t, A::Variant>;

    fn variant_seed<S: DeserializeSeed<'de>>(
        self,
        seed: S,
    ) -> Result<(S::Value, Self::Variant), Fault> {
        let Self {
            inner,
            track,
            names,
        } = self;
        track.name.set(None);
        let seed = Tracked {
            inner: seed,
            track,
            names,
        };
        let (decoded, variant) = inner
            .variant_seed(seed)
            .map_err(|error| track.back(error))?;
        track
            .path
            .borrow_mut()
            .extend(track.name.take().map(Step::Name));
        Ok((decoded, Tracked::value(variant, track)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Tracked<'_, A> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        self.inner
            .unit_variant()
            .map_err(|error| self.track.back(error))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        let Self { inner, track, .. } = self;
        inner
            .newtype_variant_seed(Tracked::value(seed, track))
            .map_err(|error| track.back(error))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        let Self { inner, track, .. } = self;
        inner
            .tuple_variant(length, Tracked::value(visitor, track))
            .map_err(|error| track.back(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let Self { inner, track, .. } = self;
        let visitor = Tracked {
            inner: visitor,
            track,
            names: fields,
        };
        inner
            .struct_variant(fields, visitor)
            .map_err(|error| track.back(error))
    }
}

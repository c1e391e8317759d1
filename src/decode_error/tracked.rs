use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::DYNAMIC_OBJECT;
use super::fault::{Fault, without_position};

/// The position of the decoder and the error there. The step to a failed value stays in the path.
#[derive(Default)]
pub(super) struct Track {
    path: RefCell<Vec<Step>>,
    /// The last declared name that was read, of a field or a variant.
    name: Cell<Option<&'static str>>,
    /// An error that passes through methods of serde_json. These methods have a different error
    /// type, so the `Fault` is stored here.
    fault: RefCell<Option<Fault>>,
}

#[derive(Clone, Copy)]
enum Step {
    Name(&'static str),
    Index(usize),
    /// A map key that no type declares.
    Key,
}

impl Track {
    fn depth(&self) -> usize {
        self.path.borrow().len()
    }

    /// Decodes a value that is one step below `depth`.
    fn at_step<R>(
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

    pub(super) fn path(&self) -> String {
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

    fn remember_name(&self, names: &[&'static str], text: &str) {
        self.name
            .set(names.iter().copied().find(|name| *name == text));
    }

    fn stash<E: Error>(&self, fault: Fault) -> E {
        *self.fault.borrow_mut() = Some(fault);
        E::custom("")
    }

    fn unstash(&self, error: impl Error) -> Fault {
        self.fault
            .take()
            .unwrap_or_else(|| Fault::of_serde_json(&error.to_string()))
    }
}

/// A deserializer, a visitor, or one of their parts, whose values are tracked.
pub(super) struct Tracked<'t, X> {
    inner: X,
    scope: Scope<'t>,
}

#[derive(Clone, Copy)]
struct Scope<'t> {
    track: &'t Track,
    /// The declared names that can be read here, as keys or variants.
    names: &'static [&'static str],
}

impl<'t, X> Tracked<'t, X> {
    pub(super) fn new(inner: X, track: &'t Track) -> Self {
        Scope { track, names: &[] }.of(inner)
    }
}

impl<'t> Scope<'t> {
    fn of<X>(self, inner: X) -> Tracked<'t, X> {
        Tracked { inner, scope: self }
    }

    /// Returns the scope of a nested value. Its names are not known yet.
    fn value(self) -> Self {
        self.with(&[])
    }

    fn with(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }

    fn stash<E: Error>(self, fault: Fault) -> E {
        self.track.stash(fault)
    }

    fn unstash(self, error: impl Error) -> Fault {
        self.track.unstash(error)
    }
}

/// Generates deserializer methods. `=> names` marks the argument that holds the declared names.
macro_rules! deserialize {
    ($($method:ident $(($($argument:ident: $type:ty),*) $(=> $names:ident)?)?)*) => {$(
        fn $method<V: Visitor<'de>>(self $($(, $argument: $type)*)?, visitor: V) -> Result<V::Value, Fault> {
            let scope = self.scope $($(.with($names))?)?;
            self.inner
                .$method($($($argument,)*)? scope.of(visitor))
                .map_err(|error| scope.unstash(error))
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
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) => fields
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) => variants
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let scope = self.scope;
        let decoded = self
            .inner
            .deserialize_newtype_struct(name, scope.of(visitor));
        decoded.map_err(|error| match scope.unstash(error) {
            fault if name == DYNAMIC_OBJECT => {
                Fault::of_serde(without_position(&fault.text).to_owned())
            }
            fault => fault,
        })
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

/// Generates visitor methods for plain values, texts, and wrappers of a value.
macro_rules! visit {
    (plain: $($method:ident($($type:ty)?))*) => {$(
        fn $method<E: Error>(self $(, value: $type)?) -> Result<V::Value, E> {
            self.inner.$method($(value as $type)?).map_err(|fault| self.scope.stash(fault))
        }
    )*};
    (text: $($method:ident($type:ty))*) => {$(
        fn $method<E: Error>(self, text: $type) -> Result<V::Value, E> {
            self.scope.track.remember_name(self.scope.names, &text);
            self.inner.$method(text).map_err(|fault| self.scope.stash(fault))
        }
    )*};
    (wrapper: $($method:ident)*) => {$(
        fn $method<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
            self.inner
                .$method(self.scope.value().of(deserializer))
                .map_err(|fault| self.scope.stash(fault))
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
        let scope = self.scope;
        let elements = Parts::new(elements, scope.value(), Step::Index(0));
        self.inner
            .visit_seq(elements)
            .map_err(|fault| scope.stash(fault))
    }

    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let scope = self.scope;
        let entries = Parts::new(entries, scope, Step::Key);
        self.inner
            .visit_map(entries)
            .map_err(|fault| scope.stash(fault))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner
            .visit_enum(self.scope.of(variant))
            .map_err(|fault| self.scope.stash(fault))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Tracked<'_, S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.inner
            .deserialize(self.scope.of(deserializer))
            .map_err(|fault| self.scope.stash(fault))
    }
}

/// The elements of an array, or the entries of an object.
struct Parts<'t, A> {
    inner: A,
    /// The scope of the keys. Its names are the fields of the type.
    scope: Scope<'t>,
    /// The depth of the array or object.
    depth: usize,
    /// The step to the next value.
    next: Step,
}

impl<'t, A> Parts<'t, A> {
    fn new(inner: A, scope: Scope<'t>, next: Step) -> Self {
        Self {
            inner,
            scope,
            depth: scope.track.depth(),
            next,
        }
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Parts<'_, A> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        let (scope, step) = (self.scope, self.next);
        if let Step::Index(index) = &mut self.next {
            *index += 1;
        }
        scope.track.at_step(self.depth, step, || {
            self.inner
                .next_element_seed(scope.value().of(seed))
                .map_err(|error| scope.unstash(error))
        })
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Parts<'_, A> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let Scope { track, .. } = self.scope;
        track.path.borrow_mut().truncate(self.depth);
        track.name.set(None);
        let decoded = self
            .inner
            .next_key_seed(self.scope.of(seed))
            .map_err(|error| track.unstash(error))?;
        self.next = track.name.take().map_or(Step::Key, Step::Name);
        Ok(decoded)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let scope = self.scope;
        scope.track.at_step(self.depth, self.next, || {
            self.inner
                .next_value_seed(scope.value().of(seed))
                .map_err(|error| scope.unstash(error))
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
        let Scope { track, .. } = self.scope;
        track.name.set(None);
        let (decoded, variant) = self
            .inner
            .variant_seed(self.scope.of(seed))
            .map_err(|error| track.unstash(error))?;
        track
            .path
            .borrow_mut()
            .extend(track.name.take().map(Step::Name));
        Ok((decoded, self.scope.value().of(variant)))
    }
}

impl<'de, A: VariantAccess<'de>> VariantAccess<'de> for Tracked<'_, A> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        self.inner
            .unit_variant()
            .map_err(|error| self.scope.unstash(error))
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        self.inner
            .newtype_variant_seed(self.scope.value().of(seed))
            .map_err(|error| self.scope.unstash(error))
    }

    fn tuple_variant<V: Visitor<'de>>(self, length: usize, visitor: V) -> Result<V::Value, Fault> {
        self.inner
            .tuple_variant(length, self.scope.value().of(visitor))
            .map_err(|error| self.scope.unstash(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.inner
            .struct_variant(fields, self.scope.with(fields).of(visitor))
            .map_err(|error| self.scope.unstash(error))
    }
}

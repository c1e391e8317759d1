use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

use super::counts::Counts;
use super::pass_on;

/// What asks for a key, its deserializer, or its visitor: takes note of where the key ends.
pub(super) struct Key<'k, X> {
    pub(super) inner: X,
    pub(super) counts: &'k Counts<'k>,
    pub(super) end: &'k mut Option<usize>,
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Key<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let Self {
            inner: seed,
            counts,
            end,
        } = self;
        seed.deserialize(Key {
            inner: deserializer,
            counts,
            end,
        })
    }
}

/// Methods by which a key may be asked for that is a string.
macro_rules! watch {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Self::Error> {
            let Self { inner: deserializer, counts, end } = self;
            deserializer.$method(Key { inner: visitor, counts, end })
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Key<'_, D> {
    type Error = D::Error;

    watch! { deserialize_any deserialize_str deserialize_string deserialize_identifier }

    pass_on! {
        deserialize:
        deserialize_bool deserialize_char deserialize_bytes deserialize_byte_buf deserialize_i8 deserialize_i16
        deserialize_i32 deserialize_i64 deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_u128 deserialize_f32 deserialize_f64 deserialize_unit deserialize_ignored_any
        deserialize_option deserialize_seq deserialize_map
        deserialize_unit_struct(name: &'static str) deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(length: usize) deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Key<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, key: &'de str) -> Result<V::Value, E> {
        *self.end = self.counts.end_of(key);
        self.inner.visit_borrowed_str(key)
    }

    pass_on! {
        visit:
        visit_bool(bool) visit_char(char) visit_str(&str) visit_string(String) visit_bytes(&[u8])
        visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>) visit_i64(i64) visit_u64(u64) visit_f64(f64)
    }
}

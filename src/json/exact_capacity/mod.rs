//! Decodes JSON into vectors without spare capacity. This saves a fifth of the memory of a cache of
//! k8s-openapi Pods.
//!
//! serde_json does not provide the length of an array, so a vector starts with a capacity of four
//! and doubles it. This module wraps the deserializer of serde_json. When a vector requests a size
//! hint, the elements are counted.
//!
//! The position of an array follows from the key before it: serde_json borrows keys from the input
//! unless they have escapes. Arrays without a key, or after a key with escapes, grow as usual.
//! Numbers, booleans and nulls are not counted because they are small. The values that serde
//! buffers for an untagged enum are not counted either.

mod counts;
#[cfg(test)]
#[expect(dead_code, reason = "compared through Debug")]
mod tests;

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    Visitor,
};

use self::counts::Counts;

/// Like `serde_json::from_str`, but the size hint of an array is a lower bound of its length.
pub(crate) fn from_str<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    let counts = Counts::new(json.as_bytes());
    let mut deserializer = serde_json::Deserializer::from_str(json);
    let value = T::deserialize(Exact {
        inner: &mut deserializer,
        counts: &counts,
    })?;
    deserializer.end()?;
    Ok(value)
}

/// Wraps a deserializer, visitor, seed, map or sequence of serde_json to count its arrays. Methods
/// that serde_json does not call keep their default implementation.
struct Exact<'c, X> {
    inner: X,
    counts: &'c Counts<'c>,
}

impl<'c, X> Exact<'c, X> {
    fn wrap<Y>(&self, inner: Y) -> Exact<'c, Y> {
        Exact {
            inner,
            counts: self.counts,
        }
    }
}

/// Forwards methods to `inner`. The methods of a deserializer pass a wrapped visitor.
macro_rules! forward {
    (deserialize: $($method:ident $(($($argument:ident: $type:ty),*))?)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self $($(, $argument: $type)*)?, visitor: V) -> Result<V::Value, Self::Error> {
            let visitor = self.wrap(visitor);
            self.inner.$method($($($argument,)*)? visitor)
        }
    )*};
    (visit: $($method:ident($($type:ty)?))*) => {$(
        #[inline]
        fn $method<E: Error>(self $(, value: $type)?) -> Result<Self::Value, E> {
            self.inner.$method($(value as $type)?)
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Exact<'_, D> {
    type Error = D::Error;

    forward! {
        deserialize:
        deserialize_any deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_unit deserialize_identifier deserialize_ignored_any deserialize_option
        deserialize_seq deserialize_map
        deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Exact<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    forward! {
        visit:
        visit_bool(bool) visit_i64(i64) visit_i128(i128) visit_u64(u64) visit_u128(u128) visit_f64(f64)
        visit_str(&str) visit_string(String) visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_none()
        visit_unit()
    }

    #[inline]
    fn visit_borrowed_str<E: Error>(self, string: &'de str) -> Result<V::Value, E> {
        self.counts.record_string(string);
        self.inner.visit_borrowed_str(string)
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.wrap(deserializer);
        self.inner.visit_some(deserializer)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        let deserializer = self.wrap(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let elements = self.wrap(elements);
        self.inner.visit_seq(elements)
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let entries = self.wrap(entries);
        self.inner.visit_map(entries)
    }

    #[inline]
    fn visit_enum<A: EnumAccess<'de>>(self, variant: A) -> Result<V::Value, A::Error> {
        self.inner.visit_enum(variant)
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Exact<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, A::Error> {
        self.counts.forget_key();
        let seed = self.wrap(seed);
        self.inner.next_key_seed(seed)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.wrap(seed);
        self.inner.next_value_seed(seed)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Exact<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.wrap(deserializer);
        self.inner.deserialize(deserializer)
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Exact<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.counts.forget_key();
        let seed = self.wrap(seed);
        self.inner.next_element_seed(seed)
    }

    /// Returns the number of elements that are strings, arrays or objects. They are counted only in
    /// this call, so types that need no hint, such as `serde_json::Value`, have no cost. Vectors
    /// call this before they read the first element.
    fn size_hint(&self) -> Option<usize> {
        self.counts.array_len_after_key()
    }
}

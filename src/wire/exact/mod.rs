//! JSON into vectors that have no room to spare.
//!
//! serde_json tells a vector what is in an array, but not how much that is: so it begins with room for four
//! elements, and doubles it. Of a cache of Pods that was a fifth. Here serde_json's deserializer stands in a
//! wrapper that counts the elements of an array when a vector asks for their number.
//!
//! Where in the bytes an array stands is known by the key before it: serde_json hands keys out where they
//! are, unless something in them is escaped. What stands behind no key, or behind such a one, is not counted;
//! nor are numbers, booleans and nulls, which are small, nor what is read ahead for an untagged enum.

mod counts;
mod key;
#[cfg(test)]
#[expect(dead_code, reason = "compared by what Debug shows")]
mod tests;

use std::fmt;

use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess,
    Visitor,
};

use self::counts::Counts;
use self::key::Key;

/// As `serde_json::from_slice`, but that a visitor of an array is told how many elements it has at least.
pub(crate) fn from_slice<T: DeserializeOwned>(json: &[u8]) -> Result<T, serde_json::Error> {
    let counts = Counts::new(json);
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    let value = T::deserialize(Exact {
        inner: &mut deserializer,
        counts: &counts,
        key_end: None,
    })?;
    deserializer.end()?;
    Ok(value)
}

/// A deserializer or what it is given or gives, in whose arrays elements are counted.
struct Exact<'c, X> {
    inner: X,
    counts: &'c Counts<'c>,
    /// Where the key ends that stands before the value; of a map, before the next value.
    key_end: Option<usize>,
}

impl<'c, X> Exact<'c, X> {
    /// Something else of the same value.
    fn of<Y>(&self, inner: Y) -> Exact<'c, Y> {
        Exact {
            inner,
            counts: self.counts,
            key_end: self.key_end,
        }
    }
}

/// Methods of a deserializer or visitor that are none of our business.
macro_rules! pass_on {
    (deserialize: $($method:ident $(($($argument:ident: $type:ty),*))?)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self $($(, $argument: $type)*)?, visitor: V) -> Result<V::Value, Self::Error> {
            self.inner.$method($($($argument,)*)? visitor)
        }
    )*};
    (look_into: $($method:ident $(($($argument:ident: $type:ty),*))?)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self $($(, $argument: $type)*)?, visitor: V) -> Result<V::Value, Self::Error> {
            let visitor = self.of(visitor);
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
use pass_on;

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Exact<'_, D> {
    type Error = D::Error;

    pass_on! {
        deserialize:
        deserialize_bool deserialize_char deserialize_str deserialize_string deserialize_bytes
        deserialize_byte_buf deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64 deserialize_unit deserialize_identifier deserialize_ignored_any
        deserialize_unit_struct(name: &'static str)
        deserialize_enum(name: &'static str, variants: &'static [&'static str])
    }
    pass_on! {
        look_into:
        deserialize_any deserialize_option deserialize_seq deserialize_map
        deserialize_newtype_struct(name: &'static str)
        deserialize_tuple(length: usize)
        deserialize_tuple_struct(name: &'static str, length: usize)
        deserialize_struct(name: &'static str, fields: &'static [&'static str])
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Exact<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    pass_on! {
        visit:
        visit_bool(bool) visit_char(char) visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>) visit_i8(i8) visit_i16(i16)
        visit_i32(i32) visit_i64(i64) visit_i128(i128) visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64)
        visit_u128(u128) visit_f32(f32) visit_f64(f64) visit_none() visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let deserializer = self.of(deserializer);
        self.inner.visit_some(deserializer)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<V::Value, D::Error> {
        let deserializer = self.of(deserializer);
        self.inner.visit_newtype_struct(deserializer)
    }

    #[inline]
    fn visit_seq<A: SeqAccess<'de>>(self, elements: A) -> Result<V::Value, A::Error> {
        let Self {
            inner: visitor,
            counts,
            key_end,
        } = self;
        visitor.visit_seq(Elements {
            inner: elements,
            counts,
            key_end,
            read: 0,
        })
    }

    #[inline]
    fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<V::Value, A::Error> {
        let entries = self.of(entries);
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
        self.key_end = None;
        self.inner.next_key_seed(Key {
            inner: seed,
            counts: self.counts,
            end: &mut self.key_end,
        })
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.of(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        self.inner.size_hint()
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Exact<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let deserializer = self.of(deserializer);
        self.inner.deserialize(deserializer)
    }
}

/// The elements of an array.
struct Elements<'c, A> {
    inner: A,
    counts: &'c Counts<'c>,
    /// Where the key ends that stands before the array.
    key_end: Option<usize>,
    /// How many have been asked for.
    read: usize,
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Elements<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, A::Error> {
        self.read += 1;
        self.inner.next_element_seed(Exact {
            inner: seed,
            counts: self.counts,
            key_end: None,
        })
    }

    /// Counts them: so it costs nothing where nobody wants to know, as with `serde_json::Value`.
    fn size_hint(&self) -> Option<usize> {
        let counted = self
            .key_end
            .and_then(|key_end| self.counts.array_behind(key_end));
        counted
            .map(|counted| counted.saturating_sub(self.read))
            .or_else(|| self.inner.size_hint())
    }
}

use std::borrow::Cow;

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, MapAccess, SeqAccess, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::Value;

use super::fault::{Fault, without_position};
use super::{DYNAMIC_OBJECT, TEXT};
use crate::json::{Cursor, MAX_NESTING};

/// The names that a type declares, of its fields or variants.
type Names = &'static [&'static str];

/// A step of a path: a declared name, an index, or `[…]` for a key that no type declares.
type Step = Cow<'static, str>;

/// A JSON value. It decodes like the deserializer of serde_json, but its errors have the path of
/// the failure.
#[derive(Clone, Copy)]
pub(super) struct Node<'de> {
    json: &'de [u8],
    /// The number of arrays and objects around the value.
    depth: usize,
    /// Whether the value is the key of an object. Such a string can also be read as a number.
    is_key: bool,
}

impl<'de> Node<'de> {
    pub(super) fn new(json: &'de [u8]) -> Self {
        Self {
            json: json.trim_ascii(),
            depth: 0,
            is_key: false,
        }
    }

    /// Decodes a value whose type declares these names for its fields.
    fn visit<V: Visitor<'de>>(self, names: Names, visitor: V) -> Result<V::Value, Fault> {
        let mut parts = Parts::new(self, names);
        let is_object = parts.cursor.enter(b'{');
        if is_object || parts.cursor.enter(b'[') {
            if self.depth == MAX_NESTING {
                return Err(Fault::of_serde("recursion limit exceeded".to_owned()));
            }
            return if is_object {
                visitor.visit_map(parts)
            } else {
                visitor.visit_seq(parts)
            };
        }
        if self.json.starts_with(b"\"") {
            return match parsed(parts.cursor.string_or_null().flatten())? {
                Cow::Borrowed(text) => visitor.visit_borrowed_str(text),
                Cow::Owned(text) => visitor.visit_string(text),
            };
        }
        match parsed(serde_json::from_slice(self.json).ok())? {
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(number) => match (number.as_u64(), number.as_i64()) {
                (Some(number), _) => visitor.visit_u64(number),
                (None, Some(number)) => visitor.visit_i64(number),
                (None, None) => visitor.visit_f64(number.as_f64().unwrap_or_default()),
            },
            _ => visitor.visit_unit(),
        }
    }
}

/// Unwraps what a cursor has found in JSON that serde_json has accepted before.
fn parsed<R>(found: Option<R>) -> Result<R, Fault> {
    found.ok_or_else(Fault::unspecific)
}

/// Generates deserializer methods that also read numbers from keys.
macro_rules! deserialize_key_as_number {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(mut self, visitor: V) -> Result<V::Value, Fault> {
            if let [b'"', number @ .., b'"'] = self.json && self.is_key {
                self.json = number;
            }
            self.deserialize_any(visitor)
        }
    )*};
}

impl<'de> Deserializer<'de> for Node<'de> {
    type Error = Fault;

    deserialize_key_as_number! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128 deserialize_f32
        deserialize_f64
    }

    forward_to_deserialize_any! {
        char str string bytes byte_buf unit unit_struct seq map tuple tuple_struct identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        self.visit(&[], visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        visitor.visit_unit()
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: Names,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        self.visit(fields, visitor)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Fault> {
        match self.json {
            b"null" => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        match name {
            TEXT => serde_json::Deserializer::from_slice(self.json)
                .deserialize_newtype_struct(name, visitor)
                .map_err(Fault::custom),
            DYNAMIC_OBJECT => visitor
                .visit_newtype_struct(self)
                .map_err(|fault| Fault::of_serde(without_position(&fault.text).to_owned())),
            _ => visitor.visit_newtype_struct(self),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: Names,
        visitor: V,
    ) -> Result<V::Value, Fault> {
        let mut parts = Parts::new(self, variants);
        if !parts.cursor.enter(b'{') {
            return visitor.visit_enum(Variant {
                name: self,
                step: Step::default(),
                content: None,
            });
        }
        let name = parsed(parts.key()?)?;
        visitor.visit_enum(Variant {
            name,
            content: Some(parts.value()?),
            step: parts.step,
        })
    }
}

/// The elements of an array, or the entries of an object.
struct Parts<'de> {
    whole: Node<'de>,
    cursor: Cursor<'de>,
    /// The names of the keys.
    names: Names,
    index: usize,
    /// The step to the current value.
    step: Step,
}

impl<'de> Parts<'de> {
    fn new(whole: Node<'de>, names: Names) -> Self {
        Self {
            whole,
            cursor: Cursor::new(whole.json),
            names,
            index: 0,
            step: Step::default(),
        }
    }

    fn part(&self, json: &'de [u8], is_key: bool) -> Node<'de> {
        Node {
            json,
            depth: self.whole.depth + 1,
            is_key,
        }
    }

    fn key(&mut self) -> Result<Option<Node<'de>>, Fault> {
        let key = parsed(self.cursor.key())?;
        Ok(key.map(|key| {
            let name = self.names.iter().find(|name| key.is(name));
            self.step = Step::Borrowed(name.map_or("[…]", |name| *name));
            self.part(key.quoted, true)
        }))
    }

    fn value(&mut self) -> Result<Node<'de>, Fault> {
        let value = parsed(self.cursor.value())?;
        Ok(self.part(&self.whole.json[value], false))
    }
}

impl<'de> SeqAccess<'de> for Parts<'de> {
    type Error = Fault;

    fn next_element_seed<S: DeserializeSeed<'de>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Fault> {
        if !parsed(self.cursor.element())? {
            return Ok(None);
        }
        self.step = Step::Owned(format!("[{}]", self.index));
        self.index += 1;
        self.next_value_seed(seed).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'de> {
    type Error = Fault;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Fault> {
        let key = self.key()?;
        key.map(|key| seed.deserialize(key)).transpose()
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, Fault> {
        let value = seed.deserialize(self.value()?);
        value.map_err(|fault| fault.below(&self.step))
    }
}

/// The variant of an enum.
struct Variant<'de> {
    name: Node<'de>,
    /// The step to the content.
    step: Step,
    content: Option<Node<'de>>,
}

impl<'de> Variant<'de> {
    fn content<R>(self, decode: impl FnOnce(Node<'de>) -> Result<R, Fault>) -> Result<R, Fault> {
        let content = self.content.ok_or_else(Fault::unspecific)?;
        decode(content).map_err(|fault| fault.below(&self.step))
    }
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Fault;
    type Variant = Self;

    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self), Fault> {
        Ok((seed.deserialize(self.name)?, self))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = Fault;

    fn unit_variant(self) -> Result<(), Fault> {
        match self.content {
            None => Ok(()),
            Some(_) => self.newtype_variant_seed(std::marker::PhantomData),
        }
    }

    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, Fault> {
        self.content(|content| seed.deserialize(content))
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Fault> {
        self.content(|content| content.visit(&[], visitor))
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: Names, visitor: V) -> Result<V::Value, Fault> {
        self.content(|content| content.visit(fields, visitor))
    }
}

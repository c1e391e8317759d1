//! The common parts of the reflector targets: bodies that arrive in pieces, a clock without waits,
//! a custom object type, and the interpretation of JSON by serde_json.

use std::cell::Cell;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use k8s_informer::time::Clock;
use k8s_informer::{DynamicObject, Indexer, Object, ObjectMeta, Stop, impl_object};
use serde::de::{DeserializeOwned, DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

/// The content of the store before the bytes arrive.
pub const KNOWN: &str = r#"{"kind":"List","metadata":{"resourceVersion":"5"},"items":[
    {"metadata":{"name":"a","uid":"1","resourceVersion":"3"},"spec":{"value":3}},
    {"metadata":{"name":"b","uid":"2","resourceVersion":"4"},"spec":{"value":4}},
    {"metadata":{"name":"c","namespace":"ns","uid":"3","resourceVersion":"5"},"spec":{"value":5}}]}"#;

/// A custom type that cannot be decoded from every object.
#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Thing {
    pub metadata: ObjectMeta,
    pub spec: Spec,
}

#[derive(Clone, Debug, Deserialize, PartialEq)]
pub struct Spec {
    pub value: u32,
    #[serde(default)]
    pub aside: Option<u32>,
}

impl_object!(Thing, "v1", "Thing", "things", Namespaced);

/// An object that can be compared as JSON.
pub trait Shown: Object + DeserializeOwned {
    fn shown(&self) -> Value;
}

impl Shown for Thing {
    fn shown(&self) -> Value {
        json!([self.metadata, self.spec.value])
    }
}

impl Shown for DynamicObject {
    fn shown(&self) -> Value {
        json!(self)
    }
}

/// Returns the content of a store.
pub fn shown<T: Shown>(store: &Indexer<T>) -> BTreeMap<String, Value> {
    let key = |object: &T| match object.namespace() {
        "" => object.name().to_owned(),
        namespace => format!("{namespace}/{}", object.name()),
    };
    store
        .list()
        .iter()
        .map(|object| (key(object), object.shown()))
        .collect()
}

/// A body that arrives in pieces. Their sizes are `sizes`, repeated until the end. Without sizes,
/// the body arrives in one piece.
pub struct Pieces {
    pub rest: io::Cursor<Vec<u8>>,
    pub sizes: Vec<u8>,
    pub turn: usize,
}

impl Pieces {
    pub fn new(bytes: &[u8], sizes: &[u8]) -> Self {
        Self {
            rest: io::Cursor::new(bytes.to_vec()),
            sizes: sizes.to_vec(),
            turn: 0,
        }
    }
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let size = match self.sizes.len() {
            0 => buffer.len(),
            sizes => 1 + usize::from(self.sizes[self.turn % sizes]),
        };
        self.turn += 1;
        let size = size.min(buffer.len());
        self.rest.read(&mut buffer[..size])
    }
}

/// A clock on which every wait ends immediately.
#[derive(Default)]
pub struct NoWaiting;

impl Clock for NoWaiting {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wait(&self, _: Duration, stop: &Stop) -> bool {
        !stop.is_stopped()
    }
}

/// Parses JSON with serde_json. Returns `None` if the JSON is invalid, or if an object has a
/// duplicate key: its meaning is then undefined.
pub fn plain(bytes: &[u8]) -> Option<Value> {
    let twice = Cell::new(false);
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    Once(&twice).deserialize(&mut deserializer).ok()?;
    if twice.get() {
        None
    } else {
        serde_json::from_slice(bytes).ok()
    }
}

/// Searches for duplicate keys.
struct Once<'a>(&'a Cell<bool>);

impl<'de> DeserializeSeed<'de> for Once<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = HashSet::new();
        while let Some(key) = map.next_key::<String>()? {
            if !keys.insert(key) {
                self.0.set(true);
            }
            map.next_value_seed(Once(self.0))?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while seq.next_element_seed(Once(self.0))?.is_some() {}
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Returns a text field. Returns an empty string if the field is missing or not text.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// Returns the key from the namespace and the name of an object, if it has a name.
pub fn key_of(object: &Value) -> Option<String> {
    match (
        text(object, "/metadata/namespace"),
        text(object, "/metadata/name"),
    ) {
        (_, "") => None,
        ("", name) => Some(name.to_owned()),
        (namespace, name) => Some(format!("{namespace}/{name}")),
    }
}

/// Returns the keys of an object in their order.
pub fn keys(object: &[u8]) -> Vec<String> {
    struct Keys;

    impl<'de> Visitor<'de> for Keys {
        type Value = Vec<String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<String>, A::Error> {
            let mut keys = Vec::new();
            while let Some((key, IgnoredAny)) = map.next_entry()? {
                keys.push(key);
            }
            Ok(keys)
        }
    }

    serde_json::Deserializer::from_slice(object)
        .deserialize_map(Keys)
        .unwrap_or_default()
}
